"""Checks of chapter 7: what dtypes losses take, where they saturate, and what their mean divides by."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from ..evidence import op_counts
from ..exercise.declare import Failed, load_exercises
from ..exercise.expect import draw_int, expect, expect_close
from ..exercise.wire import LearnerError

LEGAL, SATURATION, STABLE, SUSPECTS, WEIGHTED = load_exercises(__file__)

# 7.1


_F16, _BF16, _F32, _F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
_I64, _I32, _U8, _BOOL = torch.int64, torch.int32, torch.uint8, torch.bool
_LOSSES = {
    "bce": F.binary_cross_entropy,
    "bce_with_logits": F.binary_cross_entropy_with_logits,
    "cross_entropy": F.cross_entropy,
    "nll": F.nll_loss,
    "mse": F.mse_loss,
}


def run_legal(learner, loss_name: str, prediction: torch.Tensor, target: torch.Tensor) -> dict:
    """Run `make_legal`; report what came, and whether a gradient reaches the prediction that was given."""
    if prediction.is_floating_point():
        prediction.requires_grad_()
    came = learner.make_legal(loss_name, prediction, target)
    pair = isinstance(came, (tuple, list)) and len(came) == 2 and all(isinstance(t, torch.Tensor) for t in came)
    if not pair:
        return {"pair": False, "came": type(came).__name__}
    connected = True
    if prediction.requires_grad:
        connected = came[0].requires_grad and came[0].is_floating_point()
        if connected:
            (grad,) = torch.autograd.grad(came[0].sum(), prediction, allow_unused=True)
            connected = grad is not None
    return {"pair": True, "prediction": came[0].detach(), "target": came[1].detach(), "connected": connected}


def draw_case(rng: torch.Generator, loss_name: str, dtypes: tuple, kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw prediction and target; kind is "labels", "soft", "indices", "maps" (indices per position) or "one-hot"."""
    rows, classes = draw_int(rng, 3, 6), draw_int(rng, 7, 9)
    if kind in ("indices", "one-hot"):
        shape = (rows, classes)
    else:
        shape = (rows, classes, 2) if kind == "maps" else (rows,)
    prediction = torch.rand(shape, generator=rng, dtype=_F64) * 0.8 + 0.1
    if not dtypes[0].is_floating_point:
        prediction = torch.randint(0, 2, shape, generator=rng)
    if kind == "labels":
        target = torch.randint(0, 2, shape, generator=rng)
    elif kind == "soft":
        target = torch.rand(shape, generator=rng, dtype=_F64)
    else:
        index_shape = (rows, 2) if kind == "maps" else (rows,)
        target = torch.randint(0, classes, index_shape, generator=rng)
        target.view(-1)[0] = classes - 1
        if kind == "one-hot":
            target = F.one_hot(target, classes)
    return prediction.to(dtypes[0]), target.to(dtypes[1])


def judge_legal(session, rng, loss_name: str, given: tuple, wanted: tuple, kind: str) -> None:
    """Give one case to the learner, and name what is wrong with the dtypes that come back."""
    prediction, target = draw_case(rng, loss_name, given, kind)
    result = session.probe(run_legal, loss_name, prediction, target)
    what = {"maps": "indices per position", "soft": "soft targets", "one-hot": "one-hot rows"}.get(kind, kind)
    on = f"{loss_name}, prediction {_name(given[0])}, {what} {_name(given[1])}"
    expect(result["pair"], message="Two tensors are expected: (prediction, target).", came=result.get("came"), on=on)
    pair = (result["prediction"], result["target"])
    came = tuple(t.dtype for t in pair)
    shown = {"expected": _names(wanted), "came": _names(came), "on": on}
    for old, new in zip((prediction, target), pair, strict=True):
        if old.shape != new.shape:
            raise Failed("values-changed", on=on, expected=tuple(old.shape), came=tuple(new.shape))
        if not torch.equal(old.double(), new.double()):
            narrower = old.is_floating_point() and new.is_floating_point() and old.dtype != new.dtype
            raise Failed("narrowed" if narrower else "values-changed", **shown)
    if came != wanted:
        raise Failed(_wrong_dtypes(given, wanted, came, kind), _what_the_loss_says(loss_name, *pair), **shown)
    expect(result["connected"], "graph-cut", on=on)


def _wrong_dtypes(given: tuple, wanted: tuple, came: tuple, kind: str) -> str:
    if not came[0].is_floating_point:
        return "prediction-not-float"
    if not wanted[1].is_floating_point and came[1] not in (_I64, _U8):
        return "indices-not-integer"
    if kind == "maps" and came[1] == _U8:
        return "bytes-per-position"
    if wanted[1].is_floating_point and not came[1].is_floating_point:
        return "one-hot-not-float" if kind == "one-hot" else "labels-not-float"
    if any(g == w and c != w for g, w, c in zip(given, wanted, came, strict=True)) and _F16 not in came:
        return "legal-converted"
    if _F16 in came:
        return "half-kept"
    return "mixed-floats" if came[1].is_floating_point and came[0] != came[1] else "legal-converted"


def _what_the_loss_says(loss_name: str, prediction: torch.Tensor, target: torch.Tensor) -> str:
    """What the library answers to these dtypes, if it is an error."""
    try:
        prediction = prediction.clone()
        if prediction.is_floating_point():
            prediction.requires_grad_()
        _LOSSES[loss_name](prediction, target).backward()
    except (RuntimeError, ValueError, IndexError) as error:
        first = (str(error).splitlines() or [""])[0][:120]
        return f"{loss_name} on what came: {type(error).__name__}: {first}."
    return ""


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _names(dtypes: tuple) -> str:
    return f"{_name(dtypes[0])} and {_name(dtypes[1])}"


# Per rung: the loss, the dtypes given, the dtypes wanted, and what the target holds.
LABELS = [
    ("bce", (_F32, _I64), (_F32, _F32), "labels"),
    ("bce_with_logits", (_F32, _BOOL), (_F32, _F32), "labels"),
    ("mse", (_F32, _I64), (_F32, _F32), "labels"),
    ("bce_with_logits", (_F64, _I32), (_F64, _F64), "labels"),
    ("bce", (_F64, _U8), (_F64, _F64), "labels"),
    ("mse", (_BF16, _BOOL), (_BF16, _BF16), "labels"),
]
INDICES = [
    ("cross_entropy", (_F32, _F32), (_F32, _I64), "indices"),
    ("nll", (_F32, _I32), (_F32, _I64), "indices"),
    ("cross_entropy", (_F32, _I64), (_F32, _F32), "one-hot"),
    ("nll", (_F32, torch.int16), (_F32, _I64), "indices"),
    ("cross_entropy", (_F32, _F64), (_F32, _I64), "indices"),
    ("cross_entropy", (_F32, _I32), (_F32, _I64), "maps"),
    ("cross_entropy", (_F32, _BOOL), (_F32, _F32), "one-hot"),
    ("cross_entropy", (_F32, _U8), (_F32, _I64), "maps"),
]
FLOATS = [
    ("mse", (_F32, _F64), (_F64, _F64), "soft"),
    ("bce", (_F64, _F32), (_F64, _F64), "soft"),
    ("bce_with_logits", (_BF16, _F32), (_F32, _F32), "soft"),
    ("mse", (_F16, _F16), (_F32, _F32), "soft"),
    ("bce_with_logits", (_F16, _I64), (_F32, _F32), "labels"),
    ("bce", (_BF16, _F16), (_F32, _F32), "soft"),
    ("cross_entropy", (_F16, _I64), (_F32, _I64), "indices"),
    ("nll", (_F16, _I64), (_F32, _I64), "indices"),
    ("nll", (_F16, _U8), (_F32, _U8), "indices"),
    ("cross_entropy", (_F16, _I64), (_F32, _I64), "maps"),
    ("cross_entropy", (_F16, _F16), (_F32, _F32), "one-hot"),
    ("bce", (_F16, _F16), (_F32, _F32), "soft"),
    ("cross_entropy", (_F32, _F64), (_F64, _F64), "one-hot"),
    ("mse", (_I64, _I64), (_F32, _F32), "labels"),
    ("mse", (_I32, _F64), (_F64, _F64), "soft"),
]
ALREADY_LEGAL = [
    ("nll", (_F32, _U8), (_F32, _U8), "indices"),
    ("cross_entropy", (_F64, _I64), (_F64, _I64), "indices"),
    ("bce", (_F64, _F64), (_F64, _F64), "soft"),
    ("mse", (_BF16, _BF16), (_BF16, _BF16), "soft"),
    ("cross_entropy", (_BF16, _I64), (_BF16, _I64), "maps"),
    ("cross_entropy", (_F32, _F32), (_F32, _F32), "one-hot"),
]


@LEGAL.check("labels become floats where the loss multiplies by them")
def _(session, rng):
    for case in LABELS:
        judge_legal(session, rng, *case)


@LEGAL.check("targets that pick a column are indices; a target of the prediction's shape is not")
def _(session, rng):
    for case in INDICES:
        judge_legal(session, rng, *case)


@LEGAL.check("of two float dtypes the wider is kept, float16 is widened, and integers become predictions")
def _(session, rng):
    for case in FLOATS:
        judge_legal(session, rng, *case)


@LEGAL.check("what was legal stays as it came")
def _(session, rng):
    for case in ALREADY_LEGAL:
        judge_legal(session, rng, *case)


# 7.2


def true_saturation(dtype: torch.dtype) -> float:
    """Halve the interval between 0 and 64 in numbers of the dtype."""
    below, above = torch.tensor(0.0, dtype=dtype), torch.tensor(64.0, dtype=dtype)
    while True:
        middle = (below + above) / 2
        if middle == below or middle == above:
            return float(above)
        below, above = (below, middle) if torch.sigmoid(middle) == 1 else (middle, above)


def judge_saturation(session, dtype: torch.dtype) -> None:
    came = session.call("saturation_point", dtype)
    expected, on = true_saturation(dtype), f"saturation_point({dtype})"
    step = torch.finfo(dtype).eps * 2 ** math.floor(math.log2(expected))
    tolerance = max(step, 1e-3) * 1.001 if dtype in (_F32, _F64) else step * 1.001
    if isinstance(came, torch.Tensor) and came.dim() == 0:
        came = float(came.detach())
    number = isinstance(came, (int, float)) and not isinstance(came, bool) and abs(came) < 1e300
    expect(number, message="This should be a finite number.", came=came, on=on)
    if abs(came - expected) <= tolerance:
        return
    kind = "not-yet-one" if came < expected else "not-the-smallest"
    if came < 0 or _sigmoid_in(-came, dtype) == 0:
        kind = "other-end"
    elif dtype != _F32 and abs(came - true_saturation(_F32)) < 0.05:
        kind = "one-dtype-for-all"
    elif dtype in (_F16, _BF16) and abs(came + math.log(torch.finfo(dtype).eps / 2)) < 0.05:
        kind = "eps-formula"
    raise Failed(kind, came=f"{came:.6g}, where sigmoid is {_sigmoid_in(came, dtype)!r}", on=on)


def _sigmoid_in(z: float, dtype: torch.dtype) -> float:
    return float(torch.sigmoid(torch.tensor(z, dtype=_F64).to(dtype)))


@SATURATION.check("float32 and float64")
def _(session, rng):
    for dtype in (_F32, _F64):
        judge_saturation(session, dtype)


@SATURATION.check("float16 and bfloat16")
def _(session, rng):
    for dtype in (_F16, _BF16):
        judge_saturation(session, dtype)


# 7.3


class _LossCalls(TorchFunctionMode):
    """Notes the library's losses that are called while it is active, also from inside a module."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = str(getattr(func, "__name__", "")).split(".")[0]
        if _is_loss(name):
            self.names.add(name)
        return func(*args, **(kwargs or {}))


def _is_loss(name: str) -> bool:
    return any(word in name for word in ("loss", "cross_entropy", "kl_div"))


def run_bce(learner, logits: torch.Tensor, target: torch.Tensor) -> dict:
    """Run `stable_bce` and its backward; report loss, gradient, and the library losses called on the way.

    A spy sees calls of functions and modules; counting what reaches the backend sees those made from elsewhere.
    """
    logits, kept = logits.detach().clone().requires_grad_(), {}

    def run() -> None:
        loss = learner.stable_bce(logits, target)
        kept["loss"], kept["grad"] = loss, None
        if isinstance(loss, torch.Tensor) and loss.numel() == 1 and loss.requires_grad:
            (kept["grad"],) = torch.autograd.grad(loss.sum(), logits, allow_unused=True)

    with _LossCalls() as spy:
        operations = op_counts(run)
    library = spy.names | {name for name in operations if _is_loss(name)}
    return {"loss": kept["loss"], "grad": kept["grad"], "library": sorted(library)}


def run_bce_each(learner, logits: torch.Tensor, target: torch.Tensor) -> list[dict]:
    """Run `stable_bce` on each element as a batch of its own."""
    return [run_bce(learner, z.reshape(1), y.reshape(1)) for z, y in zip(logits, target, strict=True)]


def true_bce(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The loss of each element, in float64."""
    z, y = logits.double(), target.double()
    return torch.logaddexp(z, torch.zeros_like(z)) - z * y


def _corners(zs: list[float]) -> tuple[torch.Tensor, torch.Tensor]:
    pairs = [(z, y) for z in zs for y in (0.0, 1.0, 0.3)]
    return torch.tensor([z for z, _ in pairs]), torch.tensor([y for _, y in pairs])


_EXTREME = [sign * size for size in (17.0, 40.0, 90.0, 1000.0, 10000.0) for sign in (1, -1)]


@STABLE.check("gives the mean for ordinary logits, hard and soft targets, by hand")
def _(session, rng):
    for soft in (False, True):
        shape = (draw_int(rng, 3, 6), 2)
        logits = torch.randn(shape, generator=rng) * 2
        target = torch.rand(shape, generator=rng)
        target = target if soft else (target > 0.5).float()
        on = f"{'soft' if soft else 'hard'} targets, shape {shape}, logits from -6 to 6"
        result = session.probe(run_bce, logits, target)
        names = ", ".join(result["library"])
        expect(not names, "library-loss", f"Called: {names}." if names else "", on=on)
        each = true_bce(logits, target)
        came, expected = result["loss"], each.mean().float()
        if isinstance(came, torch.Tensor):
            expect(tuple(came.shape) != shape, "not-reduced", expected=(), came=tuple(came.shape), on=on)
            total = came.numel() == 1 and math.isclose(float(came.detach()), float(each.sum()), rel_tol=1e-4)
            expect(not total, "summed", expected=expected, came=came, on=on)
            mirrored = came.numel() == 1 and math.isclose(float(came.detach()), -float(expected), rel_tol=1e-4)
            expect(not mirrored, "sign", expected=expected, came=came, on=on)
        expect_close(came, expected, on, "hard-targets-only" if soft else None)


@STABLE.check("stays right up to |z| = 10,000")
def _(session, rng):
    logits, target = _corners(_EXTREME)
    for z, y, result in zip(logits, target, session.probe(run_bce_each, logits, target), strict=True):
        came, expected = result["loss"], true_bce(z, y).float()
        on = f"one logit of {float(z):g}, target {float(y):g}"
        finite = isinstance(came, torch.Tensor) and bool(torch.isfinite(came).all())
        expect(finite, "overflow", expected=expected, came=came, on=on)
        expect_close(came, expected, on, "clamped")


@STABLE.check("has the right gradient up to |z| = 10,000")
def _(session, rng):
    logits, target = _corners([*_EXTREME, 2.0, -2.0])
    for z, y, result in zip(logits, target, session.probe(run_bce_each, logits, target), strict=True):
        came, expected = result["grad"], (torch.sigmoid(z.double()) - y.double()).float().reshape(1)
        on = f"the gradient at one logit of {float(z):g}, target {float(y):g}"
        expect(came is not None, "graph-cut", on=on)
        expect(bool(torch.isfinite(came).all()), "nan-gradient", expected=expected, came=came, on=on)
        expect_close(came, expected, on, "gradient-lost")


@STABLE.check("has the right gradient at z = 0")
def _(session, rng):
    logits, target = _corners([0.0, -0.0])
    for y, result in zip(target, session.probe(run_bce_each, logits, target), strict=True):
        expected = (0.5 - y).reshape(1)
        expect_close(result["grad"], expected, f"the gradient at z = 0, target {float(y):g}", "kink-at-zero")


# 7.4


# The notebook shows the same six; a test compares.
SNIPPETS = {
    "a": lambda z, y: F.cross_entropy(F.softmax(z, dim=1), y),
    "b": lambda z, y: F.cross_entropy(F.log_softmax(z, dim=1), y),
    "c": lambda z, y: F.nll_loss(F.softmax(z, dim=1), y),
    "d": lambda z, y: F.cross_entropy(z, y.float().unsqueeze(1)),
    "e": lambda z, y: F.cross_entropy(z, F.one_hot(y, z.shape[1]).float()),
    "f": lambda z, y: F.cross_entropy(z, y),
}


def true_bugs() -> set[str]:
    """Run the six functions against a loop over all labels."""
    rng, bugs = torch.Generator().manual_seed(0), set()
    for name, function in SNIPPETS.items():
        shape = {"d": (6, 1), "f": (4, 3, 3)}.get(name, (6, 3))
        z = torch.randn(shape, generator=rng, dtype=_F64)
        if name == "d":
            y = torch.tensor([0, 1, 1, 0, 1, 0])
            rows = torch.cat([torch.zeros_like(z), z], dim=1)
        else:
            y = torch.randint(0, 3, shape[:-1], generator=rng)
            rows = z.reshape(-1, 3)
        picked = [row.softmax(0)[label].log() for row, label in zip(rows, y.reshape(-1), strict=True)]
        same = torch.allclose(function(z, y).double(), -torch.stack(picked).mean(), rtol=1e-5)
        bugs |= set() if same else {name}
    return bugs


def run_find_bugs(learner) -> list | str:
    """Run `find_bugs`; report the names in order, or the kind of what came instead of a set."""
    came = learner.find_bugs()
    if not isinstance(came, (set, frozenset, list, tuple)):
        return type(came).__name__
    return sorted(str(name) for name in came)


@SUSPECTS.check("the floor of a double softmax")
def _(session, rng):
    for classes in (2, 10, draw_int(rng, 11, 2000), 4):
        came = session.call("best_possible_loss", classes)
        expected, on = math.log(math.e + classes - 1) - 1, f"{classes} classes"
        came = float(came.detach()) if isinstance(came, torch.Tensor) and came.dim() == 0 else came
        number = float(came) if isinstance(came, (int, float)) and abs(came) < 1e300 else math.nan
        expect(not math.isnan(number), message="This should be a finite number.", came=came, on=on)
        kind = None
        if abs(number) < 1e-6:
            kind = "no-floor"
        elif math.isclose(number, math.log(classes), rel_tol=1e-4):
            kind = "uniform-loss"
        elif any(math.isclose(number, floor, rel_tol=1e-4) for floor in _other_floors(classes)):
            kind = "wrong-range"
        expect_close(came, expected, on, kind)


def _other_floors(classes: int) -> list[float]:
    """Floors for logits between -1 and 1, for the worst case, and for -1 against 0."""
    return [
        math.log(math.e**2 + classes - 1) - 2,
        math.log(math.e + classes - 1),
        math.log(math.exp(-1) + classes - 1) + 1,
        1 - math.log(math.e + classes - 1),
    ]


@SUSPECTS.check("which of the six are bugs")
def _(session, rng):
    came, truth = session.probe(run_find_bugs), true_bugs()
    expect(isinstance(came, list), message="A set of names is expected, such as {'a', 'b'}.", came=came)
    unknown = set(came) - set(SNIPPETS)
    expect(not unknown, message=f"There is no function named {', '.join(sorted(unknown))}.", came=came)
    kinds = {
        "b": "log-softmax-accused",
        "e": "one-hot-accused",
        "a": "double-softmax-missed",
        "c": "nll-on-probabilities-missed",
        "d": "one-unit-missed",
        "f": "class-axis-missed",
    }
    for name, kind in kinds.items():
        expect((name in came) == (name in truth), kind)


# 7.5


def draw_batch(rng: torch.Generator, rows: int, classes: int, left_out: int) -> tuple[torch.Tensor, ...]:
    """Logits, labels, weights that differ much, and which rows are left out."""
    logits = torch.randn(rows, classes, generator=rng) * 2
    labels = torch.arange(rows).remainder(classes)[torch.randperm(rows, generator=rng)]
    weight = torch.linspace(0.2, 3.0, classes)[torch.randperm(classes, generator=rng)]
    ignored = torch.zeros(rows, dtype=torch.bool)
    ignored[torch.randperm(rows, generator=rng)[:left_out]] = True
    return logits, labels, weight, ignored


def run_weighted(learner, logits, one_hot, weight, ignored) -> dict:
    """Run `weighted_cross_entropy` and its backward; report loss, gradient and the error of either."""
    logits = logits.detach().clone().requires_grad_()
    loss = learner.weighted_cross_entropy(logits, one_hot, weight, ignored)
    grad = None
    if isinstance(loss, torch.Tensor) and loss.numel() == 1 and loss.requires_grad:
        (grad,) = torch.autograd.grad(loss.sum(), logits, allow_unused=True)
    return {"loss": loss, "grad": grad}


def judge_weighted(session, rng, left_out: int, dtype: torch.dtype, blank_rows: bool = False) -> None:
    """Compare value and gradient with class indices, and name the usual other means."""
    rows, classes = draw_int(rng, 9, 12), draw_int(rng, 3, 5)
    logits, labels, weight, ignored = draw_batch(rng, rows, classes, left_out)
    one_hot = F.one_hot(labels, classes)
    if blank_rows:
        one_hot[ignored] = 0
    on = f"{rows} rows of {classes} classes, {left_out} left out, one-hot {_name(dtype)}"
    try:
        result = session.probe(run_weighted, logits, one_hot.to(dtype), weight, ignored)
    except LearnerError as error:
        if dtype == _I64 and error.reason == "raised":
            raise Failed("one-hot-long", came=f"{error.kinds[0]}: {error.text[:150]}", on=on) from None
        raise
    kept = ~ignored
    leaf = logits.clone().requires_grad_()
    expected = F.cross_entropy(leaf[kept], labels[kept], weight=weight)
    (grad,) = torch.autograd.grad(expected, leaf)
    came = result["loss"]
    number = float(came.detach()) if isinstance(came, torch.Tensor) and came.numel() == 1 else math.nan
    total = expected.detach() * weight[labels[kept]].sum()
    others = {
        "divided-by-rows": total / kept.sum(),
        "unweighted": F.cross_entropy(logits[kept], labels[kept]),
        "divided-by-all-weights": total / weight.sum(),
        "summed": total,
    }
    kind = next((k for k, v in others.items() if math.isclose(number, float(v), rel_tol=1e-4)), None)
    expect_close(came, expected, on, kind or ("ignored-counted" if left_out else None), rtol=1e-4)
    wrong_grad = result["grad"] is None or not torch.allclose(result["grad"], grad, rtol=1e-4, atol=1e-6)
    expect(not wrong_grad, "wrong-gradient", expected=grad, came=result["grad"], on=on)


@WEIGHTED.check("equals the weighted mean of class indices, for float one-hot targets")
def _(session, rng):
    judge_weighted(session, rng, 0, _F32)


@WEIGHTED.check("takes int64 one-hot targets")
def _(session, rng):
    judge_weighted(session, rng, 0, _I64)


@WEIGHTED.check("rows that are left out do not count")
def _(session, rng):
    judge_weighted(session, rng, 4, _F32)
    judge_weighted(session, rng, 3, _I64, blank_rows=True)


@WEIGHTED.check("is an attached zero with a zero gradient when every row is left out")
def _(session, rng):
    for rows in (draw_int(rng, 3, 6), 1):
        logits, labels, weight, ignored = draw_batch(rng, rows, 3, rows)
        result = session.probe(run_weighted, logits, F.one_hot(labels, 3).float(), weight, ignored)
        came, on = result["loss"], f"{rows} rows, all left out"
        if isinstance(came, torch.Tensor) and bool(came.isnan().any()):
            raise Failed("nan-when-all-ignored", expected=0.0, came=came, on=on)
        expect_close(came, 0.0, on, "not-zero-when-all-ignored")
        expect(result["grad"] is not None, "detached-zero", on=on)
        expect(bool(torch.isfinite(result["grad"]).all()), "nan-gradient", came=result["grad"], on=on)
        expect(not result["grad"].any(), "not-zero-when-all-ignored", "The gradient is not zero.", on=on)
