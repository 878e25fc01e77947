# %% [markdown]
# # 9 Device moves: two memories
#
# The model trained for a week on a laptop's CPU. On the GPU machine it stops at its first batch, in a line that nobody
# has touched. Somebody adds `.to(device)` there; it stops one line later. Somebody moves one line more, and now
# nothing stops any more, and nothing is learned either. This chapter finds out what moves, what stays behind, and which
# of the two kinds of failure says so.
#
# About 50 minutes with the exercises. No GPU is needed: where there is none, a
# [stand-in](../docs/glossary.md#stand-in) commits the same errors.

# %% tags=["parameters"]
budget_s: float = 2.0  # seconds that one timing comparison may take
device: str = "auto"  # the second device: "auto", "cuda", or "cpu" for a stand-in even where there is a GPU
record: bool = False  # keep results for readers without this machine
fast: bool = False  # small budgets: a quick look

# %% tags=["nbval-ignore-output"]
from helpers import preflight

preflight("09", budget_s=budget_s, device=device, record=record, fast=fast)

# %% [markdown]
# ## A second memory
# A CPU computes on its own memory, a GPU on another. To see what that does to a program we need a second device. Here
# is the one this machine offers, and the first points in which it differs from CUDA, if it does.

# %% tags=["nbval-ignore-output"]
import contextlib

import torch
from torch import nn

from helpers import devices, expected_error, second_device

second = second_device("toy" if device == "cpu" else device)
there = second.device
refused = expected_error if second else lambda *kinds: contextlib.suppress(Exception)
print(second if second else f"{second} Both memories are the CPU's: what is said of devices is not testable here.")
for what, happens in devices.gaps(second.kind)[:3]:
    print(f"  unlike CUDA, {what} {happens}")

# %% [markdown]
# If that line calls it a stand-in, take it at its word: no hardware, made in Python or found in the wheel, resting on
# private parts of PyTorch. Values and errors are real; speed is not. The rule of two memories takes one cell:

# %% tags=["nbval-ignore-output"]
torch.manual_seed(0)
layer, x = nn.Linear(4, 4), torch.randn(3, 4)
layer.to(there)
x.to(there)
with refused(RuntimeError):
    layer(x)

# %%
print("the layer moved:", layer.weight.device == there)
print("x moved:", x.device == there)
print("with x = x.to(there), the output is there:", layer(x.to(there)).device == there)

# %% [markdown]
# `.to()` of a module changes the module. `.to()` of a tensor gives a new tensor and changes nothing: without an
# assignment, the copy is made and thrown away.
#
# ## Half a model stays behind
# Now a net as one writes it on a laptop. Four things have to be on the device: embeddings, layers, a scale, and the
# positions.

# %%
from helpers import predict


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.place = nn.Embedding(50, 16), nn.Embedding(20, 16)
        self.layers = [nn.Linear(16, 16) for _ in range(2)]
        self.scale = torch.full((16,), 0.25)

    def forward(self, tokens):
        x = self.embed(tokens) + self.place(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x * self.scale


question = "Embeddings, list of layers, scale: how many of these three does model.to(device) move?"
guess = predict("who-moves", question, ["one", "two", "all three"])

# %%
torch.manual_seed(0)
model, tokens = Encoder().to(there), torch.randint(50, (2, 6))
parts = {"embeddings": model.embed.weight, "layers": model.layers[0].weight, "scale": model.scale}
moved = {name: tensor.device == there for name, tensor in parts.items()}
print(moved)
if second:
    guess.reveal(guess.options[sum(moved.values()) - 1])

# %% [markdown]
# What the program says about it is a poor guide: it names the first thing it stumbles over, and that is the fourth, the
# positions made inside `forward`.

# %% tags=["nbval-ignore-output"]
with refused(RuntimeError):
    model(tokens.to(there))

# %% [markdown]
# Somebody who chases these messages repairs one line a run. Better to know who is reached.
#
# ## Who reaches what
# `.to()`, `state_dict()` and `parameters()` all walk the same three registries: modules, parameters,
# [buffers](../docs/glossary.md#buffer). We hold a tensor in nine ways and ask each of them.

# %% tags=["nbval-ignore-output"]
from helpers import figures

ways = {
    "Module": lambda m: setattr(m, "it", nn.Linear(2, 2)),
    "nn.ModuleList": lambda m: setattr(m, "it", nn.ModuleList([nn.Linear(2, 2)])),
    "list of Modules": lambda m: setattr(m, "it", [nn.Linear(2, 2)]),
    "dict of Modules": lambda m: setattr(m, "it", {0: nn.Linear(2, 2)}),
    "Parameter": lambda m: setattr(m, "it", nn.Parameter(torch.zeros(2))),
    "list of Parameters": lambda m: setattr(m, "it", [nn.Parameter(torch.zeros(2))]),
    "buffer": lambda m: m.register_buffer("it", torch.zeros(2)),
    "buffer, not persistent": lambda m: m.register_buffer("it", torch.zeros(2), persistent=False),
    "plain tensor": lambda m: setattr(m, "it", torch.zeros(2)),
}


def reached(hold) -> list[bool]:
    module = nn.Module()
    hold(module)
    saved, trained = bool(module.state_dict()), bool(list(module.parameters()))
    module.to(there).half()
    held = module.it if isinstance(module.it, (torch.Tensor, nn.Linear)) else module.it[0]
    tensor = getattr(held, "weight", held)
    return [tensor.device == there, tensor.dtype == torch.float16, saved, trained]


reach = {way: reached(hold) for way, hold in ways.items()}
columns = ["to()", "half()", "state_dict()", "parameters()"]
figures.heat_map(list(reach.values()), list(reach), columns, "{}", "What reaches a tensor, by the way it is held")

# %%
print("reached by nobody:", [way for way, row in reach.items() if not any(row)])
print("moved and not saved:", [way for way, row in reach.items() if row[0] and not row[2]])

# %% [markdown]
# A plain container or a plain tensor is not half reached: moving, converting, saving and training all miss it. On the
# CPU the last two misses are silent. The checkpoint has holes and the optimizer trains a part of the net, with no
# second device in sight; the device only gives the bug a voice.
#
# ## Two workarounds, tried
# The article knows the symptom. Its first remedy imports `torch.cuda` in the place of `torch`, so that tensors are
# born on the GPU. Its second overrides `cuda()`; we override `to()`, which works the same way and runs everywhere.

# %%
missing = [name for name in ("randn", "zeros", "tensor", "nn") if not hasattr(torch.cuda, name)]
print("torch.cuda has none of:", missing)


class OwnTo(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(4, 4)]

    def to(self, *args):
        self.layers = [layer.to(*args) for layer in self.layers]
        return super().to(*args)

    def forward(self, x):
        return self.layers[0](x)


alone, parent = OwnTo().to(there), nn.Sequential(OwnTo()).to(there)
alone_moved, inside_moved = (net.layers[0].weight.device == there for net in (alone, parent[0]))
print(f"moved alone: {alone_moved}, moved inside a parent: {inside_moved}")

# %% [markdown]
# A parent does not call `to()` of its children. It calls `_apply`, a private method. Override that one, then?


# %%
class OwnApply(OwnTo):
    to = nn.Module.to

    def _apply(self, fn, *args):
        self.layers = [layer._apply(fn) for layer in self.layers]
        return super()._apply(fn, *args)


parent = nn.Sequential(OwnApply()).to(there).eval()
print("moved inside a parent:", parent[0].layers[0].weight.device == there)
print("parameters:", len(list(parent.parameters())), " keys in state_dict:", len(parent.state_dict()))
print("eval() reached the layer:", not parent[0].layers[0].training)
with expected_error(ValueError):
    torch.optim.SGD(parent.parameters(), lr=0.1)

# %% [markdown]
# It moves, inside a parent too. It trains nothing, saves nothing and switches nothing: every walk over the registries
# would need an override of its own.

# %% tags=["nbval-ignore-output"]
from helpers import claim, finding, untested

stayed = finding(not moved["layers"] and not moved["scale"], "a list of layers and a plain tensor stayed on the CPU")
inside = finding(inside_moved, "inside a parent, an overridden to() is not called")
claim("9.1").judge(
    {
        "what sits in plain attributes is not moved": stayed if second else untested("there is no second device"),
        "a conditional import helps": finding(not missing, "torch.cuda offers no randn, zeros, tensor or nn"),
        "overriding to() or cuda() helps": inside if second else untested("there is no second device"),
    }
)

# %% [markdown]
# ## Registration, and its limit
# The cure is to say what belongs to the model. What `forward` makes, no registry knows: there the input tells the
# place. Outside, a parameter does: `next(model.parameters()).device`. A device written into code is right on one
# machine.


# %%
class Registered(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.place = nn.Embedding(50, 16), nn.Embedding(20, 16)
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(2))
        self.register_buffer("scale", torch.full((16,), 0.25))

    def forward(self, tokens):
        x = self.embed(tokens) + self.place(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x * self.scale


torch.manual_seed(0)
model = nn.Sequential(Registered())
expected = model(tokens).detach()
same = torch.allclose(model.to(there)(tokens.to(there)).detach().cpu(), expected, atol=1e-5)
print("inside a parent, moved, same values:", same)
print("entries in state_dict:", len(model.state_dict()), " of Encoder:", len(Encoder().state_dict()))

# %% [markdown]
# The limit: checkpoints written by the broken net have fewer entries and no longer load strictly. A constant need not
# add to that: `persistent=False` moves it and leaves it out of the file. And a buffer is not a Parameter: weight decay
# shrinks a Parameter that nobody meant to train.
#
# ## What may stay on the CPU
# Some mixtures are allowed, which makes the rule look arbitrary. We try seven.

# %%
import torch.nn.functional as F

x, labels = torch.randn(6, 4).to(there), torch.tensor([0, 1, 2, 3, 0, 1])
mixtures = {
    "x + a CPU vector": lambda: x + torch.ones(4),
    "x + a CPU zero-dim tensor": lambda: x + torch.tensor(1.0),
    "x[CPU indices]": lambda: x[labels],
    "a CPU tensor[device indices]": lambda: torch.ones(6, 4)[labels.to(there)],
    "embedding of CPU indices": lambda: model[0].embed(labels),
    "cross entropy, CPU labels": lambda: F.cross_entropy(x, labels),
    "matmul with a CPU matrix": lambda: x @ torch.ones(4, 4),
}
for name, mix in mixtures.items():
    try:
        mix()
        print(f"accepted  {name}")
    except RuntimeError:
        print(f"refused   {name}")

# %% [markdown]
# A zero-dim CPU tensor passes as a number. Indices of a device tensor pass, and are copied over at each use. The error
# texts differ: newer releases name the argument left behind, older ones both devices. Search for "same device", not for
# the sentence; a convolution alone says that input and weight types "should be the same".
#
# ## Crossings and waits
# Each copy between the memories costs a trip. Each number that Python reads makes the CPU wait until the device has
# caught up. Both can be counted without a GPU, because counting needs no clock. Ten steps of this loop:

# %%
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)).to(there)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
batches = [(torch.randn(6, 4), labels) for _ in range(10)]


def step(x, y):
    optimizer.zero_grad()
    logits = net(x)
    loss = F.cross_entropy(logits, y)
    loss.backward()
    optimizer.step()
    return loss.detach(), (logits.argmax(1) == y).sum()


def chatty():
    total, right = 0.0, 0
    for x, y in batches:
        loss, hits = step(x.to(there), y.to(there))
        if torch.isnan(loss):
            raise ValueError("the loss is not a number")
        total += loss.item()
        right += hits.item()


guess = predict("waits", "How often does the CPU wait in these ten steps?", ["10", "20", "30", "40"])


# %%
def quiet():
    total, right = torch.zeros((), device=there), torch.zeros((), device=there, dtype=torch.int64)
    for x, y in batches:
        loss, hits = step(x.to(there), y.to(there))
        total += loss
        right += hits
    return total.item(), right.item()


counts = {loop.__name__: devices.transfers(loop) for loop in (chatty, quiet)}
for name, count in counts.items():
    print(f"{name}: {count.to_device} copies to the device, {count.to_host} back, {count.syncs} waits")
if second:
    guess.reveal(str(counts["chatty"].syncs))

# %% [markdown]
# Sums kept on the device wait at the end only. Which calls wait? Not only those that read a number.

# %%
mask = x > 0
asks = {
    "print(x.shape)": lambda: str(x.shape),
    "x.max()": lambda: x.max(),
    "if x.max() > 0": lambda: bool(x.max() > 0),
    "x[mask]": lambda: x[mask],
    "x.masked_fill(mask, 0)": lambda: x.masked_fill(mask, 0),
    "torch.where(mask, x, 0)": lambda: torch.where(mask, x, 0),
    "mask.nonzero()": lambda: mask.nonzero(),
}
for name, ask in asks.items():
    print(f"{name:24} waits: {devices.transfers(ask).syncs}")

# %% [markdown]
# A shape that depends on values, as in `x[mask]`, cannot be known before the device has computed them. `where` and
# `masked_fill` keep the shape, and do not wait.
#
# ## Into NumPy
# NumPy reads host memory only. A tensor fresh from a model meets three obstacles, one after the other.

# %% tags=["nbval-ignore-output"]
output = net(x)
with refused(TypeError) as stopped:
    output.numpy()
with expected_error(RuntimeError):
    output.cpu().numpy()
with expected_error(TypeError):
    output.detach().cpu().bfloat16().numpy()
arrived = output.detach().cpu().float().numpy()
claim("9.2").judge(
    finding(bool(stopped) and arrived.shape == (6, 4), f"refused as it was, accepted from the CPU; {second.name}")
    if second
    else untested("there is no second device")
)

# %% [markdown]
# `numpy(force=True)` removes graph and device, and resolves the bits that `conj()` sets instead of computing
# (`resolve_conj`, `resolve_neg`); bfloat16 stays a decision. A quieter trap: `.cpu()`
# [copies](../docs/glossary.md#transfer) only where it must. The same line gives a copy from the device and a window
# from the CPU.

# %%
for place in (torch.device("cpu"), there):
    counter = torch.zeros(3).to(place)
    kept = counter.detach().cpu().numpy()
    counter += 1
    print("the CPU:      " if place.type == "cpu" else "the device:   ", kept)

# %% [markdown]
# A history of metrics collected this way is right on the GPU, and on the CPU every entry shows the last value.
#
# ## An optimizer before the move
# An optimizer holds references to the parameters it was given. CUDA moves a parameter's data and keeps the object; XLA
# and our stand-ins put a new object in its place. PyTorch has a switch for either, so we can try both on any device.

# %%
from helpers import state


def moved_to_device(model: nn.Module, keep: bool) -> nn.Module:
    future = torch.__future__
    with state.guard():  # puts the first switch back
        future.set_swap_module_params_on_conversion(keep and second.stand_in)
        future.set_overwrite_module_params_on_conversion(not keep)
        model.to(there)
    future.set_overwrite_module_params_on_conversion(False)
    return model


options = ["it trains", "an error", "nothing changes, no error"]
guess = predict("optimizer-first", "Parameters are replaced after the optimizer was made. A step then?", options)

# %%
outcome = {}
for keep in (False, True):
    torch.manual_seed(0)
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    moved_to_device(model, keep)
    before = model.weight.detach().cpu().clone()
    F.cross_entropy(model(x), labels.to(there)).backward()
    optimizer.step()
    outcome[keep] = not torch.equal(before, model.weight.detach().cpu())
    print(f"parameters {'kept' if keep else 'replaced'}: the step changed the weights: {outcome[keep]}")
if second:
    guess.reveal(options[0] if outcome[False] else options[2])

# %% [markdown]
# The optimizer updates tensors that no model uses any more. No error, a flat loss curve. Where parameters are kept the
# same order works, until momentum comes in. Here training resumes from a checkpoint, and then the model moves:

# %% tags=["nbval-ignore-output"]
saved_model = nn.Linear(4, 4)
saved_optimizer = torch.optim.SGD(saved_model.parameters(), lr=0.1, momentum=0.9)
saved_model(torch.ones(1, 4)).sum().backward()
saved_optimizer.step()


def resume(move_first: bool):
    model = nn.Linear(4, 4)
    if move_first:
        moved_to_device(model, keep=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model.load_state_dict(saved_model.state_dict())
    optimizer.load_state_dict(saved_optimizer.state_dict())
    moved_to_device(model, keep=True)
    F.cross_entropy(model(x), labels.to(there)).backward()
    optimizer.step()
    return optimizer.state[model.weight]["momentum_buffer"].device


with refused(RuntimeError):
    resume(move_first=False)

# %%
print("moved first, the momentum is on the device:", resume(move_first=True) == there)

# %% [markdown]
# `optimizer.load_state_dict` puts state beside its parameter, where that is *at this moment*. So: make, move, make the
# optimizer, load. This order is right on every device.
#
# ## What professionals still get wrong
# **A leaf that is none.** The gradient goes to the tensor that asked for it, and a move makes another one. **Two names
# of one device** are not equal: compare with a tensor's own device, or compare types. **`assign=True`** orphans an
# optimizer without any move.

# %%
weight = torch.randn(3, requires_grad=True).to(there)
print("a moved tensor is a leaf:", weight.is_leaf)
leaf = torch.randn(3).to(there).requires_grad_()
print("asked after the move:", leaf.is_leaf)
print("'cuda' equals 'cuda:0':", torch.device("cuda") == torch.device("cuda:0"))

model = nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model.load_state_dict({name: value.clone() for name, value in model.state_dict().items()}, assign=True)
held = optimizer.param_groups[0]["params"]
print("after assign=True the optimizer holds the model's weight:", any(p is model.weight for p in held))

# %% [markdown]
# **Two loads from one checkpoint.** `optimizer.load_state_dict` copies only what has to move. On the device where the
# checkpoint lies, training on writes into it, and the second run resumes from another past.

# %%
checkpoint = saved_optimizer.state_dict()
before = checkpoint["state"][0]["momentum_buffer"].clone()
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
optimizer.load_state_dict(checkpoint)
model(torch.ones(1, 4)).sum().backward()
optimizer.step()
print("the checkpoint is as it was:", torch.equal(before, checkpoint["state"][0]["momentum_buffer"]))

# %% [markdown]
# **Meta is no proof.** A model on the `meta` device has shapes and no numbers, a cheap way to see who stayed behind.
# It does not refuse every mixture:

# %%
with state.guard():
    torch.use_deterministic_algorithms(True)  # memory that nobody wrote reads NaN
    product = torch.ones(2, 2) @ torch.ones(2, 2, device="meta")
print(product.device, "all NaN:", bool(product.isnan().all()))

# %% [markdown]
# A CPU tensor came back, of memory that nobody wrote.
#
# ## On a GPU
# Asynchrony needs hardware. A CUDA call returns when the work is queued: a clock read then measures the queue. Copies
# from ordinary memory hold the CPU up; from pinned memory, with `non_blocking=True`, they need not. The comparison is
# timed by the device, the lines below it by the CPU.

# %% tags=["nbval-ignore-output"]
import time

from helpers import compare

if torch.cuda.is_available() and device != "cpu":
    pageable = torch.randn(16 << 20)
    pinned = pageable.pin_memory()
    copies = {
        "pageable": lambda: pageable.to("cuda"),
        "pinned": lambda: pinned.to("cuda"),
        "pinned, non_blocking": lambda: pinned.to("cuda", non_blocking=True),
    }
    compare(copies, device="cuda").show()
    for name, copy in copies.items():
        torch.cuda.synchronize()
        start = time.perf_counter()
        copy()
        held_up = time.perf_counter() - start
        torch.cuda.synchronize()
        print(f"{name}: the CPU was held up for {held_up / (time.perf_counter() - start):.0%} of the copy")
else:
    print("Not testable here: this machine has no CUDA device.")

# %% [markdown]
# In the other direction, `non_blocking=True` is a promise not to look yet. `.cpu()` waits for what it copies: the
# advice to [synchronise](../docs/glossary.md#synchronise) before `.cpu().numpy()` adds a wait and no safety.

# %% tags=["nbval-ignore-output"]
if torch.cuda.is_available() and device != "cpu":
    big = torch.randn(4096, 4096, device="cuda")
    host = torch.zeros(4096, 4096).pin_memory()
    result = big @ big / 64
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(50):
        result = result @ big / 64
    queued = time.perf_counter() - start
    host.copy_(result, non_blocking=True)
    early = host.clone()
    waited = result.cpu()
    torch.cuda.synchronize()
    done = time.perf_counter() - start
    print(f"the clock without synchronize saw {queued / done:.1%} of the time")
    print("non_blocking, read before synchronize, was complete:", torch.equal(early, host))
    print(".cpu(), with no synchronize, was complete:", torch.equal(waited, host))
else:
    print("Not testable here: this machine has no CUDA device.")

# %% [markdown]
# ## Summary
# - `.to()` of a module reaches what is registered, and nothing else; `.to()` of a tensor reaches nothing, it copies.
# - Make, move, make the optimizer, load its state: every other order fails somewhere, often in silence.
# - Count crossings and waits: a number read, or a shape that depends on values, stops the CPU until the device is done.
#
# ## Exercises
# Five exercises wait in `09_exercises.ipynb`, next to your copy of this chapter: a tower that moves whole,
# a step that runs anywhere, a safe way into NumPy, a resume on another device, and a detector of what stays behind.
#
# ## Sources
# - `nn.Module.to` and `register_buffer`: <https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html>
# - `torch.Tensor.numpy`: <https://docs.pytorch.org/docs/stable/generated/torch.Tensor.numpy.html>
# - CUDA semantics, asynchronous execution and pinned memory:
#   <https://docs.pytorch.org/docs/stable/notes/cuda.html>
# - Meta device: <https://docs.pytorch.org/docs/stable/meta.html>
# - Reports behind this chapter: [pytorch#15005](https://github.com/pytorch/pytorch/issues/15005) and
#   [pytorch#131861](https://github.com/pytorch/pytorch/issues/131861) (lists of layers),
#   [pytorch/audio#457](https://github.com/pytorch/audio/pull/457) and
#   [torchgeo#3232](https://github.com/torchgeo/torchgeo/pull/3232) (tensors that are no buffers),
#   [unit8co/darts#3052](https://github.com/unit8co/darts/issues/3052) (`_apply` overridden),
#   [microsoft/Cream#2](https://github.com/microsoft/Cream/issues/2) and
#   [rasbt/LLMs-from-scratch#232](https://github.com/rasbt/LLMs-from-scratch/issues/232) (resume with state left
#   behind).

# %% tags=["nbval-ignore-output"]
from helpers import wrap_up

wrap_up()
