"""Checks of chapter 5: what a batch gains, and how it keeps items apart."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

import torch
from torch import nn

from ..evidence import op_counts, state_hash, training_flags
from ..exercise.contract import ANYTHING, Case, Contract, Draw, Fact, Where, shaped
from ..exercise.declare import load_exercises
from ..exercise.expect import expect
from ..exercise.serving import BLANK_MARK
from ..exercise.wire import LearnerError

GAIN, POOL, BUCKETS, BATCHER, ENSEMBLE = load_exercises(__file__)


# 5.1 max_gain and batch_for


def smallest_batch(t0: float, c: float, fraction: float) -> int:
    """The smallest batch that reaches the fraction, in exact arithmetic."""
    return max(1, math.ceil(exact_batch(t0, c, fraction)))


def exact_batch(t0: float, c: float, fraction: float) -> Fraction:
    """The real number of items that reaches the fraction exactly."""
    t0, c, fraction = Fraction(t0), Fraction(c), Fraction(fraction)
    return fraction * t0 / ((1 - fraction) * c)


def whole_number(came: object, *case: float) -> int:
    came = came.item() if isinstance(came, torch.Tensor) and came.dim() == 0 else came
    expect(type(came) is int, message="A whole number of items, an int, is expected.", expected="an int", came=came)
    return came


gain = Contract(
    GAIN,
    "max_gain",
    truth=lambda t0, c: 1 + t0 / c,
    told={
        "linear-gain": math.inf,
        "forgets-own-item": lambda t0, c: t0 / c,
        "throughput-not-gain": lambda t0, c: 1 / c,
        "ratio-on-its-head": lambda t0, c: 1 + c / t0,
    },
)
batch = Contract(
    GAIN,
    "batch_for",
    truth=smallest_batch,
    read=whole_number,
    told={
        "no-item": Where(lambda came: came < 1),
        "rounded-down": lambda *case: smallest_batch(*case) - 1,
        "one-too-many": lambda *case: smallest_batch(*case) + 1,
        "linear-gain/rounded up": lambda t0, c, fraction: math.ceil(fraction * (1 + t0 / c)),
        "linear-gain/rounded down": lambda t0, c, fraction: math.floor(fraction * (1 + t0 / c)),
    },
)


def gain_case(draw: Draw) -> Case:
    t0, c = draw(20, 900) / 100, draw(3, 90) / 1000
    return Case(f"t0={t0}, c={c}", t0, c)


def batch_case(t0: float, c: float, fraction: float) -> Case:
    return Case(f"t0={t0}, c={c}, fraction={fraction}", t0, c, fraction)


def far_from_whole(draw: Draw) -> Iterator[Case]:
    """Far from whole numbers, where the last bit would decide; once just above one, where rounding goes down."""
    for low, high in ((0.1, 0.4), (0.6, 0.9), (0.1, 0.4)):
        while True:
            case = draw(50, 900) / 100, draw(5, 90) / 1000, draw(60, 95) / 100
            exact = exact_batch(*case)
            if low < float(exact % 1) < high and exact > 20:
                break
        yield batch_case(*case)


gain.equals("max_gain is the limit of the gain", lambda draw: [gain_case(draw) for _ in range(3)])
batch.equals("batch_for gives the smallest batch that reaches the fraction", far_from_whole)
batch.equals(
    "counts a batch that reaches the fraction exactly, and never gives less than one item",
    lambda draw: [
        batch_case(0.0, 0.25, 0.5),
        batch_case(0.125, 2.0, 0.5),
        batch_case(1.0, 2.0 ** -draw(3, 6), 0.5),
        batch_case(2.0 ** draw(2, 6), 0.5, 0.5),
    ],
)
batch.refuses(
    "refuses a fraction outside (0, 1)",
    "fraction-not-checked",
    lambda draw: [batch_case(1.0, 0.125, fraction) for fraction in (1.0, 0.0, 1.5, -0.25)],
)


# 5.2 masked_pool


def pool_alone(x: torch.Tensor, lengths: torch.Tensor) -> dict[str, torch.Tensor]:
    """What each item alone gives."""
    items = [x[i, :n] for i, n in enumerate(lengths.tolist())]
    parts = {"mean": lambda t: t.mean(0), "maximum": lambda t: t.amax(0), "last step": lambda t: t[-1]}
    return {name: torch.stack([part(item) for item in items]) for name, part in parts.items()}


def filled(x: torch.Tensor, lengths: torch.Tensor, value: float = 0.0) -> torch.Tensor:
    return x.masked_fill((torch.arange(x.shape[1]) >= lengths[:, None])[..., None], value)


def padded(
    draw: Draw, lengths: list[int], longest: int, features: int = 3, shift: float = 0.0, padding: float | None = None
) -> Case:
    """Random items with padding of this value, by default random and larger: felt in the mean and in the maximum."""
    x, lengths_tensor = draw.randn(len(lengths), longest, features) + shift, torch.tensor(lengths)
    x = x + 3 - filled(torch.full_like(x, 3), lengths_tensor) if padding is None else filled(x, lengths_tensor, padding)
    return Case(f"lengths {lengths} padded to {longest}, {features} feature(s)", x, lengths_tensor)


def empty_item(draw: Draw) -> Case:
    where = draw(6, 9)  # no number that a message has for another reason
    lengths = torch.tensor([0 if i == where else 5 - i % 3 for i in range(10)])
    return Case(f"lengths {lengths.tolist()}", draw.randn(10, 5, 3), lengths, mentions=[str(where)])


pool = Contract(
    POOL,
    truth=pool_alone,
    told={
        "mean-counts-padding": lambda x, n: {"mean": x.mean(1)},
        "mean-divides-by-longest": lambda x, n: {"mean": filled(x, n).mean(1)},
        "padding-taken-for-zero": lambda x, n: {"mean": x.sum(1) / n[:, None]},
        "max-sees-padding": lambda x, n: {"maximum": x.amax(1)},
        "max-filled-with-zero": lambda x, n: {"maximum": filled(x, n).amax(1)},
        "last-is-padding": lambda x, n: {"last step": x[:, -1]},
        "last-off-by-one": lambda x, n: {"last step": x[range(len(n)), n.clamp(max=x.shape[1] - 1)]},
        "every-pair": lambda x, n: {"last step": x[:, n - 1]},
        "squeezed-away": lambda x, n: {part: value.squeeze() for part, value in pool_alone(x, n).items()},
    },
    errors={"(Index|Runtime)Error.*out of": "last-off-by-one"},
)
pool.equals(
    "equals what each item alone gives",
    lambda draw: [padded(draw, [draw(2, 4), 6, draw(1, 5), 3], 8, features) for features in (3, 1)],
)
pool.equals(
    "holds for items that fill the batch, items of one step, and negative values",
    lambda draw: padded(draw, [5, 1, draw(2, 4)], 5, features=4, shift=-9.0),
)
pool.equals(
    "holds for a batch of one padded item",
    lambda draw: padded(draw, [draw(2, 4)], 6),
    instead={"mean-counts-padding": "one-item-skips-mask"},
)
pool.equals(
    "lets no NaN out of the padding",
    lambda draw: padded(draw, [draw(1, 5), 6, draw(1, 5)], 6, padding=math.nan),
    told={"nan-times-zero": Where(lambda came: not came.isfinite().all())},
)
pool.refuses("names an item of length 0 in a ValueError", "zero-length-not-told", empty_item)


# 5.3 bucket_batches and restore


def ask_batches(learner, lengths: list[int], batch_size: int) -> object:
    """Call `bucket_batches`; tensors, arrays and their numbers become lists and ints."""

    def plain(value: object) -> object:
        if isinstance(value, (list, tuple)):
            return [plain(item) for item in value]
        return value.tolist() if hasattr(value, "tolist") else value

    return plain(learner.bucket_batches(lengths, batch_size))


def read_batches(batches: object, lengths: list[int], batch_size: int) -> dict:
    """What there is to say of some batches."""
    good = isinstance(batches, list) and all(isinstance(batch, list) for batch in batches)
    expect(good, message="A list of lists of indices is expected.", came=batches)
    flat = [i for batch in batches for i in batch]
    expect(all(type(i) is int for i in flat), message="The indices should be ints.", came=flat[:8])
    everyone, batches = set(range(len(lengths))), [batch for batch in batches if batch]
    padded_to = sum(len(batch) * max(lengths[i] for i in batch) for batch in batches if set(batch) <= everyone)
    waste = 1 - sum(lengths) / padded_to if padded_to else 0.0
    in_order = all(batch == list(range(batch[0], batch[0] + len(batch))) for batch in batches)
    return {
        "lengths": sorted(flat) == sorted(lengths) and set(flat) != everyone,
        "strange": sorted(set(flat) - everyone)[:8],
        "lost": sorted(everyone - set(flat))[:8],
        "count": len(flat),
        "largest": max(map(len, batches), default=0) <= batch_size,
        "batches": len(batches) <= math.ceil(len(lengths) / batch_size),
        "waste": round(waste, 3),
        "order": "as they arrived" if in_order else "rearranged",
    }


buckets = Contract(BUCKETS, ask=ask_batches, read=read_batches)
EVERY_INDEX_ONCE = (
    Fact("lengths", False, "lengths-not-indices"),
    Fact("strange", [], message="These are no indices of the items."),
    Fact("lost", [], "index-lost"),
    Fact("count", lambda lengths, batch_size: len(lengths), "index-twice"),
    Fact("largest", True, "batch-too-large", expected="at most batch_size items in a batch", came="more"),
    Fact("batches", True, "many-short-batches", expected="as few batches as needed", came="more"),
)


def bucket_cases(draw: Draw) -> Iterator[Case]:
    for count, batch_size in ((5, 16), (24, 8), (4 * draw(5, 9) + 3, 4)):
        lengths = [draw(3, 12) + 2 * count for _ in range(count)]
        yield Case(f"{count} lengths, some of them equal, batch_size {batch_size}", lengths, batch_size)


def thousand_lengths(draw: Draw) -> Case:
    lengths = (draw.randn(1000) * 0.5 + 4).exp().long().clamp(min=1).tolist()
    return Case("1,000 log-normal lengths, batch_size 16", lengths, 16)


buckets.facts("every index once, in as few batches as needed", bucket_cases, *EVERY_INDEX_ONCE)
buckets.facts(
    "wastes less than 0.15 on a thousand log-normal lengths",
    thousand_lengths,
    *EVERY_INDEX_ONCE,
    Fact("order", "rearranged", "arrival-order"),
    Fact("waste", Where(lambda came: came < 0.15), "lengths-still-mixed", expected="less than 0.15"),
)


def scattered(draw: Draw, count: int, batch_size: int) -> list[list[int]]:
    """Batches in an order that is far from being its own inverse."""
    while True:
        order = draw.permutation(count)
        if sum(order[i] != place for place, i in enumerate(order)) > count // 2:
            return [order[k : k + batch_size] for k in range(0, count, batch_size)]


def restored(outputs: list[torch.Tensor], batches: list[list[int]]) -> dict:
    """The rows in the order of the items, and their dtype."""
    joined = torch.cat(outputs)
    rows = torch.empty_like(joined)
    rows[sum(batches, [])] = joined
    return {"rows": rows, "dtype": rows.dtype}


def in_batches(draw: Draw, on: str, rows: torch.Tensor, batch_size: int) -> Case:
    batches = scattered(draw, len(rows), batch_size)
    return Case(on, [rows[batch] for batch in batches], batches)


restore = Contract(
    BUCKETS,
    "restore",
    truth=restored,
    read=lambda came, *case: {"rows": came, "dtype": getattr(came, "dtype", None)},
    told={
        "order-not-restored": lambda outputs, batches: {"rows": torch.cat(outputs)},
        "order-applied-twice": lambda outputs, batches: {"rows": torch.cat(outputs)[sum(batches, [])]},
    },
    rtol=0,
    atol=0,
)
restore.equals(
    "restore gives row i to item i",
    lambda draw: [
        in_batches(draw, "outputs of 12 items with 3 numbers each, batches of 3", draw.randn(12, 3), 3),
        in_batches(draw, "outputs of some items with 3 numbers each, batches of 4", draw.randn(draw(9, 14), 3), 4),
    ],
)
restore.equals(
    "restore takes outputs of any shape and dtype",
    lambda draw: [
        in_batches(draw, "float64 outputs", draw.randn(7, 2).double(), 3),
        in_batches(draw, "a 2 by 3 matrix an item", draw.randn(7, 2, 3), 3),
        in_batches(draw, "one int64 number an item", torch.tensor([2**53 + draw(0, 1000) for _ in range(11)]), 4),
    ],
    told={"only-one-shape": ANYTHING},
    errors={"": "only-one-shape"},
)


# 5.4 MicroBatcher

AN_ERROR = 999  # the item whose answer is an exception object
ODD_ANSWERS = {0: None, 1: 0, AN_ERROR: ValueError("an answer")}


def answer_of(value: int) -> object:
    """What the spy `predict` answers for an item: usually ten times its value, at times None, 0 or an exception."""
    return ODD_ANSWERS.get(value, value * 10)


def error_of(value: int) -> Exception:
    """What the spy `predict` raises for a bad item, a negative one: even and odd ones raise different errors."""
    return (ArithmeticError if value % 2 else ValueError)(f"item {value} is bad")


def returned(value: object) -> str:
    """A returned value in words."""
    return f"returned the error {value!r}" if isinstance(value, BaseException) else f"returned {value!r}"


def raised(error: BaseException) -> str:
    """A raised error in words, a subclass of a known one as that."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    known = (kind for kind in ("KeyError", "ArithmeticError", "ValueError") if kind in kinds)
    return f"raised {next(known, type(error).__name__)}: {str(error)[:300]}"


def run_batcher(learner, max_batch: int, script: list) -> dict:
    """Drive a MicroBatcher through a script; report what came of each line that has a result.

    Lines: ["submit", value], ["again", k] (the k-th submitted object once more), ["step"], ["result", k]. Of a step
    comes the list of batches that `predict` saw, of a result what it returned or raised, in words.
    """
    calls: list[list[int]] = []

    def predict(items):
        calls.append([item["value"] for item in items])
        for value in calls[-1]:
            if value < 0:
                raise error_of(value)
        return [answer_of(value) for value in calls[-1]]

    batcher = learner.MicroBatcher(predict, max_batch)
    tickets, items, report = [], [], {"submit raised": "", "step raised": ""}
    for number, (action, *argument) in enumerate(script):
        seen, error = len(calls), ""
        try:
            if action in ("submit", "again"):
                items.append({"value": argument[0]} if action == "submit" else items[argument[0]])
                tickets.append(None)
                tickets[-1] = batcher.submit(items[-1])
            elif action == "step":
                batcher.step()
            else:
                report[f"line {number}"] = returned(batcher.result(tickets[argument[0]]))
        except LearnerError:
            raise
        except Exception as problem:
            if isinstance(problem, NotImplementedError) and BLANK_MARK in str(problem):
                raise
            error = raised(problem)
        if action == "step":
            report[f"line {number}"] = calls[seen:]
        if error:
            name = {"result": f"line {number}", "step": "step raised"}.get(action, "submit raised")
            report[name] = report.get(name) or error
    report["too large"] = [batch for batch in calls if len(batch) > max_batch]
    return {**report, "empty": calls.count([])}


class Line(NamedTuple):
    """A line of a script, with what must come of it and what anything else tells."""

    action: str
    argument: int | None = None
    wanted: object = None
    told: object = None
    expected: str | None = None


def submit(value: int) -> Line:
    return Line("submit", value)


def step(wanted: list) -> Line:
    """Serve once; `wanted` are the batches that `predict` must see."""
    if not wanted:
        return Line("step", None, [], {})
    size = len(wanted[0])
    told = {
        "waits-for-full-batch": [],
        "one-at-a-time": Where(lambda came: size > 1 and max(map(len, came)) == 1),
        "drains-the-queue": Where(lambda came: len(came) > 1),
        "one-at-a-time/fewer": Where(lambda came: len(came[0]) < size),
        "out-of-order": ANYTHING,
    }
    return Line("step", None, wanted, told)


def result(ticket: int, value: int, told: object = "answers-mixed-up") -> Line:
    """Ask for the answer to an item."""
    return Line("result", ticket, returned(answer_of(value)), told)


def no_result(ticket: int, told: str) -> Line:
    """Ask where there is no answer: a KeyError."""
    return Line("result", ticket, Where(lambda came: came.startswith("raised KeyError")), told, "a KeyError")


def error(ticket: int, value: int, others: list[int]) -> Line:
    """Ask for the answer to a bad item: its own error."""
    kind, text = type(error_of(value)).__name__, str(error_of(value))
    told = {
        "error-returned": Where(lambda came: came.startswith("returned the error")),
        "error-lost/hidden": Where(lambda came: not came.startswith("raised") or "KeyError" in came),
        "someone-elses-error": Where(lambda came: any(str(error_of(other)) in came for other in others if other < 0)),
        "error-lost": ANYTHING,
    }
    wanted = Where(lambda came: came.startswith(f"raised {kind}") and text in came)
    return Line("result", ticket, wanted, told, raised(error_of(value)))


def scene(max_batch: int, *lines: Line) -> Case:
    """A script as a case, each line with its fact."""
    script = [[line.action, *([] if line.argument is None else [line.argument])] for line in lines]
    facts = [
        Fact(f"line {number}", line.wanted, line.told, expected=line.expected)
        for number, line in enumerate(lines)
        if line.wanted is not None
    ]
    told = ", ".join(f"{line.action} {'' if line.argument is None else line.argument}".strip() for line in lines[:16])
    dots = ", …" if len(lines) > 16 else ""
    return Case(f"{told}{dots} (max_batch {max_batch}; negative items are bad)", max_batch, script, facts=facts)


batcher = Contract(BATCHER, ask=run_batcher)
ALWAYS = (
    Fact("empty", 0, "calls-predict-with-nothing"),
    Fact("too large", [], "batch-too-large"),
    Fact("step raised", "", "step-raises"),
    Fact("submit raised", "", {"ticket-not-unique": Where(lambda came: "unhashable" in came)}, "submit() raised."),
)


def full_queue(draw: Draw) -> Case:
    size, start = draw(3, 4), draw(2, 50)
    values = list(range(start, start + 2 * size + 1))
    served = [step([values[k : k + size]]) for k in range(0, len(values), size)]
    wrong = {"answers-mixed-up": Where(lambda came: came.startswith("returned"))}
    return scene(size, *map(submit, values), *served, *(result(k, value, wrong) for k, value in enumerate(values)))


def equal_items(draw: Draw) -> Case:
    """Equal items, one item submitted twice, and one that arrives after a step."""
    first, second = draw(2, 50), draw(60, 90)
    asked = [(4, 55), (0, first), (1, second), (2, first), (3, second)]
    submitted = [submit(first), submit(second), submit(first), Line("again", 1)]
    answers = [result(k, value, "ticket-not-unique") for k, value in asked]
    return scene(3, *submitted, Line("step"), submit(55), Line("step"), Line("step"), *answers)


def once_only(draw: Draw) -> Iterator[Case]:
    value = draw(2, 50)
    early, again = no_result(0, "answer-too-early"), no_result(0, "answer-kept")
    yield scene(2, submit(value), early, Line("step"), result(0, value), again)
    falsy = "falsy-answer-lost"
    answers = [result(0, 0, falsy), result(1, 1, falsy), no_result(0, falsy), no_result(1, falsy)]
    yield scene(2, submit(0), submit(1), Line("step"), *answers)


def outcomes(max_batch: int, values: list[int]) -> Case:
    """Every good item is answered and every bad one raises its own error, after steps enough."""
    good = {
        "neighbours-left-waiting": Where(lambda came: came.startswith("raised KeyError")),
        "one-bad-fails-all": Where(lambda came: came.startswith(("raised", "returned the error"))),
        "answers-mixed-up": ANYTHING,
    }
    steps = [Line("step")] * (3 * len(values) + 3)
    answers = [error(k, v, values) if v < 0 else result(k, v, good) for k, v in enumerate(values)]
    again = [no_result(k, "answer-kept") for k in range(len(values))]
    return scene(max_batch, *map(submit, values), *steps, *answers, *again)


batcher.facts("serves the queue in order, one batch a step, as large as allowed", full_queue, *ALWAYS)
batcher.facts(
    "does nothing when the queue is empty",
    lambda draw: scene(3, step([]), submit(5), step([[5]]), step([]), result(0, 5)),
    *ALWAYS,
)
batcher.facts("gives each ticket its own answer", equal_items, *ALWAYS)
batcher.facts("result() raises KeyError before there is an answer, and a second time", once_only, *ALWAYS)
batcher.facts(
    "an answer may be anything, also an exception object",
    lambda draw: scene(
        2,
        *map(submit, (AN_ERROR, 7)),
        Line("step"),
        result(0, AN_ERROR, "answer-raised"),
        result(1, 7),
        no_result(0, "answer-kept"),
    ),
    *ALWAYS,
)
batcher.facts(
    "a bad item fails alone, with its own error",
    lambda draw: [
        outcomes(3, [20, -draw(3, 60), 30, 40]),
        outcomes(4, [-7]),
        outcomes(4, [-8, 5, -7, 6, 9, 11]),
    ],
    *ALWAYS,
)


# 5.5 predict_ensemble

# What moves or shows memory and computes nothing; the rest of the operations must not grow.
MOVES = {
    *("alias", "as_strided", "cat", "clone", "contiguous", "copy_", "detach", "empty", "empty_like", "empty_strided"),
    *("expand", "fill_", "lift_fresh", "new_empty", "ones", "permute", "reshape", "resize_", "select", "set_", "slice"),
    *("split", "squeeze", "stack", "t", "_to", "transpose", "unbind", "unsqueeze", "view", "_reshape_alias"),
    *("_unsafe_view", "zeros"),
}


class Scaled(nn.Module):
    """Scale the input by a buffer: state that is neither a weight nor a batch-norm statistic."""

    def __init__(self, features: int):
        super().__init__()
        self.register_buffer("scale", torch.rand(features) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


def make_ensemble(kind: str, count: int, seed: int) -> list[nn.Module]:
    """Models of one class in eval mode, with different weights and different buffers; one weight is frozen."""
    torch.manual_seed(seed)
    models = []
    for _ in range(count):
        if kind == "plain":
            model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
        else:
            model = nn.Sequential(Scaled(5), nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))
            model[2].running_mean.normal_()
            model[2].running_var.uniform_(0.5, 2.0)
            model[1].weight.requires_grad_(False)
        models.append(model.eval())
    return models


def make_inputs(rows: int, seed: int) -> torch.Tensor:
    return torch.randn(rows, 5, generator=torch.Generator().manual_seed(seed))


def run_ensemble(learner, kind: str, count: int, rows: int, seed: int) -> dict:
    """Run the learner's `predict_ensemble`; report its output and what happened to the models."""
    models, x = make_ensemble(kind, count, seed), make_inputs(rows, seed)
    before = [dict(model.named_parameters()) for model in models]
    grads = [[p.requires_grad for p in model.parameters()] for model in models]
    hashes, modes = [state_hash(model) for model in models], [training_flags(model) for model in models]
    out = learner.predict_ensemble(models, x)
    now = [dict(model.named_parameters()) for model in models]
    return {
        "out": out,
        "same objects": all(now[i].get(name) is p for i, names in enumerate(before) for name, p in names.items()),
        "grad kept": grads == [[p.requires_grad for p in model.parameters()] for model in models],
        "values kept": hashes == [state_hash(model) for model in models],
        "modes kept": modes == [training_flags(model) for model in models],
    }


def count_ensemble(learner, kind: str, few: int, many: int, seed: int) -> dict:
    """Count the computing operations of the learner's `predict_ensemble` for few models and for many."""
    counts = []
    for count in (few, many):
        models, x = make_ensemble(kind, count, seed), make_inputs(6, seed)
        ops = op_counts(lambda models=models, x=x: learner.predict_ensemble(models, x))
        counts.append({name: n for name, n in ops.items() if name.removesuffix("_copy") not in MOVES})
    return {"seen": all(counts), "growth": [counts, sum(counts[1].values()) - sum(counts[0].values())]}


@torch.no_grad()
def outputs_of(kind: str, count: int, rows: int, seed: int, first_buffers: bool = False) -> torch.Tensor:
    """What a loop over the models gives, shape (models, rows, 3); with the first one's buffers in all, if asked."""
    models, x = make_ensemble(kind, count, seed), make_inputs(rows, seed)
    for model in models if first_buffers else ():
        for name, buffer in model.named_buffers():
            buffer.copy_(dict(models[0].named_buffers())[name])
    return torch.stack([model(x) for model in models])


ensemble = Contract(ENSEMBLE, ask=run_ensemble, errors={"mapped dimension": "maps-over-x"})
OUTPUTS = Fact(
    "out",
    outputs_of,
    {
        "averaged": lambda kind, count, rows, seed: shaped(rows, 3),
        "models-not-first": lambda kind, count, rows, seed: shaped(rows, count, 3),
        "maps-over-x": lambda kind, count, rows, seed: shaped(count, 3),
        "buffers-of-the-first": lambda *case: outputs_of(*case, first_buffers=True),
        "one-model-for-all": Where(lambda came: came.dim() == 3 and (came - came[:1]).abs().max() < 1e-6),
    },
)


def ensemble_case(kind: str, count: int, rows: int, seed: int) -> Case:
    on = f"{count} models, {rows} samples" + (", with buffers" if kind == "buffers" else "")
    return Case(on, kind, count, rows, seed)


ensemble.facts(
    "equals a loop over the models",
    lambda draw: [
        ensemble_case("plain", 1, 4, draw.seed()),
        ensemble_case("plain", draw(3, 4), draw(5, 7), draw.seed()),
    ],
    OUTPUTS,
)
ensemble.facts(
    "uses each model's own buffers",
    lambda draw: ensemble_case("buffers", draw(3, 4), draw(5, 7), draw.seed()),
    OUTPUTS,
)
counted = Contract(ENSEMBLE, ask=count_ensemble)
counted.facts(
    "computes no more operations for more models",
    lambda draw: [
        Case("2 and 6 models (computing operations)", kind, 2, 6, draw.seed()) for kind in ("plain", "buffers")
    ],
    Fact("seen", True, "loops", "No operation was seen: what runs in another thread cannot be counted."),
    Fact("growth", Where(lambda came: came[1] <= 0), "loops", expected="as many operations for 6 models as for 2"),
)
ensemble.facts(
    "leaves the models as they were",
    lambda draw: [ensemble_case(kind, 3, 5, draw.seed()) for kind in ("plain", "buffers")],
    OUTPUTS,
    Fact("same objects", True, "parameters-replaced"),
    Fact("grad kept", True, "requires-grad-changed"),
    Fact("values kept", True, "state-changed"),
    Fact("modes kept", True, "mode-changed"),
)
