"""Declared rungs: what they ask, whom they tell what, and which mistakes of an author they notice."""

from __future__ import annotations

import math
import types

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.course import bank
from helpers.exercise.contract import ANYTHING, Case, Contract, Draw, Fact, Where, shaped
from helpers.exercise.declare import Exercise, load_exercises
from helpers.exercise.ladder import run_checks
from helpers.exercise.sessions import LocalSession
from helpers.exercise.values import kind_of, same
from helpers.exercise.wire import LearnerError
from helpers.files import CourseError


def exercise() -> Exercise:
    beliefs = ("doubled", "halved", "not-a-pair", "broken", "endless", "refused")
    return Exercise("0.1", ["f"], 1, ["?", "."], "remark", {name: f"It is {name}." for name in beliefs})


def asked(ladder: Exercise, answer, seed: int = 0):
    """The report on an answer, given as the function `f`."""
    module = types.ModuleType("learner")
    module.f = answer
    return run_checks(ladder, LocalSession(module), seed=seed)


def number(draw: Draw) -> Case:
    x = draw(3, 9)
    return Case(f"x={x}", x)


def add_one(told=None, **options) -> Exercise:
    ladder = exercise()
    Contract(ladder, truth=lambda x: x + 1, told=told, **options).equals("adds one", number)
    return ladder


def test_the_truth_passes_and_a_mimic_hears_its_misconception():
    ladder = add_one({"doubled": lambda x: 2 * x, "halved": lambda x: x / 2})
    assert asked(ladder, lambda x: x + 1).state == "passed"
    assert asked(ladder, lambda x: 2 * x).misconception == "doubled"
    assert asked(ladder, lambda x: x / 2).misconception == "halved"
    report = asked(ladder, lambda x: x - 1000)
    assert (report.misconception, report.reason) == (None, "otherwise")
    assert "expected:" in report.stopped_at.message and "on: x=" in report.stopped_at.message


def test_a_second_mimic_of_one_misconception_has_a_note():
    ladder = add_one({"doubled/by addition": lambda x: x + x, "doubled/and more": lambda x: 2 * x + 1})
    assert asked(ladder, lambda x: 2 * x + 1).misconception == "doubled"


def test_a_condition_stands_for_any_value_and_shadows_what_comes_after_it():
    ladder = add_one({"halved": Where(lambda came: came < 1), "doubled": lambda x: -x})
    assert asked(ladder, lambda x: -x).misconception == "halved"
    assert asked(ladder, lambda x: "text").misconception is None, "a condition that breaks does not hold"
    assert asked(add_one({"halved": ANYTHING}), lambda x: x).misconception == "halved"


def test_cases_are_drawn_until_no_two_beliefs_give_the_same_wrong_answer():
    drawn = []

    def zero_first(draw: Draw) -> Case:
        drawn.append(0 if not drawn else draw(1, 9))
        return Case("x", drawn[-1])

    ladder = exercise()
    contract = Contract(ladder, truth=lambda x: x + 1, told={"doubled": lambda x: 2 * x, "halved": lambda x: x / 2})
    contract.equals("adds one", zero_first)  # twice 0 and half of 0 are the same
    assert asked(ladder, lambda x: x / 2).misconception == "halved" and drawn[0] == 0 and drawn[-1] > 0


def test_beliefs_that_are_always_alike_are_the_author_s_mistake():
    ladder = add_one({"doubled": lambda x: 2 * x, "halved": lambda x: x + x})
    with pytest.raises(AssertionError, match="two beliefs give the same"):
        ladder.checks[0].functions[0].draw(Draw(torch.Generator().manual_seed(0)))


def test_a_telling_case_is_one_on_which_no_belief_is_right():
    contract = Contract(exercise(), truth=abs, told={"doubled": lambda x: x})
    for seed in range(20):
        draw = Draw(torch.Generator().manual_seed(seed))
        case = contract.telling(draw, lambda draw: Case("x", draw(-3, 3)))
        assert case.arguments[0] < 0
    with pytest.raises(AssertionError, match="a belief is right on every case"):
        contract.telling(draw, lambda draw: Case("x", 1))


def test_an_answer_in_parts_is_judged_part_by_part():
    ladder = exercise()
    parts = Contract(
        ladder,
        truth=lambda x: {"once": x, "twice": 2 * x},
        told={"halved": lambda x: {"twice": x / 2}, "doubled": lambda x: {"once": 2 * x}},
    )
    parts.equals("gives both", number)
    assert asked(ladder, lambda x: (x, 2 * x)).state == "passed"
    assert asked(ladder, lambda x: {"twice": 2 * x, "once": x, "more": 0}).state == "passed"
    assert asked(ladder, lambda x: [2 * x, 2 * x]).misconception == "doubled"
    assert asked(ladder, lambda x: [x, x / 2]).misconception == "halved"
    assert "The twice is wrong." in asked(ladder, lambda x: [x, 0]).stopped_at.message
    for odd in (lambda x: x, lambda x: [x], lambda x: {"once": x}, lambda x: None):
        assert "2 values (once, twice) are expected." in asked(ladder, odd).stopped_at.message


def test_errors_of_the_learner_s_code_can_show_a_belief():
    def fails(x):
        raise IndexError("list index out of range")

    ladder = add_one(errors={"LookupError.*out of range": "broken"})
    report = asked(ladder, fails)
    assert report.misconception == "broken" and "IndexError: list index out of range" in report.stopped_at.message
    assert asked(add_one(errors={"KeyError": "broken"}), fails).reason == "raised"


def test_refusals_ask_for_the_class_and_the_words():
    ladder = exercise()
    contract = Contract(ladder, truth=lambda x: x)
    contract.refuses("names it", "refused", lambda draw: [Case(f"x={x}", x, mentions=[str(x)]) for x in (7, 8)])

    def refuse(x):
        raise ValueError(f"not {x}")

    def silent(x):
        raise ValueError("no")

    assert asked(ladder, refuse).state == "passed"
    for wrong in (silent, lambda x: x):
        assert asked(ladder, wrong).misconception == "refused"


REPORTED = {"hooks": 0, "names": ["a"], "out": torch.ones(2)}


@pytest.fixture
def facts():
    """A ladder whose one rung states three facts about what `f` reports."""
    ladder = exercise()
    contract = Contract(ladder, "f", read=lambda came, x: came)
    contract.facts(
        "leaves all as it was",
        number,
        Fact("hooks", 0, "broken", expected="no hook", came="a hook"),
        Fact("names", lambda x: ["a"], {"doubled": ["a", "a"]}),
        Fact("out", torch.ones(2), {"halved": shaped(1)}, rtol=0.1),
    )
    return ladder


@pytest.mark.parametrize(
    ("change", "misconception", "words"),
    [
        ({}, None, ""),
        ({"hooks": 1}, "broken", "expected: no hook\ncame: a hook"),
        ({"names": ["a", "a"]}, "doubled", ""),
        ({"names": None}, None, "came: None"),
        ({"out": torch.ones(1)}, "halved", ""),
        ({"out": torch.ones(3)}, None, "The shape is wrong."),
        ({"out": torch.ones(2) * 1.05}, None, ""),
        ({"hooks": 1, "names": ["a", "a"]}, "broken", ""),
    ],
)
def test_facts_are_judged_in_order(facts, change, misconception, words):
    report = asked(facts, lambda x: REPORTED | change)
    assert report.misconception == misconception
    assert (report.state == "passed") == (set(change) <= {"out"} and misconception is None and not words)
    assert not words or words in report.stopped_at.message


def test_a_case_may_have_facts_of_its_own_but_no_two_of_one_name():
    ladder = exercise()
    contract = Contract(ladder, "f", read=lambda came, x: {"value": came})
    contract.facts("is three", lambda draw: Case("x", 1, facts=[Fact("value", 3, "broken")]))
    assert asked(ladder, lambda x: 3).state == "passed" and asked(ladder, lambda x: 4).misconception == "broken"
    contract.facts("is three", lambda draw: Case("x", 1, facts=[Fact("value", 3), Fact("value", 3)]))
    with pytest.raises(ValueError, match="two facts of one name"):
        ladder.checks[0].functions[1].draw(Draw(torch.Generator()))


def test_a_rung_declared_twice_is_one_rung_that_asks_both():
    ladder = exercise()
    contract = Contract(ladder, truth=lambda x: x + 1)
    contract.equals("adds one", number)
    contract.equals("adds one", lambda draw: Case("zero", 0), told={"broken": ANYTHING})
    assert [check.name for check in ladder.checks] == ["adds one"]
    assert asked(ladder, lambda x: x + 1 if x else 5).misconception == "broken"


def test_a_misconception_can_go_by_another_name_on_a_rung():
    ladder = exercise()
    contract = Contract(ladder, truth=lambda x: x + 1, told={"doubled": lambda x: 2 * x})
    contract.equals("adds one", number, instead={"doubled": "broken"})
    assert asked(ladder, lambda x: 2 * x).misconception == "broken"


def test_a_wrong_truth_is_no_learner_s_fault():
    ladder = exercise()
    Contract(ladder, truth=lambda x: x.missing).equals("adds one", number)
    report = asked(ladder, lambda x: x)
    assert report.state == "not testable here" and "fault of the course" in report.stopped_at.message


values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(values)
@settings(deadline=None)
def test_every_value_agrees_with_itself(value):
    assert same(value, value)


@pytest.mark.parametrize(
    ("came", "wanted", "agree"),
    [
        (1, True, False),
        (True, 1, False),
        (1, 1.0, True),
        (1.0 + 1e-9, 1.0, True),
        (1.1, 1.0, False),
        (math.nan, math.nan, True),
        (math.inf, math.inf, True),
        (math.inf, 1e300, False),
        ((1, 2), [1, 2], True),
        ([1, 2], [1], False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ("1", 1, False),
        (torch.tensor(2), 2, True),
        (torch.tensor([2]), 2, False),
        (torch.tensor(True), True, False),
        (torch.ones(2).double(), torch.ones(2), True),
        (torch.ones(2, 1), torch.ones(2), False),
        (torch.ones(2) * 1j, torch.ones(2), False),
        ([1.0, 1.0], torch.ones(2), False),
        (torch.float32, torch.float32, True),
        (torch.float32, torch.float64, False),
        (None, 0, False),
    ],
)
def test_what_agrees(came, wanted, agree):
    assert same(came, wanted) is agree


def test_another_kind_or_shape_is_said():
    assert kind_of(1, torch.ones(2)) == "This should be a tensor."
    assert kind_of(torch.ones(1), torch.ones(2)) == "The shape is wrong."
    assert kind_of("1", 1) == kind_of(True, 1) == "This should be a number."
    assert kind_of(1, [1]) == "This should be a list."
    assert kind_of(torch.tensor(3), 1) == kind_of(2, 1) == kind_of(torch.ones(2), torch.zeros(2)) == ""


def test_an_error_is_told_with_its_class():
    assert LearnerError("raised", "gone", ("KeyError", "LookupError")).told == "KeyError: gone"
    assert LearnerError("time", "did not stop").told == "did not stop"


# What an author is told by `pitfalls dev check`.


def test_a_belief_that_is_never_wrong_or_always_breaks_is_told():
    ladder = add_one({"doubled": lambda x: x + 1, "halved": lambda x: [][x], "broken": lambda x: -x})
    assert list(bank.troubles(ladder, range(3))) == [
        "doubled is right, or breaks, on every case",
        "halved is right, or breaks, on every case",
    ]


def test_two_beliefs_that_are_alike_are_named_with_the_case():
    ladder = add_one({"doubled": lambda x: 2 * x, "halved": lambda x: x + x})
    (trouble,) = bank.troubles(ladder, range(3))
    assert "doubled and halved, on x=" in trouble


def test_a_misconception_that_is_renamed_and_not_there_is_told():
    ladder = exercise()
    contract = Contract(ladder, truth=lambda x: x + 1, told={"doubled": lambda x: 2 * x})
    contract.equals("adds one", number, instead={"tripled": "broken"})
    assert list(bank.troubles(ladder, range(1))) == ["'adds one' renames tripled, which none of its beliefs is"]


def test_refusals_count_among_what_an_exercise_can_name():
    ladder = add_one({"doubled": lambda x: 2 * x, "doubled/again": lambda x: 3 * x}, errors={"KeyError": "broken"})
    Contract(ladder, truth=lambda x: x).refuses("names it", "refused", lambda draw: Case("x", 7, mentions="seven"))
    assert bank.beliefs(ladder) == {"doubled", "broken", "refused"}


def test_one_word_of_a_refusal_is_one_word():
    assert Case("x", mentions="batch").mentions == ("batch",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[exercises]\n", "ch10_new.toml: "),
        ('[[exercises]]\nid = "10.1"\n', "a key is missing"),
        ('[[exercises]]\nidd = "10.1"\n', "idd"),
        ("[[exercise]]\n", "exercises"),
    ],
)
def test_texts_that_cannot_be_read_are_told_with_their_file(tmp_path, text, said):
    (tmp_path / "ch10_new.toml").write_text(text)
    with pytest.raises(CourseError, match="ch10_new.toml") as caught:
        load_exercises(str(tmp_path / "ch10_new.py"))
    assert said in str(caught.value)


def test_line_breaks_in_a_text_are_the_author_s(tmp_path):
    entry = 'id = "10.1"\nnames = ["f"]\npoints = 1\nhints = ["""\n   Why?\n   And how?""", "So."]\nremark = "r"\n'
    (tmp_path / "ch10_new.toml").write_text(f"[[exercises]]\n{entry}[exercises.misconceptions]\na = '''\nb\n  c'''\n")
    (loaded,) = load_exercises(str(tmp_path / "ch10_new.py"))
    assert loaded.hints == ["Why? And how?", "So."] and loaded.misconceptions == {"a": "b c"}
