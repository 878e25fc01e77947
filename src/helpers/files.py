"""Where the course keeps its own files, and how it writes files: nothing half-written is ever seen or left."""

from __future__ import annotations

import os
from pathlib import Path


def home_folder() -> Path:
    """The folder of progress and of what was found out about this machine: $PITFALLS_HOME, or ~/.pytorch-pitfalls."""
    home = os.environ.get("PITFALLS_HOME")
    return Path(home) if home else Path.home() / ".pytorch-pitfalls"


def write_atomically(path: Path, text: str) -> None:
    """Write a text file so that a reader meets the old text or the new, never a part; makes the folder.

    Raises:
        OSError: the place cannot be written; the old text, if any, is still there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part-{os.getpid()}")
    try:
        part.write_text(text, encoding="utf-8")
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)  # a full disk should not get fuller
        raise
