"""What a measurement of variants side by side allows one to say: ratios, intervals, and a verdict in words."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from ..show.blocks import Block, Method, Sentence
from ..show.display import Shown
from . import verdicts
from .intervals import Ratio, median_interval

FASTER, SLOWER = "faster", "slower"
SAME, NOISY = "no practical difference", verdicts.NOISY
LEAST_ROUNDS = 15
LONG_CALL_S = 1e-3  # a longer call is interrupted often enough to spoil its wall time
OFF_CPU_LIMIT = 0.30


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Shown):
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

    def blocks(self) -> list[Block]:
        """One sentence for each variant after the baseline, and how they were measured."""
        sentences = [Sentence(self.sentence(name)) for name in self.names[1:]]
        return [*sentences, Method(f"{self.clock} clock, off-CPU {self.off_cpu * 100:.0f} %, {self.why_stopped}")]

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
