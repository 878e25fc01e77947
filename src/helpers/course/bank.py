"""The answer bank: answers whose verdict is known, and whether an exercise gives it. What an author runs.

`tests/answers/chNN_slug.py` holds, for each exercise, other right answers and wrong ones with the misconception that
each must hear. The blank and the solution come from `exercises/` and `solutions/`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import io
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from ..exercise.answers import load_learner
from ..exercise.contract import DeclaredRung, Draw, Refusal, Where, given, misconception_of
from ..exercise.declare import FAILED, NOT_ATTEMPTED, PASSED, Exercise, NotTestable
from ..exercise.ladder import run_checks
from ..exercise.report import Report
from ..exercise.sessions import LocalSession
from ..files import CourseError
from ..lesson.chapters import chapter

LEAK = "leaves-state-changed"  # a misconception of every exercise


@dataclass(frozen=True)
class Answer:
    """An answer whose verdict is known.

    Attributes:
        kind: "blank", "solution", "alternative" or "wrong".
        name: what tells it from others of its kind.
        state: what its check must end in.
        misconception: what a wrong one must hear.
        path: the file it is in; or
        source: its text.
        replaces: names of the file that stand for something else: a mimic in place of the solution.
    """

    kind: str
    name: str
    state: str
    misconception: str | None = None
    path: Path | None = None
    source: str = ""
    replaces: Mapping[str, object] = field(default_factory=dict)

    def check(self, exercise: Exercise, seed: int | None = None) -> Report:
        """Check the exercise with this answer, in this process."""
        with tempfile.TemporaryDirectory() as folder:
            with contextlib.redirect_stdout(io.StringIO()):  # an answer's own cells may print
                learner = load_learner(self.file_in(Path(folder)))
            vars(learner.module).update(self.replaces)
            return run_checks(exercise, LocalSession(learner), seed=seed)

    def file_in(self, folder: Path) -> Path:
        """The file of this answer, written into a folder unless it has one of its own."""
        if self.path:
            return self.path
        path = folder / "answer.py"
        path.write_text(self.source, encoding="utf-8")
        return path

    def wrong_about(self, report: Report) -> str:
        """Say what a report on this answer should have been; an empty text where it is right."""
        verdicts = [(self.state, self.misconception), (report.state, report.misconception)]
        wanted, came = (f"{state} ({told})" if told else state for state, told in verdicts)
        return "" if wanted == came else f"{self.kind} {self.name!r}, seed {report.seed}: should be {wanted}, is {came}"


def answers(exercise: Exercise, folder: Path) -> Iterator[Answer]:
    """The blank, the solution and the bank of one exercise, in a checkout.

    Raises:
        CourseError: the checkout has no bank for this chapter.
    """
    file_name = f"{chapter(exercise.chapter).slug}.py"
    yield Answer("blank", "", NOT_ATTEMPTED, path=folder / "exercises" / file_name)
    yield Answer("solution", "", PASSED, path=folder / "solutions" / file_name)
    bank, prelude = _bank(exercise, folder)
    for name, source in bank.ALTERNATIVES.get(exercise.id, {}).items():
        yield Answer("alternative", name, PASSED, source=prelude + source)
    for number, wrong in enumerate(bank.WRONG.get(exercise.id, ())):
        name = f"{number}-{wrong.misconception}"
        yield Answer("wrong", name, FAILED, wrong.misconception, source=prelude + wrong.source)


def mimics(exercise: Exercise, folder: Path) -> Iterator[Answer]:
    """Every belief that can act as an answer: the solution, with one function that computes what the belief says.

    Left out are beliefs that are conditions, answers that are read in a way of their own, and ids that change.
    """
    path = folder / "solutions" / f"{chapter(exercise.chapter).slug}.py"
    rungs = [rung for rung in declared(exercise) if isinstance(rung.contract.asked, str)]
    changing = {name for rung in rungs for name in rung.instead or ()}
    first = {rung.contract: rung for rung in reversed(rungs)}  # beliefs of later rungs speak of those rungs alone
    for contract, rung in first.items():
        if contract.truth is None:
            continue
        case, right = rung.draw(Draw(torch.Generator().manual_seed(0)))[0]
        for name, mimic in rung.told.items():
            seen = [right, given(mimic, case.arguments)]
            values = [value for part in seen for value in (part.values() if isinstance(part, dict) else [part])]
            readable = not (contract.read and isinstance(right, dict))
            if readable and misconception_of(name) not in changing and not any(isinstance(v, Where) for v in values):
                acts = {str(contract.asked): functools.partial(_acted, contract.truth, mimic)}
                yield Answer("wrong", name, FAILED, misconception_of(name), path, replaces=acts)


def _acted(truth: Callable, mimic: Any, *arguments: object) -> object:
    """What a belief answers: its own value, or the truth with the parts that it speaks of replaced."""
    right: Any = truth(*arguments)
    own: Any = given(mimic, arguments)
    return right | {name: value for name, value in own.items() if name in right} if isinstance(right, dict) else own


def complaints(exercise: Exercise, folder: Path, seeds: Iterable[int] = range(3)) -> list[str]:
    """Say what an exercise lacks in its texts, its answers, its source and its declared rungs."""
    found = list(answers(exercise, folder))
    heard = {answer.misconception for answer in found if answer.misconception is not None} - {LEAK}
    known, named = set(exercise.misconceptions), beliefs(exercise)
    source = (folder / "solutions" / f"{chapter(exercise.chapter).slug}.py").read_text(encoding="utf-8")
    problems = {
        "at least two hints, the first a question": len(exercise.hints) >= 2 and "?" in exercise.hints[0],
        "hints of 20 to 400 characters": all(20 <= len(text) <= 400 for text in exercise.hints),
        "a remark on the solution": bool(exercise.remark),
        "a rung": bool(exercise.checks),
        "two alternatives": sum(answer.kind == "alternative" for answer in found) >= 2,
        "three wrong answers": sum(answer.kind == "wrong" for answer in found) >= 3,
        f"a text for {', '.join(sorted(heard - known))}": heard <= known,
        f"a wrong answer for {', '.join(sorted(known - heard))}": known <= heard,
        f"a text for {', '.join(sorted(named - known))}": named <= known,
        f"a heading '## {exercise.id} title' in solutions/": f"# ## {exercise.id} " in source,
        f'a cell check("{exercise.id}") in solutions/': f'check("{exercise.id}")' in source,
    }
    lacking = [f"{exercise.id} lacks {what}" for what, there in problems.items() if not there]
    return lacking + [f"{exercise.id}: {trouble}" for trouble in troubles(exercise, seeds)]


def beliefs(exercise: Exercise) -> set[str]:
    """The misconceptions that the exercise's declared rungs can name; those of single cases are not among them."""
    rungs = [f for check in exercise.checks for f in check.functions if isinstance(f, (DeclaredRung, Refusal))]
    return set().union(*(rung.beliefs() for rung in rungs))


def declared(exercise: Exercise) -> list[DeclaredRung]:
    """The declared rungs of an exercise, but for its refusals."""
    return [f for check in exercise.checks for f in check.functions if isinstance(f, DeclaredRung)]


def troubles(exercise: Exercise, seeds: Iterable[int]) -> Iterator[str]:
    """What is wrong with declared rungs: beliefs alike on every draw, beliefs that no case shows, names of nothing."""
    unseen: dict[str, None] = {}
    shown: set[str] = set()
    for rung in declared(exercise):
        for name in set(rung.instead or ()) - {misconception_of(name) for name in rung.names()}:
            yield f"{rung.name!r} renames {name}, which none of its beliefs is"
        unseen |= dict.fromkeys(rung.told)
        for seed in seeds:
            try:
                with torch.random.fork_rng(devices=[]):
                    cases = rung.draw(Draw(torch.Generator().manual_seed(seed)))
            except NotTestable:  # here, on this machine
                shown |= set(rung.told)
                break
            except AssertionError as error:
                yield str(error)
                shown |= set(rung.told)
                break
            shown |= {name for case, wanted in cases for name in rung.effective(case, wanted)}
    yield from (f"{name} is right, or breaks, on every case" for name in unseen if name not in shown)


def _bank(exercise: Exercise, folder: Path) -> tuple[ModuleType, str]:
    """The chapter's module of the bank, and what every answer starts with."""
    package = sys.modules.get("answers")
    if package is None:
        place = folder / "tests" / "answers"
        spec = importlib.util.spec_from_file_location(
            "answers", place / "__init__.py", submodule_search_locations=[str(place)]
        )
        if spec is None or spec.loader is None or not place.is_dir():
            raise CourseError("the answer bank is not here: run this inside a clone of the course's repository")
        package = sys.modules["answers"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(package)
    try:
        return importlib.import_module(f"answers.ch{chapter(exercise.chapter).slug}"), package.PRELUDE
    except ModuleNotFoundError:
        raise CourseError(f"tests/answers/ch{chapter(exercise.chapter).slug}.py does not exist yet") from None
