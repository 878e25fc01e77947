"""What `compare` promises.

Time is fake here: a variant moves the clock itself, so that nothing depends on the speed of a machine.
"""

from __future__ import annotations

import gc
import json
import math
import random
import sys
import types

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.measure import clocks, intervals, machine, rounds, verdicts
from helpers.measure.comparison import FASTER, NOISY, SAME, SLOWER, Comparison
from helpers.measure.intervals import Ratio
from helpers.measure.timing import compare
from helpers.show import display

MICROSECOND, MILLISECOND = 1_000, 1_000_000


class FakeMachine:
    """A machine with one clock for the wall and one for the thread; a call advances both."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0
        self.calls: list[str] = []
        self.random = random.Random(1)

    def work(self, name: str, nanoseconds: float, noise: float = 0.0, waiting: float = 0.0):
        """A variant that computes for so long, give or take, and then waits for that share of it."""

        def call() -> None:
            self.calls.append(name)
            spent = round(nanoseconds * self.random.uniform(1, 1 + noise))
            self.cpu += spent
            self.wall += round(spent * (1 + waiting))

        return call


@pytest.fixture
def fake(monkeypatch) -> FakeMachine:
    fake = FakeMachine()
    monkeypatch.setattr(clocks, "wall_ns", lambda: fake.wall)
    monkeypatch.setattr(clocks, "cpu_ns", lambda: fake.cpu)
    monkeypatch.setattr(gc, "collect", lambda: 0)  # half a second beside a large test run
    monkeypatch.delenv("PITFALLS_RETRY_NOISY", raising=False)
    return fake


def rounds_of(ratios, **options) -> Comparison:
    """A comparison whose variant b took these times in rounds of a that took 20 microseconds."""
    times = np.array([[1.0, ratio] for ratio in ratios]) * 20e-6
    return Comparison(("a", "b"), times, **options)


# --- what is measured -----------------------------------------------------------------------------


def test_a_faster_variant_is_found_with_its_factor(fake):
    result = compare({"slow": fake.work("slow", 50e3, 0.1), "fast": fake.work("fast", 40e3, 0.1)})
    assert result.verdict("fast") == FASTER
    low, median, high = result.speedup("fast")
    assert low < median < high
    assert median == pytest.approx(1.25, rel=0.02)


def test_identical_variants_show_no_practical_difference(fake):
    result = compare({"a": fake.work("a", 30e3, 0.2), "b": fake.work("b", 30e3, 0.2)})
    assert result.verdict("b") == SAME


def test_hopeless_noise_is_too_noisy_to_tell(fake):
    result = compare({"a": fake.work("a", 3e6, 20), "b": fake.work("b", 3e6, 20)}, budget_s=1)
    assert result.verdict("b") == NOISY
    assert "too noisy to tell" in result.sentence("b")


def test_a_drift_of_the_whole_machine_leaves_the_ratio_alone(fake):
    """The clock frequency halves half-way: sequential timing would see a factor of two."""

    def drifting(nanoseconds):
        def call():
            fake.wall += nanoseconds * (1 + (fake.wall > 5e8))
            fake.cpu = fake.wall

        return call

    result = compare({"a": drifting(50_000), "b": drifting(50_000)}, budget_s=1, precision=1e-9)
    assert result.verdict("b") == SAME
    assert result.ratio("b").median == pytest.approx(1)


def test_every_round_runs_each_variant_once_in_varying_order(fake):
    names = ["a", "b", "c"]
    result = compare({name: fake.work(name, MILLISECOND) for name in names}, budget_s=0.5, precision=1e-9)
    last = fake.calls[-3 * result.rounds :]
    orders = [tuple(last[i : i + 3]) for i in range(0, len(last), 3)]
    assert all(sorted(order) == names for order in orders)
    assert len(set(orders)) == 6


def test_the_seed_fixes_the_order(fake):
    def order(seed):
        fake.calls.clear()
        compare({n: fake.work(n, MILLISECOND) for n in "ab"}, budget_s=0.2, seed=seed)
        return list(fake.calls)

    assert order(1) == order(1) != order(2)


def test_measuring_leaves_the_global_random_numbers_alone(fake):
    random.seed(5)
    expected = random.random()
    random.seed(5)
    compare({"a": fake.work("a", 50e3), "b": fake.work("b", 50e3)}, budget_s=0.1)
    assert random.random() == expected


@pytest.mark.parametrize("nanoseconds", [10 * MICROSECOND, 40 * MICROSECOND, 3 * MILLISECOND])
def test_a_block_lasts_about_a_tenth_of_a_millisecond_or_one_call(fake, nanoseconds):
    variants = {"a": fake.work("a", nanoseconds), "b": fake.work("b", 1.1 * nanoseconds)}
    calls = compare(variants, budget_s=0.3).details["calls_per_block"]
    assert calls == max(1, 100 * MICROSECOND // nanoseconds)


def test_variants_make_the_same_number_of_calls(fake):
    variants = {"a": fake.work("a", 5e3), "b": fake.work("b", 500e3)}
    result = compare(variants, budget_s=0.3)
    assert result.details["calls_per_block"] == 10  # of the slow one: at most 5 ms
    assert result.ratio("b").median == pytest.approx(100, rel=0.01)


def test_the_first_call_is_reported_apart(fake):
    first = iter([9 * MILLISECOND])

    def compiled():
        fake.wall += next(first, 20 * MICROSECOND)

    result = compare({"eager": fake.work("eager", 20e3), "compiled": compiled}, budget_s=0.1)
    assert result.first_call_s == {"eager": 20e-6, "compiled": 9e-3}
    assert result.ratio("compiled").median == pytest.approx(1)


# --- when it stops --------------------------------------------------------------------------------


def test_it_stops_early_once_precise(fake):
    result = compare({"a": fake.work("a", 50e3, 0.01), "b": fake.work("b", 50e3, 0.01)}, budget_s=2)
    assert result.why_stopped == "precise enough"
    assert fake.wall < 1e9


def test_a_clear_difference_does_not_stop_it_while_imprecise(fake):
    variants = {"a": fake.work("a", 50e3, 3), "b": fake.work("b", 500e3, 3)}
    result = compare(variants, budget_s=1, precision=1e-4)
    assert result.verdict("b") == SLOWER
    assert result.why_stopped == "budget spent"
    assert fake.wall == pytest.approx(1e9, rel=0.05)


def test_more_than_the_budget_is_spent_only_for_the_least_rounds(fake):
    variants = {"a": fake.work("a", 20e6), "b": fake.work("b", 20e6)}
    result = compare(variants, budget_s=0.5)
    assert result.rounds == 15
    assert 0.5e9 < fake.wall < 1.5e9


def test_three_budgets_are_the_end_even_without_enough_rounds(fake):
    result = compare({"a": fake.work("a", 1e8), "b": fake.work("b", 2e8)}, budget_s=0.5)
    assert result.why_stopped == "hard cap reached"
    assert result.rounds < 15
    assert fake.wall < 2.5e9  # three budgets, a round and the first calls
    assert result.verdict("b") == NOISY
    assert "of 15 rounds" in result.sentence("b")


def test_the_default_budget_comes_from_the_settings(fake, monkeypatch):
    monkeypatch.setattr(machine, "settings", machine.Settings(budget_s=0.25))
    result = compare({"a": fake.work("a", 50e3, 5), "b": fake.work("b", 50e3, 5)}, precision=1e-9)
    assert result.details["budget_s"] == 0.25
    assert fake.wall == pytest.approx(0.25e9, rel=0.1)


def test_noisy_is_measured_again_with_two_and_four_budgets_in_ci(fake, monkeypatch):
    monkeypatch.setenv("PITFALLS_RETRY_NOISY", "1")
    result = compare({"a": fake.work("a", 3e6, 50), "b": fake.work("b", 3e6, 50)}, budget_s=0.2)
    assert result.verdict("b") == NOISY
    assert result.details["budget_s"] == 0.8


@pytest.mark.parametrize(("value", "argument"), [("0", None), ("", None), ("1", False)])
def test_noisy_is_not_measured_again_otherwise(fake, monkeypatch, value, argument):
    monkeypatch.setenv("PITFALLS_RETRY_NOISY", value)
    variants = {"a": fake.work("a", 3e6, 50), "b": fake.work("b", 3e6, 50)}
    assert compare(variants, budget_s=0.2, retry_noisy=argument).details["budget_s"] == 0.2


def test_a_verdict_is_not_measured_again(fake):
    variants = {"a": fake.work("a", 50e3), "b": fake.work("b", 60e3)}
    assert compare(variants, budget_s=0.2, retry_noisy=True).details["budget_s"] == 0.2


# --- which clock ----------------------------------------------------------------------------------

posix = pytest.mark.skipif(sys.platform == "win32", reason="the CPU clock of Windows is too coarse")


@posix
@pytest.mark.parametrize(
    ("nanoseconds", "options", "clock"),
    [
        (30e3, {}, "wall"),
        (0.9e6, {}, "wall"),
        (1.1e6, {}, "cpu"),
        (2.1e6, {"num_threads": 2}, "wall"),
        (2.1e6, {"waits": True}, "wall"),
        (2.1e6, {"clock": "wall"}, "wall"),
        (30e3, {"clock": "cpu"}, "cpu"),
    ],
)
def test_long_calls_on_one_thread_are_timed_by_the_cpu_clock(fake, nanoseconds, options, clock):
    variants = {"a": fake.work("a", nanoseconds), "b": fake.work("b", nanoseconds)}
    assert compare(variants, budget_s=0.2, **options).clock == clock


@posix
def test_on_the_cpu_clock_a_busy_neighbour_does_not_count(fake):
    variants = {
        "a": fake.work("a", 5e6, waiting=0.5),
        "b": fake.work("b", 5e6, waiting=1.5),
    }
    result = compare(variants, budget_s=0.5)
    assert (result.clock, result.verdict("b")) == ("cpu", SAME)
    assert result.off_cpu == pytest.approx(0.5, abs=0.01)


@posix
def test_a_variant_that_waits_is_not_timed_by_the_cpu_clock(fake):
    """It would look fast: waiting costs no CPU time."""
    variants = {"read": fake.work("read", 0.1e6, waiting=40), "compute": fake.work("compute", 4e6)}
    result = compare(variants, budget_s=0.5)
    assert result.clock == "wall"
    assert result.verdict("compute") == NOISY
    assert "waits=True" in result.sentence("compute")
    result = compare(variants, budget_s=0.5, waits=True)
    assert result.verdict("compute") == SAME


def test_wall_time_of_long_calls_off_the_cpu_allows_no_verdict():
    times = np.ones((100, 2)) * [1.5e-3, 3e-3]
    assert Comparison(("a", "b"), times, off_cpu=0.31).verdict("b") == NOISY
    assert Comparison(("a", "b"), times, off_cpu=0.31).slower("b").holds is None
    assert Comparison(("a", "b"), times, off_cpu=0.31).same("b").holds is None
    assert Comparison(("a", "b"), times, off_cpu=0.29).verdict("b") == SLOWER
    assert Comparison(("a", "b"), times, off_cpu=0.9, clock="cpu").verdict("b") == SLOWER
    assert Comparison(("a", "b"), times / 10, off_cpu=0.9).verdict("b") == SLOWER


# --- what it leaves behind ------------------------------------------------------------------------


def test_it_measures_with_one_thread_and_without_garbage_collection(fake):
    seen = set()

    def look():
        fake.wall += 50_000
        seen.add((torch.get_num_threads(), gc.isenabled()))

    before = torch.get_num_threads()
    compare({"a": look, "b": look}, budget_s=0.05)
    assert seen == {(1, False)}
    assert (torch.get_num_threads(), gc.isenabled()) == (before, True)


def test_threads_and_garbage_collection_come_back_after_an_error(fake):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    gc.disable()
    try:
        with pytest.raises(ValueError, match="variant 'b' raised"):
            compare({"a": fake.work("a", 1e3), "b": lambda: 1 / 0})
        assert torch.get_num_threads() == 2
        assert not gc.isenabled()
    finally:
        gc.enable()
        torch.set_num_threads(before)


# --- wrong use ------------------------------------------------------------------------------------


def nothing() -> None:
    pass


@pytest.mark.parametrize(
    ("variants", "options", "error", "words"),
    [
        ([nothing, nothing], {}, TypeError, "must be a dict"),
        ({"a": nothing}, {}, ValueError, "at least two variants, got 1"),
        ({"a": nothing, "b": torch.ones(1)}, {}, TypeError, "variant 'b' is a Tensor, not a fun"),
        ({"a": nothing, "b": nothing}, {"budget_s": 0}, ValueError, "budget_s=0 must be more"),
        ({"a": nothing, "b": nothing}, {"margin": 0}, ValueError, "margin=0 must be more"),
        ({"a": nothing, "b": nothing}, {"confidence": 99}, ValueError, "between 0 and 1"),
        ({"a": nothing, "b": nothing}, {"precision": -1}, ValueError, "precision=-1"),
        ({"a": nothing, "b": nothing}, {"num_threads": 0}, ValueError, "num_threads=0"),
        ({"a": nothing, "b": nothing}, {"min_rounds": 14}, ValueError, "at least 15"),
        ({"a": nothing, "b": nothing}, {"clock": "sun"}, ValueError, "clock='sun' is not one of"),
        ({"a": nothing, "b": nothing}, {"device": "tpu"}, ValueError, "device='tpu' is not one of"),
    ],
)
def test_wrong_arguments_are_named(variants, options, error, words):
    with pytest.raises(error, match=words):
        compare(variants, **options)


def test_wrong_numbers_are_reported_together():
    with pytest.raises(ValueError, match=r"budget_s=-1 .*; margin=-2 "):
        compare({"a": nothing, "b": nothing}, budget_s=-1, margin=-2)


def test_a_device_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(machine, "accelerators", lambda: [])
    with pytest.raises(ValueError, match="'cuda' is not available"):
        compare({"a": nothing, "b": nothing}, device="cuda")


def test_an_error_in_a_variant_names_it_and_keeps_the_cause(fake):
    def wrong():
        raise RuntimeError("shapes cannot be multiplied")

    with pytest.raises(ValueError, match="'b' raised RuntimeError: shapes cannot") as caught:
        compare({"a": fake.work("a", 1e3), "b": wrong})
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_an_error_in_a_later_call_names_the_variant_too(fake):
    def wears_out():
        fake.wall += 50_000
        if len(fake.calls) > 100:
            raise RuntimeError("worn out")

    with pytest.raises(ValueError, match="'b' raised RuntimeError: worn out"):
        compare({"a": fake.work("a", 50e3), "b": wears_out})


def test_a_variant_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="no variant 'c'; this comparison has a, b"):
        rounds_of([1] * 20).ratio("c")


def test_two_comparisons_cannot_be_compared():
    first, second = rounds_of([1] * 20), rounds_of([2] * 20)
    with pytest.raises(ValueError, match="no variant"):
        first.ratio("b", second)
    with pytest.raises(TypeError):
        first < second  # noqa: B015


# --- the interval ---------------------------------------------------------------------------------

positive = st.floats(1e-3, 1e3)
samples = st.lists(positive, min_size=1, max_size=200)
quick = settings(max_examples=30, deadline=None)


@quick
@given(samples)
def test_the_median_lies_inside_the_interval(ratios):
    low, median, high = intervals.median_interval(np.array(ratios))
    assert 0 <= low <= median * (1 + 1e-9)
    assert median <= high * (1 + 1e-9)


@quick
@given(st.lists(positive, min_size=8, max_size=200))
def test_the_ends_are_two_of_the_ratios(ratios):
    low, _, high = intervals.median_interval(np.array(ratios))
    assert np.isclose(ratios, low).any()
    assert np.isclose(ratios, high).any()


@quick
@given(st.lists(positive, min_size=1, max_size=7))
def test_too_few_rounds_have_an_unbounded_interval(ratios):
    low, _, high = intervals.median_interval(np.array(ratios))
    assert (low, high) == (0, np.inf)


@quick
@given(st.lists(positive, min_size=15, max_size=100), st.floats(0.1, 10))
def test_a_ratio_scales_with_the_times(ratios, factor):
    once, scaled = rounds_of(ratios).ratio("b"), rounds_of(np.array(ratios) * factor).ratio("b")
    assert scaled == pytest.approx([value * factor for value in once])


@quick
@given(st.lists(positive, min_size=8, max_size=100))
def test_swapping_the_variants_inverts_the_ratio(ratios):
    result = rounds_of(ratios)
    assert result.ratio("a", "b") == pytest.approx(result.ratio("b", "a").inverse(), rel=1e-6)


def test_the_interval_covers_the_median_as_often_as_it_says():
    """Exact, so 99 % or more, whatever the distribution: here skewed with a long tail."""
    generator = np.random.default_rng(0)
    missed = 0
    for _ in range(400):
        ratios = np.exp(generator.exponential(size=25) ** 3)
        low, _, high = intervals.median_interval(ratios)
        missed += not low <= np.exp(np.log(2) ** 3) <= high
    assert missed <= 10  # 4 expected; more than 10 has a probability below 1 %


# --- the verdict ----------------------------------------------------------------------------------


@quick
@given(st.lists(st.floats(0.5, 2), min_size=1, max_size=100))
def test_a_verdict_follows_from_the_interval_and_the_margin(ratios):
    result = rounds_of(ratios)
    low, _, high = result.ratio("b")
    verdict = result.verdict("b")
    if verdict == FASTER:
        assert high < 1 / 1.03
    elif verdict == SLOWER:
        assert low > 1.03
    elif verdict == SAME:
        assert 1 / 1.03 <= low <= high <= 1.03
    else:
        assert verdict == NOISY
        assert len(ratios) < 15 or low <= 1.03 <= high or low <= 1 / 1.03 <= high


@quick
@given(st.lists(st.floats(0.5, 2), min_size=1, max_size=100), st.floats(0.01, 0.5))
def test_verdicts_and_findings_agree_from_both_sides(ratios, margin):
    result = rounds_of(ratios, margin=margin)
    opposite = {FASTER: SLOWER, SLOWER: FASTER, SAME: SAME, NOISY: NOISY}
    verdict = result.verdict("b")
    assert result.verdict("a") == opposite[verdict]
    assert (result.faster("b").verdict == verdicts.HOLDS) == (verdict == FASTER)
    assert (result.slower("b").verdict == verdicts.HOLDS) == (verdict == SLOWER)
    assert (result.same("b").verdict == verdicts.HOLDS) == (verdict == SAME)
    assert result.faster("b").verdict == result.slower("a").verdict


@pytest.mark.parametrize("count", range(1, 15))
def test_fewer_than_fifteen_rounds_allow_no_verdict(count):
    assert rounds_of([2.0] * count).verdict("b") == NOISY
    assert rounds_of([2.0] * count).slower("b").verdict == verdicts.NOISY


def test_a_wide_interval_is_not_no_difference():
    result = rounds_of([0.8, 1.25] * 20)
    assert result.ratio("b").median == pytest.approx(1)
    assert result.verdict("b") == NOISY
    assert result.same("b").holds is None


def test_a_difference_within_the_margin_is_not_claimed():
    result = rounds_of([1.02] * 100)
    assert result.verdict("b") == SAME
    assert result.slower("b").verdict == verdicts.FAILS
    assert rounds_of([1.02] * 100, margin=0.01).verdict("b") == SLOWER


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ([0.45] * 30, verdicts.HOLDS),
        ([0.55] * 30, verdicts.FAILS),
        ([0.45, 0.55] * 30, verdicts.NOISY),
        ([1.5] * 30, verdicts.FAILS),
    ],
)
def test_faster_by_a_factor_asks_the_whole_interval(ratios, verdict):
    finding = rounds_of(ratios).faster("b", by=2)
    assert finding.verdict == verdict
    assert finding.text.endswith("asked: at least 2x faster")
    assert finding.data["by"] == 2


def test_not_faster_can_be_sure_where_the_size_of_the_difference_is_not():
    result = rounds_of([0.99, 1.5] * 20)
    assert result.verdict("b") == NOISY
    finding = result.faster("b")
    assert finding.verdict == verdicts.FAILS
    assert finding.text.startswith("b is not faster than a (99 % interval 0.7–1.0")
    assert result.slower("b").verdict == verdicts.NOISY


def test_a_factor_below_one_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        rounds_of([1] * 20).faster("b", by=0.9)


def test_the_other_variant_is_the_default_where_it_is_clear():
    two = rounds_of([2.0] * 20)
    assert two.verdict("b") == two.verdict("b", than="a") == SLOWER
    assert two.verdict("a") == FASTER
    three = Comparison(("a", "b", "c"), np.ones((20, 3)) * [1e-5, 2e-5, 4e-5])
    assert three.ratio("c").median == pytest.approx(4)
    assert three.ratio("c", "b").median == pytest.approx(2)
    for wrong in (("a", None), ("b", "b")):
        with pytest.raises(ValueError, match="name a second variant"):
            three.verdict(*wrong)


# --- what is shown --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "shown"),
    [
        (Ratio(1.0812, 1.0913, 1.1034), ("1.08", "1.09", "1.10")),
        (Ratio(1.08, 1.25, 1.41), ("1.1", "1.2", "1.4")),
        (Ratio(1.32311, 1.32522, 1.32733), ("1.323", "1.325", "1.327")),
        (Ratio(9.2, 12.4, 15.7), ("9", "12", "16")),
        (Ratio(103.0, 127.0, 171.0), ("100", "130", "170")),
        (Ratio(1.5, 1.5, 1.5), ("1.500", "1.500", "1.500")),
        (Ratio(0.0, 1.52, np.inf), ("0.0", "1.5", "inf")),
    ],
)
def test_no_more_digits_than_the_interval_carries(ratio, shown):
    assert ratio.rounded() == shown


def test_the_sentences():
    spread = np.linspace(-0.01, 0.01, 100)
    assert rounds_of(0.9 + spread).sentence("b") == (
        "b is 1.111x faster than a (99 % interval 1.108–1.114, 100 rounds)"
    )
    assert rounds_of(1.5 + 5 * spread).sentence("b").startswith("b is 1.50x slower than a (99 % ")
    assert rounds_of(1 + spread).sentence("b").startswith("no practical difference between b and a")
    assert "1,500 rounds" in rounds_of([2] * 1500).sentence("b")
    assert rounds_of([0.5, 2] * 20).sentence("b").startswith("too noisy to tell whether b is fast")


def test_the_data_is_json_with_provenance_and_without_absolute_times(fake):
    result = compare({"a": fake.work("a", 50e3), "b": fake.work("b", 60e3)}, budget_s=0.1)
    data = json.loads(json.dumps(result.to_data()))
    assert data["names"] == ["a", "b"]
    assert data["results"]["b"]["verdict"] == SLOWER
    assert data["results"]["b"]["than"] == "a"
    assert {"clock", "off_cpu", "seed", "budget_s", "rounds", "why_stopped", "margin"} <= set(data)
    assert {"torch", "cpu", "usable_cores", "threads", "load"} <= set(data["provenance"])
    assert "seconds_per_call" not in data


def test_an_unbounded_interval_is_json_too():
    json.dumps(rounds_of([1.0] * 3).to_data(), allow_nan=False)


def test_it_is_shown_as_text_html_and_data():
    bundle = rounds_of([2.0] * 20)._repr_mimebundle_()
    assert bundle["text/plain"].startswith("b is 2.000x slower than a")
    assert "application/vnd.pitfalls.comparison+json" in bundle
    named = Comparison(("a", "<b>"), np.ones((20, 2)))
    assert "<b>" not in named.to_html()


def test_a_script_prints_the_sentences(capsys):
    assert rounds_of([2.0] * 20).show() is None
    assert capsys.readouterr().out == "b is 2.000x slower than a (99 % interval 2.000–2.000, 20 rounds)\n"


def test_a_notebook_draws_the_rounds_below_the_sentences(monkeypatch):
    shown = []
    monkeypatch.setattr("helpers.figures.ratio_strip", lambda comparison: shown.append(("strip", comparison)))
    monkeypatch.setattr("IPython.display.display", lambda result: shown.append(("text", result)))
    monkeypatch.setattr(display, "in_notebook", lambda: True)
    result = rounds_of([2.0] * 20)
    assert result.show() is None
    assert shown == [("text", result), ("strip", result)]


def test_the_time_of_one_call_can_be_asked_for():
    assert rounds_of([2.0] * 20).seconds_per_call("b") == pytest.approx(40e-6)


# --- other devices, as far as they can be checked without one -------------------------------------


class FakeEvent:
    """A CUDA event: `record` notes the time on the GPU."""

    gpu_ns = 0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.at = FakeEvent.gpu_ns

    def elapsed_time(self, end: FakeEvent) -> float:
        return (end.at - self.at) / MILLISECOND


@pytest.fixture
def gpu(fake, monkeypatch):
    """A GPU on which a kernel runs for as long as it says, while its launch takes the host 5 us."""
    log = []
    flush = types.SimpleNamespace(zero_=lambda: log.append("flush"))
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch, "empty", lambda *size, **options: flush)
    monkeypatch.setattr(machine, "accelerators", lambda: ["cuda"])
    monkeypatch.setattr(clocks, "accelerator_in_use", lambda: True)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: log.append("wait"))

    def kernel(name, nanoseconds):
        def call():
            log.append(name)
            fake.wall += 5_000
            FakeEvent.gpu_ns += nanoseconds

        return call

    return types.SimpleNamespace(kernel=kernel, log=log)


def test_cuda_is_timed_by_events_not_by_launches(gpu):
    variants = {"a": gpu.kernel("a", 20_000), "b": gpu.kernel("b", 30_000)}
    result = compare(variants, device="cuda", budget_s=0.05)
    assert result.clock == "cuda events"
    assert result.ratio("b").median == pytest.approx(1.5)
    assert result.details["calls_per_block"] == 5


def test_cuda_clears_the_cache_before_each_call_and_waits_once_a_batch(gpu):
    variants = {"a": gpu.kernel("a", 50_000), "b": gpu.kernel("b", 50_000)}
    compare(variants, device="cuda", budget_s=0.05)
    assert gpu.log[-5:] in (["flush", n, "flush", n, "wait"] for n in "ab")


def test_cuda_on_request_is_timed_by_the_wall_with_waiting(gpu):
    variants = {"a": gpu.kernel("a", 20_000), "b": gpu.kernel("b", 30_000)}
    result = compare(variants, device="cuda", clock="wall", budget_s=0.05)
    assert result.clock == "wall"
    assert gpu.log[-1] == "wait"


def test_the_device_is_found_by_where_the_variants_work(fake, monkeypatch):
    cuda = {"a": True, "b": True}
    monkeypatch.setattr(clocks, "holds_cuda", lambda results: cuda[results[0]])
    monkeypatch.setattr(clocks, "accelerator_in_use", lambda: False)
    variants = {"a": lambda: "a", "b": lambda: "b"}
    assert rounds.first_calls(variants)[1] == "cuda"
    cuda["a"] = False
    assert rounds.first_calls(variants)[1] == "cpu"
    monkeypatch.setattr(clocks, "accelerator_in_use", lambda: True)
    monkeypatch.setattr(torch.accelerator, "synchronize", nothing)
    assert rounds.first_calls(variants)[1] == "mixed"
    assert rounds.first_calls(variants, "cpu")[1] == "cpu"


def test_a_mix_of_devices_is_timed_by_the_wall_with_waiting(fake, monkeypatch):
    waited = []
    monkeypatch.setattr(clocks, "accelerator_in_use", lambda: True)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: waited.append(1))
    variants = {"a": fake.work("a", 5e6), "b": fake.work("b", 5e6, waiting=3)}
    result = compare(variants, budget_s=0.2)
    assert (result.clock, result.details["device"]) == ("wall", "mixed")
    assert waited
    assert result.verdict("b") == SLOWER  # waiting for a device is no sign of noise


# --- once for real --------------------------------------------------------------------------------


def test_real_clocks_give_a_comparison():
    x = torch.ones(16)
    result = compare({"once": lambda: x + 1, "twice": lambda: x + 1 + 1}, budget_s=0.05)
    assert result.rounds >= 15
    assert result.why_stopped in ("precise enough", "budget spent", "hard cap reached")
    assert result.times.shape == (result.rounds, 2) and (result.times > 0).all()
    low, median, high = result.ratio("twice")
    assert 0 < low <= median <= high < math.inf
