"""Checks of chapter 6: size, stride and storage, and what happens when a shape is right and its order is not."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..evidence import row_dependencies, shares_storage
from ..exercise.contract import ANYTHING, Case, Cases, Contract, Draw, Fact, Where, shaped
from ..exercise.declare import load_exercises
from ..exercise.expect import expect, expect_tensor
from ..exercise.values import same
from ..exercise.wire import LearnerError

LAYOUTS, LOGITS, HEADS, LOSS, VIEW = load_exercises(__file__)


# 6.1 predict_layouts

EXPRESSIONS = {  # with what a wrong shape, stride and sharing tells
    "a.t()": (None, {"transpose-moves-data/packed": (2, 1), "transpose-moves-data/kept": (3, 1)}, "view-copies"),
    "a.view(3, 2)": (None, {"view-is-transpose": (1, 3)}, "view-copies"),
    "a.reshape(6)": (None, None, "reshape-always-copies"),
    "a.t().reshape(6)": (None, None, "reshape-never-copies"),
    "a.t().contiguous()": (None, {"contiguous-keeps-strides": (1, 3)}, "contiguous-in-place"),
    "a[:, 1]": (None, {"column-is-packed": (1,)}, "view-copies"),
    "a[[0, 1]]": (None, None, "list-index-is-view"),
    "a[:1].expand(4, 3)": (None, {"expand-is-packed": (3, 1)}, "view-copies"),
}


def layout_of(text: str) -> tuple[tuple[int, ...], tuple[int, ...], bool]:
    """Shape, stride and sharing of an expression, computed."""
    a = torch.arange(6).reshape(2, 3)
    result = eval(text, {"a": a})
    return tuple(result.shape), result.stride(), shares_storage(result, a)


def run_layouts(learner, text: str) -> object:
    return learner.predict_layouts()


def read_row(table: object, text: str) -> dict[int, object]:
    """One row of the learner's table, by column."""
    expect(isinstance(table, dict), message="A dict from expression to its layout is expected.", came=table)
    expect(text in table, message="This row is missing.")
    row = table[text]
    good = isinstance(row, (tuple, list)) and len(row) == 3 and type(row[2]) is bool
    good = good and all(isinstance(part, (tuple, list)) for part in row[:2])
    expect(good, message="A row should be (shape, stride, shares memory).", came=row)
    return dict(enumerate(row))


def column(i: int) -> Cases:
    """One column of the table, row by row."""
    return lambda draw: [
        Case(text, text, facts=[Fact(i, layout_of(text)[i], told[i])]) for text, told in EXPRESSIONS.items()
    ]


layouts = Contract(LAYOUTS, ask=run_layouts, read=read_row)
layouts.facts("all eight shapes", column(0))
layouts.facts("all eight strides", column(1))
layouts.facts("which of them share memory with a", column(2))


# 6.2 pool_logits


def gives_logits(name: str, otherwise: str, sizes: Callable[[Draw], list[tuple[int, int]]]) -> None:
    """Add a rung for these batch sizes and channels, where an error or another shape has this misconception."""

    def features(draw: Draw) -> Iterator[Case]:
        for batch, channels in sizes(draw):
            yield Case(f"features of shape ({batch}, {channels}, 1, 1)", draw.randn(batch, channels, 1, 1))

    told = {
        "dimension-left": lambda x: Where(lambda came: came.shape in (x.shape, x.shape[:3])),
        otherwise: lambda x: Where(lambda came: came.shape != x.shape[:2]),
        "numbers-moved": lambda x: shaped(*x.shape[:2]),
    }
    logits = Contract(LOGITS, truth=lambda x: x[:, :, 0, 0], errors={"Exception": otherwise})
    logits.equals(name, features, told)


gives_logits("four samples", "batch-size-fixed", lambda draw: [(4, draw(2, 6)), (draw(5, 9), draw(2, 6))])
gives_logits("a batch of one", "batch-of-one-lost", lambda draw: [(1, draw(2, 6))])
gives_logits("one channel", "one-channel-lost", lambda draw: [(draw(2, 5), 1), (1, 1)])
gives_logits("an empty batch", "empty-batch", lambda draw: [(0, draw(2, 6)), (0, 1)])


def change_of(x: Tensor, before: Tensor) -> str:
    """What became of the caller's tensor, in words."""
    if x.shape != before.shape or x.stride() != before.stride():
        return f"shape {tuple(x.shape)}, stride {x.stride()}"
    return "as it was" if torch.equal(x, before) else "other numbers"


def run_logits(learner, x: Tensor, weights: Tensor) -> dict:
    """Call `pool_logits` without and with a graph; report what became of input, dtype and gradient."""
    given, leaf = x.clone(), x.clone().requires_grad_()
    found = {"dtype": learner.pool_logits(given).dtype, "input": change_of(given, x), "gradient": None}
    logits = learner.pool_logits(leaf * 1)
    if logits.requires_grad:
        (found["gradient"],) = torch.autograd.grad((logits * weights).sum(), leaf, allow_unused=True)
    return found


def three_dtypes(draw: Draw) -> Iterator[Case]:
    shape = (draw(2, 5), draw(2, 6))
    for dtype in (torch.float32, torch.float64, torch.float16):
        weights = torch.randint(1, 9, shape, generator=draw.rng).to(dtype)
        on = f"features of shape {(*shape, 1, 1)}, {str(dtype)[6:]}"
        yield Case(on, draw.randn(*shape, 1, 1).to(dtype), weights)


NOT_CHANGED = Fact("input", "as it was", "input-changed")
kept = Contract(LOGITS, ask=run_logits, errors={"RuntimeError.*requires grad": "graph-cut"})
kept.facts(
    "keeps the dtype, the graph, and the caller's tensor as it was",
    three_dtypes,
    NOT_CHANGED,
    Fact("dtype", lambda x, weights: x.dtype, "dtype-changed"),
    Fact("gradient", lambda x, weights: weights[:, :, None, None], "graph-cut"),
)


# 6.3 to_channels_first, split_heads and merge_heads


def by_loop(x: Tensor, shape: tuple, place: Callable[..., tuple]) -> Tensor:
    """A tensor of this shape, each number from its place in x."""
    out = torch.empty(shape)
    for index in itertools.product(*map(range, shape)):
        out[index] = x[place(*index)]
    return out


BOTH = "merge_heads of what split_heads gave"
MOVED = {
    "to_channels_first": lambda x: by_loop(x, (len(x), 3, 4, 5), lambda b, c, h, w: (b, h, w, c)),
    "split_heads": lambda x, heads=2: by_loop(x, (len(x), heads, 5, 3), lambda b, h, t, d: (b, t, h * 3 + d)),
    "merge_heads": lambda x: by_loop(x, (len(x), 5, 6), lambda b, t, f: (b, f // 3, t, f % 3)),
    BOTH: torch.clone,
}
EXAMPLES = {  # the shape of an input, and an order in which its dimensions may lie in memory
    "to_channels_first": ((2, 4, 5, 3), (0, 3, 1, 2)),
    "split_heads": ((3, 5, 6), (1, 2, 0)),
    "merge_heads": ((3, 2, 5, 3), (3, 1, 0, 2)),
    BOTH: ((3, 5, 6), (1, 2, 0)),
}
A_VIEW = {"(?s)RuntimeError.*view": "view-needs-contiguous"}


def equals_loop(name: str, told: dict, inputs: Callable[[Draw], list[tuple]]) -> None:
    """Add a rung for inputs of these shapes, some with a number of heads."""

    def cases(draw: Draw) -> Iterator[Case]:
        for shape, *heads in inputs(draw):
            on = f"an input of shape {shape}" + "".join(f", {count} head(s)" for count in heads)
            yield Case(on, draw.randn(*shape), *heads)

    moves = Contract(HEADS, name, truth=MOVED[name], rtol=0, atol=0)
    moves.equals(f"{name} equals the loop over indices", cases, told, errors=A_VIEW if name == "merge_heads" else {})


equals_loop(
    "to_channels_first",
    {
        "view-for-permute": lambda x: x.reshape(len(x), 3, 4, 5),
        "height-width-swapped": lambda x: shaped(len(x), 3, 5, 4),
        "batch-of-one-lost": shaped(3, 4, 5),
    },
    lambda draw: [((2, 4, 5, 3),), ((1, 4, 5, 3),)],
)
equals_loop(
    "split_heads",
    {
        "heads-by-view": lambda x, heads: x.reshape(len(x), heads, 5, 3),
        "features-interleaved": lambda x, heads: x.reshape(len(x), 5, 3, heads).permute(0, 3, 1, 2),
        "heads-behind-positions": lambda x, heads: shaped(len(x), 5, heads, 3),
        "heads-is-width": lambda x, heads: shaped(len(x), 3, 5, heads),
        "batch-of-one-lost": lambda x, heads: shaped(heads, 5, 3),
    },
    lambda draw: [((draw(2, 3), 5, 6), 2), ((1, 5, 6), 2), ((2, 5, 3), 1)],
)
equals_loop(
    "merge_heads",
    {
        "merge-forgets-transpose": lambda x: x.reshape(len(x), 5, 6),
        "features-interleaved": lambda x: x.permute(0, 2, 3, 1).reshape(len(x), 5, 6),
        "batch-of-one-lost": shaped(5, 6),
    },
    lambda draw: [((draw(2, 3), 2, 5, 3),), ((1, 2, 5, 3),)],
)


def moved(learner, name: str, x: Tensor) -> object:
    """What the learner's function gives, with two heads."""
    if name == BOTH:
        return learner.merge_heads(learner.split_heads(x, 2))
    return learner.split_heads(x, 2) if name == "split_heads" else getattr(learner, name)(x)


def run_moved(learner, name: str, x: Tensor, order: tuple[int, ...] = ()) -> dict:
    """Run one of the functions, if asked on an input whose dimensions lie in memory in another order."""
    if order:
        x = torch.empty_permuted(x.shape, order).copy_(x)
    before = x.clone()
    came = moved(learner, name, x)
    return {"numbers": came, "dtype": getattr(came, "dtype", None), "input": change_of(x, before)}


def otherwise_laid_out(draw: Draw) -> Iterator[Case]:
    for name, (shape, order) in EXAMPLES.items():
        x = draw.randn(*shape)
        wanted = MOVED[name](x)
        told = {"merge-not-inverse" if name == BOTH else "assumes-layout": shaped(*wanted.shape)}
        on = f"{name}, an input whose dimensions lie in memory in another order"
        yield Case(on, name, x, order, facts=[Fact("numbers", wanted, told, rtol=0, atol=0)])


def rows_apart(draw: Draw) -> Iterator[Case]:
    apart = {  # the dimension of these rows in the output and in the input
        "to_channels_first": {"sample": (0, 0), "line": (2, 1), "column": (3, 2), "channel": (1, 3)},
        "split_heads": {"sample": (0, 0), "position": (2, 1)},
        "merge_heads": {"sample": (0, 0), "position": (1, 2)},
    }
    for name, rows in apart.items():
        x = draw.randn(*EXAMPLES[name][0])
        for what, dims in rows.items():
            yield Case(f"{name}: which {what}s of the input each {what} of the output reads", name, x, *dims)


def run_rows(learner, name: str, x: Tensor, out_dim: int, in_dim: int) -> list[list[int]]:
    """Which rows of the input each row of the output depends on."""
    matrix = row_dependencies(lambda x: moved(learner, name, x), x, out_dim, in_dim)
    return [entries.nonzero().flatten().tolist() for entries in matrix]


def two_dtypes(draw: Draw) -> Iterator[Case]:
    for dtype in (torch.float64, torch.float16):
        for name in HEADS.names:
            yield Case(f"{name} with {str(dtype)[6:]}", name, draw.randn(*EXAMPLES[name][0]).to(dtype))


moves = Contract(HEADS, ask=run_moved)
moves.facts(
    "the same for inputs that lie otherwise in memory, and merge undoes split",
    otherwise_laid_out,
    NOT_CHANGED,
    errors={**A_VIEW, "RuntimeError": "assumes-layout"},
)
rows = Contract(
    HEADS,
    ask=run_rows,
    truth=lambda name, x, out_dim, in_dim: [[row] for row in range(x.shape[in_dim])],
    told={"graph-cut": Where(lambda came: not any(came)), "rows-mixed": ANYTHING},
    errors={"ValueError.*graph|RuntimeError(?!.*in-place).*requires grad": "graph-cut"},
)
rows.equals("every output row depends on its own input row alone", rows_apart)
moves.facts("the dtype stays as it came", two_dtypes, Fact("dtype", lambda name, x: x.dtype, "dtype-changed"))


# 6.4 regression_loss


def mean_square(pred: Tensor, target: Tensor) -> float:
    """The mean over the same N numbers."""
    return (pred.double().flatten() - target.double().flatten()).square().mean().item()


def one_number(came: object, *case: Tensor) -> object:
    """The loss as a number, whether a tensor or a float came; an error in words stays."""
    if isinstance(came, (float, str)):
        return came
    expect(expect_tensor(came).numel() == 1, message="A scalar is expected.", came=came)
    return came.item()


def run_both_orders(learner, pred: Tensor, target: Tensor) -> list:
    """What the loss gives for the two, and for the two exchanged: an error in words."""
    came: list[object] = []
    for order in ((pred, target), (target, pred)):
        try:
            came.append(learner.regression_loss(*(tensor.clone() for tensor in order)))
        except (LearnerError, NotImplementedError):  # a missing or a blank part
            raise
        except Exception as error:
            came.append(f"raised {type(error).__name__}: {error}")
    return came


def run_refused(learner, pred: Tensor, target: Tensor) -> dict:
    """Report in words the ValueError of the learner's loss, or what it returned."""
    try:
        return {"came": f"returned {learner.regression_loss(pred, target)!r}"}
    except ValueError as error:
        return {"came": f"ValueError: {error}"}


def run_gradient(learner, pred: Tensor, target: Tensor) -> Tensor | None:
    """Backpropagate the learner's loss; give the gradient that reached pred."""
    pred = pred.clone().requires_grad_()
    loss = learner.regression_loss(pred, target)
    if isinstance(loss, Tensor) and loss.requires_grad:
        loss.backward()
    return pred.grad


def pair(draw: Draw, shapes: tuple, whole: bool = False, note: str = "", facts: Iterable[Fact] = ()) -> Case:
    """Random predictions and targets of two shapes."""
    pred = draw.randn(*shapes[0]) * 2
    target = torch.randint(-4, 5, shapes[1], generator=draw.rng) if whole else draw.randn(*shapes[1])
    on = f"pred of shape {shapes[0]}, target of shape {shapes[1]}{', int64' if whole else ''}{note}"
    return Case(on, pred, target, facts=facts, errors={"Exception": "integer-target"} if whole else {})


def pairs(shapes: Callable[[int], list[tuple]], wholes: Iterable[bool] = (False,), note: str = "") -> Cases:
    """Cases of the pairs of shapes that a function of N gives, with float or whole targets."""
    return lambda draw: [pair(draw, both, whole, note) for whole in wholes for both in shapes(draw(3, 7))]


def names(text: str, shape: tuple) -> bool:
    """Whether the text holds the shape's sizes one after the other, however they are written."""
    sizes = r"\D+".join(map(str, shape))
    return re.search(rf"(?<!\d){sizes}(?!\d)", text.replace("torch.float32", "")) is not None


def unlike_pair(draw: Draw, both: tuple, misconception: str) -> Case:
    """Two shapes that are to be refused, and what it tells to accept them."""
    told = {misconception: Where(lambda came: came.startswith("returned")), "shapes-not-named": ANYTHING}
    refused = Where(lambda came: came.startswith("ValueError: ") and all(names(came, shape) for shape in both))
    fact = Fact("came", refused, told, expected="a ValueError that names {} and {}".format(*both))
    return pair(draw, both, facts=[fact])


def unlike(draw: Draw) -> list[Case]:
    n, m = draw(3, 5), draw(6, 8)
    vector, row, upright, matrix = (n,), (1, n), (n, 1), (n, m)
    ones = [(row, vector), (vector, row), (upright, row), ((n, 1, 1), vector), ((n, 1, 1), upright)]
    broadcasting = [(matrix, (m,)), (matrix, upright), (vector, (m, 1)), (upright, (1,)), (matrix, vector)]
    shapes = {
        "equal-numel-accepted": [(matrix, (m, n)), ((n * m,), matrix), ((n, 2), (n * 2, 1))],
        "extra-ones-dropped": [*ones, ((n, m, 1), matrix)],
        "broadcast-accepted": [*broadcasting, ((n, n), vector)],
        "scalar-accepted": [((1,), ()), ((), (1,)), ((1, 1), ()), ((), (1, 1))],
    }
    return [unlike_pair(draw, both, told) for told, several in shapes.items() for both in several]


EITHER_ORDER = "a column against a vector, in either order"
WRONG_VALUES = {
    "broadcast": lambda pred, target: (pred.double() - target.double()).square().mean().item(),
    "sum-not-mean": lambda pred, target: mean_square(pred, target) * pred.numel(),
}
loss = Contract(LOSS, truth=mean_square, read=one_number, told=WRONG_VALUES)
either_order = Contract(
    LOSS,
    ask=run_both_orders,
    truth=lambda *case: [mean_square(*case)] * 2,
    read=lambda came, *case: [one_number(value) for value in came],
    told={
        "only-one-order": lambda *case: Where(lambda came: any(same(value, mean_square(*case)) for value in came)),
        "column-refused": Where(lambda came: all(isinstance(value, str) for value in came)),
        "broadcast": lambda *case: Where(lambda came: same(came[0], WRONG_VALUES["broadcast"](*case))),
        "sum-not-mean": lambda *case: Where(lambda came: same(came[0], WRONG_VALUES["sum-not-mean"](*case))),
    },
)
refusal = Contract(LOSS, ask=run_refused, errors={"Exception": "not-a-value-error"})
gradient = Contract(
    LOSS,
    ask=run_gradient,
    truth=lambda pred, target: 2 * (pred - target.reshape(pred.shape)) / pred.numel(),
    told={"graph-cut": None, "gradient-wrong": ANYTHING},
)

loss.equals("equal shapes", pairs(lambda n: [((), ()), ((n,), (n,)), ((n, 1), (n, 1)), ((n, 2), (n, 2))]))
either_order.equals(EITHER_ORDER, pairs(lambda n: [((n, 1), (n,))], note=", then the two exchanged"))
loss.equals(
    EITHER_ORDER,
    pairs(lambda n: [((1, 1), (1,)), ((1,), (1, 1))]),
    told={"one-sample-refused": ANYTHING},
    errors={"Exception": "one-sample-refused"},
)
refusal.facts("refuses other shapes with a ValueError that names both", unlike)
loss.equals(
    "integer targets",
    pairs(lambda n: [((n,), (n,)), ((n, 1), (n,)), ((n,), (n, 1))], wholes=[True]),
    told={
        **WRONG_VALUES,
        "whole-numbers-lost": lambda pred, target: mean_square(pred.long(), target),
        "integer-target": ANYTHING,
    },
)
gradient.equals(
    "the gradient of the textbook",
    pairs(lambda n: [((n, 1), (n,)), ((n,), (n, 1)), ((n, 2), (n, 2))], wholes=[False, True]),
)


# 6.5 can_view

Sizes = tuple[int, ...]


def torch_can_view(size: Sizes, stride: Sizes, new_size: Sizes) -> bool:
    """Ask torch whether the view exists."""
    try:
        torch.empty_strided(size, stride).view(new_size)
    except RuntimeError:
        return False
    return True


class ChosenStrides(TorchFunctionMode):
    """Notes where a tensor is made with chosen strides; working with index tensors is fine."""

    TELLING = ("as_strided", "as_strided_", "empty_strided", "new_empty_strided", "set_")

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen += {getattr(func, "__name__", "")}.intersection(self.TELLING)
        return func(*args, **(kwargs or {}))


def run_can_view(learner, *layout: Sizes) -> dict:
    """Ask the learner about one layout, and notice whether a tensor with chosen strides was made."""
    with ChosenStrides() as spy:
        answer = learner.can_view(*layout)
    return {"answer": answer, "made": spy.seen}


def layout(size: Sizes, stride: Sizes, new_size: Sizes, wrong_true: str, wrong_false: str = "") -> Case:
    """A layout with the misconception behind a wrong True, and the one behind a wrong False if that is another."""
    truth = torch_can_view(size, stride, new_size)
    told = wrong_false if truth and wrong_false else wrong_true
    facts = (
        Fact(
            "answer",
            truth,
            {told: not truth},
            message=lambda came: "" if type(came) is bool else "True or False is expected.",
        ),
        Fact("made", [], "asked-torch", expected="no tensor with chosen strides"),
    )
    on = f"size {size}, stride {stride}, new_size {new_size}"
    return Case(on, size, stride, new_size, facts=facts, errors={"Exception": told})


def layouts_in(table: dict[tuple[Sizes, Sizes], list[Sizes]], *told: str) -> list[Case]:
    """The layouts of a table: a size and a stride, with the new sizes."""
    return [layout(size, stride, new, *told) for (size, stride), news in table.items() for new in news]


def contiguous_layouts(draw: Draw) -> list[Case]:
    a, b = draw(2, 3), draw(4, 5)
    tensor = (a, b, 4), (4 * b, 4, 1)
    fitting = [(a * b, 4), (a * b * 4,), (a, b, 2, 2), (4, b, a), (2, a * b, 2), (a, 2, b * 2)]
    others = [(a * b, 3), (a * b * 4 + 1,), (a, b), (a, b, 8), (a * b * 4, 2), (7, 11), ()]
    return [*layouts_in({tensor: fitting}, "never-joins"), *layouts_in({tensor: others}, "another-number")]


def uneven_layouts(draw: Draw) -> list[Case]:
    n = draw(3, 5)
    table = {
        ((3, 2), (1, 3)): [(6,), (2, 3)],
        ((3, 2, 4), (4, 12, 1)): [(6, 4), (3, 8), (3, 2, 2, 2)],
        ((4, n), (1, 4)): [(2, 2, n), (2, 2 * n)],
        ((n, 4), (10, 1)): [(n * 4,), (n, 2, 2)],
        ((2 * n,), (3,)): [(n, 2)],
        ((n, 2), (8, 4)): [(2 * n,)],
        ((2, 3, 4, n), (12 * n, 1, 3 * n, 3)): [(2, 3, 4 * n), (6, 4, n), (2, 12 * n)],
    }
    return layouts_in(table, "numel-only", "contiguous-only")


def layouts_with_ones(draw: Draw) -> list[Case]:
    odd = draw(20, 99)
    table = {
        ((1, 1), (odd, odd)): [(1,)],
        ((2, 1, 3), (3, odd, 1)): [(6,)],
        ((1, 2, 3), (odd, 3, 1)): [(6,)],
        ((2, 3, 1), (3, 1, odd)): [(6,), (3, 2)],
        ((2, 3), (3, 1)): [(1, 6, 1)],
        ((3, 2), (1, 3)): [(3, 1, 2), (1, 3, 2, 1, 1)],
        ((3, 1, 2), (1, odd, 3)): [(6, 1)],
        ((4, 1), (1, 4)): [(2, 1, 2)],
    }
    return layouts_in(table, "size-one-counts")


def layouts_at_the_edge(draw: Draw) -> list[Case]:
    n = draw(2, 4)
    scalar = {((), ()): [(), (1, 1)], ((1, 1), (1, 1)): [()]}
    empty = {
        ((0,), (1,)): [(0, 5), ()],
        ((2,), (1,)): [(0, 2)],
        ((0, 3), (3, 1)): [(0,), (3,)],
        ((0, 3), (1, 7)): [(0, 3)],
        ((3, 0), (1, 3)): [(0, 7)],
        ((n, 0, 2), (1, 5, 9)): [(4, 0, 3)],
    }
    expanded = {
        ((6,), (0,)): [(2, 3)],
        ((n, 3), (0, 0)): [(3 * n,)],
        ((n, 3), (0, 1)): [(3 * n,)],
        ((n, 3), (1, 0)): [(3 * n,)],
        ((n, 4), (0, 1)): [(n, 2, 2)],
        ((4, n), (0, 1)): [(2, 2, n)],
    }
    return [
        *layouts_in(scalar, "scalar"),
        *layouts_in(empty, "empty-tensor"),
        *layouts_in(expanded, "stride-zero"),
        layout((), (), (2,), "another-number"),
    ]


def draw_layout(draw: Draw) -> tuple[Sizes, Sizes, Sizes]:
    """Draw a size and a stride (permuted, sliced, expanded, with odd strides at size 1), and a size to view it as."""
    size = [draw.choice([1, 2, 2, 3, 4, 4, 6]) for _ in range(draw.choice([0, 1, 2, 2, 3, 3, 3, 4, 4, 4]))]
    last = len(size) - 1
    if size and chance(draw, 0.06):
        size[draw(0, last)] = 0
    stride = list(torch.empty(size).stride())
    if chance(draw, 0.3):
        stride = [2 * step for step in stride]
    if last > 0 and chance(draw, 0.4):
        d = draw(1, last)
        stride[:d] = [2 * step for step in stride[:d]]
    if last > 0 and chance(draw, 0.8):
        i, j = draw(0, last), draw(0, last)
        size[i], size[j], stride[i], stride[j] = size[j], size[i], stride[j], stride[i]
    for d, length in enumerate(size):
        if chance(draw, 0.12):
            stride[d] = 0
        if length == 1 and chance(draw, 0.7):
            stride[d] = draw(0, 40)
    return tuple(size), tuple(stride), draw_new_size(draw, size)


def draw_new_size(draw: Draw, size: list[int]) -> Sizes:
    """Join neighbours, split sizes and add ones; now and then change the order or the number of elements."""
    new = [size[d] for d in draw.permutation(len(size))] if chance(draw, 0.4) else list(size)
    for _ in range(draw(1, 3)):
        if len(new) > 1 and chance(draw, 0.6):
            d = draw(0, len(new) - 2)
            new[d : d + 2] = [new[d] * new[d + 1]]
        elif new:
            d = draw(0, len(new) - 1)
            factors = [f for n in (2, 3) if new[d] and new[d] % n == 0 for f in (n, new[d] // n)]
            if factors:
                f = draw.choice(factors)
                new[d : d + 1] = [f, new[d] // f]
    while chance(draw, 0.25):
        new.insert(draw(0, len(new)), 1)
    if new and chance(draw, 0.05):
        new[draw(0, len(new) - 1)] += 1
    return tuple(new)


def chance(draw: Draw, share: float) -> bool:
    return draw.real(0, 1) < share


def random_layouts(draw: Draw) -> Iterator[Case]:
    """500 of them, the smallest first."""
    drawn = [draw_layout(draw) for _ in range(500)]
    for size, stride, new in sorted(drawn, key=lambda case: (len(case[0]) + len(case[2]), math.prod(case[0]))):
        told = ("empty-tensor",) if 0 in size else ("numel-only", "contiguous-only")
        told = told if math.prod(size) == math.prod(new) else ("another-number",)
        yield layout(size, stride, new, *told)


view = Contract(VIEW, ask=run_can_view)
view.facts("contiguous tensors: every size with as many elements", contiguous_layouts)
view.facts("transposed and sliced tensors: only where the steps stay even", uneven_layouts)
view.facts("dimensions of size 1, old and new, change nothing", layouts_with_ones)
view.facts("no dimension at all, no element at all, strides of 0", layouts_at_the_edge)
view.facts("500 random layouts", random_layouts)
