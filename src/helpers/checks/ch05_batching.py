"""Checks of chapter 5: what a batch gains, and how it keeps items apart."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from fractions import Fraction

import torch
from torch import nn

from ..evidence import op_counts, state_hash, training_flags
from ..exercise.declare import Exercise, Failed
from ..exercise.expect import draw_int, expect, expect_close, expect_raises, expect_tensor
from ..exercise.serving import BLANK_MARK
from ..exercise.wire import LearnerError

# --- 5.1 -------------------------------------------------------------------------------------------------

GAIN = Exercise(
    "5.1",
    names=["max_gain", "batch_for"],
    points=1,
    hints=[
        "Let b grow without end in b·(t0 + c) / (t0 + c·b). Which of the two terms below the line survives?",
        "For the batch, ask for gain(b) >= fraction·limit and solve for b. The factor t0 + c appears on both sides.",
        "The smallest whole number that is not below a real number has a name in `math`. A batch has an item at least.",
    ],
    remark="A call of one item already pays for that item, hence the 1 in 1 + t0/c. The batch that reaches a fraction "
    "f of the limit is f/(1 - f) · t0/c, so the last tenth of the gain costs far more than the first half.",
    misconceptions={
        "linear-gain": "You expect a batch of b to gain b times. That would need items that cost nothing: each still "
        "adds c. What does a call take once c·b is far above t0?",
        "forgets-own-item": "This is t0/c. The call you compare with has one item in it and takes t0 + c, not t0.",
        "ratio-on-its-head": "This is 1 + c/t0. The gain is large where the fixed cost is large beside the cost of an "
        "item: which of the two is shared by the batch?",
        "throughput-not-gain": "This is 1/c, the limit of the throughput in items per second. The gain is relative to "
        "the throughput of calls with one item.",
        "rounded-down": "This batch does not reach the fraction. The smallest that does is rounded up.",
        "one-too-many": "A smaller batch reaches the fraction too: at equality it is reached.",
        "no-item": "A batch has at least one item. Where t0 is 0 the first item already has the whole gain.",
        "fraction-not-checked": "No batch reaches the limit itself, and every batch is above 0 of it: such a fraction "
        "is a mistake of the caller, to be told with a ValueError.",
    },
)


def ask_number(learner, name: str, *args: float) -> object:
    """Call a function of the learner's; a number of NumPy's or a tensor's becomes a plain one."""
    value = getattr(learner, name)(*args)
    if isinstance(value, torch.Tensor) and value.dim() == 0:
        return value.item()
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return int(value)
    return float(value) if isinstance(value, float) else value


@GAIN.check("max_gain is the limit of the gain")
def _(session, rng):
    for _ in range(3):
        t0, c = draw_int(rng, 20, 900) / 100, draw_int(rng, 3, 90) / 1000
        on = f"t0={t0}, c={c}"
        came, expected = session.probe(ask_number, "max_gain", t0, c), 1 + t0 / c
        if isinstance(came, (int, float)) and not isinstance(came, bool):
            known = {math.inf: "linear-gain", t0 / c: "forgets-own-item", 1 / c: "throughput-not-gain"}
            known[1 + c / t0] = "ratio-on-its-head"
            for value, misconception in known.items():
                if came == value or math.isclose(came, value, rel_tol=1e-9):
                    raise Failed(misconception, expected=expected, came=came, on=on)
        expect_close(came, expected, on)


def _smallest_batch(t0: float, c: float, fraction: float) -> Fraction:
    """The real number of items that reaches the fraction exactly; the answer is the next whole number."""
    t0, c, fraction = Fraction(t0), Fraction(c), Fraction(fraction)
    return fraction * t0 / ((1 - fraction) * c)


def _expect_batch(session, t0: float, c: float, fraction: float) -> None:
    on = f"t0={t0}, c={c}, fraction={fraction}"
    came = session.probe(ask_number, "batch_for", t0, c, fraction)
    exact = _smallest_batch(t0, c, fraction)
    expected = max(1, math.ceil(exact))
    expect(
        type(came) is int, message="A whole number of items, an int, is expected.", expected="an int", came=came, on=on
    )
    if came == expected:
        return
    details = {"expected": expected, "came": came, "on": on}
    if came < 1:
        raise Failed("no-item", **details)
    limit = 1 + t0 / c
    if came != expected - 1 and came in (math.ceil(fraction * limit), math.floor(fraction * limit)):
        raise Failed("linear-gain", **details)
    if came == expected - 1:
        raise Failed("rounded-down", **details)
    if came == expected + 1:
        raise Failed("one-too-many", **details)
    reached = came * (t0 + c) / (t0 + c * came) / limit
    raise Failed(None, f"A batch of {came} reaches {reached:.4g} of the limit.", **details)


@GAIN.check("batch_for gives the smallest batch that reaches the fraction")
def _(session, rng):
    # Far from whole numbers, where the last bit would decide; once just above one, where rounding goes down.
    for low, high in ((0.1, 0.4), (0.6, 0.9), (0.1, 0.4)):
        while True:
            t0, c = draw_int(rng, 50, 900) / 100, draw_int(rng, 5, 90) / 1000
            fraction = draw_int(rng, 60, 95) / 100
            exact = _smallest_batch(t0, c, fraction)
            if low < float(exact % 1) < high and exact > 20:
                break
        _expect_batch(session, t0, c, fraction)


@GAIN.check("counts a batch that reaches the fraction exactly, and never gives less than one item")
def _(session, rng):
    power = draw_int(rng, 2, 6)
    _expect_batch(session, 2.0**power, 0.5, 0.5)
    _expect_batch(session, 1.0, 2.0**-power, 0.5)
    _expect_batch(session, 0.0, 0.25, 0.5)
    _expect_batch(session, 0.125, 2.0, 0.5)


@GAIN.check("refuses a fraction outside (0, 1)")
def _(session, rng):
    for fraction in (1.0, 0.0, 1.5, -0.25):
        expect_raises(
            lambda f=fraction: session.probe(ask_number, "batch_for", 1.0, 0.125, f),
            "ValueError",
            f"t0=1.0, c=0.125, fraction={fraction}",
            "fraction-not-checked",
        )


# --- 5.2 -------------------------------------------------------------------------------------------------

POOL = Exercise(
    "5.2",
    names=["masked_pool"],
    points=1,
    hints=[
        "What would item 0 alone give? Which steps of the padded row does it read, and by what does it divide?",
        "Build a mask of shape (B, T) by comparing torch.arange(T) with the lengths. Padding needs another filling for "
        "a sum than for a maximum.",
        "Multiplying by a mask is not the same as choosing: look at torch.tensor(float('nan')) * 0. "
        "torch.where and masked_fill choose.",
        "The last own step of item i is x[i, lengths[i] - 1]: two index tensors pick one step for each item.",
    ],
    remark="0 times NaN is NaN, and 0 is larger than every negative number. A mask has to choose (where, masked_fill), "
    "with a filling that is neutral for the operation: 0 for a sum, -inf for a maximum.",
    misconceptions={
        "mean-counts-padding": "The mean reads the padding: it equals x.mean(1). Alone, the item has no such steps.",
        "mean-divides-by-longest": "The sum is right, but it is divided by the padded length, so short items shrink. "
        "How many steps does each item have?",
        "padding-taken-for-zero": "This is x.sum(1) / lengths: the sum runs over the padding too. That is right only "
        "where padding is 0, and it may be anything.",
        "max-sees-padding": "The maximum reads the padding: it equals x.amax(1).",
        "max-filled-with-zero": "The padding was set to 0 before taking the maximum, and 0 is larger than every value "
        "of this item. Which filling never wins a maximum?",
        "last-is-padding": "This is x[:, -1], the last step of the longest item. For a shorter one that is padding.",
        "last-off-by-one": "An item of length n has its last step at index n - 1; index n is padding, or past the end.",
        "one-item-skips-mask": "A batch of one item is not masked. One item may be padded too, to a bucket's length.",
        "every-pair": "x[:, lengths - 1] picks the steps of all items from each item. To pick one step an item, both "
        "dimensions need an index tensor.",
        "squeezed-away": "The shape loses a dimension in a batch of one or with one feature: squeeze() without a "
        "dimension drops every dimension of size 1.",
        "nan-times-zero": "NaN comes out although no valid value is NaN. A product with a mask keeps it, because "
        "0 · NaN is NaN: choose values instead of multiplying them.",
        "zero-length-not-told": "An item of length 0 has no mean, maximum or last step. Say which item it is in a "
        "ValueError.",
    },
)


def make_padded(lengths: list[int], longest: int, features: int, seed: int, shift: float = 0.0) -> torch.Tensor:
    """Random values with random padding, shape (B, longest, features), moved by `shift`."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(len(lengths), longest, features, generator=generator) + shift
    for item, length in enumerate(lengths):
        x[item, length:] += 3.0  # padding that is felt, in the mean and in the maximum
    return x


def pool_alone(x: torch.Tensor, lengths: list[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Pool item by item: the truth."""
    items = [x[i, :n] for i, n in enumerate(lengths)]
    return (
        torch.stack([item.mean(0) for item in items]),
        torch.stack([item.amax(0) for item in items]),
        torch.stack([item[-1] for item in items]),
    )


def _ask_pool(session, x: torch.Tensor, lengths: list[int], on: str) -> list:
    """The learner's three tensors, of the right shapes."""
    try:
        came = session.call("masked_pool", x, torch.tensor(lengths))
    except LearnerError as error:
        outside = error.reason == "raised" and (error.is_a("IndexError") or error.is_a("RuntimeError"))
        if outside and "out of" in error.text and max(lengths) == x.shape[1]:
            raise Failed("last-off-by-one", came=f"{error.kinds[0]}: {error.text}", on=on) from None
        raise
    good = isinstance(came, (list, tuple)) and len(came) == 3
    expect(good, message="Three tensors (mean, max, last) are expected.", came=came, on=on)
    shape = (x.shape[0], x.shape[2])
    for part in came:
        expect_tensor(part, on)
        if tuple(part.shape) != shape:
            lost = 1 in shape and tuple(part.shape) == tuple(size for size in shape if size != 1)
            kind = "squeezed-away" if lost else None
            kind = "every-pair" if tuple(part.shape) == (shape[0], *shape) else kind
            raise Failed(kind, "The shape is wrong.", expected=shape, came=tuple(part.shape), on=on)
    return list(came)


def _close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.allclose(a.double(), b.double(), rtol=1e-5, atol=1e-6)


def _expect_pool(came: list, x: torch.Tensor, lengths: list[int], on: str) -> None:
    """Compare with the item-by-item truth; recognise the known ways to be wrong."""
    mean, maximum, last = pool_alone(x, lengths)
    if not _close(came[0], mean):
        divided = mean * torch.tensor(lengths)[:, None] / x.shape[1]
        kind = "mean-counts-padding" if _close(came[0], x.mean(1)) else None
        kind = "mean-divides-by-longest" if _close(came[0], divided) else kind
        kind = "padding-taken-for-zero" if _close(came[0], x.sum(1) / torch.tensor(lengths)[:, None]) else kind
        raise Failed(kind, "The mean is wrong.", expected=mean, came=came[0], on=on)
    if not _close(came[1], maximum):
        with_zero = torch.tensor([n < x.shape[1] for n in lengths])[:, None] * maximum.clamp(min=0)
        with_zero = torch.where(torch.tensor(lengths)[:, None] < x.shape[1], with_zero, maximum)
        kind = "max-sees-padding" if _close(came[1], x.amax(1)) else None
        kind = "max-filled-with-zero" if _close(came[1], with_zero) else kind
        raise Failed(kind, "The maximum is wrong.", expected=maximum, came=came[1], on=on)
    if not _close(came[2], last):
        rows = range(len(lengths))
        after = torch.stack([x[i, min(lengths[i], x.shape[1] - 1)] for i in rows])
        kind = "last-off-by-one" if _close(came[2], after) else None
        kind = "last-is-padding" if _close(came[2], x[:, -1]) else kind
        raise Failed(kind, "The last step is wrong.", expected=last, came=came[2], on=on)


@POOL.check("equals what each item alone gives")
def _(session, rng):
    for features in (3, 1):
        lengths = [draw_int(rng, 2, 4), 6, draw_int(rng, 1, 5), 3]
        x = make_padded(lengths, 8, features, draw_int(rng, 0, 10**6))
        on = f"lengths {lengths} padded to 8, {features} feature(s)"
        _expect_pool(_ask_pool(session, x, lengths, on), x, lengths, on)


@POOL.check("holds for items that fill the batch, items of one step, and negative values")
def _(session, rng):
    lengths = [5, 1, draw_int(rng, 2, 4)]
    x = make_padded(lengths, 5, 4, draw_int(rng, 0, 10**6), shift=-9.0)
    on = f"lengths {lengths} padded to 5, all values negative"
    _expect_pool(_ask_pool(session, x, lengths, on), x, lengths, on)


@POOL.check("holds for a batch of one padded item")
def _(session, rng):
    lengths = [draw_int(rng, 2, 4)]
    x = make_padded(lengths, 6, 3, draw_int(rng, 0, 10**6))
    on = f"one item of length {lengths[0]} padded to 6"
    came = _ask_pool(session, x, lengths, on)
    if all(_close(part, naive) for part, naive in zip(came[:2], (x.mean(1), x.amax(1)), strict=True)):
        raise Failed("one-item-skips-mask", expected=pool_alone(x, lengths)[0], came=came[0], on=on)
    _expect_pool(came, x, lengths, on)


@POOL.check("lets no NaN out of the padding")
def _(session, rng):
    lengths = [draw_int(rng, 1, 5), 6, draw_int(rng, 1, 5)]
    x = make_padded(lengths, 6, 3, draw_int(rng, 0, 10**6))
    for item, length in enumerate(lengths):
        x[item, length:] = math.nan
    on = f"lengths {lengths} padded to 6 with NaN"
    came = _ask_pool(session, x, lengths, on)
    spoilt = [part for part in came if not torch.isfinite(part).all()]
    if spoilt:
        raise Failed("nan-times-zero", came=spoilt[0], on=on)
    _expect_pool(came, x, lengths, on)


@POOL.check("names an item of length 0 in a ValueError")
def _(session, rng):
    where = draw_int(rng, 6, 9)  # no number that a message has for another reason
    lengths = [5, 4, 3, 5, 4, 3, 5, 4, 3, 5]
    lengths[where] = 0
    x = make_padded(lengths, 5, 3, 0)
    expect_raises(
        lambda: session.call("masked_pool", x, torch.tensor(lengths)),
        "ValueError",
        f"lengths {lengths}",
        "zero-length-not-told",
        mentions=[str(where)],
    )


# --- 5.3 -------------------------------------------------------------------------------------------------

BUCKETS = Exercise(
    "5.3",
    names=["bucket_batches", "restore"],
    points=2,
    hints=[
        "A batch is as long as its longest item. Which items would you put together so that little of it is padding?",
        "Sort the indices by their lengths, then cut the list of indices into pieces.",
        "The concatenated outputs hold item order[k] at row k. You want row i to hold item i: which rearrangement "
        "undoes `order`? Try it on the order [2, 0, 1], where doing it once more is not undoing it.",
    ],
    remark="Indexing with the order applies it a second time; order.argsort() (or writing to out[order]) undoes it. On "
    "two items, or on swaps, the two agree: a test needs an order that is not its own inverse.",
    misconceptions={
        "lengths-not-indices": "The batches hold lengths. They should hold indices: which items to put together.",
        "index-lost": "Some items are in no batch. A dict keyed by length keeps one item of each length, and dropping "
        "the last short batch drops its items.",
        "index-twice": "An item is in more than one batch.",
        "batch-too-large": "A batch holds more than batch_size items.",
        "many-short-batches": "There are more batches than needed: only one may be short. Fixed buckets leave a short "
        "batch in each.",
        "arrival-order": "The batches are cut from the items as they arrived, so nearly each holds a long item and "
        "pads all others up to it.",
        "lengths-still-mixed": "Too much padding: items of very different length share a batch.",
        "order-not-restored": "The rows come in the order of the batches. Row i belongs to item i.",
        "order-applied-twice": "The rows were indexed with the order of the batches, which rearranges them once more. "
        "Undoing it takes the inverse permutation.",
        "only-one-shape": "The outputs may have any shape after their rows, and any dtype: also one integer an item.",
    },
)


def ask_batches(learner, lengths: list[int], batch_size: int) -> object:
    """Call `bucket_batches`; tensors, arrays and their numbers become lists and ints."""

    def plain(value: object) -> object:
        if isinstance(value, (list, tuple)):
            return [plain(item) for item in value]
        return value.tolist() if hasattr(value, "tolist") else value

    return plain(learner.bucket_batches(lengths, batch_size))


def _ask_batches(session, lengths: list[int], batch_size: int, on: str) -> list[list[int]]:
    """The learner's batches, after everything but the padding was judged."""
    batches = session.probe(ask_batches, lengths, batch_size)
    good = isinstance(batches, list) and all(isinstance(batch, list) for batch in batches)
    expect(good, message="A list of lists of indices is expected.", came=batches, on=on)
    flat = [i for batch in batches for i in batch]
    expect(all(type(i) is int for i in flat), message="The indices should be ints.", came=flat[:8], on=on)
    count = len(lengths)
    if sorted(flat) == sorted(lengths) and sorted(flat) != list(range(count)):
        raise Failed("lengths-not-indices", came=batches[:2], on=on)
    strange = [i for i in flat if not 0 <= i < count]
    expect(not strange, message=f"These are no indices of {count} items.", came=strange[:8], on=on)
    lost = sorted(set(range(count)) - set(flat))
    expect(not lost, "index-lost", came=f"missing: {lost[:8]}", on=on)
    expect(len(flat) == count, "index-twice", expected=count, came=len(flat), on=on)
    sizes = [len(batch) for batch in batches if batch]
    expect(max(sizes) <= batch_size, "batch-too-large", expected=batch_size, came=max(sizes), on=on)
    needed = math.ceil(count / batch_size)
    expect(len(sizes) <= needed, "many-short-batches", expected=needed, came=len(sizes), on=on)
    return [batch for batch in batches if batch]


@BUCKETS.check("every index once, in as few batches as needed")
def _(session, rng):
    for count, batch_size in ((4 * draw_int(rng, 5, 9) + 3, 4), (24, 8), (5, 16)):
        lengths = [draw_int(rng, 3, 12) + 2 * count for _ in range(count)]
        _ask_batches(session, lengths, batch_size, f"{count} lengths, some of them equal, batch_size {batch_size}")


def padding_waste(lengths: list[int], batches: list[list[int]]) -> float:
    """The share of a padded batch that is padding, over all batches."""
    padded = sum(len(batch) * max(lengths[i] for i in batch) for batch in batches)
    return 1 - sum(lengths) / padded


@BUCKETS.check("wastes less than 0.15 on a thousand log-normal lengths")
def _(session, rng):
    lengths = (torch.randn(1000, generator=rng) * 0.5 + 4).exp().long().clamp(min=1).tolist()
    on = "1,000 log-normal lengths, batch_size 16"
    batches = _ask_batches(session, lengths, 16, on)
    waste = padding_waste(lengths, batches)
    in_order = all(batch == list(range(batch[0], batch[0] + len(batch))) for batch in batches)
    kind = "arrival-order" if in_order else "lengths-still-mixed"
    expect(waste < 0.15, kind, expected="less than 0.15", came=f"{waste:.3f}", on=on)


def _scattered(count: int, batch_size: int, rng: torch.Generator) -> list[list[int]]:
    """Batches in an order that is far from being its own inverse."""
    while True:
        order = torch.randperm(count, generator=rng)
        if int((order[order] != torch.arange(count)).sum()) > count // 2:
            break
    return [part.tolist() for part in order.split(batch_size)]


def _expect_restored(session, rows: torch.Tensor, batches: list[list[int]], on: str) -> None:
    outputs = [rows[batch] for batch in batches]
    try:
        came = session.call("restore", outputs, batches)
    except LearnerError as error:
        if error.reason == "raised" and rows.dim() != 2:
            raise Failed("only-one-shape", came=f"{error.kinds[0]}: {error.text}", on=on) from None
        raise
    expect_tensor(came, on)
    if tuple(came.shape) != tuple(rows.shape):
        kind = "only-one-shape" if rows.dim() != 2 else None
        raise Failed(kind, "The shape is wrong.", expected=tuple(rows.shape), came=tuple(came.shape), on=on)
    joined = torch.cat(outputs)
    order = torch.tensor([i for batch in batches for i in batch])
    if not torch.equal(came.double(), rows.double()):
        kind = "order-not-restored" if torch.equal(came.double(), joined.double()) else None
        kind = "order-applied-twice" if torch.equal(came.double(), joined[order].double()) else kind
        kind = "only-one-shape" if kind is None and rows.dtype == torch.int64 else kind
        raise Failed(kind, expected=rows, came=came, on=on)
    expect(came.dtype == rows.dtype, "only-one-shape", expected=rows.dtype, came=came.dtype, on=on)


@BUCKETS.check("restore gives row i to item i")
def _(session, rng):
    for count, batch_size in ((draw_int(rng, 9, 14), 4), (12, 3)):
        rows = torch.randn(count, 3, generator=rng)
        on = f"outputs of {count} items with 3 numbers each, batches of {batch_size}"
        _expect_restored(session, rows, _scattered(count, batch_size, rng), on)


@BUCKETS.check("restore takes outputs of any shape and dtype")
def _(session, rng):
    whole = torch.randint(2**53, 2**53 + 1000, (11,), generator=rng)
    _expect_restored(session, whole, _scattered(11, 4, rng), "one int64 number an item")
    _expect_restored(session, torch.randn(7, 2, 3, generator=rng), _scattered(7, 3, rng), "a 2 by 3 matrix an item")
    _expect_restored(session, torch.randn(7, 2, generator=rng).double(), _scattered(7, 3, rng), "float64 outputs")


# --- 5.4 -------------------------------------------------------------------------------------------------

BATCHER = Exercise(
    "5.4",
    names=["MicroBatcher"],
    points=2,
    hints=[
        "What has to be kept between submit and result, and under which key, if two equal items may be submitted?",
        "A step takes what has queued, up to max_batch, and serves it. Waiting for a full batch would let the last "
        "items wait for ever.",
        "If predict raises for a batch, you do not know which item is to blame. Smaller batches will tell you.",
        "Keep answers and errors apart: an answer may be None or 0. A dict's pop raises KeyError by itself.",
    ],
    remark="The batch is only retried when it failed, so a good batch costs one call; halving finds one bad item in a "
    "few calls. Popping on result() keeps the table of answers from growing for ever.",
    misconceptions={
        "answers-mixed-up": "A ticket gives another item's answer.",
        "ticket-not-unique": "Two submissions share a ticket. The position in the queue repeats once items leave it, "
        "and equal items, or one item submitted twice, still make two requests.",
        "batch-too-large": "`predict` saw more than max_batch items.",
        "drains-the-queue": "One step served several batches. A step serves one at most, so that its caller stays in "
        "charge of time.",
        "one-at-a-time": "The step could have served more items in its batch: nothing is gained by small calls.",
        "waits-for-full-batch": "Items are in the queue and the step served none. Waiting for a full batch buys "
        "latency, and the last items may wait for ever.",
        "out-of-order": "The items are not served in the order of their arrival.",
        "calls-predict-with-nothing": "`predict` was called with an empty list. An empty queue asks for nothing.",
        "step-raises": "step() raised. Its caller serves everybody and cannot know whose item it was: keep the error "
        "for its ticket.",
        "answer-too-early": "result() before there is an answer should raise KeyError.",
        "answer-kept": "result() answered a second time. A table that is never emptied grows for ever; the second call "
        "raises KeyError.",
        "falsy-answer-lost": "An answer of None or 0 is an answer, and a second call still raises KeyError. Ask "
        "whether the ticket is there, not whether its value is true.",
        "one-bad-fails-all": "One bad item took its neighbours with it: they raise an error that is not theirs.",
        "neighbours-left-waiting": "After a batch failed, the good items in it never got an answer.",
        "error-lost": "The bad item's result() should raise the error that predict raised for it.",
        "answer-raised": "An answer may be anything, also an exception object that predict returned. Whether something "
        "is an answer or an error depends on how it came, not on its class.",
        "error-returned": "result() returned the error instead of raising it; a caller would take it for an answer.",
        "someone-elses-error": "A bad item raises the error of another one.",
    },
)

_ANSWERS = {0: None, 1: 0}
AN_ERROR = 999  # the item whose answer is an exception object


def answer_of(value: int) -> object:
    """What the spy `predict` answers for an item: usually ten times its value, at times None, 0 or an exception."""
    if value == AN_ERROR:
        return ValueError("an answer")
    return _ANSWERS.get(value, value * 10)


def run_batcher(learner, max_batch: int, script: list) -> dict:
    """Drive a MicroBatcher through a script; report what came of each line and what `predict` saw.

    Lines: ["submit", value], ["again", k] (the k-th submitted object once more), ["step"], ["result", k].
    A negative value is a bad item; even and odd ones raise different errors.
    """
    calls: list[list[int]] = []

    def predict(items):
        values = [item["value"] for item in items]
        calls.append(values)
        for value in values:
            if value < 0:
                kind = ArithmeticError if value % 2 else ValueError
                raise kind(f"item {value} is bad")
        return [answer_of(value) for value in values]

    batcher = learner.MicroBatcher(predict, max_batch)
    tickets, items, events = [], [], []
    for line in script:
        seen = len(calls)
        action, number = line[0], line[1] if len(line) > 1 else 0
        try:
            value = None
            if action in ("submit", "again"):
                items.append({"value": number} if action == "submit" else items[number])
                tickets.append(None)
                tickets[-1] = batcher.submit(items[-1])
            elif action == "step":
                batcher.step()
            else:
                value = batcher.result(tickets[number])
            text = f"{type(value).__name__}: {value}" if isinstance(value, BaseException) else ""
            events.append({"value": None if text else value, "is error": text, "calls": calls[seen:]})
        except LearnerError:
            raise
        except Exception as error:
            if isinstance(error, NotImplementedError) and BLANK_MARK in str(error):
                raise
            kinds = [kind.__name__ for kind in type(error).__mro__]
            events.append({"raised": kinds, "text": str(error)[:300], "calls": calls[seen:]})
    return {"events": events}


def _drive(session, max_batch: int, script: list) -> list[tuple[list, dict]]:
    """Run a script; judge what holds in every one: no step raises, no batch is empty or too large."""
    result = session.probe(run_batcher, max_batch, script)
    played = list(zip(script, result["events"], strict=True))
    for line, event in played:
        on = f"max_batch {max_batch}, at {line[0]}() of {_tell(script)}"
        sizes = [len(batch) for batch in event["calls"]]
        expect(0 not in sizes, "calls-predict-with-nothing", on=on)
        expect(max(sizes, default=0) <= max_batch, "batch-too-large", expected=max_batch, came=event["calls"], on=on)
        if line[0] == "step" and "raised" in event:
            raise Failed("step-raises", came=f"{event['raised'][0]}: {event['text']}", on=on)
        if line[0] in ("submit", "again") and "raised" in event:
            hashed = "unhashable" in event["text"]
            kind = "ticket-not-unique" if hashed else None
            raise Failed(kind, "submit() raised.", came=f"{event['raised'][0]}: {event['text']}", on=on)
    return played


def _tell(script: list) -> str:
    submitted = [line[1] if line[0] == "submit" else "again" for line in script if line[0] in ("submit", "again")]
    return f"a run with items {submitted}"


def _raises(event: dict, kind: str) -> bool:
    return "raised" in event and kind in event["raised"]


@BATCHER.check("serves the queue in order, one batch a step, as large as allowed")
def _(session, rng):
    max_batch, start = draw_int(rng, 3, 4), draw_int(rng, 2, 50)
    values = list(range(start, start + 2 * max_batch + 1))
    script = [["submit", value] for value in values] + [["step"]] * 3 + [["result", k] for k in range(len(values))]
    on = f"items {values}, max_batch {max_batch}, three steps (the calls of predict in each step)"
    played = _drive(session, max_batch, script)
    wanted = [values[:max_batch], values[max_batch : 2 * max_batch], values[-1:]]
    steps = [event["calls"] for line, event in played if line[0] == "step"]
    for number, (came, expected) in enumerate(zip(steps, wanted, strict=True)):
        details = {"expected": [expected], "came": came, "on": f"{on}, step {number + 1}"}
        sizes = [len(call) for call in came]
        expect(bool(sizes), "waits-for-full-batch", **details)
        expect(max(sizes) > 1 or len(expected) == 1, "one-at-a-time", **details)
        expect(len(sizes) == 1, "drains-the-queue", **details)
        expect(sizes[0] >= len(expected), "one-at-a-time", **details)
        expect(came[0] == expected, "out-of-order", **details)
    answers = [event for line, event in played if line[0] == "result"]
    for value, event in zip(values, answers, strict=True):
        details = {"expected": answer_of(value), "came": event.get("value", event.get("raised", [""])[0]), "on": on}
        expect("raised" not in event, message="result() raised although the item was served.", **details)
        expect(event["value"] == answer_of(value), "answers-mixed-up", **details)


@BATCHER.check("does nothing when the queue is empty")
def _(session, rng):
    script = [["step"], ["submit", 5], ["step"], ["step"], ["result", 0]]
    played = _drive(session, 3, script)
    came = [event["calls"] for line, event in played if line[0] == "step"]
    on = "step, submit 5, step, step"
    expect(came[1] == [[5]], "waits-for-full-batch", expected=[[5]], came=came[1], on=on)
    expect(came == [[], [[5]], []], message="A step with an empty queue called predict.", came=came, on=on)
    expect(played[-1][1].get("value") == 50, "answers-mixed-up", expected=50, came=played[-1][1].get("value"), on=on)


@BATCHER.check("gives each ticket its own answer")
def _(session, rng):
    first, second = draw_int(rng, 2, 50), draw_int(rng, 60, 90)
    script = [
        ["submit", first],
        ["submit", second],
        ["submit", first],
        ["again", 1],
        ["step"],
        ["submit", 55],
        ["step"],
    ]
    script += [["step"]] + [["result", k] for k in (4, 0, 1, 2, 3)]
    on = f"items {first}, {second}, an equal {first}, the same {second} again, a step, then 55 (max_batch 3)"
    played = _drive(session, 3, script)
    for (_, event), value in zip(played[-5:], (55, first, second, first, second), strict=True):
        details = {"expected": answer_of(value), "came": event.get("value", event.get("raised", [""])[0]), "on": on}
        expect("raised" not in event and event["value"] == answer_of(value), "ticket-not-unique", **details)


@BATCHER.check("result() raises KeyError before there is an answer, and a second time")
def _(session, rng):
    value = draw_int(rng, 2, 50)
    script = [["submit", value], ["result", 0], ["step"], ["result", 0], ["result", 0]]
    played = [event for _, event in _drive(session, 2, script)]
    early, came, again = played[1], played[3], played[4]
    early_kind = early.get("raised", [repr(early.get("value"))])[0]
    expect(_raises(early, "KeyError"), "answer-too-early", expected="a KeyError", came=early_kind, on="submit, result")
    text = early["text"] if "raised" in came else ""
    expect(came.get("value") == answer_of(value), "answers-mixed-up", came=came.get("value", text), on="after a step")
    again_kind = again.get("raised", [repr(again.get("value"))])[0]
    expect(_raises(again, "KeyError"), "answer-kept", expected="a KeyError", came=again_kind, on="result, result")
    script = [["submit", 0], ["submit", 1], ["step"], ["result", 0], ["result", 1], ["result", 0], ["result", 1]]
    played = [event for _, event in _drive(session, 2, script)]
    for event, value in zip(played[3:5], (0, 1), strict=True):
        details = {"expected": repr(answer_of(value)), "on": f"an item whose answer is {answer_of(value)!r}"}
        kind = event.get("raised", [repr(event.get("value"))])[0]
        fine = "raised" not in event and event["value"] == answer_of(value)
        expect(fine, "falsy-answer-lost", came=kind, **details)
    for event, value in zip(played[5:], (0, 1), strict=True):
        on = f"the second result() of an item whose answer is {answer_of(value)!r}"
        kind = event.get("raised", [repr(event.get("value"))])[0]
        expect(_raises(event, "KeyError"), "falsy-answer-lost", expected="a KeyError", came=kind, on=on)


@BATCHER.check("an answer may be anything, also an exception object")
def _(session, rng):
    script = [["submit", AN_ERROR], ["submit", 7], ["step"], ["result", 0], ["result", 1], ["result", 0]]
    first, second, again = [event for _, event in _drive(session, 2, script)][-3:]
    came, wanted = first.get("text", first.get("is error")), "ValueError: an answer"
    on = "an item whose answer is ValueError('an answer')"
    expect(first.get("is error") == wanted, "answer-raised", expected=f"{wanted}, returned", came=came, on=on)
    expect(second.get("value") == 70, "answers-mixed-up", expected=70, came=second.get("value"), on=on)
    expect(_raises(again, "KeyError"), "answer-kept", expected="a KeyError", came=again.get("value"), on=on)


def _expect_outcomes(session, values: list[int], max_batch: int) -> None:
    """Every good item is answered and every bad one raises its own error, after steps enough."""
    script = [["submit", value] for value in values] + [["step"]] * (3 * len(values) + 3)
    script += [["result", k] for k in range(len(values))] + [["result", k] for k in range(len(values))]
    on = f"items {values} (negative ones are bad), max_batch {max_batch}"
    played = _drive(session, max_batch, script)
    first, second = played[-2 * len(values) : -len(values)], played[-len(values) :]
    for value, (_, event) in zip(values, first, strict=True):
        came = f"{event['raised'][0]}: {event['text']}" if "raised" in event else repr(event.get("value"))
        came = event.get("is error") or came
        details = {"came": came, "on": f"{on}, result of item {value}"}
        if value >= 0:
            waiting = _raises(event, "KeyError")
            expect(not waiting, "neighbours-left-waiting", expected=answer_of(value), **details)
            failed = "raised" in event or bool(event.get("is error"))
            expect(not failed, "one-bad-fails-all", expected=answer_of(value), **details)
            expect(event["value"] == answer_of(value), "answers-mixed-up", expected=answer_of(value), **details)
            continue
        kind = "ArithmeticError" if value % 2 else "ValueError"
        details["expected"] = f"{kind}: item {value} is bad"
        expect(not event.get("is error"), "error-returned", **details)
        expect("raised" in event and not _raises(event, "KeyError"), "error-lost", **details)
        others = [other for other in values if other != value and f"item {other} is bad" in event["text"]]
        expect(not others, "someone-elses-error", **details)
        expect(_raises(event, kind) and f"item {value} is bad" in event["text"], "error-lost", **details)
    for value, (_, event) in zip(values, second, strict=True):
        kind = event.get("raised", [repr(event.get("value"))])[0]
        details = {"expected": "a KeyError", "came": kind, "on": f"{on}, second result() of item {value}"}
        expect(_raises(event, "KeyError"), "answer-kept", **details)


@BATCHER.check("a bad item fails alone, with its own error")
def _(session, rng):
    _expect_outcomes(session, [20, -draw_int(rng, 3, 60), 30, 40], 3)
    _expect_outcomes(session, [-7], 4)
    _expect_outcomes(session, [-8, 5, -7, 6, 9, 11], 4)


# --- 5.5 -------------------------------------------------------------------------------------------------

ENSEMBLE = Exercise(
    "5.5",
    names=["predict_ensemble"],
    points=3,
    hints=[
        "If the ensemble's weights stood in stacked tensors, which function would map over their first dimension?",
        "torch.func has three parts for this: stack_module_state makes the stacks, functional_call runs a module with "
        "weights that are not its own, vmap maps.",
        "A model's state has two halves, parameters and buffers. functional_call takes (parameters, buffers) as well, "
        "and vmap maps over both; x is the same for all.",
    ],
    remark="vmap turns the loop over models into one batched operation for each layer. Whatever is not passed to "
    "functional_call comes from the module it is given: leave the buffers out, and every model uses the first one's.",
    misconceptions={
        "loops": "The number of computing operations grows with the number of models: this is a loop in Python, "
        "whatever it is called. One batched operation a layer is asked.",
        "buffers-of-the-first": "Every model's output was computed with the buffers of the first model. Batch-norm "
        "statistics are state too, and no parameters.",
        "one-model-for-all": "The outputs are alike for all models: one model ran, be it the first or one with "
        "averaged weights.",
        "averaged": "The outputs were averaged. Each model's own outputs are asked.",
        "models-not-first": "The models should be the first dimension, the samples the second.",
        "maps-over-x": "x was split among the models: vmap maps over the first dimension of every argument unless "
        "in_dims says otherwise, or the function closes over x.",
        "parameters-replaced": "A model has other Parameter objects than before. An optimizer that holds the old ones "
        "would train nothing.",
        "requires-grad-changed": "requires_grad of a parameter is not as it was.",
        "state-changed": "The values of the models' parameters or buffers changed.",
        "mode-changed": "The training flag of a module is not as it was.",
    },
)

# What moves or shows memory and computes nothing; the rest of the operations must not grow.
_MOVES = {
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


def run_ensemble(learner, kind: str, count: int, rows: int, seed: int) -> dict:
    """Run the learner's `predict_ensemble`; report its output and what happened to the models."""
    models, x = make_ensemble(kind, count, seed), make_inputs(rows, seed)
    parameters = [(model, name, p, p.requires_grad) for model in models for name, p in model.named_parameters()]
    hashes, modes = [state_hash(model) for model in models], [training_flags(model) for model in models]
    out = learner.predict_ensemble(models, x)
    now = [dict(model.named_parameters()) for model in models]
    same = [now[models.index(model)].get(name) is p for model, name, p, _ in parameters]
    return {
        "out": out,
        "same objects": all(same),
        "grad kept": all(p.requires_grad == flag for _, _, p, flag in parameters),
        "values kept": hashes == [state_hash(model) for model in models],
        "modes kept": modes == [training_flags(model) for model in models],
    }


def count_ensemble(learner, kind: str, count: int, seed: int) -> dict:
    """Count the operations of the learner's `predict_ensemble`, without views and copies."""
    models, x = make_ensemble(kind, count, seed), make_inputs(6, seed)
    counts = op_counts(lambda: learner.predict_ensemble(models, x))
    return {name: number for name, number in counts.items() if name.removesuffix("_copy") not in _MOVES}


def make_inputs(rows: int, seed: int) -> torch.Tensor:
    return torch.randn(rows, 5, generator=torch.Generator().manual_seed(seed))


def _outputs_of(models: list[nn.Module], x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return torch.stack([model(x) for model in models])


def _in_peace(function: Callable, *args: object) -> object:
    """Run something of ours without moving the caller's random numbers."""
    with torch.random.fork_rng(devices=[]):
        return function(*args)


def _with_first_buffers(models: list[nn.Module]) -> list[nn.Module]:
    first = dict(models[0].named_buffers())
    for model in models[1:]:
        for name, buffer in model.named_buffers():
            buffer.copy_(first[name])
    return models


def _expect_ensemble(session, kind: str, count: int, rows: int, seed: int) -> dict:
    on = f"{count} models, {rows} samples" + (", with buffers" if kind == "buffers" else "")
    try:
        result = session.probe(run_ensemble, kind, count, rows, seed)
    except LearnerError as error:
        if error.reason == "raised" and "mapped dimension" in error.text:
            raise Failed("maps-over-x", came=f"{error.kinds[0]}: {error.text}", on=on) from None
        raise
    models, x = _in_peace(make_ensemble, kind, count, seed), make_inputs(rows, seed)
    expected, came = _outputs_of(models, x), expect_tensor(result["out"], on)
    shape = tuple(came.shape)
    details = {"expected": tuple(expected.shape), "came": shape, "on": on}
    if shape == (rows, 3) and shape != tuple(expected.shape):
        raise Failed("averaged", **details)
    if shape == (rows, count, 3) and rows != count:
        raise Failed("models-not-first", **details)
    if shape == (count, 3):
        raise Failed("maps-over-x", **details)
    expect(shape == tuple(expected.shape), message="The shape is wrong.", **details)
    if _close(came, expected):
        return result
    alike = bool((came - came[:1]).abs().max() < 1e-6)
    kind_of_error = "one-model-for-all" if alike else None
    if _close(came, _outputs_of(_with_first_buffers(models), x)):
        kind_of_error = "buffers-of-the-first"
    raise Failed(kind_of_error, expected=expected, came=came, on=on)


@ENSEMBLE.check("equals a loop over the models")
def _(session, rng):
    _expect_ensemble(session, "plain", draw_int(rng, 3, 4), draw_int(rng, 5, 7), draw_int(rng, 0, 10**6))
    _expect_ensemble(session, "plain", 1, 4, draw_int(rng, 0, 10**6))


@ENSEMBLE.check("uses each model's own buffers")
def _(session, rng):
    _expect_ensemble(session, "buffers", draw_int(rng, 3, 4), draw_int(rng, 5, 7), draw_int(rng, 0, 10**6))


@ENSEMBLE.check("computes no more operations for more models")
def _(session, rng):
    seed = draw_int(rng, 0, 10**6)
    for kind in ("plain", "buffers"):
        few, many = (session.probe(count_ensemble, kind, count, seed) for count in (2, 6))
        on = "2 and 6 models (computing operations)"
        seen = bool(few) and bool(many)
        expect(seen, "loops", "No operation was seen: what runs in another thread cannot be counted.", on=on)
        fine = sum(many.values()) <= sum(few.values())
        expect(fine, "loops", expected=few, came=many, on=on)


@ENSEMBLE.check("leaves the models as they were")
def _(session, rng):
    for kind in ("plain", "buffers"):
        result = _expect_ensemble(session, kind, 3, 5, draw_int(rng, 0, 10**6))
        on = "the models after the call"
        expect(result["same objects"], "parameters-replaced", on=on)
        expect(result["grad kept"], "requires-grad-changed", on=on)
        expect(result["values kept"], "state-changed", on=on)
        expect(result["modes kept"], "mode-changed", on=on)
