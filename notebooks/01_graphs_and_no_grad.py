# %% [markdown]
# # 1 Graphs and no_grad
#
# A validation loop runs next to training. Nothing in it trains, and still memory climbs from batch to batch until the
# process dies. A colleague adds `model.eval()`; it dies a little later. This chapter finds what is kept, by whom, and
# which of four switches lets go of it.
#
# About 50 minutes with the exercises. You need to have read a training loop before, nothing more.

# %% tags=["parameters"]
budget_s: float = 2.0  # seconds that one timing comparison may take
device: str = "auto"  # where the GPU cells run: "auto", "cpu" or "cuda"
record: bool = False  # keep results for readers without this machine
fast: bool = False  # small budgets: a quick look

# %% tags=["nbval-ignore-output"]
from helpers import preflight

preflight("01", budget_s=budget_s, device=device, record=record, fast=fast)

# %% [markdown]
# ## A loop that grows
# Here is the loop, with a net small enough to count everything. It adds up the loss to report it at the end.

# %%
import torch
from torch import nn

from helpers import evidence

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 10))
images, labels = torch.randn(64, 256), torch.randint(10, (64,))

total = 0.0
for batch in range(1, 101):
    total = total + nn.functional.cross_entropy(model(images), labels)
    if batch in (1, 10, 100):
        print(f"after {batch:3} batches: {evidence.graph_nodes(total):4} nodes hang on the total")

# %% [markdown]
# The sum is a tensor, and behind it hangs a [record of every operation](../docs/glossary.md#autograd-graph) of every
# batch so far. The nodes are small; what they hold on to is not. Before we measure that, commit yourself.

# %%
from helpers import predict

guess = predict("eval-graph", "Does model.eval() keep autograd from recording?", ["yes", "no"])

# %%
model.train()
in_train_mode = evidence.graph_nodes(model(images))
model.eval()
in_eval_mode = evidence.graph_nodes(model(images))
print(f"train: {in_train_mode} nodes, eval: {in_eval_mode} nodes")
guess.reveal("yes" if in_eval_mode == 0 else "no")

# %% [markdown]
# Eval mode loses one node: dropout does nothing now, so it leaves no trace. Everything else is recorded as before.
#
# ## What autograd records
# Autograd records an operation if one of its inputs requires grad and [grad mode](../docs/glossary.md#grad-mode) is
# on. The picture shows the record of one forward pass: the output on top, the parameters at the bottom.

# %% tags=["nbval-ignore-output"]
from helpers import figures

figures.draw_graph(model(images), model)

# %% [markdown]
# Each box at the end of a branch is a parameter; `Addmm` and `T` are what a `Linear` becomes: a multiplication with a
# sum, and its weight transposed. The input has no box: nobody asked for its gradient.
#
# The course tests what two widely copied articles say. The first says that the graph links every variable; we test
# three.

# %%
from helpers import claim

weight = torch.ones(3, requires_grad=True)
cases = {
    "depends on a parameter": weight * 2,
    "depends on data alone": torch.ones(3) * 2,
    "cut by detach()": weight.detach() * 2,
}
for name, result in cases.items():
    print(f"{name}: {evidence.graph_nodes(result)} nodes")
every_variable = all(evidence.graph_nodes(result) > 0 for result in cases.values())
claim("1.1").judge(every_variable, because="counted: results that no parameter leads to have no node")

# %% [markdown]
# ## What the record costs
# For the backward pass, [nodes keep tensors](../docs/glossary.md#saved-tensors): the input of a `Linear`, the output
# of a `ReLU`. We count the bytes they hold, parameters left out because they are in memory anyway. The net is deeper
# now, as nets are.

# %%
torch.manual_seed(0)
layers = [layer for _ in range(8) for layer in (nn.Linear(256, 256), nn.ReLU())]
deep = nn.Sequential(*layers)
batch = torch.randn(256, 256)


def kept(run) -> str:
    return f"{evidence.saved_for_backward(run, deep.parameters()):>9,} bytes"


print("train mode     ", kept(lambda: deep.train()(batch)))
print("eval mode      ", kept(lambda: deep.eval()(batch)))
print("no_grad        ", kept(torch.no_grad()(lambda: deep(batch))))
print("inference_mode ", kept(torch.inference_mode()(lambda: deep(batch))))

# %% [markdown]
# Eval mode keeps every byte that train mode keeps. `eval()` is a message to layers: dropout stops dropping, batch norm
# uses its stored statistics. `no_grad` is a message to autograd. Neither hears the other:

# %%
layers = [nn.Linear(256, 64), nn.BatchNorm1d(64), nn.Dropout(0.5), nn.Linear(64, 10)]
for training in (True, False):
    for context in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        torch.manual_seed(0)
        net = nn.Sequential(*layers).train(training)
        before = net[1].running_mean.clone()
        with context():
            first, second = net(images), net(images)
        mode = f"{'train' if training else 'eval'} + {context.__name__}"
        moved = not torch.equal(before, net[1].running_mean)
        repeatable = torch.equal(first, second)
        print(f"{mode:24} repeatable {repeatable!s:5}  statistics move {moved!s:5}  graph {first.requires_grad}")

# %% [markdown]
# Read the columns: the first two depend on train or eval alone, the last on grad mode alone. Note the second row. A
# forward pass in train mode under `no_grad` still moves the batch-norm statistics: serving in train mode changes the
# model you serve.
#
# ## Is eval() fast?
# The article recommends eval mode for speed. First we count what the mode changes, in a net without a layer that looks
# at it and in a net with dropout.

# %%
plain_net = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256))
dropout_net = nn.Sequential(nn.Linear(256, 256), nn.Dropout(0.5), nn.Linear(256, 256), nn.Dropout(0.5))
for name, net in {"plain": plain_net, "dropout": dropout_net}.items():
    operations = [
        evidence.op_counts(lambda net=net, mode=mode: net.train(mode)(batch)).total() for mode in (True, False)
    ]
    print(f"{name}: {operations[0]} operations in train mode, {operations[1]} in eval mode")

# %% [markdown]
# Now the time, with recording on. Each round runs both variants, in random order; what is judged is the ratio within
# the round.

# %% tags=["nbval-ignore-output"]
from helpers import compare


def modes(net: nn.Module) -> dict:
    return {"train": lambda: net.train()(batch), "eval": lambda: net.eval()(batch)}


plain_speed = compare(modes(plain_net))
dropout_speed = compare(modes(dropout_net))
dropout_speed.show()

# %% tags=["nbval-ignore-output"]
claim("1.2").judge(
    {
        "a net without dropout or batch norm": plain_speed.faster("eval"),
        "a net with dropout": dropout_speed.faster("eval"),
    }
)

# %% [markdown]
# Where eval mode is faster, it is because a layer has less to do. Switch it on because the answers are wrong without
# it.
#
# ## Detach the output?
# Another common repair detaches the result, so that the list of outputs holds no graph. It helps afterwards. But when
# was the memory needed? The picture follows the bytes alive after each operation of the forward pass.

# %% tags=["nbval-ignore-output"]
deep.train()
memory = {
    "forward": evidence.peak_memory(lambda: deep(batch)),
    "forward, then detach": evidence.peak_memory(lambda: deep(batch).detach()),
    "under no_grad": evidence.peak_memory(torch.no_grad()(lambda: deep(batch))),
}
figures.memory_timeline(memory)

# %%
plain, detached, without = memory.values()
print(f"peak unchanged by detach: {detached.peak == plain.peak}")
print(f"kept afterwards: {plain.live:,} bytes, detached {detached.live:,} bytes")
claim("1.3").judge(
    detached.peak == plain.peak and detached.live < plain.live,
    because="the peak is that of the plain forward pass; only what stays afterwards shrinks",
)

# %% [markdown]
# ## no_grad and inference_mode
# With recording off, each activation dies as soon as the next layer has read it. Bookkeeping dies too, and
# `inference_mode` drops more of it than `no_grad`:

# %%
small = nn.Sequential(*[nn.Linear(64, 64) for _ in range(8)])
x = torch.randn(8, 64)
forward = {
    "grad": lambda: small(x),
    "no_grad": torch.no_grad()(lambda: small(x)),
    "inference_mode": torch.inference_mode()(lambda: small(x)),
}
for name, run in forward.items():
    print(f"{name:14} {evidence.op_counts(run).total()} operations reach the backend")

# %% tags=["nbval-ignore-output"]
speed = compare(forward)
speed.show()

# %% tags=["nbval-ignore-output"]
from helpers import finding

claim("1.4").judge(
    {
        "memory": finding(without.peak < plain.peak, "peak bytes counted, deep net", peak=[plain.peak, without.peak]),
        "speed": speed.faster("no_grad"),
        "speed of inference_mode": speed.faster("inference_mode"),
    }
)

# %% [markdown]
# The memory saving is a fact of the code. The speed-up is what bookkeeping costs: it shows in a net of many small
# operations like this one, and drowns where each operation is long.
#
# What `inference_mode` drops has a price. Its tensors carry no version counter, so autograd refuses them for ever:

# %% tags=["nbval-ignore-output"]
from helpers import expected_error

with torch.inference_mode():
    table = torch.linspace(0, 1, 3)
with expected_error(RuntimeError):
    (table * weight).sum().backward()

# %% [markdown]
# A cache that was first filled while serving breaks training in this way. Build caches under
# `torch.inference_mode(False)`; exercise 4 does.
#
# ## What professionals still get wrong
# **Recording off can change values.** `nn.TransformerEncoder` takes a fused path in eval mode, but only when nothing is
# recorded. That path sets padded positions to zero. Same weights, same input:

# %%
import warnings

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(32, 4, dim_feedforward=64, batch_first=True)
encoder = nn.TransformerEncoder(layer, 2).eval()
tokens, padded = torch.randn(2, 6, 32), torch.tensor([[False] * 6, [False] * 3 + [True] * 3])
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # nested tensors announce themselves as a prototype
    recorded = encoder(tokens, src_key_padding_mask=padded)
    with torch.no_grad():
        fused = encoder(tokens, src_key_padding_mask=padded)
print("real positions agree:  ", torch.allclose(recorded[~padded], fused[~padded], atol=1e-5))
print("padded positions agree:", torch.allclose(recorded[padded], fused[padded], atol=1e-5))
print("mean over time agrees: ", torch.allclose(recorded.mean(1), fused.mean(1), atol=1e-2))

# %% [markdown]
# Whoever pools with a plain mean gets other features in serving than in validation. Pool with the mask.
#
# **Grad mode belongs to the thread.** A task that awaits inside `no_grad` lends its mode to every other task. Two such
# tasks that overlap leave it switched off after both have ended:

# %%
import asyncio
from concurrent.futures import ThreadPoolExecutor


async def serve(steps: int) -> None:
    with torch.no_grad():
        for _ in range(steps):
            await asyncio.sleep(0)  # wait for a request: other tasks run now


async def two_servers() -> tuple[bool, bool]:
    before = torch.is_grad_enabled()
    await asyncio.gather(serve(1), serve(2))
    return before, torch.is_grad_enabled()


with ThreadPoolExecutor(1) as pool:
    before, after = pool.submit(lambda: asyncio.run(two_servers())).result()
print(f"grad mode before: {before}, after both servers ended: {after}")

# %% [markdown]
# Each block restored what it found, and the second had found the first one's. A worker thread has the opposite
# surprise: it starts with recording on, whatever the thread that started it had chosen.

# %%
with torch.no_grad(), ThreadPoolExecutor(1) as pool:
    print("recording in the worker:", pool.submit(torch.is_grad_enabled).result())

# %% [markdown]
# **A [view](../docs/glossary.md#view) keeps the whole [storage](../docs/glossary.md#storage).** One column per batch
# sounds cheap to keep. `detach()` cuts the graph; the column still points into the full output.

# %%
wide = nn.Linear(256, 1000)
with torch.no_grad():
    views = [wide(images)[:, 0] for _ in range(20)]
    clones = [wide(images)[:, 0].clone() for _ in range(20)]
print(f"views hold  {evidence.storage_bytes(views):>9,} bytes")
print(f"clones hold {evidence.storage_bytes(clones):>9,} bytes")

# %% [markdown]
# ## On a GPU
# The counts above are the same on every device. What a GPU adds is an allocator that can be asked for its peak, and
# asynchronous work that has to be timed with events; `compare` does both there.

# %% tags=["nbval-ignore-output"]
if torch.cuda.is_available() and device != "cpu":
    big, data = nn.Sequential(*[nn.Linear(2048, 2048) for _ in range(8)]).cuda(), torch.randn(4096, 2048).cuda()
    for name, run in {"grad": lambda: big(data), "no_grad": torch.no_grad()(lambda: big(data))}.items():
        run()  # workspaces are allocated by the first call
        print(f"{name}: peak {evidence.peak_memory(run).peak:,} bytes by max_memory_allocated")
    compare({"grad": lambda: big(data), "no_grad": torch.no_grad()(lambda: big(data))}, device="cuda").show()
else:
    print("Not testable here: this machine has no CUDA device.")

# %% [markdown]
# ## Summary
# - `eval()` changes what layers compute, `no_grad` and `inference_mode` change what autograd keeps. Serving needs both.
# - The graph's cost is what its nodes hold. Detaching the output frees it after the peak; not recording avoids it.
# - Grad mode belongs to a thread and leaks across `await`; a view keeps its whole storage; a fused path may fill
#   padding differently.
#
# ## Exercises
# Five exercises wait in `01_exercises.ipynb`, next to your copy of this chapter: the six modes, an
# evaluation that leaves no trace, features worth keeping, a cache for both modes, and an async server.
#
# ## Sources
# - Autograd mechanics, "Locally disabling gradient computation":
#   <https://docs.pytorch.org/docs/stable/notes/autograd.html>
# - `torch.inference_mode`: <https://docs.pytorch.org/docs/stable/generated/torch.autograd.grad_mode.inference_mode.html>
# - Reports behind this chapter: [hszhao/semseg#60](https://github.com/hszhao/semseg/issues/60) and
#   [pytorch#4932](https://github.com/pytorch/pytorch/issues/4932) (graphs kept),
#   [pytorch/vision#2079](https://github.com/pytorch/vision/issues/2079) (statistics moved in train mode),
#   [pytorch#86120](https://github.com/pytorch/pytorch/issues/86120) (fused encoder),
#   [sgl-project/sglang#33470](https://github.com/sgl-project/sglang/issues/33470) (inference tensors in training).

# %% tags=["nbval-ignore-output"]
from helpers import wrap_up

wrap_up()
