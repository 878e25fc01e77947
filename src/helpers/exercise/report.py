"""The result of checking one exercise, as a learner, a terminal and a program read it."""

from __future__ import annotations

import html
import textwrap
from dataclasses import asdict, dataclass

from ..show.display import Shown
from .declare import FAILED, NOT_ATTEMPTED, NOT_REACHED, NOT_TESTABLE, PASSED, Exercise

_STATE_COLOURS = {PASSED: "#00674f", FAILED: "#a63d00", NOT_ATTEMPTED: "#5c5c5c", NOT_TESTABLE: "#5c5c5c"}
SYMBOLS = {PASSED: "✓", FAILED: "✗", NOT_ATTEMPTED: "·", NOT_REACHED: "·", NOT_TESTABLE: "?"}


@dataclass
class Rung:
    """The result of one check."""

    name: str
    points: float
    state: str
    misconception: str | None = None
    message: str = ""
    next_hint: str = ""


class Report(Shown):
    """The result of checking one exercise.

    Attributes:
        state: "passed", "failed", "not attempted", or "not testable here": nothing failed, and this machine
            lacks what some of the checks need.
        reason: for a failure, "misconception", "otherwise", or a `LearnerError` reason.
        misconception: its id, or None.
        rungs: one result per check, in order.
        seed: draws the same hidden cases again.
    """

    kind = "check"

    def __init__(self, exercise: Exercise, rungs: list[Rung], seed: int, reason: str = "", output: str = ""):
        self.exercise, self.rungs, self.seed, self.reason = exercise, rungs, seed, reason
        self.output = output
        states = [rung.state for rung in rungs]
        self.state = next((s for s in (FAILED, NOT_ATTEMPTED, NOT_TESTABLE) if s in states), PASSED)
        stopped = next((rung for rung in rungs if rung.state == self.state), None)
        self.stopped_at = None if self.state == PASSED else stopped
        self.misconception = self.stopped_at.misconception if self.stopped_at else None

    @property
    def points(self) -> float:
        """The points earned."""
        reached = sum(rung.state == PASSED for rung in self.rungs)
        return round(self.exercise.points * reached / len(self.rungs), 4)

    def _untested_text(self) -> str:
        """What a report says that is neither a pass nor a failure."""
        untested = [rung for rung in self.rungs if rung.state == NOT_TESTABLE]
        reasons = dict.fromkeys(rung.message for rung in untested)
        return (
            f"Nothing failed, but {len(untested)} of {len(self.rungs)} checks (marked ?) cannot be made on this "
            f"machine: {'; '.join(reasons)}. They earn no points: {self.points:g} of {self.exercise.points} "
            "until the answer is checked on a machine that can."
        )

    def to_text(self) -> str:
        lines = [f"{SYMBOLS[self.state]} Exercise {self.exercise.id}: {self.state}"]
        for rung in self.rungs if self.state != NOT_ATTEMPTED else ():
            lines.append(f"  {SYMBOLS[rung.state]} {rung.name}")
        if self.state == NOT_ATTEMPTED:
            lines.append(f"  Write {' and '.join(self.exercise.names)}, then check again.")
        if self.state == FAILED:
            lines += ["", textwrap.indent(self.stopped_at.message, "  ")]
            if self.output.strip():
                lines += ["  Your code printed:", textwrap.indent(self.output.strip()[:500], "    ")]
            lines.append(f'  Stuck? hint("{self.exercise.id}")')
        if self.state == NOT_TESTABLE:
            lines += ["", f"  {self._untested_text()}"]
        if self.state == PASSED:
            lines += ["", f"  {self.exercise.remark}"]
        return "\n".join(lines)

    def to_html(self) -> str:
        escape, colour = html.escape, _STATE_COLOURS[self.state]
        parts = [f'<div style="font-weight:600">{SYMBOLS[self.state]} Exercise {self.exercise.id}: {self.state}</div>']
        if self.state == NOT_ATTEMPTED:
            parts.append(f"<p>Write {escape(' and '.join(self.exercise.names))}, then check again.</p>")
        else:
            rungs = "".join(f"<li>{SYMBOLS[rung.state]} {escape(rung.name)}</li>" for rung in self.rungs)
            parts.append(f'<ul style="list-style:none;margin:.3em 0;padding-left:.5em">{rungs}</ul>')
        if self.state == FAILED:
            message = escape(self.stopped_at.message).replace("\n", "<br>")
            parts.append(f"<p>{message}</p>")
            if self.output.strip():
                parts.append(f"<p>Your code printed:</p><pre>{escape(self.output.strip()[:500])}</pre>")
            parts.append(f'<p>Stuck? <code>hint("{self.exercise.id}")</code></p>')
        if self.state == NOT_TESTABLE:
            parts.append(f"<p>{escape(self._untested_text())}</p>")
        if self.state == PASSED:
            parts.append(f"<p>{escape(self.exercise.remark)}</p>")
        style = f"border-left:4px solid {colour};padding:.3em .9em"
        name = self.state.replace(" ", "-")
        return f'<div class="pitfalls-check pitfalls-{name}" style="{style}">{"".join(parts)}</div>'

    def to_data(self) -> dict:
        return {
            "exercise": self.exercise.id,
            "state": self.state,
            "points": self.points,
            "max_points": self.exercise.points,
            "reason": self.reason,
            "misconception": self.misconception,
            "seed": self.seed,
            "checks": [asdict(rung) for rung in self.rungs],
        }
