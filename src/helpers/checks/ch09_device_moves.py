"""Checks of chapter 9: what moves with a model, what stays behind, and what crosses back.

Probes ask for the second device themselves, because they may run in another process. Where there is none, the
checks that need one are made as far as they go, and then say that they are not testable here. Checkpoints
cross the border as CPU tensors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._pytree import tree_map_only

from ..devices import STAND_INS, second_device, transfers
from ..exercise.contract import ANYTHING, Case, Contract, Draw, Fact, Where
from ..exercise.declare import NotTestable, load_exercises
from ..exercise.expect import expect
from ..exercise.sessions import Session
from ..exercise.wire import LearnerError

TOWER, STEP, NUMPY, RESUME, HIDDEN = load_exercises(__file__)

CPU, SECOND = "the CPU", "the second device"
MISMATCH = "same device|at least two devices|should be the same|lazy tensor|INTERNAL ASSERT"
NO_HARDWARE = r"(?i:cuda|nvidia|\bmps\b|\bxpu\b|\bhip\b)"


def raising(text: str, kind: str = "RuntimeError") -> str:
    """The pattern of an error whose class and text have these patterns."""
    return f"(?s){kind} .*({text})"


def run_where(learner) -> dict:
    """Say what the second device is where the learner's code runs; starts a stand-in."""
    second = second_device()
    return {"kind": second.kind, "reason": second.reason}


def second_kind(draw: Draw, needed: bool = False) -> str:
    """The kind of the second device; not testable where it is needed and there is none.

    To be asked before any backward pass, for after one `toy` can no longer be started.
    """
    found = draw.session.probe(run_where) if draw.session else run_where(None)
    if needed and found["kind"] == "none":
        raise NotTestable(f"there is no second device ({found['reason']})")
    return found["kind"]


def need_second_device(session: Session, rng: torch.Generator) -> None:
    """The end of a rung that needs a second device, after all that the CPU shows."""
    second_kind(Draw(rng, session), needed=True)


def device_of(place: str) -> torch.device:
    """The device of a place, in the process that runs the learner's code."""
    return second_device().device if place == SECOND else torch.device("cpu")


def slack(kind: str, place: str) -> dict[str, float]:
    """Tolerances against the CPU, where they are not the contract's: hardware computes in its own order."""
    return {} if place == CPU or kind in STAND_INS else {"rtol": 2e-3, "atol": 1e-4}


ALL_AND_NO_MORE = {"missing": [], "too many": []}


def difference(came: Iterable[str], right: Iterable[str]) -> dict[str, list[str]]:
    """The right names that did not come, and the others that came."""
    came, right = set(came), set(right)
    return {"missing": sorted(right - came), "too many": sorted(came - right)}


def misses(part: str = "") -> Where:
    """A belief that leaves out names with this part."""
    return Where(lambda names: any(part in name for name in names["missing"]))


# 9.1 Tower

WIDTH = 6


def tower_shapes(width: int, depth: int) -> dict[str, tuple[int, ...]]:
    """The stated keys of a tower's state_dict, with their shapes."""
    rows = {**{f"blocks.{i}.0": width for i in range(depth)}, "heads.a": 3, "heads.b": 2}
    weights = {f"{layer}.weight": (count, width) for layer, count in rows.items()}
    return {"scale": (width,), **weights, **{f"{layer}.bias": (count,) for layer, count in rows.items()}}


def run_registered(learner, width: int, depth: int) -> dict:
    """Make a tower and use it; report its keys before and after, what is overridden, and what the scale is."""
    tower = learner.Tower(width, depth)
    if not isinstance(tower, nn.Module):
        raise LearnerError("type", "Tower should be an nn.Module")
    keys = {**tower.state_dict()}
    with torch.no_grad():
        for head in ("a", "b"):
            tower(torch.randn(2, 5, width), head)
    methods = ("to", "cuda", "_apply", "half", "float", "train", "eval", "state_dict", "parameters")
    overridden = [method for method in methods if getattr(type(tower), method) is not getattr(nn.Module, method)]
    scale = "a parameter" if "scale" in dict(tower.named_parameters()) else "a buffer"
    if "scale" not in keys:
        scale = "a buffer that is not saved" if "scale" in dict(tower.named_buffers()) else "not registered"
    return {
        "overridden": overridden,
        "before": [*keys],
        "after": [*tower.state_dict()],
        "scale": scale,
        "value": keys["scale"].detach().clone() if "scale" in keys else None,
    }


def read_registered(report: dict, width: int, depth: int) -> dict:
    """Which keys differ from the stated ones; what is overridden matters where some are missing."""
    wanted = {*tower_shapes(width, depth)} - {"scale"}
    before, after = (difference({*report[moment]} - {"scale"}, wanted) for moment in ("before", "after"))
    overridden = report["overridden"] if before["missing"] or after["missing"] else []
    return report | {"before": before, "after": after, "overridden": overridden}


BROKEN_KEYS = {
    "other-keys": Where(lambda keys: keys["missing"] and any("mask" not in key for key in keys["too many"])),
    "list-not-registered": misses("blocks"),
    "dict-not-registered": misses("heads"),
    "mask-in-state-dict": Where(lambda keys: "mask" in keys["too many"]),
}


def new_tower(draw: Draw) -> Case:
    width, depth = 2 * draw(2, 5), draw(2, 4)
    return Case(f"Tower({width}, {depth})", width, depth)


def depth_of(state: dict[str, torch.Tensor]) -> int:
    return sum(key.startswith("blocks") for key in state) // 2


def tower_output(state: dict[str, torch.Tensor], x: torch.Tensor, head: str) -> torch.Tensor:
    """What a tower with this state gives in eval mode, computed without a module."""
    for i in range(depth_of(state)):
        x = torch.relu(F.linear(x, state[f"blocks.{i}.0.weight"], state[f"blocks.{i}.0.bias"]))
    return F.linear((x * state["scale"]).cumsum(1), state[f"heads.{head}.weight"], state[f"heads.{head}.bias"])


@torch.no_grad()
def run_tower(learner, state: dict, steps: list) -> dict:
    """Take a tower through moves inside a parent and use it after each; report outputs and what did not follow.

    A step is a move (a method of the parent, or `SECOND`), an input and a head.
    """
    tower, norm = learner.Tower(WIDTH, depth_of(state)), nn.LayerNorm(4)
    tower.load_state_dict(state)
    parent, report, strays = nn.ModuleDict({"tower": tower, "norm": norm}).eval(), {}, []
    for number, (move, x, head) in enumerate(steps):
        if move == SECOND:
            parent.to(device_of(move))
        else:
            getattr(parent, move)()
        like = norm.weight
        output = parent["tower"](x.to(like), head)
        if not isinstance(output, torch.Tensor):
            raise LearnerError("type", "forward() should give a tensor")
        found = {**parent.state_dict(), "the output": output}
        strays += [f"{name} on {value.device}" for name, value in found.items() if value.device != like.device]
        strays += [f"{name} in {value.dtype}" for name, value in found.items() if value.dtype != like.dtype]
        strays += [f"{name}.training" for name, module in parent.named_modules() if module.training != parent.training]
        report[f"output {number}"] = output.cpu().float()
    return {**report, "strays": strays}


STRAYS = Fact(
    "strays",
    [],
    {"mask-keeps-dtype": Where(lambda came: any(" in torch." in stray for stray in came))},
    "Something did not follow the parent.",
    expected="everything as the parent is",
)


def tower_case(draw: Draw, on: str, *steps: tuple[str, int, str], **tolerance: float) -> Case:
    """Steps of a move, a length and a head; what comes in training mode is random and not compared."""
    depth = draw(2, 4)
    state = {key: draw.randn(*shape) / WIDTH**0.5 for key, shape in tower_shapes(WIDTH, depth).items()}
    state["scale"] = state["scale"].abs() + 0.5
    script = [(move, draw.randn(2, length, WIDTH), head) for move, length, head in steps]
    outputs = [
        Fact(f"output {i}", tower_output(state, x, head), None, f"The output of use {i + 1} is wrong.", **tolerance)
        for i, (move, x, head) in enumerate(script)
        if move != "train"
    ]
    return Case(f"Tower({WIDTH}, {depth}) {on}", state, script, facts=[STRAYS, *outputs])


def three_lengths(draw: Draw) -> Case:
    lengths, heads = [5, 3, draw(6, 9)], ["a", "b", "a"]
    steps = [("eval", length, head) for length, head in zip(lengths, heads, strict=True)]
    return tower_case(draw, f"in eval mode, lengths {lengths} in this order, heads {heads}", *steps)


def moved_tower(draw: Draw) -> Case:
    tolerance = slack(second_kind(draw, needed=True), SECOND)
    return tower_case(draw, f"in a parent that moved to {SECOND}", (SECOND, 5, "a"), **tolerance)


def used_and_moved_tower(draw: Draw) -> Case:
    tolerance, steps = (
        slack(second_kind(draw, needed=True), SECOND),
        [(move, 5, "a") for move in ("cpu", SECOND, "cpu")],
    )
    return tower_case(
        draw, f"in a parent that ran on the CPU and then moved to {SECOND}, and back", *steps, **tolerance
    )


def converted_tower(draw: Draw) -> Case:
    steps = [(move, 5, "b") for move in ("train", "eval", "half", "half", "double")]
    on = "in a parent that ran in float32, after half(), then after double()"
    return tower_case(draw, on, *steps, rtol=5e-2, atol=5e-2)


Contract(TOWER, ask=run_registered, read=read_registered).facts(
    "registers what was stated, before and after a forward pass",
    new_tower,
    Fact("overridden", [], "overridden-instead-of-registered", expected="no method overridden"),
    Fact("before", ALL_AND_NO_MORE, {**BROKEN_KEYS, "other-keys/more": ANYTHING}, expected="the stated keys"),
    Fact("after", ALL_AND_NO_MORE, {**BROKEN_KEYS, "mask-in-state-dict": ANYTHING}, expected="the stated keys"),
    Fact(
        "scale",
        "a buffer",
        {
            "scale-is-parameter": "a parameter",
            "scale-not-saved": "a buffer that is not saved",
            "scale-not-registered": "not registered",
        },
    ),
    Fact("value", lambda width, depth: torch.full((width,), 0.5), message="The scale of a new tower is wrong."),
)
moving = Contract(TOWER, ask=run_tower, rtol=1e-4, atol=1e-5)
MOVES_WHOLE = "moves whole inside a parent, there and back"
for rung, case, pattern, belief in (
    ("computes what the broken tower computed, at every length", three_lengths, "size", "mask-of-one-length"),
    (MOVES_WHOLE, moved_tower, MISMATCH, "mask-made-on-the-cpu"),
    (MOVES_WHOLE, used_and_moved_tower, MISMATCH, "mask-left-behind"),
    ("is reached by half(), double() and eval()", converted_tower, "dtype|scalar type", "mask-keeps-dtype"),
):
    moving.facts(rung, case, errors={raising(pattern): belief})


# 9.2 train_step

OPTIMIZERS: dict[str, Callable] = {
    "SGD": lambda parameters, lr=0.2: torch.optim.SGD(parameters, lr=lr, momentum=0.9),
    "Adam": lambda parameters, lr=0.05: torch.optim.Adam(parameters, lr=lr),
}
STEPS = 5

# What had happened when an operation met tensors on two devices; it is added to the error's text.
NOT_MOVED = {
    "labels-left-behind": "the input was on the model's device",
    "result-of-to-dropped": "a copy was made, and the input was still on the CPU",
    "batch-left-behind": "nothing was copied to the model's device",
}


class Spied(nn.Module):
    """A classifier that notes where its input lies."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)
        self.seen: list[torch.device] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(x.device)
        return self.second(torch.tanh(self.first(x)))


def make_training(seed: int, optimizer_name: str, device: torch.device | str = "cpu", **settings: float) -> tuple:
    """A model on a device, its optimizer, and a list of batches on the CPU."""
    torch.manual_seed(seed)
    model = Spied().to(device)
    batches = [(torch.randn(7, 6), torch.randint(3, (7,))) for _ in range(6)]
    return model, OPTIMIZERS[optimizer_name](model.parameters(), **settings), batches


@torch.enable_grad()
def train(model: nn.Module, optimizer: torch.optim.Optimizer, batches: list, mistake: str = "") -> torch.Tensor:
    """The losses of training, of the right step or of one with a known mistake."""
    losses, device = [], next(model.parameters()).device
    for x, labels in batches:
        x, labels = x.to(device), labels.to(device)
        if mistake != "gradients-accumulate":
            optimizer.zero_grad()
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        if mistake != "weights-do-not-change":
            optimizer.step()
        if mistake == "loss-after-update":
            loss = F.cross_entropy(model(x), labels)
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64)


def true_losses(seed: int, optimizer_name: str, place: str, mistake: str = "") -> torch.Tensor:
    model, optimizer, batches = make_training(seed, optimizer_name)
    return train(model, optimizer, batches[:STEPS], mistake)


def run_steps(learner, seed: int, optimizer_name: str, place: str) -> dict:
    """Train a model at a place; report losses, their type and what crossed, and add to an error what had moved."""
    device = device_of(place)
    model, optimizer, batches = make_training(seed, optimizer_name, device)
    losses, syncs, copied = [], [], 0
    caught: list[Exception] = []

    def step(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
        try:
            losses.append(learner.train_step(model, batch, optimizer))
        except RuntimeError as error:
            caught.append(error)

    for batch in batches[:STEPS]:
        counts = transfers(partial(step, batch))
        syncs, copied = [*syncs, counts.syncs], max(copied, counts.to_device)
        for error in caught:
            if place == SECOND and re.search(MISMATCH, str(error)):
                behind = "result-of-to-dropped" if copied else "batch-left-behind"
                behind = "labels-left-behind" if model.seen and model.seen[-1] == device else behind
                error.args = (f"{NOT_MOVED[behind]}: {error}",)
            raise error
    after = next(model.parameters()).device
    return {
        "model on": place if after == device else str(after),
        "types": sorted({type(loss).__name__ for loss in losses if not isinstance(loss, float)}),
        "losses": torch.tensor([loss for loss in losses if isinstance(loss, float)], dtype=torch.float64),
        "syncs": syncs,
    }


LOSSES = Fact(
    "losses",
    true_losses,
    {
        mistake: partial(true_losses, mistake=mistake)
        for mistake in ("gradients-accumulate", "weights-do-not-change", "loss-after-update")
    },
    "The losses are not those of training on the CPU.",
)
STAYS_AND_GIVES_FLOATS = (
    Fact("model on", lambda seed, name, place: place, "model-moved"),
    Fact("types", [], "not-a-float", expected="float"),
)


def trainings(draw: Draw, place: str) -> Iterator[Case]:
    losses = replace(LOSSES, **slack(second_kind(draw, needed=place == SECOND), place))
    for optimizer in OPTIMIZERS:
        yield Case(f"a model on {place}, {optimizer}, {STEPS} steps", draw.seed(), optimizer, place, facts=[losses])


step = Contract(STEP, ask=run_steps, errors={raising(NO_HARDWARE, "(Runtime|Assertion)Error"): "hard-coded-device"})
step.facts(
    "trains on the CPU",
    partial(trainings, place=CPU),
    *STAYS_AND_GIVES_FLOATS,
    errors={raising(MISMATCH): "hard-coded-device"},
)
step.facts(
    "trains on the second device, with the same losses",
    partial(trainings, place=SECOND),
    *STAYS_AND_GIVES_FLOATS,
    errors={text: belief for belief, text in NOT_MOVED.items()},
)
step.facts(
    "waits for the device once a step at most",
    partial(trainings, place=SECOND),
    Fact("syncs", Where(lambda came: max(came) <= 1), "too-many-syncs", expected="1 or 0 in each step"),
)


# 9.3 to_numpy


def make_tensor(kind: str, seed: int) -> torch.Tensor:
    """The CPU tensor of a case, made from a seed."""
    x, y = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(seed))
    made = {
        "float32": x,
        "transposed": x.t(),
        "float64": x.double(),
        "float16": x.half(),
        "int64": (100 * x).long(),
        "uint8": (20 * x).abs().to(torch.uint8),
        "bool": x > 0,
        "zero-dim": x[0, 0].clone(),
        "leaf": x.clone().requires_grad_(),
        "result": x.clone().requires_grad_() * 2,
        "bfloat16": x.bfloat16(),
        "bfloat16 leaf": x.bfloat16().requires_grad_(),
        "conj": torch.complex(x, y).conj(),
        "neg": torch.complex(x, y).conj().imag,
    }
    return made[kind]


def run_to_numpy(learner, kind: str, seed: int, place: str) -> dict:
    """Convert one tensor; report what came, and what a later change of the tensor does to it."""
    tensor = make_tensor(kind, seed)
    if place == SECOND:
        needs_grad, leaf = tensor.requires_grad, tensor.is_leaf
        tensor = tensor.detach().to(device_of(place)).requires_grad_(needs_grad)
        tensor = tensor if leaf else tensor * 1
    before = {name: getattr(tensor, name) for name in ("requires_grad", "dtype", "device")}
    came = learner.to_numpy(tensor)
    array = came if isinstance(came, np.ndarray) else np.zeros(0)
    values = np.array(array)
    changed = [name for name, value in before.items() if getattr(tensor, name) != value]
    if place == CPU and not changed and not torch.equal(tensor.detach(), make_tensor(kind, seed).detach()):
        changed = ["values"]
    with torch.no_grad():
        tensor.detach().fill_(1)
    return {
        "class": "a np.ndarray" if array is came else type(came).__name__,
        "dtype": str(array.dtype),
        "shape": array.shape,
        "values": torch.from_numpy(values) if values.dtype.kind in "fciub" else None,
        "changed": changed,
        "later": "an array as it was" if np.array_equal(values, array) else "an array that changed with the tensor",
    }


def true_array(kind: str, seed: int) -> torch.Tensor:
    """The values that NumPy should hold, as a tensor."""
    x = make_tensor(kind, seed).detach().resolve_conj().resolve_neg()
    return x.float() if x.dtype == torch.bfloat16 else x


def tensor_case(draw: Draw, kind: str, place: str) -> Case:
    """A tensor of one kind, with what must come of it."""
    seed = draw.seed()
    true, zero_dim = true_array(kind, seed), "zero-dim-lost" if kind == "zero-dim" else None
    other_dtype = "bfloat16-not-float32" if kind.startswith("bfloat16") else "dtype-changed"
    other_values = {"conj": "conjugate-bit", "neg": "negative-bit"}.get(kind)
    facts = (
        Fact("class", "a np.ndarray", zero_dim),
        Fact("dtype", str(true.dtype).removeprefix("torch."), other_dtype),
        Fact("shape", tuple(true.shape), zero_dim, "The shape is wrong."),
        Fact("values", true, other_values, "The values are not the tensor's.", rtol=0, atol=0),
        Fact("changed", [], "tensor-changed", expected="a tensor with nothing changed"),
    )
    return Case(f"a tensor on {place} ({kind})", kind, seed, place, facts=facts)


def tensors(*kinds: str, second: Iterable[str] = ()) -> Callable[[Draw], Iterator[Case]]:
    """Cases of these kinds on the CPU, and of others on the second device.

    Those on the second device are needed where they are all there is; else they ask for a device that knows every
    dtype and every view.
    """

    def cases(draw: Draw) -> Iterator[Case]:
        yield from (tensor_case(draw, kind, CPU) for kind in kinds)
        device = second_kind(draw, needed=not kinds)
        if not kinds or device in ("cuda", "toy"):
            yield from (tensor_case(draw, kind, SECOND) for kind in second)

    return cases


converted = Contract(
    NUMPY,
    ask=run_to_numpy,
    errors={
        "requires grad": "still-requires-grad",
        "device type": "stays-on-the-device",
        "ScalarType|BFloat16": "bfloat16-unknown",
        "conj": "conjugate-bit",
        "negative": "negative-bit",
    },
)
converted.facts(
    "keeps shape, values and dtype, of a zero-dim tensor too",
    tensors("float32", "transposed", "float64", "float16", "int64", "uint8", "bool", "zero-dim"),
)
converted.facts("takes tensors that require grad, and leaves them as they are", tensors("leaf", "result"))
converted.facts(
    "takes tensors from the second device", tensors(second=("float32", "leaf", "result", "int64", "zero-dim"))
)
converted.facts("gives bfloat16 as float32", tensors("bfloat16", "bfloat16 leaf", second=["bfloat16 leaf"]))
converted.facts("resolves conjugated and negated views", tensors("conj", "neg", second=("conj", "neg")))
converted.facts(
    "gives the array memory of its own",
    tensors("float32", "transposed", "leaf", "bfloat16", "conj", "neg", "zero-dim"),
    Fact("later", "an array as it was", "aliases-the-tensor"),
)


# 9.4 resume

CHECKPOINT_LR = {"SGD": 0.03, "Adam": 0.007}


def interrupted(seed: int, optimizer_name: str) -> tuple:
    """A model, its optimizer and the batches, after training on three of them on the CPU."""
    model, optimizer, batches = make_training(seed, optimizer_name, lr=CHECKPOINT_LR[optimizer_name])
    train(model, optimizer, batches[:3])
    return model, optimizer, batches


def run_resume(learner, seed: int, optimizer_name: str, source: str, place: str, replaces: bool) -> dict:
    """Resume from a checkpoint saved at `source`, at `place`, where a move replaces the parameters or keeps them."""
    home, device, future = device_of(source), device_of(place), torch.__future__
    model, optimizer, batches = interrupted(seed, optimizer_name)
    checkpoint = tree_map_only(  # an optimizer's zero-dim steps stay on the CPU
        torch.Tensor,
        lambda tensor: tensor.detach().clone().to(home if tensor.dim() else "cpu"),
        {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
    )
    overwrite, swap = future.get_overwrite_module_params_on_conversion(), future.get_swap_module_params_on_conversion()
    try:
        future.set_overwrite_module_params_on_conversion(replaces)
        future.set_swap_module_params_on_conversion(not replaces and second_device().stand_in)
        pair = learner.resume(Spied, OPTIMIZERS[optimizer_name], checkpoint, device)
    finally:
        future.set_overwrite_module_params_on_conversion(overwrite)
        future.set_swap_module_params_on_conversion(swap)
    match pair:
        case [nn.Module() as model, torch.optim.Optimizer() as optimizer]:
            return inspect_resumed(model, optimizer, device, batches)
    raise TypeError(f"{type(pair).__name__} is no pair")


def inspect_resumed(model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device, batches: list) -> dict:
    """Report where a resumed pair's tensors are, whose they are, and how training goes on."""
    behind = [
        f"{name} on {value.device} of a parameter on {parameter.device}"
        for parameter, state in optimizer.state.items()
        for name, value in state.items()
        if isinstance(value, torch.Tensor) and value.dim() and value.device != parameter.device
    ]
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    report = dict.fromkeys(("output", "losses", "weights", "error"), "")
    report |= {
        "elsewhere": [name for name, parameter in model.named_parameters() if parameter.device != device],
        "state": "that of some parameters" if any(optimizer.state.values()) else "none",
        "lr": float(optimizer.param_groups[0]["lr"]),
        "holds": "the model's parameters" if held == {id(p) for p in model.parameters()} else "other tensors",
        "behind": behind[:2],
    }
    if report["elsewhere"]:
        return report
    with torch.no_grad():
        report["output"] = model(batches[0][0].to(device)).cpu()
    before = [p.detach().cpu().clone() for p in model.parameters()]
    try:
        report["losses"] = train(model, optimizer, batches[3:])
    except RuntimeError as error:
        report["error"] = "; ".join([*behind[:1], f"{type(error).__name__}: {error}"])
    kept = [torch.equal(p.detach().cpu(), old) for p, old in zip(model.parameters(), before, strict=True)]
    return {**report, "weights": "as before" if any(kept) else "changed"}


def saved_output(seed: int, optimizer_name: str, *_: object) -> torch.Tensor:
    model, _, batches = interrupted(seed, optimizer_name)
    return model(batches[0][0]).detach()


def unbroken_losses(seed: int, optimizer_name: str, *_: object) -> torch.Tensor:
    return train(*make_training(seed, optimizer_name, lr=CHECKPOINT_LR[optimizer_name]))[3:]


def resumptions(draw: Draw, optimizers: Iterable[str] = OPTIMIZERS, fact: Fact | None = None) -> Iterator[Case]:
    """Cases at every place there is, after both kinds of moves; the fact is judged as the place computes."""
    kind = second_kind(draw)
    places = (CPU,) if kind == "none" else (SECOND, CPU)
    ways = [(CPU, place, replaces) for replaces in (True, False) for place in places]
    if kind not in ("none", "lazy"):  # on `lazy`, tensors cannot be copied into a module on the CPU
        ways.append((SECOND, CPU, False))
    for name in optimizers:
        for source, place, replaces in ways:
            moves = f"where a move {'replaces' if replaces else 'keeps'} parameters"
            on = f"a checkpoint on {source}, resumed on {place}, {moves}; {name}"
            facts = [replace(fact, **slack(kind, place))] if fact else []
            yield Case(on, draw.seed(), name, source, place, replaces, facts=facts)


OUTPUT = Fact("output", saved_output, "weights-not-loaded")
UNBROKEN = Fact("losses", unbroken_losses, message="The losses are not those of unbroken training.")
BEHIND = Where(lambda came: "of a parameter on" in came)

resume = Contract(RESUME, ask=run_resume, errors={"is no pair": "no-pair", NO_HARDWARE: "hard-coded-device"})
resume.facts(
    "gives the checkpoint's model, on the device",
    partial(resumptions, optimizers=["SGD"], fact=OUTPUT),
    Fact("elsewhere", [], "model-not-on-the-device", expected="no parameter elsewhere"),
)
RESUME.check("gives the checkpoint's model, on the device")(need_second_device)
resume.facts(
    "gives an optimizer of this model: its next step changes the weights",
    resumptions,
    Fact("holds", "the model's parameters", "optimizer-orphaned"),
    Fact("error", "", {"state-left-behind": BEHIND}, "Training on raised an error."),
    Fact("weights", "changed", "optimizer-orphaned"),
)
resume.facts(
    "puts the optimizer's state beside its parameters",
    resumptions,
    Fact("behind", [], "state-left-behind", expected="no state elsewhere"),
)
RESUME.check("puts the optimizer's state beside its parameters")(need_second_device)
resume.facts(
    "goes on as if training had never stopped",
    partial(resumptions, fact=UNBROKEN),
    Fact("state", "that of some parameters", "state-forgotten"),
    Fact("lr", lambda seed, name, *_: CHECKPOINT_LR[name], "learning-rate-forgotten", rtol=0, atol=1e-9),
)


# 9.5 hidden_tensors

CORRECT: dict[str, Callable[[], nn.Module]] = {
    "a recurrent net": lambda: nn.Sequential(nn.LSTM(4, 3, num_layers=2), nn.GRU(3, 2)),
    "a transformer": lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2, enable_nested_tensor=False),
    "batch norm and a parametrized layer": lambda: nn.Sequential(
        nn.BatchNorm1d(4), nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
    ),
    "lists and dicts of torch.nn": lambda: nn.ModuleDict(
        {"a": nn.ModuleList([nn.Linear(2, 2)]), "b": nn.ParameterList([torch.zeros(2)])}
    ),
}


def hiding_module(kind: str, seed: int) -> tuple[nn.Module, list[str]]:
    """A module that hides something, and the names of what it hides; a correct one hides nothing."""
    if kind in CORRECT:
        return CORRECT[kind](), []
    draw = Draw(torch.Generator().manual_seed(seed))
    count, deep, key = draw(2, 4), draw(1, 3), draw.choice("abcdefgh")
    root, encoder, core, hidden = nn.Module(), nn.Module(), nn.Module(), []
    root.encoder, encoder.core, root.head = encoder, core, nn.Linear(3, 3)
    root.register_buffer("known", torch.ones(1))
    if kind == "tensors in attributes":
        root.scale, root._secret = torch.zeros(3), torch.zeros(2)
        encoder.table, core._cache = torch.zeros(4), torch.zeros(1)
        hidden = ["scale", "_secret", "encoder.table", "encoder.core._cache"]
    elif kind == "tensors in containers":
        core.rows, encoder.pair = [torch.zeros(2) for _ in range(count)], (1, torch.zeros(1))
        root.named = {key: torch.zeros(2), "text": "no tensor"}
        hidden = [*(f"encoder.core.rows.{i}" for i in range(count)), "encoder.pair.1", f"named.{key}"]
    elif kind == "a tensor in nested containers":
        inner: object = torch.zeros(2)
        for _ in range(deep):
            inner = {"levels": [(inner,)]}
        root.config = [None, inner]
        hidden = ["config.1" + deep * ".levels.0.0"]
    elif kind == "modules in containers and behind a private name":
        root.blocks = [nn.Linear(2, 2) for _ in range(count)]
        encoder.heads = {key: nn.Linear(2, 2)}
        encoder.__dict__["_teacher"] = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        hidden = [*(f"blocks.{i}" for i in range(count)), f"encoder.heads.{key}", "encoder._teacher"]
    elif kind == "second references to what is registered":
        root.order = [root.head, encoder, root]
        root.weights = {"head": root.head.weight, "known": [root.known]}
        core.up = (root,)
        root.rnn = nn.LSTM(3, 3)
    elif kind == "a shared dict, a list that contains itself":
        ring: list = [torch.zeros(2)]
        ring.append(ring)
        root.first = core.again = {key: torch.zeros(1), "ring": ring}
        hidden = [f"first.{key}", "first.ring.0"]
    elif kind == "copies with the numbers of registered tensors":
        root.copies = [root.known.clone(), root.head.weight.detach().clone(), root.head.bias.detach().clone()]
        encoder.one = torch.ones(1)
        hidden = ["copies.0", "copies.1", "copies.2", "encoder.one"]
    return root, hidden


def run_hidden(learner, kind: str, seed: int) -> object:
    """Search one of our modules."""
    return learner.hidden_tensors(hiding_module(kind, seed)[0])


def read_hidden(came: object, kind: str, seed: int) -> dict[str, dict]:
    """How the names differ; a hidden module's contents count as the module, and a shared dict has one name."""
    good = isinstance(came, (list, tuple)) and all(isinstance(name, str) for name in came)
    expect(good, message="A list of names is expected.", came=came)
    _, hidden = hiding_module(kind, seed)
    modules = hidden if kind.startswith("modules") else []
    names = [next((module for module in modules if name.startswith(f"{module}.")), name) for name in came]
    return {"names": difference([name.replace("encoder.core.again.", "first.") for name in names], hidden)}


def respelt(name: str) -> str:
    """A name with brackets, `self.` or `_modules.`, as it is asked for."""
    return re.sub(r"\[['\"]?(\w+)['\"]?\]", r".\1", name.removeprefix("self.").replace("_modules.", ""))


def renamed(names: dict[str, list[str]]) -> bool:
    return bool(names["missing"]) and {*names["missing"]} <= {*map(respelt, names["too many"])}


def containers_named(names: dict[str, list[str]]) -> bool:
    return any(name.rpartition(".")[0] in names["too many"] for name in names["missing"])


# What a name that is missing tells, in modules of some kinds.
MISSING = {
    "tensors in attributes": {
        "attributes-missed": misses("scale"),
        "children-not-searched": misses("table"),
        "private-skipped": misses("_"),
    },
    "tensors in containers": {"containers-not-opened/items": misses()},
    "a tensor in nested containers": {"not-deep-enough": misses()},
    "modules in containers and behind a private name": {"modules-missed": misses()},
    "copies with the numbers of registered tensors": {"compared-by-value": misses()},
}


def hiding(draw: Draw, kinds: list[str]) -> Iterator[Case]:
    for kind in kinds:
        beliefs = {
            "other-names": Where(renamed),
            "containers-not-opened": Where(containers_named),
            **MISSING.get(kind, {"/missing for another reason": misses()}),
            "registered-listed": ANYTHING,
        }
        yield Case(
            kind, kind, draw.seed(), facts=[Fact("names", ALL_AND_NO_MORE, beliefs, expected="all that is hidden")]
        )


searched = Contract(
    HIDDEN,
    ask=run_hidden,
    read=read_hidden,
    errors={
        "RecursionError|^time:": "endless",
        raising("Boolean value|size of tensor|truth value"): "compared-by-value",
    },
)
for rung, kinds in {
    "finds tensors in plain attributes, of submodules too": ["tensors in attributes"],
    "looks into lists, tuples and dicts, however deep": ["tensors in containers", "a tensor in nested containers"],
    "finds hidden modules": ["modules in containers and behind a private name"],
    "ends where containers are shared or contain themselves": ["a shared dict, a list that contains itself"],
    "tells the same object from an equal one": [
        "second references to what is registered",
        "copies with the numbers of registered tensors",
    ],
    "reports nothing for correct modules": [*CORRECT],
}.items():
    searched.facts(rung, partial(hiding, kinds=kinds))
