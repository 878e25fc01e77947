"""What a learner calls: `check`, `hint`, `solution`, `progress`."""

from __future__ import annotations

import re
import sys
import textwrap
import types
from collections.abc import Iterable
from pathlib import Path

from ..files import package_folder
from ..show.blocks import Block, Marked, Sentence
from ..show.display import Shown, show
from .declare import NOT_ATTEMPTED, PASSED, Exercise
from .finding import all_exercises, exercises_of, find_exercise
from .ladder import run_checks
from .records import forget_record, read_record, write_record
from .report import SYMBOLS
from .sessions import LocalSession


def check(exercise_id: str) -> None:
    """Check the exercise with the names defined in the calling notebook, and show what came of it."""
    exercise = find_exercise(exercise_id)
    names = sys._getframe(1).f_globals
    module = sys.modules.get(names.get("__name__", ""))
    if module is None or vars(module) is not names:
        module = types.ModuleType("learner")
        vars(module).update(names)
    record = read_record(exercise.id)
    report = run_checks(exercise, LocalSession(module), hints_seen=record["hints"])
    record["state"] = report.state if record["state"] != PASSED else PASSED
    record["points"] = max(report.points, record["points"])
    record["attempts"] += report.state != NOT_ATTEMPTED
    write_record(exercise.id, record)
    show(report)


def hint(exercise_id: str) -> None:
    """Print one more hint; after a pass, all of them and why the solution is as it is."""
    exercise = find_exercise(exercise_id)
    record = read_record(exercise.id)
    if record["state"] == PASSED:
        for number, text in enumerate(exercise.hints, 1):
            print(_wrapped(f"Hint {number}: {text}"))
        print(_wrapped(f"Why: {exercise.remark}"))
        return
    record["hints"] = min(record["hints"] + 1, len(exercise.hints))
    write_record(exercise.id, record)
    shown = record["hints"]
    print(_wrapped(f"Hint {shown} of {len(exercise.hints)}: {exercise.hints[shown - 1]}"))


def _wrapped(text: str) -> str:
    """Break lines between words; a notebook's text output breaks them anywhere."""
    return textwrap.fill(text, 88, break_long_words=False, break_on_hyphens=False)


def solution(exercise_id: str) -> None:
    """Print the solution, once the exercise has passed or every hint was read."""
    exercise = find_exercise(exercise_id)
    record = read_record(exercise.id)
    left = len(exercise.hints) - record["hints"]
    if record["state"] != PASSED and left > 0:
        print(f'{left} hint(s) left: hint("{exercise.id}") first.')
        return
    source = solution_source(exercise)
    if source is None:
        print("The solutions are not on this machine; they are in the course's repository, under solutions/.")
        return
    print(f"{source}\n\n# Why: {exercise.remark}")


def solution_source(exercise: Exercise) -> str | None:
    """The solution cells of an exercise, or None where the course's repository is not at hand."""
    for root in (package_folder().parents[1], *Path.cwd().resolve().parents, Path.cwd()):
        for path in root.glob(f"solutions/{exercise.chapter:02d}_*.py"):
            text = path.read_text(encoding="utf-8")
            cells = re.split(r"(?m)^# %%.*$", text)
            wanted = [c.strip() for c in cells if re.search(_definition_pattern(exercise.names), c)]
            kept = "\n\n\n".join(wanted)
            return re.sub(r"(?m)^\s*### (BEGIN|END) SOLUTION\n?", "", kept)
    return None


def _definition_pattern(names: Iterable[str]) -> str:
    return rf"(?m)^(async def|def|class) ({'|'.join(map(re.escape, names))})\b"


class Progress(Shown):
    """Where the learner stands in every chapter."""

    kind = "progress"

    def __init__(self, exercises: list[Exercise]):
        self.rows = [(e, read_record(e.id)) for e in exercises]

    def blocks(self) -> list[Block]:
        earned = sum(record["points"] for _, record in self.rows)
        return [
            Sentence(f"{earned:g} of {sum(exercise.points for exercise, _ in self.rows)} points"),
            Marked([(SYMBOLS[record["state"]], _told(exercise, record)) for exercise, record in self.rows]),
        ]

    def to_data(self) -> dict:
        return {exercise.id: record for exercise, record in self.rows}


def _told(exercise: Exercise, record: dict) -> str:
    names = ", ".join(exercise.names)
    return f"{exercise.id}  {names}: {record['state']}, {record['points']:g} of {exercise.points}"


def progress(chapter: int | None = None) -> None:
    """Show what has been passed, in one chapter or in all."""
    show(Progress(exercises_of(chapter) if chapter is not None else all_exercises()))


def reset_progress(exercise_id: str) -> None:
    """Forget state, points and hints of one exercise."""
    forget_record(find_exercise(exercise_id).id)
