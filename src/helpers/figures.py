"""The course's pictures. Each function draws one, displays it and returns nothing.

Every picture comes with alt text and a table, both made from the data that was drawn; in a script
the alt text is printed instead. Colours are those of Okabe and Ito, which colour-blind readers tell
apart, and no meaning rests on colour alone: markers and line styles differ as well. matplotlib is
imported on first use, and its pyplot state is left alone.
"""

from __future__ import annotations

import io
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from .display import show_picture
from .evidence import Memory, shares_storage

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .timing import Comparison

Table = tuple[Sequence[str], Sequence[Sequence[object]]]

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_LINES = ("-", (0, (5, 1.5)), (0, (5, 1.5, 1, 1.5)), (0, (1.2, 1.2)))
_GREY, _FAINT, _TEXT = "#555555", "#D9D9D9", 9.5
_LEVEL = 0.66  # inches from one level of a graph to the next


def ratio_strip(comparison: Comparison) -> None:
    """Draw a comparison: each round's time relative to the baseline, with median and interval.

    An interval wholly beyond the grey margin band means faster (left) or slower (right).
    """
    baseline, *names = comparison.names
    margin = 1 + comparison.margin
    fig, ax = _new(7.5, 1.2 + 0.7 * len(names))
    ax.axvspan(1 / margin, margin, color=_FAINT, lw=0)
    ax.axvline(1, color=_GREY, lw=1)
    scatter = np.random.default_rng(0)
    labels, facts, rows, extremes = [], [], [], [1 / margin**1.5, margin**1.5]
    for row, name in enumerate(names):
        ratio, verdict = comparison.ratio(name), comparison.verdict(name)
        rounds = comparison.round_ratios(name)
        rounds = rounds[:: 1 + len(rounds) // 800]
        colour, marker, _ = _series(row)
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
    _finish(fig, f"{lead}. {'; '.join(facts)}.", (columns, rows))


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
    ax.set_xticks(inside, [f"{_short(tick)}x" for tick in inside])
    ax.set_xticks([], minor=True)


def draw_graph(output: Tensor, parameters: Mapping[str, Tensor] | nn.Module | None = None, max_nodes: int = 40) -> None:
    """Draw the autograd graph behind a tensor, from the output down to the leaves.

    Args:
        output: a tensor; one without a graph gives a single box that says so.
        parameters: names for the leaves: a module, or tensors by name.
        max_nodes: a larger graph is cut below the level that still fits, and the rest counted.
    """
    if isinstance(parameters, nn.Module):
        parameters = dict(parameters.named_parameters())
    names = {id(tensor): name for name, tensor in (parameters or {}).items()}
    levels = _graph_levels(output.grad_fn)
    total = sum(map(len, levels))
    shown, kept = [], 0
    for level in levels:
        kept += len(level)
        if kept > max_nodes and shown:
            break
        shown.append(level)
    hidden = total - sum(map(len, shown))
    labels = {node: _node_label(node, names) for level in shown for node in level}
    edges = [(node, parent) for node in labels for parent in _parents(node)]
    if not labels:
        labels, shown = {None: "no graph: nothing was recorded"}, [[None]]
    if hidden:
        labels["hidden"] = f"… {hidden:,} more nodes"
        shown.append(["hidden"])
        edges = [(node, parent if parent in labels else "hidden") for node, parent in edges]
    leaves = [node for node in labels if hasattr(node, "variable")]
    fig = _draw_levels(shown, labels, edges, leaves)
    kinds = Counter(_node_label(node, names).split("\n")[0] for level in levels for node in level)
    alt = f"The autograd graph of the output: {total:,} nodes in {len(levels)} levels"
    alt += f"; the lower {hidden:,} are not drawn. " if hidden else ". "
    most = kinds.most_common(12)
    alt += ", ".join(kind if count == 1 else f"{count} x {kind}" for kind, count in most)
    alt += ", …" if len(kinds) > len(most) else "" if most else "Nothing was recorded"
    alt += "."
    plain = {node: text.replace("\n", " ") for node, text in labels.items()}
    rows = [
        [plain[node], ", ".join(plain.get(parent, "…") for parent in _parents(node))]
        for node in labels
        if hasattr(node, "next_functions")
    ]
    _finish(fig, alt, (["node", "computed from"], rows))


def _parents(node) -> list:
    return [parent for parent, _ in node.next_functions if parent is not None]


def _graph_levels(root) -> list[list]:
    """The nodes behind `root` by depth, the longest way down from it."""
    order, todo = {}, [(root, False)] if root is not None else []
    while todo:
        node, done = todo.pop()
        if done:
            order[node] = None
        elif node not in order:
            todo.append((node, True))
            todo += [(parent, False) for parent in _parents(node) if parent not in order]
    depth = {root: 0}
    for node in reversed(order):
        for parent in _parents(node):
            depth[parent] = max(depth.get(parent, 0), depth[node] + 1)
    levels = [[] for _ in range(1 + max(depth.values()))] if order else []
    for node in reversed(order):
        levels[depth[node]].append(node)
    return levels


def _node_label(node, names: Mapping[int, str]) -> str:
    if hasattr(node, "variable"):
        shape = tuple(node.variable.shape)
        return f"{names.get(id(node.variable), 'leaf')}\n{shape}"
    return re.sub(r"Backward\d*$", "", node.name().split("::")[-1])


def _draw_levels(levels: list[list], labels: dict, edges: list, leaves: list) -> Figure:
    """Lay out nodes level by level, in inches, each below what uses it; long edges get waypoints."""
    depth = {node: row for row, level in enumerate(levels) for node in level}
    rows, links = [list(level) for level in levels], []
    for upper, lower in dict.fromkeys(edges):
        previous = upper
        for row in range(depth[upper] + 1, depth[lower]):
            waypoint = (upper, lower, row)
            rows[row].append(waypoint)
            links.append((previous, waypoint))
            previous = waypoint
        links.append((previous, lower))
    width = {node: 0.3 + 0.09 * max(map(len, text.split("\n"))) for node, text in labels.items()}
    place = _place(rows, links, width)
    left = min(x - width.get(node, 0) / 2 for node, x in place.items()) - 0.15
    right = max(x + width.get(node, 0) / 2 for node, x in place.items()) + 0.15
    fig, ax = _new(right - left, _LEVEL * len(rows), layout=None)
    ax.set_position((0, 0, 1, 1))
    ax.set(xlim=(left, right), ylim=(_LEVEL * (0.5 - len(rows)), _LEVEL / 2))
    ax.axis("off")
    height = {node: -_LEVEL * row for row, level in enumerate(rows) for node in level}
    for upper, lower in links:
        # An arrow ends at the upper edge of a box, higher up if it has two lines of text; a
        # waypoint is passed without an arrow.
        end = height[lower] + (0.16 + 0.08 * ("\n" in labels[lower]) if lower in labels else 0)
        style = {"arrowstyle": "-|>" if lower in labels else "-", "color": _GREY, "shrinkA": 0}
        start = height[upper] - (0.15 if upper in labels else 0)
        ax.annotate("", (place[lower], end), (place[upper], start), arrowprops={**style, "shrinkB": 0})
    for node, text in labels.items():
        leaf = node in leaves
        box = {"boxstyle": "round,pad=0.3" if leaf else "square,pad=0.35", "ec": _COLOURS[leaf]}
        box["fc"] = "#FCEBDD" if leaf else "white"
        ax.text(place[node], height[node], text, ha="center", va="center", size=9, bbox=box)
    return fig


def _place(rows: list[list], links: list, width: Mapping) -> dict:
    """The horizontal place of each node: near those that use it, without touching a neighbour."""
    place = dict.fromkeys(rows[0], 0.0)
    users: dict = {}
    for upper, lower in links:
        users.setdefault(lower, []).append(upper)
    for row in rows[1:]:
        wish = {node: sum(place[user] for user in users[node]) / len(users[node]) for node in row}
        row.sort(key=wish.get)
        edge = -math.inf
        for node in row:
            half = width.get(node, 0.2) / 2
            place[node] = max(wish[node], edge + half)
            edge = place[node] + half + 0.25
        shift = sum(place[node] - wish[node] for node in row) / len(row)
        for node in row:
            place[node] -= shift
    return place


def memory_timeline(memories: Mapping[str, Memory]) -> None:
    """Draw the bytes alive after each operation, and mark the peak, for one function or several."""
    unit, size = _byte_unit(max(memory.peak for memory in memories.values()))
    fig, ax = _new(7.5, 3.6)
    for number, (label, memory) in enumerate(memories.items()):
        colour, marker, line = _series(number)
        live = [now / size for _, now in memory.timeline]
        steps = range(1, len(live) + 1)
        ax.step(steps, live, ls=line, where="post", color=colour, lw=1.8)
        text = f"{label}: peak {_bytes(memory.peak)}"
        top = int(np.argmax(live))
        ax.plot(top + 1, live[top], marker, ls=line, color=colour, ms=9, mec="black", label=text)
    ax.xaxis.get_major_locator().set_params(integer=True)
    _label(ax, "operation number", f"alive ({unit})")
    ax.set_ylim(bottom=0)
    _legend(fig, ax)
    facts = [
        f"{label} peaks at {_bytes(memory.peak)} and keeps {_bytes(memory.live)}" for label, memory in memories.items()
    ]
    alt = f"Memory alive after each operation. {'; '.join(facts)}."
    columns = ["function", "operations", "peak (bytes)", "operation at the peak", "kept (bytes)"]
    rows = [
        [label, len(m.timeline) - 1, m.peak, max(m.timeline, key=lambda step: step[1])[0], m.live]
        for label, m in memories.items()
    ]
    _finish(fig, alt, (columns, rows))


def strides(tensors: Mapping[str, Tensor]) -> None:
    """Draw how matrices lie in memory: cells coloured by their place, arcs in reading order.

    Reading row by row, a grey arc leads to the next place in memory and a dashed one jumps. Hatched
    cells are never read.

    Args:
        tensors: small matrices by title; the first is what "same memory" refers to.

    Raises:
        ValueError: a tensor is not a matrix, or its storage has more than 24 elements.
    """
    for title, tensor in tensors.items():
        if tensor.dim() != 2 or _storage_size(tensor) > 24:
            raise ValueError(f"{title}: only a matrix over at most 24 elements can be drawn")
    first_title, first = next(iter(tensors.items()))
    wide = max(10, *map(_storage_size, tensors.values()))
    tall = max(tensor.shape[0] for tensor in tensors.values()) + 8.2
    across = min(len(tensors), 2 if wide <= 13 else 1)
    down = math.ceil(len(tensors) / across)
    cell = 0.4
    fig, axes = _new(across * cell * (wide + 0.6), down * cell * tall, down, across, layout=None)
    fig.subplots_adjust(0, 0, 1, 1, wspace=0, hspace=0)
    facts, rows = [], []
    for ax in np.ravel(axes):
        ax.set(xlim=(-0.3, wide + 0.3), ylim=(-2.6, tall - 2.6))
        ax.axis("off")
    for ax, (title, tensor) in zip(np.ravel(axes), tensors.items(), strict=False):
        jumps, steps = _draw_strides(ax, title, tensor, wide / 2)
        shared = tensor is not first and shares_storage(tensor, first)
        memory = f"same memory as {first_title.split(' = ')[0]}" if shared else "own memory"
        layout = f"stride {tensor.stride()}, {memory}"
        jumping = f"{jumps} of {steps} steps jump"
        ax.text(wide / 2, -0.9, f"{layout}\n{jumping}", ha="center", va="top", size=_TEXT)
        shape = " by ".join(map(str, tensor.shape))
        facts.append(f"{title} ({shape}): {layout}, {jumping}")
        rows.append([title, shape, tensor.stride(), tensor.storage_offset(), memory, jumps])
    columns = ["matrix", "shape", "stride", "offset", "memory", "jumps"]
    alt = f"Matrices and their place in memory, read row by row. {'; '.join(facts)}."
    _finish(fig, alt, (columns, rows))


def _storage_size(tensor: Tensor) -> int:
    return tensor.untyped_storage().nbytes() // tensor.element_size()


def _draw_strides(ax: Axes, title: str, tensor: Tensor, middle: float) -> tuple[int, int]:
    """Draw a matrix above its storage, in units of cells; return the steps that jump, and all."""
    from matplotlib.patches import Arc, Rectangle

    size, (rows, columns) = _storage_size(tensor), tensor.shape
    values = torch.as_strided(tensor.detach(), (size,), (1,), 0).tolist()
    view = (tensor.shape, tensor.stride(), tensor.storage_offset())
    order = torch.as_strided(torch.arange(size), *view).flatten().tolist()
    start, bottom = middle - size / 2, 4.0

    def draw_cell(x: float, y: float, offset: int, text: str) -> None:
        colour, ink = _shade(offset / max(1, size - 1))
        look = {"fc": colour, "ec": "white"}
        if offset not in order:
            look, ink = {"fc": "white", "ec": _FAINT, "hatch": "///"}, _GREY
        ax.add_patch(Rectangle((x, y), 1, 1, lw=1.5, **look))
        ax.text(x + 0.5, y + 0.48, text, color=ink, ha="center", va="center", size=9)

    for index, offset in enumerate(order):
        row, column = divmod(index, columns)
        corner = (middle - columns / 2 + column, bottom + rows - 1 - row)
        draw_cell(*corner, offset, f"{_short(values[offset])}\n@{offset}")
    for offset, value in enumerate(values):
        draw_cell(start + offset, 0, offset, _short(value))
        ax.text(start + offset + 0.5, -0.1, f"@{offset}", ha="center", va="top", size=9)
    jumps = 0
    for here, there in pairwise(order):
        jumps += there - here != 1
        look = {"ec": _GREY} if there - here == 1 else {"ec": _COLOURS[1], "ls": "--"}
        width = abs(there - here)
        height = 2 * min(2.6, 0.45 + 0.28 * width)
        centre = (start + (here + there + 1) / 2, 1.05)
        ax.add_patch(Arc(centre, width, height, theta1=0, theta2=180, lw=1.4, **look))
        ax.plot(start + there + 0.5, 1.12, "v", ms=4, color=look["ec"])
    ax.text(middle, bottom + rows + 0.3, title, ha="center", va="bottom", size=10.5)
    return jumps, len(order) - 1


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
    fig, ax = _new(7.5, 4)
    for number, (name, y) in enumerate(series.items()):
        colour, marker, line = _series(number)
        look = {"marker": marker, "ls": line, "color": colour, "label": name}
        ax.plot(x, y, markevery=max(1, len(x) // 25), lw=1.8, ms=6, **look)
    if logx:
        ax.set_xscale("log")
    if logy:
        ax.set_yscale("log")
    for number, (label, value) in enumerate(hlines.items()):
        ax.axhline(value, color=_GREY, lw=1.4, ls=_LINES[(number + 3) % 4], label=label)
    if not logx and all(isinstance(value, int) for value in x):
        ax.xaxis.get_major_locator().set_params(integer=True)
    if logx and len(x) <= 12:
        ax.set_xticks(x, [_short(value) for value in x])
        ax.set_xticks([], minor=True)
    _label(ax, xlabel, ylabel, title)
    _legend(fig, ax)
    facts = [_describe(name, x, y) for name, y in series.items()]
    facts += [f"A line marks {label} at {_short(value)}" for label, value in hlines.items()]
    lead = f"{title}: {ylabel} against {xlabel}" if title else f"{ylabel} against {xlabel}"
    alt = f"{lead}. {'. '.join(facts)}.{remark}"
    rows = list(zip(x, *series.values(), strict=True))
    _finish(fig, alt, ([xlabel, *series], rows))


def _describe(name: str, x: Sequence, y: Sequence) -> str:
    known = [(float(value), where) for where, value in zip(x, y, strict=True) if math.isfinite(value)]
    if not known:
        return f"{name}: no values"
    (first, _), (last, _), low, high = known[0], known[-1], min(known), max(known)
    text = f"{name}: from {_short(first)} to {_short(last)}"
    if low[0] < min(first, last):
        text += f", lowest {_short(low[0])} at {_short(low[1])}"
    if high[0] > max(first, last):
        text += f", highest {_short(high[0])} at {_short(high[1])}"
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
    fig, ax = _new(7.5, 0.9 + 0.42 * len(names))
    widths = [float(values[name]) for name in names]
    halves = [float(errors.get(name, math.nan)) for name in names]
    ax.barh(names, widths, color=_COLOURS[0], height=0.62, log=log)
    if errors:
        ax.errorbar(widths, range(len(names)), xerr=halves, fmt="none", color="black", capsize=4)
    texts = []
    for row, (width, half) in enumerate(zip(widths, halves, strict=True)):
        texts.append(_short(width) + ("" if math.isnan(half) else f" ± {_short(half)}"))
        end = (width if math.isnan(half) else width + half, row)
        ax.annotate(texts[-1], end, (6, 0), textcoords="offset points", va="center")
    ax.invert_yaxis()
    ax.margins(x=0.18)
    _label(ax, label, "", title)
    ax.grid(False, axis="y")
    facts = "; ".join(f"{name} {text}" for name, text in zip(names, texts, strict=True))
    alt = f"{title + ': ' if title else ''}{label}. {facts}."
    _finish(fig, alt, (["", label, "±"], list(zip(names, widths, halves, strict=True))))


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
    fig, ax = _new(1.6 + 0.85 * len(columns), 0.9 + 0.45 * len(rows))
    ax.imshow(number, cmap="viridis", aspect="auto")
    for row, column in np.ndindex(values.shape):
        share = (number[row, column] - low) / ((high - low) or 1)
        text = fmt.format(values[row, column])
        ax.text(column, row, text, size=_TEXT, ha="center", va="center", color=_shade(share)[1])
    slant = {"rotation": 30, "ha": "right"} if max(map(len, columns)) > 10 else {}
    ax.set_xticks(range(len(columns)), columns, **slant)
    ax.set_yticks(range(len(rows)), rows)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    _label(ax, "", "", title)
    ax.grid(False)
    cells = [[fmt.format(value) for value in line] for line in values]
    if values.dtype == bool:
        true = [f"{rows[row]} {columns[column]}" for row, column in np.argwhere(values)]
        facts = [f"true at {', '.join(true) or 'no place'}", "false elsewhere"]
    else:
        ends = {"highest": np.nanargmax(number), "lowest": np.nanargmin(number)}
        places = {word: np.unravel_index(index, number.shape) for word, index in ends.items()}
        facts = [f"{w} {cells[r][c]} at {rows[r]} {columns[c]}" for w, (r, c) in places.items()]
    alt = f"{title or 'Heat map'}, {len(rows)} rows by {len(columns)} columns: {'; '.join(facts)}."
    table = [[name, *line] for name, line in zip(rows, cells, strict=True)]
    _finish(fig, alt, (["", *columns], table))


def throughput_curve(
    batches: Sequence[int],
    items_per_s: Sequence[float],
    fit: tuple[float, float] | None = None,
    unit: str = "items/s",
) -> None:
    """Draw throughput against batch size, with the fitted curve `b / (t0 + c * b)` and its limit.

    Args:
        batches: batch sizes.
        items_per_s: measured throughput for each.
        fit: `(t0, c)` in seconds: what a call costs whatever its size, and what each item adds.
    """
    fig, ax = _new(7.5, 4)
    ax.plot(batches, items_per_s, "o", color=_COLOURS[0], ms=8, mec="black", label="measured")
    best = int(np.argmax(items_per_s))
    first, most = _short(items_per_s[0]), _short(items_per_s[best])
    alt = "Throughput against batch size. "
    alt += f"Measured: {first} {unit} at {batches[0]}, most at {batches[best]} with {most} {unit}."
    columns, rows = ["batch", f"measured ({unit})"], list(zip(batches, items_per_s, strict=True))
    if fit is not None:
        t0, c = fit
        curve = np.geomspace(min(batches), max(batches), 200)
        label = "fit: b / (t0 + c·b)"
        ax.plot(curve, curve / (t0 + c * curve), "--", color=_COLOURS[1], lw=1.8, label=label)
        ax.axhline(1 / c, color=_GREY, lw=1.2, ls=":", label=f"limit 1/c: {_short(1 / c)} {unit}")
        gain = _short(1 + t0 / c)
        alt += f" The fit levels off at {_short(1 / c)} {unit}, {gain} times one at a time."
        columns += [f"fitted ({unit})"]
        rows = [[b, measured, b / (t0 + c * b)] for b, measured in rows]
    ax.set_xscale("log", base=2)
    ax.set_xticks(batches, [str(batch) for batch in batches])
    ax.set_xticks([], minor=True)
    ax.set_ylim(bottom=0)
    _label(ax, "batch size", unit)
    _legend(fig, ax)
    _finish(fig, alt, (columns, rows))


def roofline(points: Mapping[str, tuple[float, float]], peak_flops: float, peak_bandwidth: float) -> None:
    """Draw what was reached below what a machine can do: memory traffic, then arithmetic, bounds it.

    Args:
        points: `(flops per byte moved, flops per second reached)` by name.
        peak_flops: the machine's flops per second.
        peak_bandwidth: its bytes per second.
    """
    ridge = peak_flops / peak_bandwidth
    at = [intensity for intensity, _ in points.values()]
    span = np.geomspace(min(*at, ridge) / 4, max(*at, ridge) * 4, 300)
    fig, ax = _new(7.5, 3.6 + 0.2 * len(points))
    ax.plot(span, np.minimum(peak_flops, span * peak_bandwidth), color="black", lw=2, label="roof")
    ax.axvline(ridge, color=_GREY, lw=1.2, ls=":", label=f"ridge: {_short(ridge)} flops per byte")
    facts, rows = [], []
    for number, (name, (intensity, reached)) in enumerate(points.items()):
        colour, marker, _ = _series(number)
        roof = min(peak_flops, intensity * peak_bandwidth)
        bound = "memory" if intensity < ridge else "compute"
        possible = reached <= roof
        share = f"{reached / roof * 100:.0f} % of" if possible else f"{_short(reached / roof)} times"
        text = f"{name}: {share} its {bound} roof"
        ax.plot(intensity, reached, marker, color=colour, ms=9, mec="black", label=text)
        facts.append(text + ("" if possible else ", more than is possible"))
        rows.append([name, intensity, reached, roof, bound])
    ax.set_xscale("log")
    ax.set_yscale("log")
    _label(ax, "arithmetic intensity (flops per byte)", "flops per second")
    _legend(fig, ax)
    alt = f"Roofline with its ridge at {_short(ridge)} flops per byte. {'; '.join(facts)}."
    _finish(fig, alt, (["point", "flops per byte", "flops/s", "roof (flops/s)", "bound by"], rows))


def depth_plot(stds: Mapping[str, Sequence[float]]) -> None:
    """Draw the standard deviation of activations layer by layer, on a log axis.

    Args:
        stds: one value a layer, by initialisation.
    """
    depth = max(map(len, stds.values()))
    series = {name: [*values, *[math.nan] * (depth - len(values))] for name, values in stds.items()}
    factors = [
        f"{name} {_short((values[-1] / values[0]) ** (1 / (len(values) - 1)))}"
        for name, values in stds.items()
        if len(values) > 1 and values[0] > 0
    ]
    remark = f" Mean factor per layer: {', '.join(factors)}." if factors else ""
    ylabel = "standard deviation of activations"
    _lines(range(1, depth + 1), series, "layer", ylabel, False, True, "", {}, remark)


def _new(width: float, height: float, rows: int = 1, columns: int = 1, layout="constrained"):
    """A figure of so many inches with one axes, or with an array of them."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    fig = Figure(figsize=(width, height), dpi=110, layout=layout)
    FigureCanvasAgg(fig)
    axes = fig.subplots(rows, columns, squeeze=False)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=_TEXT)
        ax.set_axisbelow(True)
    return fig, axes if rows * columns > 1 else axes[0, 0]


def _label(ax: Axes, xlabel: str, ylabel: str, title: str = "") -> None:
    ax.set_xlabel(xlabel, size=10)
    ax.set_ylabel(ylabel, size=10)
    ax.set_title(title, size=11)
    ax.grid(True, color="#E6E6E6", lw=0.8)


def _legend(fig: Figure, ax: Axes) -> None:
    """A legend below the axes, in as many columns as its texts allow; none for a single entry."""
    texts = ax.get_legend_handles_labels()[1]
    if len(texts) > 1:
        columns = min(len(texts), max(1, 105 // (8 + max(map(len, texts)))))
        fig.legend(fontsize=_TEXT, frameon=False, loc="outside lower center", ncols=columns)


def _series(number: int) -> tuple[str, str, str]:
    """Colour, marker and line style of a series; they repeat after 28."""
    return tuple(kind[number % len(kind)] for kind in (_COLOURS, _MARKERS, _LINES))


def _shade(share: float) -> tuple[tuple, str]:
    """The colour of a share from 0 to 1, and black or white, whichever is read better on it."""
    from matplotlib import colormaps

    colour = colormaps["viridis"](share)
    bright = 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2] > 0.5
    return colour, "black" if bright else "white"


def _short(value: object) -> str:
    """A number with three significant digits, and commas between thousands."""
    if isinstance(value, (str, bool)):
        return str(value)
    return f"{float(f'{float(value):.3g}'):,g}"


def _byte_unit(nbytes: int) -> tuple[str, int]:
    units = {"GB": 10**9, "MB": 10**6, "kB": 1000}
    return next(((unit, size) for unit, size in units.items() if nbytes >= size), ("bytes", 1))


def _bytes(nbytes: int) -> str:
    unit, size = _byte_unit(nbytes)
    return f"{_short(nbytes / size)} {unit}"


def _finish(fig: Figure, alt: str, table: Table) -> None:
    """Render a figure and show it with its alt text and table."""
    png = io.BytesIO()
    fig.savefig(png, format="png")
    show_picture(png.getvalue(), alt, table)
