# %% [markdown]
# # Exercises 7: a loss that looks fine
#
# Five exercises, easy to hard. Write your answer where a cell raises `NotImplementedError`, run the cell, then run
# the `check` below it. `hint("7.2")` gives one more hint, first as a question. Chapter 7 holds all you need.

# %%
import math

import torch
import torch.nn.functional as F

from helpers import check, hint, progress, solution

# %% [markdown]
# ## 7.1 Make it legal (1 point)
#
# `make_legal(loss_name, prediction, target)` gives `(prediction, target)` with dtypes that the loss takes, forward
# and backward. `loss_name` is `"bce"`, `"bce_with_logits"`, `"mse"`, `"cross_entropy"` or `"nll"`.
#
# - Predictions are floats: integers become float32.
# - `bce`, `bce_with_logits` and `mse` want both arguments in one float dtype. If two float dtypes differ, both become
#   the wider one; labels of another kind take the prediction's dtype.
# - `nll` wants class indices: int64, or uint8 if the target has one index a row. So does `cross_entropy`, unless the
#   target has the prediction's shape: then it holds probabilities, and the rule of the other losses applies.
# - float16 counts as illegal for all five losses: it becomes float32.
# - Values and shapes stay, nothing is converted that was legal, and gradients reach the prediction that was given.


# %%
def make_legal(loss_name: str, prediction: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    raise NotImplementedError("Exercise 7.1 is yours to write")


# %%
check("7.1")

# %% [markdown]
# ## 7.2 Where sigmoid becomes one (1 point)
#
# `saturation_point(dtype)` gives the smallest number z that the dtype can hold at which `torch.sigmoid(z)` is
# **exactly** 1. The check asks for float32, float64, float16 and bfloat16.


# %%
def saturation_point(dtype: torch.dtype) -> float:
    raise NotImplementedError("Exercise 7.2 is yours to write")


# %%
check("7.2")

# %% [markdown]
# ## 7.3 Binary cross entropy by hand (2 points)
#
# `stable_bce(logits, target)` gives the **mean** binary cross entropy of two tensors of one shape, from logits.
#
# - Write it by hand: no loss of the library. `softplus`, `logsigmoid`, `logaddexp` and `log_softmax` are fine.
# - Targets may be soft, anywhere from 0 to 1.
# - Value and gradient are right and finite for every |z| up to 10,000, and the gradient is right at z = 0 too.


# %%
def stable_bce(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    raise NotImplementedError("Exercise 7.3 is yours to write")


# %%
check("7.3")

# %% [markdown]
# ## 7.4 The floor, and six suspects (2 points)
#
# A model ends in softmax, and its outputs go into `cross_entropy`, which applies softmax again.
# `best_possible_loss(classes)` gives the loss that such a model can come as near to as it likes, but never go below.
#
# `find_bugs()` gives the names of those of the six functions below that are bugs. A bug is a function that does not
# give the mean cross entropy of its labels. `z` holds raw outputs. Shapes: `z` (B, C) and `y` (B,) in a, b, c and e;
# `z` (B, 1) and `y` (B,) with labels 0 and 1 in d; `z` (B, T, C) and `y` (B, T) in f, where T and C happen to be equal.


# %%
def a(z, y):
    return F.cross_entropy(F.softmax(z, dim=1), y)


def b(z, y):
    return F.cross_entropy(F.log_softmax(z, dim=1), y)


def c(z, y):
    return F.nll_loss(F.softmax(z, dim=1), y)


def d(z, y):
    return F.cross_entropy(z, y.float().unsqueeze(1))


def e(z, y):
    return F.cross_entropy(z, F.one_hot(y, z.shape[1]).float())


def f(z, y):
    return F.cross_entropy(z, y)


# %%
def best_possible_loss(classes: int) -> float:
    raise NotImplementedError("Exercise 7.4 is yours to write")


# %%
def find_bugs() -> set[str]:
    raise NotImplementedError("Exercise 7.4 is yours to write")


# %%
check("7.4")

# %% [markdown]
# ## 7.5 Weights, one-hot targets, and nothing to learn from (3 points)
#
# `weighted_cross_entropy(logits, one_hot, weight, ignored)`: logits (B, C), one-hot targets (B, C), a weight for each
# class (C,), and a bool (B,) that marks the rows to leave out.
#
# - The result is what `F.cross_entropy` gives for class indices with `weight=`, computed on the rows that are kept.
# - `one_hot` may be float or int64. Rows that are left out may hold zeros only.
# - If every row is left out, the loss is 0, still attached to the logits, and its gradient is zero, not NaN.


# %%
def weighted_cross_entropy(
    logits: torch.Tensor, one_hot: torch.Tensor, weight: torch.Tensor, ignored: torch.Tensor
) -> torch.Tensor:
    raise NotImplementedError("Exercise 7.5 is yours to write")


# %%
check("7.5")

# %%
progress(7)
