"""Does `compare` keep its promises, and what do common ways of timing answer on the same code?

Three ways judge the same pairs of functions, quiet and beside a busy neighbour:

- `compare`, at its default margin;
- `torch.utils.benchmark`, one function after the other: a difference is claimed where the
  interquartile ranges do not overlap and the medians are more than 5 % apart;
- a hand-written loop, one function after the other: a difference is claimed where the mean times
  are more than 5 % apart.

A pair is either the same function twice, where any claim is false, or ten repetitions of an
operation against eleven, a true difference of 10 %.

    python benchmarks/compare.py                 the full table, about 12 minutes
    python benchmarks/compare.py --quick         a smoke test of this program, half a minute
    python benchmarks/compare.py --json FILE     the table as data as well
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch.utils import benchmark

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from helpers.measure import comparison, machine, rounds, timing

Call = Callable[[], None]
DIFFERENCE = 1.05  # below this factor, the sequential ways claim nothing
BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    pass"


def main() -> None:
    """Measure everything and print it."""
    options = parse_arguments()
    start = time.perf_counter()
    provenance = machine.provenance()
    print(f"{provenance['cpu']}, {provenance['usable_cores']:g} cores, load {provenance['load']}")
    print(f"{'operation':<20}{'state':<8}{'way':<24}{'false verdicts':<17}10 % found")
    rows = []
    with rounds.quiet(num_threads=1):
        for state, surroundings in {"quiet": contextlib.nullcontext, "noisy": neighbour}.items():
            with surroundings():
                for operation, base in operations().items():
                    rows += judge(operation, base, state, options)
        overhead = measure_overhead(options.budget)
    found = summary(rows, overhead)
    print("\n".join(found))
    minutes = (time.perf_counter() - start) / 60
    print(f"{minutes:.1f} minutes, load now {machine.provenance()['load']}")
    if options.json:
        record = {
            "provenance": provenance,
            "options": {name: str(value) for name, value in vars(options).items()},
            "rows": rows,
            "overhead": overhead,
            "summary": found,
        }
        options.json.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def parse_arguments() -> argparse.Namespace:
    """Read the command line; `--quick` only changes defaults."""
    parser = argparse.ArgumentParser(description="False verdicts, power and overhead of compare.")
    parser.add_argument("--quick", action="store_true", help="a smoke test of half a minute")
    parser.add_argument("--json", type=Path, help="write the results to this file as well")
    parser.add_argument("--same", type=int, help="pairs of identical functions per row [50]")
    parser.add_argument("--different", type=int, help="pairs of different functions per row [12]")
    parser.add_argument("--budget", type=float, help="seconds per identical pair [0.3]")
    parser.add_argument("--power-budget", type=float, help="seconds per different pair [2]")
    options = parser.parse_args()
    usual = {"same": 50, "different": 12, "budget": 0.3, "power_budget": 2.0}
    quick = {"same": 3, "different": 2, "budget": 0.1, "power_budget": 0.3}
    for name, value in (quick if options.quick else usual).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


def operations() -> dict[str, Call]:
    """Give operations of which ten take about 30 us, 2 ms and 12 ms on a current core."""
    small, weight = torch.randn(16, 64), torch.randn(64, 64)
    image, kernel = torch.randn(1, 32, 32, 32), torch.randn(32, 32, 3, 3)
    matrix = torch.randn(384, 384)
    return {
        "linear": lambda: torch.nn.functional.linear(small, weight),
        "conv": lambda: torch.conv2d(image, kernel, padding=1),
        "matmul": lambda: matrix @ matrix,
    }


def repeated(base: Call, times: int) -> Call:
    """Do an operation several times in a call: eleven times is 10 % more work than ten times."""

    def call() -> None:
        for _ in range(times):
            base()

    return call


@contextlib.contextmanager
def neighbour() -> Iterator[None]:
    """Keep our core busy from another process, which ends with the block or with this program.

    Where affinity can be set, both processes share one core; elsewhere the system places them.
    """
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    if cores:
        os.sched_setaffinity(0, {min(cores)})
    other = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        time.sleep(0.5)
        yield
    finally:
        other.kill()
        other.wait()
        if cores:
            os.sched_setaffinity(0, cores)


def by_compare(a: Call, b: Call, seconds: float) -> str:
    """Judge b against a with the course's `compare`."""
    return timing.compare({"a": a, "b": b}, budget_s=seconds).verdict("b")


def by_torch_benchmark(a: Call, b: Call, seconds: float) -> str:
    """Judge b against a with `torch.utils.benchmark`, half of the seconds each."""
    first, second = (
        benchmark.Timer("call()", globals={"call": call}).blocked_autorange(min_run_time=seconds / 2) for call in (a, b)
    )
    (low, _, high), (other_low, _, other_high) = quartiles(first.times), quartiles(second.times)
    disjoint = other_high < low or high < other_low
    return claim(second.median / first.median) if disjoint else comparison.NOISY


def by_loop(a: Call, b: Call, seconds: float) -> str:
    """Judge b against a by the mean of many calls after a warm-up, half of the seconds each."""
    first = loop_time(a, seconds / 2)
    return claim(loop_time(b, seconds / 2) / first)


def loop_time(call: Call, seconds: float) -> float:
    """Give the mean seconds per call of a loop that lasts about so long."""
    for _ in range(3):
        call()
    start = time.perf_counter()
    call()
    calls = max(1, int(seconds / (time.perf_counter() - start)))
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def claim(ratio: float) -> str:
    """Turn a ratio of times into what its author would say."""
    if ratio > DIFFERENCE:
        return comparison.SLOWER
    return comparison.FASTER if ratio < 1 / DIFFERENCE else comparison.SAME


def quartiles(times: list[float]) -> list[float]:
    """Give the quartiles; a single time is its own quartiles."""
    return statistics.quantiles(times) if len(times) > 1 else times * 3


WAYS = {
    "compare": by_compare,
    "torch.utils.benchmark": by_torch_benchmark,
    "hand-written loop": by_loop,
}


def judge(operation: str, base: Call, state: str, options: argparse.Namespace) -> list[dict]:
    """Let every way judge equal and unequal pairs of one operation; print and give one row each."""
    ten, also_ten, eleven = repeated(base, 10), repeated(base, 10), repeated(base, 11)
    microseconds = min(loop_time(ten, 0.05) for _ in range(3)) * 1e6
    rows = []
    for way, method in WAYS.items():
        same = Counter(method(ten, also_ten, options.budget) for _ in range(options.same))
        other = Counter(method(ten, eleven, options.power_budget) for _ in range(options.different))
        row = {
            "operation": operation,
            "microseconds": round(microseconds, 1),
            "state": state,
            "way": way,
            "same": options.same,
            "false": same[comparison.FASTER] + same[comparison.SLOWER],
            "same_noisy": same[comparison.NOISY],
            "different": options.different,
            "found": other[comparison.SLOWER],
            "reversed": other[comparison.FASTER],
        }
        print(
            f"{operation + f', {microseconds:,.0f} us':<20}{state:<8}{way:<24}"
            f"{row['false']:>3} of {row['same']:<10}{row['found']:>3} of {row['different']}",
            flush=True,
        )
        rows.append(row)
    return rows


def measure_overhead(seconds: float, repetitions: int = 11) -> float:
    """Give how much longer a call of 10 us takes inside `compare` than in a bare loop: 0.02 is 2 %.

    The two are measured in turns, and the median over the turns counts.
    """
    call = repeated(operations()["linear"], 3)
    ratios = []
    for _ in range(repetitions):
        before = bare_time(call, seconds / 2)
        inside = timing.compare({"a": call, "b": call}, budget_s=seconds, clock="wall")
        bare = (before + bare_time(call, seconds / 2)) / 2
        ratios.append(inside.seconds_per_call("a") / bare)
    return statistics.median(ratios) - 1


def bare_time(call: Call, seconds: float, calls: int = 10) -> float:
    """Give the seconds per call in a bare loop: the median over stretches of ten calls.

    `compare` reports a median, too; beside a busy neighbour a mean would measure the neighbour.
    """
    stretches = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        start = time.perf_counter()
        for _ in range(calls):
            call()
        stretches.append((time.perf_counter() - start) / calls)
    return statistics.median(stretches)


def summary(rows: list[dict], overhead: float) -> list[str]:
    """Hold the sums against what the course promises."""
    from scipy import stats

    lines = []
    for way in WAYS:
        ours = [row for row in rows if row["way"] == way]
        false, same = sum(row["false"] for row in ours), sum(row["same"] for row in ours)
        bound = stats.binomtest(false, same).proportion_ci(0.95).high
        found, different = sum(row["found"] for row in ours), sum(row["different"] for row in ours)
        lines.append(
            f"{way}: {false} false verdicts of {same} (95 % sure: below {bound * 100:.1f} %), "
            f"10 % found {found} of {different} times"
        )
    short = [row for row in rows if row["way"] == "compare" and row["operation"] != "matmul"]
    share = sum(row["found"] for row in short) / sum(row["different"] for row in short)
    false = sum(row["false"] for row in rows if row["way"] == "compare")
    lines.append(f"target, no false verdict: {_met(false == 0)}")
    lines.append(f"target, 10 % found in 95 % of linear and conv: {share * 100:.0f} %, {_met(share >= 0.95)}")
    lines.append(f"target, overhead at 10 us up to 5 %: {overhead * 100:.1f} %, {_met(overhead <= 0.05)}")
    return lines


def _met(condition: bool) -> str:
    return "met" if condition else "MISSED"


if __name__ == "__main__":
    main()
