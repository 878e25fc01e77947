# %% [markdown]
# # 2 cuDNN autotuning
#
# Somebody read that one [flag](../docs/glossary.md#backend-flag) makes convolutions faster. The line is in the
# training script, it raises nothing, and nothing changes. In another team the same flag works, and training got
# slower. This chapter finds out where the flag lives, what it switches on, and why its price depends on how many
# *different* inputs you have. Tuning is a cache.
#
# About 45 minutes with the exercises. You need to know what a convolution is. No GPU is needed: cuDNN's mechanism is
# rebuilt here on the CPU, and the last cells run the real one where there is one.

# %% tags=["parameters"]
budget_s: float = 2.0  # seconds that one timing comparison may take
device: str = "auto"  # where the GPU cells run: "auto", "cpu" or "cuda"
record: bool = False  # keep results for readers without this machine
fast: bool = False  # small budgets: a quick look

# %% tags=["nbval-ignore-output"]
from helpers import preflight

preflight("02", budget_s=budget_s, device=device, record=record, fast=fast)

# %% [markdown]
# ## A flag that nobody reads
# Five lines as they stand in real scripts. We look at the flag that PyTorch reads before them, after four, and after
# the fifth.

# %%
import torch
from torch import nn

model = nn.Conv2d(3, 8, 3)
print("at the start:", torch.backends.cudnn.benchmark)
torch.backends.cudnn.benchmrk = True
model.cudnn_benchmark = True
model.benchmark = True
torch.backends.benchmark = True
print("after four lines without complaint:", torch.backends.cudnn.benchmark)
torch.backends.cudnn.benchmark = True
print("after the right one:", torch.backends.cudnn.benchmark)

# %% [markdown]
# Python lets you set any attribute on a module or an object, so a typo is a new attribute that nobody reads. What does
# raise is a path that does not exist, and a value that is no `bool`:

# %%
from helpers import expected_error

with expected_error(AttributeError):
    torch.cudnn.benchmark = True
with expected_error(RuntimeError):
    torch.backends.cudnn.benchmark = 1
torch.backends.cudnn.benchmark = False
del torch.backends.cudnn.benchmrk, torch.backends.benchmark

# %% [markdown]
# The flags belong to no module. They are global state of the process, like the number of threads: every model in it
# shares them. A widely copied article says they are set on `nn.Module`; we look for them there.

# %%
from helpers import claim

flags = ["benchmark", "enabled", "deterministic", "allow_tf32"]
on_module = [name for name in flags if hasattr(nn.Module(), name)]
on_backend = [name for name in flags if hasattr(torch.backends.cudnn, name)]
print("on nn.Module:", on_module, "  on torch.backends.cudnn:", on_backend)
claim("2.1").judge(
    on_module == flags, because="nn.Module has none of the four flags; setting one there changed nothing"
)

# %% [markdown]
# ## Four switches
# | flag of `torch.backends.cudnn` | what it does |
# |---|---|
# | `enabled` | use cuDNN at all; off means PyTorch's own kernels |
# | `benchmark` | time several algorithms on each new kind of convolution, keep the fastest |
# | `deterministic` | allow only algorithms that give the same bits each time |
# | `allow_tf32` | let float32 convolutions round their inputs to TF32 on GPUs that can |
#
# These are their defaults. Note the last: float32 convolutions may be less than float32 unless you say otherwise.

# %%
for name in flags:
    print(f"{name:13} {getattr(torch.backends.cudnn, name)}")

# %% [markdown]
# There is a context manager, so that a flag can be set for one block. Commit yourself before you run it.

# %%
from helpers import predict

guess = predict(
    "flags-enabled", "Inside `with torch.backends.cudnn.flags(benchmark=True):`, is cuDNN enabled?", ["yes", "no"]
)

# %%
torch.backends.cudnn.deterministic = True
with torch.backends.cudnn.flags(benchmark=True):
    inside = {name: getattr(torch.backends.cudnn, name) for name in flags}
print(inside)
guess.reveal("yes" if inside["enabled"] else "no")
torch.backends.cudnn.deterministic = False

# %% [markdown]
# The block that was to tune cuDNN has switched it off. `flags()` sets *every* flag, and for those you leave out it has
# defaults of its own: `enabled` is off there, and our `deterministic` got lost too. This has been reported for years
# and is visible on a CPU build, where nothing gets slower to warn you.
#
# What of the reverse: does `enabled` start a search? We set it and ask what has changed.

# %%
from helpers import state

before = state.snapshot()
torch.backends.cudnn.enabled = True
changed = state.leaks(before)
print("changed:", changed, "  benchmark:", torch.backends.cudnn.benchmark)
claim("2.2").judge(
    bool(changed) and torch.backends.cudnn.benchmark,
    because="enabled was on already; setting it changed no flag, and benchmark, which searches, stayed off",
)

# %% [markdown]
# And on a CPU? PyTorch has a rule that chooses a library for each convolution, oneDNN (once called MKL-DNN) in most
# builds. We ask it three times: as it is, with `cudnn.benchmark` on, and with oneDNN off.

# %% tags=["nbval-ignore-output"]
x, weight = torch.ones(4, 16, 64, 64), torch.ones(16, 16, 3, 3)


def chosen_backend() -> str:
    """The library that PyTorch's rule picks (a private function: no public one tells)."""
    pair, none = [1, 1], [0, 0]
    return str(torch._C._select_conv_backend(x, weight, None, pair, pair, pair, False, none, 1)).split(".")[-1]


usual = chosen_backend()
with torch.backends.cudnn.flags(enabled=True, benchmark=True):
    with_benchmark = chosen_backend()
one_dnn = torch.backends.mkldnn.enabled
torch.backends.mkldnn.enabled = False
without_onednn = chosen_backend()
torch.backends.mkldnn.enabled = one_dnn
print(f"usual: {usual}, cudnn.benchmark on: {with_benchmark}, oneDNN off: {without_onednn}")

# %% [markdown]
# `torch.backends.mkldnn.enabled` is the CPU's counterpart of `cudnn.enabled`, where PyTorch was built with oneDNN. With
# `cudnn.benchmark` on, the choice for CPU tensors is the usual one: in eager mode a fixed rule decides, and nothing is
# timed. So we build what is missing.
#
# ## One result, five algorithms
# A convolution can be computed in many ways. Each function below gives the same result, stride 1, output as large as
# the input. cuDNN's list is of this kind: direct, matrix product, FFT, several layouts.

# %%
import torch.nn.functional as F


def default(x, weight):
    return F.conv2d(x, weight, padding=weight.shape[-1] // 2)


def im2col(x, weight):  # copy every window into a column, then one matrix product
    kernel = weight.shape[-1]
    columns = F.unfold(x, kernel, padding=kernel // 2)
    return (weight.flatten(1) @ columns).unflatten(-1, x.shape[-2:])


def fft(x, weight):  # a product of spectra; rounded up, because a transform likes sizes with small factors
    height, width, kernel = *x.shape[-2:], weight.shape[-1]
    size = [-(-(side + kernel - 1) // 16) * 16 for side in (height, width)]
    spectra = torch.fft.rfft2(x, s=size)[:, None] * torch.fft.rfft2(weight, s=size).conj()
    out = torch.fft.irfft2(spectra.sum(2), s=size)
    return out.roll((kernel // 2, kernel // 2), (-2, -1))[..., :height, :width]


def channels_last(x, weight):  # convert, convolve, convert back
    layout = torch.channels_last
    return default(x.contiguous(memory_format=layout), weight.contiguous(memory_format=layout)).contiguous()


def onednn_off(x, weight):
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False
    try:
        return default(x, weight)
    finally:
        torch.backends.mkldnn.enabled = before


algorithms = {
    "default": default,
    "im2col": im2col,
    "FFT": fft,
    "channels_last": channels_last,
    "oneDNN off": onednn_off,
}
if not torch.backends.mkldnn.is_available():
    del algorithms["oneDNN off"]

# %% [markdown]
# Do they agree, and to the last bit?

# %%
torch.manual_seed(0)
image, filters = torch.randn(1, 8, 40, 40), torch.randn(8, 8, 31, 31) / 31
results = {name: run(image, filters) for name, run in algorithms.items()}
print("all agree:", all(torch.allclose(result, results["default"], atol=1e-3) for result in results.values()))
print("FFT has the same bits:", torch.equal(results["FFT"], results["default"]))

# %% [markdown]
# They agree as float32 numbers and differ in their last bits, because they add in another order. Remember this for
# later. They also differ in the memory that they need besides input and output, the
# [**workspace**](../docs/glossary.md#workspace):

# %%
from helpers import evidence

for name in ("default", "im2col", "FFT"):
    peak = evidence.peak_memory(lambda name=name: algorithms[name](image, filters)).peak
    print(f"{name:8} at its peak {peak / results[name].nbytes:6.0f} times the output")

# %% [markdown]
# im2col holds each pixel once per position of the kernel. We see what PyTorch allocates; what oneDNN takes inside its
# kernel, behind `default`, is not in the count. Now the time, for kernels from one pixel to most of the
# image. A column shows each algorithm's time relative to the fastest in that column.

# %% tags=["nbval-ignore-output"]
from helpers import compare, figures, settings

kernels = [1, 3, 5, 9, 15, 31]
columns, winners = [], {}
for kernel in kernels:
    small = torch.randn(8, 8, kernel, kernel) / kernel
    race = {name: lambda run=run, small=small: run(image, small) for name, run in algorithms.items()}
    speed = compare(race, budget_s=settings.budget() / 4)
    seconds = {name: speed.seconds_per_call(name) for name in race}
    winners[kernel] = min(seconds, key=seconds.get)
    columns.append([value / min(seconds.values()) for value in seconds.values()])
print("fastest:", ", ".join(f"{kernel}x{kernel} {name}" for kernel, name in winners.items()))
figures.heat_map(
    torch.tensor(columns).T,
    list(algorithms),
    [f"{kernel}x{kernel}" for kernel in kernels],
    fmt="{:.3g}",
    title="Time relative to the fastest algorithm for that kernel",
    log=True,
)

# %% [markdown]
# No row is best everywhere, and a wrong choice can cost far more than a right one gains. Where two cells are nearly
# equal, the winner may change from run to run. On another processor the picture is another one: this is why libraries
# measure at run time instead of shipping a table.
#
# ## A tuner is a dictionary
# What `benchmark = True` does fits in a few lines: on an input of a new kind, time the candidates and write down the
# winner; on a known kind, look it up. (cuDNN times the first few of a longer list: `cudnn.benchmark_limit`.)

# %%
import time


class Tuner:
    def __init__(self, candidates: dict):
        self.candidates, self.winners, self.tunings = candidates, {}, 0

    def seconds(self, name: str, x, weight) -> float:
        start = time.perf_counter()
        self.candidates[name](x, weight)
        return time.perf_counter() - start

    def __call__(self, x, weight):
        key = (x.shape, weight.shape)
        if key not in self.winners:
            self.tunings += 1
            self.winners[key] = min(self.candidates, key=lambda name: self.seconds(name, x, weight))
        return self.candidates[self.winners[key]](x, weight)


tuner = Tuner(algorithms)
for _ in range(32):
    tuner(image, filters)
print(f"32 calls with one shape: {tuner.tunings} tuning")

# %% [markdown]
# Now a stream of six images whose sizes differ, as they do in detection or in validation at full resolution. And the
# same number of images of two sizes that keep coming back.

# %%
torch.manual_seed(0)
sides = {"fixed": [40] * 6, "two sizes": [40, 48] * 3, "all different": range(36, 48, 2)}
streams = {name: [torch.randn(1, 8, side, side) for side in numbers] for name, numbers in sides.items()}
guess = predict(
    "varying",
    "Six images, no two of one size: is the tuned run faster?",
    ["faster", "slower", "no practical difference"],
)

# %%
few = {name: algorithms[name] for name in ("default", "FFT", "channels_last")}
for name, images in streams.items():
    tuner = Tuner(few)
    for picture in images:
        tuner(picture, filters)
    distinct = len({picture.shape for picture in images})
    print(f"{name:14} {len(images)} calls, distinct shapes {distinct}, tunings {tuner.tunings}")

# %% [markdown]
# Tunings are the number of distinct [keys](../docs/glossary.md#key), not of calls. Now we time whole streams,
# [tuning](../docs/glossary.md#autotuning) included: each run starts with an empty tuner. It has only three candidates
# to try, without the two that can lose by orders of magnitude.


# %% tags=["nbval-ignore-output"]
def run_stream(images: list, convolve) -> None:
    for picture in images:
        convolve(picture, filters)


fixed, varied = (
    compare(
        {
            "default": lambda images=images: run_stream(images, default),
            "tuned": lambda images=images: run_stream(images, Tuner(few)),
        },
        budget_s=2 * settings.budget(),
    )
    for images in (streams["fixed"], streams["all different"])
)
print("one shape:    ", fixed.sentence("tuned"))
print("all different:", varied.sentence("tuned"))
guess.reveal("slower" if varied.ratio("tuned").median > 1 else "faster")

# %% [markdown]
# With one shape, a single tuning is spread over all calls. With a new shape at each call, every call pays for all
# candidates and nothing is ever looked up. The claim has three parts, and not all of them hold.

# %% tags=["nbval-ignore-output"]
from helpers import finding

tuner = Tuner(few)
run_stream(streams["two sizes"] * 2, tuner)
claim("2.3").judge(
    {
        "the data has to be on the GPU": finding(
            with_benchmark == usual, "with the flag on, the rule picks the same library for CPU tensors"
        ),
        "one input shape": finding(
            tuner.tunings > 2,
            f"two shapes that come back: {tuner.tunings} tunings in 12 calls, both in the first two",
        ),
        "varying shapes: it helps less": varied.slower("tuned"),
    }
)

# %% [markdown]
# ## Buckets and break-even
# When sizes vary freely, make them vary less: pad each image with zeros to the next of a few sizes, run, and cut the
# result back. Padded pixels cost time; tunings saved may be worth more.


# %%
def to_bucket(picture, step: int):
    """Zeros to the right and below, up to the next multiple of the step."""
    height, width = picture.shape[-2:]
    return F.pad(picture, (0, -width % step, 0, -height % step))


images = streams["all different"]
for step in (8, 16):
    tuner = Tuner(few)
    run_stream([to_bucket(picture, step) for picture in images], tuner)
    print(f"six sizes in steps of {step:2}: tunings {tuner.tunings}")


# %% tags=["nbval-ignore-output"]
def run_bucketed_stream(step: int) -> None:
    tuner = Tuner(few)
    for picture in images:
        height, width = picture.shape[-2:]
        tuner(to_bucket(picture, step), filters)[..., :height, :width]


compare(
    {
        "default": lambda: run_stream(images, default),
        "tuned, steps of 8": lambda: run_bucketed_stream(8),
        "tuned, steps of 16": lambda: run_bucketed_stream(16),
    },
    budget_s=2 * settings.budget(),
).show()

# %% [markdown]
# [Buckets](../docs/glossary.md#bucket) turn most tunings into look-ups; coarser ones save more tunings and compute
# more zeros. Whether they win over no tuning at all is a matter of how often each bucket is met before the process
# ends.
#
# One comparison gives all that this question needs: a call as it is by default, a call of the winner, and the first
# call of a fresh tuner that tries all algorithms.

# %% tags=["nbval-ignore-output"]
tuner = Tuner(algorithms)
winner = min(algorithms, key=lambda name: min(tuner.seconds(name, image, filters) for _ in range(5)))
cost = compare(
    {
        "default": lambda: default(image, filters),
        "winner": lambda: algorithms[winner](image, filters),
        "first call": lambda: Tuner(algorithms)(image, filters),
    }
)
per_call, tuned, first = (cost.seconds_per_call(name) for name in ("default", "winner", "first call"))
calls = list(range(1, 41))
totals = {"default": [n * per_call * 1e3 for n in calls], "tuned": [(first + (n - 1) * tuned) * 1e3 for n in calls]}
ahead = [n for n in calls if totals["tuned"][n - 1] < totals["default"][n - 1]]
print(f"winner: {winner}; tuned is ahead", f"from call {ahead[0]} on" if ahead else "at no call up to 40")
figures.line_chart(calls, totals, "calls with one key", "milliseconds in all")

# %% [markdown]
# Where the lines cross, the tuning [has paid](../docs/glossary.md#break-even) for itself. Where the default is the
# winner they never cross: the search found what you had. The crossing needs no drawing; exercise 2.5 asks for it as a
# formula.
#
# ## What professionals still get wrong
# **The last batch is another shape.** The key holds the batch size too. A loader over 1,000 samples in batches of 64
# has a short batch at its end; `drop_last=True` or padding spares the second tuning, and validation may add a third.

# %%
loader = torch.utils.data.DataLoader(torch.zeros(1000, 1, 8, 8), batch_size=64)
tuner = Tuner(few)
for _ in range(3):
    run_stream(list(loader), lambda batch, _: tuner(batch, torch.zeros(1, 1, 3, 3)))
print("batch sizes:", sorted({len(batch) for batch in loader}), "  tunings in three epochs:", tuner.tunings)

# %% [markdown]
# **A key that forgets something reuses the wrong winner.** Our tuner knows shapes. The same shape in `channels_last`
# wants another algorithm, and in float64 too; ours never asks. cuDNN's key has dtype, layout and more; exercise 2.3
# mends ours.

# %%
tuner = Tuner(few)
for variant in (image, image.contiguous(memory_format=torch.channels_last), image.double()):
    tuner(variant, filters.to(variant.dtype))
print("three kinds of input,", tuner.tunings, "tuning")

# %% [markdown]
# **Two runs, two winners, other bits.** With `benchmark` on, which algorithm runs depends on a race. Near a tie the
# next process may choose another, and results differ in their last bits under the same seed. `deterministic = True`
# restricts what may enter the race and does not stop the race: for equal bits switch `benchmark` off as well.

# %%
first_run, second_run = Tuner({"default": default}), Tuner({"FFT": fft})  # two processes, each with its winner
same_bits = torch.equal(first_run(image, filters), second_run(image, filters))
close = torch.allclose(first_run(image, filters), second_run(image, filters), atol=1e-3)
print(f"same seed, same input: close {close}, same bits {same_bits}")

# %% [markdown]
# **The first steps need more memory.** The race runs candidates that will lose, with their workspaces. A job can die in
# its first step at a batch size that would have been fine for the rest of the day.
#
# ## On a GPU
# The real flag: what a size costs at its first call and later, and the most memory that a first call takes. Sizes
# differ between the two settings, so that neither finds the other's plans. Last comes what the flag gains for a shape
# that stays, once it is tuned.


# %% tags=["nbval-ignore-output"]
def first_and_later(conv: nn.Module, sides: range, benchmark: bool) -> tuple[float, float, int]:
    """Median milliseconds of first and second calls over the sizes, and the peak bytes of a first call."""
    first, later, peak = [], [], 0
    with torch.no_grad(), torch.backends.cudnn.flags(enabled=True, benchmark=benchmark):
        for side in sides:
            batch = torch.randn(8, 64, side, side, device="cuda")
            for times in (first, later):
                torch.cuda.reset_peak_memory_stats()
                torch.cuda.synchronize()
                held, start = torch.cuda.memory_allocated(), time.perf_counter()
                conv(batch)
                torch.cuda.synchronize()  # a launch returns before the work is done
                times.append((time.perf_counter() - start) * 1e3)
                if times is first:
                    peak = max(peak, torch.cuda.max_memory_allocated() - held)
    return sorted(first)[len(first) // 2], sorted(later)[len(later) // 2], peak


def with_flag(conv: nn.Module, batch: torch.Tensor, benchmark: bool) -> torch.Tensor:
    torch.backends.cudnn.benchmark = benchmark
    with torch.no_grad():
        return conv(batch)


if torch.cuda.is_available() and device != "cpu":
    conv = nn.Conv2d(64, 64, 5, padding=2).cuda()
    first_and_later(conv, range(32, 33), False)  # loads cuDNN itself
    for benchmark, sides in {False: range(40, 80, 2), True: range(41, 81, 2)}.items():
        first, later, peak = first_and_later(conv, sides, benchmark)
        print(f"benchmark {benchmark}: first {first:.2f} ms, later {later:.2f} ms, peak of a first call {peak:,} bytes")
    batch = torch.randn(32, 64, 56, 56, device="cuda")
    flag = {"benchmark off": lambda: with_flag(conv, batch, False), "on": lambda: with_flag(conv, batch, True)}
    compare(flag, device="cuda").show()
    torch.backends.cudnn.benchmark = False
else:
    print("Not testable here: this machine has no CUDA device.")

# %%
print("benchmark is off again:", not torch.backends.cudnn.benchmark)

# %% [markdown]
# ## Summary
# - The flags are global state in `torch.backends`. A typo is silent, and `cudnn.flags(...)` sets what you leave out:
#   set one flag, print it, put it back.
# - Tuning is a cache: its price is paid once per distinct key (shape, batch size, dtype, layout). Few keys that return
#   are fine; ever new ones cost more than tuning gains.
# - Buckets make keys return. Tuning pays after as many calls as its cost holds savings, and never where the default
#   wins.
#
# ## Exercises
# Five exercises wait in `02_exercises.ipynb`, next to your copy of this chapter: six lines to sort,
# the context manager that `flags()` should be, a tuner with the whole key, buckets, and the break-even.
#
# ## Sources
# - [torch.backends](https://docs.pytorch.org/docs/stable/backends.html) and
#   [Reproducibility](https://docs.pytorch.org/docs/stable/notes/randomness.html): the flags, and what `benchmark` does
#   to determinism.
# - [pytorch#77467](https://github.com/pytorch/pytorch/issues/77467): `flags()` switches cuDNN off.
#   [pytorch#2759](https://github.com/pytorch/pytorch/issues/2759) and
#   [vision#5985](https://github.com/pytorch/vision/pull/5985): varying sizes.
# - [deeplab-pytorch#74](https://github.com/kazuto1011/deeplab-pytorch/issues/74): memory of the first step.
# - [What does torch.backends.cudnn.benchmark do?](https://discuss.pytorch.org/t/what-does-torch-backends-cudnn-benchmark-do/5936):
#   the cache and its key.

# %% tags=["nbval-ignore-output"]
from helpers import wrap_up

wrap_up()
