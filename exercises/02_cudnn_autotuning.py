# %% [markdown]
# # Exercises 2: tuning is a cache
#
# Five exercises, easy to hard. Write your answer where a cell raises `NotImplementedError`, run the cell, then run
# the `check` below it. `hint("2.2")` gives one more hint, first as a question. Chapter 2 holds all you need, and no
# GPU is needed.

# %%
import contextlib
import math
import time

import torch
import torch.nn.functional as F
from torch import nn

from helpers import check, hint, progress, solution

# %% [markdown]
# ## 2.1 Six lines that set a flag (1 point)
#
# A fresh process has `import torch`, `from torch import nn` and `model = nn.Conv2d(3, 8, 3)`, and runs one line.
# For each of these six, say what it does:
#
# - `"effective"`: a setting that PyTorch reads has changed when the line is done;
# - `"ignored"`: the line runs without complaint, and no such setting has changed;
# - `"error"`: the line raises.
#
# Give a dict from each of `LINES` to one of the three words. The check executes the lines.

# %%
LINES = [
    "torch.backends.cudnn.benchmark = True",
    "torch.backends.cudnn.benchmrk = True",
    "torch.cudnn.benchmark = True",
    "model.cudnn_benchmark = True",
    "torch.backends.cudnn.flags(enabled=True, benchmark=True)",
    "torch.backends.cudnn.deterministic = 1",
]


# %%
def classify_settings() -> dict[str, str]:
    raise NotImplementedError("Exercise 2.1 is yours to write")


# %%
check("2.1")

# %% [markdown]
# ## 2.2 One flag, and only that one (1 point)
#
# `with autotuned():` is a context manager, written as a function or as a class.
#
# - Inside, `torch.backends.cudnn.benchmark` is on. Everything else is as it was, `torch.backends.cudnn.enabled`
#   above all: on if it was on, off if it was off.
# - Afterwards `benchmark` is what it was before: also when it was on already, when the block raises, and when one
#   `with autotuned():` stands inside another.


# %%
@contextlib.contextmanager
def autotuned():
    raise NotImplementedError("Exercise 2.2 is yours to write")


# %%
check("2.2")

# %% [markdown]
# ## 2.3 An autotuner (2 points)
#
# `Autotuner(candidates)` takes a dict from a name to a function of `(x, weight)`. All of them compute the same result.
#
# - `tuner(x, weight)` gives the result. On a key it has not met, it runs **every** candidate, times them and
#   remembers the fastest. On a known key it runs the winner once, and nothing else.
# - The key covers shape, dtype, device and memory layout (strides), of `x` **and** of `weight`. It does not cover the
#   numbers in them.
# - `tuner.tunings` counts the tunings so far. `tuner.winner(x, weight)` gives the winner's name for a known key.
#
# The check counts calls. Where it asks for the faster candidate, the other one is slower by orders of magnitude.


# %%
class Autotuner:
    def __init__(self, candidates: dict):
        raise NotImplementedError("Exercise 2.3 is yours to write")

    def winner(self, x: torch.Tensor, weight: torch.Tensor) -> str:
        raise NotImplementedError("Exercise 2.3 is yours to write")

    def __call__(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError("Exercise 2.3 is yours to write")


# %%
check("2.3")

# %% [markdown]
# ## 2.4 Fewer shapes, the same answers (2 points)
#
# `run_bucketed(conv, images, buckets)` runs one convolution over images of many sizes, and lets it meet few.
#
# - `conv` is an `nn.Conv2d` with stride 1 and zero padding. Its kernel and its padding may differ between height and
#   width, and padding may be 0. `images` is a list of tensors (C, H, W).
# - `buckets` are side lengths of squares, ascending. At most `len(buckets)` distinct image sizes may reach `conv`.
# - The outputs come as a list, in the order of the images. Each equals what `conv` gives for the image alone, in shape
#   too.
# - An image that fits no bucket: a `ValueError` that names its larger side.


# %%
def run_bucketed(conv: nn.Conv2d, images: list[torch.Tensor], buckets: list[int]) -> list[torch.Tensor]:
    raise NotImplementedError("Exercise 2.4 is yours to write")


# %%
check("2.4")

# %% [markdown]
# ## 2.5 When has it paid? (3 points)
#
# Tuning a shape costs `tuning_s` seconds, once. A call then takes `tuned_s` instead of `default_s`.
#
# `break_even_calls(tuning_s, default_s, tuned_s)` gives the number of calls after which tuning has paid for itself.
#
# - The exact ratio, not rounded.
# - `math.inf` when it never pays.
# - `ValueError` when an argument is negative or NaN.


# %%
def break_even_calls(tuning_s: float, default_s: float, tuned_s: float) -> float:
    raise NotImplementedError("Exercise 2.5 is yours to write")


# %%
check("2.5")

# %%
progress(2)
