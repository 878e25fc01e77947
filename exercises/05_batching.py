# %% [markdown]
# # Exercises 5: batching
#
# Five exercises, easy to hard. Write your answer where a cell raises `NotImplementedError`, run the cell, then run
# the `check` below it. `hint("5.2")` gives one more hint, first as a question. Chapter 5 holds all you need.

# %%
import math
from collections import deque

import torch
from torch import nn

from helpers import check, hint, progress, solution

# %% [markdown]
# ## 5.1 How much can batching gain? (1 point)
#
# A call on a batch of `b` items takes `t0 + c·b` seconds. Its **gain** is the throughput relative to calls with one
# item: `b·(t0 + c) / (t0 + c·b)`.
#
# - `max_gain(t0, c)`: the limit that no batch exceeds. `t0` is zero or more, `c` is positive.
# - `batch_for(t0, c, fraction)`: the smallest batch, an `int` of at least 1, whose gain reaches `fraction` of that
#   limit. A fraction outside (0, 1) is a `ValueError`.


# %%
def max_gain(t0: float, c: float) -> float:
    raise NotImplementedError("Exercise 5.1 is yours to write")


def batch_for(t0: float, c: float, fraction: float) -> int:
    raise NotImplementedError("Exercise 5.1 is yours to write")


# %%
check("5.1")

# %% [markdown]
# ## 5.2 Pooling that does not see the padding (1 point)
#
# `masked_pool(x, lengths)` pools a padded batch `x` of shape (B, T, F). Item `i` is `x[i, :lengths[i]]`; what comes
# after it is padding and may hold anything, also NaN. Valid values are never NaN. `lengths` is an int64 tensor (B,).
#
# Return `(mean, max, last)`, each of shape (B, F): mean and maximum over the item's own steps, and its last own step.
# They equal what each item alone would give. An item of length 0 is a `ValueError` whose message holds the item's
# index.


# %%
def masked_pool(x: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    raise NotImplementedError("Exercise 5.2 is yours to write")


# %%
check("5.2")

# %% [markdown]
# ## 5.3 Batches of like lengths (2 points)
#
# - `bucket_batches(lengths, batch_size)` groups the indices `0 … len(lengths) - 1` into batches: every index once,
#   no batch larger than `batch_size`, and no more batches than needed (only one may be short). The padding waste,
#   `1 - sum(lengths) / sum(len(batch) * longest in batch)`, stays below 0.15 on a thousand log-normal lengths in
#   batches of 16.
# - `restore(outputs, batches)` undoes it: `outputs[k]` holds one row for each index of `batches[k]`, in that order.
#   Return one tensor whose row `i` belongs to item `i`. Outputs may have any dtype, and any shape after their rows;
#   `batches` may come from somebody else.


# %%
def bucket_batches(lengths: list[int], batch_size: int) -> list[list[int]]:
    raise NotImplementedError("Exercise 5.3 is yours to write")


def restore(outputs: list[torch.Tensor], batches: list[list[int]]) -> torch.Tensor:
    raise NotImplementedError("Exercise 5.3 is yours to write")


# %%
check("5.3")

# %% [markdown]
# ## 5.4 A micro-batcher (2 points)
#
# `predict` takes a list of items and gives a list of answers; it raises if an item is bad. Wrap it:
#
# - `MicroBatcher(predict, max_batch)`; `submit(item)` queues an item and gives a ticket (any value of your choice).
#   Equal items, or one item submitted twice, are separate requests.
# - `step()` serves at most one batch: as large as allowed, in the order of arrival, also if it is not full. It does
#   nothing when the queue is empty, and it never raises. `predict` never sees more than `max_batch` items.
# - `result(ticket)` gives the answer, which may be anything, also `None`. Before there is one, or a second time, it
#   raises `KeyError`.
# - One bad item fails alone: its `result()` raises the error that `predict` raised for it, and its neighbours get
#   their answers.


# %%
class MicroBatcher:
    def __init__(self, predict, max_batch: int):
        raise NotImplementedError("Exercise 5.4 is yours to write")

    def submit(self, item):
        raise NotImplementedError("Exercise 5.4 is yours to write")

    def step(self) -> None:
        raise NotImplementedError("Exercise 5.4 is yours to write")

    def result(self, ticket):
        raise NotImplementedError("Exercise 5.4 is yours to write")


# %%
check("5.4")

# %% [markdown]
# ## 5.5 An ensemble in one pass (3 points)
#
# `predict_ensemble(models, x)` gives the outputs of all models on the same `x`, of shape (models, B, out).
#
# - The models are of one class and have the same shapes, in eval mode. They differ in their parameters *and* in their
#   buffers.
# - The values equal those of a loop over the models, but the number of computing operations does not grow with the
#   number of models (views and copies are not counted).
# - Nothing about the models changes: the same `Parameter` objects, the same values, `requires_grad` as it was.


# %%
def predict_ensemble(models: list[nn.Module], x: torch.Tensor) -> torch.Tensor:
    raise NotImplementedError("Exercise 5.5 is yours to write")


# %%
check("5.5")

# %%
progress(5)
