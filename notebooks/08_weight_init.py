# %% [markdown]
# # 8 Weight init: which suspect?
#
# A model is ported from Keras to PyTorch: same layers, same optimizer, same data. The port is far worse. Somebody has
# read that the two frameworks start their weights differently, and the search is over. Is it? This chapter takes
# initialisation as a suspect. First what it can do, then how often it does it, and last the best documented public
# case, in which it was innocent.
#
# About 50 minutes with the exercises. You need to have trained a small net before.

# %% tags=["parameters"]
budget_s: float = 2.0  # seconds that one timing comparison may take; this chapter times nothing
device: str = "auto"  # this chapter runs on the CPU, whatever is chosen
record: bool = False  # keep results for readers without this machine
fast: bool = False  # fewer seeds and epochs: a quick look

# %% tags=["nbval-ignore-output"]
from helpers import preflight

preflight("08", budget_s=budget_s, device=device, record=record, fast=fast)

# %% [markdown]
# ## Memory that nobody wrote
# The crudest bad start is none. `nn.Parameter(torch.Tensor(out, in))` reserves memory and writes nothing into it. What
# is in there? We drop a tensor and ask for memory of the same size, then for a large piece.

# %% tags=["nbval-ignore-output"]
import torch
from torch import nn

former = torch.full((100, 100), 3.25)
del former
reused, large = torch.Tensor(100, 100), torch.Tensor(9_000_000)
print(f"small: {(reused == 3.25).float().mean():.0%} of it is the tensor that was dropped")
print(f"large: {(large == 0).float().mean():.0%} of it is zero")

# %% [markdown]
# Run the cell a few times: small pieces are often somebody's former numbers, large ones come fresh from the system as
# zeros. Either may look like weights, so such a layer works until the day it gives NaN. Looking proves nothing.
#
# There is a proof without luck. In deterministic mode PyTorch fills
# [uninitialised memory](../docs/glossary.md#uninitialised-memory) with NaN, or with an integer's largest value. The
# fill has a switch of its own, `torch.utils.deterministic.fill_uninitialized_memory`, on by default. (`state.guard()`
# is ours: it puts global flags back.)

# %%
from helpers import claim, finding, state

makers = {
    "torch.Tensor(4, 3)": lambda: torch.Tensor(4, 3),
    "torch.empty(4, 3)": lambda: torch.empty(4, 3),
    "torch.empty(4, 3), int64": lambda: torch.empty(4, 3, dtype=torch.int64),
    "skip_init(nn.Linear, 3, 4)": lambda: nn.utils.skip_init(nn.Linear, 3, 4).weight,
    "nn.Linear(3, 4)": lambda: nn.Linear(3, 4).weight,
}
unwritten = {}
with state.guard():
    torch.use_deterministic_algorithms(True)
    for name, make in makers.items():
        values = make().detach()
        marks = values.isnan() if values.is_floating_point() else values == torch.iinfo(values.dtype).max
        unwritten[name] = marks.sum().item()
        print(f"{name:27} {unwritten[name]:2} of {values.numel()} values were never written")
claim("8.1").judge(
    unwritten["torch.Tensor(4, 3)"] == 12 and unwritten["nn.Linear(3, 4)"] == 0,
    because="with the fill on, all of torch.Tensor(4, 3) is NaN and nothing of a Linear is",
)

# %% [markdown]
# This makes a test for any constructor, and exercise 1 builds it. `skip_init` is meant to be filled, for instance from
# a checkpoint; it becomes a bug when the checkpoint lacks a key.
#
# ## What Linear starts from
# The article says: uniform between $\pm 1/\sqrt{\text{fan}_{in}}$, where [fan_in](../docs/glossary.md#fan-in) is the
# number of inputs. Today's source reads otherwise: `kaiming_uniform_(weight, a=math.sqrt(5))`. We compare bits, over
# three hundred layer sizes.

# %%
import math


def same_bits(fan_in: int, dtype: torch.dtype) -> bool:
    torch.manual_seed(fan_in)
    layer = nn.Linear(fan_in, 3, dtype=dtype)
    torch.manual_seed(fan_in)
    bound = 1 / math.sqrt(fan_in)
    weight = torch.empty(3, fan_in, dtype=dtype).uniform_(-bound, bound)
    bias = torch.empty(3, dtype=dtype).uniform_(-bound, bound)
    return torch.equal(layer.weight, weight) and torch.equal(layer.bias, bias)


single = sum(same_bits(fan_in, torch.float32) for fan_in in range(1, 301))
double = sum(same_bits(fan_in, torch.float64) for fan_in in range(1, 301))
print(f"float32: the same bits for {single} of 300 sizes")
print(f"float64: for all sizes: {double == 300}, for some: {double > 0}")
claim("8.2").judge(
    {
        "uniform, ±1/sqrt(fan_in)": finding(single == 300, "weight and bias, bit for bit, in float32"),
        "weight is (out, in)": finding(nn.Linear(5, 3).weight.shape == (3, 5), "Linear(5, 3) has a weight (3, 5)"),
    }
)

# %% [markdown]
# Kaiming's bound is $\sqrt{6/((1+a^2)\,\text{fan}_{in})}$; with $a=\sqrt5$ it is the old one, up to rounding that only
# float64 shows. So √5 is no recommendation for some activation. It is the price of not changing what models started
# from. The next section says what that start is worth.
#
# ## One factor a layer
# Thirty ReLU layers of width 256, fed with N(0, 1). How large is the signal at the end, with the default start, with
# Glorot's (Keras's default, in `nn.init` under his first name, xavier), with He's (kaiming), with plain N(0, 1)?

# %%
from helpers import predict

guess = predict(
    "depth",
    "Default start, 30 ReLU layers: the activations at the end, relative to those after layer 1, are",
    ["about as large", "down to about a thousandth", "down to less than a millionth", "grown a thousandfold"],
)


# %%
def activations(init, depth: int = 30, width: int = 256, bias: bool = False) -> list[torch.Tensor]:
    torch.manual_seed(0)
    x, seen = torch.randn(256, width), []
    with torch.no_grad():
        for _ in range(depth):
            layer = nn.Linear(width, width, bias=bias)
            init(layer.weight)
            x = layer(x).relu()
            seen.append(x)
    return seen


starts = {
    "torch default": lambda weight: weight,
    "Glorot (Keras)": nn.init.xavier_uniform_,
    "He": lambda weight: nn.init.kaiming_normal_(weight, nonlinearity="relu"),
    "N(0, 1)": nn.init.normal_,
}
spread = {name: [x.std().item() for x in activations(init)] for name, init in starts.items()}
shrunk = spread["torch default"][-1] / spread["torch default"][0]
guess.reveal("down to less than a millionth" if shrunk < 1e-6 else "down to about a thousandth")

# %% tags=["nbval-ignore-output"]
from helpers import figures

figures.depth_plot(spread)

# %% [markdown]
# Straight lines on a log axis: one factor a layer. ReLU halves the power of a signal, the layer multiplies it by
# $\text{fan}_{in}\mathrm{Var}(w)$, so the factor is $\sqrt{\text{fan}_{in}\mathrm{Var}(w)/2}$.

# %%
variance = {"torch default": 1 / (3 * 256), "Glorot (Keras)": 1 / 256, "He": 2 / 256, "N(0, 1)": 1.0}
for name, values in spread.items():
    measured = (values[-1] / values[0]) ** (1 / 29)
    print(f"{name:15} predicted {math.sqrt(256 * variance[name] / 2):.2f}, measured {measured:.2f} a layer")

# %% [markdown]
# He chose the variance for which the factor is one. Glorot's suits layers without ReLU, the default suits neither. The
# biases were left out; with them the default looks better than it is:

# %% tags=["nbval-ignore-output"]
last = activations(starts["torch default"], bias=True)[-1]
print(f"after layer 30, with biases: std {last.std():.1g}")
print(f"the part of it that differs from input to input: {last.std(0).mean():.1g}")

# %% [markdown]
# What is left are biases passed down. The output no longer depends on the input, and no std over everything shows it.
#
# ## Why not zeros?
# Equal units compute equal outputs, get equal gradients, and stay equal. Counted after training a net with eight hidden
# units on a product of two inputs:


# %%
def train_small(fill: float | None) -> tuple[int, bool]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
    if fill is not None:
        for parameter in net.parameters():
            nn.init.constant_(parameter, fill)
    x = torch.randn(256, 2)
    target = x.prod(1, keepdim=True).tanh()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(600):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), target)
        loss.backward()
        optimizer.step()
    return len(net[0].weight.detach().round(decimals=4).unique(dim=0)), loss.item() < 0.1 * target.var().item()


with state.guard():
    torch.set_num_threads(1)
    for name, fill in {"zeros": 0.0, "all 0.5": 0.5, "default": None}.items():
        units, learned = train_small(fill)
        print(f"{name:8} {units} different hidden units, learned: {learned}")

# %% [markdown]
# Random numbers break the tie. Zeros are fine where something else breaks it: biases, or the last layer of a residual
# branch.
#
# ## Torch against Keras on real digits
# How much accuracy hangs on the start? We train the same nets from torch's and from Keras's start, with many seeds, for
# one seed shows luck. All of them train at once, as one stack of matrices for `baddbmm`, which takes seconds. A pair
# shares its random draws and its order of data, so that only the start differs.

# %% tags=["nbval-ignore-output"]
from itertools import pairwise

from torch.nn import functional as F

try:
    from sklearn.datasets import load_digits

    images, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
    mixed = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    images, labels = (images[mixed] / 16).float(), labels[mixed].long()
    print(f"{len(images)} digits of {images.shape[1]} pixels")
except ImportError:
    images = labels = None
    print("The digits are left out: they come with scikit-learn (pip install scikit-learn).")


# %%
def bounds(kind: str, fan_in: int, fan_out: int) -> tuple[float, float]:
    """How far weights and biases reach at the start."""
    default = 1 / math.sqrt(fan_in)
    return {"torch": (default, default), "Keras": (math.sqrt(6 / (fan_in + fan_out)), 0.0)}[kind]


def start(kinds: list[str], sizes: list[int], seeds: int) -> list[torch.Tensor]:
    """Weights (models, in, out) and biases (models, 1, out) of every layer; all seeds of a kind stand together."""
    generator, tensors = torch.Generator().manual_seed(0), []
    for fan_in, fan_out in pairwise(sizes):
        for which, rows in enumerate((fan_in, 1)):
            draws = 2 * torch.rand(seeds, rows, fan_out, generator=generator) - 1
            stack = torch.cat([draws * bounds(kind, fan_in, fan_out)[which] for kind in kinds])
            tensors.append(stack.requires_grad_())
    return tensors


def forward(tensors: list[torch.Tensor], x: torch.Tensor, activation=torch.relu, norm: bool = False) -> torch.Tensor:
    """x (models, batch, in) through all layers of all models at once."""
    for number in range(0, len(tensors), 2):
        x = torch.baddbmm(tensors[number + 1], x, tensors[number])
        if number < len(tensors) - 2:
            x = activation(F.layer_norm(x, x.shape[-1:]) if norm else x)
    return x


def fit(tensors, x, y, loss, optimizer, epochs: int, seeds: int, **how) -> None:
    """Train all models; `loss` gives one number a model."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(epochs):
        order = torch.rand(seeds, len(x), generator=generator).argsort(1)
        for rows in order.split(32, dim=1):
            rows = rows.repeat(len(tensors[0]) // seeds, 1)
            optimizer.zero_grad()
            loss(forward(tensors, x[rows], **how), y[rows]).sum().backward()
            optimizer.step()


# %% [markdown]
# A net that starts, one that is deep, a slower optimizer, and the usual remedy:

# %% tags=["nbval-ignore-output"]
seeds, epochs = (5, 10) if fast else (10, 20)
adam, sgd = lambda p: torch.optim.Adam(p, 1e-3), lambda p: torch.optim.SGD(p, 0.1)
recipes = {
    "1 hidden layer, Adam": (1, adam, False),
    "6 hidden layers, Adam": (6, adam, False),
    "6 hidden layers, SGD": (6, sgd, False),
    "6 hidden layers, SGD, layer norm": (6, sgd, True),
}
accuracy = {}
for name, (hidden, optimizer, norm) in recipes.items():
    if images is None:
        break
    with state.guard():
        torch.set_num_threads(1)  # small matrices: a second thread costs more than it brings
        nets = start(["torch", "Keras"], [64, *[64] * hidden, 10], seeds)
        loss = torch.vmap(F.cross_entropy)
        fit(nets, images[:1350], labels[:1350], loss, optimizer(nets), epochs, seeds, norm=norm)
        with torch.no_grad():
            answers = forward(nets, images[1350:].expand(2 * seeds, -1, -1), norm=norm).argmax(-1)
    accuracy[name] = (answers == labels[1350:]).double().mean(1).reshape(2, seeds)
    print(f"{name}: {2 * seeds} nets trained")

# %% tags=["nbval-ignore-output"]
if accuracy:
    rows = {f"{name}: {kind}": runs[n] for name, runs in accuracy.items() for n, kind in enumerate(("torch", "Keras"))}
    means = {name: round(runs.mean().item(), 3) for name, runs in rows.items()}
    errors = {name: round(runs.std().item() / math.sqrt(seeds), 3) for name, runs in rows.items()}
    figures.bars(means, "test accuracy (bars: standard error)", errors=errors)

# %% [markdown]
# The bars show each start's spread. What we judge is the difference within a pair, with its 99 % interval. A point of
# accuracy is the least we call a difference.

# %% tags=["nbval-ignore-output"]
from helpers.measure.verdicts import FAILS, HOLDS, NOISY, Finding


def interval(differences: torch.Tensor) -> tuple[float, float]:
    """The 99 % t-interval of the mean of paired differences."""
    from scipy import stats

    half = stats.t.ppf(0.995, len(differences) - 1) * differences.std().item() / math.sqrt(len(differences))
    return differences.mean().item() - half, differences.mean().item() + half


def exceeds(differences: torch.Tensor, margin: float, text: str) -> Finding:
    low, high = interval(differences)
    verdict = HOLDS if low > margin else FAILS if high < margin else NOISY
    numbers = {"low": low, "high": high, "least": math.exp(low), "most": math.exp(high)}
    return Finding(verdict, text.format(**numbers), numbers)


gaps = {}
for name, (torch_runs, keras_runs) in accuracy.items():
    gaps[name] = exceeds(keras_runs - torch_runs, 0.01, "Keras's start is ahead by {low:+.3f} to {high:+.3f}")
    print(f"{name:33} {gaps[name].text}: more than a point {gaps[name].verdict}")

# %%
if accuracy:
    torch_runs, keras_runs = accuracy["6 hidden layers, SGD"]
    print("six layers, SGD: Keras's start is ahead with every seed:", bool((keras_runs > torch_runs).all()))

# %% [markdown]
# So the suspect is capable of it. Deep, plain and with SGD, the default net does not start within these epochs; set
# `epochs` to 60 and see. A shallow net, Adam or a norm in between make the gap small, or drown it in the spread of the
# seeds. And we tried one split of the data and one learning rate, tuned for neither start.
#
# ## The sibling suspect
# Now the public case. A [forum thread](https://discuss.pytorch.org/t/160720) reports an error several times that of an
# identical Keras model, and collects the suspects of many such threads: initialisation, Adam, seeds, too few epochs. In
# the posted code the model gives (32, 1) and the targets are (32,), the bug of chapter 6. We put two suspects on trial,
# so there are four combinations. As in the thread, a net with one hidden layer learns $y=\sum_i \sin x_i$ of ten
# inputs, scaled to 0..1.

# %%
guess = predict(
    "two-suspects",
    "Which repair at least halves the validation error?",
    ["Keras's initialisation", "matching shapes", "only both together", "either of them", "neither"],
)


# %%
def broadcast(pred: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return ((pred - target) ** 2).mean()  # (32, 1) against (32,)


def matched(pred: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return ((pred[:, 0] - target) ** 2).mean()


def both_losses(preds: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The first half of the models is trained with the bug, the second without."""
    half = len(preds) // 2
    first = torch.vmap(broadcast)(preds[:half], targets[:half])
    return torch.cat([first, torch.vmap(matched)(preds[half:], targets[half:])])


x = torch.randn(7700, 10, generator=torch.Generator().manual_seed(0))
y = x.sin().sum(1)
y = (y - y.min()) / (y.max() - y.min())
with state.guard():
    torch.set_num_threads(1)
    nets = start(["torch", "Keras"] * 2, [10, 100, 1], seeds)
    fit(nets, x[:7000], y[:7000], both_losses, torch.optim.Adam(nets), epochs // 2, seeds, activation=torch.tanh)
    with torch.no_grad():
        preds = forward(nets, x[7000:].expand(4 * seeds, -1, -1), activation=torch.tanh)[..., 0]
error = ((preds - y[7000:]) ** 2).mean(1).double().reshape(2, 2, seeds)  # shapes, init, seed

# %% tags=["nbval-ignore-output"]
typical = error.log().mean(-1).exp()
shapes, inits = ["(32, 1) against (32,)", "matching shapes"], ["torch init", "Keras init"]
figures.heat_map(typical, shapes, inits, title="validation error", log=True)
print(f"variance of the targets: {y[7000:].var():.3g}")

# %% [markdown]
# One row away lies another world; one column away, a neighbour. The bug's error is the variance of the targets: those
# nets predict the mean, as chapter 6 derived. Now each repair as the factor by which the error falls; below one, it
# rises.

# %% tags=["nbval-ignore-output"]
log_error, factor = error.log(), "with this repair the error falls by a factor of {least:.2f} to {most:.2f}"
gains = {
    "init, with the bug": log_error[0, 0] - log_error[0, 1],
    "init, shapes right": log_error[1, 0] - log_error[1, 1],
    "shapes, torch init": log_error[0, 0] - log_error[1, 0],
    "shapes, Keras init": log_error[0, 1] - log_error[1, 1],
    "both": log_error[0, 0] - log_error[1, 1],
}
repairs = {name: exceeds(gain, math.log(2), factor) for name, gain in gains.items()}
for name, repair in repairs.items():
    print(f"{name:21} {repair.text}")

# %%
works = {name: repair.holds is True for name, repair in repairs.items()}
for name, result in works.items():
    print(f"{name:21} at least halves the error: {result}")
alone = works["init, with the bug"], works["shapes, torch init"]
answers = {(True, False): "Keras's initialisation", (False, True): "matching shapes", (True, True): "either of them"}
guess.reveal(answers.get(alone, "only both together" if works["both"] else "neither"))

# %% tags=["nbval-ignore-output"]
from helpers import untested

missing = untested("the digits come with scikit-learn, which is not installed")
claim("8.3").judge(
    {
        "digits, shallow": gaps.get("1 hidden layer, Adam", missing),
        "digits, deep": gaps.get("6 hidden layers, SGD", missing),
        "the public case": repairs["init, with the bug"],
    }
)

# %% [markdown]
# Both stand side by side: initialisation can ruin a training, and in this case it did not. Where a factor's interval is
# clear of one and far from two, the effect is real and still not the culprit. Had we tried the first repair alone, we
# would have learned that nothing helps. Run all four cells, with several seeds, before you blame.
#
# ## What professionals still get wrong
# **`trunc_normal_` cuts at absolute bounds.** Its `a` and `b` are -2 and 2, not two standard deviations. With a small
# std nothing is cut; with a large one the std is not what was asked for.

# %%
torch.manual_seed(0)
small, wide = (
    nn.init.trunc_normal_(torch.empty(100_000), std=0.02),
    nn.init.trunc_normal_(torch.empty(100_000), std=2.0),
)
print("std=0.02: beyond two standard deviations:", bool((small.abs() > 0.04).any()))
print(f"std=2: largest {wide.abs().max():.1f}, true std {wide.std():.1f}")

# %% [markdown]
# **Initialising everything loses what a constructor knew.** The popular loop over `p.dim() > 1` meets embeddings too:

# %%
embedding = nn.Embedding(1000, 64, padding_idx=0)
print("padding row is zero:     ", not embedding.weight[0].any().item())
nn.init.xavier_uniform_(embedding.weight)
print("after xavier_uniform_:   ", not embedding.weight[0].any().item())

# %% [markdown]
# **Fans are read from the shape.** `nn.init` takes (out, in). A weight that is kept as (in, out) for `x @ weight` gets
# the fans swapped, silently:

# %%
torch.manual_seed(0)
weight = nn.init.kaiming_normal_(torch.empty(784, 10))
print(f"x @ weight with weight (784, 10): std is {weight.std() / math.sqrt(2 / 784):.0f} times what He asks for")

# %% [markdown]
# **Equal layers, other starts.** To compare with Keras, `Linear` is the smaller half of the work:

# %%
lstm = nn.LSTM(8, 16)
print(f"Embedding: std {nn.Embedding(1000, 64).weight.std():.1f}, Keras's uniform ±0.05: std {0.05 / math.sqrt(3):.2f}")
print("LSTM biases start at zero:", not any(p.any().item() for n, p in lstm.named_parameters() if "bias" in n))
print("MultiheadAttention's do:  ", not nn.MultiheadAttention(8, 2).in_proj_bias.any().item())

# %% [markdown]
# ## Summary
# - A start is a factor a layer. He's is one for ReLU; the default of `Linear` shrinks, which depth turns into silence
#   and a norm, or a shallow net, hides.
# - Uninitialised memory is proven by the deterministic fill, never by looking.
# - Two suspects make four cells, with several seeds in each. In the public case the shapes did it.
#
# ## Exercises
# Five exercises wait in `08_exercises.ipynb`, next to your copy of this chapter: what nobody filled, Linear from
# scratch, thirty layers deep, a fair start against Keras, and a detective who must not accuse the innocent.
#
# ## Sources
# - `torch.nn.init`: <https://docs.pytorch.org/docs/stable/nn.init.html>. The fill:
#   <https://docs.pytorch.org/docs/stable/deterministic.html>
# - Further reports behind this chapter: [jsboige/CoursIA#926](https://github.com/jsboige/CoursIA/pull/926) (judged
#   under a broadcast loss), [pytorch#57109](https://github.com/pytorch/pytorch/issues/57109) and
#   [pytorch#15314](https://github.com/pytorch/pytorch/issues/15314) (why √5),
#   [tail-unica/hopwise#271](https://github.com/tail-unica/hopwise/issues/271),
#   [sauradip/STALE#16](https://github.com/sauradip/STALE/issues/16) and
#   [openai/CLIP#15](https://github.com/openai/CLIP/issues/15) (parameters nobody filled).

# %% tags=["nbval-ignore-output"]
from helpers import wrap_up

wrap_up()
