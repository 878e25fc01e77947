"""Checks of chapter 8: what a layer starts from, how a signal gets through, and who is to blame."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

import torch
from torch import nn

from ..evidence import state_hash
from ..exercise.declare import Failed, load_exercises
from ..exercise.expect import draw_int, expect, expect_close, expect_tensor
from ..exercise.wire import LearnerError
from ..measure import state

UNINITIALISED, DENSE, DEEP, KERAS, CULPRIT = load_exercises(__file__)

# 8.1


class Bare(nn.Module):
    """A layer as it is found in many repositories: a weight that somebody else is expected to fill."""

    def __init__(self, rows: int):
        super().__init__()
        self.weight = nn.Parameter(torch.Tensor(rows, 3))
        self.bias = nn.Parameter(torch.zeros(rows))


class Buffers(nn.Module):
    """Buffers of every kind, filled and not."""

    def __init__(self, size: int):
        super().__init__()
        self.register_buffer("mean", torch.empty(size))
        self.register_buffer("scale", torch.ones(size))
        self.register_buffer("count", torch.empty(size, dtype=torch.int64))
        self.register_buffer("small", torch.empty(size, dtype=torch.int32))
        self.register_buffer("order", torch.arange(size))
        self.register_buffer("cache", torch.empty(size), persistent=False)


class Partly(nn.Module):
    """Parameters of which some rows were filled."""

    def __init__(self, size: int):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(2, size).new_empty(size + 1, 4))
        self.wide = nn.Parameter(torch.empty(size, 2, dtype=torch.bfloat16))
        self.precise = nn.Parameter(torch.empty(size, dtype=torch.float64))
        with torch.no_grad():
            self.table[:size] = 0.0
            self.wide.zero_()
            self.precise.normal_()


def make_bare(size: int) -> nn.Module:
    net = nn.Sequential(nn.Linear(4, size), nn.ModuleList([Bare(size), nn.Linear(size, 2), Bare(size + 1)]))
    net.append(nn.utils.skip_init(nn.Linear, size, 3))
    return net


def make_large(size: int) -> nn.Module:
    """Memory of this size comes fresh from the system, and holds zeros."""
    return nn.ParameterDict({"fresh": torch.Tensor(9_000_000 + size), "zeros": torch.zeros(9)})


def make_clean(size: int) -> nn.Module:
    net = nn.Sequential(nn.Linear(4, size), nn.LSTM(4, size), nn.MultiheadAttention(8, 2), nn.BatchNorm1d(size))
    net.append(nn.Embedding(size, 3, padding_idx=0))
    net.register_parameter("zeros", nn.Parameter(torch.empty(size).zero_()))
    net.register_buffer("nothing", None)
    net.register_buffer("none_of_it", torch.empty(0))
    return net


class Unbuildable(RuntimeError):
    """What the broken constructor raises."""


def make_broken(size: int) -> nn.Module:
    torch.rand(size)
    raise Unbuildable(f"cannot build this at size {size}")


MAKERS = {"bare": make_bare, "large": make_large, "clean": make_clean, "broken": make_broken}
MAKERS |= {"buffers": Buffers, "partly": Partly}
LEFT = {
    "bare": ["1.0.weight", "1.2.weight", "2.weight", "2.bias"],
    "large": ["fresh"],
    "clean": [],
    "buffers": ["mean", "count", "small", "cache"],
    "partly": ["table"],
}


def run_uninitialised(learner, kind: str, size: int, enabled: bool = False, fill: bool = True) -> dict:
    """Run `uninitialised` on a module under the caller's flags; report names, error, and what became of the state."""
    with state.guard():
        torch.use_deterministic_algorithms(enabled, warn_only=enabled)
        torch.utils.deterministic.fill_uninitialized_memory = fill
        flags, drawn = state.snapshot(), torch.get_rng_state()
        names, error = None, ""
        try:
            names = learner.uninitialised(lambda: MAKERS[kind](size))
        except Unbuildable as problem:
            error = str(problem)
        leaks = state.leaks(flags)
        same = bool(torch.equal(drawn, torch.get_rng_state()))
    return {"names": names, "error": error, "leaks": leaks, "random state kept": same}


def names_in(result: dict, on: str) -> list[str]:
    """The reported names; anything else than a list of text fails."""
    names = result["names"]
    good = isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names)
    expect(good, message="A list of names is expected.", came=names, on=on)
    return sorted(names)


def expect_names(result: dict, kind: str, on: str, missed: str, extra: str = "reports-initialised") -> None:
    came, wanted = names_in(result, on), sorted(LEFT[kind])
    if sorted(name.split(".")[-1] for name in wanted) == sorted(name.split(".")[-1] for name in came):
        expect(came == wanted, "names-not-dotted", expected=wanted, came=came, on=on)
    expect(not set(wanted) - set(came), missed, expected=wanted, came=came, on=on)
    expect(not set(came) - set(wanted), extra, expected=wanted, came=came, on=on)
    expect(came == wanted, message="A name is reported twice.", expected=wanted, came=came, on=on)


@UNINITIALISED.check("finds parameters that nobody filled, whatever the memory holds")
def _(session, rng):
    for kind, on in [
        ("large", "a large parameter from torch.Tensor(n), fresh from the system"),
        ("bare", "a net with torch.Tensor(out, in) and skip_init inside"),
    ]:
        result = session.probe(run_uninitialised, kind, draw_int(rng, 5, 40))
        came = names_in(result, on)
        drawn = [name for name in came if name in ("0.weight", "1.1.weight", "1.1.bias")]
        extra = "random-is-not-uninitialised" if drawn else "reports-initialised"
        expect_names(result, kind, on, "relies-on-luck", extra)


@UNINITIALISED.check("reports nothing that is initialised")
def _(session, rng):
    result = session.probe(run_uninitialised, "clean", draw_int(rng, 5, 40))
    on = "Linear, LSTM, attention, batch norm, an embedding, zeros, a buffer without elements"
    extra = "random-is-not-uninitialised"
    for name, kind in {"zeros": "reports-initialised", "none_of_it": "wholly-only"}.items():
        extra = kind if name in names_in(result, on) else extra
    expect_names(result, "clean", on, "relies-on-luck", extra)


@UNINITIALISED.check("finds what is uninitialised in part")
def _(session, rng):
    result = session.probe(run_uninitialised, "partly", draw_int(rng, 5, 40))
    expect_names(result, "partly", "a table of which the last row was not filled", "wholly-only")


@UNINITIALISED.check("finds buffers: floats, integers, and those outside state_dict")
def _(session, rng):
    on = "a module with six buffers, two of them filled, three of them integers"
    result = session.probe(run_uninitialised, "buffers", draw_int(rng, 5, 40))
    missing = set(LEFT["buffers"]) - set(names_in(result, on))
    missed = "integers-forgotten" if missing & {"count", "small"} else "not-in-state-dict"
    expect_names(result, "buffers", on, "buffers-forgotten" if "mean" in missing else missed)


@UNINITIALISED.check("leaves flags and random state as they were, whatever they were")
def _(session, rng):
    for enabled, fill in [(False, True), (True, True), (False, False), (True, False)]:
        on = f"a caller with deterministic algorithms {'on (warn only)' if enabled else 'off'}, fill {fill}"
        result = session.probe(run_uninitialised, "bare", draw_int(rng, 5, 40), enabled, fill)
        expect(not result["leaks"], "flag-left-changed", came="; ".join(result["leaks"]), on=on)
        if sorted(names_in(result, on)) != sorted(LEFT["bare"]):
            raise Failed("fill-switched-off", expected=LEFT["bare"], came=result["names"], on=on)
        expect(result["random state kept"], "random-state-moved", on=on)


@UNINITIALISED.check("lets make_module's error through, and restores the state all the same")
def _(session, rng):
    for enabled in (False, True):
        size = draw_int(rng, 5, 40)
        result = session.probe(run_uninitialised, "broken", size, enabled, enabled)
        on, wanted = "a make_module that raises", f"cannot build this at size {size}"
        expect(result["error"] == wanted, "error-swallowed", expected=wanted, came=result["error"], on=on)
        expect(not result["leaks"], "flag-lost-on-error", came="; ".join(result["leaks"]), on=on)
        expect(result["random state kept"], "flag-lost-on-error", came="another random state", on=on)


# 8.2


@contextlib.contextmanager
def linear_spied() -> Iterator[list[str]]:
    """Note which methods of nn.Linear are called meanwhile."""
    called: list[str] = []
    methods = {name: vars(nn.Linear)[name] for name in ("__init__", "reset_parameters", "forward")}

    def spy(name: str):
        def method(self, *args, **kwargs):
            called.append(name)
            return methods[name](self, *args, **kwargs)

        return method

    try:
        for name in methods:
            setattr(nn.Linear, name, spy(name))
        yield called
    finally:
        for name, method in methods.items():
            setattr(nn.Linear, name, method)


def run_dense(learner, seed: int, sizes: list[int], bias: bool, inputs: list[torch.Tensor]) -> dict:
    """Build two DenseLayers under a seed and feed the first; report state, bias, outputs, and use of nn.Linear."""
    with state.guard(), linear_spied() as called:
        # Uninitialised memory becomes NaN, so that it cannot look like weights.
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.manual_seed(seed)
        options = {} if bias else {"bias": False}
        layers = [learner.DenseLayer(a, b, **options) for a, b in zip(sizes, sizes[1:], strict=False)]
        if not all(isinstance(layer, nn.Module) for layer in layers):
            return {"module": False}
        parts = [part for layer in layers for part in layer.modules()]
        outputs = [layers[0](x).detach() for x in inputs]
    return {
        "module": True,
        "linear": bool(called) or any(isinstance(part, nn.Linear) for part in parts),
        "states": [{key: value.detach().clone() for key, value in layer.state_dict().items()} for layer in layers],
        "trained": [sorted(name for name, p in layer.named_parameters() if p.requires_grad) for layer in layers],
        "bias is None": [getattr(layer, "bias", "missing") is None for layer in layers],
        "outputs": outputs,
    }


def run_dense_kind(learner, dtype: torch.dtype, device: str) -> list[str]:
    """Build a DenseLayer of a dtype on a device; report both for every parameter."""
    layer = learner.DenseLayer(5, 4, device=device, dtype=dtype)
    return [f"{name}: {p.dtype} on {p.device.type}" for name, p in sorted(layer.named_parameters())]


def linear_states(seed: int, sizes: list[int], bias: bool = True) -> tuple[list[dict], nn.Linear]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = [nn.Linear(a, b, bias=bias) for a, b in zip(sizes, sizes[1:], strict=False)]
    states = [{key: value.detach().clone() for key, value in layer.state_dict().items()} for layer in layers]
    return states, layers[0]


def explain_weight(seed: int, fan_in: int, fan_out: int, came: torch.Tensor) -> str:
    """The misconception that gives this weight."""
    with torch.random.fork_rng(devices=[]):

        def drawn(init, bias_first: bool = False) -> torch.Tensor:
            torch.manual_seed(seed)
            if bias_first:
                init(torch.empty(fan_out))
            return init(torch.empty(fan_out, fan_in))

        def within(bound: float):
            return lambda tensor: nn.init.uniform_(tensor, -bound, bound)

        known = {
            "fan-out": drawn(within(fan_out**-0.5)),
            "kaiming-gain": drawn(nn.init.kaiming_uniform_),
            "glorot": drawn(nn.init.xavier_uniform_),
            "bias-first": drawn(within(fan_in**-0.5), bias_first=True),
        }
    for name, weight in known.items():
        if torch.allclose(weight, came, rtol=1e-4, atol=1e-7):
            return name
    bound = fan_in**-0.5
    spread = came.std().item() / (bound / math.sqrt(3))
    return "other-draws" if came.abs().max() <= bound * 1.001 and 0.85 < spread < 1.15 else "other-distribution"


@DENSE.check("starts with the same bits as nn.Linear under the same seed")
def _(session, rng):
    for _ in range(2):
        seed, first = draw_int(rng, 0, 10**6), draw_int(rng, 20, 40)
        sizes = [first, first + draw_int(rng, 11, 30), draw_int(rng, 5, 9)]
        on = f"DenseLayer({sizes[0]}, {sizes[1]}), then DenseLayer({sizes[1]}, {sizes[2]}), under one seed"
        result = session.probe(run_dense, seed, sizes, True, [])
        expect(result["module"], message="DenseLayer should be an nn.Module.")
        expect(not result["linear"], "wraps-linear")
        expected, _ = linear_states(seed, sizes)
        for number, (came, wanted) in enumerate(zip(result["states"], expected, strict=True)):
            keys = sorted(came)
            expect(keys == ["bias", "weight"], "not-registered", expected=["bias", "weight"], came=keys, on=on)
            shapes = {key: tuple(came[key].shape) for key in keys}
            right = {key: tuple(wanted[key].shape) for key in keys}
            transposed = shapes["weight"] == right["weight"][::-1]
            expect(shapes == right, "transposed" if transposed else None, expected=right, came=shapes, on=on)
            empty = any(bool(tensor.isnan().any()) for tensor in came.values())
            expect(not empty, "uninitialised", on=on)
            if not torch.equal(came["weight"], wanted["weight"]):
                kind = explain_weight(seed, sizes[0], sizes[1], came["weight"]) if number == 0 else "extra-draws"
                raise Failed(kind, expected=wanted["weight"], came=came["weight"], on=on)
            if not torch.equal(came["bias"], wanted["bias"]):
                kind = "bias-bound" if came["bias"].any() else "bias-zero"
                raise Failed(kind, expected=wanted["bias"], came=came["bias"], on=on)
            expect(result["trained"][number] == keys, "not-registered", came=result["trained"][number], on=on)


@DENSE.check("has no bias with bias=False: None, and no key")
def _(session, rng):
    seed, sizes = draw_int(rng, 0, 10**6), [draw_int(rng, 5, 9), 12, 7]
    result = session.probe(run_dense, seed, sizes, False, [])
    expected, _ = linear_states(seed, sizes, bias=False)
    on = "bias=False"
    for came, wanted, none in zip(result["states"], expected, result["bias is None"], strict=True):
        expect(sorted(came) == ["weight"], "bias-key", expected=["weight"], came=sorted(came), on=on)
        expect(none, "bias-key", expected="bias is None", came="another attribute, or none of this name", on=on)
        same = torch.equal(came["weight"], wanted["weight"])
        expect(same, "extra-draws", expected=wanted["weight"], came=came["weight"], on=on)


@DENSE.check("computes what nn.Linear computes, for any leading dimensions")
def _(session, rng):
    for bias in (True, False):
        seed, sizes = draw_int(rng, 0, 10**6), [draw_int(rng, 5, 9), 12]
        _, layer = linear_states(seed, sizes, bias)
        for shape in [(3,), (), (2, 4), (0,)]:
            x = torch.randn(*shape, sizes[0], generator=rng)
            on = f"an input of shape {tuple(x.shape)}, bias={bias}"
            try:
                result = session.probe(run_dense, seed, sizes, bias, [x])
            except LearnerError as error:
                if error.reason != "raised" or error.is_a("NotImplementedError"):
                    raise
                kind = "leading-dimensions" if bias else "bias-none-used"
                raise Failed(kind, came=f"{error.kinds[0]}: {error.text}", on=on) from None
            expect(not result["linear"], "wraps-linear")
            came = result["outputs"][0]
            expected = layer(x).detach()
            if isinstance(came, torch.Tensor) and came.shape != expected.shape:
                raise Failed("leading-dimensions", expected=tuple(expected.shape), came=tuple(came.shape), on=on)
            expect_close(came, expected, on)


@DENSE.check("has the dtype and the device that were asked for")
def _(session, rng):
    for dtype, device in [(torch.float64, "cpu"), (torch.bfloat16, "cpu"), (torch.float32, "meta")]:
        on = f"dtype={dtype}, device={device!r}"
        came = session.probe(run_dense_kind, dtype, device)
        wanted = [f"{name}: {dtype} on {device}" for name in ("bias", "weight")]
        expect(came == wanted, "dtype-or-device-ignored", expected=wanted, came=came, on=on)


# 8.3

DEPTH = 30


def make_deep(width: int, nested: bool) -> nn.Sequential:
    blocks = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(DEPTH)]
    return nn.Sequential(*blocks) if nested else nn.Sequential(*[layer for block in blocks for layer in block])


def run_deep(learner, width: int, seeds: list[int], nested: bool) -> list[list[float]]:
    """Initialise a net for each seed; report the std after every ReLU."""
    measured = []
    for seed in seeds:
        torch.manual_seed(seed)
        net, x = make_deep(width, nested), torch.randn(48, width)
        learner.init_deep(net)
        stds = []
        with torch.no_grad():
            for module in net.modules():
                if isinstance(module, (nn.Linear, nn.ReLU)):
                    x = module(x)
                if isinstance(module, nn.ReLU):
                    stds.append(x.std())
        measured.append(torch.stack(stds).tolist())
    return measured


def run_deep_parts(learner, seed: int, part: str) -> dict:
    """Initialise a small net with one special part; report biases, the embedding, and what changed elsewhere."""
    torch.manual_seed(seed)
    layers = [nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)]
    if part == "no bias":
        layers += [nn.Linear(4, 4, bias=False)]
    if part == "embedding":
        layers.insert(0, nn.Embedding(11, 8, padding_idx=seed % 11))
    weightless = [nn.Dropout(0.3), nn.Identity(), nn.Flatten()]
    if part == "weightless":
        weightless += [nn.LayerNorm(8, elementwise_affine=False), nn.BatchNorm1d(4, affine=False)]
        weightless[-1].running_mean.normal_()
    net = nn.Sequential(*layers, *weightless)
    with torch.no_grad():
        for layer in layers:
            if getattr(layer, "bias", None) is not None:
                layer.bias.fill_(0.5)
    before = [state_hash(module) for module in weightless]
    learner.init_deep(net)
    biases = [layer.bias.detach().clone() for layer in layers if getattr(layer, "bias", None) is not None]
    padding = [layer.weight[layer.padding_idx].detach().clone() for layer in layers if isinstance(layer, nn.Embedding)]
    changed = [type(m).__name__ for m, old in zip(weightless, before, strict=True) if state_hash(m) != old]
    return {"biases": biases, "padding": padding, "changed": changed}


def _refused_write(error: LearnerError) -> Failed | None:
    """The verdict on code that writes into a parameter while autograd records; None for other errors."""
    if error.reason == "raised" and "leaf" in error.text and "in-place" in error.text:
        return Failed("needs-no-grad", came=f"{error.kinds[0]}: {error.text}")
    return None


def judge_depth(measured: list[list[float]], low: float, high: float, on: str, still_default: str) -> None:
    """Fail unless the median of each layer's std stays within the range."""
    medians = torch.tensor(measured, dtype=torch.float64).quantile(0.5, dim=0)
    if bool(((medians >= low) & (medians <= high)).all()):
        return
    shown = {"layer 1": round(medians[0].item(), 4), "layer 30": float(f"{medians[-1].item():.3g}")}
    details = {"expected": f"medians within {low} and {high}", "came": shown, "on": on}
    if not bool(medians[-1] > 0):
        raise Failed("all-zero", **details)
    steps = (medians[1:] / medians[:-1])[:3]  # later on, biases can hold a shrinking signal up
    factor = steps[torch.isfinite(steps)].log().mean().exp().item() if torch.isfinite(steps).any() else math.inf
    if not math.isfinite(medians[-1].item()) or factor > 1.1:
        raise Failed("explodes", **details)
    if factor < 0.55:
        raise Failed(still_default, **details)
    raise Failed("glorot-shrinks" if 0.6 < factor < 0.8 else "out-of-range", **details)


@DEEP.check("keeps the signal within range over 30 layers of width 256")
def _(session, rng):
    try:
        measured = session.probe(run_deep, 256, list(range(15)), False)
    except LearnerError as error:
        raise _refused_write(error) or error from None
    judge_depth(measured, 0.5, 2, "30 layers of width 256, median of 15 seeds", "default-shrinks")


@DEEP.check("reaches nested layers: 30 blocks of width 64")
def _(session, rng):
    measured = session.probe(run_deep, 64, list(range(41)), True)
    judge_depth(measured, 0.25, 2.5, "30 blocks of width 64, median of 41 seeds", "not-recursive")


@DEEP.check("sets every bias to zero, also where some layers have none")
def _(session, rng):
    for part in ("plain", "no bias"):
        on = "a net whose last Linear has no bias" if part == "no bias" else "biases that were 0.5 before"
        try:
            result = session.probe(run_deep_parts, draw_int(rng, 0, 10**6), part)
        except LearnerError as error:
            if part == "no bias" and error.reason == "raised":
                raise Failed("bias-none", came=f"{error.kinds[0]}: {error.text}", on=on) from None
            raise
        for bias in result["biases"]:
            expect(not bool(bias.any()), "bias-not-zero", expected="zeros", came=bias, on=on)


@DEEP.check("leaves modules without weights alone")
def _(session, rng):
    on = "dropout, LayerNorm and BatchNorm without an affine part"
    try:
        result = session.probe(run_deep_parts, draw_int(rng, 0, 10**6), "weightless")
    except LearnerError as error:
        if error.reason == "raised":
            raise Failed("weight-none", came=f"{error.kinds[0]}: {error.text}", on=on) from None
        raise
    expect(not result["changed"], "touches-weightless", came=result["changed"], on=on)


@DEEP.check("keeps the padding row of an embedding at zero")
def _(session, rng):
    seed = draw_int(rng, 0, 10**6)
    result = session.probe(run_deep_parts, seed, "embedding")
    (row,) = result["padding"]
    on = f"Embedding(11, 8, padding_idx={seed % 11})"
    expect(not bool(row.any()), "padding-row-lost", expected="zeros", came=row, on=on)


# 8.4


def make_zoo(seed: int) -> nn.ModuleDict:
    """Layers to initialise, at several depths, and layers to leave alone."""
    torch.manual_seed(seed)
    return nn.ModuleDict(
        {
            "linear": nn.Linear(120, 24),
            "conv1": nn.Conv1d(30, 12, 9),
            "conv2": nn.Conv2d(24, 8, (3, 5)),
            "conv3": nn.Conv3d(12, 4, 4),
            "deep": nn.Sequential(nn.ReLU(), nn.ModuleDict({"inner": nn.Linear(100, 30), "conv": nn.Conv2d(24, 6, 4)})),
            "grouped": nn.Conv2d(48, 96, 3, groups=4),
            "bare": nn.Sequential(nn.Linear(100, 30, bias=False), nn.Conv1d(30, 9, 9, bias=False)),
            "transposed": nn.ConvTranspose2d(6, 5, 3),
            "embedding": nn.Embedding(10, 6, padding_idx=0),
            "norms": nn.Sequential(nn.BatchNorm2d(5), nn.LayerNorm([4, 3]), nn.GroupNorm(2, 4), nn.PReLU(3)),
            "recurrent": nn.LSTM(5, 4),
            "bilinear": nn.Bilinear(3, 4, 5),
        }
    )


ASKED = ["linear", "conv1", "conv2", "conv3", "deep.1.inner", "deep.1.conv", "grouped", "bare.0", "bare.1"]


def run_keras(learner, seed: int, without_bias: bool) -> dict:
    """Initialise the zoo under a seed, then again under the same; report states, and whether the second is equal."""
    zoo = make_zoo(seed)
    if not without_bias:
        del zoo["bare"]
    before = {key: value.detach().clone() for key, value in zoo.state_dict().items()}
    for repetition in range(2):
        torch.manual_seed(seed + 1)
        learner.keras_init(zoo)
        values = {key: value.detach().clone() for key, value in zoo.state_dict().items()}
        if repetition == 0:
            after = values
    again = all(torch.equal(values[key], after[key]) for key in after)
    return {"before": before, "after": after, "again": again}


def run_keras_alone(learner, seed: int) -> dict:
    """Initialise a Linear that has no parent."""
    torch.manual_seed(seed)
    layer = nn.Linear(100, 30)
    learner.keras_init(layer)
    return {key: value.detach().clone() for key, value in layer.state_dict().items()}


def fans(shape: tuple[int, ...]) -> tuple[int, int]:
    kernel = math.prod(shape[2:])
    return shape[1] * kernel, shape[0] * kernel


def judge_glorot(weight: torch.Tensor, on: str, groups: int = 1) -> None:
    """Fail unless a weight looks drawn from Glorot's uniform distribution."""
    fan_in, fan_out = fans(tuple(weight.shape))
    bound = math.sqrt(6 / (fan_in + fan_out))
    largest, spread = weight.abs().max().item(), weight.std().item() * math.sqrt(3)
    tolerance = 5 * 0.45 / math.sqrt(weight.numel())

    def like(other: float) -> bool:
        return abs(largest / other - 1) < 0.02 and abs(spread / other - 1) < tolerance

    centred = abs(weight.mean().item()) < 5 * bound / math.sqrt(3 * weight.numel())
    if like(bound) and largest <= bound * (1 + 1e-5) and centred:
        return
    details = {"expected": f"uniform within ±{bound:.4f}", "came": f"largest {largest:.4f}", "on": on}
    kernel = fan_in // weight.shape[1]
    near = {
        "still-default": [fan_in**-0.5],
        "kernel-forgotten": [math.sqrt(6 / sum(weight.shape[:2]))] if kernel > 1 else [],
        "one-fan": [math.sqrt(c / fan) for c in (3, 6) for fan in (fan_in, fan_out)],
        "std-as-bound": [bound / math.sqrt(3)],
    }
    if groups > 1:
        counts = [(groups, 1), (1, groups), (groups, groups)]
        near["groups-forgotten"] = [math.sqrt(6 / (fan_in * a + fan_out / b)) for a, b in counts]
    for kind, bounds in near.items():
        if any(like(other) for other in bounds):
            raise Failed(kind, **details)
    if largest > bound * 1.05 and abs(spread / bound - 1) < 2 * tolerance:
        raise Failed("glorot-normal", **details)
    raise Failed("wrong-bound", **details)


def keras_result(session, rng, without_bias: bool) -> dict:
    """Run the probe; tell the two errors that are known."""
    try:
        return session.probe(run_keras, draw_int(rng, 0, 10**6), without_bias)
    except LearnerError as error:
        if error.reason != "raised":
            raise
        refused = _refused_write(error)
        if refused:
            raise refused from None
        if without_bias:
            raise Failed("bias-none", came=f"{error.kinds[0]}: {error.text}", on="layers with bias=False") from None
        raise


@KERAS.check("draws Glorot's weights for Linear and for every convolution")
def _(session, rng):
    result = keras_result(session, rng, False)
    before, after = result["before"], result["after"]
    untouched = [name for name in ASKED[:7] if torch.equal(before[f"{name}.weight"], after[f"{name}.weight"])]
    if untouched:
        on = ", ".join(untouched)
        expect(len(untouched) < 7, "still-default", on=on)
        expect(not all(name.startswith("deep") for name in untouched), "not-recursive", on=on)
        raise Failed("kind-forgotten", on=on)
    for name in ASKED[:6]:
        weight = after[f"{name}.weight"]
        judge_glorot(weight, f"{name}, a weight of shape {tuple(weight.shape)}")


@KERAS.check("sets biases to zero, also where some layers have none")
def _(session, rng):
    for without_bias in (False, True):
        after = keras_result(session, rng, without_bias)["after"]
        for name in ASKED[:7]:
            bias = expect_tensor(after[f"{name}.bias"])
            expect(not bool(bias.any()), "bias-kept", expected="zeros", came=bias, on=f"the bias of {name}")


@KERAS.check("leaves everything else as it was")
def _(session, rng):
    result = keras_result(session, rng, True)
    before, after = result["before"], result["after"]
    own = {f"{name}.{kind}" for name in ASKED for kind in ("weight", "bias")}
    changed = [key for key in before if key not in own and not torch.equal(before[key], after[key])]
    only_transposed = all(key.startswith("transposed") for key in changed)
    expect(not changed, "transposed-touched" if only_transposed else "touches-others", came=", ".join(changed))


@KERAS.check("takes the right fans of a grouped convolution, and reaches the module itself")
def _(session, rng):
    result = keras_result(session, rng, True)
    judge_glorot(result["after"]["grouped.weight"], "Conv2d(48, 96, 3, groups=4)", groups=4)
    for name in ("bare.0", "bare.1"):
        judge_glorot(result["after"][f"{name}.weight"], f"{name}, without a bias")
    alone = session.probe(run_keras_alone, draw_int(rng, 0, 10**6))
    on = "a Linear(100, 30) without a parent"
    expect(not bool(alone["bias"].any()), "root-forgotten", on=on)
    judge_glorot(alone["weight"], on)


@KERAS.check("gives the same values again under the same seed")
def _(session, rng):
    expect(keras_result(session, rng, True)["again"], "builds-on-old-values")


# 8.5


# The worlds: which of the cells (nothing, shapes, init, both repaired) are good.
WORLDS = {
    "neither": ("neither", (False, False, False, False), "someone-must-be-guilty"),
    "shapes": ("shapes", (False, True, False, True), "innocent-accused"),
    "init": ("init", (False, False, True, True), "innocent-accused"),
    "together": ("both", (False, False, False, True), "only-together"),
    "either": ("both", (False, True, True, True), "either-alone"),
}


def run_culprit(learner, errors: list[float], noise_seed: int, seeds: list[int]) -> dict:
    """Let the learner experiment in a world; report the answer and the runs that were made.

    Args:
        errors: the typical error of the four cells: nothing, shapes, init, both repaired.
    """
    runs = []

    def noise(*key: int) -> float:
        generator = torch.Generator().manual_seed(hash((noise_seed, *key)) % (1 << 31))
        return torch.randn((), generator=generator).item()

    def run(init: bool, shapes: bool, seed: int) -> float:
        cell = 2 * bool(init) + bool(shapes)
        runs.append([cell, int(seed)])
        # Part of the noise belongs to the seed: the order of the data is the same in all four cells.
        return errors[cell] * math.exp(0.2 * noise(int(seed)) + 0.15 * noise(int(seed), cell + 1))

    return {"answer": learner.culprit(run, list(seeds)), "runs": runs}


def draw_world(rng: torch.Generator, good: tuple[bool, ...]) -> list[float]:
    """Typical errors of the four cells; a repair that repairs nothing moves the error a little, either way."""
    scale, factor = 10 ** (2 * torch.rand((), generator=rng).item() - 2), draw_int(rng, 8, 14)
    shifts = [0.9 + 0.2 * torch.rand((), generator=rng).item() for _ in range(2)]
    cells = [(1.0, 1.0), (1.0, shifts[0]), (shifts[1], 1.0), (shifts[1], shifts[0])]
    return [scale * a * b / (factor if fine else 1) for (a, b), fine in zip(cells, good, strict=True)]


def judge_world(session, rng, kind: str) -> None:
    truth, good, misconception = WORLDS[kind]
    errors = draw_world(rng, good)
    first, count = draw_int(rng, 0, 1000), draw_int(rng, 5, 8)
    seeds = [first + 7 * number for number in range(count)]
    result = session.probe(run_culprit, errors, draw_int(rng, 0, 10**6), seeds)
    answer = result["answer"]
    on = f"a world with typical errors {', '.join(f'{e:.3g}' for e in errors)} (nothing, shapes, init, both repaired)"
    names = ("nothing repaired", "shapes repaired", "init repaired", "both repaired")
    used = [len({seed for cell, seed in result["runs"] if cell == number}) for number in range(4)]
    missing = [name for name, n in zip(names, used, strict=True) if n == 0]
    expect(not missing, "cell-missing", came=f"never run: {', '.join(missing)}", on=on)
    expect(min(used) >= 3, "too-few-seeds", expected="3 or more a cell", came=f"{min(used)}", on=on)
    known = answer in ("init", "shapes", "both", "neither") if isinstance(answer, str) else False
    expect(known, "not-a-verdict", came=answer)
    expect(answer == truth, misconception, expected=truth, came=answer, on=on)


@CULPRIT.check("runs all four combinations with enough seeds, and names the shapes where they are guilty")
def _(session, rng):
    for _ in range(3):
        judge_world(session, rng, "shapes")


@CULPRIT.check("names the initialisation where it is guilty")
def _(session, rng):
    for _ in range(3):
        judge_world(session, rng, "init")


@CULPRIT.check("names nobody where nothing helps")
def _(session, rng):
    for _ in range(4):
        judge_world(session, rng, "neither")


@CULPRIT.check("sees a pair of repairs that works only together")
def _(session, rng):
    for _ in range(3):
        judge_world(session, rng, "together")


@CULPRIT.check("sees that either repair is enough")
def _(session, rng):
    for _ in range(3):
        judge_world(session, rng, "either")
