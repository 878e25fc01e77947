"""What a learner calls: check, hint, solution and progress, and what happens to their records."""

from __future__ import annotations

import json
import types

import pytest
import torch

from helpers.exercise import declare, expect, finding, learner, records
from helpers.exercise.answers import load_learner
from helpers.exercise.declare import Exercise, Failed
from helpers.exercise.expect import expect_close, expect_raises
from helpers.exercise.ladder import run_checks
from helpers.exercise.report import Report
from helpers.exercise.sessions import LocalSession

RIGHT = """
def predict_modes():
    rows = {}
    for t in ("train", "eval"):
        for m in ("", "+no_grad", "+inference_mode"):
            rows[t + m] = (t == "eval", t == "eval", m == "")
    return rows
"""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("PITFALLS_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def check_with(source: str, exercise_id: str = "1.1") -> None:
    """Run `check` as a notebook does: in the namespace that holds the answer."""
    names = {"__name__": "a_notebook", "check": learner.check}
    exec(source + f'\ncheck("{exercise_id}")', names)


def test_a_pass_shows_the_remark_and_is_remembered(capsys):
    check_with(RIGHT)
    out = capsys.readouterr().out
    assert "passed" in out and finding.find_exercise("1.1").remark[:30] in out
    learner.progress(1)
    assert "1.1  predict_modes: passed, 1 of 1" in capsys.readouterr().out


def test_a_failure_says_what_and_offers_a_hint(capsys):
    check_with(RIGHT.replace('m == ""', 'm == "" and t == "train"'))
    out = capsys.readouterr().out
    assert "failed" in out and "eval() to stop autograd" in out and 'hint("1.1")' in out


def test_a_pass_is_not_lost_by_a_later_failure():
    check_with(RIGHT)
    check_with("def predict_modes(): return {}")
    assert records.read_record("1.1")["state"] == "passed"


def test_hints_come_one_at_a_time_and_all_after_a_pass(capsys):
    learner.hint("1.1")
    first = capsys.readouterr().out
    learner.hint("1.1")
    second = capsys.readouterr().out
    assert first.startswith("Hint 1") and "?" in first and second.startswith("Hint 2")
    learner.hint("1.1")
    assert capsys.readouterr().out == second
    check_with(RIGHT)
    capsys.readouterr()
    learner.hint("1.1")
    assert capsys.readouterr().out.count("Hint") == 2


def test_the_solution_waits_for_the_hints(capsys):
    learner.solution("1.2")
    assert "left" in capsys.readouterr().out
    for _ in range(3):
        learner.hint("1.2")
    capsys.readouterr()
    learner.solution("1.2")
    out = capsys.readouterr().out
    assert "def evaluate(" in out and "SOLUTION" not in out and "finally" in out


def test_progress_can_be_reset_per_exercise():
    check_with(RIGHT)
    learner.reset_progress("1.1")
    assert records.read_record("1.1")["state"] == "not attempted"
    learner.reset_progress("1.1")  # nothing to forget is no error


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"state": "passed"}', '{"state": 3, "points": [], "attempts": 0, "hints": 0}']
)
def test_a_corrupted_record_is_set_aside_not_lost(home, capsys, content):
    path = home / "progress" / "1.1.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    check_with(RIGHT)
    assert "set aside" in capsys.readouterr().out
    aside = list(path.parent.glob("1.1.unreadable-*"))
    assert [p.read_text() for p in aside] == [content]
    assert json.loads(path.read_text())["state"] == "passed"


def test_a_home_that_cannot_be_written_costs_the_record_alone(home, capsys):
    home.parent.joinpath("home").write_text("a file, not a folder")
    check_with(RIGHT)
    out = capsys.readouterr().out
    assert "passed" in out and "not saved" in out


def test_hints_go_on_where_a_home_cannot_be_written(home, capsys):
    home.write_text("a file, not a folder")
    learner.hint("1.2")
    learner.hint("1.2")
    out = capsys.readouterr().out
    assert "Hint 1 of" in out and "Hint 2 of" in out
    learner.reset_progress("1.2")
    learner.hint("1.2")
    assert "Hint 1 of" in capsys.readouterr().out


def test_digits_of_other_kinds_are_no_exercise():
    with pytest.raises(declare.UnknownExerciseError):
        finding.find_exercise("\u00b2.1")


def test_an_unknown_exercise_names_near_ones():
    with pytest.raises(declare.UnknownExerciseError, match=r"near ones: .*1\.\d"):
        learner.check("1.9")
    for nonsense in ("", "evaluate", "0.1", "99.1"):
        with pytest.raises(declare.UnknownExerciseError, match="near ones"):
            finding.find_exercise(nonsense)


# --- the ladder ------------------------------------------------------------------------------------------


def ladder(*functions) -> Exercise:
    made = Exercise("1.1", ["f"], 2, ["First?", "Second."], "Because.", {"known": "You believed it."})
    for number, function in enumerate(functions):
        made.check(f"rung {number}")(function)
    return made


def climb(exercise: Exercise, source: str, tmp_path) -> Report:
    path = tmp_path / "answer.py"
    path.write_text(source)
    return run_checks(exercise, LocalSession(load_learner(path)), seed=5)


def test_the_climb_ends_at_the_first_failure_and_counts_what_was_reached(tmp_path):
    def fails(session, rng):
        raise Failed("known", "Look.", expected=1, came=2, on="x = 3")

    report = climb(ladder(lambda s, r: s.call("f"), fails, lambda s, r: None), "def f(): return 1", tmp_path)
    assert [rung.state for rung in report.rungs] == ["passed", "failed", "not reached"]
    assert report.points == pytest.approx(2 / 3, abs=1e-3) and report.misconception == "known"
    text = report.to_text()
    for part in ("Look. You believed it.", "on: x = 3", "expected: 1", "came: 2"):
        assert part in text
    data = report.to_data()
    assert data["checks"][1]["next_hint"] == "First?" and data["seed"] == 5


def test_a_blank_first_rung_is_not_attempted_and_a_later_one_fails(tmp_path):
    one, two = lambda s, r: s.call("f"), lambda s, r: s.call("g")
    source = "def f(): return 1\ndef g(): raise NotImplementedError\n"
    assert climb(ladder(two, one), source, tmp_path).state == "not attempted"
    later = climb(ladder(one, two), source, tmp_path)
    assert later.state == "failed" and "still blank" in later.to_text()


def lacks(session, rng):
    session.call("f")
    raise declare.NotTestable("there is no second device")


def test_a_check_that_this_machine_cannot_make_is_no_pass_and_earns_nothing(tmp_path):
    def one(session, rng):
        session.call("f")

    report = climb(ladder(one, lacks, one, lacks), "def f(): return 1", tmp_path)
    assert [rung.state for rung in report.rungs] == ["passed", "not testable here"] * 2
    assert (report.state, report.points, report.misconception) == ("not testable here", 1.0, None)
    for shown in (report.to_text(), report.to_html()):
        assert "2 of 4 checks" in shown and "there is no second device" in shown and "1 of 2" in shown
        assert "Because." not in shown
    assert report.to_data()["checks"][1]["message"] == "there is no second device"


def test_what_cannot_be_checked_hides_no_failure_no_blank_and_no_leak(tmp_path):
    def fails(session, rng):
        raise Failed("known")

    report = climb(ladder(lacks, fails), "def f(): return 1", tmp_path)
    assert (report.state, report.misconception) == ("failed", "known")
    assert climb(ladder(lacks), "def f(): raise NotImplementedError", tmp_path).state == "not attempted"

    def lacks_at_once(session, rng):
        raise declare.NotTestable("no device")

    blank = climb(ladder(lacks_at_once, lambda s, r: s.call("f")), "def f(): raise NotImplementedError", tmp_path)
    assert blank.state == "not attempted"
    leaky = climb(ladder(lacks), "import torch\ndef f(): torch.set_grad_enabled(False)", tmp_path)
    assert leaky.misconception == "leaves-state-changed"


def test_an_exercise_that_was_not_testable_is_remembered_as_that(monkeypatch, capsys):
    source = "def f(): return 1"
    monkeypatch.setattr(learner, "find_exercise", lambda exercise_id: ladder(lambda s, r: s.call("f"), lacks))
    check_with(source)
    assert records.read_record("1.1") == {"state": "not testable here", "points": 1.0, "attempts": 1, "hints": 0}
    assert "Nothing failed" in capsys.readouterr().out
    learner.progress(1)
    assert "? 1.1  predict_modes: not testable here, 1 of 1" in capsys.readouterr().out


def test_code_that_leaks_state_fails_even_with_right_values(tmp_path):
    source = "import torch\ndef f():\n    torch.set_grad_enabled(False)\n"
    report = climb(ladder(lambda s, r: s.call("f")), source, tmp_path)
    assert report.misconception == "leaves-state-changed" and "grad mode" in report.to_text()


def test_the_same_seed_draws_the_same_hidden_cases(tmp_path):
    drawn = []
    exercise = ladder(lambda s, r: drawn.append(expect.draw_int(r, 0, 10**9)))
    climb(exercise, "", tmp_path)
    climb(exercise, "", tmp_path)
    assert drawn[0] == drawn[1]


def test_a_check_that_breaks_is_no_verdict_on_the_answer(tmp_path):
    def breaks(session, rng):
        return {}["no such key"]

    report = climb(ladder(lambda s, r: None, breaks), "", tmp_path)
    assert report.state == declare.NOT_TESTABLE and report.points < 2
    assert "fault of the course" in report.to_text()


def test_printed_output_is_shown_with_a_failure(tmp_path):
    def fails(session, rng):
        session.call("f")
        raise Failed()

    assert "debug line" in climb(ladder(fails), "def f(): print('debug line')", tmp_path).to_text()


@pytest.mark.parametrize("came", ["text", None, True, [1.0]])
def test_expect_close_wants_a_number(came):
    with pytest.raises(Failed):
        expect_close(came, 1.0)


def test_a_forgotten_return_is_shown_as_none():
    for fails in (lambda: expect.expect_tensor(None), lambda: expect_close(None, 1.0)):
        with pytest.raises(Failed) as caught:
            fails()
        assert caught.value.came == "None"


def test_expect_close_does_not_drop_an_imaginary_part():
    with pytest.raises(Failed):
        expect_close(torch.ones(2, dtype=torch.complex64), torch.ones(2))


def test_a_notebook_s_default_device_does_not_reach_the_checks():
    with torch.device("meta"):
        report = run_checks(finding.find_exercise("5.1"), LocalSession(types.ModuleType("learner")))
    assert report.reason == "missing"


def test_expect_close_accepts_floats_and_zero_dim_tensors():
    import torch

    expect_close(1.0 + 1e-7, 1.0)
    expect_close(torch.tensor(1.0), 1.0)
    expect_close(float("nan"), float("nan"))
    for came in (1.1, torch.tensor(1.1)):
        with pytest.raises(Failed):
            expect_close(came, 1.0)


def test_expect_raises_wants_class_and_words(tmp_path):
    path = tmp_path / "answer.py"
    path.write_text("class Mine(ValueError): pass\ndef f(): raise Mine('item 3 is empty')\ndef g(): return 1\n")
    session = LocalSession(load_learner(path))
    expect_raises(lambda: session.call("f"), "ValueError", "x", mentions=["3", "Item"])
    for request, kind, words in [("f", "KeyError", []), ("f", "ValueError", ["7"]), ("g", "ValueError", [])]:
        with pytest.raises(Failed):
            expect_raises(lambda request=request: session.call(request), kind, "x", mentions=words)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("in '/srv/a b/ipykernel_7/24.py', line 5", "in '24.py', line 5"),
        (r"in D:\courses\24.py: no", "in 24.py: no"),
        ("shape (3, 1/2) of a.b/c", "shape (3, 1/2) of a.b/c"),
    ],
)
def test_an_expected_error_names_no_folder_of_this_machine(capsys, text, shown):
    from helpers import expected_error

    with expected_error(RuntimeError):
        raise RuntimeError(text)
    assert capsys.readouterr().out == f"RuntimeError: {shown}\n"
