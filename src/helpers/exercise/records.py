"""A learner's progress: one small file an exercise, and nothing in it is ever lost."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from ..files import home_folder, write_atomically
from .declare import NOT_ATTEMPTED, STATES


def progress_folder() -> Path:
    """Where progress is kept: `$PITFALLS_HOME/progress`, by default under `~/.pytorch-pitfalls`."""
    return home_folder() / "progress"


def record_path(exercise_id: str) -> Path:
    return progress_folder() / f"{exercise_id}.json"


_unsaved: dict[Path, dict] = {}  # records of this process that could not be written, so that hints go on


def read_record(exercise_id: str) -> dict:
    """Read one exercise's record; a file that cannot be read is set aside and reported, never overwritten."""
    blank = {"state": NOT_ATTEMPTED, "points": 0, "attempts": 0, "hints": 0}
    path = record_path(exercise_id)
    if path in _unsaved:
        return dict(_unsaved[path])
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        good = set(record) == set(blank) and record["state"] in STATES
        if good and all(isinstance(record[key], (int, float)) for key in ("points", "attempts", "hints")):
            return record
    except FileNotFoundError:
        return blank
    except (OSError, ValueError, TypeError):
        pass
    number = 1
    while (aside := path.with_suffix(f".unreadable-{number}")).exists():
        number += 1
    with contextlib.suppress(OSError):
        os.replace(path, aside)
        print(f"The progress of {exercise_id} could not be read; the file was set aside as {aside}.")
    return blank


def write_record(exercise_id: str, record: dict) -> None:
    """Write one record atomically; a folder that cannot be written costs the record, not the check."""
    path = record_path(exercise_id)
    try:
        write_atomically(path, json.dumps(record))
        _unsaved.pop(path, None)
    except OSError as error:
        _unsaved[path] = dict(record)
        print(f"Progress was not saved ({error}).")


def forget_record(exercise_id: str) -> None:
    """Remove one exercise's record."""
    path = record_path(exercise_id)
    _unsaved.pop(path, None)
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        path.unlink()
