"""What is generated: exercises with their answers cut out, and notebooks, executed or not."""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from ..files import CourseError, checkout, write_atomically
from ..lesson.chapters import CHAPTERS, STAND_IN, Chapter
from .execute import execute

_REGION = re.compile(r"(?ms)^([ \t]*)### BEGIN SOLUTION\n.*?^[ \t]*### END SOLUTION\n")
_HEADING = re.compile(r"(?m)^# ## (\d+\.\d+)\b")


def blank(source: str, where: str = "solutions") -> str:
    """Cut the answers out of a solutions file; each becomes a NotImplementedError naming its exercise.

    Raises:
        CourseError: unbalanced markers, or an answer outside any exercise.
    """
    if not source.count("### BEGIN SOLUTION") == source.count("### END SOLUTION") > 0:
        raise CourseError(f"{where}: every '### BEGIN SOLUTION' needs its '### END SOLUTION'")
    headings = [(match.start(), match.group(1)) for match in _HEADING.finditer(source)]

    def cut(match: re.Match) -> str:
        before = [name for start, name in headings if start < match.start()]
        if not before:
            raise CourseError(f"{where}: an answer stands before the first '## N.M' heading")
        return f'{match.group(1)}raise NotImplementedError("Exercise {before[-1]} is yours to write")\n'

    return _REGION.sub(cut, source)


def to_notebook(source: str, name: str) -> dict:
    """Turn a py:percent source into a notebook whose cell ids depend on the cell's place and name alone."""
    import jupytext

    notebook = jupytext.reads(source, fmt="py:percent")
    for number, cell in enumerate(notebook.cells):
        cell["id"] = hashlib.sha256(f"{name} {number}".encode()).hexdigest()[:12]
    notebook.metadata["kernelspec"] = {
        "display_name": "Python 3",
        "language": "python",
        "name": "python3",
    }
    notebook.metadata["language_info"] = {"name": "python"}
    notebook.metadata.pop("jupytext", None)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return notebook


def generated(folder: Path, chapters: Iterable[Chapter] = ()) -> dict[Path, str]:
    """Every generated file but the executed chapters (of these chapters, or of all): path -> content."""
    import nbformat

    files = {}
    slugs = {entry.slug for entry in chapters}
    for path in sorted((folder / "solutions").glob("[0-9][0-9]_*.py")):
        if slugs and path.stem not in slugs:
            continue
        source = path.read_text(encoding="utf-8")
        empty = blank(source, str(path.name))
        files[folder / "exercises" / path.name] = empty
        for text, target in ((source, "solutions"), (empty, "exercises")):
            notebook = to_notebook(text, f"{target} {path.stem}")
            files[folder / target / f"{path.stem}.ipynb"] = nbformat.writes(notebook) + "\n"
    return files


def build(folder: Path | None = None, chapters: Iterable[Chapter] = (), say: Callable = print) -> list[Path]:
    """Write the generated files that changed, of the given chapters or of all; execute the given ones.

    Gives the paths written.
    """
    import nbformat

    folder, chapters = folder or checkout(), list(chapters)
    written = []
    for path, content in generated(folder, chapters).items():
        if not path.exists() or path.read_text(encoding="utf-8") != content:
            write_atomically(path, content)
            written.append(path)
    for entry in chapters:
        path = folder / "notebooks" / f"{entry.slug}.py"
        if not path.exists():
            raise CourseError(f"{path.name} does not exist yet")
        say(f"executing {path.name}")
        notebook = execute_source(path.read_text(encoding="utf-8"), entry.slug, folder)
        target = path.with_suffix(".ipynb")
        write_atomically(target, nbformat.writes(notebook) + "\n")
        written.append(target)
    return written


def execute_source(source: str, name: str, folder: Path) -> dict:
    """Execute a chapter's source in a fresh kernel and give the notebook with its outputs.

    Raises:
        CourseError: a cell raised; the message has its source and error.
    """
    import nbformat

    with tempfile.TemporaryDirectory() as scratch:
        target = Path(scratch) / f"{name}.ipynb"
        problem = execute(to_notebook(source, name), target, folder)
        if problem:
            raise CourseError(f"{name}: {problem}")
        notebook = nbformat.read(target, as_version=4)
    for part in (notebook, *notebook.cells):
        for note in ("papermill", "execution"):  # they hold times, which no two runs share
            part.metadata.pop(note, None)
        if not part.metadata.get("tags"):
            part.metadata.pop("tags", None)
    notebook.metadata["language_info"] = {"name": "python"}
    return notebook


def written_chapters(folder: Path) -> list[Chapter]:
    """The chapters whose source is there."""
    return [entry for entry in CHAPTERS if (folder / "notebooks" / f"{entry.slug}.py").exists()]


def course_map() -> str:
    """The table of chapters for the README, in Markdown."""
    lines = ["| chapter | the pitfall | minutes | without a GPU |", "| --- | --- | --- | --- |"]
    for entry in CHAPTERS:
        where = "stand-in" if entry.gpu == STAND_IN else "live"
        name = f"[{entry.number} {entry.title}](notebooks/{entry.slug}.ipynb)"
        lines.append(f"| {name} | {entry.pitfall} | {entry.minutes} | {where} |")
    return "\n".join(lines)


def update_map(readme: Path) -> bool:
    """Write the table of chapters between its marks in the README; whether it changed."""
    text = readme.read_text(encoding="utf-8")
    before, rest = text.split("<!-- course-map -->\n", 1)
    after = rest.split("<!-- /course-map -->", 1)[1]
    fresh = f"{before}<!-- course-map -->\n{course_map()}\n<!-- /course-map -->{after}"
    if fresh != text:
        write_atomically(readme, fresh)
    return fresh != text
