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
    ### BEGIN SOLUTION
    return 1 + t0 / c
    ### END SOLUTION


def batch_for(t0: float, c: float, fraction: float) -> int:
    ### BEGIN SOLUTION
    if not 0 < fraction < 1:
        raise ValueError(f"fraction must lie between 0 and 1, not {fraction}")
    return max(1, math.ceil(fraction * t0 / ((1 - fraction) * c)))
    ### END SOLUTION


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
    ### BEGIN SOLUTION
    empty = (lengths == 0).nonzero().flatten().tolist()
    if empty:
        raise ValueError(f"nothing to pool: item {empty[0]} has length 0")
    valid = (torch.arange(x.shape[1], device=x.device) < lengths[:, None])[:, :, None]
    mean = torch.where(valid, x, 0).sum(1) / lengths[:, None]
    maximum = torch.where(valid, x, -math.inf).amax(1)
    last = x[torch.arange(len(x), device=x.device), lengths - 1]
    return mean, maximum, last
    ### END SOLUTION


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
    ### BEGIN SOLUTION
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    ### END SOLUTION


def restore(outputs: list[torch.Tensor], batches: list[list[int]]) -> torch.Tensor:
    ### BEGIN SOLUTION
    order = torch.tensor([index for batch in batches for index in batch])
    rows = torch.cat(outputs)
    return rows[order.argsort()]
    ### END SOLUTION


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
        ### BEGIN SOLUTION
        self.predict, self.max_batch = predict, max_batch
        self.queue, self.done, self.tickets = deque(), {}, 0
        ### END SOLUTION

    def submit(self, item):
        ### BEGIN SOLUTION
        self.tickets += 1
        self.queue.append((self.tickets, item))
        return self.tickets
        ### END SOLUTION

    def step(self) -> None:
        ### BEGIN SOLUTION
        size = min(self.max_batch, len(self.queue))
        if size:
            self._serve([self.queue.popleft() for _ in range(size)])
        ### END SOLUTION

    def result(self, ticket):
        ### BEGIN SOLUTION
        answer, error = self.done.pop(ticket)
        if error is not None:
            raise error
        return answer

    def _serve(self, batch: list) -> None:
        try:
            answers = list(zip(batch, self.predict([item for _, item in batch]), strict=True))
        except Exception as error:
            if len(batch) == 1:
                self.done[batch[0][0]] = (None, error)
                return
            middle = len(batch) // 2
            self._serve(batch[:middle])
            self._serve(batch[middle:])
            return
        for (ticket, _), answer in answers:
            self.done[ticket] = (answer, None)
        ### END SOLUTION


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
    ### BEGIN SOLUTION
    parameters, buffers = torch.func.stack_module_state(models)

    def one(parameters, buffers):
        return torch.func.functional_call(models[0], (parameters, buffers), (x,))

    return torch.func.vmap(one)(parameters, buffers)
    ### END SOLUTION


# %%
check("5.5")

# %%
progress(5)
