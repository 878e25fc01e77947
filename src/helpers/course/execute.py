"""Executing a notebook: by papermill, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from ..files import child_environment, write_atomically

CELL_LIMIT_S = 900  # seconds one cell may take


def execute(notebook: Mapping, target: Path, folder: Path, parameters: Mapping[str, object] | None = None) -> str:
    """Execute a notebook and write it with its outputs; an empty text, or the last lines of what went wrong.

    Args:
        target: is written if every cell ran. Otherwise what ran lies beside it, as NAME.part.ipynb.
        folder: where the notebook runs.
        parameters: replace the values of its parameters cell.
    """
    import nbformat

    given, part = target.with_suffix(".input.ipynb"), target.with_suffix(".part.ipynb")
    write_atomically(given, nbformat.writes(notebook))
    command = [sys.executable, "-m", "papermill", str(given), str(part), "--no-progress-bar"]
    command += ["-k", "python3", "--execution-timeout", str(CELL_LIMIT_S), "--cwd", str(folder)]
    for name, value in (parameters or {}).items():
        command += ["-p", name, str(value)]
    environment = child_environment(PITFALLS_RETRY_NOISY=os.environ.get("PITFALLS_RETRY_NOISY", "1"))
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    given.unlink(missing_ok=True)
    if process.returncode:
        return "\n".join(process.stderr.strip().splitlines()[-12:])
    os.replace(part, target)
    return ""
