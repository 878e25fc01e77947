"""Results recorded on machines the reader does not have, shown as what they are: recorded.

    save("conv-autotuning", measure, measure())      # on the machine that has the hardware
    load("conv-autotuning", measure)                 # everywhere else

A recording belongs to the source of the function that measured it: once that changes, it is stale and
no longer given out. It never counts as a pass: `Recording.finding` is always "not testable here".
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import re
import textwrap
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..files import package_folder, write_atomically
from ..measure import machine
from ..measure.verdicts import Finding, untested


@dataclass(frozen=True)
class Recording:
    """One result that was measured elsewhere.

    Args:
        name: what was measured.
        machine, provenance: the machine's name, and `machine.provenance()` as it was there.
        result: what the measurement gave; JSON data.
    """

    name: str
    machine: str
    provenance: dict
    result: object

    def describe(self) -> str:
        """Say in one sentence that this was recorded, where, with which torch, and when."""
        torch_version, date = (self.provenance.get(key, "unknown") for key in ("torch", "date"))
        return f"Recorded on {self.machine} with torch {torch_version} at {date}, not run here."

    __str__ = describe

    def finding(self, text: str) -> Finding:
        """Make `text`, which reads the result in a sentence, a finding that claims nothing here."""
        return untested(f"{text} {self.describe()}", recorded=self.result, on=self.provenance)


def folder() -> Path:
    """Where recordings lie: PITFALLS_RECORDINGS, by default `recordings/` of the checkout."""
    chosen = os.environ.get("PITFALLS_RECORDINGS")
    return Path(chosen) if chosen else package_folder().parents[1] / "recordings"


def source_hash(measure: Callable) -> str:
    """Hash the source of a function, wherever it is indented.

    Raises:
        ValueError: its source is not at hand, as for a function typed at a prompt.
    """
    try:
        source = textwrap.dedent(inspect.getsource(measure)).strip()
    except (OSError, TypeError) as error:
        raise ValueError(f"no source for {measure!r}: define it in a file or a cell") from error
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def save(name: str, measure: Callable, result: object, on: str | None = None) -> Recording:
    """Record what `measure` gave on this machine, in place of an earlier recording of that name.

    Args:
        on: the name of this machine; by default that of its GPU or processor.

    Raises:
        TypeError: `result` is not JSON data.
        ValueError: the source of `measure` is not at hand.
    """
    provenance = machine.provenance()
    named = on or str(provenance.get("gpu") or provenance.get("cpu") or "unknown")
    on = re.sub(r"[^a-z0-9]+", "-", named.lower()).strip("-") or "unknown"
    path = folder() / f"{on}.json"
    entry = {"source": source_hash(measure), "provenance": provenance, "result": result}
    write_atomically(path, json.dumps(_read(path) | {name: entry}, indent=1, sort_keys=True) + "\n")
    return Recording(name, on, provenance, result)


def load(name: str, measure: Callable) -> list[Recording]:
    """Give the recordings of this name that `measure`, as it stands now, has made: one a machine."""
    found, wanted = _entries(name), source_hash(measure)
    fresh = [(on, entry) for on, entry in found.items() if entry["source"] == wanted]
    return [Recording(name, on, entry["provenance"], entry["result"]) for on, entry in fresh]


def stale(name: str, measure: Callable) -> list[str]:
    """Name the machines whose recording of this name comes from another version of `measure`."""
    wanted = source_hash(measure)
    return [on for on, entry in _entries(name).items() if entry["source"] != wanted]


def _entries(name: str) -> dict[str, dict]:
    files = {path.stem: _read(path) for path in sorted(folder().glob("*.json"))}
    return {on: entries[name] for on, entries in files.items() if name in entries}


def _read(path: Path) -> dict[str, dict]:
    """Read one machine's file; a corrupt one is set aside, with a warning, and counts as empty."""
    try:
        entries = json.loads(path.read_text("utf-8"))
        for entry in entries.values():
            entry["source"], entry["provenance"].keys(), entry["result"]
    except FileNotFoundError:
        return {}
    except (ValueError, AttributeError, KeyError, TypeError):
        aside = path.with_suffix(".json.corrupt")
        os.replace(path, aside)
        warnings.warn(f"{path} is no file of recordings; it is now {aside.name}", stacklevel=4)
        return {}
    return entries
