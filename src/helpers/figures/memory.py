"""The bytes alive after each operation."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..evidence.memory import Memory
from .canvas import byte_unit, finish, label_axes, legend, new_figure, series_look, written_bytes


def memory_timeline(memories: Mapping[str, Memory]) -> None:
    """Draw the bytes alive after each operation, and mark the peak, for one function or several."""
    unit, size = byte_unit(max(memory.peak for memory in memories.values()))
    fig, ax = new_figure(7.5, 3.6)
    for number, (label, memory) in enumerate(memories.items()):
        colour, marker, line = series_look(number)
        live = [now / size for _, now in memory.timeline]
        steps = range(1, len(live) + 1)
        ax.step(steps, live, ls=line, where="post", color=colour, lw=1.8)
        text = f"{label}: peak {written_bytes(memory.peak)}"
        top = int(np.argmax(live))
        ax.plot(top + 1, live[top], marker, ls=line, color=colour, ms=9, mec="black", label=text)
    ax.xaxis.get_major_locator().set_params(integer=True)
    label_axes(ax, "operation number", f"alive ({unit})")
    ax.set_ylim(bottom=0)
    legend(fig, ax)
    facts = [
        f"{label} peaks at {written_bytes(memory.peak)} and keeps {written_bytes(memory.live)}"
        for label, memory in memories.items()
    ]
    alt = f"Memory alive after each operation. {'; '.join(facts)}."
    columns = ["function", "operations", "peak (bytes)", "operation at the peak", "kept (bytes)"]
    rows = [
        [label, len(m.timeline) - 1, m.peak, max(m.timeline, key=lambda step: step[1])[0], m.live]
        for label, m in memories.items()
    ]
    finish(fig, alt, (columns, rows))
