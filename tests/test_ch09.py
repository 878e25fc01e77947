"""What chapter 9's exercises say on a machine without a second device, and which device they take."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from answers import PRELUDE
from answers.ch09_device_moves import WRONG

from helpers.exercise import declare, finding, ladder
from helpers.exercise.answers import load_learner
from helpers.exercise.sessions import LocalSession, open_answer

ROOT = Path(__file__).resolve().parents[1]
SOLUTION = ROOT / "solutions" / "09_device_moves.py"
# Exercise -> the checks that need a second device, counted from 0.
NEEDS_A_DEVICE = {"9.1": [2], "9.2": [1, 2], "9.3": [2], "9.4": [0, 2], "9.5": []}
SEEN_ON_THE_CPU = {
    "list-not-registered", "scale-is-parameter", "mask-in-state-dict", "gradients-accumulate", "not-a-float",
    "bfloat16-unknown", "aliases-the-tensor", "optimizer-orphaned", "state-forgotten", "registered-listed",
}  # fmt: skip


@pytest.fixture
def no_second_device(monkeypatch):
    monkeypatch.setenv("PITFALLS_SECOND_DEVICE", "none")


@pytest.mark.parametrize("exercise_id", NEEDS_A_DEVICE)
def test_without_a_second_device_the_solution_is_no_pass(exercise_id, no_second_device):
    exercise = finding.find_exercise(exercise_id)
    report = ladder.run_checks(exercise, LocalSession(load_learner(SOLUTION)))
    untested = [number for number, rung in enumerate(report.rungs) if rung.state == declare.NOT_TESTABLE]
    assert untested == NEEDS_A_DEVICE[exercise_id], report.to_text()
    assert report.state == (declare.NOT_TESTABLE if untested else declare.PASSED), report.to_text()
    share = 1 - len(untested) / len(report.rungs)
    assert report.points == pytest.approx(exercise.points * share, abs=1e-3)


WRONG_ON_THE_CPU = [
    pytest.param(exercise_id, wrong, id=f"{exercise_id}-{wrong.misconception}-{number}")
    for exercise_id, entries in WRONG.items()
    for number, wrong in enumerate(entries)
    if wrong.misconception in SEEN_ON_THE_CPU
]


@pytest.mark.parametrize(("exercise_id", "wrong"), WRONG_ON_THE_CPU)
def test_without_a_second_device_what_the_cpu_shows_still_fails(exercise_id, wrong, no_second_device, tmp_path):
    path = tmp_path / "answer.py"
    path.write_text(PRELUDE + wrong.source, encoding="utf-8")
    report = ladder.run_checks(finding.find_exercise(exercise_id), LocalSession(load_learner(path)))
    assert (report.state, report.misconception) == (declare.FAILED, wrong.misconception), report.to_text()


@pytest.mark.slow
def test_the_command_answers_3_and_prints_the_report():
    command = [sys.executable, "-m", "helpers.cli", "check", "9.1", "--answer", str(SOLUTION), "--json"]
    environment = {**os.environ, "PITFALLS_SECOND_DEVICE": "none", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 3, done.stderr
    report = json.loads(done.stdout)
    assert report["state"] == "not testable here" and report["points"] == 0.75
    assert "there is no second device" in report["checks"][2]["message"]


@pytest.mark.slow
def test_a_first_rung_on_the_cpu_does_not_cost_exercise_2_its_device(monkeypatch):
    """Once autograd has run, `toy` can no longer be started: the check starts it before it trains on the CPU."""
    monkeypatch.delenv("PITFALLS_SECOND_DEVICE", raising=False)
    from helpers.checks import ch09_device_moves as checks

    with open_answer(SOLUTION) as session:
        before = session.probe(checks.run_where)
    exercise = finding.find_exercise("9.2")
    with open_answer(SOLUTION) as session:
        ladder.run_checks(exercise, session)
        assert session.probe(checks.run_where)["kind"] == before["kind"]
