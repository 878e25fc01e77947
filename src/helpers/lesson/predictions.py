"""Predict, then measure: the reader commits to a guess before a number is shown.

    guess = predict("eval-graph", "Does eval() keep autograd from recording?", ["yes", "no"])
    ...measure...
    guess.reveal("no")

In a live notebook the question waits for an answer. Where nobody can type (a run in CI, a script, or
PITFALLS_ASK=0) no guess is recorded, and none is counted. `calibration()` compares, at a chapter's end, how
sure the reader was with how often the reader was right.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..measure.verdicts import NOISY
from ..show.display import in_notebook

_made: dict[str, Prediction] = {}


@dataclass
class Prediction:
    """A reader's guess about one measurement.

    Attributes:
        choice: the option guessed, or None where nobody guessed.
        confidence: how sure the reader is that the choice is right, in percent, or None where the reader did not say.
        truth: what was measured, once `reveal` was called.
    """

    key: str
    question: str
    options: tuple[str, ...]
    choice: str | None = None
    confidence: int | None = None
    truth: str | None = field(default=None)

    def reveal(self, truth: str) -> None:
        """Print the measured answer beside the guess.

        Args:
            truth: one of the options, or "too noisy to tell": the guess then counts neither way.

        Raises:
            ValueError: the truth is none of the options, so the question was badly put.
        """
        if truth == NOISY and NOISY not in self.options:
            print("Measured: too noisy to tell here, so this guess is not counted.")
            return
        if truth not in self.options:
            raise ValueError(f"{truth!r} is not an option of {self.key!r}: {', '.join(self.options)}")
        self.truth = truth
        if self.choice is None:
            print(f"Measured: {truth}.")
        else:
            result = "as you predicted" if self.choice == truth else f"you predicted {self.choice}"
            sure = "" if self.confidence is None else f", {self.confidence} % sure"
            print(f"Measured: {truth} ({result}{sure}).")


def predict(
    key: str,
    question: str,
    options: Sequence[str],
    ask: Callable[[str], str] | None = None,
) -> Prediction:
    """Ask the reader for a guess and keep it for the chapter's end.

    Args:
        key: a short name; asking again under the same key replaces the guess.
        question: what will be measured.
        options: the possible answers.
        ask: how to read a line; by default `input`, where someone can type.

    The reader types an option's number, and if they wish how sure they are in percent: `2 80`. An empty line
    skips the question.
    """
    prediction = Prediction(key, question, tuple(options))
    _made[key] = prediction
    print(question)
    for number, option in enumerate(options, 1):
        print(f"  {number}  {option}")
    reader = ask or _interactive_input()
    if reader is None:
        print("(No guess recorded: nobody can type here.)")
        return prediction
    prompt = f"Your guess, 1 to {len(options)}, and how sure you are in %, for example `1 80`: "
    while True:
        try:
            line = reader(prompt)
        except (EOFError, RuntimeError, NotImplementedError):  # the front end turned out to be deaf
            print("(No guess recorded: nobody can type here.)")
            return prediction
        answer = _parse(line, prediction.options)
        if answer is not None:
            prediction.choice, prediction.confidence = answer
            return prediction
        prompt = f"Please type a number from 1 to {len(options)}, or nothing to skip: "


def calibration() -> None:
    """Print how the chapter's guesses fared, and how sure the reader was of them."""
    answered = [p for p in _made.values() if p.choice is not None and p.truth is not None]
    if not answered:
        print("No predictions to score.")
        return
    right = sum(p.choice == p.truth for p in answered)
    score = f"Predictions: {right} of {len(answered)} right"
    said = [(p.confidence, p.choice == p.truth) for p in answered if p.confidence is not None]
    if not said:
        print(f"{score}.")
        return
    sure = sum(confidence for confidence, _ in said) / len(said)
    share = 100 * sum(was_right for _, was_right in said) / len(said)
    print(f"{score}; you were {sure:.0f} % sure on average.")
    if sure > share + 15:
        print("More sure than right: a measurement is worth its minute.")
    elif share > sure + 15:
        print("More right than sure: trust your model of PyTorch a little more.")
    else:
        print("Well calibrated: as sure as you were right.")


def forget() -> None:
    """Drop all guesses; a chapter calls this when it opens."""
    _made.clear()


def _interactive_input() -> Callable[[str], str] | None:
    if os.environ.get("PITFALLS_ASK", "1") == "0":
        return None
    if in_notebook():
        from IPython import get_ipython

        return input if getattr(get_ipython().kernel, "_allow_stdin", False) else None
    return None if sys.stdin is None or not sys.stdin.isatty() else input


def _parse(line: str, options: tuple[str, ...]) -> tuple[str | None, int | None] | None:
    """Read `2`, `2 80`, an option's own text, or nothing; None if it is none of these."""
    words = line.replace("%", " ").split()
    if not words:
        return None, None
    confidence = None
    if len(words) > 1 and words[-1].isdigit() and 0 <= int(words[-1]) <= 100:
        confidence, words = int(words[-1]), words[:-1]
    text = " ".join(words)
    if text in options:
        return text, confidence
    if text.isdigit() and 1 <= int(text) <= len(options):
        return options[int(text) - 1], confidence
    return None
