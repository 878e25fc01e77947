"""Every exercise, four ways: blank, solution, other right answers, and wrong ones with their own message."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.course import bank
from helpers.exercise import declare, ladder
from helpers.exercise.finding import all_exercises, exercises_of
from helpers.exercise.sessions import open_answer
from helpers.lesson import chapters

ROOT = Path(__file__).resolve().parents[1]
EXERCISES = all_exercises()
each_exercise = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.id)
each_chapter = pytest.mark.parametrize("entry", chapters.CHAPTERS, ids=lambda entry: entry.slug)


def answers(exercise, kind: str) -> list[bank.Answer]:
    return [answer for answer in bank.answers(exercise, ROOT) if answer.kind == kind]


def each(kind: str):
    """Parameters (exercise, answer) for all answers of a kind."""
    return pytest.mark.parametrize(
        ("exercise", "answer"),
        [
            pytest.param(exercise, answer, id=f"{exercise.id}-{answer.name}".rstrip("-"))
            for exercise in EXERCISES
            for answer in answers(exercise, kind)
        ],
    )


def expect_its_verdict(exercise, answer: bank.Answer, report) -> None:
    assert not answer.wrong_about(report), report.to_text()
    share = {declare.NOT_ATTEMPTED: report.points == 0, declare.PASSED: report.points == exercise.points}
    assert share.get(report.state, report.points < exercise.points)


@each("blank")
def test_the_blank_is_not_attempted(exercise, answer):
    expect_its_verdict(exercise, answer, answer.check(exercise))


@each("solution")
def test_the_solution_passes(exercise, answer):
    expect_its_verdict(exercise, answer, answer.check(exercise))


@each("alternative")
def test_another_right_answer_passes(exercise, answer):
    expect_its_verdict(exercise, answer, answer.check(exercise))


@each("wrong")
def test_a_wrong_answer_hears_its_own_misconception(exercise, answer):
    expect_its_verdict(exercise, answer, answer.check(exercise))


@each_exercise
def test_an_exercise_is_complete(exercise):
    """Texts, answers, a wrong answer for every misconception, and cases on which no two beliefs look alike."""
    assert bank.complaints(exercise, ROOT, seeds=range(10)) == []


MIMICS = [
    pytest.param(exercise, mimic, id=f"{exercise.id}-{mimic.name}")
    for exercise in EXERCISES
    for mimic in bank.mimics(exercise, ROOT)
]


@pytest.mark.parametrize(("exercise", "mimic"), MIMICS)
def test_a_belief_is_told_as_itself(exercise, mimic):
    """A learner who writes what a mimic computes hears the mimic's misconception, whatever is drawn."""
    for seed in range(2):
        expect_its_verdict(exercise, mimic, mimic.check(exercise, seed))


def test_points_rise_over_a_chapter():
    for chapter in {exercise.chapter for exercise in EXERCISES}:
        points = [exercise.points for exercise in exercises_of(chapter)]
        assert points == sorted(points) and points[0] == 1 and points[-1] == 3


# In another process, as a grader checks: inputs, expected values and the comparison stay on this side.


@each_chapter
@pytest.mark.parametrize("kind", ["blank", "solution"])
def test_a_file_is_checked_alike_in_another_process(entry, kind):
    exercises = exercises_of(entry.number)
    (path,) = {answer.path for exercise in exercises for answer in answers(exercise, kind)}
    with open_answer(path) as session:
        for exercise in exercises:
            session.leaks.clear()
            (answer,) = answers(exercise, kind)
            expect_its_verdict(exercise, answer, ladder.run_checks(exercise, session))


@each_exercise
def test_a_wrong_answer_hears_the_same_in_another_process(exercise, tmp_path):
    answer = answers(exercise, "wrong")[0]
    with open_answer(answer.file_in(tmp_path)) as session:
        expect_its_verdict(exercise, answer, ladder.run_checks(exercise, session))
