# %% [markdown]
# # Exercises 9: device moves
#
# Five exercises, easy to hard. Write your answer where a cell raises `NotImplementedError`, run the cell, then run
# the `check` below it. `hint("9.2")` gives one more hint, first as a question. Chapter 9 holds all you need.
#
# The checks move things to your second device: a GPU if there is one, else a stand-in that is no hardware. It is
# started here, before any backward pass; on a fresh machine the stand-in is rehearsed first, which takes some seconds.

# %%
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from helpers import check, hint, progress, second_device, solution

print(second_device())

# %% [markdown]
# ## 9.1 A tower that moves whole (1 point)
#
# Here is a net that runs on the CPU and breaks everywhere else: it cannot be moved, saved or trained.


# %%
class BrokenTower(nn.Module):
    def __init__(self, width: int = 8, depth: int = 2):
        super().__init__()
        self.blocks = [nn.Sequential(nn.Linear(width, width), nn.Dropout(0.5)) for _ in range(depth)]
        self.heads = {"a": nn.Linear(width, 3), "b": nn.Linear(width, 2)}
        self.scale = torch.full((width,), 0.5)
        self.mask = None

    def forward(self, x: torch.Tensor, head: str) -> torch.Tensor:
        """Mix each moment with those before it; x is (batch, time, width)."""
        if self.mask is None or len(self.mask) != x.shape[1]:
            self.mask = torch.ones(x.shape[1], x.shape[1]).tril()
        for block in self.blocks:
            x = torch.relu(block(x))
        return self.heads[head](self.mask @ (x * self.scale))


# %% [markdown]
# Repair it as `Tower`: the same constructor, the same `forward`, the same values.
#
# - `state_dict()` holds `scale`, `blocks.0.0.weight`, `blocks.0.0.bias` (and so on for each block),
#   `heads.a.weight`, `heads.a.bias`, `heads.b.weight`, `heads.b.bias`, before and after a forward pass. Nothing else.
# - `scale` is a constant: a buffer, not a parameter. The mask is in no checkpoint.
# - Inside a parent that is moved it moves whole, there and back, also when it ran on the CPU before. `parent.half()`,
#   `parent.double()` and `parent.eval()` reach everything, also after a use.


# %%
class Tower(nn.Module):
    def __init__(self, width: int = 8, depth: int = 2):
        ### BEGIN SOLUTION
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.Dropout(0.5)) for _ in range(depth))
        self.heads = nn.ModuleDict({"a": nn.Linear(width, 3), "b": nn.Linear(width, 2)})
        self.register_buffer("scale", torch.full((width,), 0.5))
        self.register_buffer("mask", torch.empty(0, 0), persistent=False)
        ### END SOLUTION

    def forward(self, x: torch.Tensor, head: str) -> torch.Tensor:
        ### BEGIN SOLUTION
        if len(self.mask) != x.shape[1]:
            self.mask = torch.ones(x.shape[1], x.shape[1], dtype=x.dtype, device=x.device).tril()
        for block in self.blocks:
            x = torch.relu(block(x))
        return self.heads[head](self.mask @ (x * self.scale))
        ### END SOLUTION


# %%
check("9.1")

# %% [markdown]
# ## 9.2 A step that runs anywhere (1 point)
#
# `train_step(model, batch, optimizer)` trains one step with cross entropy and gives the loss, from before the update,
# as a Python float.
#
# - `batch` is `(x, labels)`, both on the CPU, as a data loader gives them; labels are class indices.
# - The model is where the caller put it, and stays there. The optimizer is over its parameters.
# - The CPU waits for the device at most once a step.


# %%
def train_step(model: nn.Module, batch, optimizer) -> float:
    ### BEGIN SOLUTION
    device = next(model.parameters()).device
    x, labels = (tensor.to(device) for tensor in batch)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), labels)
    loss.backward()
    optimizer.step()
    return loss.item()
    ### END SOLUTION


# %%
check("9.2")

# %% [markdown]
# ## 9.3 Out of the device, into NumPy (2 points)
#
# `to_numpy(tensor)` gives a `np.ndarray` of the tensor's shape, values and dtype.
#
# - From any device, with or without `requires_grad`, and the tensor stays as it is.
# - `bfloat16`, which NumPy does not know, comes as `float32`.
# - A conjugated or negated view, such as `z.conj()` or `z.conj().imag`, comes with its own values.
# - A zero-dim tensor gives a zero-dim array.
# - The array has memory of its own: who changes the tensor later does not change the array.


# %%
def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    ### BEGIN SOLUTION
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    return tensor.numpy().copy()
    ### END SOLUTION


# %%
check("9.3")

# %% [markdown]
# ## 9.4 Resume elsewhere (2 points)
#
# `resume(make_model, make_optimizer, checkpoint, device)` gives `(model, optimizer)`, ready to go on training.
#
# - `make_model()` gives a fresh model on the CPU, `make_optimizer(parameters)` a fresh optimizer.
# - `checkpoint["model"]` and `checkpoint["optimizer"]` are state dicts, saved on any device.
# - Model and optimizer state are on `device` afterwards (an optimizer's zero-dim `step` may stay on the CPU), and the
#   next step changes the model's weights.
# - Training goes on as if it had never stopped: with the checkpoint's momentum, and its learning rate.
# - The check tries both kinds of move: the kind that keeps the parameters, as CUDA does, and the kind that replaces
#   them, as XLA and our stand-in do.


# %%
def resume(make_model, make_optimizer, checkpoint, device):
    ### BEGIN SOLUTION
    model = make_model().to(device)
    model.load_state_dict(checkpoint["model"])
    optimizer = make_optimizer(model.parameters())
    optimizer.load_state_dict(checkpoint["optimizer"])
    return model, optimizer
    ### END SOLUTION


# %%
check("9.4")

# %% [markdown]
# ## 9.5 Find what stays behind (3 points)
#
# `hidden_tensors(module)` lists the dotted names of tensors and modules that `module.to()` would miss: those that sit
# in plain attributes, in lists, tuples and dicts, however deep, of the module or of any of its submodules.
#
# - Names read like `scale`, `blocks.0`, `heads.a`, `encoder._cache.keys.1`: attribute, then index or key.
# - A hidden module counts as one; its contents may be listed too.
# - What is registered is never listed, whoever else refers to it: a second list of registered layers, or the
#   `_flat_weights` of `nn.LSTM`, hide nothing. A correct module gives `[]`.
# - Containers may be shared, and may contain themselves. One name is enough for what can be reached by several.


# %%
def hidden_tensors(module: nn.Module) -> list[str]:
    ### BEGIN SOLUTION
    registered = {id(known) for known in [*module.modules(), *module.parameters(), *module.buffers()]}
    seen, found = set(), []

    def look(value: object, name: str) -> None:
        if id(value) in seen or id(value) in registered:
            return
        seen.add(id(value))
        if isinstance(value, (torch.Tensor, nn.Module)):
            found.append(name)
        elif isinstance(value, dict):
            for key, item in value.items():
                look(item, f"{name}.{key}")
        elif isinstance(value, (list, tuple)):
            for index, item in enumerate(value):
                look(item, f"{name}.{index}")

    for path, owner in module.named_modules():
        for attribute, value in vars(owner).items():
            if attribute not in ("_parameters", "_buffers", "_modules"):
                look(value, f"{path}.{attribute}" if path else attribute)
    return found
    ### END SOLUTION


# %%
check("9.5")

# %%
progress(9)
