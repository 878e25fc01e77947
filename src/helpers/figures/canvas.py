"""What every picture is drawn with: figure, colours, labels, numbers in short form, and how it is shown.

matplotlib is imported on first use, and its pyplot state is left alone.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, SupportsFloat

from ..show.display import show_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Table = tuple[Sequence[str], Sequence[Sequence[object]]]
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LineStyle = str | tuple[int, tuple[float, ...]]  # a name, or an offset and the lengths of dashes and gaps
LINES: tuple[LineStyle, ...] = ("-", (0, (5, 1.5)), (0, (5, 1.5, 1, 1.5)), (0, (1.2, 1.2)))
GREY, FAINT, TEXT = "#555555", "#D9D9D9", 9.5


def new_figure(width: float, height: float, rows: int = 1, columns: int = 1, layout="constrained"):
    """A figure of so many inches with one axes, or with an array of them."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    fig = Figure(figsize=(width, height), dpi=110, layout=layout)
    FigureCanvasAgg(fig)
    axes = fig.subplots(rows, columns, squeeze=False)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=TEXT)
        ax.set_axisbelow(True)
    return fig, axes if rows * columns > 1 else axes[0, 0]


def label_axes(ax: Axes, xlabel: str, ylabel: str, title: str = "") -> None:
    ax.set_xlabel(xlabel, size=10)
    ax.set_ylabel(ylabel, size=10)
    ax.set_title(title, size=11)
    ax.grid(True, color="#E6E6E6", lw=0.8)


def legend(fig: Figure, ax: Axes) -> None:
    """A legend below the axes, in as many columns as its texts allow; none for a single entry."""
    texts = ax.get_legend_handles_labels()[1]
    if len(texts) > 1:
        columns = min(len(texts), max(1, 105 // (8 + max(map(len, texts)))))
        fig.legend(fontsize=TEXT, frameon=False, loc="outside lower center", ncols=columns)


def series_look(number: int) -> tuple[str, str, LineStyle]:
    """Colour, marker and line style of a series; they repeat after 28."""
    return COLOURS[number % len(COLOURS)], _MARKERS[number % len(_MARKERS)], LINES[number % len(LINES)]


def shade(share: float) -> tuple[tuple, str]:
    """The colour of a share from 0 to 1, and black or white, whichever is read better on it."""
    from matplotlib import colormaps

    colour = colormaps["viridis"](share)
    bright = 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2] > 0.5
    return colour, "black" if bright else "white"


def short(value: str | SupportsFloat) -> str:
    """A number with three significant digits, and commas between thousands."""
    if isinstance(value, (str, bool)):
        return str(value)
    return f"{float(f'{float(value):.3g}'):,g}"


def byte_unit(nbytes: int) -> tuple[str, int]:
    units = {"GB": 10**9, "MB": 10**6, "kB": 1000}
    return next(((unit, size) for unit, size in units.items() if nbytes >= size), ("bytes", 1))


def written_bytes(nbytes: int) -> str:
    unit, size = byte_unit(nbytes)
    return f"{short(nbytes / size)} {unit}"


def finish(fig: Figure, alt: str, table: Table) -> None:
    """Render a figure and show it with its alt text and table."""
    png = io.BytesIO()
    fig.savefig(png, format="png")
    show_picture(png.getvalue(), alt, table)
