"""Climbing an exercise's ladder of checks: the first that fails ends the climb and says why."""

from __future__ import annotations

import random

import torch

from .declare import FAILED, NOT_ATTEMPTED, NOT_REACHED, NOT_TESTABLE, PASSED, Check, Exercise, Failed, NotTestable
from .report import Report, Rung
from .sessions import Session
from .wire import LearnerError


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
        # A notebook may have set another default device or switched gradients off; its random numbers are its own.
        with torch.device("cpu"), torch.enable_grad(), torch.random.fork_rng(devices=[]):
            for function in check_.functions:
                function(session, rng)
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
