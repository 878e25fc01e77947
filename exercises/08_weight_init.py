# %% [markdown]
# # Exercises 8: weight init
#
# Five exercises, easy to hard. Write your answer where a cell raises `NotImplementedError`, run the cell, then run
# the `check` below it. `hint("8.2")` gives one more hint, first as a question. Chapter 8 holds all you need.

# %%
import math

import torch
from torch import nn

from helpers import check, hint, progress, solution

# %% [markdown]
# ## 8.1 What nobody filled (1 point)
#
# `uninitialised(make_module)` calls `make_module()` and names the parameters and buffers that were left wholly or
# partly uninitialised.
#
# - Names are dotted, as in `named_parameters()` and `named_buffers()`: `"blocks.0.weight"`. Any order.
# - No luck involved: the memory may hold zeros, or a former tensor that looks like good weights. Integer buffers count.
# - Global flags and torch's random state are afterwards what they were before, also when `make_module` raises. Its
#   error goes on to the caller. The answer does not depend on how the caller had set the flags.
# - You may call `make_module` more than once.


# %%
def uninitialised(make_module) -> list[str]:
    raise NotImplementedError("Exercise 8.1 is yours to write")


# %%
check("8.1")

# %% [markdown]
# ## 8.2 Linear from scratch (1 point)
#
# `DenseLayer(in_features, out_features, bias=True, device=None, dtype=None)` does what `nn.Linear` does.
#
# - Under the same seed, a net of DenseLayers starts with the same bits as a net of `nn.Linear`.
# - The same `state_dict`: keys, shapes, dtype, device. With `bias=False` the attribute `bias` is None and there is no
#   key.
# - `forward(x)` takes any number of leading dimensions.
# - Written from scratch: neither derived from `nn.Linear` nor built with one.


# %%
class DenseLayer(nn.Module):
    def __init__(self, in_features: int, out_features: int, bias: bool = True, device=None, dtype=None):
        raise NotImplementedError("Exercise 8.2 is yours to write")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError("Exercise 8.2 is yours to write")


# %%
check("8.2")

# %% [markdown]
# ## 8.3 Thirty layers deep (2 points)
#
# `init_deep(model)` initialises a net in place, so that a signal gets through 30 hidden layers of `nn.Linear` and ReLU.
#
# - Input N(0, 1). The standard deviation of the activations after each ReLU, as the median over many seeds, stays
#   within 0.5 and 2 at width 256, within 0.25 and 2.5 at width 64 (narrow nets wander more).
# - Every `nn.Linear` has zero biases afterwards; some have no bias.
# - The `padding_idx` row of an `nn.Embedding` stays zero. Modules that have no weights stay as they are.


# %%
def init_deep(model: nn.Module) -> None:
    raise NotImplementedError("Exercise 8.3 is yours to write")


# %%
check("8.3")

# %% [markdown]
# ## 8.4 A fair start against Keras (2 points)
#
# To compare frameworks, start them alike. `keras_init(module)` gives every `nn.Linear`, `nn.Conv1d`, `nn.Conv2d` and
# `nn.Conv3d` anywhere inside (or `module` itself) the start that Keras gives: Glorot-uniform weights, zero biases.
#
# - Glorot-uniform means U(-b, b) with $b = \sqrt{6 / (\text{fan}_{in} + \text{fan}_{out})}$.
# - Everything else keeps its values: embeddings, norms, recurrent layers, transposed convolutions.
# - Applied twice under the same seed, it gives the same values.


# %%
def keras_init(module: nn.Module) -> None:
    raise NotImplementedError("Exercise 8.4 is yours to write")


# %%
check("8.4")

# %% [markdown]
# ## 8.5 Which suspect? (3 points)
#
# A training fails, and two repairs are proposed: the initialisation, the shapes. `run(init, shapes, seed)` trains once
# and gives the validation error; `init` and `shapes` are bools, True means repaired. Runs are noisy.
#
# `culprit(run, seeds)` gives
#
# - `"init"` or `"shapes"` if that repair alone decides, with or without the other,
# - `"both"` if the two repairs work only together, or if either of them is enough,
# - `"neither"` if nothing helps.
#
# A repair counts if it at least halves the error; smaller differences, even real ones, are nobody's guilt. Run each of
# the four combinations with at least three different seeds; `seeds` holds five or more.


# %%
def culprit(run, seeds) -> str:
    raise NotImplementedError("Exercise 8.5 is yours to write")


# %%
check("8.5")

# %%
progress(8)
