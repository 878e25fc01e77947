"""Where the course keeps its files, how it writes them, and how a process of ours finds this package.

Nothing half-written is ever seen or left.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class CourseError(Exception):
    """Something about the course cannot be done; the message says what and what to do next."""


def home_folder() -> Path:
    """The folder of progress and of what was found out about this machine: $PITFALLS_HOME, or ~/.pytorch-pitfalls."""
    home = os.environ.get("PITFALLS_HOME")
    return Path(home) if home else Path.home() / ".pytorch-pitfalls"


def package_folder() -> Path:
    """The folder of this package, `helpers`."""
    return Path(__file__).resolve().parent


def checkout() -> Path:
    """The course's folder: the checkout this package lies in, or the nearest one above the working folder.

    Raises:
        CourseError: neither is there.
    """
    for folder in (package_folder().parents[1], Path.cwd(), *Path.cwd().parents):
        if (folder / "notebooks").is_dir() and (folder / "solutions").is_dir():
            return folder
    raise CourseError("the course's notebooks are not here: run this inside a clone of its repository")


def child_environment(**extra: str) -> dict[str, str]:
    """The environment of a process of ours: it finds this package, and nobody can be asked there."""
    paths = os.pathsep.join(filter(None, [str(package_folder().parent), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PITFALLS_ASK": "0", "PYTHONPATH": paths, **extra}


def read_json(path: Path) -> dict:
    """Read a JSON object; a file that is missing or holds something else counts as an empty one."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def read_text(path: Path) -> str:
    """Read a text file; one that is missing counts as empty."""
    return path.read_text(encoding="utf-8") if path.exists() else ""


def read_toml(path: Path) -> dict:
    """Read one of the course's own TOML files.

    Raises:
        CourseError: it is no TOML; the message says where.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise CourseError(f"{path.name}: {error}") from None


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
