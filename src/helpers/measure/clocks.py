"""The clocks of a measurement: how long a block of calls took, by wall, processor and CUDA events.

Work on an accelerator goes on after a call has returned, so a block ends only when it has been waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import torch

FLUSH_BYTES = 256 * 2**20  # more than the L2 cache of a GPU holds
WALL, CPU, EVENTS = "wall", "cpu", "cuda events"
# Clocks are read through these names, so that a test can put a fake clock in their place.
wall_ns = time.perf_counter_ns
cpu_ns = time.thread_time_ns


class Block(NamedTuple):
    """The nanoseconds that one block of calls took, by each clock."""

    wall: float
    cpu: float
    events: float = 0.0

    def on(self, clock: str) -> float:
        """Give the time by one clock, at least a nanosecond, so that a ratio always exists."""
        return max(1.0, {WALL: self.wall, CPU: self.cpu, EVENTS: self.events}[clock])


class Stopwatch:
    """Times blocks of calls on one device.

    Args:
        device: "cpu", "cuda", "mps", "xpu" or "mixed"; work on any but the first is waited for.
        events: take the time on the GPU with CUDA events as well.
    """

    def __init__(self, device: str, events: bool = False) -> None:
        self.finish = _do_nothing if device == "cpu" else _synchronize
        self.flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda") if events else None

    def time(self, name: str, call: Callable[[], object], calls: int = 1) -> Block:
        """Time some calls of a variant in a row.

        Raises:
            ValueError: the variant raised an error; the message names both.
        """
        try:
            return self._on_host(call, calls) if self.flush is None else self._on_cuda(call, calls, self.flush)
        except Exception as error:
            kind = type(error).__name__
            raise ValueError(f"variant {name!r} raised {kind}: {error}") from error

    def _on_host(self, call: Callable[[], object], calls: int) -> Block:
        self.finish()
        cpu, wall = cpu_ns(), wall_ns()
        for _ in range(calls):
            call()
        self.finish()
        wall = wall_ns() - wall
        return Block(wall, cpu_ns() - cpu)

    def _on_cuda(self, call: Callable[[], object], calls: int, flush: torch.Tensor) -> Block:
        pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(calls)]
        cpu, wall = cpu_ns(), wall_ns()
        for start, end in pairs:
            # A call finds the cache cold, as in a real program. Clearing it before the start event
            # keeps it out of the time, and gives the host a lead, so that launches are not what is
            # measured.
            flush.zero_()
            start.record()
            call()
            end.record()
        self.finish()
        wall = wall_ns() - wall
        milliseconds = sum(start.elapsed_time(end) for start, end in pairs)
        return Block(wall, cpu_ns() - cpu, milliseconds * 1e6)


def _do_nothing() -> None:
    pass


def _synchronize() -> None:
    if accelerator_in_use():
        torch.accelerator.synchronize()


def accelerator_in_use() -> bool:
    """True once this process uses a GPU, so that a call may return before its work is done."""
    if torch.cuda.is_initialized() or torch.xpu.is_initialized():
        return True
    return torch.backends.mps.is_available() and torch.mps.current_allocated_memory() > 0


def cuda_allocations() -> int:
    """Count the CUDA allocations so far: they betray a variant that returns no CUDA tensor."""
    if not torch.cuda.is_initialized():
        return 0
    return torch.cuda.memory_stats().get("allocation.all.allocated", 0)


def holds_cuda(results: list[object]) -> bool:
    leaves = torch.utils._pytree.tree_leaves(results)
    return any(isinstance(leaf, torch.Tensor) and leaf.is_cuda for leaf in leaves)
