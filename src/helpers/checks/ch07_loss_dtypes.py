"""Checks of chapter 7: what dtypes losses take, where they saturate, and what their mean divides by."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..evidence import op_counts
from ..exercise.contract import ANYTHING, Case, Contract, Draw, Fact, Where, shaped
from ..exercise.declare import load_exercises
from ..exercise.expect import expect
from ..exercise.values import is_number

LEGAL, SATURATION, STABLE, SUSPECTS, WEIGHTED = load_exercises(__file__)

F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
I64, I32, I16, U8, BOOL = torch.int64, torch.int32, torch.int16, torch.uint8, torch.bool
NOT_FINITE = Where(lambda came: not came.isfinite().all())


def gradient(value: object, leaf: Tensor) -> Tensor | None:
    """The gradient of the sum of what came; None where it does not reach the leaf."""
    if not (isinstance(value, Tensor) and value.is_floating_point() and value.requires_grad):
        return None
    return torch.autograd.grad(value.sum(), leaf, allow_unused=True)[0]


def loss_and_gradient(function: Callable, logits: Tensor, *rest: Tensor) -> dict:
    leaf = logits.detach().clone().requires_grad_()
    loss = function(leaf, *rest)
    return {"loss": loss, "grad": gradient(loss, leaf)}


def finite_number(came: object, *case: object) -> float:
    came = came.item() if isinstance(came, Tensor) and came.dim() == 0 else came
    expect(is_number(came) and abs(came) < 1e300, message="This should be a finite number.", came=came)
    return float(came)


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# 7.1 make_legal

LOSSES = {
    "bce": F.binary_cross_entropy,
    "bce_with_logits": F.binary_cross_entropy_with_logits,
    "cross_entropy": F.cross_entropy,
    "nll": F.nll_loss,
    "mse": F.mse_loss,
}


class Dtypes(NamedTuple):
    """The dtypes of a pair, and what the loss says to them."""

    prediction: torch.dtype
    target: torch.dtype
    loss: str

    def __repr__(self) -> str:
        return f"{short(self.prediction)} and {short(self.target)} ({self.loss})"


def legal_dtypes(kind: str, first: torch.dtype, second: torch.dtype) -> tuple[torch.dtype, torch.dtype]:
    """The dtypes that the contract asks for, given those of prediction and target."""
    if first == F16 or not first.is_floating_point:
        first = F32
    if kind.startswith("indices"):
        return first, U8 if second == U8 and kind == "indices" else I64
    return (torch.promote_types(first, second),) * 2


def in_dtypes(first: torch.dtype, second: torch.dtype, loss_name: str, prediction: Tensor, target: Tensor) -> Dtypes:
    """Run the loss and its backward on a pair in these dtypes."""
    says, prediction = "trains", prediction.detach().to(first)
    try:
        LOSSES[loss_name](prediction.requires_grad_(first.is_floating_point), target.to(second)).backward()
    except (RuntimeError, ValueError, IndexError) as error:
        says = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:120]}"
    return Dtypes(first, second, says)


def run_legal(learner, loss_name: str, prediction: Tensor, target: Tensor) -> dict | str:
    """Run `make_legal`; report the pair, and whether a gradient reaches the prediction; else the kind of what came."""
    prediction.requires_grad_(prediction.is_floating_point())
    came = learner.make_legal(loss_name, prediction, target)
    if not (isinstance(came, (tuple, list)) and len(came) == 2 and all(isinstance(t, Tensor) for t in came)):
        return type(came).__name__
    connected = not prediction.requires_grad or gradient(came[0], prediction) is not None
    return {"prediction": came[0].detach(), "target": came[1].detach(), "connected": connected}


def read_legal(report: dict | str, *case: object) -> dict:
    expect(isinstance(report, dict), message="Two tensors are expected: (prediction, target).", came=report)
    return {**report, "dtypes": in_dtypes(report["prediction"].dtype, report["target"].dtype, *case)}


def draw_pair(draw: Draw, kind: str, *dtypes: torch.dtype) -> list[Tensor]:
    """Prediction and target, which holds this kind of things."""
    rows, classes = draw(3, 6), draw(7, 9)
    shapes = {"one-hot rows": (rows, classes), "indices": (rows, classes), "indices per position": (rows, classes, 2)}
    prediction, target = torch.rand((2, *shapes.get(kind, (rows,))), generator=draw.rng, dtype=F64)
    if kind in shapes:
        target = torch.randint(classes, (rows, *prediction.shape[2:]), generator=draw.rng)
        target.view(-1)[0] = classes - 1
        target = F.one_hot(target, classes) if kind == "one-hot rows" else target
    pair = zip((prediction, target), dtypes, strict=True)
    return [(numbers if dtype.is_floating_point else numbers.round()).to(dtype) for numbers, dtype in pair]


def kept(name: str, given: Tensor) -> Fact:
    """That a tensor has its values and its shape."""
    floats = given.is_floating_point()
    narrowed = Where(lambda t: floats and t.is_floating_point() and t.dtype != given.dtype and t.shape == given.shape)
    return Fact(name, given, {"narrowed": narrowed, "values-changed": ANYTHING})


def legal_case(draw: Draw, loss_name: str, kind: str, *given: torch.dtype) -> Case:
    pair, right = draw_pair(draw, kind, *given), legal_dtypes(kind, *given)
    told = {"prediction-not-float": Where(lambda came: not came.prediction.is_floating_point)}
    if kind.startswith("indices"):
        told["indices-not-integer"] = Where(lambda came: came.target not in (I64, U8))
        told["bytes-per-position"] = Where(lambda came: kind == "indices per position" and came.target == U8)
    else:
        not_float = "one-hot-not-float" if kind == "one-hot rows" else "labels-not-float"
        told[not_float] = Where(lambda came: not came.target.is_floating_point)
    told |= {
        "half-kept": Where(lambda came: F16 in came),
        "legal-converted": Where(lambda came: any(given[i] == right[i] != came[i] for i in (0, 1))),
        "mixed-floats": Where(lambda came: came.target.is_floating_point and came.prediction != came.target),
        "legal-converted/otherwise": ANYTHING,
    }
    facts = (
        kept("prediction", pair[0]),
        kept("target", pair[1]),
        Fact("dtypes", in_dtypes(*right, loss_name, *pair), told),
        Fact("connected", True, "graph-cut", expected="a gradient for the prediction that was given", came="none"),
    )
    on = f"{loss_name}, prediction {short(given[0])}, {kind} {short(given[1])}"
    return Case(on, loss_name, *pair, facts=facts)


# Of each rung: the loss and what the target holds, with the dtypes of prediction and target.
LEGAL_CASES = {
    "labels become floats where the loss multiplies by them": {
        ("bce", "labels"): [(F32, I64), (F64, U8)],
        ("bce_with_logits", "labels"): [(F32, BOOL), (F64, I32)],
        ("mse", "labels"): [(F32, I64), (BF16, BOOL)],
    },
    "targets that pick a column are indices; a target of the prediction's shape is not": {
        ("cross_entropy", "indices"): [(F32, F32), (F32, F64)],
        ("nll", "indices"): [(F32, I32), (F32, I16)],
        ("cross_entropy", "one-hot rows"): [(F32, I64), (F32, BOOL)],
        ("cross_entropy", "indices per position"): [(F32, I32), (F32, U8)],
    },
    "of two float dtypes the wider is kept, float16 is widened, and integers become predictions": {
        ("mse", "soft targets"): [(F32, F64), (F16, F16), (I32, F64)],
        ("bce", "soft targets"): [(F64, F32), (BF16, F16), (F16, F16)],
        ("bce_with_logits", "soft targets"): [(BF16, F32)],
        ("bce_with_logits", "labels"): [(F16, I64)],
        ("cross_entropy", "indices"): [(F16, I64)],
        ("nll", "indices"): [(F16, I64), (F16, U8)],
        ("cross_entropy", "indices per position"): [(F16, I64)],
        ("cross_entropy", "one-hot rows"): [(F16, F16), (F32, F64)],
        ("mse", "labels"): [(I64, I64)],
    },
    "what was legal stays as it came": {
        ("nll", "indices"): [(F32, U8)],
        ("cross_entropy", "indices"): [(F64, I64)],
        ("bce", "soft targets"): [(F64, F64)],
        ("mse", "soft targets"): [(BF16, BF16)],
        ("cross_entropy", "indices per position"): [(BF16, I64)],
        ("cross_entropy", "one-hot rows"): [(F32, F32)],
    },
}


legal = Contract(LEGAL, ask=run_legal, read=read_legal, rtol=0, atol=0)
for name, rows in LEGAL_CASES.items():
    legal.facts(
        name,
        lambda draw, rows=rows: [legal_case(draw, *row, *given) for row, pairs in rows.items() for given in pairs],
    )


# 7.2 saturation_point


class Point(NamedTuple):
    """A number, and the sigmoid of it in the dtype that was asked for."""

    z: float
    sigmoid: float

    def __repr__(self) -> str:
        return f"{self.z:.6g}, where sigmoid is {self.sigmoid}"


def true_saturation(dtype: torch.dtype) -> float:
    """Halve the interval between 0 and 64 in numbers of the dtype."""
    below, above = torch.tensor(0.0, dtype=dtype), torch.tensor(64.0, dtype=dtype)
    while True:
        middle = (below + above) / 2
        if middle == below or middle == above:
            return float(above)
        below, above = (below, middle) if torch.sigmoid(middle) == 1 else (middle, above)


def point(z: object, dtype: torch.dtype) -> Point:
    z = finite_number(z)
    return Point(z, torch.sigmoid(torch.tensor(z, dtype=F64).to(dtype)).item())


def near(z: float, within: float = 0.05) -> Where:
    return Where(lambda came: abs(came.z - z) <= within)


# One step between the dtype's numbers at its point, and no less than 0.001.
ALLOWED = {F32: 1e-3, F64: 1e-3, F16: 2**-7, BF16: 2**-5}

saturation = Contract(
    SATURATION,
    truth=lambda dtype: near(true_saturation(dtype), ALLOWED[dtype]),
    read=point,
    told={
        "other-end": lambda dtype: Where(lambda came: came.z < 0 or point(-came.z, dtype).sigmoid == 0),
        "one-dtype-for-all": lambda dtype: near(true_saturation(F32) if dtype != F32 else math.nan),
        "eps-formula": lambda dtype: near(-math.log(torch.finfo(dtype).eps / 2) if dtype in (F16, BF16) else math.nan),
        "not-yet-one": lambda dtype: Where(lambda came: came.z < true_saturation(dtype)),
        "not-the-smallest": ANYTHING,
    },
)


def each(*dtypes: torch.dtype) -> Callable[[Draw], list[Case]]:
    return lambda draw: [Case(f"saturation_point({dtype})", dtype) for dtype in dtypes]


saturation.equals("float32 and float64", each(F32, F64))
saturation.equals("float16 and bfloat16", each(F16, BF16))


# 7.3 stable_bce


class LossCalls(TorchFunctionMode):
    """Notes the library's functions that are called while it is active, also from inside a module."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.add(str(getattr(func, "__name__", "")).split(".")[0])
        return func(*args, **(kwargs or {}))


def is_loss(name: str) -> bool:
    return any(word in name for word in ("loss", "cross_entropy", "kl_div"))


def run_bce(learner, logits: Tensor, target: Tensor) -> dict:
    """Run `stable_bce` and its backward; report loss, gradient, and the library losses called on the way.

    A spy sees calls of functions and modules; counting what reaches the backend sees those made from elsewhere.
    """
    report = {}
    with LossCalls() as spy:
        operations = op_counts(lambda: report.update(loss_and_gradient(learner.stable_bce, logits, target)))
    return {**report, "called": ", ".join(sorted(filter(is_loss, {*spy.names, *operations})))}


def true_bce(logits: Tensor, target: Tensor) -> Tensor:
    """The mean loss, computed in float64."""
    z, y = logits.double(), target.double()
    return (torch.logaddexp(z, torch.zeros_like(z)) - z * y).mean().float()


def true_slope(logits: Tensor, target: Tensor) -> Tensor:
    """The gradient of the mean loss, computed in float64."""
    return ((torch.sigmoid(logits.double()) - target.double()) / logits.numel()).float()


def ordinary_logits(draw: Draw) -> Iterator[Case]:
    for kind in ("hard", "soft"):
        shape = (draw(3, 6), 2)
        logits, target = draw.randn(*shape) * 2, torch.rand(shape, generator=draw.rng)
        target = target.round() if kind == "hard" else target
        yield Case(f"{kind} targets, shape {shape}, logits from -6 to 6", logits, target)


def single_logits(what: str, zs: Iterable[float]) -> list[Case]:
    """Each logit with targets of 0, 1 and 0.3, one at a time."""
    pairs = [(z, y) for z in zs for y in (0.0, 1.0, 0.3)]
    return [Case(f"{what} one logit of {z:g}, target {y:g}", torch.tensor([z]), torch.tensor([y])) for z, y in pairs]


bce = Contract(STABLE, ask=run_bce)
EXTREME = [sign * size for size in (17.0, 40.0, 90.0, 1000.0, 10000.0) for sign in (1, -1)]
bce.facts(
    "gives the mean for ordinary logits, hard and soft targets, by hand",
    ordinary_logits,
    Fact("called", "", "library-loss", expected="no loss of the library"),
    Fact(
        "loss",
        true_bce,
        {
            "not-reduced": lambda z, y: shaped(*z.shape),
            "summed": lambda z, y: true_bce(z, y) * z.numel(),
            "sign": lambda z, y: -true_bce(z, y),
            "hard-targets-only": lambda z, y: Where(lambda came: came.dim() == 0 and ((0 < y) & (y < 1)).any()),
        },
    ),
)
bce.facts(
    "stays right up to |z| = 10,000",
    lambda draw: single_logits("the loss of", EXTREME),
    Fact("loss", true_bce, {"overflow": NOT_FINITE, "clamped": shaped()}),
)
bce.facts(
    "has the right gradient up to |z| = 10,000",
    lambda draw: single_logits("the gradient at", [2.0, -2.0, *EXTREME]),
    Fact("grad", true_slope, {"graph-cut": None, "nan-gradient": NOT_FINITE, "gradient-lost": ANYTHING}),
)
bce.facts(
    "has the right gradient at z = 0",
    lambda draw: single_logits("the gradient at", [0.0, -0.0]),
    Fact("grad", true_slope, "kink-at-zero"),
)


# 7.4 best_possible_loss and find_bugs

floor = Contract(
    SUSPECTS,
    "best_possible_loss",
    truth=lambda classes: math.log(math.e + classes - 1) - 1,
    read=finite_number,
    told={
        "no-floor": 0.0,
        "uniform-loss": lambda classes: math.log(classes),
        "wrong-range/from -1 to 1": lambda classes: math.log(math.e**2 + classes - 1) - 2,
        "wrong-range/the worst": lambda classes: math.log(math.e + classes - 1),
        "wrong-range/-1 against 0": lambda classes: math.log(1 / math.e + classes - 1) + 1,
        "wrong-range/the sign": lambda classes: 1 - math.log(math.e + classes - 1),
    },
)
floor.equals(
    "the floor of a double softmax",
    lambda draw: [Case(f"{classes} classes", classes) for classes in (2, 4, 10, draw(11, 2000))],
)

BUGS = {"a", "c", "d", "f"}  # of the notebook's six functions; a test runs them


def run_find_bugs(learner) -> list | str:
    """Run `find_bugs`; report the names in order, or the kind of what came instead of a set."""
    came = learner.find_bugs()
    if not isinstance(came, (set, frozenset, list, tuple)):
        return type(came).__name__
    return sorted(str(name) for name in came)


def verdicts(bugs: Iterable[str]) -> dict[str, str]:
    """What is said of each function; first of those that only look odd."""
    return {name: "a bug" if name in bugs else "no bug" for name in "beacdf"}


def read_bugs(came: list | str) -> dict[str, str]:
    expect(isinstance(came, list), message="A set of names is expected, such as {'a', 'b'}.", came=came)
    unknown = ", ".join(sorted(set(came) - set("abcdef")))
    expect(not unknown, message=f"There is no function named {unknown}.", came=came)
    return verdicts(came)


suspects = Contract(
    SUSPECTS,
    ask=run_find_bugs,
    truth=lambda: verdicts(BUGS),
    read=read_bugs,
    message="",
    told={
        "log-softmax-accused": {"b": ANYTHING},
        "one-hot-accused": {"e": ANYTHING},
        "double-softmax-missed": {"a": ANYTHING},
        "nll-on-probabilities-missed": {"c": ANYTHING},
        "one-unit-missed": {"d": ANYTHING},
        "class-axis-missed": {"f": ANYTHING},
    },
)
suspects.equals("which of the six are bugs", lambda draw: Case("the six functions"))


# 7.5 weighted_cross_entropy


def run_weighted(learner, *case: Tensor) -> dict:
    """Run `weighted_cross_entropy` and its backward; report loss and gradient."""
    return loss_and_gradient(learner.weighted_cross_entropy, *case)


def by_indices(logits: Tensor, one_hot: Tensor, weight: Tensor | None, ignored: Tensor, how: str = "mean") -> Tensor:
    """What class indices give, on the rows that are kept."""
    return F.cross_entropy(logits[~ignored], one_hot[~ignored].argmax(1), weight=weight, reduction=how)


def draw_batch(draw: Draw, left_out: int, dtype: torch.dtype = F32, rows: int = 0) -> Case:
    """A batch with weights that differ much; rows that are left out of int64 targets are blank."""
    rows, classes = rows or draw(9, 12), draw(3, 5)
    labels = torch.arange(rows).remainder(classes)[draw.permutation(rows)]
    weight = torch.linspace(0.2, 3.0, classes)[draw.permutation(classes)]
    ignored = torch.tensor(draw.permutation(rows)) < left_out
    one_hot = F.one_hot(labels, classes).to(dtype)
    if dtype == I64:
        one_hot[ignored] = 0
    on = f"{rows} row(s) of {classes} classes, {left_out} left out, one-hot {short(dtype)}"
    return Case(on, draw.randn(rows, classes) * 2, one_hot, weight, ignored)


weighted = Contract(
    WEIGHTED,
    ask=run_weighted,
    truth=lambda *case: loss_and_gradient(by_indices, *case),
    message="",
    told={
        "divided-by-rows": lambda *case: {"loss": by_indices(*case, "sum") / (~case[3]).sum()},
        "unweighted": lambda x, y, weight, ignored: {"loss": by_indices(x, y, None, ignored)},
        "divided-by-all-weights": lambda *case: {"loss": by_indices(*case, "sum") / case[2].sum()},
        "summed": lambda *case: {"loss": by_indices(*case, "sum")},
        "ignored-counted": lambda *case: {"loss": Where(lambda came: came.dim() == 0 and case[3].any())},
        "wrong-gradient": {"grad": ANYTHING},
    },
    rtol=1e-4,
)
LONG_REFUSED = {"Exception": "one-hot-long"}
weighted.equals(
    "equals the weighted mean of class indices, for float one-hot targets",
    lambda draw: draw_batch(draw, 0),
)
weighted.equals("takes int64 one-hot targets", lambda draw: draw_batch(draw, 0, I64), errors=LONG_REFUSED)
weighted.equals("rows that are left out do not count", lambda draw: draw_batch(draw, 4))
weighted.equals("rows that are left out do not count", lambda draw: draw_batch(draw, 3, I64), errors=LONG_REFUSED)
weighted.facts(
    "is an attached zero with a zero gradient when every row is left out",
    lambda draw: [draw_batch(draw, rows, rows=rows) for rows in (1, draw(3, 6))],
    Fact(
        "loss",
        0.0,
        {
            "nan-when-all-ignored": Where(lambda came: came != came),
            "not-zero-when-all-ignored": Where(lambda came: abs(came) > 0),
        },
    ),
    Fact(
        "grad",
        lambda logits, *rest: torch.zeros_like(logits),
        {"detached-zero": None, "nan-gradient": NOT_FINITE, "not-zero-when-all-ignored": ANYTHING},
        message="The gradient should be zero.",
        atol=0,
    ),
)
