# %% [markdown]
# # Exercises 6: tensor shapes
#
# Five exercises, easy to hard. Write your answer where a cell raises `NotImplementedError`, run the cell, then run
# the `check` below it. `hint("6.2")` gives one more hint, first as a question. Chapter 6 holds all you need.

# %%
import math

import torch

from helpers import check, hint, progress, solution

# %% [markdown]
# ## 6.1 Eight layouts (1 point)
#
# With `a = torch.arange(6).reshape(2, 3)`, predict for each of these expressions its **shape**, its **stride**, and
# whether it **shares memory** with `a`:
#
# 1. `a.t()`
# 2. `a.view(3, 2)`
# 3. `a.reshape(6)`
# 4. `a.t().reshape(6)`
# 5. `a.t().contiguous()`
# 6. `a[:, 1]`
# 7. `a[[0, 1]]`
# 8. `a[:1].expand(4, 3)`
#
# Return a dict from the expression's text to `(shape, stride, shares memory)`. For `a` itself that would be
# `"a": ((2, 3), (3, 1), True)`. The check computes all eight.


# %%
def predict_layouts() -> dict[str, tuple[tuple[int, ...], tuple[int, ...], bool]]:
    ### BEGIN SOLUTION
    return {
        "a.t()": ((3, 2), (1, 3), True),
        "a.view(3, 2)": ((3, 2), (2, 1), True),
        "a.reshape(6)": ((6,), (1,), True),
        "a.t().reshape(6)": ((6,), (1,), False),
        "a.t().contiguous()": ((3, 2), (2, 1), False),
        "a[:, 1]": ((2,), (3,), True),
        "a[[0, 1]]": ((2, 3), (3, 1), False),
        "a[:1].expand(4, 3)": ((4, 3), (0, 1), True),
    }
    ### END SOLUTION


# %%
check("6.1")

# %% [markdown]
# ## 6.2 A batch of one (1 point)
#
# A pooling layer gives features of shape (B, C, 1, 1). `pool_logits(features)` gives the same numbers as (B, C), for
# every batch size B and every number of channels C. The last batch of an epoch may hold one sample, a filtered batch
# may hold none, and a binary classifier has one channel.
#
# The numbers keep their dtype, gradients pass through, and the caller's tensor has the same shape and numbers after
# the call as before it.


# %%
def pool_logits(features: torch.Tensor) -> torch.Tensor:
    ### BEGIN SOLUTION
    return features.squeeze((2, 3))
    ### END SOLUTION


# %%
check("6.2")

# %% [markdown]
# ## 6.3 Images and heads (2 points)
#
# Three functions that move numbers about and mix none:
#
# - `to_channels_first(images)`: (B, H, W, C) → (B, C, H, W), as in `out[b, c, h, w] = images[b, h, w, c]`.
# - `split_heads(x, heads)`: (B, T, heads·D) → (B, heads, T, D). Head 0 owns the first D features of every position:
#   `out[b, h, t, d] = x[b, t, h * D + d]`.
# - `merge_heads(x)`: (B, heads, T, D) → (B, T, heads·D), the inverse.
#
# Inputs may lie in memory in any way and be of any float dtype, which the result keeps, and gradients pass through:
# the functions stand inside a model. The check compares with loops over indices, then probes which input row each
# output row depends on.


# %%
def to_channels_first(images: torch.Tensor) -> torch.Tensor:
    ### BEGIN SOLUTION
    return images.permute(0, 3, 1, 2)
    ### END SOLUTION


def split_heads(x: torch.Tensor, heads: int) -> torch.Tensor:
    ### BEGIN SOLUTION
    return x.unflatten(2, (heads, -1)).transpose(1, 2)
    ### END SOLUTION


def merge_heads(x: torch.Tensor) -> torch.Tensor:
    ### BEGIN SOLUTION
    return x.transpose(1, 2).flatten(2)
    ### END SOLUTION


# %%
check("6.3")

# %% [markdown]
# ## 6.4 A loss that refuses to broadcast (2 points)
#
# `regression_loss(pred, target)` is the mean squared error, a scalar with a graph.
#
# - Equal shapes are compared element by element.
# - (N, 1) against (N,), in either order, means the same N numbers. N may be 1.
# - Any other two shapes are a `ValueError` whose text holds both of them, also where both have equally many elements,
#   as () and (1,) have.
# - Integer targets are fine.
# - The gradient with respect to `pred` is `2 * (pred - target) / number of elements`.


# %%
def regression_loss(pred: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    ### BEGIN SOLUTION
    n = pred.numel()
    if pred.shape != target.shape and {tuple(pred.shape), tuple(target.shape)} != {(n,), (n, 1)}:
        raise ValueError(f"pred {tuple(pred.shape)} and target {tuple(target.shape)} are not the same numbers")
    return (pred - target.reshape(pred.shape)).square().mean()
    ### END SOLUTION


# %%
check("6.4")

# %% [markdown]
# ## 6.5 When does a view exist? (3 points)
#
# A view is a new pair of size and stride over the same storage. `can_view(size, stride, new_size)` says whether
# `x.view(new_size)` succeeds for a tensor with this size and stride.
#
# - All three are tuples of ints. No entry of `new_size` is -1. Sizes may be 1 or 0, strides may be 0.
# - If `new_size` holds another number of elements, the answer is `False`.
# - Decide it from the three tuples: making a tensor and asking it for a view is not the exercise.
#
# The check compares with torch on hand-picked cases and on 500 random ones.


# %%
def can_view(size: tuple[int, ...], stride: tuple[int, ...], new_size: tuple[int, ...]) -> bool:
    ### BEGIN SOLUTION
    if math.prod(size) != math.prod(new_size):
        return False
    if math.prod(size) == 0:
        return True
    # Neighbouring dimensions whose strides continue each other form one evenly spaced chunk.
    chunks: list[tuple[int, int]] = []
    for length, step in zip(size, stride, strict=True):
        if length == 1:
            continue
        if chunks and chunks[-1][1] == length * step:
            chunks[-1] = (chunks[-1][0] * length, step)
        else:
            chunks.append((length, step))
    # Every chunk must be the product of the next few new dimensions: none may straddle two chunks.
    remaining = [length for length in new_size if length != 1]
    for length, _ in chunks:
        filled = 1
        while filled < length:
            filled *= remaining.pop(0)
        if filled != length:
            return False
    return True
    ### END SOLUTION


# %%
check("6.5")

# %%
progress(6)
