"""Rungs that read like the contract: cases, the truth, and what each misconception would give instead.

A check is one algorithm: draw a case, ask the learner's code, compare with the truth, and on a difference find the
belief that gives just this. So a check module states what differs from exercise to exercise and leaves the rest here:

    pool = Contract(POOL, truth=pool_alone, told={
        "mean-counts-padding": lambda x, lengths: {"mean": x.mean(1)},      # a mimic: what this belief computes
        "squeezed-away": lambda x, lengths: ...,
    })
    pool.equals("equals what each item alone gives", padded_cases)
    pool.refuses("names an item of length 0 in a ValueError", "zero-length-not-told", empty_item)

    watched = Contract(EVALUATE, ask=run_evaluate)                          # a probe, which reports what happened
    watched.facts("leaves the model as it was", two_batches,
        Fact("state kept", True, "state-changed"), Fact("hooks", 0, "hook-left"))

A function of cases is given a `Draw` and gives one `Case` or several, the smallest first: a learner sees the first
that fails. A case is drawn again until no two beliefs give the same wrong answer on it, so that nobody hears
another one's message by chance. A second rung of the same name adds to the first.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .declare import Exercise, Failed
from .expect import draw_int, expect, expect_raises
from .sessions import Session
from .values import kind_of, same
from .wire import LearnerError

DRAWS = 200  # tries to draw cases on which all beliefs differ


class Draw:
    """Hidden numbers and tensors of one check: `draw(2, 6)` is a whole number from 2 to 6, both included.

    Attributes:
        session: for cases that depend on where the learner's code runs; None where cases are drawn for a test alone.
    """

    def __init__(self, rng: torch.Generator, session: Session | None = None):
        self.rng, self.session = rng, session

    def __call__(self, low: int, high: int) -> int:
        return draw_int(self.rng, low, high)

    def real(self, low: float, high: float) -> float:
        """A float64 number from low to high."""
        return low + (high - low) * float(torch.rand((), generator=self.rng, dtype=torch.float64))

    def seed(self) -> int:
        """A seed, for a probe that makes its own random numbers."""
        return self(0, 10**6)

    def choice(self, items: Sequence) -> Any:
        """One of the items."""
        return items[self(0, len(items) - 1)]

    def randn(self, *shape: int) -> torch.Tensor:
        """Normal random numbers in float32."""
        return torch.randn(shape, generator=self.rng)

    def permutation(self, count: int) -> list[int]:
        """The numbers below count in random order."""
        return torch.randperm(count, generator=self.rng).tolist()


class Case:
    """One hidden case.

    Args:
        on: the case in words, as a learner reads it after "on".
        arguments: what the learner's function, or the probe, is given; the truth and the mimics get the same.
        mentions: words that the text of a refusal must have.
        facts: what the report on this case alone must say, after the facts of its rung.
        errors: patterns of this case alone, tried before the others.
    """

    def __init__(
        self,
        on: str,
        *arguments: object,
        mentions: Iterable[str] = (),
        facts: Iterable[Fact] = (),
        errors: Mapping[str, str] | None = None,
    ):
        self.on, self.arguments = on, arguments
        self.mentions = (mentions,) if isinstance(mentions, str) else tuple(mentions)
        self.facts, self.errors = tuple(facts), errors or {}


Cases = Callable[[Draw], "Case | Iterable[Case]"]


class Where:
    """In place of a value, any value that satisfies a condition: `Where(lambda came: came.dim() == 1)`."""

    def __init__(self, condition: Callable[[Any], object]):
        self.condition = condition

    def holds(self, came: object) -> bool:
        """Whether a value satisfies the condition; one of another kind, on which it breaks, does not."""
        try:
            return bool(self.condition(came))
        except Exception:
            return False


def shaped(*shape: int) -> Where:
    """Any tensor of this shape."""
    return Where(lambda came: tuple(came.shape) == shape)


BROKEN = Where(lambda came: False)  # what a mimic gives that breaks on a case
ANYTHING = Where(lambda came: True)  # the last of several beliefs, where any other wrong answer has it

# A misconception, or several by what they give: a value, a `Where`, or a function of the case's arguments that gives
# either. A second mimic of one misconception has a note after a slash: "wrong-units/milliseconds".
Told = str | None | Mapping[str, Any]


@dataclass(frozen=True)
class Fact:
    """One thing that a probe's report must say.

    Attributes:
        name: its key in the report; None for an answer that is one whole.
        wanted: the right value, a `Where` of right ones, or a function of the case's arguments that gives either.
        told: the misconception behind any other value, or several by the values that they give.
        message: what is wrong, where the misconception's own text does not say it.
        expected, came: words in place of the values, where those say little to a learner.
            These three may be functions of what came.
        rtol, atol: tolerances, where the contract's will not do.
    """

    name: object
    wanted: object
    told: Told = None
    message: str | Callable[[Any], str] = ""
    expected: object = None
    came: object = None
    rtol: float | None = None
    atol: float | None = None


class Contract:
    """A function or probe of an exercise, with the truth about it and the beliefs that differ.

    Args:
        exercise: the exercise whose ladder gets the rungs.
        ask: the name of the learner's function (by default the exercise's first), or a probe.
        truth: gives the right answer from the case's arguments. A dict is judged part by part, and against a list or
            tuple in the dict's order; parts beyond it are not looked at.
        told: misconception -> mimic, a function of the case's arguments. Of an answer in parts it may give some.
        errors: pattern -> misconception, for code that raised: the pattern is searched in the error's class, its
            bases and its text, `IndexError LookupError Exception BaseException object: index out of range`, or in
            `time: ...` for code that did not end.
        read: turns what came into what is compared, or fails: `read(came, *arguments)`.
        message: what is said of a wrong part, with its name for `{}`.
        rtol, atol: tolerances between numbers, and within tensors.
    """

    def __init__(
        self,
        exercise: Exercise,
        ask: str | Callable | None = None,
        truth: Callable[..., object] | None = None,
        told: Mapping[str, Any] | None = None,
        errors: Mapping[str, str] | None = None,
        read: Callable[..., object] | None = None,
        message: str = "The {} is wrong.",
        rtol: float = 1e-5,
        atol: float = 1e-6,
    ):
        self.exercise, self.truth, self.told, self.errors = exercise, truth, told or {}, errors or {}
        self.asked = ask or exercise.names[0]
        self.read, self.message = read, message
        self.tolerance = {"rtol": rtol, "atol": atol}

    def equals(
        self,
        name: str,
        cases: Cases,
        told: Mapping[str, Any] | None = None,
        errors: Mapping[str, str] | None = None,
        instead: Mapping[str, str] | None = None,
    ) -> None:
        """Add a rung: on each case, the answer equals the truth.

        Args:
            told: mimics of this rung alone, asked before the others.
            errors: patterns of this rung alone, tried before the others.
            instead: misconceptions that go by another id on this rung.
        """
        self._add(DeclaredRung(self, name, cases, {**(told or {}), **self.told}, errors, instead))

    def facts(self, name: str, cases: Cases, *facts: Fact, errors: Mapping[str, str] | None = None) -> None:
        """Add a rung: on each case, the report says all these facts and the case's own, which are judged in order."""
        self._add(DeclaredRung(self, name, cases, {}, errors, None, facts))

    def refuses(self, name: str, misconception: str | None, cases: Cases, kind: str = "ValueError") -> None:
        """Add a rung: each case raises an error of this class, whose text has the case's `mentions`."""

        self.exercise.check(name)(Refusal(self, cases, misconception, kind))

    def telling(self, draw: Draw, make: Callable[[Draw], Case], told: Mapping[str, Any] | None = None) -> Case:
        """Draw a case until every belief is wrong on it, each in its own way: none is right by chance.

        Args:
            told: beliefs beside the contract's own.
        """
        answers = {"": self.truth, **(told or {}), **self.told}
        for _ in range(10 * DRAWS):
            case = make(draw)
            values = [value for _, value in values_of(answers, None, case.arguments)]
            if not any(same(a, b, **self.tolerance) for i, a in enumerate(values) for b in values[:i]):
                return case
        raise AssertionError(f"{self.exercise.id}: a belief is right on every case drawn, or two give the same")

    def ask(self, session: Session, case: Case) -> object:
        """What the learner's code gives on a case."""
        if callable(self.asked):
            return session.probe(self.asked, *case.arguments)
        return session.call(self.asked, *case.arguments)

    def _add(self, rung: DeclaredRung) -> None:
        self.exercise.check(rung.name)(rung)


@dataclass(frozen=True)
class Refusal:
    """A declared rung whose cases must raise an error."""

    contract: Contract
    cases: Cases
    misconception: str | None
    kind: str

    def __call__(self, session: Session, rng: torch.Generator) -> None:
        for case in drawn(self.cases, Draw(rng, session)):
            request = functools.partial(self.contract.ask, session, case)
            expect_raises(request, self.kind, case.on, self.misconception, case.mentions)

    def beliefs(self) -> set[str]:
        """The misconception that this rung can name."""
        return {self.misconception} if self.misconception else set()


@dataclass(frozen=True)
class DeclaredRung:
    """One declared rung, which is also its check: `rung(session, rng)`."""

    contract: Contract
    name: str
    cases: Cases
    told: Mapping[str, object]
    errors: Mapping[str, str] | None = None
    instead: Mapping[str, str] | None = None
    facts: Sequence[Fact] = ()

    def __call__(self, session: Session, rng: torch.Generator) -> None:
        for case, wanted in self.draw(Draw(rng, session)):
            errors = {**case.errors, **(self.errors or {}), **self.contract.errors}
            renamed = {pattern: self._renamed(told) for pattern, told in errors.items()}
            with blamed(renamed, case.on):
                came = self.contract.ask(session, case)
                came = self.contract.read(came, *case.arguments) if self.contract.read else came
                self.judge(came, wanted, case)

    def draw(self, draw: Draw) -> list[tuple[Case, object]]:
        """Draw the cases, each with the truth, again and again until all beliefs differ on each."""
        for _ in range(DRAWS):
            cases = [(case, self._truth(case)) for case in drawn(self.cases, draw)]
            alike = [f"{names}, on {case.on}" for case, wanted in cases if (names := self.confused(case, wanted))]
            if not alike:
                return cases
        rung = f"{self.contract.exercise.id}, {self.name!r}"
        raise AssertionError(f"{rung}: two beliefs give the same wrong answer in every draw, such as {alike[0]}")

    def beliefs(self) -> set[str]:
        """The misconceptions that this rung can name; those of a case's own facts are not known beforehand."""
        return {self._renamed(misconception_of(name)) for name in self.names()} - {""}

    def names(self) -> list[str]:
        """The beliefs of this rung, with their notes, and what its errors tell."""
        told = [self.told, *(fact.told for fact in self.facts)]
        names = [name for some in told for name in ([some] if isinstance(some, str) else some or ())]
        return names + [*(self.errors or {}).values(), *self.contract.errors.values()]

    def effective(self, case: Case, wanted: object) -> set[str]:
        """The beliefs that this case can show: on it they give a wrong answer, or a condition."""
        return {
            name
            for part in self._parts(case, wanted)
            for name, value in values_of(part.told, part.name, case.arguments)
            if value is not BROKEN and (isinstance(value, Where) or not self._same(value, part.wanted, part))
        }

    def confused(self, case: Case, wanted: object) -> str:
        """Name two beliefs that give the same wrong answer on a case; an empty text where all differ."""
        for part in self._parts(case, wanted):
            found: list[tuple[str, object]] = []
            shadows: list[Where] = []  # a value that satisfies an earlier condition is told by that one
            for name, value in values_of(part.told, part.name, case.arguments):
                if isinstance(value, Where):
                    shadows.append(value)
                elif not self._same(value, part.wanted, part) and not any(where.holds(value) for where in shadows):
                    twin = next((other for other, theirs in found if self._same(value, theirs, part)), name)
                    if misconception_of(twin) != misconception_of(name):
                        return f"{twin} and {name}"
                    found.append((name, value))
        return ""

    def judge(self, answer: object, wanted: object, case: Case) -> None:
        """Fail unless the answer, or each part of it, is right; name the belief that explains it."""
        parts = self._named_parts(answer, wanted, case)
        for part in self._parts(case, wanted):
            value = answer if part.name is None else parts[part.name]
            if self._same(value, part.wanted, part):
                continue
            kind = self._belief(value, part, case)
            words: list[Any] = [part.message, part.expected, part.came]
            message, expected, came = (word(value) if callable(word) else word for word in words)
            if kind is None and not (message and self._facts(case)):
                message = kind_of(value, part.wanted) or message
            if expected is None:
                expected = "" if isinstance(part.wanted, Where) else visible(part.wanted)
            raise Failed(kind, message, expected=expected, came=visible(value) if came is None else came, on=case.on)

    def _facts(self, case: Case) -> tuple[Fact, ...]:
        facts = (*self.facts, *case.facts)
        if len({fact.name for fact in facts}) < len(facts):
            raise ValueError(f"{self.name}: two facts of one name; one `Fact` tells all beliefs about it")
        return facts

    def _truth(self, case: Case) -> object:
        facts = self._facts(case)
        if facts:
            wanted = {fact.name: fact.wanted for fact in facts}
            return {name: right(*case.arguments) if callable(right) else right for name, right in wanted.items()}
        assert self.contract.truth is not None, f"{self.name}: there are neither facts nor a truth"
        return self.contract.truth(*case.arguments)

    def _parts(self, case: Case, wanted: Any) -> Iterator[Fact]:
        """What is judged one by one: the facts, or the parts of an answer; an answer that is one whole has no name."""
        facts = self._facts(case)
        if facts:
            yield from (dataclasses.replace(fact, wanted=wanted[fact.name]) for fact in facts)
        elif isinstance(wanted, dict):
            for name, right in wanted.items():
                yield Fact(name, right, self.told, self.contract.message.format(name))
        else:
            yield Fact(None, wanted, self.told)

    def _named_parts(self, came: Any, wanted: object, case: Case) -> dict:
        if not isinstance(wanted, dict):
            return {}
        if isinstance(came, (list, tuple)) and len(came) == len(wanted):
            came = dict(zip(wanted, came, strict=True))
        names = ", ".join(map(str, wanted))
        good = isinstance(came, dict) and not [name for name in wanted if name not in came]
        expect(good, message=f"{len(wanted)} values ({names}) are expected.", came=came, on=case.on)
        return came

    def _belief(self, came: object, part: Fact, case: Case) -> str | None:
        if part.told is None or isinstance(part.told, str):
            kind = part.told
        else:
            beliefs = values_of(part.told, part.name, case.arguments)
            kind = misconception_of(next((name for name, value in beliefs if self._same(came, value, part)), ""))
        return self._renamed(kind or "") or None

    def _renamed(self, misconception: str) -> str:
        return (self.instead or {}).get(misconception, misconception)

    def _same(self, came: object, wanted: object, part: Fact) -> bool:
        if isinstance(wanted, Where):
            return wanted.holds(came)
        own = {"rtol": part.rtol, "atol": part.atol}
        return same(came, wanted, **self.contract.tolerance | {name: x for name, x in own.items() if x is not None})


def drawn(cases: Cases, draw: Draw) -> list[Case]:
    """The cases that a function of cases gives, one or several."""
    made = cases(draw)
    return [made] if isinstance(made, Case) else list(made)


def given(value: object, arguments: Sequence) -> object:
    """A value, or what a function of the case's arguments gives; a mimic that breaks gives what no answer equals."""
    if not callable(value):
        return value
    try:
        return value(*arguments)
    except (ArithmeticError, LookupError, RuntimeError, ValueError):
        return BROKEN


def values_of(told: Told, part: object, arguments: Sequence) -> Iterator[tuple[str, object]]:
    """What each belief gives for a part of the answer; beliefs that do not speak of this part are left out."""
    for name, value in told.items() if isinstance(told, Mapping) else ():
        value = given(value, arguments)
        if part is not None and isinstance(value, dict):
            if part not in value:
                continue
            value = value[part]
        yield name, value


def visible(value: object) -> object:
    """A value as `Failed` shows it: it takes None for nothing to show."""
    return "None" if value is None else value


def misconception_of(name: str) -> str:
    """The id in a mimic's name: "wrong-units" in "wrong-units/milliseconds"."""
    return name.partition("/")[0]


@contextlib.contextmanager
def blamed(errors: Mapping[str, str], on: str) -> Iterator[None]:
    """Turn an error of the learner's code into the misconception behind it, if one of the patterns is found in it.

    A failure that does not say on what gets the case's words.
    """
    try:
        yield
    except LearnerError as error:
        text = f"{' '.join(error.kinds) if error.reason == 'raised' else error.reason}: {error.text}"
        told = next((told for pattern, told in errors.items() if re.search(pattern, text)), None)
        if told is None or error.reason not in ("raised", "time"):
            raise
        raise Failed(told, came=error.told, on=on) from None
    except Failed as failure:
        failure.on = failure.on or on
        raise
