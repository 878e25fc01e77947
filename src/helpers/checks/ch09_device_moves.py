"""Checks of chapter 9: what moves with a model, what stays behind, and what crosses back.

Probes ask for the second device themselves, because they may run in another process. Where there is none, the
checks that need one are made as far as they go, and then say that they are not testable here. Checkpoints
cross the border as CPU tensors.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import nn

from ..devices import STAND_INS, second_device, transfers
from ..exercise.declare import Failed, NotTestable, load_exercises
from ..exercise.expect import draw_int, expect, expect_close, expect_tensor
from ..exercise.sessions import Session
from ..exercise.wire import LearnerError

TOWER, STEP, NUMPY, RESUME, HIDDEN = load_exercises(__file__)

_MISMATCH = re.compile(r"same device|at least two devices|should be the same|lazy tensor|INTERNAL ASSERT")
_NO_HARDWARE = re.compile(r"cuda|nvidia|\bmps\b|\bxpu\b|\bhip\b", re.IGNORECASE)


def run_where(learner) -> dict:
    """Say what the second device is where the learner's code runs; starts a stand-in."""
    second = second_device()
    return {"kind": second.kind, "name": second.name, "reason": second.reason}


def need_second_device(session: Session) -> None:
    """Raise NotTestable where there is no second device."""
    where = session.probe(run_where)
    if where["kind"] == "none":
        raise NotTestable(f"there is no second device ({where['reason']})")


def told(place: str) -> str:
    """A place as a learner reads it."""
    return "the CPU" if place == "cpu" else "the second device"


def device_of(place: str) -> torch.device:
    """The device of a place, in the process that runs the learner's code."""
    return second_device().device if place == "second" else torch.device("cpu")


def is_mismatch(text: str) -> bool:
    """Whether an error's text is about operands on two devices, on any device."""
    return bool(_MISMATCH.search(text))


def slack(kind: str) -> dict[str, float]:
    """Tolerances against the CPU: a stand-in computes as the CPU does, hardware in its own order."""
    return {"rtol": 1e-5, "atol": 1e-6} if kind in STAND_INS else {"rtol": 2e-3, "atol": 1e-4}


# 9.1


class Parent(nn.Module):
    """A module that holds a tower, as real models hold theirs."""

    def __init__(self, tower: nn.Module):
        super().__init__()
        self.tower = tower
        self.norm = nn.LayerNorm(4)

    def forward(self, x: torch.Tensor, head: str) -> torch.Tensor:
        return self.tower(x, head)


def tower_keys(depth: int) -> set[str]:
    """The stated keys of a tower's state_dict."""
    layers = [*(f"blocks.{i}.0" for i in range(depth)), "heads.a", "heads.b"]
    return {"scale", *(f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias"))}


def draw_tower_state(rng: torch.Generator, width: int, depth: int) -> dict[str, torch.Tensor]:
    """Draw a state for a tower."""
    state = {"scale": torch.rand(width, generator=rng) + 0.5}
    shapes = {f"blocks.{i}.0": width for i in range(depth)} | {"heads.a": 3, "heads.b": 2}
    for layer, rows in shapes.items():
        state[f"{layer}.weight"] = torch.randn(rows, width, generator=rng) / width**0.5
        state[f"{layer}.bias"] = torch.randn(rows, generator=rng) / 4
    return state


def tower_output(state: dict[str, torch.Tensor], x: torch.Tensor, head: str, depth: int) -> torch.Tensor:
    """What a tower with this state gives in eval mode, computed without a module."""
    for i in range(depth):
        x = torch.relu(F.linear(x, state[f"blocks.{i}.0.weight"], state[f"blocks.{i}.0.bias"]))
    return F.linear((x * state["scale"]).cumsum(1), state[f"heads.{head}.weight"], state[f"heads.{head}.bias"])


def run_tower_keys(learner, width: int, depth: int) -> dict:
    """Make a tower and use it; report what it has registered before and after, and what it overrides."""
    tower = learner.Tower(width, depth)
    if not isinstance(tower, nn.Module):
        return {"module": False}
    methods = ("to", "cuda", "_apply", "half", "float", "train", "eval", "state_dict", "parameters")
    overridden = [m for m in methods if getattr(type(tower), m) is not getattr(nn.Module, m)]
    before = list(tower.state_dict())
    scale = tower.state_dict().get("scale")
    for head in ("a", "b"):
        with torch.no_grad():
            tower(torch.randn(2, 5, width), head)
    return {
        "module": True,
        "before": before,
        "after": list(tower.state_dict()),
        "parameters": [name for name, _ in tower.named_parameters()],
        "buffers": [name for name, _ in tower.named_buffers()],
        "overridden": overridden,
        "scale": None if scale is None else scale.detach().clone(),
    }


@TOWER.check("registers what was stated, before and after a forward pass")
def _(session, rng):
    width, depth = 2 * draw_int(rng, 2, 5), draw_int(rng, 2, 4)
    on = f"Tower({width}, {depth})"
    result = session.probe(run_tower_keys, width, depth)
    expect(result["module"], message="Tower should be an nn.Module.", on=on)
    wanted = tower_keys(depth)
    for moment in ("before", "after"):
        came = set(result[moment])
        details = {"expected": sorted(wanted), "came": sorted(came), "on": f"{on}, {moment} its first forward pass"}
        missing = wanted - came
        if missing and result["overridden"] and missing != {"scale"}:
            raise Failed("overridden-instead-of-registered", **details)
        extra = came - wanted
        if missing and extra and any("mask" not in key for key in extra):
            raise Failed("other-keys", **details)
        expect("scale" not in missing or "scale" not in result["buffers"], "scale-not-saved", **details)
        for prefix, kind in {"blocks": "list", "heads": "dict", "scale": "scale"}.items():
            expect(not any(key.startswith(prefix) for key in missing), f"{kind}-not-registered", **details)
        expect(not extra, "mask-in-state-dict" if moment == "after" or "mask" in extra else "other-keys", **details)
    expect("scale" not in result["parameters"], "scale-is-parameter", came=sorted(result["parameters"]), on=on)
    expect_close(result["scale"], torch.full((width,), 0.5), f"the scale of a new {on}")


def run_tower(learner, width: int, depth: int, state: dict, inputs: list, heads: list) -> list:
    """Load a state into a tower and give its outputs in eval mode."""
    tower = learner.Tower(width, depth)
    tower.load_state_dict(state)
    tower.eval()
    with torch.no_grad():
        return [tower(x, head) for x, head in zip(inputs, heads, strict=True)]


@TOWER.check("computes what the broken tower computed, at every length")
def _(session, rng):
    width, depth, heads = 6, draw_int(rng, 2, 4), ["a", "b", "a"]
    state = draw_tower_state(rng, width, depth)
    lengths = [5, 3, draw_int(rng, 6, 9)]
    inputs = [torch.randn(2, length, width, generator=rng) for length in lengths]
    on = f"Tower({width}, {depth}), lengths {lengths} in this order, heads {heads}"
    try:
        came = session.probe(run_tower, width, depth, state, inputs, heads)
    except LearnerError as error:
        if error.is_a("RuntimeError") and "size" in error.text:
            raise Failed("mask-of-one-length", came=f"RuntimeError: {error.text}", on=on) from None
        raise
    for output, x, head in zip(came, inputs, heads, strict=True):
        expect_close(output, tower_output(state, x, head, depth), on, rtol=1e-4, atol=1e-5)


def run_tower_moved(learner, width: int, depth: int, state: dict, x: torch.Tensor, warm: bool) -> dict:
    """Move a tower inside a parent, after a use on the CPU or not, and back; report devices and outputs."""
    second = second_device()
    parent = Parent(learner.Tower(width, depth)).eval()
    parent.tower.load_state_dict(state)
    with torch.no_grad():
        if warm:
            parent(x, "a")
        parent.to(second.device)
        there = parent(x.to(second.device), "a")
        behind = [key for key, value in parent.state_dict().items() if value.device != second.device]
        back = parent.to("cpu")(x, "a") if warm else there.cpu()
    return {"there": there.cpu(), "same place": there.device == second.device, "behind": behind, "back": back}


@TOWER.check("moves whole inside a parent, there and back")
def _(session, rng):
    need_second_device(session)
    width, depth = 6, draw_int(rng, 2, 4)
    state, x = draw_tower_state(rng, width, depth), torch.randn(2, 5, width, generator=rng)
    expected = tower_output(state, x, "a", depth)
    where = session.probe(run_where)
    for warm in (False, True):
        on = f"a parent that {'ran on the CPU and then ' if warm else ''}moved to {where['name']}"
        try:
            result = session.probe(run_tower_moved, width, depth, state, x, warm)
        except LearnerError as error:
            if error.is_a("RuntimeError") and is_mismatch(error.text):
                kind = "mask-left-behind" if warm else "mask-made-on-the-cpu"
                raise Failed(kind, came=f"{error.kinds[0]}: {error.text[:200]}", on=on) from None
            raise
        expect(not result["behind"], message="Something stayed on the CPU.", came=result["behind"], on=on)
        expect(result["same place"], message="The output is not on the parent's device.", on=on)
        expect_close(result["there"], expected, on, **slack(where["kind"]))
        expect_close(result["back"], expected, f"{on}, and back", **slack(where["kind"]))


def run_tower_converted(learner, width: int, depth: int, state: dict, x: torch.Tensor) -> dict:
    """Convert a used tower to float16 inside a parent, then switch to eval; report what was reached."""
    parent = Parent(learner.Tower(width, depth)).train()
    parent.tower.load_state_dict(state)
    with torch.no_grad():
        parent(x, "b")
        parent.half().eval()
        first, second = parent(x.half(), "b"), parent(x.half(), "b")
        double = parent.double()(x.double(), "b")
    modes = [name for name, module in parent.named_modules() if module.training]
    return {"half": first, "again": second, "double": double, "training": modes}


@TOWER.check("is reached by half(), double() and eval()")
def _(session, rng):
    width, depth = 6, draw_int(rng, 2, 4)
    state, x = draw_tower_state(rng, width, depth), torch.randn(2, 5, width, generator=rng)
    on = "a parent that ran in float32, after half(), then after double()"
    try:
        result = session.probe(run_tower_converted, width, depth, state, x)
    except LearnerError as error:
        if error.is_a("RuntimeError") and re.search("dtype|scalar type", error.text):
            raise Failed("mask-keeps-dtype", came=f"RuntimeError: {error.text}", on=on) from None
        raise
    came, wanted = [expect_tensor(result[kind]).dtype for kind in ("half", "double")], [torch.float16, torch.float64]
    expect(came == wanted, "mask-keeps-dtype", expected=wanted, came=came, on=on)
    expect(not result["training"], message="eval() did not reach everything.", came=result["training"], on=on)
    expect(torch.equal(result["half"], result["again"]), message="In eval mode two outputs differ.", on=on)
    expect_close(result["half"].float(), tower_output(state, x, "b", depth), on, rtol=5e-2, atol=5e-2)


# 9.2


OPTIMIZERS: dict[str, Callable] = {
    "SGD": lambda parameters, lr=0.2: torch.optim.SGD(parameters, lr=lr, momentum=0.9),
    "Adam": lambda parameters, lr=0.05: torch.optim.Adam(parameters, lr=lr),
}
STEPS = 5


class Spied(nn.Module):
    """A classifier that notes where its input lies."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)
        self.seen: list[torch.device] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(x.device)
        return self.second(torch.tanh(self.first(x)))


def make_steps(seed: int) -> tuple[Spied, list[tuple[torch.Tensor, torch.Tensor]]]:
    """A model on the CPU and one batch a step."""
    torch.manual_seed(seed)
    model = Spied()
    return model, [(torch.randn(7, 6), torch.randint(3, (7,))) for _ in range(STEPS)]


def true_losses(seed: int, optimizer_name: str, mistake: str = "") -> list[float]:
    """The losses of five steps on the CPU, of the right step or of one with a known mistake."""
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        model, batches = make_steps(seed)
        optimizer, losses = OPTIMIZERS[optimizer_name](model.parameters()), []
        for x, labels in batches:
            if mistake != "gradients-accumulate":
                optimizer.zero_grad()
            loss = F.cross_entropy(model(x), labels)
            loss.backward()
            if mistake != "weights-do-not-change":
                optimizer.step()
            if mistake == "loss-after-update":
                loss = F.cross_entropy(model(x), labels)
            losses.append(loss.item())
    return losses


def as_number(loss: object) -> float | None:
    """A loss as a float, without the warning that a tensor with a graph would give; None if it is no number."""
    if isinstance(loss, torch.Tensor):
        loss = loss.detach()
    return float(loss) if isinstance(loss, (int, float, torch.Tensor)) else None


def run_steps(learner, seed: int, optimizer_name: str, place: str) -> dict:
    """Train a model at a place; report losses, their type, what crossed, and where an error found things."""
    device = device_of(place)
    model, batches = make_steps(seed)
    model.to(device)
    optimizer = OPTIMIZERS[optimizer_name](model.parameters())
    losses: list[object] = []
    caught: list[Exception] = []
    counts = []

    def step(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
        try:
            losses.append(learner.train_step(model, batch, optimizer))
        except NotImplementedError:
            raise
        except (RuntimeError, AssertionError) as error:
            caught.append(error)

    for batch in batches:
        counts.append(transfers(lambda batch=batch: step(batch)))
        if caught:
            break
    after = next(model.parameters()).device
    return {
        "losses": [as_number(loss) for loss in losses],
        "types": sorted({type(loss).__name__ for loss in losses if not isinstance(loss, float)}),
        "error": [type(caught[0]).__name__, str(caught[0])[:300]] if caught else None,
        "input moved": bool(model.seen) and model.seen[-1] == device,
        "copied": max(count.to_device for count in counts),
        "moved": after != device,
        "syncs": [count.syncs for count in counts],
    }


def judge_steps(result: dict, seed: int, optimizer_name: str, place: str, kind: str, on: str) -> None:
    """Fail unless a training run gave the CPU's losses; name what explains another outcome."""
    if result["error"] is not None:
        name, text = result["error"]
        came = f"{name}: {text}"
        if (place == "cpu") if is_mismatch(text) else _NO_HARDWARE.search(text):
            raise Failed("hard-coded-device", came=came, on=on)
        if is_mismatch(text):
            moved = "labels-left-behind" if result["input moved"] else "batch-left-behind"
            dropped = not result["input moved"] and result["copied"] > 0
            raise Failed("result-of-to-dropped" if dropped else moved, came=came, on=on)
        raise Failed(None, f"Your code raised {came}", on=on)
    expect(not result["moved"], "model-moved", on=on)
    expect(not result["types"], "not-a-float", expected="float", came=", ".join(result["types"]), on=on)
    came = torch.tensor(result["losses"], dtype=torch.float64)
    wanted = torch.tensor(true_losses(seed, optimizer_name), dtype=torch.float64)
    tolerance = slack("toy" if place == "cpu" else kind)
    if torch.allclose(came, wanted, **tolerance):
        return
    for mistake in ("gradients-accumulate", "weights-do-not-change", "loss-after-update"):
        mimic = torch.tensor(true_losses(seed, optimizer_name, mistake), dtype=torch.float64)
        expect(not torch.allclose(came, mimic, **tolerance), mistake, expected=wanted, came=came, on=on)
    raise Failed(None, "The losses are not those of training on the CPU.", expected=wanted, came=came, on=on)


@STEP.check("trains on the CPU")
def _(session, rng):
    session.probe(run_where)  # before the first backward pass: after one, `toy` can no longer be started
    for name in OPTIMIZERS:
        seed = draw_int(rng, 0, 10**6)
        result = session.probe(run_steps, seed, name, "cpu")
        judge_steps(result, seed, name, "cpu", "cpu", f"a model on the CPU, {name}, {STEPS} steps")


@STEP.check("trains on the second device, with the same losses")
def _(session, rng):
    need_second_device(session)
    where = session.probe(run_where)
    for name in OPTIMIZERS:
        seed = draw_int(rng, 0, 10**6)
        result = session.probe(run_steps, seed, name, "second")
        judge_steps(result, seed, name, "second", where["kind"], f"a model on {where['name']}, {name}, {STEPS} steps")


@STEP.check("waits for the device once a step at most")
def _(session, rng):
    need_second_device(session)
    syncs = session.probe(run_steps, draw_int(rng, 0, 10**6), "Adam", "second")["syncs"]
    expect(max(syncs) <= 1, "too-many-syncs", expected="1 or 0 in each step", came=syncs, on=f"{STEPS} steps, Adam")


# 9.3


def make_tensor(case: str, seed: int) -> torch.Tensor:
    """The CPU tensor of a case, made from a seed."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(3, 4, generator=generator)
    if case == "leaf":
        return x.requires_grad_()
    if case == "result":
        return x.requires_grad_() * 2
    if case in ("conj", "neg"):
        z = torch.complex(x, torch.randn(3, 4, generator=generator)).conj()
        return z if case == "conj" else z.imag
    made = {
        "float32": x,
        "transposed": x.t(),
        "float64": x.double(),
        "float16": x.half(),
        "int64": (100 * x).long(),
        "uint8": (20 * x).abs().to(torch.uint8),
        "bool": x > 0,
        "zero-dim": x[0, 0].clone(),
        "bfloat16": x.bfloat16(),
        "bfloat16 leaf": x.bfloat16().requires_grad_(),
    }
    return made[case]


def run_to_numpy(learner, case: str, seed: int, place: str) -> dict:
    """Convert one tensor; report what came, and what a later change of the tensor does to it."""
    import numpy as np

    device = device_of(place)
    with torch.enable_grad():
        tensor = make_tensor(case, seed)
        if device.type != "cpu":
            needs_grad, leaf = tensor.requires_grad, tensor.is_leaf
            tensor = tensor.detach().to(device).requires_grad_(needs_grad)
            tensor = tensor if leaf else tensor * 1
    before = (tensor.requires_grad, tensor.dtype, tensor.device)
    array = learner.to_numpy(tensor)
    if not isinstance(array, np.ndarray):
        return {"kind": type(array).__name__, "dims": getattr(array, "ndim", None)}
    values = np.array(array)
    kept = before == (tensor.requires_grad, tensor.dtype, tensor.device)
    same = place != "cpu" or torch.equal(tensor.detach(), make_tensor(case, seed).detach())
    with torch.no_grad():
        tensor.detach().fill_(1)
    return {
        "kind": "array",
        "dtype": str(array.dtype),
        "values": torch.from_numpy(values) if values.dtype.kind in "fciub" else None,
        "kept": kept and same,
        "aliases": not np.array_equal(values, array),
    }


def true_array(case: str, seed: int) -> torch.Tensor:
    """The values that NumPy should hold, as a tensor."""
    with torch.random.fork_rng(devices=[]):
        x = make_tensor(case, seed).detach().resolve_conj().resolve_neg()
    return x.float() if x.dtype == torch.bfloat16 else x


_OBSTACLES = {
    "requires grad": "still-requires-grad",
    "device type": "stays-on-the-device",
    "ScalarType": "bfloat16-unknown",
    "BFloat16": "bfloat16-unknown",
    "conj": "conjugate-bit",
    "negative": "negative-bit",
}


def judge_array(session: Session, rng: torch.Generator, cases: Sequence[str], place: str = "cpu") -> None:
    """Convert tensors of several kinds and compare class, dtype, shape and values."""
    for case in cases:
        seed = draw_int(rng, 0, 10**6)
        on = f"a tensor on {told(place)} ({case})"
        try:
            result = session.probe(run_to_numpy, case, seed, place)
        except LearnerError as error:
            obstacle = next((kind for words, kind in _OBSTACLES.items() if words in error.text), None)
            if error.reason == "raised" and obstacle:
                raise Failed(obstacle, came=f"{error.kinds[0]}: {error.text}", on=on) from None
            raise
        wanted = true_array(case, seed)
        if result["kind"] != "array":
            kind = "zero-dim-lost" if case == "zero-dim" else None
            raise Failed(kind, expected="a np.ndarray", came=result["kind"], on=on)
        dtype = str(wanted.dtype).removeprefix("torch.")
        kind = "bfloat16-not-float32" if case.startswith("bfloat16") else "dtype-changed"
        expect(result["dtype"] == dtype, kind, expected=dtype, came=result["dtype"], on=on)
        came = result["values"]
        shape = tuple(came.shape)
        kind = "zero-dim-lost" if case == "zero-dim" else None
        expect(shape == tuple(wanted.shape), kind, "The shape is wrong.", expected=tuple(wanted.shape), came=shape)
        kind = {"conj": "conjugate-bit", "neg": "negative-bit"}.get(case)
        expect(torch.equal(came, wanted), kind, "The values are not the tensor's.", expected=wanted, came=came, on=on)
        expect(result["kept"], "tensor-changed", on=on)


@NUMPY.check("keeps shape, values and dtype, of a zero-dim tensor too")
def _(session, rng):
    judge_array(session, rng, ["float32", "transposed", "float64", "float16", "int64", "uint8", "bool", "zero-dim"])


@NUMPY.check("takes tensors that require grad, and leaves them as they are")
def _(session, rng):
    judge_array(session, rng, ["leaf", "result"])


@NUMPY.check("takes tensors from the second device")
def _(session, rng):
    need_second_device(session)
    judge_array(session, rng, ["float32", "leaf", "result", "int64", "zero-dim"], "second")


@NUMPY.check("gives bfloat16 as float32")
def _(session, rng):
    judge_array(session, rng, ["bfloat16", "bfloat16 leaf"])
    if session.probe(run_where)["kind"] in ("cuda", "toy"):
        judge_array(session, rng, ["bfloat16 leaf"], "second")


@NUMPY.check("resolves conjugated and negated views")
def _(session, rng):
    judge_array(session, rng, ["conj", "neg"])
    if session.probe(run_where)["kind"] in ("cuda", "toy"):
        judge_array(session, rng, ["conj", "neg"], "second")


@NUMPY.check("gives the array memory of its own")
def _(session, rng):
    for case in ("float32", "transposed", "leaf", "bfloat16", "conj", "neg", "zero-dim"):
        result = session.probe(run_to_numpy, case, draw_int(rng, 0, 10**6), "cpu")
        expect(not result["aliases"], "aliases-the-tensor", on=f"a tensor on the CPU ({case}), changed in place later")


# 9.4

CHECKPOINT_LR = {"SGD": 0.03, "Adam": 0.007}


def make_regressor() -> nn.Sequential:
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 2))


def regression_batches(seed: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Six batches: three before the interruption, three after it."""
    generator = torch.Generator().manual_seed(seed)
    return [(torch.randn(9, 5, generator=generator), torch.randn(9, 2, generator=generator)) for _ in range(6)]


def train_regressor(model: nn.Module, optimizer: torch.optim.Optimizer, batches: list, device: torch.device) -> list:
    """Train on the batches and give the losses."""
    losses = []
    with torch.enable_grad():
        for x, y in batches:
            optimizer.zero_grad()
            loss = F.mse_loss(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def interrupted(seed: int, optimizer_name: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A model and its optimizer on the CPU, after the first three steps."""
    torch.manual_seed(seed)
    model = make_regressor()
    optimizer = OPTIMIZERS[optimizer_name](model.parameters(), lr=CHECKPOINT_LR[optimizer_name])
    train_regressor(model, optimizer, regression_batches(seed)[:3], torch.device("cpu"))
    return model, optimizer


def to_place(value: object, device: torch.device) -> object:
    """Copy a state dict with its tensors on a device; an optimizer's zero-dim steps stay on the CPU."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone().to(device if value.dim() else "cpu")
    if isinstance(value, dict):
        return type(value)((key, to_place(item, device)) for key, item in value.items())
    return [to_place(item, device) for item in value] if isinstance(value, list) else copy.deepcopy(value)


def run_resume(learner, seed: int, optimizer_name: str, source: str, place: str, replaces: bool) -> dict:
    """Resume from a checkpoint saved at `source`, at `place`, where a move replaces the parameters or keeps them."""
    second, device = second_device(), device_of(place)
    model, optimizer = interrupted(seed, optimizer_name)
    checkpoint = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    checkpoint = to_place(checkpoint, device_of(source))
    future = torch.__future__
    overwrite, swap = future.get_overwrite_module_params_on_conversion(), future.get_swap_module_params_on_conversion()
    try:
        future.set_overwrite_module_params_on_conversion(replaces)
        future.set_swap_module_params_on_conversion(not replaces and second.stand_in)
        pair = learner.resume(make_regressor, OPTIMIZERS[optimizer_name], checkpoint, device)
    finally:
        future.set_overwrite_module_params_on_conversion(overwrite)
        future.set_swap_module_params_on_conversion(swap)
    if not isinstance(pair, (tuple, list)) or [isinstance(pair[0], nn.Module), len(pair)] != [True, 2]:
        return {"pair": False}
    if not isinstance(pair[1], torch.optim.Optimizer):
        return {"pair": False}
    return {"pair": True, **inspect_resumed(*pair, device, seed)}


def inspect_resumed(model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device, seed: int) -> dict:
    """Report where a resumed pair's tensors are, whose they are, and how training goes on."""
    own = {id(parameter) for parameter in model.parameters()}
    held = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    behind = [
        f"{name} of a parameter on {parameter.device} is on {value.device}"
        for parameter, state in optimizer.state.items()
        for name, value in state.items()
        if isinstance(value, torch.Tensor) and value.dim() and value.device != parameter.device
    ]
    batches = regression_batches(seed)
    report = {
        "elsewhere": [name for name, p in model.named_parameters() if p.device != device],
        "state": sum(bool(state) for state in optimizer.state.values()),
        "lr": float(optimizer.param_groups[0]["lr"]),
        "owned": own == {id(parameter) for parameter in held},
        "behind": behind,
        "output": None,
        "losses": [],
        "changed": None,
        "error": "",
    }
    if report["elsewhere"]:
        return report
    with torch.no_grad():
        report["output"] = model(batches[0][0].to(device)).cpu()
    before = [p.detach().cpu().clone() for p in model.parameters()]
    try:
        report["losses"] = train_regressor(model, optimizer, batches[3:], device)
    except RuntimeError as error:
        report["error"] = f"{type(error).__name__}: {str(error)[:200]}"
    after = [p.detach().cpu() for p in model.parameters()]
    report["changed"] = not any(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    return report


def resume_cases(session: Session) -> list[tuple[str, str, bool, str]]:
    """(saved at, resumed at, moves replace parameters, in words), for every place there is."""
    kind = session.probe(run_where)["kind"]
    second = kind != "none"
    found = []
    for replaces in (True, False):
        how = "where a move replaces parameters" if replaces else "where a move keeps parameters"
        for place in ["second", "cpu"] if second else ["cpu"]:
            found.append(("cpu", place, replaces, f"a checkpoint on the CPU, resumed on {told(place)}, {how}"))
    # On `lazy`, tensors cannot be copied into a module on the CPU.
    if second and kind != "lazy":
        found.append(("second", "cpu", False, "a checkpoint on the second device, resumed on the CPU"))
    return found


def ask_resume(session: Session, rng: torch.Generator, case: tuple, name: str) -> tuple[dict, int, str]:
    """Run one case with hidden numbers; an error inside the learner's code is told by its own misconception."""
    source, place, replaces, words = case
    seed, on = draw_int(rng, 0, 10**6), f"{words}; {name}"
    try:
        result = session.probe(run_resume, seed, name, source, place, replaces)
    except LearnerError as error:
        if error.reason == "raised" and _NO_HARDWARE.search(error.text):
            raise Failed("hard-coded-device", came=f"{error.kinds[0]}: {error.text}", on=on) from None
        raise
    expect(result["pair"], "no-pair", on=on)
    return result, seed, on


@RESUME.check("gives the checkpoint's model, on the device")
def _(session, rng):
    for case in resume_cases(session):
        result, seed, on = ask_resume(session, rng, case, "SGD")
        expect(not result["elsewhere"], "model-not-on-the-device", came=result["elsewhere"], on=on)
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            model, _ = interrupted(seed, "SGD")
            wanted = model(regression_batches(seed)[0][0]).detach()
        kind = session.probe(run_where)["kind"] if case[1] == "second" else "toy"
        expect_close(result["output"], wanted, on, "weights-not-loaded", **slack(kind))
    need_second_device(session)


@RESUME.check("gives an optimizer of this model: its next step changes the weights")
def _(session, rng):
    for name in OPTIMIZERS:
        for case in resume_cases(session):
            result, _, on = ask_resume(session, rng, case, name)
            expect(result["owned"], "optimizer-orphaned", on=on)
            if result["error"]:
                kind = "state-left-behind" if result["behind"] else None
                raise Failed(kind, "Training on raised an error.", came=result["error"], on=on)
            expect(bool(result["changed"]), "optimizer-orphaned", on=on)


@RESUME.check("puts the optimizer's state beside its parameters")
def _(session, rng):
    for name in OPTIMIZERS:
        for case in resume_cases(session):
            result, _, on = ask_resume(session, rng, case, name)
            expect(not result["behind"], "state-left-behind", came=result["behind"][:2], on=on)
    need_second_device(session)


@RESUME.check("goes on as if training had never stopped")
def _(session, rng):
    for name in OPTIMIZERS:
        for case in resume_cases(session):
            result, seed, on = ask_resume(session, rng, case, name)
            wanted_lr = CHECKPOINT_LR[name]
            expect(result["state"] > 0, "state-forgotten", on=on)
            same_rate = abs(result["lr"] - wanted_lr) < 1e-9
            expect(same_rate, "learning-rate-forgotten", expected=wanted_lr, came=result["lr"], on=on)
            with torch.random.fork_rng(devices=[]):
                pair = interrupted(seed, name)
                wanted = train_regressor(*pair, regression_batches(seed)[3:], torch.device("cpu"))
            came = torch.tensor(result["losses"], dtype=torch.float64)
            kind = session.probe(run_where)["kind"] if case[1] == "second" else "toy"
            wanted_losses = torch.tensor(wanted, dtype=torch.float64)
            expect_close(
                came, wanted_losses, on, message="The losses are not those of unbroken training.", **slack(kind)
            )


# 9.5


class Holder(nn.Module):
    """A module with nothing in it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def hiding_module(case: str, seed: int) -> tuple[nn.Module, list[list[str]], list[str]]:
    """A module that hides something: itself, the names of each hidden thing, and the names of hidden modules."""
    generator = torch.Generator().manual_seed(seed)
    count, deep = draw_int(generator, 2, 4), draw_int(generator, 1, 3)
    key = "abcdefgh"[draw_int(generator, 0, 7)]
    root, encoder, core = Holder(), Holder(), Holder()
    root.encoder, encoder.core, root.head = encoder, core, nn.Linear(3, 3)
    root.register_buffer("known", torch.ones(1))
    wanted: list[list[str]] = []
    modules: list[str] = []
    if case == "attributes":
        root.scale, root._secret = torch.zeros(3), torch.zeros(2)
        encoder.table, core._cache = torch.zeros(4), torch.zeros(1)
        wanted = [["scale"], ["_secret"], ["encoder.table"], ["encoder.core._cache"]]
    elif case == "containers":
        core.rows, encoder.pair = [torch.zeros(2) for _ in range(count)], (1, torch.zeros(1))
        root.named = {key: torch.zeros(2), "text": "no tensor"}
        wanted = [*([f"encoder.core.rows.{i}"] for i in range(count)), ["encoder.pair.1"], [f"named.{key}"]]
    elif case == "nested":
        inner: object = torch.zeros(2)
        for _ in range(deep):
            inner = {"levels": [(inner,)]}
        root.config = [None, inner]
        wanted = [["config.1" + deep * ".levels.0.0"]]
    elif case == "modules":
        root.blocks = [nn.Linear(2, 2) for _ in range(count)]
        encoder.heads = {key: nn.Linear(2, 2)}
        encoder.__dict__["_teacher"] = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        modules = [*(f"blocks.{i}" for i in range(count)), f"encoder.heads.{key}", "encoder._teacher"]
        wanted = [[name] for name in modules]
    elif case == "references":
        root.order = [root.head, encoder, root]
        root.weights = {"head": root.head.weight, "known": [root.known]}
        core.up = (root,)
        root.rnn = nn.LSTM(3, 3)
    elif case == "cycles":
        ring: list = [torch.zeros(2)]
        ring.append(ring)
        shared = {key: torch.zeros(1), "ring": ring}
        root.first, core.again = shared, shared
        prefixes = ("first", "encoder.core.again")
        wanted = [[f"{p}.{key}" for p in prefixes], [f"{p}.ring.0" for p in prefixes]]
    elif case == "equal":
        root.copies = [root.known.clone(), root.head.weight.detach().clone(), root.head.bias.detach().clone()]
        encoder.one = torch.ones(1)
        wanted = [["copies.0"], ["copies.1"], ["copies.2"], ["encoder.one"]]
    return root, wanted, modules


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


def run_hidden(learner, case: str, seed: int) -> object:
    """Ask the learner's function about one of our modules."""
    return learner.hidden_tensors(hiding_module(case, seed)[0])


def run_correct(learner, name: str) -> object:
    return learner.hidden_tensors(CORRECT[name]())


def ask_hidden(request: Callable[[], object], on: str) -> set[str]:
    """The names that the learner's function gives, or the misconception behind its error."""
    try:
        came = request()
    except LearnerError as error:
        text = f"{error.kinds[0]}: {error.text}" if error.kinds else error.text
        if error.is_a("RecursionError") or error.reason == "time":
            raise Failed("endless", came=text[:200], on=on) from None
        by_value = "Boolean value" in error.text or "size of tensor" in error.text or "truth value" in error.text
        if error.is_a("RuntimeError") and by_value:
            raise Failed("compared-by-value", came=text, on=on) from None
        raise
    good = isinstance(came, (list, tuple)) and all(isinstance(name, str) for name in came)
    expect(good, message="A list of names is expected.", came=came, on=on)
    return set(came)


def judge_hidden(session: Session, rng: torch.Generator, case: str, on: str, kinds: dict[str, str]) -> None:
    """Fail unless every hidden thing is named and nothing else; `kinds` names what a missing name tells."""
    seed = draw_int(rng, 0, 10**6)
    came = ask_hidden(lambda: session.probe(run_hidden, case, seed), on)
    with torch.random.fork_rng(devices=[]):
        _, wanted, modules = hiding_module(case, seed)
    known = {name for names in wanted for name in names}
    missing = [names[0] for names in wanted if not came & set(names) and not _contents_listed(names, modules, came)]
    extra = {name for name in came - known if not name.startswith(tuple(f"{module}." for module in modules))}
    details = {"expected": sorted(names[0] for names in wanted), "came": sorted(came), "on": on}
    if missing and extra:
        plain = (name.removeprefix("self.").replace("_modules.", "") for name in came)
        respelt = {re.sub(r"\[['\"]?(\w+)['\"]?\]", r".\1", name) for name in plain}
        expect(not known <= respelt, "other-names", **details)
        containers = {name.rsplit(".", 1)[0] for name in known}
        expect(not extra & containers, "containers-not-opened", **details)
    for part, kind in kinds.items():
        told_of = [name for name in missing if part in name]
        expect(not told_of, kind, f"Missing: {', '.join(missing)}.", **details)
    expect(not missing, message=f"Missing: {', '.join(missing)}.", **details)
    expect(not extra, "registered-listed", **details)


def _contents_listed(names: list[str], modules: list[str], came: set[str]) -> bool:
    """Whether a hidden module is told by its contents."""
    return any(name in modules and any(c.startswith(f"{name}.") for c in came) for name in names)


@HIDDEN.check("finds tensors in plain attributes, of submodules too")
def _(session, rng):
    kinds = {"table": "children-not-searched", "_": "private-skipped", "": "attributes-missed"}
    judge_hidden(session, rng, "attributes", "tensors in attributes", {"scale": "attributes-missed", **kinds})


@HIDDEN.check("looks into lists, tuples and dicts, however deep")
def _(session, rng):
    judge_hidden(session, rng, "containers", "tensors in containers", {"": "containers-not-opened"})
    judge_hidden(session, rng, "nested", "a tensor in nested containers", {"": "not-deep-enough"})


@HIDDEN.check("finds hidden modules")
def _(session, rng):
    judge_hidden(session, rng, "modules", "modules in containers and behind a private name", {"": "modules-missed"})


@HIDDEN.check("ends where containers are shared or contain themselves")
def _(session, rng):
    judge_hidden(session, rng, "cycles", "a shared dict, a list that contains itself", {})


@HIDDEN.check("tells the same object from an equal one")
def _(session, rng):
    judge_hidden(session, rng, "references", "second references to what is registered", {})
    judge_hidden(session, rng, "equal", "copies with the numbers of registered tensors", {"": "compared-by-value"})


@HIDDEN.check("reports nothing for correct modules")
def _(session, rng):
    for name in CORRECT:
        came = ask_hidden(lambda name=name: session.probe(run_correct, name), name)
        expect(not came, "registered-listed", expected=[], came=sorted(came), on=name)
