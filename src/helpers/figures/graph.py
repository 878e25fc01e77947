"""The autograd graph behind a tensor, drawn level by level."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from .canvas import COLOURS, GREY, finish, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LEVEL = 0.66  # inches from one level of a graph to the next


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
    shown: list[list] = []
    kept = 0
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
    finish(fig, alt, (["node", "computed from"], rows))


def _parents(node) -> list:
    return [parent for parent, _ in node.next_functions if parent is not None]


def _graph_levels(root) -> list[list]:
    """The nodes behind `root` by depth, the longest way down from it."""
    order: dict[Any, None] = {}  # the keys are the nodes, each after those it was computed from
    todo = [(root, False)] if root is not None else []
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
    levels: list[list] = [[] for _ in range(1 + max(depth.values()))] if order else []
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
    fig, ax = new_figure(right - left, _LEVEL * len(rows), layout=None)
    ax.set_position((0, 0, 1, 1))
    ax.set(xlim=(left, right), ylim=(_LEVEL * (0.5 - len(rows)), _LEVEL / 2))
    ax.axis("off")
    height = {node: -_LEVEL * row for row, level in enumerate(rows) for node in level}
    for upper, lower in links:
        # An arrow ends at the upper edge of a box, higher up if it has two lines of text; a
        # waypoint is passed without an arrow.
        end = height[lower] + (0.16 + 0.08 * ("\n" in labels[lower]) if lower in labels else 0)
        style = {"arrowstyle": "-|>" if lower in labels else "-", "color": GREY, "shrinkA": 0}
        start = height[upper] - (0.15 if upper in labels else 0)
        ax.annotate("", (place[lower], end), (place[upper], start), arrowprops={**style, "shrinkB": 0})
    for node, text in labels.items():
        leaf = node in leaves
        box = {"boxstyle": "round,pad=0.3" if leaf else "square,pad=0.35", "ec": COLOURS[leaf]}
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
        row.sort(key=wish.__getitem__)
        edge = -math.inf
        for node in row:
            half = width.get(node, 0.2) / 2
            place[node] = max(wish[node], edge + half)
            edge = place[node] + half + 0.25
        shift = sum(place[node] - wish[node] for node in row) / len(row)
        for node in row:
            place[node] -= shift
    return place
