"""Is one way faster than another? `compare` measures them side by side and says what that allows.

Two sequential timings of *identical* code differ by 10-20 % on an ordinary machine: a neighbour
wakes up, the clock frequency drifts, memory is laid out differently. So nothing here times one
variant and then the other. A comparison is made of rounds; a round runs every variant once, in
random order, and the unit of evidence is the *ratio within a round*. The median of the ratios
comes with an exact interval, and there is a margin below which no difference is claimed. When the
interval is too wide, the answer is "too noisy to tell".

The contract:
- variants do the same number of calls per block, about 0.1 ms of work;
- measuring ends when the interval is narrow enough or the budget is spent, never because a
  difference showed;
- times of one call are never a claim; only ratios within one comparison are;
- the number of threads and the garbage collector are as before when `compare` returns.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import numpy as np

from . import machine
from .comparison import LEAST_ROUNDS, NOISY, Comparison
from .intervals import median_interval
from .rounds import Plan, first_calls, measure, quiet

CLOCKS = ("auto", "cpu", "wall")
DEVICES = ("auto", "cpu", "cuda", "mps", "xpu")


def compare(
    variants: Mapping[str, Callable[[], object]],
    *,
    budget_s: float | None = None,
    margin: float = 0.03,
    confidence: float = 0.99,
    precision: float = 0.02,
    clock: str = "auto",
    device: str = "auto",
    waits: bool = False,
    num_threads: int = 1,
    min_rounds: int = LEAST_ROUNDS,
    seed: int = 0,
    retry_noisy: bool | None = None,
) -> Comparison:
    """Measure variants of the same work side by side.

    Args:
        variants: name -> function without arguments; the first is the baseline of the others.
        budget_s: seconds for all rounds together; `machine.settings` has the default. First calls
            come on top. Where a budget gives too few rounds, up to three budgets are spent.
        margin: relative difference below which nothing is claimed.
        confidence: of the interval around each ratio.
        precision: relative width of the intervals at which measuring may end early.
        clock: "auto", "cpu" (time of the calling thread) or "wall".
        device: where the variants work: "auto" finds out; "cpu", "cuda", "mps" or "xpu" fixes it.
        waits: the variants sleep, read files or wait for other threads: wall time, waiting
            included.
        num_threads: threads of one PyTorch operation while measuring.
        min_rounds: at least 15.
        seed: of the order of the variants within the rounds.
        retry_noisy: measure again with 2 and 4 times the budget before answering "too noisy to
            tell"; by default where the environment variable PITFALLS_RETRY_NOISY is 1, as in CI.

    Raises:
        TypeError: a variant cannot be called.
        ValueError: fewer than two variants, an argument out of range, or a variant that raised an
            error; the message names the variant.
    """
    budget_s = machine.settings.budget() if budget_s is None else budget_s
    if retry_noisy is None:
        retry_noisy = os.environ.get("PITFALLS_RETRY_NOISY", "0") not in ("", "0")
    _check_variants(variants)
    _check_numbers(budget_s, margin, confidence, precision, num_threads, min_rounds)
    _check_choices(clock, device)
    import scipy.stats  # noqa: F401  (loading it takes a second, which the budget should not pay)

    provenance = machine.provenance() | {"threads": num_threads}

    def enough(times: np.ndarray) -> bool:
        intervals = [median_interval(row / times[:, 0], confidence) for row in times.T[1:]]
        return all(high < low * (1 + precision) for low, _, high in intervals)

    with quiet(num_threads):
        first_call_s, device = first_calls(variants, device)
        # Each attempt stands alone: adding rounds until a verdict appears would favour a verdict.
        for factor in (1, 2, 4) if retry_noisy else (1,):
            plan = Plan(budget_s * factor, clock, device, waits, num_threads, min_rounds, seed)
            measured = measure(variants, plan, enough)
            result = Comparison(
                names=tuple(variants),
                times=measured.times,
                clock=measured.clock,
                why_stopped=measured.why_stopped,
                off_cpu=measured.off_cpu,
                waits=waits or device != "cpu",
                first_call_s=first_call_s,
                margin=margin,
                confidence=confidence,
                details={
                    "budget_s": plan.budget_s,
                    "calls_per_block": measured.calls_per_block,
                    "device": device,
                    "seed": seed,
                },
                provenance=provenance,
            )
            if all(result.verdict(name) != NOISY for name in result.names[1:]):
                break
    return result


def _check_variants(variants: Mapping[str, Callable[[], object]]) -> None:
    if not isinstance(variants, Mapping):
        raise TypeError('variants must be a dict: {"name": function, "other name": function}')
    if len(variants) < 2:
        raise ValueError(f"a comparison needs at least two variants, got {len(variants)}")
    for name, call in variants.items():
        if not callable(call):
            raise TypeError(f"variant {name!r} is a {type(call).__name__}, not a function: write `lambda: ...`")


def _check_numbers(
    budget_s: float,
    margin: float,
    confidence: float,
    precision: float,
    num_threads: int,
    min_rounds: int,
) -> None:
    """Refuse arguments out of range, all of them in one message."""
    problems = {
        f"budget_s={budget_s} must be more than 0 seconds": budget_s > 0,
        f"margin={margin} must be more than 0: identical code differs, too": margin > 0,
        f"confidence={confidence} must lie between 0 and 1": 0 < confidence < 1,
        f"precision={precision} must be more than 0": precision > 0,
        f"num_threads={num_threads} must be at least 1": num_threads >= 1,
        f"min_rounds={min_rounds} must be at least {LEAST_ROUNDS}": min_rounds >= LEAST_ROUNDS,
    }
    if not all(problems.values()):
        raise ValueError("; ".join(text for text, fine in problems.items() if not fine))


def _check_choices(clock: str, device: str) -> None:
    if clock not in CLOCKS:
        raise ValueError(f"clock={clock!r} is not one of {', '.join(CLOCKS)}")
    if device not in DEVICES:
        raise ValueError(f"device={device!r} is not one of {', '.join(DEVICES)}")
    if device not in ("auto", "cpu", *machine.accelerators()):
        raise ValueError(f"device={device!r} is not available on this machine")
