# %% [markdown]
# # Exercises 1: graphs and no_grad
#
# Five exercises, easy to hard. Write your answer where a cell raises `NotImplementedError`, run the cell, then run
# the `check` below it. `hint("1.2")` gives one more hint, first as a question. Chapter 1 holds all you need.

# %%
import math

import torch
from torch import nn

from helpers import check, hint, progress, solution

# %% [markdown]
# ## 1.1 Six modes (1 point)
#
# A net with dropout and batch norm runs a forward pass in six modes. For each, predict three things: are its
# **outputs repeatable** on the same input, do the **batch-norm statistics stay put**, is a **graph recorded**?
#
# Return a dict from the mode's name to `(repeatable, statistics stay put, graph recorded)`. The names are `"train"`,
# `"train+no_grad"`, `"train+inference_mode"`, `"eval"`, `"eval+no_grad"` and `"eval+inference_mode"`. The check runs
# the net.


# %%
def predict_modes() -> dict[str, tuple[bool, bool, bool]]:
    raise NotImplementedError("Exercise 1.1 is yours to write")


# %%
check("1.1")

# %% [markdown]
# ## 1.2 An evaluation that leaves no trace (1 point)
#
# `evaluate(model, batches)` gives the model's outputs for all batches, concatenated on dimension 0.
#
# - `batches` is any iterable of tensors (B, 8), also a generator.
# - Outputs are those of eval mode, and autograd records nothing.
# - The model comes back unchanged: parameters, buffers, and every submodule's own `training` flag, also when a
#   batch raises. Somebody may have frozen one layer with `layer.eval()`.
# - No batches: raise a `ValueError` that says so.


# %%
def evaluate(model: nn.Module, batches) -> torch.Tensor:
    raise NotImplementedError("Exercise 1.2 is yours to write")


# %%
check("1.2")

# %% [markdown]
# ## 1.3 Features worth keeping (2 points)
#
# `collect_features(model, batches)` gives, for each batch, the **first column** of the model's output: a list of
# tensors of shape (B,).
#
# - What stays alive after the call is what you return and nothing else: no graph, and no storage larger than its
#   tensor. One of the batches may have a single row.
# - The features can take part in a later training step.
# - The model's mode belongs to the caller: leave it alone.


# %%
def collect_features(model: nn.Module, batches) -> list[torch.Tensor]:
    raise NotImplementedError("Exercise 1.3 is yours to write")


# %%
check("1.3")

# %% [markdown]
# ## 1.4 A cache that survives both modes (2 points)
#
# A table of positions is built once and reused. Column 2i of row p holds sin(p / 10000^(2i/dim)), column 2i+1 the
# cosine of the same angle.
#
# - `PositionTable(dim)`, `dim` even; `forward(length)` gives a tensor (length, dim).
# - Lazy and cached: a length that is already covered computes no sine or cosine; a longer one makes the table grow.
# - It may be used under `torch.inference_mode()` first and trained through afterwards.
# - It follows `.to(dtype)`, and it is not in `state_dict`.


# %%
class PositionTable(nn.Module):
    def __init__(self, dim: int):
        raise NotImplementedError("Exercise 1.4 is yours to write")

    def forward(self, length: int) -> torch.Tensor:
        raise NotImplementedError("Exercise 1.4 is yours to write")


# %%
check("1.4")

# %% [markdown]
# ## 1.5 Serving without side effects (3 points)
#
# `async serve(model, requests)` answers a list of requests. Each request is an awaitable that gives an input tensor
# (B, 8) when awaited; requests arrive when they arrive.
#
# - The answers come as a list, in the order of the requests, and carry no graph.
# - Other tasks share the event loop. Their grad mode must not change, neither while you wait nor after.
# - This also holds where the caller had switched grad mode off.


# %%
async def serve(model: nn.Module, requests) -> list[torch.Tensor]:
    raise NotImplementedError("Exercise 1.5 is yours to write")


# %%
check("1.5")

# %%
progress(1)
