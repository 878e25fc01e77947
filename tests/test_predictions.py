"""Predictions: asked once, never counted where nobody could type, scored at the end."""

from __future__ import annotations

import pytest

from helpers.lesson import predictions
from helpers.lesson.predictions import calibration, predict


@pytest.fixture(autouse=True)
def fresh():
    predictions.forget()
    yield
    predictions.forget()


def typed(*lines: str):
    answers = iter(lines)
    return lambda prompt: next(answers)


@pytest.mark.parametrize(
    ("line", "choice", "confidence"),
    [
        ("2", "no", None),
        ("1 95", "yes", 95),
        ("1 95 %", "yes", 95),
        ("no 60", "no", 60),
        ("yes", "yes", None),
        ("", None, None),
    ],
)
def test_a_reader_types_number_or_option_and_how_sure(line, choice, confidence):
    made = predict("k", "Does it?", ["yes", "no"], ask=typed(line))
    assert (made.choice, made.confidence) == (choice, confidence)


def test_nonsense_is_asked_again():
    assert predict("k", "Does it?", ["yes", "no"], ask=typed("5", "maybe", "2")).choice == "no"


def test_nobody_there_means_no_guess(capsys, monkeypatch):
    monkeypatch.setenv("PITFALLS_ASK", "0")
    made = predict("k", "Does it?", ["yes", "no"])
    made.reveal("yes")
    calibration()
    out = capsys.readouterr().out
    assert made.choice is None and "No guess recorded" in out and "No predictions to score" in out


def test_a_deaf_front_end_means_no_guess():
    def deaf(prompt):
        raise EOFError

    assert predict("k", "Does it?", ["yes", "no"], ask=deaf).choice is None


def test_the_truth_must_be_an_option():
    with pytest.raises(ValueError, match="perhaps"):
        predict("k", "Does it?", ["yes", "no"], ask=typed("1")).reveal("perhaps")


def test_a_noisy_measurement_counts_neither_way(capsys):
    predict("k", "?", ["yes", "no"], ask=typed("1 90")).reveal("too noisy to tell")
    calibration()
    assert "No predictions to score" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("lines", "word"),
    [
        (["1 90", "1 90"], "More sure than right"),
        (["2 55", "2 55"], "More right than sure"),
        (["2 90", "2 100"], "Well"),
    ],
)
def test_calibration_compares_sureness_with_success(capsys, lines, word):
    for number, line in enumerate(lines):
        predict(str(number), "?", ["wrong", "right"], ask=typed(line)).reveal("right")
    calibration()
    assert word in capsys.readouterr().out


def test_a_reader_who_did_not_say_is_not_told_how_sure(capsys):
    predict("k", "?", ["a", "b"], ask=typed("1")).reveal("b")
    calibration()
    out = capsys.readouterr().out
    assert "you predicted a" in out and "0 of 1 right" in out and "% sure" not in out


def test_asking_again_replaces_the_guess(capsys):
    predict("k", "?", ["a", "b"], ask=typed("1")).reveal("b")
    predict("k", "?", ["a", "b"], ask=typed("2")).reveal("b")
    calibration()
    assert "1 of 1 right" in capsys.readouterr().out
