"""Checks of chapter 6: size, stride and storage, and what happens when a shape is right and its order is not."""

from __future__ import annotations

import math
import re

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..evidence import row_dependencies, shares_storage
from ..exercise.declare import Failed, load_exercises
from ..exercise.expect import draw_int, expect, expect_close, expect_tensor
from ..exercise.wire import LearnerError

LAYOUTS, LOGITS, HEADS, LOSS, VIEW = load_exercises(__file__)

# 6.1

EXPRESSIONS = [
    "a.t()",
    "a.view(3, 2)",
    "a.reshape(6)",
    "a.t().reshape(6)",
    "a.t().contiguous()",
    "a[:, 1]",
    "a[[0, 1]]",
    "a[:1].expand(4, 3)",
]


def true_layouts() -> dict[str, tuple[tuple[int, ...], tuple[int, ...], bool]]:
    """Compute shape, stride and sharing of every expression."""
    a = torch.arange(6).reshape(2, 3)
    truth = {}
    for text in EXPRESSIONS:
        result = eval(text, {"a": a})
        truth[text] = (tuple(result.shape), tuple(result.stride()), shares_storage(result, a))
    return truth


def _ask_layouts(session) -> dict[str, tuple]:
    """The learner's rows, as tuples of (shape, stride, shares)."""
    came = session.call("predict_layouts")
    expect(isinstance(came, dict), message="A dict from expression to its layout is expected.", came=came)
    missing = [text for text in EXPRESSIONS if text not in came]
    expect(not missing, message=f"Rows are missing: {', '.join(missing)}.")
    rows = {}
    for text in EXPRESSIONS:
        row = came[text]
        good = isinstance(row, (tuple, list)) and len(row) == 3 and type(row[2]) is bool
        good = good and all(isinstance(part, (tuple, list)) for part in row[:2])
        expect(good, message="A row should be (shape, stride, shares memory).", came=row, on=text)
        rows[text] = (tuple(row[0]), tuple(row[1]), row[2])
    return rows


def _expect_column(session, column: int, known: dict[tuple[str, object], str]) -> None:
    """Compare one column of the table; `known` maps (expression, wrong value) to a misconception."""
    came, truth = _ask_layouts(session), true_layouts()
    for text in EXPRESSIONS:
        wrong, right = came[text][column], truth[text][column]
        expect(wrong == right, known.get((text, wrong)), expected=right, came=wrong, on=f"{text}")


@LAYOUTS.check("all eight shapes")
def _(session, rng):
    _expect_column(session, 0, {})


@LAYOUTS.check("all eight strides")
def _(session, rng):
    known = {
        ("a.t()", (2, 1)): "transpose-moves-data",
        ("a.t()", (3, 1)): "transpose-moves-data",
        ("a.view(3, 2)", (1, 3)): "view-is-transpose",
        ("a.t().contiguous()", (1, 3)): "contiguous-keeps-strides",
        ("a[:, 1]", (1,)): "column-is-packed",
        ("a[:1].expand(4, 3)", (3, 1)): "expand-is-packed",
    }
    _expect_column(session, 1, known)


@LAYOUTS.check("which of them share memory with a")
def _(session, rng):
    views = ("a.t()", "a.view(3, 2)", "a[:, 1]", "a[:1].expand(4, 3)")
    known: dict[tuple[str, object], str] = {(text, False): "view-copies" for text in views}
    known[("a.reshape(6)", False)] = "reshape-always-copies"
    known[("a.t().reshape(6)", True)] = "reshape-never-copies"
    known[("a.t().contiguous()", True)] = "contiguous-in-place"
    known[("a[[0, 1]]", True)] = "list-index-is-view"
    _expect_column(session, 2, known)


# 6.2


def _expect_logits(session, batch: int, channels: int, rng: torch.Generator, misconception: str) -> None:
    x = torch.randn(batch, channels, 1, 1, generator=rng)
    on = f"features of shape ({batch}, {channels}, 1, 1)"
    try:
        came = expect_tensor(session.call("pool_logits", x), on)
    except LearnerError as error:
        if error.reason != "raised":
            raise
        raise Failed(misconception, came=f"{error.kinds[0]}: {error.text}", on=on) from None
    shape = tuple(came.shape)
    leftover = shape in ((batch, channels, 1), (batch, channels, 1, 1))
    kind = "dimension-left" if leftover else misconception
    expect(shape == (batch, channels), kind, expected=(batch, channels), came=shape, on=on)
    expect_close(came, x[:, :, 0, 0], on, "numbers-moved")


def run_logits(learner, x: Tensor, weights: Tensor) -> dict:
    """Call `pool_logits` without and with a graph; report what became of input, dtype and gradient."""
    given = x.clone()
    came = learner.pool_logits(given)
    kept = given.shape == x.shape and given.stride() == x.stride() and torch.equal(given, x)
    found = {"kept": kept, "dtype": came.dtype, "gradient": None}
    leaf = x.clone().requires_grad_()
    try:
        logits = learner.pool_logits(leaf * 1)
    except RuntimeError as error:
        if "requires grad" not in str(error):
            raise
        return found
    if logits.requires_grad:
        (found["gradient"],) = torch.autograd.grad((logits * weights).sum(), leaf, allow_unused=True)
    return found


@LOGITS.check("four samples")
def _(session, rng):
    for batch in (4, draw_int(rng, 5, 9)):
        _expect_logits(session, batch, draw_int(rng, 2, 6), rng, "batch-size-fixed")


@LOGITS.check("a batch of one")
def _(session, rng):
    _expect_logits(session, 1, draw_int(rng, 2, 6), rng, "batch-of-one-lost")


@LOGITS.check("one channel")
def _(session, rng):
    for batch in (draw_int(rng, 2, 5), 1):
        _expect_logits(session, batch, 1, rng, "one-channel-lost")


@LOGITS.check("an empty batch")
def _(session, rng):
    for channels in (draw_int(rng, 2, 6), 1):
        _expect_logits(session, 0, channels, rng, "empty-batch")


@LOGITS.check("keeps the dtype, the graph, and the caller's tensor as it was")
def _(session, rng):
    shape = (draw_int(rng, 2, 5), draw_int(rng, 2, 6))
    for dtype in (torch.float32, torch.float64, torch.float16):
        x = torch.randn(*shape, 1, 1, generator=rng).to(dtype)
        weights = torch.randint(1, 9, shape, generator=rng).to(dtype)
        on = f"features of shape {(*shape, 1, 1)}, {str(dtype)[6:]}"
        result = session.probe(run_logits, x, weights)
        expect(result["kept"], "input-changed", on=on)
        expect(result["dtype"] == dtype, "dtype-changed", expected=str(dtype), came=str(result["dtype"]), on=on)
        expect(result["gradient"] is not None, "graph-cut", on=on)
        expect_close(result["gradient"], weights[:, :, None, None], f"the gradient, {on}", "graph-cut")


# 6.3


def channels_first_oracle(images: Tensor) -> Tensor:
    """The loop: out[b, c, h, w] = images[b, h, w, c]."""
    batch, height, width, channels = images.shape
    out = torch.empty(batch, channels, height, width)
    for b in range(batch):
        for c in range(channels):
            for h in range(height):
                for w in range(width):
                    out[b, c, h, w] = images[b, h, w, c]
    return out


def split_oracle(x: Tensor, heads: int) -> Tensor:
    """The loop: out[b, h, t, d] = x[b, t, h * D + d]."""
    batch, length, features = x.shape
    width = features // heads
    out = torch.empty(batch, heads, length, width)
    for h in range(heads):
        for t in range(length):
            for d in range(width):
                out[:, h, t, d] = x[:, t, h * width + d]
    return out


def merge_oracle(x: Tensor) -> Tensor:
    """The loop: out[b, t, h * D + d] = x[b, h, t, d]."""
    batch, heads, length, width = x.shape
    out = torch.empty(batch, length, heads * width)
    for h in range(heads):
        for t in range(length):
            for d in range(width):
                out[:, t, h * width + d] = x[:, h, t, d]
    return out


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.equal(a.double(), b.double())


def _expect_moved(came: object, expected: Tensor, known: dict[str, Tensor], shapes: dict[tuple, str], on: str) -> None:
    """Compare with the loop; recognise wrong results by their numbers (`known`) or their shape (`shapes`)."""
    expect_tensor(came, on)
    shape = tuple(came.shape)
    expect(shape == tuple(expected.shape), shapes.get(shape), expected=tuple(expected.shape), came=shape, on=on)
    if not _same(came, expected):
        kind = next((kind for kind, value in known.items() if _same(came, value)), None)
        raise Failed(kind, "The numbers are in the wrong places.", expected=expected, came=came, on=on)


@HEADS.check("to_channels_first equals the loop over indices")
def _(session, rng):
    for batch in (2, 1):
        x = torch.randn(batch, 4, 5, 3, generator=rng)
        on = f"images of shape {tuple(x.shape)}"
        known = {"view-for-permute": x.reshape(batch, 3, 4, 5)}
        shapes = {(batch, 3, 5, 4): "height-width-swapped", (3, 4, 5): "batch-of-one-lost"}
        came = session.call("to_channels_first", x)
        _expect_moved(came, channels_first_oracle(x), known, shapes, on)


@HEADS.check("split_heads equals the loop over indices")
def _(session, rng):
    for batch, heads in ((draw_int(rng, 2, 3), 2), (1, 2), (2, 1)):
        length, width = 5, 3
        x = torch.randn(batch, length, heads * width, generator=rng)
        on = f"x of shape {tuple(x.shape)}, {heads} head(s)"
        known = {
            "heads-by-view": x.reshape(batch, heads, length, width),
            "features-interleaved": x.reshape(batch, length, width, heads).permute(0, 3, 1, 2),
        }
        shapes = {
            (batch, length, heads, width): "heads-behind-positions",
            (batch, width, length, heads): "heads-is-width",
            (heads, length, width): "batch-of-one-lost",
        }
        came = session.call("split_heads", x, heads)
        _expect_moved(came, split_oracle(x, heads), known, shapes, on)


@HEADS.check("merge_heads equals the loop over indices")
def _(session, rng):
    for batch in (draw_int(rng, 2, 3), 1):
        x = torch.randn(batch, 2, 5, 3, generator=rng)
        on = f"x of shape {tuple(x.shape)}"
        known = {
            "merge-forgets-transpose": x.reshape(batch, 5, 6),
            "features-interleaved": x.permute(0, 2, 3, 1).reshape(batch, 5, 6),
        }
        try:
            came = session.call("merge_heads", x)
        except LearnerError as error:
            if error.reason == "raised" and "view" in error.text and error.is_a("RuntimeError"):
                raise Failed("view-needs-contiguous", came=f"RuntimeError: {error.text}", on=on) from None
            raise
        _expect_moved(came, merge_oracle(x), known, {(5, 6): "batch-of-one-lost"}, on)


def make_laid_out(seed: int, shape: list[int], order: list[int]) -> Tensor:
    """A random tensor of this shape whose dimensions lie in memory in this order."""
    generator = torch.Generator().manual_seed(seed)
    packed = torch.randn([shape[d] for d in order], generator=generator)
    return packed.permute([order.index(d) for d in range(len(shape))])


def run_heads(learner, seed: int) -> dict:
    """Run the three functions on inputs that lie in memory in other orders."""
    images = make_laid_out(seed, [2, 4, 5, 3], [0, 3, 1, 2])
    x = make_laid_out(seed, [3, 5, 6], [1, 2, 0])
    heads = make_laid_out(seed, [3, 2, 5, 3], [3, 1, 0, 2])
    before = [(t.stride(), t.clone()) for t in (images, x, heads)]
    found = {
        "to_channels_first": learner.to_channels_first(images),
        "split_heads": learner.split_heads(x, 2),
        "merge_heads": learner.merge_heads(heads),
    }
    after = [(t.stride(), t) for t in (images, x, heads)]
    found["kept"] = all(
        old_stride == new_stride and _same(old, new)
        for (old_stride, old), (new_stride, new) in zip(before, after, strict=True)
    )
    found["both"] = learner.merge_heads(learner.split_heads(x, 2))
    return found


@HEADS.check("the same for inputs that lie otherwise in memory, and merge undoes split")
def _(session, rng):
    seed = draw_int(rng, 0, 10**6)
    images = make_laid_out(seed, [2, 4, 5, 3], [0, 3, 1, 2])
    x = make_laid_out(seed, [3, 5, 6], [1, 2, 0])
    heads = make_laid_out(seed, [3, 2, 5, 3], [3, 1, 0, 2])
    expected = {
        "to_channels_first": channels_first_oracle(images),
        "split_heads": split_oracle(x, 2),
        "merge_heads": merge_oracle(heads),
    }
    try:
        came = session.probe(run_heads, seed)
    except LearnerError as error:
        if error.reason == "raised" and error.is_a("RuntimeError"):
            on = "inputs whose dimensions lie in memory in another order"
            kind = "view-needs-contiguous" if "view" in error.text else "assumes-layout"
            raise Failed(kind, came=f"RuntimeError: {error.text}", on=on) from None
        raise
    expect(came["kept"], "input-changed")
    for name, wanted in expected.items():
        on = f"{name} with an input whose dimensions lie in memory in another order"
        expect_tensor(came[name], on, wanted.shape)
        expect(_same(came[name], wanted), "assumes-layout", expected=wanted, came=came[name], on=on)
    on = "merge_heads of what split_heads gave"
    expect_tensor(came["both"], on, x.shape)
    expect(_same(came["both"], x), "merge-not-inverse", expected=x, came=came["both"], on=on)


# What stays apart in each function: its name, the input's shape, and (output dimension, input dimension) of rows.
_APART = [
    ("to_channels_first", [3, 4, 5, 2], [(0, 0, "sample"), (2, 1, "line"), (3, 2, "column"), (1, 3, "channel")]),
    ("split_heads", [3, 4, 6], [(0, 0, "sample"), (2, 1, "position")]),
    ("merge_heads", [3, 2, 4, 3], [(0, 0, "sample"), (1, 2, "position")]),
]


def run_probe(learner, seed: int) -> list[Tensor | str]:
    """Which rows of the input each row of the output depends on, one bool matrix a case."""
    found: list[Tensor | str] = []
    for name, shape, pairs in _APART:
        x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
        function = getattr(learner, name)
        for out_dim, in_dim, _ in pairs:
            try:
                call = (lambda x, f=function: f(x, 2)) if name == "split_heads" else function
                found.append(row_dependencies(call, x, out_dim, in_dim))
            except ValueError as error:
                if "graph" not in str(error):
                    raise
                found.append("no graph")
            except RuntimeError as error:
                if "requires grad" not in str(error) or "in-place" in str(error):
                    raise
                found.append("no graph")
    return found


@HEADS.check("every output row depends on its own input row alone")
def _(session, rng):
    found = session.probe(run_probe, draw_int(rng, 0, 10**6))
    cases = [(name, what) for name, _, pairs in _APART for _, _, what in pairs]
    for (name, what), matrix in zip(cases, found, strict=True):
        on = f"{name}, by {what}"
        expect(not isinstance(matrix, str) and bool(matrix.any()), "graph-cut", on=on)
        mixed = "; ".join(
            f"{what} {row} of the output reads {what}s {entries.nonzero().flatten().tolist()}"
            for row, entries in enumerate(matrix)
        )
        alone = torch.equal(matrix, torch.eye(len(matrix), dtype=torch.bool))
        expect(alone, "rows-mixed", came=mixed, on=on)


def run_dtypes(learner, dtype: torch.dtype) -> dict[str, torch.dtype]:
    """Which dtype each of the three functions gives for this one."""
    return {
        "to_channels_first": learner.to_channels_first(torch.ones(2, 4, 5, 3, dtype=dtype)).dtype,
        "split_heads": learner.split_heads(torch.ones(2, 5, 6, dtype=dtype), 2).dtype,
        "merge_heads": learner.merge_heads(torch.ones(2, 2, 5, 3, dtype=dtype)).dtype,
    }


@HEADS.check("the dtype stays as it came")
def _(session, rng):
    for dtype in (torch.float64, torch.float16):
        for name, came in session.probe(run_dtypes, dtype).items():
            on = f"{name} with {str(dtype)[6:]}"
            expect(came == dtype, "dtype-changed", expected=str(dtype), came=str(came), on=on)


# 6.4


def _case(rng: torch.Generator, pred_shape: tuple, target_shape: tuple, whole: bool = False) -> tuple[Tensor, Tensor]:
    pred = torch.randn(pred_shape, generator=rng) * 2
    target = torch.randint(-4, 5, target_shape, generator=rng) if whole else torch.randn(target_shape, generator=rng)
    return pred, target


def _mean_square(pred: Tensor, target: Tensor) -> Tensor:
    return (pred.double().flatten() - target.double().flatten()).square().mean()


def _expect_loss(session, pred: Tensor, target: Tensor, misconception: str | None = None) -> None:
    """Compare the loss with the mean over the same N numbers; recognise a broadcast one and a sum."""
    on = f"pred of shape {tuple(pred.shape)}, target of shape {tuple(target.shape)}"
    on += f", {str(target.dtype)[6:]}" if not target.is_floating_point() else ""
    try:
        came = session.call("regression_loss", pred, target)
    except LearnerError as error:
        if misconception is None or error.reason != "raised":
            raise
        raise Failed(misconception, came=f"{error.kinds[0]}: {error.text}", on=on) from None
    expected = _mean_square(pred, target)
    value = torch.tensor(float(came)).double() if isinstance(came, float) else came
    expect_tensor(value, on)
    if value.numel() != 1:
        raise Failed(None, "A scalar is expected.", expected=expected, came=came, on=on)
    value = value.detach().double().reshape(())

    def near(other: Tensor) -> bool:
        return bool(torch.isclose(value, other, rtol=1e-5, atol=1e-6))

    if near(expected):
        return
    if pred.dim() == target.dim() or not near((pred.double() - target.double()).square().mean()):
        if near(expected * pred.numel()):
            raise Failed("sum-not-mean", expected=expected, came=value, on=on)
        if misconception == "integer-target" and near(_mean_square(pred.long(), target)):
            raise Failed("whole-numbers-lost", expected=expected, came=value, on=on)
        raise Failed(misconception, expected=expected, came=value, on=on)
    raise Failed(
        "only-one-order" if misconception == "only-one-order" else "broadcast", expected=expected, came=value, on=on
    )


@LOSS.check("equal shapes")
def _(session, rng):
    n = draw_int(rng, 3, 7)
    for shape in ((n,), (n, 1), (n, 2), ()):
        _expect_loss(session, *_case(rng, shape, shape))


@LOSS.check("a column against a vector, in either order")
def _(session, rng):
    n = draw_int(rng, 4, 7)
    first, second = _case(rng, (n, 1), (n,)), _case(rng, (n,), (n, 1))
    outcomes = []
    for pred, target in (first, second):
        try:
            came = session.call("regression_loss", pred, target)
            right = isinstance(came, Tensor) and torch.allclose(came.detach().double(), _mean_square(pred, target))
            outcomes.append("right" if right else "wrong")
        except LearnerError as error:
            if error.reason != "raised":
                raise
            outcomes.append("raised")
    kind = "only-one-order" if "right" in outcomes else None
    kind = "column-refused" if outcomes == ["raised", "raised"] else kind
    for pred, target in (first, second):
        _expect_loss(session, pred, target, kind)
    for pred, target in (_case(rng, (1, 1), (1,)), _case(rng, (1,), (1, 1))):
        _expect_loss(session, pred, target, "one-sample-refused")


def _names(text: str, shape: tuple[int, ...]) -> bool:
    """True if the text holds the shape's sizes one after the other, however they are written."""
    numbers = [int(n) for n in re.findall(r"\d+", text.replace("torch.float32", ""))]
    wanted = list(shape)
    return any(numbers[i : i + len(wanted)] == wanted for i in range(len(numbers) - len(wanted) + 1))


def _expect_refused(session, rng: torch.Generator, pairs: list[tuple[tuple, tuple]], misconception: str) -> None:
    for pred_shape, target_shape in pairs:
        pred, target = _case(rng, pred_shape, target_shape)
        on = f"pred of shape {pred_shape}, target of shape {target_shape}"
        try:
            came = session.call("regression_loss", pred, target)
        except LearnerError as error:
            if error.reason != "raised":
                raise
            text = f"{error.kinds[0]}: {error.text}"
            expect(error.is_a("ValueError"), "not-a-value-error", expected="a ValueError", came=text, on=on)
            named = _names(error.text, pred_shape) and _names(error.text, target_shape)
            expect(named, "shapes-not-named", expected=f"{pred_shape} and {target_shape}", came=text, on=on)
            continue
        raise Failed(misconception, expected="a ValueError", came=came, on=on)


@LOSS.check("refuses other shapes with a ValueError that names both")
def _(session, rng):
    n, m = draw_int(rng, 3, 5), draw_int(rng, 6, 8)
    _expect_refused(session, rng, [((n, m), (m, n)), ((n * m,), (n, m)), ((n, 2), (n * 2, 1))], "equal-numel-accepted")
    ones = [
        ((1, n), (n,)),
        ((n,), (1, n)),
        ((n, 1), (1, n)),
        ((n, 1, 1), (n,)),
        ((n, 1, 1), (n, 1)),
        ((n, m, 1), (n, m)),
    ]
    _expect_refused(session, rng, ones, "extra-ones-dropped")
    broadcasting = [((n, m), (m,)), ((n, m), (n, 1)), ((n,), (m, 1)), ((n, 1), (1,)), ((n, m), (n,)), ((n, n), (n,))]
    _expect_refused(session, rng, broadcasting, "broadcast-accepted")
    scalars = [((1,), ()), ((), (1,)), ((1, 1), ()), ((), (1, 1))]
    _expect_refused(session, rng, scalars, "scalar-accepted")


@LOSS.check("integer targets")
def _(session, rng):
    n = draw_int(rng, 4, 7)
    for shapes in (((n,), (n,)), ((n, 1), (n,)), ((n,), (n, 1))):
        _expect_loss(session, *_case(rng, *shapes, whole=True), misconception="integer-target")


def run_loss_gradient(learner, pred: Tensor, target: Tensor) -> dict:
    """Backpropagate the learner's loss; give the gradient that reached pred."""
    pred = pred.detach().clone().requires_grad_()
    loss = learner.regression_loss(pred, target)
    if not isinstance(loss, Tensor) or not loss.requires_grad:
        return {"graph": False}
    loss.backward()
    return {"graph": pred.grad is not None, "gradient": pred.grad}


@LOSS.check("the gradient of the textbook")
def _(session, rng):
    n = draw_int(rng, 4, 7)
    for shapes in (((n, 1), (n,)), ((n,), (n, 1)), ((n, 2), (n, 2))):
        for whole in (False, True):
            pred, target = _case(rng, *shapes, whole=whole)
            on = f"pred of shape {shapes[0]}, target of shape {shapes[1]}{', int64' if whole else ''}"
            try:
                result = session.probe(run_loss_gradient, pred, target)
            except LearnerError as error:
                if whole and error.reason == "raised" and error.is_a("RuntimeError"):
                    raise Failed("integer-target", came=f"RuntimeError: {error.text}", on=on) from None
                raise
            expect(result["graph"], "graph-cut", on=on)
            expected = 2 * (pred - target.reshape(pred.shape)) / pred.numel()
            expect_close(result["gradient"], expected, on, "gradient-wrong")


# 6.5


Layout = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def torch_can_view(size: tuple[int, ...], stride: tuple[int, ...], new_size: tuple[int, ...]) -> bool:
    """Ask torch whether the view exists."""
    try:
        torch.empty_strided(size, stride).view(new_size)
    except RuntimeError:
        return False
    return True


class _ChosenStrides(TorchFunctionMode):
    """Notes whether a tensor is made with chosen strides; working with index tensors is fine."""

    TELLING = ("as_strided", "as_strided_", "empty_strided", "new_empty_strided", "set_")

    def __init__(self) -> None:
        super().__init__()
        self.seen = False

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen = self.seen or getattr(func, "__name__", "") in self.TELLING
        return func(*args, **(kwargs or {}))


def run_can_view(learner, cases: list[Layout]) -> dict:
    """Ask the learner about every case, and notice whether a tensor with chosen strides was made."""
    spy = _ChosenStrides()
    with spy:
        answers = [learner.can_view(*case) for case in cases]
    return {"answers": answers, "asked": spy.seen}


def _expect_views(session, cases: list[Layout], kinds: list[str | tuple[str, str]]) -> None:
    """Compare with torch; a kind is a misconception, or one for a wrong True and one for a wrong False."""
    try:
        result = session.probe(run_can_view, cases)
    except LearnerError as error:
        if error.reason != "raised":
            raise
        _blame_one(session, cases, kinds)
        raise
    for case, came, kind in zip(cases, result["answers"], kinds, strict=True):
        _expect_view(case, came, kind)
    expect(not result["asked"], "asked-torch")


def _blame_one(session, cases: list[Layout], kinds: list[str | tuple[str, str]]) -> None:
    """Find the case whose answer is an error, and fail with its misconception."""
    for case, kind in zip(cases, kinds, strict=True):
        try:
            result = session.probe(run_can_view, [case])
        except LearnerError as error:
            name = kind if isinstance(kind, str) else kind[int(torch_can_view(*case))]
            text = f"{error.kinds[0] if error.kinds else error.reason}: {error.text}"
            raise Failed(name, expected=torch_can_view(*case), came=text, on=_describe(case)) from None
        _expect_view(case, result["answers"][0], kind)


def _describe(case: Layout) -> str:
    size, stride, new_size = case
    return f"size {tuple(size)}, stride {tuple(stride)}, new_size {tuple(new_size)}"


def _expect_view(case: Layout, came: object, kind: str | tuple[str, str]) -> None:
    truth, on = torch_can_view(*case), _describe(case)
    expect(type(came) is bool, message="True or False is expected.", expected=truth, came=came, on=on)
    name = kind if isinstance(kind, str) else kind[0 if came else 1]
    expect(came == truth, name, expected=truth, came=came, on=on)


def contiguous_strides(size: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a contiguous tensor of this size."""
    return torch.empty(size, device="meta").stride()


@VIEW.check("contiguous tensors: every size with as many elements")
def _(session, rng):
    a, b = draw_int(rng, 2, 3), draw_int(rng, 4, 5)
    size = (a, b, 4)
    news = [(a * b, 4), (a * b * 4,), (a, b, 2, 2), (4, b, a), (2, a * b, 2), (a, 2, b * 2)]
    cases = [(size, contiguous_strides(size), new) for new in news]
    others = [(a * b, 3), (a * b * 4 + 1,), (a, b), (a, b, 8), (a * b * 4, 2), (7, 11), ()]
    cases += [(size, contiguous_strides(size), new) for new in others]
    kinds = [("numel-only", "never-joins")] * len(news) + ["another-number"] * len(others)
    _expect_views(session, cases, kinds)


@VIEW.check("transposed and sliced tensors: only where the steps stay even")
def _(session, rng):
    n = draw_int(rng, 3, 5)
    two_sided = ("numel-only", "contiguous-only")
    cases = [
        ((3, 2), (1, 3), (6,)),
        ((3, 2), (1, 3), (2, 3)),
        ((3, 2, 4), (4, 12, 1), (6, 4)),
        ((3, 2, 4), (4, 12, 1), (3, 8)),
        ((3, 2, 4), (4, 12, 1), (3, 2, 2, 2)),
        ((4, n), (1, 4), (2, 2, n)),
        ((4, n), (1, 4), (2, 2 * n)),
        ((n, 4), (10, 1), (n * 4,)),
        ((n, 4), (10, 1), (n, 2, 2)),
        ((2 * n,), (3,), (n, 2)),
        ((n, 2), (8, 4), (2 * n,)),
        ((2, 3, 4, n), (12 * n, 1, 3 * n, 3), (2, 3, 4 * n)),
        ((2, 3, 4, n), (12 * n, 1, 3 * n, 3), (6, 4, n)),
        ((2, 3, 4, n), (12 * n, 1, 3 * n, 3), (2, 12 * n)),
    ]
    _expect_views(session, cases, [two_sided] * len(cases))


@VIEW.check("dimensions of size 1, old and new, change nothing")
def _(session, rng):
    odd = draw_int(rng, 20, 99)
    cases = [
        ((2, 1, 3), (3, odd, 1), (6,)),
        ((1, 2, 3), (odd, 3, 1), (6,)),
        ((2, 3, 1), (3, 1, odd), (6,)),
        ((2, 3, 1), (3, 1, odd), (3, 2)),
        ((2, 3), (3, 1), (1, 6, 1)),
        ((3, 2), (1, 3), (3, 1, 2)),
        ((3, 2), (1, 3), (1, 3, 2, 1, 1)),
        ((3, 1, 2), (1, odd, 3), (6, 1)),
        ((1, 1), (odd, odd), (1,)),
        ((4, 1), (1, 4), (2, 1, 2)),
    ]
    _expect_views(session, cases, ["size-one-counts"] * len(cases))


@VIEW.check("no dimension at all, no element at all, strides of 0")
def _(session, rng):
    n = draw_int(rng, 2, 4)
    scalar = [((), (), ()), ((), (), (1, 1)), ((1, 1), (1, 1), ())]
    empty = [
        ((0, 3), (3, 1), (0,)),
        ((3, 0), (1, 3), (0, 7)),
        ((n, 0, 2), (1, 5, 9), (4, 0, 3)),
        ((0,), (1,), (0, 5)),
        ((0, 3), (1, 7), (0, 3)),
        ((0, 3), (3, 1), (3,)),
        ((2,), (1,), (0, 2)),
        ((0,), (1,), ()),
    ]
    expanded = [
        ((n, 3), (0, 0), (3 * n,)),
        ((n, 3), (0, 1), (3 * n,)),
        ((6,), (0,), (2, 3)),
        ((n, 3), (1, 0), (3 * n,)),
        ((n, 4), (0, 1), (n, 2, 2)),
        ((4, n), (0, 1), (2, 2, n)),
    ]
    kinds = ["scalar"] * len(scalar) + ["empty-tensor"] * len(empty) + ["stride-zero"] * len(expanded)
    _expect_views(session, [*scalar, *empty, *expanded, ((), (), (2,))], [*kinds, "another-number"])


def draw_layout(rng: torch.Generator) -> Layout:
    """Draw a size and a stride (permuted, sliced, expanded, with odd strides at size 1), and a size to view it as."""

    def chance(share: float) -> bool:
        return float(torch.rand((), generator=rng)) < share

    def pick(options: list[int]) -> int:
        return options[draw_int(rng, 0, len(options) - 1)]

    size = [pick([1, 2, 2, 3, 4, 4, 6]) for _ in range(pick([0, 1, 2, 2, 3, 3, 3, 4, 4, 4]))]
    if size and chance(0.06):
        size[draw_int(rng, 0, len(size) - 1)] = 0
    stride = list(contiguous_strides(tuple(size)))
    if chance(0.3):
        stride = [2 * step for step in stride]
    if len(size) > 1 and chance(0.4):
        d = draw_int(rng, 0, len(size) - 2)
        stride = [step * 2 if i <= d else step for i, step in enumerate(stride)]
    if len(size) > 1 and chance(0.8):
        i, j = draw_int(rng, 0, len(size) - 1), draw_int(rng, 0, len(size) - 1)
        size[i], size[j], stride[i], stride[j] = size[j], size[i], stride[j], stride[i]
    for d, length in enumerate(size):
        if chance(0.12):
            stride[d] = 0
        if length == 1 and chance(0.7):
            stride[d] = draw_int(rng, 0, 40)
    return tuple(size), tuple(stride), _draw_new_size(rng, size, chance, pick)


def _draw_new_size(rng: torch.Generator, size: list[int], chance, pick) -> tuple[int, ...]:
    """Join neighbours, split sizes and add ones; now and then change the order or the number of elements."""
    new = list(size)
    if chance(0.4):
        new = [new[i] for i in torch.randperm(len(new), generator=rng).tolist()]
    for _ in range(draw_int(rng, 1, 3)):
        if len(new) > 1 and chance(0.6):
            d = draw_int(rng, 0, len(new) - 2)
            new[d : d + 2] = [new[d] * new[d + 1]]
        elif new:
            d = draw_int(rng, 0, len(new) - 1)
            factors = [f for f in (2, 3) if new[d] and new[d] % f == 0]
            if factors:
                f = pick(factors)
                new[d : d + 1] = [f, new[d] // f] if chance(0.5) else [new[d] // f, f]
    while chance(0.25):
        new.insert(draw_int(rng, 0, len(new)), 1)
    if new and chance(0.05):
        new[draw_int(rng, 0, len(new) - 1)] += 1
    return tuple(new)


@VIEW.check("500 random layouts")
def _(session, rng):
    cases = [draw_layout(rng) for _ in range(500)]
    kinds = []
    for size, _, new_size in cases:
        same = math.prod(size) == math.prod(new_size)
        kind: str | tuple[str, str] = ("numel-only", "contiguous-only") if same else "another-number"
        kind = "empty-tensor" if same and 0 in size else kind
        kinds.append(kind)
    _expect_views(session, cases, kinds)
