"""Limits for code that may not end: time and printed text."""

from __future__ import annotations

import ctypes
import io
import threading
import time
from collections.abc import Callable

MAX_OUTPUT = 64 << 10

# Limits are read through these names, so that a test can put a fake clock in their place.
cpu_clock = time.process_time
wall_clock = time.monotonic


class TimeLimit(BaseException):
    """Raised inside learner code that ran too long; not an Exception, so that `except Exception` lets it pass."""


class Capped(io.TextIOBase):
    """A text stream that keeps the first `MAX_OUTPUT` characters."""

    def __init__(self) -> None:
        self.kept: list[str] = []
        self.written = 0

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        room = MAX_OUTPUT - self.written
        if room > 0:
            self.kept.append(text[:room])
        self.written += len(text)
        return len(text)

    def text(self) -> str:
        cut = f"\n[{self.written - MAX_OUTPUT:,} more characters cut]" if self.written > MAX_OUTPUT else ""
        return "".join(self.kept) + cut


def run_limited(function: Callable[[], bytes], cpu_s: float, wall_s: float) -> bytes | None:
    """Run a function in a thread of its own; None if it did not end within the limits.

    Args:
        cpu_s: processor seconds this process may spend meanwhile.
        wall_s: seconds that may pass, for code that waits.

    A thread that will not stop is left behind as a daemon: the kernel stays usable, its core stays busy.
    """
    results: list[bytes] = []
    thread = threading.Thread(target=lambda: results.append(function()), daemon=True)
    cpu_end, wall_end = cpu_clock() + cpu_s, wall_clock() + wall_s
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.1)
            if cpu_clock() > cpu_end or wall_clock() > wall_end:
                break
    finally:
        stop = wall_clock() + 3
        while thread.is_alive() and wall_clock() < stop:
            _interrupt(thread)
            thread.join(0.1)
    return results[0] if results else None


def _interrupt(thread: threading.Thread) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(TimeLimit))
