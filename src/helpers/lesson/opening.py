"""How a chapter opens and closes: what runs live here, and what it left changed."""

from __future__ import annotations

from dataclasses import dataclass

from ..measure import machine, state
from . import predictions
from .chapters import BLOCKED, IN_PART, LIVE, STAND_IN, Chapter, chapter

_MEMORY_NEEDED = 1_500_000_000


@dataclass(frozen=True)
class Readiness:
    """What one chapter can do on this machine."""

    chapter: Chapter
    state: str
    notes: tuple[str, ...]


def readiness(entry: Chapter) -> Readiness:
    """Say how much of a chapter runs live here, and what to install for the rest; runs nothing of it."""
    notes, level = [], LIVE
    problem = machine.unsupported()
    if problem:
        return Readiness(entry, BLOCKED, (problem,))
    missing = [name for name in entry.packages if not _installed(name)]
    if missing:
        notes.append(f"a section is left out: pip install {' '.join(missing)}")
    accelerators = machine.accelerators()
    if entry.gpu == STAND_IN and not accelerators:
        from ..devices import second_device

        device = second_device()
        level = STAND_IN if device else IN_PART
        without = f"no second device ({device.reason}): what needs one is not testable here"
        notes.append(device.reason if device else without)
    elif "cuda" not in accelerators:
        notes.append("no CUDA device: a cell that needs one says so")
    if entry.compiler and machine.cxx_compiler() is None:
        notes.append("no C++ compiler: cells that generate machine code are skipped (install g++ or clang)")
    if machine.memory_limit() < _MEMORY_NEEDED:
        notes.append(f"only {machine.memory_limit() / 1e9:.1f} GB of memory: close other programs")
    if machine.usable_cores() < 1:
        notes.append(f"a CPU limit of {machine.usable_cores():.2f} cores: measurements will be noisy")
    return Readiness(entry, level, tuple(notes))


def _installed(package: str) -> bool:
    from importlib import metadata

    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


_opened: dict[str, dict[str, object]] = {}


def preflight(
    chapter_name: str | int,
    budget_s: float = 2.0,
    device: str = "auto",
    record: bool = False,
    fast: bool = False,
) -> None:
    """Open a chapter: take its parameters as defaults for the measurements, and print what runs live here.

    Args:
        budget_s: seconds that one comparison may take.
        device: "auto", "cpu" or "cuda".
        record: write results to recordings/, for readers without this machine.
        fast: small budgets, for a quick look and for CI.
    """
    entry = chapter(chapter_name)
    machine.settings.budget_s, machine.settings.device = budget_s, device
    machine.settings.record, machine.settings.fast = record, fast
    predictions.forget()
    _opened["state"] = state.snapshot()
    ready = readiness(entry)
    print(f"Chapter {entry.number}, {entry.title}: {ready.state} on this machine.")
    for note in ready.notes:
        print(f"  {note}")


def wrap_up() -> None:
    """Close a chapter: score the predictions, and report and undo global state that it left changed."""
    predictions.calibration()
    before = _opened.pop("state", None)
    if before is None:
        return
    leaked = state.leaks(before)
    state.restore(before)
    for leak in leaked:
        print(f"Left changed, now put back: {leak}")
    if not leaked:
        print("Global state: as it was found.")
