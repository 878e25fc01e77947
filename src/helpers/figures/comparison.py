"""The strip of a comparison: every round as a point, the median and its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .canvas import FAINT, GREY, finish, new_figure, series_look, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..measure.comparison import Comparison


def ratio_strip(comparison: Comparison) -> None:
    """Draw a comparison: each round's time relative to the baseline, with median and interval.

    An interval wholly beyond the grey margin band means faster (left) or slower (right).
    """
    baseline, *names = comparison.names
    margin = 1 + comparison.margin
    fig, ax = new_figure(7.5, 1.2 + 0.7 * len(names))
    ax.axvspan(1 / margin, margin, color=FAINT, lw=0)
    ax.axvline(1, color=GREY, lw=1)
    scatter = np.random.default_rng(0)
    labels, facts, rows, extremes = [], [], [], [1 / margin**1.5, margin**1.5]
    for row, name in enumerate(names):
        ratio, verdict = comparison.ratio(name), comparison.verdict(name)
        rounds = comparison.round_ratios(name)
        rounds = rounds[:: 1 + len(rounds) // 800]
        colour, marker, _ = series_look(row)
        heights = row + scatter.uniform(-0.28, 0.28, len(rounds))
        ax.plot(rounds, heights, ".", color=colour, alpha=0.2, mew=0)
        ax.plot([ratio.low, ratio.high], [row, row], "|-", color="black", lw=2.5, ms=16, mew=1.5)
        ax.plot(ratio.median, row, marker, color=colour, ms=7, mec="black")
        low, median, high = ratio.rounded()
        labels.append(f"{name}\n{median}x ({low}–{high})")
        facts.append(f"{name} takes {median}x the time ({low}–{high}): {verdict}")
        rows.append([name, *ratio, verdict])
        # An interrupted round can be off a hundredfold: the axis follows the bulk of them.
        extremes += [ratio.low, ratio.high, *np.quantile(rounds, [0.1, 0.9])]
    ax.set_yticks(range(len(names)), labels)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    _ratio_axis(ax, [value for value in extremes if 0 < value < math.inf])
    band = f"grey band: ±{comparison.margin * 100:g} %"
    ax.set_xlabel(f"time relative to {baseline} (left: faster; {band})", size=10)
    interval = f"{comparison.confidence * 100:g} % intervals"
    lead = f"Time relative to {baseline}, {comparison.rounds:,} rounds, {interval}"
    columns = ["variant", "low", "median", "high", "verdict"]
    finish(fig, f"{lead}. {'; '.join(facts)}.", (columns, rows))


def _ratio_axis(ax: Axes, values: Sequence[float]) -> None:
    """A log axis over these ratios with ticks that read as ratios: 0.8x, 1x, 1.25x."""
    low, high = min(values) / 1.02, max(values) * 1.02
    span = math.log(high / low)
    if span < 0.5:
        step = 0.02 if span < 0.15 else 0.05 if span < 0.35 else 0.1
        ticks = [1 + step * number for number in range(-9, 10)]
    elif span < 1.3:
        ticks = [0.25, 0.33, 0.4, 0.5, 0.65, 0.8, 1, 1.25, 1.6, 2, 2.5, 3, 4]
    else:
        base = 2 if span < 5 else 10
        ticks = [float(base) ** power for power in range(-9, 10)]
    inside = [tick for tick in ticks if low <= tick <= high]
    ax.set_xscale("log")
    ax.set_xlim(low, high)
    ax.set_xticks(inside, [f"{short(tick)}x" for tick in inside])
    ax.set_xticks([], minor=True)
