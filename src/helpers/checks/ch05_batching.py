"""Checks of chapter 5: what a batch gains, and how it keeps items apart."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

import torch
from torch import nn

from ..evidence import op_counts, state_hash, training_flags
from ..exercise.contract import ANYTHING, Case, Contract, Draw, Fact, Where, shaped
from ..exercise.declare import load_exercises
from ..exercise.expect import expect
from ..exercise.serving import BLANK_MARK

GAIN, POOL, BUCKETS, BATCHER, ENSEMBLE = load_exercises(__file__)


# 5.1 max_gain and batch_for


def exact_batch(*case: float) -> Fraction:
    """The real number of items that reaches the fraction, in exact arithmetic."""
    t0, c, fraction = map(Fraction, case)
    return fraction * t0 / ((1 - fraction) * c)


def smallest_batch(*case: float) -> int:
    return max(1, math.ceil(exact_batch(*case)))


def whole_number(came: object, *case: float) -> int:
    came = came.item() if isinstance(came, torch.Tensor) and came.dim() == 0 else came
    expect(type(came) is int, message="A whole number of items, an int, is expected.", came=came)
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


def timed(*numbers: float) -> Case:
    return Case(", ".join(f"{name}={x}" for name, x in zip(("t0", "c", "fraction"), numbers, strict=False)), *numbers)


def far_from_whole(draw: Draw) -> Iterator[Case]:
    """Far from whole numbers, where the last bit would decide; once just above one, where rounding goes down."""
    for low, high in ((0.1, 0.4), (0.6, 0.9), (0.1, 0.4)):
        while True:
            case = draw(50, 900) / 100, draw(5, 90) / 1000, draw(60, 95) / 100
            exact = exact_batch(*case)
            if low < float(exact % 1) < high and exact > 20:
                break
        yield timed(*case)


gain.equals(
    "max_gain is the limit of the gain", lambda draw: [timed(draw(20, 900) / 100, draw(3, 90) / 1000) for _ in range(3)]
)
batch.equals("batch_for gives the smallest batch that reaches the fraction", far_from_whole)
batch.equals(
    "counts a batch that reaches the fraction exactly, and never gives less than one item",
    lambda draw: [
        timed(0.0, 0.25, 0.5),
        timed(0.125, 2.0, 0.5),
        timed(1.0, 2.0 ** -draw(3, 6), 0.5),
        timed(2.0 ** draw(2, 6), 0.5, 0.5),
    ],
)
batch.refuses(
    "refuses a fraction outside (0, 1)",
    "fraction-not-checked",
    lambda draw: [timed(1.0, 0.125, fraction) for fraction in (1.0, 0.0, 1.5, -0.25)],
)


# 5.2 masked_pool


def pool_alone(x: torch.Tensor, lengths: torch.Tensor) -> dict[str, torch.Tensor]:
    """What each item alone gives."""
    items = [x[i, :n] for i, n in enumerate(lengths.tolist())]
    return {
        "mean": torch.stack([item.mean(0) for item in items]),
        "maximum": torch.stack([item.amax(0) for item in items]),
        "last step": torch.stack([item[-1] for item in items]),
    }


def padding_of(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """True for the steps that are padding."""
    return (torch.arange(x.shape[1]) >= lengths[:, None])[..., None]


def filled(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    return x.masked_fill(padding_of(x, lengths), 0.0)


def padded(
    draw: Draw, lengths: list[int], longest: int, features: int = 3, shift: float = 0.0, extra: float = 3.0
) -> Case:
    """Random items, the padding larger by `extra`: felt in the mean and in the maximum."""
    x, own = draw.randn(len(lengths), longest, features) + shift, torch.tensor(lengths)
    x = torch.where(padding_of(x, own), x + extra, x)
    return Case(f"lengths {lengths} padded to {longest}, {features} feature(s)", x, own)


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
)
pool.equals(
    "equals what each item alone gives",
    lambda draw: [padded(draw, [draw(2, 4), 6, draw(1, 5), 3], 8, features) for features in (3, 1)],
)
pool.equals(
    "holds for items that fill the batch, items of one step, and negative values",
    lambda draw: padded(draw, [5, 1, draw(2, 4)], 5, features=4, shift=-9.0),
    errors={"(Index|Runtime)Error.*out of": "last-off-by-one"},
)
pool.equals(
    "holds for a batch of one padded item",
    lambda draw: padded(draw, [draw(2, 4)], 6),
    instead={"mean-counts-padding": "one-item-skips-mask"},
)
pool.equals(
    "lets no NaN out of the padding",
    lambda draw: padded(draw, [draw(1, 5), 6, draw(1, 5)], 6, extra=math.nan),
    told={"nan-times-zero": Where(lambda came: not came.isfinite().all())},
)
pool.refuses("names an item of length 0 in a ValueError", "zero-length-not-told", empty_item)


# 5.3 bucket_batches and restore


def plain(value: object) -> object:
    """Lists and ints in place of tensors, arrays and their numbers."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def ask_batches(learner, lengths: list[int], batch_size: int) -> object:
    return plain(learner.bucket_batches(lengths, batch_size))


def read_batches(batches: object, lengths: list[int], batch_size: int) -> dict:
    """What there is to say of batches that hold every index."""
    good = isinstance(batches, list) and all(isinstance(batch, list) for batch in batches)
    expect(good, message="A list of lists of indices is expected.", came=batches)
    flat, everyone = sum(batches, []), set(range(len(lengths)))
    expect(all(type(i) is int for i in flat), message="The indices should be ints.", came=flat[:8])
    strange, lost = sorted(set(flat) - everyone), sorted(everyone - set(flat))
    expect(not (strange or lost) or sorted(flat) != sorted(lengths), "lengths-not-indices", came=batches[:2])
    expect(not strange, message="These are no indices of the items.", came=strange[:8])
    expect(not lost, "index-lost", came=f"missing: {lost[:8]}")
    batches = [batch for batch in batches if batch]
    in_order = all(batch == list(range(batch[0], batch[0] + len(batch))) for batch in batches)
    return {
        "count": len(flat),
        "largest": max(map(len, batches)),
        "batches": len(batches),
        "order": "as they arrived" if in_order else "rearranged",
        "waste": round(1 - sum(lengths) / sum(len(batch) * max(lengths[i] for i in batch) for batch in batches), 3),
    }


buckets = Contract(BUCKETS, ask=ask_batches, read=read_batches)
EVERY_INDEX_ONCE = (
    Fact("count", lambda lengths, batch_size: len(lengths), "index-twice"),
    Fact("largest", lambda lengths, batch_size: Where(lambda came: came <= batch_size), "batch-too-large"),
    Fact("batches", lambda lengths, batch_size: math.ceil(len(lengths) / batch_size), "many-short-batches"),
)
buckets.facts(
    "every index once, in as few batches as needed",
    lambda draw: [
        Case(f"{n} lengths, some of them equal, batch_size {size}", [draw(3, 12) + 2 * n for _ in range(n)], size)
        for n, size in ((5, 16), (24, 8), (4 * draw(5, 9) + 3, 4))
    ],
    *EVERY_INDEX_ONCE,
)
buckets.facts(
    "wastes less than 0.15 on a thousand log-normal lengths",
    lambda draw: Case("1,000 lengths, batch_size 16", (draw.randn(1000) * 0.5 + 4).exp().long().tolist(), 16),
    *EVERY_INDEX_ONCE,
    Fact("order", "rearranged", "arrival-order"),
    Fact("waste", Where(lambda came: came < 0.15), "lengths-still-mixed"),
)


def restored(outputs: list[torch.Tensor], batches: list[list[int]]) -> dict:
    """The rows in the order of the items, and their dtype."""
    rows = torch.cat(outputs)[torch.tensor(sum(batches, [])).argsort()]
    return {"rows": rows, "dtype": rows.dtype}


def in_batches(draw: Draw, rows: torch.Tensor, batch_size: int) -> Case:
    """Batches in an order that is far from being its own inverse."""
    while True:
        order = draw.permutation(len(rows))
        if sum(order[i] != place for place, i in enumerate(order)) > len(rows) // 2:
            break
    batches = [order[k : k + batch_size] for k in range(0, len(rows), batch_size)]
    on = f"{rows.dtype} outputs that make rows of shape {list(rows.shape)}, batches of {batch_size}"
    return Case(on, [rows[batch] for batch in batches], batches)


restore = Contract(
    BUCKETS,
    "restore",
    truth=restored,
    read=lambda came, *case: {"rows": came, "dtype": getattr(came, "dtype", None)},
    told={
        "order-not-restored": lambda outputs, batches: {"rows": torch.cat(outputs)},
        "order-applied-twice": lambda outputs, batches: {"rows": torch.cat(outputs)[sum(batches, [])]},
        "only-one-shape": lambda outputs, batches: {"dtype": ANYTHING},
    },
    rtol=0,
    atol=0,
)
restore.equals(
    "restore gives row i to item i",
    lambda draw: [in_batches(draw, draw.randn(12, 3), 3), in_batches(draw, draw.randn(draw(9, 14), 3), 4)],
)
restore.equals(
    "restore takes outputs of any shape and dtype",
    lambda draw: [
        in_batches(draw, draw.randn(7, 2).double(), 3),
        in_batches(draw, draw.randn(7, 2, 3), 3),
        in_batches(draw, torch.tensor([2**53 + draw(0, 1000) for _ in range(11)]), 4),
    ],
    told={"only-one-shape/anything": ANYTHING},
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


NO_KEY = Where(lambda came: came.startswith("raised KeyError"))


def returned(value: object) -> str:
    """A returned value in words."""
    return f"returned the error {value!r}" if isinstance(value, BaseException) else f"returned {value!r}"


def raised(error: BaseException) -> str:
    """A raised error in words, a subclass of a known one as that."""
    kinds = [kind for kind in (KeyError, ArithmeticError, ValueError) if isinstance(error, kind)]
    return f"raised {[*kinds, type(error)][0].__name__}: {str(error)[:300]}"


def run_batcher(learner, max_batch: int, script: list[str]) -> dict:
    """Drive a MicroBatcher through a script; report what came of its lines, and what `predict` saw.

    Lines: "submit VALUE", "again VALUE" (the same object once more), "step", "result K" (of the K-th ticket). Of a
    step comes the list of batches that `predict` saw, of a result what it returned or raised, in words.
    """
    calls: list[list[int]] = []

    def predict(batch):
        calls.append([item["value"] for item in batch])
        for value in calls[-1]:
            if value < 0:
                raise error_of(value)
        return [answer_of(value) for value in calls[-1]]

    batcher = learner.MicroBatcher(predict, max_batch)
    tickets, items, report = [], {}, {"raised": ""}
    for place, line in enumerate(script):
        action, *number = line.split()
        seen, number = len(calls), int(number[0]) if number else 0
        try:
            if action == "step":
                batcher.step()
            elif action == "result":
                report[place] = returned(batcher.result(tickets[number]))
            else:
                items[number] = items[number] if action == "again" else {"value": number}
                tickets.append(None)
                tickets[-1] = batcher.submit(items[number])
        except Exception as problem:
            if BLANK_MARK in str(problem):
                raise
            if action == "result":
                report[place] = raised(problem)
            else:
                report["raised"] = report["raised"] or f"{action}() {raised(problem)}"
        if action == "step":
            report[place] = calls[seen:]
    return {**report, "calls": calls}


ALWAYS = (
    Fact(
        "calls",
        lambda max_batch, script: Where(lambda came: all(1 <= len(batch) <= max_batch for batch in came)),
        {"calls-predict-with-nothing": Where(lambda came: [] in came), "batch-too-large": ANYTHING},
    ),
    Fact(
        "raised",
        "",
        {
            "step-raises": Where(lambda came: came.startswith("step")),
            "ticket-not-unique": Where(lambda came: "unhashable" in came),
        },
        "submit() raised.",
    ),
)
Line = str | tuple[str, Fact]  # of a script, with what must come of it


def step(*batch: int) -> Line:
    """Serve once; `predict` must see this batch, or nothing."""
    told = {
        "waits-for-full-batch": [],
        "one-at-a-time": Where(lambda came: len(batch) > 1 and max(map(len, came)) == 1),
        "drains-the-queue": Where(lambda came: len(came) > 1),
        "one-at-a-time/fewer": Where(lambda came: len(came[0]) < len(batch)),
        "out-of-order": ANYTHING,
    }
    nothing = Fact(None, [], message="A step with an empty queue called predict.")
    return "step", Fact(None, [list(batch)], told) if batch else nothing


def result(ticket: int, value: int, told: object = "answers-mixed-up") -> Line:
    """Ask for the answer to an item."""
    return f"result {ticket}", Fact(None, returned(answer_of(value)), told)


def no_result(ticket: int, told: str) -> Line:
    """Ask where there is no answer."""
    return f"result {ticket}", Fact(None, NO_KEY, told)


def error(ticket: int, value: int, values: Sequence[int]) -> Line:
    """Ask for the answer to a bad item: its own error."""
    own = raised(error_of(value))
    others = [str(error_of(other)) for other in values if other < 0 and other != value]
    told = {
        "error-returned": Where(lambda came: came.startswith("returned the error")),
        "someone-elses-error": Where(lambda came: came.startswith("raised") and any(text in came for text in others)),
        "error-lost": ANYTHING,
    }
    wanted = Where(lambda came: all(part in came for part in own.split(": ")))
    return f"result {ticket}", Fact(None, wanted, told, expected=own)


def submits(*values: int) -> list[str]:
    return [f"submit {value}" for value in values]


def scene(max_batch: int, *lines: Line) -> Case:
    """A script as a case, with the facts of its lines."""
    script = [line if isinstance(line, str) else line[0] for line in lines]
    facts = [replace(line[1], name=place) for place, line in enumerate(lines) if not isinstance(line, str)]
    on = ", ".join(script[:16]) + ", …" * (len(script) > 16)
    return Case(f"{on} (max_batch {max_batch}; negative items are bad)", max_batch, script, facts=[*ALWAYS, *facts])


def full_queue(draw: Draw) -> Case:
    size, start = draw(3, 4), draw(2, 50)
    values = range(start, start + 2 * size + 1)
    served = [step(*values[k : k + size]) for k in range(0, len(values), size)]
    wrong = {"answers-mixed-up": Where(lambda came: came.startswith("returned"))}
    return scene(size, *submits(*values), *served, *(result(k, value, wrong) for k, value in enumerate(values)))


def equal_items(draw: Draw) -> Case:
    """Equal items, one item submitted twice, and one that arrives after a step."""
    first, second = draw(2, 50), draw(60, 90)
    asked = [(4, 55), (0, first), (1, second), (2, first), (3, second)]
    queue = [*submits(first, second, first), f"again {second}", "step", "submit 55", "step", "step"]
    return scene(3, *queue, *(result(k, value, "ticket-not-unique") for k, value in asked))


def once_only(draw: Draw) -> Iterator[Case]:
    value, falsy = draw(2, 50), "falsy-answer-lost"
    early, again = no_result(0, "answer-too-early"), no_result(0, "answer-kept")
    yield scene(2, f"submit {value}", early, "step", result(0, value), again)
    answers = [result(0, 0, falsy), result(1, 1, falsy), no_result(0, falsy), no_result(1, falsy)]
    yield scene(2, *submits(0, 1), "step", *answers)


def outcomes(max_batch: int, *values: int) -> Case:
    """Every good item is answered and every bad one raises its own error, after steps enough."""
    good = {
        "neighbours-left-waiting": NO_KEY,
        "one-bad-fails-all": Where(lambda came: came.startswith(("raised", "returned the error"))),
        "answers-mixed-up": ANYTHING,
    }
    steps = ["step"] * (3 * len(values) + 3)
    answers = [error(k, v, values) if v < 0 else result(k, v, good) for k, v in enumerate(values)]
    again = [no_result(k, "answer-kept") for k in range(len(values))]
    return scene(max_batch, *submits(*values), *steps, *answers, *again)


batcher = Contract(BATCHER, ask=run_batcher)
batcher.facts("serves the queue in order, one batch a step, as large as allowed", full_queue)
batcher.facts(
    "does nothing when the queue is empty", lambda draw: scene(3, step(), "submit 5", step(5), step(), result(0, 5))
)
batcher.facts("gives each ticket its own answer", equal_items)
batcher.facts("result() raises KeyError before there is an answer, and a second time", once_only)
batcher.facts(
    "an answer may be anything, also an exception object",
    lambda draw: scene(
        2,
        *submits(AN_ERROR, 7),
        "step",
        result(0, AN_ERROR, "answer-raised"),
        result(1, 7),
        no_result(0, "answer-kept"),
    ),
)
batcher.facts(
    "a bad item fails alone, with its own error",
    lambda draw: [outcomes(3, 20, -draw(3, 60), 30, 40), outcomes(4, -7), outcomes(4, -8, 5, -7, 6, 9, 11)],
)


# 5.5 predict_ensemble

# What moves or shows memory and computes nothing; the rest of the operations must not grow.
MOVES = set(
    "_reshape_alias _to _unsafe_view alias as_strided cat clone contiguous copy_ detach empty empty_like empty_strided "
    "expand fill_ lift_fresh new_empty ones permute reshape resize_ select set_ slice split squeeze stack t transpose "
    "unbind unsqueeze view zeros".split()
)


class Scaled(nn.Module):
    """Scale the input by a buffer: state that is neither a weight nor a batch-norm statistic."""

    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.rand(5) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


def make_ensemble(kind: str, count: int, rows: int, seed: int) -> tuple[list[nn.Module], torch.Tensor]:
    """Models of one class in eval mode with inputs: other weights and buffers in each; one weight is frozen."""
    torch.manual_seed(seed)
    models = []
    for _ in range(count):
        if kind == "plain":
            model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
        else:
            model = nn.Sequential(Scaled(), nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))
            model[2].running_mean.normal_()
            model[2].running_var.uniform_(0.5, 2.0)
            model[1].weight.requires_grad_(False)
        models.append(model.eval())
    return models, torch.randn(rows, 5)


def run_ensemble(learner, kind: str, count: int, rows: int, seed: int) -> dict:
    """Run the learner's `predict_ensemble`; report its output and what it left of the models as it was."""
    models, x = make_ensemble(kind, count, rows, seed)
    parameters = [parameter for model in models for parameter in model.parameters()]  # kept, so that no id comes again

    def look() -> dict:
        return {
            "same objects": [id(parameter) for model in models for parameter in model.parameters()],
            "grad kept": [parameter.requires_grad for parameter in parameters],
            "values kept": [state_hash(model) for model in models],
            "modes kept": [training_flags(model) for model in models],
        }

    before, out, after = look(), learner.predict_ensemble(models, x), look()
    return {"out": out, **{name: after[name] == seen for name, seen in before.items()}}


def count_ensemble(learner, kind: str, seed: int) -> dict:
    """Count the computing operations of the learner's `predict_ensemble`, for 2 models and for 6."""

    def counted(count: int) -> dict[str, int]:
        models, x = make_ensemble(kind, count, 6, seed)
        ops = op_counts(lambda: learner.predict_ensemble(models, x))
        return {name: n for name, n in ops.items() if name.removesuffix("_copy") not in MOVES}

    return {"counts": [counted(2), counted(6)]}


@torch.no_grad()
def outputs_of(*case: object, first_buffers: bool = False) -> torch.Tensor:
    """What a loop over the models gives, shape (models, rows, 3); with the first one's buffers in all, if asked."""
    models, x = make_ensemble(*case)
    for model in models if first_buffers else ():
        for name, buffer in model.named_buffers():
            buffer.copy_(models[0].get_buffer(name))
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
        "one-model-for-all": lambda kind, count, *_: Where(
            lambda came: count > 1 and came.dim() == 3 and (came - came[:1]).abs().max() < 1e-6
        ),
    },
)


def ensemble_case(draw: Draw, kind: str, count: int, rows: int) -> Case:
    on = f"{count} models, {rows} samples" + (", with buffers" if kind == "buffers" else "")
    return Case(on, kind, count, rows, draw.seed())


ensemble.facts(
    "equals a loop over the models",
    lambda draw: [ensemble_case(draw, "plain", 1, 4), ensemble_case(draw, "plain", draw(3, 4), draw(5, 7))],
    OUTPUTS,
)
ensemble.facts(
    "uses each model's own buffers", lambda draw: ensemble_case(draw, "buffers", draw(3, 4), draw(5, 7)), OUTPUTS
)
Contract(ENSEMBLE, ask=count_ensemble).facts(
    "computes no more operations for more models",
    lambda draw: [
        Case(f"2 and 6 {kind} models (computing operations)", kind, draw.seed()) for kind in ("plain", "buffers")
    ],
    Fact(
        "counts",
        Where(lambda came: all(came) and sum(came[1].values()) <= sum(came[0].values())),
        "loops",
        lambda came: "" if all(came) else "No operation was seen: what runs in another thread cannot be counted.",
    ),
)
ensemble.facts(
    "leaves the models as they were",
    lambda draw: [ensemble_case(draw, kind, 3, 5) for kind in ("plain", "buffers")],
    OUTPUTS,
    Fact("same objects", True, "parameters-replaced"),
    Fact("grad kept", True, "requires-grad-changed"),
    Fact("values kept", True, "state-changed"),
    Fact("modes kept", True, "mode-changed"),
)
