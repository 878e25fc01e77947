"""Lines, bars and tables of numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from .canvas import COLOURS, GREY, LINES, TEXT, finish, label_axes, legend, new_figure, series_look, shade, short


def line_chart(
    x: Sequence[float] | Sequence[str],
    series: Mapping[str, Sequence[float]],
    xlabel: str,
    ylabel: str,
    logx: bool = False,
    logy: bool = False,
    title: str = "",
    hlines: Mapping[str, float] | None = None,
) -> None:
    """Draw series over common x values, one line each.

    Args:
        x: the values on the horizontal axis, or names.
        series: y values by name, as many as `x` each; NaN leaves a gap.
        hlines: horizontal lines to compare with, by label.
    """
    _lines(x, series, xlabel, ylabel, logx, logy, title, hlines or {}, "")


def _lines(x, series, xlabel, ylabel, logx, logy, title, hlines, remark) -> None:
    fig, ax = new_figure(7.5, 4)
    for number, (name, y) in enumerate(series.items()):
        colour, marker, line = series_look(number)
        look = {"marker": marker, "ls": line, "color": colour, "label": name}
        ax.plot(x, y, markevery=max(1, len(x) // 25), lw=1.8, ms=6, **look)
    if logx:
        ax.set_xscale("log")
    if logy:
        ax.set_yscale("log")
    for number, (label, value) in enumerate(hlines.items()):
        ax.axhline(value, color=GREY, lw=1.4, ls=LINES[(number + 3) % 4], label=label)
    if not logx and all(isinstance(value, int) for value in x):
        ax.xaxis.get_major_locator().set_params(integer=True)
    if logx and len(x) <= 12:
        ax.set_xticks(x, [short(value) for value in x])
        ax.set_xticks([], minor=True)
    label_axes(ax, xlabel, ylabel, title)
    legend(fig, ax)
    facts = [_describe(name, x, y) for name, y in series.items()]
    facts += [f"A line marks {label} at {short(value)}" for label, value in hlines.items()]
    lead = f"{title}: {ylabel} against {xlabel}" if title else f"{ylabel} against {xlabel}"
    alt = f"{lead}. {'. '.join(facts)}.{remark}"
    rows = list(zip(x, *series.values(), strict=True))
    finish(fig, alt, ([xlabel, *series], rows))


def _describe(name: str, x: Sequence, y: Sequence) -> str:
    known = [(float(value), where) for where, value in zip(x, y, strict=True) if math.isfinite(value)]
    if not known:
        return f"{name}: no values"
    (first, _), (last, _), low, high = known[0], known[-1], min(known), max(known)
    text = f"{name}: from {short(first)} to {short(last)}"
    if low[0] < min(first, last):
        text += f", lowest {short(low[0])} at {short(low[1])}"
    if high[0] > max(first, last):
        text += f", highest {short(high[0])} at {short(high[1])}"
    return text


def bars(
    values: Mapping[str, float],
    label: str,
    title: str = "",
    errors: Mapping[str, float] | None = None,
    log: bool = False,
) -> None:
    """Draw one bar for each value, with the value beside it.

    Args:
        values: the lengths by name.
        label: what the length means, with its unit.
        errors: half-widths of error bars, by name.
    """
    names, errors = list(values), errors or {}
    fig, ax = new_figure(7.5, 0.9 + 0.42 * len(names))
    widths = [float(values[name]) for name in names]
    halves = [float(errors.get(name, math.nan)) for name in names]
    ax.barh(names, widths, color=COLOURS[0], height=0.62, log=log)
    if errors:
        ax.errorbar(widths, range(len(names)), xerr=halves, fmt="none", color="black", capsize=4)
    texts = []
    for row, (width, half) in enumerate(zip(widths, halves, strict=True)):
        texts.append(short(width) + ("" if math.isnan(half) else f" ± {short(half)}"))
        end = (width if math.isnan(half) else width + half, row)
        ax.annotate(texts[-1], end, (6, 0), textcoords="offset points", va="center")
    ax.invert_yaxis()
    ax.margins(x=0.18)
    label_axes(ax, label, "", title)
    ax.grid(False, axis="y")
    facts = "; ".join(f"{name} {text}" for name, text in zip(names, texts, strict=True))
    alt = f"{title + ': ' if title else ''}{label}. {facts}."
    finish(fig, alt, (["", label, "±"], list(zip(names, widths, halves, strict=True))))


def heat_map(
    values: Sequence[Sequence[float]] | Tensor | np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    fmt: str = "{:.3g}",
    title: str = "",
    log: bool = False,
) -> None:
    """Draw a table of numbers with coloured cells; each cell shows its number.

    Args:
        values: numbers or booleans, shape [rows, columns].
        fmt: how a cell is written.
        log: colour by the logarithm, for positive numbers that span orders of magnitude.
    """
    values = np.asarray(values)
    number = np.log(values) if log else values.astype(float)
    low, high = np.nanmin(number), np.nanmax(number)
    fig, ax = new_figure(1.6 + 0.85 * len(columns), 0.9 + 0.45 * len(rows))
    ax.imshow(number, cmap="viridis", aspect="auto")
    for row, column in np.ndindex(values.shape):
        share = (number[row, column] - low) / ((high - low) or 1)
        text = fmt.format(values[row, column])
        ax.text(column, row, text, size=TEXT, ha="center", va="center", color=shade(share)[1])
    slant = {"rotation": 30, "ha": "right"} if max(map(len, columns)) > 10 else {}
    ax.set_xticks(range(len(columns)), columns, **slant)
    ax.set_yticks(range(len(rows)), rows)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    label_axes(ax, "", "", title)
    ax.grid(False)
    cells = [[fmt.format(value) for value in line] for line in values]
    if values.dtype == bool:
        true = [f"{rows[row]} {columns[column]}" for row, column in np.argwhere(values)]
        facts = [f"true at {', '.join(true) or 'no place'}", "false elsewhere"]
    else:
        ends = {"highest": np.nanargmax(number), "lowest": np.nanargmin(number)}
        places = {word: divmod(int(index), number.shape[1]) for word, index in ends.items()}
        facts = [f"{w} {cells[r][c]} at {rows[r]} {columns[c]}" for w, (r, c) in places.items()]
    alt = f"{title or 'Heat map'}, {len(rows)} rows by {len(columns)} columns: {'; '.join(facts)}."
    table = [[name, *line] for name, line in zip(rows, cells, strict=True)]
    finish(fig, alt, (["", *columns], table))


def depth_plot(stds: Mapping[str, Sequence[float]]) -> None:
    """Draw the standard deviation of activations layer by layer, on a log axis.

    Args:
        stds: one value a layer, by initialisation.
    """
    depth = max(map(len, stds.values()))
    series = {name: [*values, *[math.nan] * (depth - len(values))] for name, values in stds.items()}
    factors = [
        f"{name} {short((values[-1] / values[0]) ** (1 / (len(values) - 1)))}"
        for name, values in stds.items()
        if len(values) > 1 and values[0] > 0
    ]
    remark = f" Mean factor per layer: {', '.join(factors)}." if factors else ""
    ylabel = "standard deviation of activations"
    _lines(range(1, depth + 1), series, "layer", ylabel, False, True, "", {}, remark)
