# %% [markdown]
# # 5 Batching
#
# A service answers one request a call. Somebody raises the batch to 64 and waits for 64 times the throughput. It does
# not come. Then the answers change: short requests are [padded](../docs/glossary.md#padding) now. Then the latency
# alarm goes off: a setting makes requests wait for company. This chapter finds what a batch can gain, what padding
# does to values, and when waiting pays.
#
# About 50 minutes with the exercises. You need to have called a model on a batch before; chapters 2 and 3 help with one
# section.

# %% tags=["parameters"]
budget_s: float = 2.0  # seconds that one timing comparison may take
device: str = "auto"  # where the GPU cells run: "auto", "cpu" or "cuda"
record: bool = False  # keep results for readers without this machine
fast: bool = False  # small budgets: a quick look

# %% tags=["nbval-ignore-output"]
from helpers import preflight

preflight("05", budget_s=budget_s, device=device, record=record, fast=fast)

# %% [markdown]
# ## What one call costs
# Two nets: a small MLP and three convolutions. We count what a call does, for one item and for 16.

# %%
import torch
from torch import nn

from helpers import evidence

torch.manual_seed(0)
mlp = nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.ReLU())])
convolutions = nn.Sequential(*[layer for i in (3, 16, 16) for layer in (nn.Conv2d(i, 16, 3, padding=1), nn.ReLU())])
inputs = {"MLP": (mlp, (64,)), "convolutions": (convolutions, (3, 32, 32))}
with torch.inference_mode():
    for name, (net, shape) in inputs.items():
        for size in (1, 16):
            x = torch.randn(size, *shape)
            operations = evidence.op_counts(lambda net=net, x=x: net(x)).total()
            work = evidence.flops(lambda net=net, x=x: net(x))
            print(f"{name:12}  batch {size:2}: {operations} operations, {work:>11,} flops")

# %% [markdown]
# The number of operations stays, the arithmetic grows with the batch. So a call's time has two parts:
# $t(b) = t_0 + c \cdot b$. Python, dispatch and the reading of weights are paid once; each item adds
# [its own $c$](../docs/glossary.md#item-cost). A batch shares [$t_0$](../docs/glossary.md#fixed-cost) and nothing
# else. A widely copied article promises a gain of as many times as there are objects.

# %%
from helpers import predict

guess = predict(
    "conv-gain",
    "The convolutions get 16 images a call instead of one. How does their throughput rise?",
    ["about 16 times", "4 to 15 times", "less than 4 times"],
)

# %% tags=["nbval-ignore-output"]
from helpers import compare


def by_batch(name: str, sizes: list[int]) -> dict:
    """The same net called with batches of these sizes."""
    net, shape = inputs[name]
    data = {f"batch {size}": torch.randn(size, *shape) for size in sizes}
    return {label: torch.inference_mode()(lambda x=x: net(x)) for label, x in data.items()}


mlp_sizes, conv_sizes = [1, 4, 16, 64, 256, 1024, 4096], [1, 2, 4, 8, 16]
mlp_calls = compare(by_batch("MLP", mlp_sizes))
conv_calls = compare(by_batch("convolutions", conv_sizes))
gain = 16 * conv_calls.speedup("batch 16").median
print(f"convolutions, batch 16: {gain:.1f} times the throughput of single calls")
guess.reveal(guess.options[0 if gain >= 15 else 1 if gain >= 4 else 2])

# %% [markdown]
# ## One formula
# Relative to calls with one item, a batch gains $b \cdot (t_0 + c) / (t_0 + c \cdot b)$. Let $b$ grow and this ends at
# $$1 + t_0 / c .$$
# We fit the two numbers to the measured times. The fit weighs relative errors, so that short calls count too.

# %% tags=["nbval-ignore-output"]
import numpy as np
from scipy.optimize import nnls

from helpers import figures


def fit(calls, sizes: list[int]) -> tuple[np.ndarray, float, float]:
    """Items per ms by batch size, and the t0 and c (ms, not negative) that explain the times best."""
    b, t = np.array(sizes), np.array([1000 * calls.seconds_per_call(name) for name in calls.names])
    (t0, c), _ = nnls(np.stack([1 / t, b / t], axis=1), np.ones(len(b)))
    return b / t, t0, c


mlp_throughput, mlp_t0, mlp_c = fit(mlp_calls, mlp_sizes)
figures.throughput_curve(mlp_sizes, mlp_throughput, (mlp_t0, mlp_c), unit="items per ms")

# %% tags=["nbval-ignore-output"]
conv_throughput, conv_t0, conv_c = fit(conv_calls, conv_sizes)
figures.throughput_curve(conv_sizes, conv_throughput, (conv_t0, conv_c), unit="images per ms")

# %% [markdown]
# Both curves flatten. The MLP's does so late, because each item adds little to the fixed cost; that of the
# convolutions after a few images, because each brings much arithmetic of its own. Beyond the bend, bigger batches cost
# latency and memory and bring hardly any throughput.
#
# How far up is a given batch? It reaches $b / (b + t_0/c)$ of the limit. For a call with $t_0 = 8c$:

# %%
for size in (1, 8, 24, 72, 792):
    print(f"batch {size:3}: gain {size * 9 / (8 + size):5.2f} of at most 9, {size / (size + 8):.0%} of the limit")

# %% [markdown]
# Half the limit takes $t_0/c$ items, nine tenths takes nine times as many, and so on. Now the claim, on the largest
# batch of each net: if the gain were the batch size, the call would take as long as one with a single item.

# %% tags=["nbval-ignore-output"]
from helpers import claim

print(f"limit by the fit: MLP {1 + mlp_t0 / mlp_c:.1f} times, convolutions {1 + conv_t0 / conv_c:.1f} times")
claim("5.1").judge(
    {"a small MLP": mlp_calls.same("batch 4096"), "three convolutions": conv_calls.same("batch 16")},
)

# %% [markdown]
# The formula has limits too: $c$ is only nearly constant. Kernels get better with more rows, until the activations no
# longer fit the cache. Trust a fit within the sizes you measured.
#
# ## Padding is not nothing
# Items of one batch must have one length, so short ones are padded, here with zeros. Three lists of numbers, pooled
# alone and as a padded batch:

# %%
from torch.nn.utils.rnn import pad_sequence

items = [torch.tensor(v) for v in ([-4.0, -2.0], [-1.0, -3.0, -2.0, -6.0], [-5.0])]
lengths = torch.tensor([len(item) for item in items])
x = pad_sequence(items, batch_first=True)
alone = {"mean": [i.mean() for i in items], "max": [i.max() for i in items], "last": [i[-1] for i in items]}
padded = {"mean": x.mean(1), "max": x.amax(1), "last": x[:, -1]}
for name in alone:
    print(f"{name:4}  alone {torch.stack(alone[name]).tolist()}  padded {padded[name].tolist()}")
naive_differs = {name: not torch.equal(torch.stack(alone[name]), padded[name]) for name in alone}

# %% [markdown]
# No error, and wrong values for every item but the longest: a test with equal lengths finds nothing.
# [A mask](../docs/glossary.md#mask) repairs it, if it *chooses*. Multiplying by the mask fails as soon as the padding
# holds a NaN, as uninitialised memory may:

# %%
valid = torch.arange(x.shape[1]) < lengths[:, None]
dirty = torch.where(valid, x, torch.nan)
print("mean by product:", ((dirty * valid).sum(1) / lengths).tolist())
print("mean by choice: ", (torch.where(valid, dirty, 0).sum(1) / lengths).tolist())
print("max by choice:  ", torch.where(valid, dirty, -torch.inf).amax(1).tolist())

# %% [markdown]
# Each reduction needs its neutral filling: zero for a sum, $-\infty$ for a maximum. A recurrent net has none; it walks
# through the padding and its state drifts. `pack_padded_sequence` stops at each item's own end:

# %%
from torch.nn.utils.rnn import pack_padded_sequence

for bidirectional in (False, True):
    torch.manual_seed(0)
    gru = nn.GRU(1, 8, batch_first=True, bidirectional=bidirectional)
    state_alone = torch.cat([gru(item[None, :, None])[1] for item in items], dim=1)
    packed = pack_padded_sequence(x[..., None], lengths, batch_first=True, enforce_sorted=False)
    for name, batch in {"padded": x[..., None], "packed": packed}.items():
        same = torch.isclose(gru(batch)[1], state_alone, atol=1e-5).all(2).tolist()
        print(f"bidirectional {bidirectional!s:5} {name}: state as alone, per direction and item: {same}")

# %% [markdown]
# The backward direction is wrong in padded batches as well: it *starts* in the padding.
#
# ## Buckets, and who pays for new shapes
# Padding also costs: what share of the padded numbers is padding? We draw 1,024 lengths, log-normal as texts are, for
# batches of 16:

# %%
import random

draw = random.Random(0)
text_lengths = [max(1, round(draw.lognormvariate(4, 0.5))) for _ in range(1024)]


def batches_of(order: list[int], size: int = 16) -> list[list[int]]:
    return [order[start : start + size] for start in range(0, len(order), size)]


def waste(batches: list[list[int]], round_up=lambda n: n) -> float:
    numbers = sum(len(batch) * round_up(max(text_lengths[i] for i in batch)) for batch in batches)
    return 1 - sum(text_lengths) / numbers


arrived = list(range(1024))
ordered = sorted(arrived, key=text_lengths.__getitem__)
windows = [i for w in batches_of(arrived, 128) for i in sorted(w, key=text_lengths.__getitem__)]
for name, order in {"as they arrive": arrived, "sorted in windows": windows, "sorted": ordered}.items():
    print(f"{name:18} {waste(batches_of(order)):5.1%} padding")

# %% [markdown]
# Sorting needs all items at hand, windows suit a stream, and either way the outputs must be put back in order: index
# with the *inverse* of the permutation (exercise 3).
#
# Sorted batches have nearly as many lengths as there are batches. Whatever is keyed by shape pays for each: cuDNN's
# tuning (chapter 2), a static graph (chapter 3). Rounding lengths up makes shapes few again and brings padding back. A
# counting backend shows the bargain, without a compiler:

# %%
import logging


def mean_pool(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    valid = torch.arange(x.shape[1]) < lengths[:, None]
    return torch.where(valid, x, 0).sum(1) / lengths


def serve(round_up, dynamic: bool | None) -> str:
    """Run all sorted batches through a freshly compiled function; count graphs and compiled calls."""
    torch.compiler.reset()
    backend, shapes = evidence.CountingBackend(), set()
    pool = torch.compile(mean_pool, backend=backend, dynamic=dynamic)
    for batch in batches_of(ordered):
        n = torch.tensor([text_lengths[i] for i in batch])
        shapes.add(round_up(int(n.max())))
        pool(torch.ones(16, round_up(int(n.max()))), n)
    paid = waste(batches_of(ordered), round_up)
    return (
        f"{paid:5.1%} padding, {len(shapes):2} shapes, {backend.compiles} graphs, {backend.calls} of 64 calls compiled"
    )


policies = {
    "exact length": lambda n: n,
    "multiple of 32": lambda n: -(-n // 32) * 32,
    "power of two": lambda n: 1 << (n - 1).bit_length(),
}
logging.disable(logging.WARNING)  # reaching the recompile limit is announced here, and nowhere else
for name, round_up in policies.items():
    print(f"{name:14} static:  {serve(round_up, dynamic=False)}")
print(f"{'exact length':14} dynamic: {serve(policies['exact length'], dynamic=None)}")
logging.disable(logging.NOTSET)

# %% [markdown]
# Static shapes with exact lengths run into the [recompile limit](../docs/glossary.md#recompilation), and most calls
# run eager in silence. Few [buckets](../docs/glossary.md#bucket) keep every call compiled and cost padding. Dynamic
# shapes need no buckets; what is keyed by shape below the compiler still does.
#
# ## Batching models
# The formula does not care what is batched. An ensemble of small models pays $t_0$ for each model. Three functions
# share it: `stack_module_state` stacks the weights of all models, `functional_call` runs a net with weights not its
# own, and `vmap` maps that over the stack.

# %%
from torch.func import functional_call, stack_module_state, vmap


def ensemble(count: int, width: int = 32) -> list[nn.Module]:
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, 4)) for _ in range(count)]


def loop(models: list[nn.Module], x: torch.Tensor) -> torch.Tensor:
    return torch.stack([model(x) for model in models])


def mapped(models: list[nn.Module], x: torch.Tensor):
    """A function without arguments that runs all models; the weights are stacked once, here."""
    weights, _ = stack_module_state(models)  # these nets have no buffers; exercise 5's have
    run = vmap(lambda weights: functional_call(models[0], weights, (x,)))
    return lambda: run(weights)


rows = torch.randn(8, 16, generator=torch.Generator().manual_seed(0))
with torch.inference_mode():
    for count in (2, 64):
        models = ensemble(count)
        counts = [evidence.op_counts(run).total() for run in (lambda m=models: loop(m, rows), mapped(models, rows))]
        print(f"{count:2} models: {counts[0]:3} operations in a loop, {counts[1]:2} with vmap")
        print(f"           same values: {torch.allclose(loop(models, rows), mapped(models, rows)(), atol=1e-5)}")

# %% tags=["nbval-ignore-output"]
small, large = ensemble(64), ensemble(8, width=256)
many_rows = torch.randn(64, 16)
with torch.inference_mode():
    small_speed = compare({"loop": lambda: loop(small, rows), "vmap": mapped(small, rows)})
    large_speed = compare({"loop": lambda: loop(large, many_rows), "vmap": mapped(large, many_rows)})
print("8 wider models, 64 rows:", large_speed.sentence("vmap"))
small_speed.show()

# %% [markdown]
# Many small models gain much. Where each model has enough work of its own there is no $t_0$ left to share, and stacked
# kernels may even lose.
#
# ## Batching is a queue
# A server rarely holds a batch; requests come one by one. Many [batchers](../docs/glossary.md#dynamic-batching) offer
# a delay: wait some milliseconds for company. Requests arrive at random, 2,000 a second; a call takes $t_0 = 1$ and
# $c = 0.1$ milliseconds.

# %%
wait_guess = predict(
    "wait",
    "The server is idle and one request is there. What does waiting 5 ms for company do to the 99th percentile?",
    ["lowers it", "changes little", "raises it"],
)

# %% [markdown]
# The simulation follows each batch: it starts when the server is free, and its first request has waited long enough or
# the batch is full. A seed fixes the arrivals.


# %%
def simulate(
    rate: float, max_batch: int, wait_ms: float = 0.0, requests: int = 20_000, t0: float = 1.0, c: float = 0.1
):
    """Latency of each request (ms), mean batch, and the share of time the server is busy."""
    arrivals = np.random.default_rng(0).exponential(1000 / rate, requests).cumsum()
    free = busy = 0.0
    first, latencies, batches = 0, [], 0
    while first < requests:
        last = first + max_batch - 1
        full = arrivals[last] if last < requests else np.inf
        start = max(free, arrivals[first], min(arrivals[first] + wait_ms, full))
        size = int(np.searchsorted(arrivals[first : first + max_batch], start, side="right"))
        free = start + t0 + c * size
        busy += t0 + c * size
        latencies.append(free - arrivals[first : first + size])
        first, batches = first + size, batches + 1
    return np.concatenate(latencies), requests / batches, busy / free


p99 = {}
for wait_ms in (0, 1, 5, 20):
    latency, batch_size, busy = simulate(2000, 32, wait_ms)
    p99[wait_ms] = np.percentile(latency, 99)
    print(
        f"wait {wait_ms:2} ms: median {np.median(latency):4.1f} ms, 99th percentile {p99[wait_ms]:4.1f} ms, "
        f"mean batch {batch_size:4.1f}, busy {busy:.0%}"
    )
wait_guess.reveal("raises it" if p99[5] > 1.1 * p99[0] else "lowers it" if p99[5] < 0.9 * p99[0] else "changes little")

# %% [markdown]
# Not waiting wins, and it batches all the same: while a call runs, requests queue, and the next call takes them all.
# Batches grow with the load by themselves. A wait of about $t_0$ hardly shows in the tail; longer ones cost what they
# wait. The picture varies the load.

# %% tags=["nbval-ignore-output"]
rates = [250, 500, 700, 850, 1250, 2000, 3000, 4000]


def tail(max_batch: int, wait_ms: float) -> list[float]:
    """99th percentile by rate; a gap where requests come faster than the server can ever answer."""
    limit = 1000 * max_batch / (1.0 + 0.1 * max_batch)
    return [
        float(np.percentile(simulate(rate, max_batch, wait_ms, 10_000)[0], 99)) if rate < limit else np.nan
        for rate in rates
    ]


series = {"one at a time": tail(1, 0), "up to 32, no wait": tail(32, 0)}
series |= {f"up to 32, wait {wait_ms} ms": tail(32, wait_ms) for wait_ms in (5, 20)}
figures.line_chart(rates, series, "requests per second", "99th percentile of latency (ms)")

# %% [markdown]
# Single calls end where their capacity ends: beyond it the queue grows for ever. Batches without a wait stay lowest at
# every load drawn. Do our $t_0$ and $c$ decide that? Three other services with a wait of $t_0/2$, at three loads each,
# in units of what single calls can carry:

# %%
for t0, c in [(10.0, 0.1), (5.0, 1.0), (1.0, 1.0)]:
    relative = []
    for load in (0.3, 1.0, 1.5):
        rate = load * 1000 / (t0 + c)
        waiting, prompt = (simulate(rate, 64, wait, 5_000, t0, c)[0].mean() for wait in (t0 / 2, 0.0))
        relative.append(f"{waiting / prompt:.2f}")
    print(f"t0 {t0:4}, c {c:4}: mean latency relative to no wait: {', '.join(relative)}")

# %% [markdown]
# The wait does not pay in any of them; as the load rises it matters less, because batches fill anyway. What a wait does
# buy stands in the last column of the first table: a less busy server. That pays where the idle time is of use, to
# another model on the same machine or on the electricity bill, and where the latency target leaves room. A batcher's
# delay is a setting for cost, not for speed.
#
# A batch also shares its fate: one bad request raises for all. A batcher has to find the culprit and still answer its
# neighbours; exercise 4 does.
#
# ## The same item in another batch
# One linear layer, 64 rows: each row alone, and all together. Are the results equal?

# %% tags=["nbval-ignore-output"]
torch.manual_seed(0)
linear, data = nn.Linear(512, 512), torch.randn(64, 512)
with torch.inference_mode():
    together, single = linear(data), torch.cat([linear(row[None]) for row in data])
print(f"rows equal bit by bit: {(together == single).all(1).sum()} of 64")
print(f"largest difference: {(together - single).abs().max():.1e}")

# %%
print("equal within 1e-5: ", torch.allclose(together, single, atol=1e-5))
print("same largest output:", torch.equal(together.argmax(1), single.argmax(1)))

# %% [markdown]
# Another batch size may choose another kernel, which adds in another order. A test of batching needs a tolerance, never
# `torch.equal`; and a cache of answers must not expect identical bits.
#
# ## What professionals still get wrong
# **The polarity of a mask.** In `scaled_dot_product_attention`, `True` means *look at this*; in
# `MultiheadAttention`'s `key_padding_mask` it means *ignore this*. We hand both the same mask, and change the padding
# to see who reads it:

# %%
torch.manual_seed(0)
attention = nn.MultiheadAttention(8, 1, batch_first=True).eval()
tokens, keep = torch.randn(1, 3, 8), torch.tensor([[True, True, False]])
other_padding = tokens.clone()
other_padding[0, 2] += 10
readers = {
    "scaled_dot_product_attention(attn_mask=keep)": lambda t: nn.functional.scaled_dot_product_attention(t, t, t, keep),
    "MultiheadAttention(key_padding_mask=keep)": lambda t: attention(t, t, t, key_padding_mask=keep)[0],
    "MultiheadAttention(key_padding_mask=~keep)": lambda t: attention(t, t, t, key_padding_mask=~keep)[0],
}
for name, read in readers.items():
    print(f"{name:44} reads the padding: {not torch.allclose(read(tokens)[0, :2], read(other_padding)[0, :2])}")

# %% [markdown]
# **An item that is all padding**, such as the filler of a last batch, has nothing to attend to. What comes out depends
# on the function and on a flag that looks unrelated:

# %%
nothing = torch.zeros(1, 3, dtype=torch.bool)
with torch.inference_mode():
    plain = nn.functional.scaled_dot_product_attention(tokens, tokens, tokens, nothing)
    print("scaled_dot_product_attention:            ", "NaN" if plain.isnan().any() else "no NaN")
    for need_weights in (True, False):
        out, _ = attention(tokens, tokens, tokens, key_padding_mask=~nothing, need_weights=need_weights)
        print(f"MultiheadAttention, need_weights={need_weights!s:5}:  ", "NaN" if out.isnan().any() else "no NaN")

# %% [markdown]
# **Neighbours that leak in.** In train mode batch norm computes its statistics over the batch, so an answer depends on
# who else was in it. Gradients show which rows each output reads:

# %%
torch.manual_seed(0)
normed = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))
batch = torch.randn(4, 6)
for training in (True, False):
    reads = evidence.row_dependencies(normed.train(training), batch).sum(1).tolist()
    print(f"{'train' if training else 'eval '} mode: rows that each output depends on: {reads}")

# %% [markdown]
# The last claim says that batching is hard to set up. The tools exist: `pad_sequence`, packing, servers that batch by
# themselves. What we measured is what they leave to you.

# %%
from helpers import finding

order_lost = [i for batch in batches_of(ordered) for i in batch] != arrived
claim("5.2").judge(
    {
        "padding": finding(
            all(naive_differs.values()), "three plain poolings of a padded batch differ, without an error"
        ),
        "order": finding(order_lost, "sorted batches give their answers in another order"),
        "latency": finding(p99[5] > p99[0], "a delay for fuller batches raises the 99th percentile"),
    }
)

# %% [markdown]
# ## On a GPU
# A kernel launch makes $t_0$ large, and thousands of cores make $c$ small: the same formula, with a limit far to the
# right.

# %% tags=["nbval-ignore-output"]
if torch.cuda.is_available() and device != "cpu":
    mlp.cuda()
    gpu_sizes = [1, 16, 256, 4096, 65536]
    data_on_gpu = {f"batch {b}": torch.randn(b, 64, device="cuda") for b in gpu_sizes}
    on_gpu = {name: torch.inference_mode()(lambda x=x: mlp(x)) for name, x in data_on_gpu.items()}
    throughput, gpu_t0, gpu_c = fit(compare(on_gpu, device="cuda"), gpu_sizes)
    figures.throughput_curve(gpu_sizes, throughput, (gpu_t0, gpu_c), unit="items per ms")
else:
    print("Not testable here: this machine has no CUDA device.")

# %% [markdown]
# ## Summary
# - A batch shares $t_0$ and nothing else: the gain ends at $1 + t_0/c$, and half of it is reached with $t_0/c$ items.
# - Padding changes means, maxima, last steps and recurrent states without an error. Masks choose, fillings are neutral,
#   outputs go back in order, comparisons have a tolerance.
# - Batch what has queued. Waiting for company buys idle time and pays with latency.
#
# ## Exercises
# Five exercises wait in `05_exercises.ipynb`, next to your copy of this chapter: the largest gain, pooling
# that does not see padding, batches of like lengths, a micro-batcher, and an ensemble in one pass.
#
# ## Sources
# - `pack_padded_sequence`:
#   <https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.rnn.pack_padded_sequence.html>
# - `torch.func` and model ensembling: <https://docs.pytorch.org/tutorials/intermediate/ensembling.html>
# - Numerical accuracy, "Batched computations or slice computations":
#   <https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html>
# - Triton's batcher, which by default does not delay:
#   <https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/batcher.html>
# - Reports behind this chapter: [turboderp/exllama#101](https://github.com/turboderp/exllama/issues/101) and
#   [triton-inference-server/fastertransformer_backend#53](https://github.com/triton-inference-server/fastertransformer_backend/issues/53)
#   (a padded batch answers otherwise than single calls),
#   [huggingface/transformers#46773](https://github.com/huggingface/transformers/issues/46773) (the mask was skipped
#   for a batch of one), [ggml-org/llama.cpp#4479](https://github.com/ggml-org/llama.cpp/issues/4479) (other batch
#   size, other rounding).

# %% tags=["nbval-ignore-output"]
from helpers import wrap_up

wrap_up()
