"""What an exercise is: its names, texts and points, and a ladder of checks that end in verdicts.

A check module (`helpers.checks.chNN_slug`) declares its chapter's exercises. The checks of an exercise form
a ladder: they run in order, and the first that fails ends the climb and names the misconception. What was
reached counts.

    (EVALUATE,) = load_exercises(__file__)  # names, points and texts: chNN_slug.toml

    @EVALUATE.check("gives the outputs of every batch, in order")
    def _(session, rng):
        came = session.probe(evaluate_three_batches, seed)
        expect_close(came, expected, on="three batches", misconception="wrong-outputs")

Most rungs are declared by a contract instead: see `contract.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ..files import CourseError, read_toml
from ..measure.verdicts import UNTESTED
from .sessions import Session
from .values import brief

PASSED, FAILED, NOT_ATTEMPTED, NOT_REACHED = "passed", "failed", "not attempted", "not reached"
NOT_TESTABLE = UNTESTED
STATES = (PASSED, FAILED, NOT_ATTEMPTED, NOT_TESTABLE)  # of an exercise; a check may also be "not reached"


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


CheckFunction = Callable[[Session, torch.Generator], None]


@dataclass
class Check:
    """One rung of an exercise's ladder: each `function(session, rng)` returns, or raises `Failed` or `NotTestable`."""

    name: str
    functions: list[CheckFunction]


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
        """Add a rung to the ladder, named by what it asks: "restores every submodule's own mode".

        A second function under the same name adds to that rung.
        """

        def add(function: Callable) -> Callable:
            rung = next((check for check in self.checks if check.name == name), None)
            if rung is None:
                self.checks.append(Check(name, [function]))
            else:
                rung.functions.append(function)
            return function

        return add

    @property
    def chapter(self) -> int:
        """The chapter's number."""
        return int(self.id.split(".")[0])


def load_exercises(module: str) -> tuple[Exercise, ...]:
    """Read a chapter's exercises, in order, from the .toml file beside its check module.

    Line breaks and spaces inside a text are for the file's reader and become single spaces.

    Args:
        module: the module's own `__file__`.

    Raises:
        CourseError: the file cannot be read as exercises; the message says why.
    """
    path = Path(module).with_suffix(".toml")
    try:
        return tuple(Exercise(**_in_one_line(entry)) for entry in read_toml(path)["exercises"])
    except (KeyError, TypeError) as error:
        raise CourseError(f"{path.name}: a key is missing, misspelt or unknown ({error})") from None


def _in_one_line(value: Any) -> Any:
    if isinstance(value, str):
        return " ".join(value.split())
    if isinstance(value, list):
        return [_in_one_line(item) for item in value]
    return {key: _in_one_line(item) for key, item in value.items()} if isinstance(value, dict) else value
