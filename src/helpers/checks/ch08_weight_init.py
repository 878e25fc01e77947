"""Checks of chapter 8: what a layer starts from, how a signal gets through, and who is to blame."""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
from collections.abc import Callable, Iterator
from unittest import mock

import torch
from torch import nn

from ..evidence import state_hash
from ..exercise.contract import ANYTHING, Case, Contract, Draw, Fact, Where
from ..exercise.declare import load_exercises
from ..exercise.expect import expect
from ..measure import state

UNINITIALISED, DENSE, DEEP, KERAS, CULPRIT = load_exercises(__file__)

REFUSED_WRITE = "leaf.*in-place"  # the error of code that writes into a parameter while autograd records


def seeded(**words: str) -> Callable[[Draw], list[Case]]:
    """A case for each kind of module that a probe builds under a seed: the kind and how a learner reads it."""
    return lambda draw: [Case(on, kind, draw.seed()) for kind, on in words.items()]


# 8.1 uninitialised


def make_large(size: int) -> nn.Module:
    """Memory of this size comes fresh from the system, and holds zeros."""
    return nn.ParameterDict({"fresh": torch.Tensor(9_000_000 + size), "zeros": torch.zeros(9)})


def make_bare(size: int) -> nn.Module:
    """Layers as many repositories have them: with a weight that somebody else is expected to fill."""

    def layer(rows: int) -> nn.Module:
        return nn.ParameterDict({"weight": torch.Tensor(rows, 3), "bias": torch.zeros(rows)})

    net = nn.Sequential(nn.Linear(4, size), nn.ModuleList([layer(size), nn.Linear(size, 2), layer(size + 1)]))
    return net.append(nn.utils.skip_init(nn.Linear, size, 3))


def make_clean(size: int) -> nn.Module:
    net = nn.Sequential(nn.Linear(4, size), nn.LSTM(4, size), nn.MultiheadAttention(8, 2), nn.BatchNorm1d(size))
    net.append(nn.Embedding(size, 3, padding_idx=0))
    net.register_parameter("zeros", nn.Parameter(torch.empty(size).zero_()))
    net.register_buffer("nothing", None)
    net.register_buffer("none_of_it", torch.empty(0))
    return net


def make_partly(size: int) -> nn.Module:
    table = torch.zeros(2, size).new_empty(size + 1, 4)
    table[:size] = 0.0
    wide, precise = torch.empty(size, 2, dtype=torch.bfloat16), torch.empty(size, dtype=torch.float64)
    return nn.ParameterDict({"table": table, "wide": wide.zero_(), "precise": precise.normal_()})


def make_buffers(size: int) -> nn.Module:
    floats = {"mean": torch.empty(size), "scale": torch.ones(size), "cache": torch.empty(size)}
    integers = {"count": torch.empty(size, dtype=torch.int64), "small": torch.empty(size, dtype=torch.int32)}
    net = nn.Module()
    for name, buffer in {**floats, **integers, "order": torch.arange(size)}.items():
        net.register_buffer(name, buffer, persistent=name != "cache")
    return net


class Unbuildable(RuntimeError):
    """What the broken constructor raises."""


def make_broken(size: int) -> nn.Module:
    torch.rand(size)
    raise Unbuildable(f"cannot build this at size {size}")


MAKERS = {"bare": make_bare, "large": make_large, "clean": make_clean, "broken": make_broken}
MAKERS |= {"buffers": make_buffers, "partly": make_partly}
LEFT = {  # the names to report, sorted
    "large": ["fresh"],
    "bare": ["1.0.weight", "1.2.weight", "2.bias", "2.weight"],
    "clean": [],
    "partly": ["table"],
    "buffers": ["cache", "count", "mean", "small"],
}


def run_uninitialised(learner, kind: str, size: int, enabled: bool = False, fill: bool = True) -> dict:
    """Run `uninitialised` on a module under the caller's flags; report names, error, and what became of the state."""
    with state.guard():
        torch.use_deterministic_algorithms(enabled, warn_only=enabled)
        torch.utils.deterministic.fill_uninitialized_memory = fill
        flags, drawn = state.snapshot(), torch.get_rng_state()
        names, error = None, "no error"
        try:
            names = learner.uninitialised(lambda: MAKERS[kind](size))
        except Unbuildable as problem:
            error = str(problem)
        leaks = "; ".join(state.leaks(flags))
        kept = torch.equal(drawn, torch.get_rng_state())
    return {"names": names, "error": error, "leaks": leaks, "random state": "as before" if kept else "another one"}


def left_by(kind: str, *case: object) -> list[str]:
    return LEFT[kind]


def sorted_names(report: dict, kind: str, *case: object) -> dict:
    names = report["names"]
    good = isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names)
    expect(good, message="A list of names is expected.", came=names)
    twice = len(set(names)) < len(names) and set(names) == set(LEFT[kind])
    expect(not twice, message="A name is reported twice.", came=names)
    return {**report, "names": sorted(names)}


def last_parts(names: list[str]) -> list[str]:
    return sorted(name.split(".")[-1] for name in names)


def missed(*names: str) -> Callable[..., Where]:
    """One of these names is left out where it should be reported."""
    return lambda kind, *_: Where(lambda came: set(names) & (set(LEFT[kind]) - set(came)))


def reported(*names: str) -> Where:
    """One of these names is reported."""
    return Where(lambda came: set(names) & set(came))


found = Contract(UNINITIALISED, ask=run_uninitialised, read=sorted_names)
NAMES = Fact(
    "names",
    left_by,
    {
        "names-not-dotted": lambda kind, *_: Where(lambda came: last_parts(came) == last_parts(LEFT[kind])),
        "relies-on-luck": missed("fresh", *LEFT["bare"]),
        "wholly-only": missed("table"),
        "buffers-forgotten": missed("mean"),
        "integers-forgotten": missed("count", "small"),
        "not-in-state-dict": missed("cache"),
        "wholly-only/without elements": reported("none_of_it"),
        "reports-initialised/zeros": reported("zeros"),
        "random-is-not-uninitialised": lambda kind, *_: (
            ANYTHING if kind == "clean" else reported("0.weight", "1.1.weight", "1.1.bias")
        ),
        "reports-initialised": ANYTHING,
    },
)


def sized(**words: str) -> Callable[[Draw], list[Case]]:
    """As `seeded`, with a size in place of the seed."""
    return lambda draw: [Case(on, kind, draw(5, 40)) for kind, on in words.items()]


def callers(draw: Draw) -> Iterator[Case]:
    for enabled, fill in ((False, True), (True, True), (False, False), (True, False)):
        on = f"a caller with deterministic algorithms {'on (warn only)' if enabled else 'off'}, fill {fill}"
        yield Case(on, "bare", draw(5, 40), enabled, fill)


found.facts(
    "finds parameters that nobody filled, whatever the memory holds",
    sized(
        large="a large parameter from torch.Tensor(n), fresh from the system",
        bare="a net with torch.Tensor(out, in) and skip_init inside",
    ),
    NAMES,
)
found.facts(
    "reports nothing that is initialised",
    sized(clean="Linear, LSTM, attention, batch norm, an embedding, zeros, a buffer without elements"),
    NAMES,
)
found.facts("finds what is uninitialised in part", sized(partly="a table of which the last row was not filled"), NAMES)
found.facts(
    "finds buffers: floats, integers, and those outside state_dict",
    sized(buffers="a module with six buffers, two of them filled, three of them integers"),
    NAMES,
)
found.facts(
    "leaves flags and random state as they were, whatever they were",
    callers,
    Fact("leaks", "", "flag-left-changed"),
    Fact("names", left_by, "fill-switched-off"),
    Fact("random state", "as before", "random-state-moved"),
)
Contract(UNINITIALISED, ask=run_uninitialised).facts(
    "lets make_module's error through, and restores the state all the same",
    lambda draw: [Case("a make_module that raises", "broken", draw(5, 40), flag, flag) for flag in (False, True)],
    Fact("error", lambda kind, size, *_: f"cannot build this at size {size}", "error-swallowed"),
    Fact("leaks", "", "flag-lost-on-error"),
    Fact("random state", "as before", "flag-lost-on-error"),
)


# 8.2 DenseLayer


@contextlib.contextmanager
def linear_spied() -> Iterator[dict[str, mock.Mock]]:
    """Spy on what nn.Linear is called for."""
    with contextlib.ExitStack() as stack:
        yield {
            name: stack.enter_context(
                mock.patch.object(nn.Linear, name, autospec=True, side_effect=getattr(nn.Linear, name))
            )
            for name in ("__init__", "reset_parameters", "forward")
        }


def build_layers(kind: type, seed: int, sizes: list[int], bias: bool) -> list[nn.Module]:
    """Build a layer from each size to the next, under a seed."""
    torch.manual_seed(seed)
    options = {} if bias else {"bias": False}
    return [kind(a, b, **options) for a, b in itertools.pairwise(sizes)]


def described(layers: list[nn.Module]) -> dict:
    """What layers hold, from coarse to fine."""
    states = [layer.state_dict() for layer in layers]
    tensors = [getattr(layer, name, "no attribute of this name") for layer in layers for name in ("weight", "bias")]
    return {
        "keys": [sorted(values) for values in states],
        "shapes": [{key: tuple(value.shape) for key, value in values.items()} for values in states],
        "unfilled parameters": [key for values in states for key, value in values.items() if value.isnan().any()],
        "first weight": tensors[0],
        "first bias": tensors[1],
        "second layer": tensors[2:],
        "trained parameters": [
            sorted(name for name, p in layer.named_parameters() if p.requires_grad) for layer in layers
        ],
    }


def run_dense(learner, seed: int, sizes: list[int], bias: bool, x: torch.Tensor | None = None) -> dict | None:
    """Build DenseLayers under a seed and feed the first; report them, its output, and what nn.Linear did for them."""
    with state.guard(), linear_spied() as spies:
        # Uninitialised memory becomes NaN, so that it cannot look like weights.
        torch.use_deterministic_algorithms(True, warn_only=True)
        layers = build_layers(learner.DenseLayer, seed, sizes, bias)
        if not all(isinstance(layer, nn.Module) for layer in layers):
            return None
        output = None if x is None else layers[0](x).detach()
    taken = [f"nn.Linear.{name}" for name, spy in spies.items() if spy.called]
    taken += ["an nn.Linear inside" for layer in layers for part in layer.modules() if isinstance(part, nn.Linear)]
    return {"work left to nn.Linear": taken, "output": output, **described(layers)}


def run_dense_kind(learner, dtype: torch.dtype, device: str) -> list[str]:
    """Build a DenseLayer of a dtype on a device; report both for every parameter."""
    layer = learner.DenseLayer(5, 4, device=device, dtype=dtype)
    return [f"{name}: {p.dtype} on {p.device.type}" for name, p in sorted(layer.named_parameters())]


def a_module(report: dict | None, *case: object) -> dict:
    expect(report is not None, message="DenseLayer should be an nn.Module.")
    return report


def within(tensor: torch.Tensor, fan: int) -> torch.Tensor:
    return nn.init.uniform_(tensor, -(fan**-0.5), fan**-0.5)


def after_bias(weight: torch.Tensor) -> torch.Tensor:
    within(torch.empty(len(weight)), weight.shape[1])
    return within(weight, weight.shape[1])


def first_weight(init: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., dict]:
    """The mimic whose first weight is drawn by this function."""

    def mimic(seed: int, sizes: list[int], *case: object) -> dict:
        torch.manual_seed(seed)
        weight = init(torch.empty(sizes[1], sizes[0]))
        return {"first weight": Where(lambda came: torch.allclose(came, weight, rtol=1e-4, atol=1e-7))}

    return mimic


def in_range(seed: int, sizes: list[int], *case: object) -> dict:
    """A first weight with the bound and the spread of nn.Linear's, whatever its bits."""
    bound, std = sizes[0] ** -0.5, (3 * sizes[0]) ** -0.5
    return {"first weight": Where(lambda came: came.abs().max() <= bound * 1.001 and 0.85 < came.std() / std < 1.15)}


dense = Contract(
    DENSE,
    ask=run_dense,
    truth=lambda *case: {"work left to nn.Linear": [], **described(build_layers(nn.Linear, *case))},
    read=a_module,
    told={
        "wraps-linear": {"work left to nn.Linear": ANYTHING},
        "not-registered": {"keys": ANYTHING, "trained parameters": ANYTHING},
        "transposed": lambda seed, sizes, *_: {"shapes": Where(lambda came: came[0]["weight"] == tuple(sizes[:2]))},
        "uninitialised": {"unfilled parameters": ANYTHING},
        "fan-out": first_weight(lambda weight: within(weight, weight.shape[0])),
        "kaiming-gain": first_weight(nn.init.kaiming_uniform_),
        "glorot": first_weight(nn.init.xavier_uniform_),
        "bias-first": first_weight(after_bias),
        "other-draws": in_range,
        "other-distribution": {"first weight": ANYTHING},
        "bias-zero": {"first bias": Where(lambda came: not came.any())},
        "bias-bound": {"first bias": ANYTHING},
        "extra-draws": {"second layer": ANYTHING},
    },
    message="Where it differs: {}.",
    rtol=0,
    atol=0,
)


def two_layers(draw: Draw) -> Case:
    first = draw(20, 40)
    sizes = [first, first + draw(11, 30), draw(5, 9)]
    on = f"DenseLayer({sizes[0]}, {sizes[1]}), then DenseLayer({sizes[1]}, {sizes[2]}), under one seed"
    return Case(on, draw.seed(), sizes, True)


def other_than(*shape: int) -> Where:
    return Where(lambda came: came.shape != shape)


def inputs(draw: Draw, bias: bool) -> Iterator[Case]:
    for leading in ((3,), (), (2, 4), (0,)):
        sizes = [draw(5, 9), 12]
        x = draw.randn(*leading, sizes[0])
        yield Case(f"an input of shape {tuple(x.shape)}, bias={bias}", draw.seed(), sizes, bias, x)


dense.equals(
    "starts with the same bits as nn.Linear under the same seed", lambda draw: [two_layers(draw) for _ in range(2)]
)
dense.equals(
    "has no bias with bias=False: None, and no key",
    lambda draw: Case("bias=False", draw.seed(), [draw(5, 9), 12, 7], False),
    told={
        "bias-key": {"keys": ANYTHING, "first bias": ANYTHING},
        "extra-draws": {"first weight": ANYTHING, "second layer": ANYTHING},
    },
)
for with_bias, told in ((True, "leading-dimensions"), (False, "bias-none-used")):
    dense.facts(
        "computes what nn.Linear computes, for any leading dimensions",
        lambda draw, bias=with_bias: inputs(draw, bias),
        Fact("work left to nn.Linear", [], "wraps-linear", expected="none"),
        Fact(
            "output",
            lambda seed, sizes, bias, x: build_layers(nn.Linear, seed, sizes, bias)[0](x).detach(),
            {"leading-dimensions": lambda seed, sizes, bias, x: other_than(*x.shape[:-1], sizes[1])},
            rtol=1e-5,
            atol=1e-6,
        ),
        errors={"^(?!NotImplementedError ).*BaseException": told},
    )
Contract(
    DENSE,
    ask=run_dense_kind,
    truth=lambda dtype, device: [f"{name}: {dtype} on {device}" for name in ("bias", "weight")],
    told={"dtype-or-device-ignored": ANYTHING},
).equals(
    "has the dtype and the device that were asked for",
    lambda draw: [
        Case(f"dtype={dtype}, device={device!r}", dtype, device)
        for dtype, device in ((torch.float64, "cpu"), (torch.bfloat16, "cpu"), (torch.float32, "meta"))
    ],
)


# 8.3 init_deep


def run_deep(learner, width: int, seeds: list[int], nested: bool) -> dict:
    """Initialise a net of 30 layers for each seed; report the medians of the std after each ReLU, in short."""
    measured = []
    for seed in seeds:
        torch.manual_seed(seed)
        blocks = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(30)]
        net = nn.Sequential(*(blocks if nested else itertools.chain(*blocks)))
        x, stds = torch.randn(48, width), []
        learner.init_deep(net)
        with torch.no_grad():
            for module in net.modules():
                if isinstance(module, (nn.Linear, nn.ReLU)):
                    x = module(x)
                if isinstance(module, nn.ReLU):
                    stds.append(x.std().item())
        measured.append(stds)
    medians = torch.tensor(measured, dtype=torch.float64).quantile(0.5, dim=0)
    steps = (medians[1:] / medians[:-1])[:3]  # later on, biases can hold a shrinking signal up
    steps = steps[steps.isfinite()]
    signal = {
        "layer 1": medians[0],
        "layer 30": medians[-1],
        "smallest": medians.min(),
        "largest": medians.max(),
        "factor a layer": steps.log().mean().exp() if len(steps) else math.inf,
    }
    return {"signal": {name: float(f"{number:.4g}") for name, number in signal.items()}}


def signal_within(low: float, high: float, still_default: str) -> Fact:
    return Fact(
        "signal",
        Where(lambda came: came["smallest"] >= low and came["largest"] <= high),
        {
            "all-zero": Where(lambda came: not came["layer 30"] > 0),
            "explodes": Where(lambda came: math.isinf(came["layer 30"]) or came["factor a layer"] > 1.1),
            still_default: Where(lambda came: came["factor a layer"] < 0.55),
            "glorot-shrinks": Where(lambda came: 0.6 < came["factor a layer"] < 0.8),
            "out-of-range": ANYTHING,
        },
        expected=f"each layer's median within {low} and {high}",
    )


def run_parts(learner, part: str, seed: int) -> dict:
    """Initialise a small net with one special part; report biases, the embedding, and what changed elsewhere."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4), nn.Dropout(0.3), nn.Identity(), nn.Flatten())
    for layer in (net[0], net[2]):
        nn.init.constant_(layer.bias, 0.5)
    if part == "bare":
        net.append(nn.Linear(4, 4, bias=False))
    if part == "embedding":
        net.insert(0, nn.Embedding(11, 8, padding_idx=seed % 11))
    if part == "weightless":
        net.extend([nn.LayerNorm(8, elementwise_affine=False), nn.BatchNorm1d(4, affine=False)])
        net[-1].running_mean.normal_()
    weightless = [module for module in net if not list(module.parameters())]
    layers, before = list(net), [state_hash(module) for module in weightless]
    learner.init_deep(net)
    biases = [layer.bias for layer in layers if isinstance(layer, nn.Linear) and layer.bias is not None]
    rows = [layer.weight[seed % 11] for layer in layers if isinstance(layer, nn.Embedding)]
    return {
        "biases": [bias for bias in biases if bias.any()],
        "padding": [row for row in rows if row.any()],
        "changed": [type(m).__name__ for m, old in zip(weightless, before, strict=True) if state_hash(m) != old],
    }


deep = Contract(DEEP, ask=run_deep, errors={REFUSED_WRITE: "needs-no-grad"})
parts = Contract(DEEP, ask=run_parts)

deep.facts(
    "keeps the signal within range over 30 layers of width 256",
    lambda draw: Case("30 layers of width 256, median of 15 seeds", 256, list(range(15)), False),
    signal_within(0.5, 2, "default-shrinks"),
)
deep.facts(
    "reaches nested layers: 30 blocks of width 64",
    lambda draw: Case("30 blocks of width 64, median of 41 seeds", 64, list(range(41)), True),
    signal_within(0.25, 2.5, "not-recursive"),
)
parts.facts(
    "sets every bias to zero, also where some layers have none",
    seeded(plain="biases that were 0.5 before", bare="a net whose last Linear has no bias"),
    Fact("biases", [], "bias-not-zero", expected="zeros"),
    errors={"BaseException": "bias-none"},
)
parts.facts(
    "leaves modules without weights alone",
    seeded(weightless="dropout, LayerNorm and BatchNorm without an affine part"),
    Fact("changed", [], "touches-weightless", expected="no module changed"),
    errors={"BaseException": "weight-none"},
)


def padded_embedding(draw: Draw) -> Case:
    seed = draw.seed()
    return Case(f"Embedding(11, 8, padding_idx={seed % 11})", "embedding", seed)


parts.facts(
    "keeps the padding row of an embedding at zero",
    padded_embedding,
    Fact("padding", [], "padding-row-lost", expected="zeros"),
)


# 8.4 keras_init

ASKED = {  # the weights to initialise, with their shapes; those of the zoo, and that of a Linear alone
    "linear.weight": (24, 120),
    "conv1.weight": (12, 30, 9),
    "conv2.weight": (8, 24, 3, 5),
    "conv3.weight": (4, 12, 4, 4, 4),
    "deep.1.inner.weight": (30, 100),
    "deep.1.conv.weight": (6, 24, 4, 4),
    "grouped.weight": (96, 12, 3, 3),
    "bare.0.weight": (30, 100),
    "bare.1.weight": (9, 30, 9),
    "weight": (30, 100),
}
BIASES = [key.removesuffix("weight") + "bias" for key in ASKED]


def make_zoo() -> nn.ModuleDict:
    """Layers to initialise, at several depths, and layers to leave alone."""
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


def run_keras(learner, kind: str, seed: int) -> dict:
    """Initialise the zoo, or a Linear alone, twice under one seed; report what has changed, and its weights."""
    torch.manual_seed(seed)
    module = nn.Linear(100, 30) if kind == "alone" else make_zoo()
    if kind == "biased":
        del module["bare"]
    before, after = copy.deepcopy(module.state_dict()), []
    for _ in range(2):
        torch.manual_seed(seed + 1)
        learner.keras_init(module)
        now = module.state_dict()
        after.append({key: now.get(key, torch.tensor(math.nan)).clone() for key in before})
    first, second = after
    changed = [key for key in before if not torch.equal(before[key], first[key])]
    again = all(torch.equal(first[key], second[key]) for key in first)
    return {
        "not reached": [key for key in before if key in ASKED and key not in changed],
        "others": [key for key in changed if key not in ASKED and key not in BIASES],
        "biases": {key: f"up to {first[key].abs().max():.4g}" for key in BIASES if key in first and first[key].any()},
        "again": "the same values" if again else "other values",
        **{key: in_short(first[key]) for key in before if key in ASKED},
    }


def in_short(weight: torch.Tensor) -> dict[str, float]:
    numbers = {"largest": weight.abs().max(), "std": weight.std(), "mean": weight.mean()}
    return {name: round(number.item(), 7) for name, number in numbers.items()}


def glorot(name: str, shape: tuple[int, ...], groups: int = 1) -> Fact:
    """The weight of this name is drawn from Glorot's uniform distribution."""
    kernel, count = math.prod(shape[2:]), math.prod(shape)
    fan_in, fan_out = shape[1] * kernel, shape[0] * kernel
    bound = math.sqrt(6 / (fan_in + fan_out))
    tolerance = 2.25 / math.sqrt(count)
    no_kernel = [math.sqrt(6 / sum(shape[:2]))] if kernel > 1 else []
    other_groups = [(groups, 1), (1, groups), (groups, groups)] if groups > 1 else []

    def spread(came: dict, bound: float) -> float:
        """How far the standard deviation is from that of U(-bound, bound)."""
        return abs(came["std"] * math.sqrt(3) / bound - 1)

    def uniform(*bounds: float) -> Where:
        return Where(
            lambda came: any(abs(came["largest"] / b - 1) < 0.02 and spread(came, b) < tolerance for b in bounds)
        )

    def as_wanted(came: dict) -> bool:
        centred = abs(came["mean"]) < 5 * bound / math.sqrt(3 * count)
        return uniform(bound).holds(came) and came["largest"] <= bound * (1 + 1e-5) and centred

    told = {
        "still-default": uniform(fan_in**-0.5),
        "kernel-forgotten": uniform(*no_kernel),
        "one-fan": uniform(*(math.sqrt(c / fan) for c in (3, 6) for fan in (fan_in, fan_out))),
        "std-as-bound": uniform(bound / math.sqrt(3)),
        "groups-forgotten": uniform(*(math.sqrt(6 / (fan_in * a + fan_out / b)) for a, b in other_groups)),
        "glorot-normal": Where(lambda came: came["largest"] > bound * 1.05 and spread(came, bound) < 2 * tolerance),
        "wrong-bound": ANYTHING,
    }
    message = f"{name}, of shape {shape}:"
    return Fact(name, Where(as_wanted), told, message, expected=f"uniform within ±{bound:.4f}")


GLOROT = {name: glorot(name, shape, 4 if name == "grouped.weight" else 1) for name, shape in ASKED.items()}


def all_in(part: str) -> Where:
    """All keys are of this part of the zoo."""
    return Where(lambda came: all(key.startswith(part) for key in came))


keras = Contract(KERAS, ask=run_keras, errors={REFUSED_WRITE: "needs-no-grad"})
bare = Contract(KERAS, ask=run_keras, errors={REFUSED_WRITE: "needs-no-grad", "BaseException": "bias-none"})
with_bare = seeded(all="layers of all kinds, two of them with bias=False")
missed_all = Where(lambda came: len(came) == 7)

keras.facts(
    "draws Glorot's weights for Linear and for every convolution",
    seeded(biased="layers of all kinds"),
    Fact(
        "not reached",
        [],
        {"still-default": missed_all, "not-recursive": all_in("deep"), "kind-forgotten": ANYTHING},
        expected="no weight left as it was",
    ),
    *(GLOROT[key] for key in ASKED if key.startswith(("linear", "conv", "deep"))),
)
bare.facts(
    "sets biases to zero, also where some layers have none",
    seeded(biased="layers of all kinds", all="layers of all kinds, two of them with bias=False"),
    Fact("biases", {}, "bias-kept", expected="zeros"),
)
bare.facts(
    "leaves everything else as it was",
    with_bare,
    Fact(
        "others",
        [],
        {"transposed-touched": all_in("transposed"), "touches-others": ANYTHING},
        expected="nothing else changed",
    ),
)
bare.facts(
    "takes the right fans of a grouped convolution, and reaches the module itself",
    with_bare,
    *(GLOROT[key] for key in ASKED if key.startswith(("grouped", "bare"))),
)
keras.facts(
    "takes the right fans of a grouped convolution, and reaches the module itself",
    seeded(alone="a Linear(100, 30) without a parent"),
    Fact("biases", {}, "root-forgotten", expected="zeros"),
    GLOROT["weight"],
)
bare.facts(
    "gives the same values again under the same seed",
    with_bare,
    Fact("again", "the same values", "builds-on-old-values"),
)


# 8.5 culprit

VERDICTS = ("init", "shapes", "both", "neither")
CELLS = ("nothing repaired", "shapes repaired", "init repaired", "both repaired")


def run_culprit(learner, errors: list[float], noise_seed: int, seeds: list[int]) -> dict:
    """Let the learner experiment in a world with these typical errors; report the answer, and which cells were run."""
    used = [set() for _ in CELLS]

    def noise(*key: int) -> float:
        generator = torch.Generator().manual_seed(hash((noise_seed, *key)) % (1 << 31))
        return torch.randn((), generator=generator).item()

    def run(init: bool, shapes: bool, seed: int) -> float:
        cell = 2 * bool(init) + bool(shapes)
        used[cell].add(int(seed))
        # Part of the noise belongs to the seed: the order of the data is the same in all four cells.
        return errors[cell] * math.exp(0.2 * noise(int(seed)) + 0.15 * noise(int(seed), cell + 1))

    answer = learner.culprit(run, list(seeds))
    never = ", ".join(name for name, seeds in zip(CELLS, used, strict=True) if not seeds)
    return {"answer": answer, "missing": never and f"never run: {never}", "fewest seeds": min(map(len, used))}


def guilty(errors: list[float], *case: object) -> str:
    """The right verdict on a world."""
    shapes, init, both = (error <= errors[0] / 2 for error in errors[1:])
    if init != shapes:
        return "init" if init else "shapes"
    return "both" if both else "neither"


def world(draw: Draw, good: tuple[bool, ...]) -> Case:
    """Typical errors of the four cells; a repair that repairs nothing moves the error a little, either way."""
    scale, factor = 10 ** draw.real(-2, 0), draw(8, 14)
    shapes, init = draw.real(0.9, 1.1), draw.real(0.9, 1.1)
    shifts = (1.0, shapes, init, init * shapes)
    errors = [scale * shift / (factor if fine else 1) for shift, fine in zip(shifts, good, strict=True)]
    first = draw(0, 1000)
    seeds = [first + 7 * number for number in range(draw(5, 8))]
    on = f"a world with typical errors {', '.join(f'{e:.3g}' for e in errors)} (nothing, shapes, init, both repaired)"
    return Case(on, errors, draw.seed(), seeds)


culprit = Contract(CULPRIT, ask=run_culprit)


def judges_worlds(name: str, told: str, good: tuple[bool, ...], count: int = 3) -> None:
    """Add a rung: the verdict is right in some worlds in which these cells are good."""
    culprit.facts(
        name,
        lambda draw: [world(draw, good) for _ in range(count)],
        Fact("missing", "", "cell-missing"),
        Fact("fewest seeds", Where(lambda came: came >= 3), "too-few-seeds", expected="3 or more a cell"),
        Fact("answer", guilty, {"not-a-verdict": Where(lambda came: came not in VERDICTS), told: ANYTHING}),
    )


judges_worlds(
    "runs all four combinations with enough seeds, and names the shapes where they are guilty",
    "innocent-accused",
    good=(False, True, False, True),
)
judges_worlds("names the initialisation where it is guilty", "innocent-accused", good=(False, False, True, True))
judges_worlds("names nobody where nothing helps", "someone-must-be-guilty", good=(False,) * 4, count=4)
judges_worlds("sees a pair of repairs that works only together", "only-together", good=(False, False, False, True))
judges_worlds("sees that either repair is enough", "either-alone", good=(False, True, True, True))
