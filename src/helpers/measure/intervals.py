"""Ratios of times, and the interval around their median."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np


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
