"""The learner's copies in `work/`: made once, never overwritten, a newer version put beside."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from ..files import checkout, read_json, write_atomically
from ..lesson.chapters import CHAPTERS


def start(target: Path | None = None, folder: Path | None = None) -> Iterator[tuple[str, Path]]:
    """Copy the glossary, chapters and exercises into `work/`, and never overwrite a learner's file.

    Yields (what, path): "made", "kept" (same as before, or edited and no newer version) or "new version"
    (placed beside the learner's file as NAME.new.ipynb, or under a free name of that kind).
    """
    folder = folder or checkout()
    target = target or folder / "work"
    shipped_path = target / ".shipped.json"
    shipped = read_json(shipped_path)
    for name, content in _shipped_files(folder):
        digest = _digest(content)
        path = target / name
        if not path.exists():
            write_atomically(path, content)
            what = "made"
        elif shipped.get(name) == digest or path.read_text(encoding="utf-8") == content:
            what = "kept"
        else:
            path = _place_beside(path, shipped.get(name))
            write_atomically(path, content)
            what = "new version"
        shipped[name] = digest
        yield what, path
    write_atomically(shipped_path, json.dumps(shipped, indent=1))


def _place_beside(path: Path, last_shipped: str | None) -> Path:
    """NAME.new.ipynb, or NAME.new2.ipynb and so on where a learner has begun to work in the one before."""
    free = (path.with_suffix(f".new{number}{path.suffix}") for number in ("", *range(2, 1000)))
    return next(p for p in free if not p.exists() or _digest(p.read_text(encoding="utf-8")) == last_shipped)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _shipped_files(folder: Path) -> Iterator[tuple[str, str]]:
    """Name and content of each file that a learner gets: the glossary that chapters link, and a pair a chapter."""
    glossary = folder / "docs" / "glossary.md"
    if glossary.exists():
        yield glossary.name, glossary.read_text(encoding="utf-8")
    for entry in CHAPTERS:
        for kind, name in (("notebooks", entry.slug), ("exercises", f"{entry.number:02d}_exercises")):
            source = folder / kind / f"{entry.slug}.ipynb"
            if source.exists():
                yield f"{name}.ipynb", _plain_copy(source)


def _plain_copy(path: Path) -> str:
    """A notebook's text without outputs and pairing metadata, its links leading to the glossary beside it.

    JupyterLab shows no file outside the folder it serves, which is the copies' own.
    """
    notebook = json.loads(path.read_text(encoding="utf-8"))
    notebook["metadata"].pop("jupytext", None)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
        else:
            cell["source"] = [line.replace("(../docs/glossary.md#", "(glossary.md#") for line in cell["source"]]
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
