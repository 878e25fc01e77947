"""Matrices and how they lie in memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..evidence.storage import shares_storage
from .canvas import COLOURS, FAINT, GREY, TEXT, finish, new_figure, shade, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
    fig, axes = new_figure(across * cell * (wide + 0.6), down * cell * tall, down, across, layout=None)
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
        ax.text(wide / 2, -0.9, f"{layout}\n{jumping}", ha="center", va="top", size=TEXT)
        shape = " by ".join(map(str, tensor.shape))
        facts.append(f"{title} ({shape}): {layout}, {jumping}")
        rows.append([title, shape, tensor.stride(), tensor.storage_offset(), memory, jumps])
    columns = ["matrix", "shape", "stride", "offset", "memory", "jumps"]
    alt = f"Matrices and their place in memory, read row by row. {'; '.join(facts)}."
    finish(fig, alt, (columns, rows))


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
        colour, ink = shade(offset / max(1, size - 1))
        look: dict[str, Any] = {"fc": colour, "ec": "white"}
        if offset not in order:
            look, ink = {"fc": "white", "ec": FAINT, "hatch": "///"}, GREY
        ax.add_patch(Rectangle((x, y), 1, 1, lw=1.5, **look))
        ax.text(x + 0.5, y + 0.48, text, color=ink, ha="center", va="center", size=9)

    for index, offset in enumerate(order):
        row, column = divmod(index, columns)
        corner = (middle - columns / 2 + column, bottom + rows - 1 - row)
        draw_cell(*corner, offset, f"{short(values[offset])}\n@{offset}")
    for offset, value in enumerate(values):
        draw_cell(start + offset, 0, offset, short(value))
        ax.text(start + offset + 0.5, -0.1, f"@{offset}", ha="center", va="top", size=9)
    jumps = 0
    for here, there in pairwise(order):
        jumps += there - here != 1
        look: dict[str, Any] = {"ec": GREY} if there - here == 1 else {"ec": COLOURS[1], "ls": "--"}
        width = abs(there - here)
        height = 2 * min(2.6, 0.45 + 0.28 * width)
        centre = (start + (here + there + 1) / 2, 1.05)
        ax.add_patch(Arc(centre, width, height, theta1=0, theta2=180, lw=1.4, **look))
        ax.plot(start + there + 0.5, 1.12, "v", ms=4, color=look["ec"])
    ax.text(middle, bottom + rows + 0.3, title, ha="center", va="bottom", size=10.5)
    return jumps, len(order) - 1
