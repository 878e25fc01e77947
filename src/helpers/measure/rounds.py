"""Run variants in rounds and take their times: what `timing` measures with, without statistics.

A round runs one short block of every variant, in random order, so that whatever disturbs the
machine disturbs all of them alike. A block is a number of calls in a row, the same number for
every variant, because the cost of reading a clock and of switching between variants must weigh on
all of them equally.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from . import clocks
from .clocks import CPU, EVENTS, WALL, Block, Stopwatch

BLOCK_NS = 100_000  # long against reading a clock, short against a neighbour's turn
LONGEST_BLOCK_NS = 5_000_000  # of the slowest variant, where variants differ a lot
HARD_CAP = 3.0  # budgets; spent only where one budget gives too few rounds
WARM_UP_SHARE = 0.02  # of the budget, for each variant
CHECK_SHARE = 0.25  # of the budget, between two looks at the precision
CPU_CLOCK_FROM_NS = 1_000_000  # shorter calls are as quiet on the wall clock
BUSY_SHARE = 0.2  # a variant that never runs for more of a call than this is waiting
Variants = Mapping[str, Callable[[], object]]


@dataclass(frozen=True)
class Plan:
    """How to measure; `timing.compare` explains each field."""

    budget_s: float
    clock: str
    device: str
    waits: bool
    num_threads: int
    min_rounds: int
    seed: int


class Rounds(NamedTuple):
    """What was measured: seconds per call, shape [rounds, variants], and how it came about."""

    times: np.ndarray
    clock: str
    calls_per_block: int
    off_cpu: float
    why_stopped: str


@contextlib.contextmanager
def quiet(num_threads: int) -> Iterator[None]:
    """Fix PyTorch's threads and keep the garbage collector out of the rounds; undo both after."""
    threads, collecting = torch.get_num_threads(), gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        torch.set_num_threads(num_threads)
        yield
    finally:
        torch.set_num_threads(threads)
        if collecting:
            gc.enable()


def first_calls(variants: Variants, device: str = "auto") -> tuple[dict[str, float], str]:
    """Call every variant once; give the seconds each took, and the device they work on.

    The first call pays for what later calls find ready: caches, memory, compilation. The device is
    the one asked for, or for "auto": "cuda" if every variant used CUDA, "mixed" if an accelerator
    is in use but not by all of them, else "cpu".

    Raises:
        ValueError: a variant raised an error; the message names both.
    """
    seconds, on_cuda = {}, []
    for name, call in variants.items():
        results: list[object] = []
        before = clocks.cuda_allocations()
        block = Stopwatch("mixed").time(name, functools.partial(_call_into, results, call))
        seconds[name] = block.wall / 1e9
        on_cuda.append(clocks.holds_cuda(results) or clocks.cuda_allocations() != before)
    if device != "auto":
        return seconds, device
    if all(on_cuda):
        return seconds, "cuda"
    return seconds, "mixed" if clocks.accelerator_in_use() else "cpu"


def _call_into(results: list[object], call: Callable[[], object]) -> None:
    results.append(call())


def measure(variants: Variants, plan: Plan, enough: Callable[[np.ndarray], bool]) -> Rounds:
    """Warm up, then measure rounds until they are precise enough or the budget is spent.

    Args:
        enough: is asked about the times so far, shape [rounds, variants], four times in a budget.
    """
    stopwatch = Stopwatch(plan.device, events=plan.device == "cuda" and plan.clock == "auto")
    start = clocks.wall_ns()
    warm = [_warm_up(stopwatch, name, call, plan) for name, call in variants.items()]
    clock = _choose_clock(plan, warm)
    unit = EVENTS if clock == EVENTS else WALL
    best = [min(block.on(unit) for block in blocks) for blocks in warm]
    calls = max(1, int(min(BLOCK_NS / min(best), LONGEST_BLOCK_NS / max(best))))
    rounds: list[list[Block]] = []
    why = None
    looks = 1
    order = random.Random(plan.seed)
    while why is None:
        rounds.append(_run_round(stopwatch, variants, calls, order))
        spent = (clocks.wall_ns() - start) / (plan.budget_s * 1e9)
        if len(rounds) < plan.min_rounds:
            why = "hard cap reached" if spent >= HARD_CAP else None
        elif spent >= 1:
            why = "budget spent"
        elif spent >= looks * CHECK_SHARE:
            looks = int(spent / CHECK_SHARE) + 1
            why = "precise enough" if enough(_times(rounds, clock, calls)) else None
    wall = sum(block.wall for blocks in rounds for block in blocks)
    cpu = sum(block.cpu for blocks in rounds for block in blocks)
    off_cpu = min(1.0, max(0.0, 1 - cpu / max(1.0, wall)))
    return Rounds(_times(rounds, clock, calls), clock, calls, off_cpu, why)


def _run_round(stopwatch: Stopwatch, variants: Variants, calls: int, order: random.Random) -> list[Block]:
    """Time one block of every variant, in random order; the result has their given order."""
    names = list(variants)
    order.shuffle(names)
    blocks = {name: stopwatch.time(name, variants[name], calls) for name in names}
    return [blocks[name] for name in variants]


def _warm_up(stopwatch: Stopwatch, name: str, call: Callable[[], object], plan: Plan) -> list[Block]:
    """Call a variant until it is in its stride; at least once more after its first call."""
    until = clocks.wall_ns() + plan.budget_s * 1e9 * WARM_UP_SHARE
    blocks = [stopwatch.time(name, call)]
    while clocks.wall_ns() < until:
        blocks.append(stopwatch.time(name, call))
    return blocks


def _choose_clock(plan: Plan, warm: list[list[Block]]) -> str:
    """Pick the clock that disturbs least and leaves nothing out."""
    if plan.clock != "auto":
        return plan.clock
    if plan.device == "cuda":
        return EVENTS
    # The CPU clock misses waiting and other threads, and ticks only every 16 ms on Windows.
    if plan.device != "cpu" or plan.num_threads > 1 or plan.waits or os.name != "posix":
        return WALL
    slowest = max(min(block.wall for block in blocks) for blocks in warm)
    busy = all(max(b.cpu / max(1.0, b.wall) for b in blocks) > BUSY_SHARE for blocks in warm)
    return CPU if slowest >= CPU_CLOCK_FROM_NS and busy else WALL


def _times(rounds: list[list[Block]], clock: str, calls: int) -> np.ndarray:
    return np.array([[block.on(clock) for block in blocks] for blocks in rounds]) / calls / 1e9
