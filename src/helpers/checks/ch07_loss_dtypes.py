"""Checks of chapter 7: what dtypes losses take, where they saturate, and what their mean divides by."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

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


def legal_dtypes(kind: str, first: torch.dtype, second: torch.dtype) -> tuple[torch.dtype, torch.dtype]:
    """The dtypes that the contract asks for, given those of prediction and target."""
    if first == F16 or not first.is_floating_point:
        first = F32
    if kind.startswith("indices"):
        return first, U8 if second == U8 and kind == "indices" else I64
    return (torch.promote_types(first, second),) * 2


def refusal(loss_name: str, prediction: Tensor, target: Tensor, dtypes: tuple[torch.dtype, torch.dtype]) -> str:
    """What the loss or its backward says against a pair in these dtypes; an empty text where it trains."""
    prediction = prediction.detach().to(dtypes[0])
    try:
        LOSSES[loss_name](prediction.requires_grad_(dtypes[0].is_floating_point), target.to(dtypes[1])).backward()
    except (RuntimeError, ValueError, IndexError) as error:
        return f"{loss_name} says: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:120]}"
    return ""


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
    return {**report, "dtypes": (report["prediction"].dtype, report["target"].dtype)}


def draw_pair(draw: Draw, kind: str, *dtypes: torch.dtype) -> list[Tensor]:
    """Prediction and target, which holds this kind of things."""
    rows, classes = draw(3, 6), draw(7, 9)
    more = {"one-hot rows": [classes], "indices": [classes], "indices per position": [classes, 2]}.get(kind, [])
    prediction, target = torch.rand((2, rows, *more), generator=draw.rng, dtype=F64)
    if more:
        target = torch.randint(classes, (rows, *more[1:]), generator=draw.rng)
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
    picks = kind.startswith("indices")

    def converted(came: tuple) -> bool:
        return any(given[i] == right[i] != came[i] for i in (0, 1))

    told = {
        "prediction-not-float": Where(lambda came: not came[0].is_floating_point),
        "indices-not-integer": Where(lambda came: picks and came[1] not in (I64, U8)),
        "bytes-per-position": Where(lambda came: kind == "indices per position" and came[1] == U8),
        "one-hot-not-float": Where(lambda came: kind == "one-hot rows" and not came[1].is_floating_point),
        "labels-not-float": Where(lambda came: not picks and not came[1].is_floating_point),
        "half-kept": Where(lambda came: F16 in came),
        "mixed-floats": Where(lambda came: not picks and came[0] != came[1] and not converted(came)),
        "legal-converted": ANYTHING,
    }
    facts = (
        kept("prediction", pair[0]),
        kept("target", pair[1]),
        Fact("dtypes", right, told, message=lambda came: refusal(loss_name, *pair, came)),
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


def true_saturation(dtype: torch.dtype) -> float:
    """Halve the interval between 0 and 64 in numbers of the dtype."""
    below, above = torch.tensor(0.0, dtype=dtype), torch.tensor(64.0, dtype=dtype)
    while True:
        middle = (below + above) / 2
        if middle == below or middle == above:
            return float(above)
        below, above = (below, middle) if torch.sigmoid(middle) == 1 else (middle, above)


# One step between the dtype's numbers at its point, and no less than 0.001.
ALLOWED = {F32: 1e-3, F64: 1e-3, F16: 2**-7, BF16: 2**-5}


def saturation_of(dtype: torch.dtype) -> Case:
    point, of_float32 = true_saturation(dtype), true_saturation(F32)
    by_formula = -math.log(torch.finfo(dtype).eps / 2)

    def sigmoid(z: float) -> float:
        return torch.sigmoid(torch.tensor(z, dtype=F64).to(dtype)).item()

    told = {
        "other-end": Where(lambda z: z < 0 or sigmoid(-z) == 0),
        "one-dtype-for-all": Where(lambda z: dtype != F32 and abs(z - of_float32) < 0.05),
        "eps-formula": Where(lambda z: dtype in (F16, BF16) and abs(z - by_formula) < 0.05),
        "not-yet-one": Where(lambda z: z < point),
        "not-the-smallest": ANYTHING,
    }
    near = Where(lambda z: abs(z - point) <= ALLOWED[dtype])
    fact = Fact("z", near, told, came=lambda z: f"{z:.6g}, where sigmoid is {sigmoid(z)}")
    return Case(f"saturation_point({dtype})", dtype, facts=[fact])


saturation = Contract(SATURATION, read=lambda came, dtype: {"z": finite_number(came)})
saturation.facts("float32 and float64", lambda draw: map(saturation_of, (F32, F64)))
saturation.facts("float16 and bfloat16", lambda draw: map(saturation_of, (F16, BF16)))


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
    z, y = logits.double(), target.double()
    return (torch.logaddexp(z, torch.zeros_like(z)) - z * y).mean().float()


def true_slope(logits: Tensor, target: Tensor) -> Tensor:
    """The gradient of the mean loss."""
    return ((torch.sigmoid(logits.double()) - target.double()) / logits.numel()).float()


def ordinary_logits(draw: Draw) -> Iterator[Case]:
    for kind in ("hard", "soft"):
        shape = (draw(3, 6), 2)
        logits, target = draw.randn(*shape) * 2, torch.rand(shape, generator=draw.rng)
        target = target.round() if kind == "hard" else target
        yield Case(f"{kind} targets, shape {shape}, logits from -6 to 6", logits, target)


def single_logits(*zs: float) -> Callable[[Draw], list[Case]]:
    """Each logit with targets of 0, 1 and 0.3, one at a time."""
    pairs = [(z, y) for z in zs for y in (0.0, 1.0, 0.3)]
    return lambda draw: [
        Case(f"one logit of {z:g}, target {y:g}", torch.tensor([z]), torch.tensor([y])) for z, y in pairs
    ]


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
    single_logits(*EXTREME),
    Fact("loss", true_bce, {"overflow": NOT_FINITE, "clamped": shaped()}),
)
bce.facts(
    "has the right gradient up to |z| = 10,000",
    single_logits(2.0, -2.0, *EXTREME),
    Fact("grad", true_slope, {"graph-cut": None, "nan-gradient": NOT_FINITE, "gradient-lost": ANYTHING}),
)
bce.facts(
    "has the right gradient at z = 0",
    single_logits(0.0, -0.0),
    Fact("grad", true_slope, "kink-at-zero"),
)


# 7.4 best_possible_loss and find_bugs


def loss_at(lead: float) -> Callable[[int], float]:
    """The loss where the right class's logit leads all others by so much."""
    return lambda classes: math.log(math.exp(lead) + classes - 1) - lead


floor = Contract(
    SUSPECTS,
    "best_possible_loss",
    truth=loss_at(1),
    read=finite_number,
    told={
        "no-floor": 0.0,
        "uniform-loss": loss_at(0),
        "wrong-range/from -1 to 1": loss_at(2),
        "wrong-range/-1 against 0": loss_at(-1),
        "wrong-range/the worst": lambda classes: loss_at(1)(classes) + 1,
        "wrong-range/the sign": lambda classes: -loss_at(1)(classes),
    },
)
floor.equals(
    "the floor of a double softmax",
    lambda draw: [Case(f"{classes} classes", classes) for classes in (2, 4, 10, draw(11, 2000))],
)


def run_find_bugs(learner) -> list | str:
    """Report the names in order, or the kind of what came instead of a set."""
    came = learner.find_bugs()
    good = isinstance(came, (set, frozenset, list, tuple))
    return sorted(map(str, came)) if good else type(came).__name__


def read_bugs(came: list | str) -> dict[str, bool]:
    expect(isinstance(came, list), message="A set of names is expected, such as {'a', 'b'}.", came=came)
    unknown = ", ".join(sorted(set(came) - set("abcdef")))
    expect(not unknown, message=f"There is no function named {unknown}.", came=came)
    return {name: name in came for name in "abcdef"}


# The notebook's six functions, with what a wrong verdict tells; a test runs them.
NO_BUGS = {"b": "log-softmax-accused", "e": "one-hot-accused"}
BUGS = {
    "a": "double-softmax-missed",
    "c": "nll-on-probabilities-missed",
    "d": "one-unit-missed",
    "f": "class-axis-missed",
}
suspects = Contract(SUSPECTS, ask=run_find_bugs, read=read_bugs)
suspects.facts(
    "which of the six are bugs",
    lambda draw: Case("the six functions"),
    *(Fact(name, name in BUGS, told, expected="", came="") for name, told in {**NO_BUGS, **BUGS}.items()),
)


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
    errors = {"Exception": "one-hot-long"} if dtype == I64 else {}
    return Case(on, draw.randn(rows, classes) * 2, one_hot, weight, ignored, errors=errors)


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
weighted.equals(
    "equals the weighted mean of class indices, for float one-hot targets",
    lambda draw: draw_batch(draw, 0),
)
weighted.equals("takes int64 one-hot targets", lambda draw: draw_batch(draw, 0, I64))
weighted.equals("rows that are left out do not count", lambda draw: [draw_batch(draw, 4), draw_batch(draw, 3, I64)])
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
