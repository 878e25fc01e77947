"""Checks of chapter 9: what moves with a model, what stays behind, and what crosses back.

Probes ask for the second device themselves, because they may run in another process. Where there is none, the
checks that need one are made as far as they go, and then say that they are not testable here. Checkpoints
cross the border as CPU tensors.
"""

from __future__ import annotations

import copy
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
from ..exercise.values import same
from ..exercise.wire import LearnerError

TOWER, STEP, NUMPY, RESUME, HIDDEN = load_exercises(__file__)

CPU, SECOND = "the CPU", "the second device"
MISMATCH = "(?s)RuntimeError .*(same device|at least two devices|should be the same|lazy tensor|INTERNAL ASSERT)"
NO_HARDWARE = r"(?s)(Runtime|Assertion)Error .*(?i:cuda|nvidia|\bmps\b|\bxpu\b|\bhip\b)"


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


def slack(draw: Draw, place: str) -> dict[str, float]:
    """Tolerances at a place that is there, if not the contract's: hardware computes in an order of its own."""
    kind = second_kind(draw, needed=place == SECOND)
    return {} if place == CPU or kind in STAND_INS else {"rtol": 2e-3, "atol": 1e-4}


def device_of(place: str) -> torch.device:
    """The device of a place, in the process that runs the learner's code."""
    return second_device().device if place == SECOND else torch.device("cpu")


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
    """Make a tower and use it; report its keys before and after, the methods it overrides, and its scale."""
    tower = learner.Tower(width, depth)
    if not isinstance(tower, nn.Module):
        raise LearnerError("type", "Tower should be an nn.Module")
    before = copy.deepcopy(tower.state_dict())
    methods = ("to", "cuda", "_apply", "half", "float", "train", "eval", "state_dict", "parameters")
    registries = ("_parameters", "_buffers", "_non_persistent_buffers_set")
    with torch.no_grad():
        for head in ("a", "b"):
            tower(torch.randn(2, 5, width), head)
    return {
        "overridden": [name for name in methods if getattr(type(tower), name) is not getattr(nn.Module, name)],
        "before": [*before],
        "after": [*tower.state_dict()],
        "scale in": [name for name in registries if "scale" in vars(tower)[name]],
        "scale": before.get("scale"),
    }


def read_registered(report: dict, *size: int) -> dict:
    """How the keys differ from the stated ones; what is overridden matters where some are missing."""
    keys = tower_shapes(*size)
    before = difference([*report["before"], "scale"], keys)  # the scale has a fact of its own
    overridden = report["overridden"] if before["missing"] else []
    return {**report, "before": before, "after": difference(report["after"], keys), "overridden": overridden}


def new_tower(draw: Draw) -> Case:
    size = 2 * draw(2, 5), draw(2, 4)
    return Case(f"Tower{size}", *size)


Contract(TOWER, ask=run_registered, read=read_registered).facts(
    "registers what was stated, before and after a forward pass",
    new_tower,
    Fact("overridden", [], "overridden-instead-of-registered", expected="no method overridden"),
    Fact(
        "before",
        ALL_AND_NO_MORE,
        {
            "other-keys": Where(lambda keys: keys["missing"] and any("mask" not in key for key in keys["too many"])),
            "list-not-registered": misses("blocks"),
            "dict-not-registered": misses("heads"),
            "mask-in-state-dict": Where(lambda keys: "mask" in keys["too many"]),
            "other-keys/more": ANYTHING,
        },
        expected="the stated keys",
    ),
    Fact(
        "scale in",
        ["_buffers"],
        {
            "scale-is-parameter": ["_parameters"],
            "scale-not-saved": ["_buffers", "_non_persistent_buffers_set"],
            "scale-not-registered": [],
        },
    ),
    Fact("scale", lambda width, depth: torch.full((width,), 0.5), message="The scale of a new tower is wrong."),
    Fact("after", ALL_AND_NO_MORE, "mask-in-state-dict", expected="the stated keys"),
)


@torch.no_grad()
def run_tower(learner, state: dict, depth: int, steps: list) -> dict:
    """Take a tower through moves inside a parent and use it after each; report outputs and what did not follow.

    A step is a move (a method of the parent, or `SECOND`), an input and a head. In training mode outputs are random.
    """
    tower, norm, outputs, strays = learner.Tower(WIDTH, depth), nn.LayerNorm(4), [], []
    tower.load_state_dict(state)
    parent = nn.ModuleDict({"tower": tower, "norm": norm}).eval()
    for move, x, head in steps:
        parent.to(device_of(move)) if move == SECOND else getattr(parent, move)()
        output = tower(x.to(norm.weight), head)
        if not isinstance(output, torch.Tensor):
            raise LearnerError("type", "forward() should give a tensor")
        for name, value in {**parent.state_dict(), "the output": output}.items():
            strays += [f"{name} on {value.device}"] * (value.device != norm.weight.device)
            strays += [f"{name} in {value.dtype}"] * (value.dtype != norm.weight.dtype)
        strays += [f"{name}.training" for name, module in parent.named_modules() if module.training != parent.training]
        outputs += [] if parent.training else [output.cpu().float()]
    return {"strays": strays, "outputs": outputs}


def tower_output(state: dict[str, torch.Tensor], depth: int, x: torch.Tensor, head: str) -> torch.Tensor:
    """What a tower with this state gives in eval mode, computed without a module."""
    for i in range(depth):
        x = torch.relu(F.linear(x, state[f"blocks.{i}.0.weight"], state[f"blocks.{i}.0.bias"]))
    return F.linear((x * state["scale"]).cumsum(1), state[f"heads.{head}.weight"], state[f"heads.{head}.bias"])


def tower_case(draw: Draw, on: str, steps: Iterable, belief: str, error: str = MISMATCH, **tolerance: float) -> Case:
    """Steps of a move, a length and a head, and the belief that raises an error on the way."""
    depth = draw(2, 4)
    state = {key: draw.randn(*shape) / WIDTH**0.5 for key, shape in tower_shapes(WIDTH, depth).items()}
    state["scale"] = state["scale"].abs() + 0.5
    steps = [(move, draw.randn(2, length, WIDTH), head) for move, length, head in steps]
    outputs = [tower_output(state, depth, *use) for move, *use in steps if move != "train"]
    facts = [Fact("outputs", outputs, message="The outputs, of each use in turn, are wrong.", **tolerance)]
    return Case(f"Tower({WIDTH}, {depth}) {on}", state, depth, steps, facts=facts, errors={error: belief})


def three_lengths(draw: Draw) -> Case:
    steps = [("eval", 5, "a"), ("eval", 3, "b"), ("eval", draw(6, 9), "a")]
    on = f"in eval mode, lengths and heads {[use for _, *use in steps]} in this order"
    return tower_case(draw, on, steps, "mask-of-one-length", "(?s)RuntimeError .*size")


def moved_towers(draw: Draw) -> Iterator[Case]:
    tolerance, to_and_fro = slack(draw, SECOND), [(move, 5, "a") for move in ("cpu", SECOND, "cpu")]
    on = "in a parent that {}moved to the second device".format
    yield tower_case(draw, on(""), to_and_fro[1:2], "mask-made-on-the-cpu", **tolerance)
    yield tower_case(draw, on("ran on the CPU, ") + ", and back", to_and_fro, "mask-left-behind", **tolerance)


def converted_tower(draw: Draw) -> Case:
    steps = [(move, 5, "b") for move in ("train", "eval", "half", "half", "double")]
    on, error = "in a parent that ran in float32, after half(), then double()", "(?s)RuntimeError .*(dtype|scalar type)"
    return tower_case(draw, on, steps, "mask-keeps-dtype", error, rtol=5e-2, atol=5e-2)


moving = Contract(TOWER, ask=run_tower, rtol=1e-4, atol=1e-5)
FOLLOWED = Fact("strays", [], None, "Something did not follow the parent.", expected="everything as the parent is")
CONVERTED = replace(
    FOLLOWED, told={"mask-keeps-dtype": Where(lambda came: any(" in torch." in stray for stray in came))}
)
moving.facts("computes what the broken tower computed, at every length", three_lengths, FOLLOWED)
moving.facts("moves whole inside a parent, there and back", moved_towers, FOLLOWED)
moving.facts("is reached by half(), double() and eval()", converted_tower, CONVERTED)


# 9.2 train_step

OPTIMIZERS: dict[str, Callable] = {
    "SGD": partial(torch.optim.SGD, lr=0.2, momentum=0.9),
    "Adam": partial(torch.optim.Adam, lr=0.05),
}
STEPS = 5

# What had happened when an operation met tensors on two devices; it is added to the error's text.
NOT_MOVED = {
    "the input was on the model's device": "labels-left-behind",
    "a copy was made, and the model got another tensor": "result-of-to-dropped",
    "nothing was copied to the model's device": "batch-left-behind",
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
    losses, syncs, caught = [], [], []

    def step(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
        try:
            losses.append(learner.train_step(model, batch, optimizer))
        except RuntimeError as error:
            caught.append(error)

    for batch in batches[:STEPS]:
        counts = transfers(partial(step, batch))
        syncs.append(counts.syncs)
        for error in caught:
            if place == SECOND and re.search(MISMATCH, f"RuntimeError {error}"):
                input_moved, copied, nothing = NOT_MOVED
                text = input_moved if model.seen[-1:] == [device] else copied if counts.to_device else nothing
                error.args = (f"{text}: {error}",)
            raise error
    after = next(model.parameters()).device
    return {
        "model on": place if after == device else str(after),
        "types": sorted({type(loss).__name__ for loss in losses if not isinstance(loss, float)}),
        "losses": torch.tensor([loss for loss in losses if isinstance(loss, float)], dtype=torch.float64),
        "syncs": syncs,
    }


def trainings(draw: Draw, place: str) -> Iterator[Case]:
    mistakes = ("gradients-accumulate", "weights-do-not-change", "loss-after-update")
    told = {mistake: partial(true_losses, mistake=mistake) for mistake in mistakes}
    facts = [
        Fact("model on", place, "model-moved"),
        Fact("types", [], "not-a-float", expected="float"),
        Fact("losses", true_losses, told, "The losses are not those of training on the CPU.", **slack(draw, place)),
    ]
    for optimizer in OPTIMIZERS:
        yield Case(f"a model on {place}, {optimizer}, {STEPS} steps", draw.seed(), optimizer, place, facts=facts)


step = Contract(
    STEP, ask=run_steps, errors={**NOT_MOVED, MISMATCH: "hard-coded-device", NO_HARDWARE: "hard-coded-device"}
)
on_cpu, on_second = (partial(trainings, place=place) for place in (CPU, SECOND))
step.facts("trains on the CPU", on_cpu)
step.facts("trains on the second device, with the same losses", on_second)
step.facts(
    "waits for the device once a step at most",
    on_second,
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
    made = make_tensor(kind, seed)
    leaf = made.detach().to(device_of(place)).requires_grad_(made.requires_grad)
    tensor = leaf if made.is_leaf else leaf * 1

    def state() -> list:
        return [tensor.requires_grad, tensor.dtype, str(tensor.device), tensor.detach().cpu().clone()]

    before, came = state(), learner.to_numpy(tensor)
    array = came if isinstance(came, np.ndarray) else np.zeros(0)
    values, kept = np.array(array), same(state(), before, rtol=0, atol=0)
    tensor.detach().fill_(1)
    return {
        "class": "a np.ndarray" if array is came else type(came).__name__,
        "dtype": str(array.dtype),
        "shape": array.shape,
        "values": torch.from_numpy(values) if values.dtype.kind in "fciub" else None,
        "tensor": "as it was" if kept else "changed",
        "array after a change of the tensor": "as it was" if np.array_equal(values, array) else "changed",
    }


def tensor_case(draw: Draw, kind: str, place: str) -> Case:
    """A tensor of one kind, with what must come of it."""
    seed = draw.seed()
    true = make_tensor(kind, seed).detach().resolve_conj().resolve_neg()
    true = true.float() if true.dtype == torch.bfloat16 else true
    zero_dim = "zero-dim-lost" if kind == "zero-dim" else None
    other_values = {"conj": "conjugate-bit", "neg": "negative-bit"}.get(kind)
    other_dtype = "bfloat16-not-float32" if kind.startswith("bfloat16") else "dtype-changed"
    facts = [
        Fact("class", "a np.ndarray", zero_dim),
        Fact("dtype", str(true.dtype).removeprefix("torch."), other_dtype),
        Fact("shape", tuple(true.shape), zero_dim, "The shape is wrong."),
        Fact("values", true, other_values, "The values are not the tensor's.", rtol=0, atol=0),
        Fact("tensor", "as it was", "tensor-changed"),
    ]
    return Case(f"a tensor on {place} ({kind})", kind, seed, place, facts=facts)


def tensors(draw: Draw, kinds: Iterable[str], second: Iterable[str]) -> Iterator[Case]:
    """Cases of these kinds on the CPU, and of others on the second device.

    It is needed where those are all there is; else they ask for a device that knows every dtype and every view.
    """
    yield from (tensor_case(draw, kind, CPU) for kind in kinds)
    if second_kind(draw, needed=not kinds) in ("cuda", "toy") or not kinds:
        yield from (tensor_case(draw, kind, SECOND) for kind in second)


to_numpy = Contract(
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
for rung, kinds, second in (
    (
        "keeps shape, values and dtype, of a zero-dim tensor too",
        ["float32", "transposed", "float64", "float16", "int64", "uint8", "bool", "zero-dim"],
        [],
    ),
    ("takes tensors that require grad, and leaves them as they are", ["leaf", "result"], []),
    ("takes tensors from the second device", [], ["float32", "leaf", "result", "int64", "zero-dim"]),
    ("gives bfloat16 as float32", ["bfloat16", "bfloat16 leaf"], ["bfloat16 leaf"]),
    ("resolves conjugated and negated views", ["conj", "neg"], ["conj", "neg"]),
):
    to_numpy.facts(rung, partial(tensors, kinds=kinds, second=second))
to_numpy.facts(
    "gives the array memory of its own",
    partial(tensors, kinds=["float32", "transposed", "leaf", "bfloat16", "conj", "neg", "zero-dim"], second=[]),
    Fact("array after a change of the tensor", "as it was", "aliases-the-tensor"),
)


# 9.4 resume

CHECKPOINT_LR = {"SGD": 0.03, "Adam": 0.007}


def interrupted(seed: int, optimizer_name: str) -> tuple:
    """A model, its optimizer and the batches, after training on three of them on the CPU."""
    model, optimizer, batches = make_training(seed, optimizer_name, lr=CHECKPOINT_LR[optimizer_name])
    train(model, optimizer, batches[:3])
    return model, optimizer, batches


def run_resume(learner, seed: int, optimizer_name: str, source: str, place: str, replaces: bool) -> dict:
    """Resume from a checkpoint saved at `source`, at `place`, where a move replaces the parameters or keeps them.

    Report where the pair's tensors are, whose they are, and how training goes on.
    """
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
            parameters = dict(model.named_parameters())
        case _:
            raise TypeError(f"{type(pair).__name__} is no pair")
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    behind = [
        f"{name} on {value.device} of a parameter on {parameter.device}"
        for parameter, state in optimizer.state.items()
        for name, value in state.items()
        if isinstance(value, torch.Tensor) and value.dim() and value.device != parameter.device
    ]
    report = {
        "elsewhere": [name for name, parameter in parameters.items() if parameter.device != device],
        "holds": "the model's parameters" if held == {*map(id, parameters.values())} else "other tensors",
        "behind": behind[:2],
        "state": "some" if any(optimizer.state.values()) else "none",
        "lr": float(optimizer.param_groups[0]["lr"]),
        **dict.fromkeys(("output", "losses", "error"), ""),
    }
    before = [parameter.detach().cpu().clone() for parameter in parameters.values()]
    try:
        report["output"] = model(batches[0][0].to(device)).detach().cpu()
        report["losses"] = train(model, optimizer, batches[3:])
    except RuntimeError as error:
        report["error"] = "; ".join([*behind[:1], f"{type(error).__name__}: {error}"])
    after = [parameter.detach().cpu() for parameter in model.parameters()]
    return {**report, "kept weights": sum(map(torch.equal, before, after))}


def saved_output(seed: int, optimizer_name: str, *_: object) -> torch.Tensor:
    model, _, batches = interrupted(seed, optimizer_name)
    return model(batches[0][0]).detach()


def unbroken_losses(seed: int, optimizer_name: str, *_: object) -> torch.Tensor:
    model, optimizer, batches = interrupted(seed, optimizer_name)
    return train(model, optimizer, batches[3:])


def resumptions(draw: Draw, optimizers: Iterable[str] = OPTIMIZERS, fact: Fact | None = None) -> Iterator[Case]:
    """Cases at every place there is, after both kinds of moves; the fact is judged as the place computes."""
    kind = second_kind(draw)
    ways = [(CPU, place, replaces) for replaces in (True, False) for place in (SECOND, CPU)]
    # on `lazy`, tensors cannot be copied into a module on the CPU
    ways += [] if kind == "lazy" else [(SECOND, CPU, False)]
    for name in optimizers:
        for source, place, replaces in ways:
            if kind == "none" and SECOND in (source, place):
                continue
            moves = f"moves {'replace' if replaces else 'keep'} parameters"
            on = f"a checkpoint of {name} on {source}, resumed on {place}, where {moves}"
            facts = [replace(fact, **slack(draw, place))] if fact else []
            yield Case(on, draw.seed(), name, source, place, replaces, facts=facts)


resume = Contract(RESUME, ask=run_resume, errors={"is no pair": "no-pair", NO_HARDWARE: "hard-coded-device"})
resume.facts(
    "gives the checkpoint's model, on the device",
    partial(resumptions, optimizers=["SGD"], fact=Fact("output", saved_output, "weights-not-loaded")),
    Fact("elsewhere", [], "model-not-on-the-device", expected="no parameter elsewhere"),
)
resume.facts(
    "gives an optimizer of this model: its next step changes the weights",
    resumptions,
    Fact("holds", "the model's parameters", "optimizer-orphaned"),
    Fact(
        "error",
        "",
        {"state-left-behind": Where(lambda came: "of a parameter on" in came)},
        "Training on raised an error.",
    ),
    Fact("kept weights", 0, "optimizer-orphaned"),
)
resume.facts(
    "puts the optimizer's state beside its parameters",
    resumptions,
    Fact("behind", [], "state-left-behind", expected="no state elsewhere"),
)
UNBROKEN = Fact("losses", unbroken_losses, message="The losses are not those of unbroken training.")
resume.facts(
    "goes on as if training had never stopped",
    partial(resumptions, fact=UNBROKEN),
    Fact("state", "some", "state-forgotten"),
    Fact("lr", lambda seed, name, *_: CHECKPOINT_LR[name], "learning-rate-forgotten", rtol=0, atol=1e-9),
)
for rung in ("gives the checkpoint's model, on the device", "puts the optimizer's state beside its parameters"):
    RESUME.check(rung)(lambda session, rng: second_kind(Draw(rng, session), needed=True))  # after what the CPU shows


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
    draw, zeros = Draw(torch.Generator().manual_seed(seed)), torch.zeros
    count, deep, key = draw(2, 4), draw(1, 3), draw.choice("abcdefgh")
    root, encoder, core = nn.Module(), nn.Module(), nn.Module()
    root.encoder, encoder.core, root.head = encoder, core, nn.Linear(3, 3)
    root.register_buffer("known", torch.ones(1))
    match kind:
        case "tensors in attributes":
            root.scale, root._secret, encoder.table, core._cache = zeros(3), zeros(2), zeros(4), zeros(1)
            return root, ["scale", "_secret", "encoder.table", "encoder.core._cache"]
        case "tensors in containers":
            core.rows, encoder.pair = [zeros(2) for _ in range(count)], (1, zeros(1))
            root.named = {key: zeros(2), "text": "no tensor"}
            return root, [*(f"encoder.core.rows.{i}" for i in range(count)), "encoder.pair.1", f"named.{key}"]
        case "a tensor in nested containers":
            root.config = [None, zeros(2)]
            for _ in range(deep):
                root.config[1] = {"levels": [(root.config[1],)]}
            return root, ["config.1" + deep * ".levels.0.0"]
        case "modules in containers and behind a private name":
            root.blocks, encoder.heads = [nn.Linear(2, 2) for _ in range(count)], {key: nn.Linear(2, 2)}
            vars(encoder)["_teacher"] = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
            return root, [*(f"blocks.{i}" for i in range(count)), f"encoder.heads.{key}", "encoder._teacher"]
        case "second references to what is registered":
            root.order, core.up, root.rnn = [root.head, encoder, root], (root,), nn.LSTM(3, 3)
            root.weights = {"head": root.head.weight, "known": [root.known]}
            return root, []
        case "a shared dict, a list that contains itself":
            root.first = core.again = {key: zeros(1), "ring": [zeros(2)]}
            root.first["ring"].append(root.first["ring"])
            return root, [f"first.{key}", "first.ring.0"]
        case "copies with the numbers of registered tensors":
            root.copies = [tensor.detach().clone() for tensor in (root.known, *root.head.parameters())]
            encoder.one = torch.ones(1)
            return root, ["copies.0", "copies.1", "copies.2", "encoder.one"]
    return CORRECT[kind](), []


def run_hidden(learner, kind: str, seed: int) -> object:
    return learner.hidden_tensors(hiding_module(kind, seed)[0])


def read_hidden(came: object, kind: str, seed: int) -> dict[str, dict]:
    """How the names differ; a hidden module's contents count as the module, and a shared dict has one name."""
    good = isinstance(came, (list, tuple)) and all(isinstance(name, str) for name in came)
    expect(good, message="A list of names is expected.", came=came)
    _, hidden = hiding_module(kind, seed)
    names = [next((whole for whole in hidden if name.startswith(f"{whole}.")), name) for name in came]
    return {"names": difference([name.replace("encoder.core.again.", "first.") for name in names], hidden)}


def respelt(name: str) -> str:
    """A name with brackets, `self.` or `_modules.`, as it is asked for."""
    return re.sub(r"\[['\"]?(\w+)['\"]?\]", r".\1", name.removeprefix("self.").replace("_modules.", ""))


def hiding(draw: Draw, kinds: dict[str, dict]) -> Iterator[Case]:
    for kind, missing in kinds.items():
        beliefs = {
            "other-names": Where(
                lambda names: names["missing"] and {*names["missing"]} <= {*map(respelt, names["too many"])}
            ),
            "containers-not-opened": Where(
                lambda names: any(name.rpartition(".")[0] in names["too many"] for name in names["missing"])
            ),
            **missing,
            "/missing for another reason": misses(),
            "registered-listed": ANYTHING,
        }
        fact = Fact("names", ALL_AND_NO_MORE, beliefs, expected="all that is hidden")
        yield Case(kind, kind, draw.seed(), facts=[fact])


searched = Contract(
    HIDDEN,
    ask=run_hidden,
    read=read_hidden,
    errors={
        "RecursionError|^time:": "endless",
        "(?s)RuntimeError .*(Boolean value|size of tensor|truth value)": "compared-by-value",
    },
)
# What a missing name tells, in modules of each kind.
for rung, kinds in {
    "finds tensors in plain attributes, of submodules too": {
        "tensors in attributes": {
            "attributes-missed": misses("scale"),
            "children-not-searched": misses("table"),
            "private-skipped": misses("_"),
        }
    },
    "looks into lists, tuples and dicts, however deep": {
        "tensors in containers": {"containers-not-opened/items": misses()},
        "a tensor in nested containers": {"not-deep-enough": misses()},
    },
    "finds hidden modules": {"modules in containers and behind a private name": {"modules-missed": misses()}},
    "ends where containers are shared or contain themselves": {"a shared dict, a list that contains itself": {}},
    "tells the same object from an equal one": {
        "second references to what is registered": {},
        "copies with the numbers of registered tensors": {"compared-by-value": misses()},
    },
    "reports nothing for correct modules": dict.fromkeys(CORRECT, {}),
}.items():
    searched.facts(rung, partial(hiding, kinds=kinds))
