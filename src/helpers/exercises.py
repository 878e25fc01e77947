"""Exercises: what a notebook calls (`check`, `hint`, `solution`, `progress`) and what a check is made of.

A check module (`helpers.checks.chNN_slug`) declares its chapter's exercises. The checks of an exercise form
a ladder: they run in order, and the first that fails ends the climb and names the misconception. What was
reached counts.

    E2 = Exercise("1.2", names=["evaluate"], points=1, hints=[...], remark="...", misconceptions={...})

    @E2.check("gives the outputs of every batch, in order")
    def _(session, rng):
        came = session.probe(evaluate_three_batches, seed)
        expect_close(came, expected, on="three batches", misconception="wrong-outputs")
"""

from __future__ import annotations

import contextlib
import difflib
import html
import importlib
import json
import os
import pkgutil
import random
import re
import sys
import textwrap
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from .display import Shown, show
from .files import home_folder, write_atomically
from .sessions import LearnerError, LocalSession, Session
from .verdicts import UNTESTED

PASSED, FAILED, NOT_ATTEMPTED, NOT_REACHED = "passed", "failed", "not attempted", "not reached"
NOT_TESTABLE = UNTESTED
_STATE_COLOURS = {PASSED: "#00674f", FAILED: "#a63d00", NOT_ATTEMPTED: "#5c5c5c", NOT_TESTABLE: "#5c5c5c"}
_SYMBOLS = {PASSED: "✓", FAILED: "✗", NOT_ATTEMPTED: "·", NOT_REACHED: "·", NOT_TESTABLE: "?"}


class UnknownExerciseError(LookupError):
    """There is no exercise of this name; the message names the near ones."""


class Failed(Exception):
    """A check's verdict on a wrong answer.

    Args:
        misconception: an id from the exercise's `misconceptions`, or None if no known one explains the answer.
        message: what is wrong, if the misconception's own text does not say it.
        expected, came: the values, shown shortened.
        on: the input on which it happened.
    """

    def __init__(
        self,
        misconception: str | None = None,
        message: str = "",
        *,
        expected: object = None,
        came: object = None,
        on: str = "",
    ):
        super().__init__(message or misconception or "failed")
        self.misconception, self.message, self.on = misconception, message, on
        self.expected = "" if expected is None else brief(expected)
        self.came = "" if came is None else brief(came)


class NotTestable(Exception):
    """Raised by a check that cannot decide on this machine; its text says what the machine lacks.

    The rung earns nothing, the climb goes on, and the exercise does not count as passed. Raise it after all
    that can be judged here, so that a wrong answer still fails.
    """


@dataclass
class Check:
    """One rung of an exercise's ladder: `function(session, rng)` returns, or raises `Failed` or `NotTestable`."""

    name: str
    function: Callable[[Session, torch.Generator], None]


@dataclass
class Exercise:
    """An exercise: what the learner writes, how it is checked, and what helps.

    Attributes:
        id: chapter and number, such as "1.2".
        names: the functions and classes that the learner writes.
        points: what passing it earns.
        hints: at least two; the first is a question.
        remark: why the solution is as it is; shown after a pass.
        misconceptions: id -> what the learner believed, and what to look at.
        cpu_limit_s: processor seconds that one request to the learner's code may take.
    """

    id: str
    names: Sequence[str]
    points: int
    hints: Sequence[str]
    remark: str
    misconceptions: dict[str, str]
    cpu_limit_s: float = 10.0
    checks: list[Check] = field(default_factory=list)

    def check(self, name: str) -> Callable[[Callable], Callable]:
        """Add a rung to the ladder, named by what it asks: "restores every submodule's own mode"."""

        def add(function: Callable) -> Callable:
            self.checks.append(Check(name, function))
            return function

        return add

    @property
    def chapter(self) -> int:
        """The chapter's number."""
        return int(self.id.split(".")[0])


# --- what check modules use to judge ---------------------------------------------------------------------


def expect(condition: bool, misconception: str | None = None, message: str = "", **details: object) -> None:
    """Fail with this misconception unless the condition is true; details as in `Failed`."""
    if not condition:
        raise Failed(misconception, message, **details)


def expect_tensor(came: object, on: str = "", shape: Sequence[int] | None = None) -> torch.Tensor:
    """Fail unless a tensor came (of this shape, if one is given); gives the tensor back."""
    if not isinstance(came, torch.Tensor):
        came = "None" if came is None else came
        raise Failed(None, "This should be a tensor.", expected="a tensor", came=came, on=on)
    if shape is not None and tuple(came.shape) != tuple(shape):
        raise Failed(None, "The shape is wrong.", expected=tuple(shape), came=tuple(came.shape), on=on)
    return came


def expect_close(
    came: object,
    expected: torch.Tensor | float,
    on: str = "",
    misconception: str | None = None,
    message: str = "",
    rtol: float = 1e-5,
    atol: float = 1e-6,
) -> None:
    """Fail unless the value equals the expected one within the tolerance, in shape too; NaN equals NaN."""
    if isinstance(came, torch.Tensor) and came.is_complex():
        raise Failed(misconception, "Complex numbers came.", expected=expected, came=came, on=on)
    if isinstance(expected, torch.Tensor):
        expect_tensor(came, on, expected.shape)
        came_64, expected_64 = came.detach().double(), expected.detach().double()
    elif isinstance(came, torch.Tensor) and came.dim() == 0:
        came_64, expected_64 = came.detach().double(), torch.tensor(float(expected), dtype=torch.float64)
    elif isinstance(came, (int, float)) and not isinstance(came, bool):
        came_64 = torch.tensor(float(came), dtype=torch.float64)
        expected_64 = torch.tensor(float(expected), dtype=torch.float64)
    else:
        came = "None" if came is None else came
        raise Failed(None, "This should be a number.", expected=expected, came=came, on=on)
    if not torch.allclose(came_64, expected_64, rtol=rtol, atol=atol, equal_nan=True):
        raise Failed(misconception, message, expected=expected, came=came, on=on)


def expect_raises(
    request: Callable[[], object],
    kind: str,
    on: str,
    misconception: str | None = None,
    mentions: Iterable[str] = (),
) -> None:
    """Fail unless the learner's code raises this class of exception and its text has these words.

    Args:
        request: runs the learner's code, for example `lambda: session.call("evaluate", ...)`.
        kind: the exception's class name, such as "ValueError"; a subclass will do.
        mentions: small and capital letters are alike.
    """
    try:
        came = request()
    except LearnerError as error:
        if error.reason != "raised":
            raise
        if not error.is_a(kind):
            came = f"{error.kinds[0]}: {error.text}"
            raise Failed(misconception, expected=f"a {kind}", came=came, on=on) from None
        missing = [word for word in mentions if word.lower() not in error.text.lower()]
        if missing:
            wanted = f"a {kind} whose text names {', '.join(missing)}"
            raise Failed(misconception, expected=wanted, came=f"{kind}: {error.text}", on=on) from None
        return
    raise Failed(misconception, expected=f"a {kind}", came=came, on=on)


def draw_int(rng: torch.Generator, low: int, high: int) -> int:
    """Draw a hidden whole number from low to high, both included."""
    return int(torch.randint(low, high + 1, (), generator=rng))


def brief(value: object, limit: int = 300) -> str:
    """Write a value in a short form: a tensor as shape, dtype and its first values."""
    if isinstance(value, torch.Tensor):
        flat = value.detach().reshape(-1)
        if flat.numel() == 1:
            text = f"tensor {flat.tolist()[0]!r}, shape {tuple(value.shape)}"
        else:
            shown = ", ".join(f"{v:.6g}" if isinstance(v, float) else str(v) for v in flat[:6].tolist())
            dots = ", ..." if flat.numel() > 6 else ""
            text = f"tensor of shape {tuple(value.shape)}, {str(value.dtype)[6:]}: [{shown}{dots}]"
    elif isinstance(value, str):
        text = value
    elif isinstance(value, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in value):
        text = f"{type(value).__name__} of {len(value)}: " + "; ".join(brief(v, 80) for v in value[:4])
    else:
        text = repr(value)
    return text if len(text) <= limit else text[: limit - 6] + " [cut]"


# --- finding and running ---------------------------------------------------------------------------------


def exercises_of(chapter: int) -> list[Exercise]:
    """The exercises of a chapter, in order; an empty list if it has none."""
    return _declared_in(rf"ch{chapter:02d}_\w+")


def all_exercises() -> list[Exercise]:
    """Every exercise of the course, in order. This imports every check module."""
    return _declared_in(r"ch\d\d_\w+")


def find_exercise(exercise_id: str) -> Exercise:
    """Look an exercise up by its id.

    Raises:
        UnknownExerciseError: there is no such exercise; the message names the near ones.
    """
    exercise_id = str(exercise_id)
    chapter = exercise_id.split(".")[0]
    for exercise in exercises_of(int(chapter)) if chapter.isdecimal() else ():
        if exercise.id == exercise_id:
            return exercise
    ids = [exercise.id for exercise in all_exercises()]
    near = difflib.get_close_matches(exercise_id, ids, n=5, cutoff=0.4) or ids
    raise UnknownExerciseError(f"there is no exercise {exercise_id!r}; near ones: {', '.join(near)}")


def _declared_in(pattern: str) -> list[Exercise]:
    """The exercises of the check modules whose names match, in order; no other module is imported."""
    from . import checks

    names = [entry.name for entry in pkgutil.iter_modules(checks.__path__) if re.fullmatch(pattern, entry.name)]
    modules = [importlib.import_module(f"{checks.__name__}.{name}") for name in names]
    found = [value for module in modules for value in vars(module).values() if isinstance(value, Exercise)]
    return sorted(found, key=lambda e: tuple(map(int, e.id.split("."))))


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
        lines = [f"{_SYMBOLS[self.state]} Exercise {self.exercise.id}: {self.state}"]
        for rung in self.rungs if self.state != NOT_ATTEMPTED else ():
            lines.append(f"  {_SYMBOLS[rung.state]} {rung.name}")
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
        parts = [f'<div style="font-weight:600">{_SYMBOLS[self.state]} Exercise {self.exercise.id}: {self.state}</div>']
        if self.state == NOT_ATTEMPTED:
            parts.append(f"<p>Write {escape(' and '.join(self.exercise.names))}, then check again.</p>")
        else:
            rungs = "".join(f"<li>{_SYMBOLS[rung.state]} {escape(rung.name)}</li>" for rung in self.rungs)
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


def run_checks(exercise: Exercise, session: Session, seed: int | None = None, hints_seen: int = 0) -> Report:
    """Climb an exercise's ladder with a session.

    Args:
        seed: draws the hidden cases; a fresh one by default.
        hints_seen: how many hints the learner has had; decides the next one to offer.
    """
    seed = random.SystemRandom().randrange(1 << 31) if seed is None else seed
    share = exercise.points / len(exercise.checks)
    rungs, reason, output = [], "", ""
    session.seed = seed
    session.cpu_limit_s = exercise.cpu_limit_s
    next_hint = exercise.hints[min(hints_seen, len(exercise.hints) - 1)]
    for number, check_ in enumerate(exercise.checks):
        rung = Rung(check_.name, round(share, 4), PASSED)
        rungs.append(rung)
        if reason:
            rung.state = NOT_REACHED
            continue
        rng = torch.Generator().manual_seed(seed + number)
        try:
            _make(check_, session, rng)
        except NotTestable as lacking:
            rung.state, rung.message = NOT_TESTABLE, str(lacking)
        except Failed as failure:
            reason = "misconception" if failure.misconception else "otherwise"
            rung.state, rung.misconception = FAILED, failure.misconception
            rung.message, rung.next_hint = _explain(exercise, failure), next_hint
        except LearnerError as error:
            reason, rung.next_hint = error.reason, next_hint
            begun = any(earlier.state == PASSED for earlier in rungs[:-1])
            rung.state = FAILED if error.reason != "blank" or begun else NOT_ATTEMPTED
            rung.message = _explain_error(error)
        except Exception as error:  # not the learner's: a check met a result that its author did not foresee
            kind = type(error).__name__
            rung.state = NOT_TESTABLE
            rung.message = f"the check itself broke on this answer ({kind}: {error}), which is a fault of the course"
        output = session.output
    return Report(exercise, rungs, seed, reason, output if reason else "")


def _make(check_: Check, session: Session, rng: torch.Generator) -> None:
    """Make one check. State that the learner's code left changed fails it, also where nothing else is testable."""
    untested: NotTestable | None = None
    try:
        with torch.device("cpu"):  # a notebook may have set another default
            check_.function(session, rng)
    except NotTestable as lacking:
        untested = lacking
    if session.leaks:
        raise Failed("leaves-state-changed", _LEAK_TEXT.format("; ".join(session.leaks)))
    if untested:
        raise untested


_LEAK_TEXT = (
    "Your code leaves global state changed: {}. Whoever runs next inherits it. "
    "Use a context manager, or put it back in a finally block."
)


def _explain(exercise: Exercise, failure: Failed) -> str:
    known = exercise.misconceptions.get(failure.misconception or "", "")
    parts = [part for part in (failure.message, known) if part]
    lines = [" ".join(parts) or "The result is not the expected one."]
    lines += [
        f"{label}: {text}"
        for label, text in (("on", failure.on), ("expected", failure.expected), ("came", failure.came))
        if text
    ]
    return "\n".join(lines)


def _explain_error(error: LearnerError) -> str:
    if error.reason == "raised":
        return f"Your code raised {error.kinds[0]}: {error.text}" + (f"\n{error.where}" if error.where else "")
    if error.reason == "blank":
        return "A part of this exercise is still blank."
    return error.text[:1].upper() + error.text[1:]


# --- what a notebook calls -------------------------------------------------------------------------------


def check(exercise_id: str) -> None:
    """Check the exercise with the names defined in the calling notebook, and show what came of it."""
    exercise = find_exercise(exercise_id)
    names = sys._getframe(1).f_globals
    module = sys.modules.get(names.get("__name__", ""))
    if module is None or vars(module) is not names:
        module = types.ModuleType("learner")
        vars(module).update(names)
    record = _read_record(exercise.id)
    report = run_checks(exercise, LocalSession(module), hints_seen=record["hints"])
    record["state"] = report.state if record["state"] != PASSED else PASSED
    record["points"] = max(report.points, record["points"])
    record["attempts"] += report.state != NOT_ATTEMPTED
    _write_record(exercise.id, record)
    show(report)


def hint(exercise_id: str) -> None:
    """Print one more hint; after a pass, all of them and why the solution is as it is."""
    exercise = find_exercise(exercise_id)
    record = _read_record(exercise.id)
    if record["state"] == PASSED:
        for number, text in enumerate(exercise.hints, 1):
            print(_wrapped(f"Hint {number}: {text}"))
        print(_wrapped(f"Why: {exercise.remark}"))
        return
    record["hints"] = min(record["hints"] + 1, len(exercise.hints))
    _write_record(exercise.id, record)
    shown = record["hints"]
    print(_wrapped(f"Hint {shown} of {len(exercise.hints)}: {exercise.hints[shown - 1]}"))


def _wrapped(text: str) -> str:
    """Break lines between words; a notebook's text output breaks them anywhere."""
    return textwrap.fill(text, 88, break_long_words=False, break_on_hyphens=False)


def solution(exercise_id: str) -> None:
    """Print the solution, once the exercise has passed or every hint was read."""
    exercise = find_exercise(exercise_id)
    record = _read_record(exercise.id)
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
    for root in (Path(__file__).resolve().parents[2], *Path.cwd().resolve().parents, Path.cwd()):
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
        self.rows = [(e, _read_record(e.id)) for e in exercises]

    def to_text(self) -> str:
        earned = sum(record["points"] for _, record in self.rows)
        lines = [f"{earned:g} of {sum(e.points for e, _ in self.rows)} points"]
        for exercise, record in self.rows:
            names = ", ".join(exercise.names)
            state_ = record["state"]
            lines.append(
                f"  {_SYMBOLS[state_]} {exercise.id}  {names}: {state_}, {record['points']:g} of {exercise.points}"
            )
        return "\n".join(lines)

    def to_data(self) -> dict:
        return {exercise.id: record for exercise, record in self.rows}


def progress(chapter: int | None = None) -> None:
    """Show what has been passed, in one chapter or in all."""
    show(Progress(exercises_of(chapter) if chapter is not None else all_exercises()))


def reset_progress(exercise_id: str) -> None:
    """Forget state, points and hints of one exercise."""
    path = _record_path(find_exercise(exercise_id).id)
    _unsaved.pop(path, None)
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        path.unlink()


# --- progress, one small file an exercise ----------------------------------------------------------------


def progress_folder() -> Path:
    """Where progress is kept: `$PITFALLS_HOME/progress`, by default under `~/.pytorch-pitfalls`."""
    return home_folder() / "progress"


def _record_path(exercise_id: str) -> Path:
    return progress_folder() / f"{exercise_id}.json"


_unsaved: dict[Path, dict] = {}  # records of this process that could not be written, so that hints go on


def _read_record(exercise_id: str) -> dict:
    """Read one exercise's record; a file that cannot be read is set aside and reported, never overwritten."""
    blank = {"state": NOT_ATTEMPTED, "points": 0, "attempts": 0, "hints": 0}
    path = _record_path(exercise_id)
    if path in _unsaved:
        return dict(_unsaved[path])
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        good = set(record) == set(blank) and record["state"] in _STATE_COLOURS
        if good and all(isinstance(record[key], (int, float)) for key in ("points", "attempts", "hints")):
            return record
    except FileNotFoundError:
        return blank
    except (OSError, ValueError, TypeError):
        pass
    number = 1
    while (aside := path.with_suffix(f".unreadable-{number}")).exists():
        number += 1
    with contextlib.suppress(OSError):
        os.replace(path, aside)
        print(f"The progress of {exercise_id} could not be read; the file was set aside as {aside}.")
    return blank


def _write_record(exercise_id: str, record: dict) -> None:
    """Write one record atomically; a folder that cannot be written costs the record, not the check."""
    path = _record_path(exercise_id)
    try:
        write_atomically(path, json.dumps(record))
        _unsaved.pop(path, None)
    except OSError as error:
        _unsaved[path] = dict(record)
        print(f"Progress was not saved ({error}).")
