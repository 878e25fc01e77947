"""Is one way faster than another? `compare` measures them side by side and says what that allows.

Two sequential timings of *identical* code differ by 10-20 % on an ordinary machine: a neighbour
wakes up, the clock frequency drifts, memory is laid out differently. So nothing here times one
variant and then the other. A comparison is made of rounds; a round runs every variant once, in
random order, and the unit of evidence is the *ratio within a round*. The median of the ratios
comes with an exact interval, and there is a margin below which no difference is claimed. When the
interval is too wide, the answer is "too noisy to tell".

The contract:
- variants do the same number of calls per block, about 0.1 ms of work;
- measuring ends when the interval is narrow enough or the budget is spent, never because a
  difference showed;
- times of one call are never a claim; only ratios within one comparison are;
- the number of threads and the garbage collector are as before when `compare` returns.
"""

from __future__ import annotations

import html
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from . import display, machine, verdicts
from .rounds import Plan, first_calls, measure, quiet

FASTER, SLOWER = "faster", "slower"
SAME, NOISY = "no practical difference", verdicts.NOISY

LEAST_ROUNDS = 15
LONG_CALL_S = 1e-3  # a longer call is interrupted often enough to spoil its wall time
OFF_CPU_LIMIT = 0.30
CLOCKS = ("auto", "cpu", "wall")
DEVICES = ("auto", "cpu", "cuda", "mps", "xpu")


class Ratio(NamedTuple):
    """A ratio of two times: its median over the rounds, and the interval around it."""

    low: float
    median: float
    high: float

    def inverse(self) -> Ratio:
        """The ratio the other way round: a time ratio becomes a speedup."""
        return Ratio(1 / self.high, 1 / self.median, 1 / self.low if self.low else math.inf)

    def __str__(self) -> str:
        low, median, high = self.rounded()
        return f"{median} ({low}–{high})"

    def rounded(self) -> tuple[str, str, str]:
        """Write low, median and high with no more digits than the interval carries."""
        width = self.high - self.low
        if not math.isfinite(width):
            return f"{self.low:.1f}", f"{self.median:.1f}", f"{self.high:.1f}"
        decimals = 3 if width <= 0 else min(3, -math.floor(math.log10(width)))
        low, median, high = (f"{round(value, decimals):.{max(0, decimals)}f}" for value in self)
        return low, median, high


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(display.Shown):
    """What `compare` measured, and what it allows one to say.

    Args:
        names: the variants; the first one is the baseline.
        times: seconds per call, one row a round, one column a variant.
        clock: what was read: "cpu", "wall" or "cuda events".
        why_stopped: what ended the measurement.
        off_cpu: share of the wall time in which the calling thread was not running, 0 to 1.
        waits: whether the variants wait on purpose or for a device, so that `off_cpu` is no sign
            of noise.
        first_call_s: seconds of each variant's first call, which no ratio includes.
        margin: relative difference below which no difference is claimed.
        confidence: of the intervals.
        details: budget, calls per block, device and seed.
        provenance: the machine at the start of the measurement.
    """

    names: tuple[str, ...]
    times: np.ndarray
    clock: str = "wall"
    why_stopped: str = "budget spent"
    off_cpu: float = 0.0
    waits: bool = False
    first_call_s: dict[str, float] = field(default_factory=dict)
    margin: float = 0.03
    confidence: float = 0.99
    details: dict[str, object] = field(default_factory=dict)
    provenance: dict[str, object] = field(default_factory=dict)

    kind = "comparison"

    @property
    def rounds(self) -> int:
        """How many rounds were measured."""
        return len(self.times)

    def round_ratios(self, name: str, to: str | None = None) -> np.ndarray:
        """Give time(name) / time(to) of each round, shape [rounds]."""
        column, base = self._pair(name, to)
        return self.times[:, column] / self.times[:, base]

    def ratio(self, name: str, to: str | None = None) -> Ratio:
        """Give time(name) / time(to), with its interval; `to` is the baseline unless named."""
        return median_interval(self.round_ratios(name, to), self.confidence)

    def speedup(self, name: str, over: str | None = None) -> Ratio:
        """Give time(over) / time(name), with its interval: 2 means twice as fast."""
        return self.ratio(name, over).inverse()

    def verdict(self, name: str, than: str | None = None) -> str:
        """Compare `name` with `than` in words.

        One of "faster", "slower", "no practical difference" and "too noisy to tell".
        """
        low, _, high = self.ratio(name, than)
        if self.refusal(name, than):
            return NOISY
        if high < 1 / (1 + self.margin):
            return FASTER
        if low > 1 + self.margin:
            return SLOWER
        inside = 1 / (1 + self.margin) <= low and high <= 1 + self.margin
        return SAME if inside else NOISY

    def refusal(self, name: str, than: str | None = None) -> str | None:
        """Say why these rounds allow no verdict whatever the ratio is; None where they do."""
        columns = list(self._pair(name, than))
        if self.rounds < LEAST_ROUNDS:
            return f"only {self.rounds} of {LEAST_ROUNDS} rounds: give it a larger budget_s"
        longest = np.median(self.times[:, columns], axis=0).max()
        disturbed = self.off_cpu > OFF_CPU_LIMIT and not self.waits
        if self.clock == "wall" and longest > LONG_CALL_S and disturbed:
            return (
                f"the thread was off the CPU for {self.off_cpu * 100:.0f} % of the time: "
                "stop other programs, or pass waits=True if a variant waits on purpose"
            )
        return None

    def faster(self, name: str, than: str | None = None, by: float = 1.0) -> verdicts.Finding:
        """Judge "`name` is faster than `than` by this factor".

        It holds if the whole interval lies beyond the factor, and beyond the margin; it does not
        hold if the whole interval lies below.
        """
        return self._judge(self.speedup(name, than), FASTER, name, than, by)

    def slower(self, name: str, than: str | None = None, by: float = 1.0) -> verdicts.Finding:
        """Judge "`name` is slower than `than` by this factor"; see `faster`."""
        return self._judge(self.ratio(name, than), SLOWER, name, than, by)

    def same(self, name: str, than: str | None = None) -> verdicts.Finding:
        """Judge "there is no practical difference between the two"."""
        known = {SAME: verdicts.HOLDS, NOISY: verdicts.NOISY}
        outcome = known.get(self.verdict(name, than), verdicts.FAILS)
        return verdicts.Finding(outcome, self.sentence(name, than), self._data(name, than))

    def seconds_per_call(self, name: str) -> float:
        """Give the median seconds of one call: for a model that needs it, never as a claim."""
        return float(np.median(self.times[:, self._column(name)]))

    def sentence(self, name: str, than: str | None = None) -> str:
        """Say in one sentence how `name` compares, with the interval and the number of rounds."""
        other = self.names[self._pair(name, than)[1]]
        verdict, ratio = self.verdict(name, than), self.ratio(name, than)
        if verdict == SLOWER:
            return f"{name} is {self._times(ratio)} slower than {other} {self._evidence(ratio)}"
        speedup = ratio.inverse()
        if verdict == FASTER:
            return f"{name} is {self._times(speedup)} faster than {other} {self._evidence(speedup)}"
        if verdict == SAME:
            return f"no practical difference between {name} and {other} {self._evidence(ratio)}"
        reason = self.refusal(name, than)
        evidence = f"({reason})" if reason else self._evidence(speedup)
        return f"too noisy to tell whether {name} is faster than {other} {evidence}"

    def __repr__(self) -> str:
        return self.to_text()

    def show(self) -> None:
        """Display the sentences and, in a notebook, the strip plot of the rounds."""
        display.show(self)
        if display.in_notebook():
            # The one import of a later room in this package: the picture needs matplotlib, which a
            # script on a GPU box may lack, and `show` should stay a method of what it shows.
            from . import figures

            figures.ratio_strip(self)

    def to_text(self) -> str:
        """One sentence for each variant after the baseline."""
        return "\n".join(self.sentence(name) for name in self.names[1:])

    def to_html(self) -> str:
        """The sentences, and below them how they were measured."""
        lines = "".join(f"<p>{html.escape(line)}</p>" for line in self.to_text().splitlines())
        how = f"{self.clock} clock, off-CPU {self.off_cpu * 100:.0f} %, {self.why_stopped}"
        return f"<div>{lines}<p><small>{html.escape(how)}</small></p></div>"

    def to_data(self) -> dict:
        """The comparison and its provenance as JSON-serialisable data, without absolute times."""
        return {
            "names": list(self.names),
            "results": {name: self._data(name, None) for name in self.names[1:]},
            "rounds": self.rounds,
            "clock": self.clock,
            "off_cpu": round(self.off_cpu, 3),
            "waits": self.waits,
            "why_stopped": self.why_stopped,
            "margin": self.margin,
            "confidence": self.confidence,
            "first_call_s": self.first_call_s,
            **self.details,
            "provenance": self.provenance,
        }

    to_dict = to_data

    def _column(self, name: str) -> int:
        if name not in self.names:
            raise ValueError(f"no variant {name!r}; this comparison has {', '.join(self.names)}")
        return self.names.index(name)

    def _pair(self, name: str, to: str | None) -> tuple[int, int]:
        column = self._column(name)
        if to is None and column == 0 and len(self.names) == 2:
            return 0, 1
        base = 0 if to is None else self._column(to)
        if column == base:
            raise ValueError(f"name a second variant to compare {name!r} with")
        return column, base

    def _judge(self, factor: Ratio, word: str, name: str, than: str | None, by: float) -> verdicts.Finding:
        if by < 1:
            raise ValueError(f"by={by} must be at least 1: it is a factor, 2 means twice")
        needed = max(by, 1 + self.margin)
        if self.refusal(name, than) or factor.low <= needed <= factor.high:
            outcome = verdicts.NOISY
        else:
            outcome = verdicts.HOLDS if factor.low > needed else verdicts.FAILS
        data = self._data(name, than) | {"by": by}
        text = self.sentence(name, than)
        if outcome == verdicts.FAILS and data["verdict"] == NOISY:
            # The interval reaches from "no difference" to the other direction: not this one, surely.
            text = f"{name} is not {word} than {data['than']} {self._evidence(factor)}"
        if by > 1:
            text += f"; asked: at least {by:g}x {word}"
        return verdicts.Finding(outcome, text, data)

    def _data(self, name: str, than: str | None) -> dict:
        ratio = self.ratio(name, than)
        return {
            "verdict": self.verdict(name, than),
            "than": self.names[self._pair(name, than)[1]],
            "ratio": [value if math.isfinite(value) else None for value in ratio],
            "rounds": self.rounds,
        }

    def _times(self, ratio: Ratio) -> str:
        return f"{ratio.rounded()[1]}x"

    def _evidence(self, ratio: Ratio) -> str:
        low, _, high = ratio.rounded()
        return f"({self.confidence * 100:g} % interval {low}–{high}, {self.rounds:,} rounds)"


def median_interval(ratios: np.ndarray, confidence: float = 0.99) -> Ratio:
    """Give the median of positive ratios and an exact interval for it that assumes no distribution.

    The interval's ends are two of the sorted ratios. With few of them (under 8 at 99 %) it does
    not exist and runs from 0 to infinity.
    """
    from scipy import stats

    logs = np.log(ratios)
    low, high = stats.quantile_test(logs, q=0, p=0.5).confidence_interval(confidence)
    return Ratio(
        math.exp(low) if math.isfinite(low) else 0.0,
        math.exp(np.median(logs)),
        math.exp(high) if math.isfinite(high) else math.inf,
    )


def compare(
    variants: Mapping[str, Callable[[], object]],
    *,
    budget_s: float | None = None,
    margin: float = 0.03,
    confidence: float = 0.99,
    precision: float = 0.02,
    clock: str = "auto",
    device: str = "auto",
    waits: bool = False,
    num_threads: int = 1,
    min_rounds: int = LEAST_ROUNDS,
    seed: int = 0,
    retry_noisy: bool | None = None,
) -> Comparison:
    """Measure variants of the same work side by side.

    Args:
        variants: name -> function without arguments; the first is the baseline of the others.
        budget_s: seconds for all rounds together; `machine.settings` has the default. First calls
            come on top. Where a budget gives too few rounds, up to three budgets are spent.
        margin: relative difference below which nothing is claimed.
        confidence: of the interval around each ratio.
        precision: relative width of the intervals at which measuring may end early.
        clock: "auto", "cpu" (time of the calling thread) or "wall".
        device: where the variants work: "auto" finds out; "cpu", "cuda", "mps" or "xpu" fixes it.
        waits: the variants sleep, read files or wait for other threads: wall time, waiting
            included.
        num_threads: threads of one PyTorch operation while measuring.
        min_rounds: at least 15.
        seed: of the order of the variants within the rounds.
        retry_noisy: measure again with 2 and 4 times the budget before answering "too noisy to
            tell"; by default where the environment variable PITFALLS_RETRY_NOISY is 1, as in CI.

    Raises:
        TypeError: a variant cannot be called.
        ValueError: fewer than two variants, an argument out of range, or a variant that raised an
            error; the message names the variant.
    """
    budget_s = machine.settings.budget() if budget_s is None else budget_s
    if retry_noisy is None:
        retry_noisy = os.environ.get("PITFALLS_RETRY_NOISY", "0") not in ("", "0")
    _check_variants(variants)
    _check_numbers(budget_s, margin, confidence, precision, num_threads, min_rounds)
    _check_choices(clock, device)
    import scipy.stats  # noqa: F401  (loading it takes a second, which the budget should not pay)

    provenance = machine.provenance() | {"threads": num_threads}

    def enough(times: np.ndarray) -> bool:
        intervals = [median_interval(row / times[:, 0], confidence) for row in times.T[1:]]
        return all(high < low * (1 + precision) for low, _, high in intervals)

    with quiet(num_threads):
        first_call_s, device = first_calls(variants, device)
        # Each attempt stands alone: adding rounds until a verdict appears would favour a verdict.
        for factor in (1, 2, 4) if retry_noisy else (1,):
            plan = Plan(budget_s * factor, clock, device, waits, num_threads, min_rounds, seed)
            measured = measure(variants, plan, enough)
            result = Comparison(
                names=tuple(variants),
                times=measured.times,
                clock=measured.clock,
                why_stopped=measured.why_stopped,
                off_cpu=measured.off_cpu,
                waits=waits or device != "cpu",
                first_call_s=first_call_s,
                margin=margin,
                confidence=confidence,
                details={
                    "budget_s": plan.budget_s,
                    "calls_per_block": measured.calls_per_block,
                    "device": device,
                    "seed": seed,
                },
                provenance=provenance,
            )
            if all(result.verdict(name) != NOISY for name in result.names[1:]):
                break
    return result


def _check_variants(variants: Mapping[str, Callable[[], object]]) -> None:
    if not isinstance(variants, Mapping):
        raise TypeError('variants must be a dict: {"name": function, "other name": function}')
    if len(variants) < 2:
        raise ValueError(f"a comparison needs at least two variants, got {len(variants)}")
    for name, call in variants.items():
        if not callable(call):
            raise TypeError(f"variant {name!r} is a {type(call).__name__}, not a function: write `lambda: ...`")


def _check_numbers(
    budget_s: float,
    margin: float,
    confidence: float,
    precision: float,
    num_threads: int,
    min_rounds: int,
) -> None:
    """Refuse arguments out of range, all of them in one message."""
    problems = {
        f"budget_s={budget_s} must be more than 0 seconds": budget_s > 0,
        f"margin={margin} must be more than 0: identical code differs, too": margin > 0,
        f"confidence={confidence} must lie between 0 and 1": 0 < confidence < 1,
        f"precision={precision} must be more than 0": precision > 0,
        f"num_threads={num_threads} must be at least 1": num_threads >= 1,
        f"min_rounds={min_rounds} must be at least {LEAST_ROUNDS}": min_rounds >= LEAST_ROUNDS,
    }
    if not all(problems.values()):
        raise ValueError("; ".join(text for text, fine in problems.items() if not fine))


def _check_choices(clock: str, device: str) -> None:
    if clock not in CLOCKS:
        raise ValueError(f"clock={clock!r} is not one of {', '.join(CLOCKS)}")
    if device not in DEVICES:
        raise ValueError(f"device={device!r} is not one of {', '.join(DEVICES)}")
    if device not in ("auto", "cpu", *machine.accelerators()):
        raise ValueError(f"device={device!r} is not available on this machine")
