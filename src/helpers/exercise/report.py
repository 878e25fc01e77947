"""The result of checking one exercise, as a learner, a terminal and a program read it."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from ..show.blocks import Block, Command, Marked, Paragraph, Printed, Title
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
        message: what the first check says that did not pass; empty after a pass.
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
        self.message = self.stopped_at.message if self.stopped_at else ""

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

    @property
    def classes(self) -> str:
        return f"pitfalls-check pitfalls-{self.state.replace(' ', '-')}"

    @property
    def colour(self) -> str:
        return _STATE_COLOURS[self.state]

    def blocks(self) -> list[Block]:
        shown: list[Block] = [Title(SYMBOLS[self.state], f"Exercise {self.exercise.id}: {self.state}")]
        if self.state == NOT_ATTEMPTED:
            return [*shown, Paragraph(f"Write {' and '.join(self.exercise.names)}, then check again.")]
        shown.append(Marked([(SYMBOLS[rung.state], rung.name) for rung in self.rungs]))
        if self.state == FAILED:
            shown.append(Paragraph(self.message, apart=True))
            if self.output.strip():
                shown.append(Printed("Your code printed:", self.output.strip()[:500]))
            shown.append(Command("Stuck?", f'hint("{self.exercise.id}")'))
        elif self.state == NOT_TESTABLE:
            shown.append(Paragraph(self._untested_text(), apart=True))
        else:
            shown.append(Paragraph(self.exercise.remark, apart=True))
        return shown

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
