"""Every exercise, four ways: blank, solution, other right answers, and wrong ones with their own message."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from answers import PRELUDE

from helpers.exercise import declare, finding, ladder
from helpers.exercise.answers import load_learner
from helpers.exercise.sessions import LocalSession, open_answer
from helpers.lesson import chapters

ROOT = Path(__file__).resolve().parents[1]
EXERCISES = finding.all_exercises()


def bank(exercise):
    slug = chapters.chapter(exercise.chapter).slug
    return importlib.import_module(f"answers.ch{slug}")


def answer_file(tmp_path: Path, source: str) -> Path:
    path = tmp_path / "answer.py"
    path.write_text(PRELUDE + source, encoding="utf-8")
    return path


def check_file(exercise, path: Path, in_process: bool = True):
    if in_process:
        return ladder.run_checks(exercise, LocalSession(load_learner(path)))
    with open_answer(path) as session:
        return ladder.run_checks(exercise, session)


def each(kind: str):
    """Parameters (exercise, answer) for all alternatives or all wrong answers of the bank."""
    found = []
    for exercise in EXERCISES:
        entries = getattr(bank(exercise), kind).get(exercise.id, {})
        named = entries.items() if isinstance(entries, dict) else ((e.misconception, e) for e in entries)
        found += [
            pytest.param(exercise, entry, id=f"{exercise.id}-{number}-{name}")
            for number, (name, entry) in enumerate(named)
        ]
    return found


def ids(exercise):
    return exercise.id


@pytest.mark.parametrize("exercise", EXERCISES, ids=ids)
def test_the_blank_is_not_attempted(exercise):
    path = ROOT / "exercises" / f"{chapters.chapter(exercise.chapter).slug}.py"
    report = check_file(exercise, path)
    assert report.state == declare.NOT_ATTEMPTED, report.to_text()
    assert report.points == 0


@pytest.mark.parametrize("exercise", EXERCISES, ids=ids)
def test_the_solution_passes(exercise):
    path = ROOT / "solutions" / f"{chapters.chapter(exercise.chapter).slug}.py"
    report = check_file(exercise, path)
    assert report.state == declare.PASSED, report.to_text()
    assert report.points == exercise.points


@pytest.mark.parametrize(("exercise", "source"), each("ALTERNATIVES"))
def test_another_right_answer_passes(exercise, source, tmp_path):
    report = check_file(exercise, answer_file(tmp_path, source))
    assert report.state == declare.PASSED, report.to_text()


@pytest.mark.parametrize(("exercise", "wrong"), each("WRONG"))
def test_a_wrong_answer_hears_its_own_misconception(exercise, wrong, tmp_path):
    report = check_file(exercise, answer_file(tmp_path, wrong.source))
    assert report.state == declare.FAILED, report.to_text()
    assert report.misconception == wrong.misconception, report.to_text()
    assert report.points < exercise.points


@pytest.mark.parametrize("exercise", EXERCISES, ids=ids)
def test_an_exercise_is_complete(exercise):
    assert len(exercise.hints) >= 2 and "?" in exercise.hints[0]
    assert all(20 <= len(text) <= 400 for text in exercise.hints)
    assert exercise.remark and exercise.checks and exercise.points >= 1
    assert len(bank(exercise).ALTERNATIVES.get(exercise.id, {})) >= 2
    wrong = bank(exercise).WRONG.get(exercise.id, [])
    assert len(wrong) >= 3
    told = {entry.misconception for entry in wrong} - {"leaves-state-changed"}
    assert told <= set(exercise.misconceptions), told - set(exercise.misconceptions)


def test_points_rise_over_a_chapter():
    for chapter in {exercise.chapter for exercise in EXERCISES}:
        points = [exercise.points for exercise in finding.exercises_of(chapter)]
        assert points == sorted(points) and points[0] == 1 and points[-1] == 3


CROSSING = [e for e in EXERCISES if e.chapter == 1]


@pytest.mark.parametrize("exercise", CROSSING, ids=ids)
def test_a_session_in_another_process_gives_the_same_results(exercise, tmp_path):
    """The check, its inputs and its expected values stay here; the learner's code runs over there."""
    slug = chapters.chapter(exercise.chapter).slug
    blank = check_file(exercise, ROOT / "exercises" / f"{slug}.py", in_process=False)
    assert blank.state == declare.NOT_ATTEMPTED
    solved = check_file(exercise, ROOT / "solutions" / f"{slug}.py", in_process=False)
    assert solved.state == declare.PASSED, solved.to_text()
    for source in bank(exercise).ALTERNATIVES[exercise.id].values():
        report = check_file(exercise, answer_file(tmp_path, source), in_process=False)
        assert report.state == declare.PASSED, report.to_text()
    for wrong in bank(exercise).WRONG[exercise.id]:
        report = check_file(exercise, answer_file(tmp_path, wrong.source), in_process=False)
        assert (report.state, report.misconception) == (declare.FAILED, wrong.misconception), report.to_text()


@pytest.mark.parametrize("exercise", [e for e in EXERCISES if e not in CROSSING], ids=ids)
def test_a_solution_passes_in_another_process(exercise):
    slug = chapters.chapter(exercise.chapter).slug
    report = check_file(exercise, ROOT / "solutions" / f"{slug}.py", in_process=False)
    assert report.state == declare.PASSED, report.to_text()
