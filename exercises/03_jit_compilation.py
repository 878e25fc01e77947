# %% [markdown]
# # Exercises 3: what did the compiler see?
#
# Five exercises, easy to hard. Write your answer where a cell raises `NotImplementedError`, run the cell, then run
# the `check` below it. `hint("3.2")` gives one more hint, first as a question. Chapter 3 holds all you need. Nothing
# here needs a C++ compiler: the checks compile with a backend that counts. The first check takes a few seconds, because
# the compiler has to be imported.

# %%
import copy

import torch
from torch import nn

from helpers import check, hint, progress, solution

# %% [markdown]
# ## 3.1 Catch a liar (1 point)
#
# `lying_input(traced, module)` gives an input for which a traced module disagrees with the module it was traced from,
# **in silence**: both run, and their outputs differ in shape or in value.
#
# - Modules take one float tensor of shape (n,), with n from 1 to 32, and have one branch. It may look at the size of
#   the values, at their signs, or at n, anywhere in that range. You are not told which, nor on what example the
#   module was traced. The input that you give is one of those n too.
# - Two outputs with NaN in the same places, and else equal, are no disagreement.
#
# `ByPeak` below is one such module. The check brings two more.


# %%
class ByPeak(nn.Module):
    """Scales a loud signal down, leaves a quiet one alone."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        peak = x.abs().max()
        return x / peak if peak > 1 else x


# %%
def lying_input(traced, module: nn.Module) -> torch.Tensor:
    raise NotImplementedError("Exercise 3.1 is yours to write")


# %%
check("3.1")

# %% [markdown]
# ## 3.2 One graph for two branches (1 point)
#
# `branchless(x)` computes what `branchy(x)` computes, as **one graph**: `torch.compile(branchless, fullgraph=True)`
# runs without an error and compiles once.
#
# - The values are equal on both branches; a sum of exactly 0 takes the second.
# - So are the gradients, and they are finite: also where the branch that is not taken has no value.


# %%
def branchy(x: torch.Tensor) -> torch.Tensor:
    total = x.sum()
    if total > 0:
        return x / total.sqrt()
    return -2 * x


# %%
def branchless(x: torch.Tensor) -> torch.Tensor:
    raise NotImplementedError("Exercise 3.2 is yours to write")


# %%
check("3.2")

# %% [markdown]
# ## 3.3 Any length, two graphs (2 points)
#
# `prepare(fn, backend)` gives a callable that computes `fn`, compiled with the given backend. `fn` takes one tensor of
# shape (n,).
#
# - Lengths 2 to 64 come in any order, then length 1. All of it costs at most two compilations.
# - Every call at a length from 2 to 64 runs compiled code and gives what that code computed. What happens at length 1
#   is your choice.
# - The results equal those of `fn`, which may well depend on n.


# %%
def prepare(fn, backend):
    raise NotImplementedError("Exercise 3.3 is yours to write")


# %%
check("3.3")

# %% [markdown]
# ## 3.4 A layer that counts its calls (2 points)
#
# `CountingLayer(layer)` is a module that computes what `layer` computes and counts its calls in the attribute `calls`.
#
# - Compiled and called 12 times with one shape: one compilation, every call runs compiled code, and
#   `int(module.calls) == 12`. After thousands of calls the count is still exact.
# - Gradients reach the layer.
# - The count is part of `state_dict()`: a fresh `CountingLayer` that loads it counts on from there.


# %%
class CountingLayer(nn.Module):
    def __init__(self, layer: nn.Module):
        raise NotImplementedError("Exercise 3.4 is yours to write")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError("Exercise 3.4 is yours to write")


# %%
check("3.4")

# %% [markdown]
# ## 3.5 A program with a contract (3 points)
#
# `export_model(model, example)` gives the `torch.export.ExportedProgram` of a model. `model` is any module that takes
# one tensor, under whatever argument name; `example` is such a tensor, with two rows or more.
#
# - The program computes what the model computes in eval mode.
# - Its module, `program.module()`, takes batches of 1 to 64 rows. With 65 it raises.
# - The model comes back with every submodule's own `training` flag and every parameter's own `requires_grad` as it
#   was.


# %%
def export_model(model: nn.Module, example: torch.Tensor) -> torch.export.ExportedProgram:
    raise NotImplementedError("Exercise 3.5 is yours to write")


# %%
check("3.5")

# %%
progress(3)
