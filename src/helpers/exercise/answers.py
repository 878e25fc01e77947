"""A learner's answer: its cells, read from a .py or .ipynb file, and executed as a real module."""

from __future__ import annotations

import ast
import contextlib
import json
import linecache
import re
import sys
import tokenize
import types
from dataclasses import dataclass, field
from pathlib import Path

from .wire import LearnerError

SKIPPED_CALLS = {"check", "hint", "solution", "progress"}
MAX_TEXT = 2000


@dataclass
class Learner:
    """The learner's names, what went wrong while loading them, and what to do about a missing one."""

    module: types.ModuleType
    errors: list[str] = field(default_factory=list)
    advice: str = ""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return vars(self.module)[name]
        except KeyError:
            because = f" ({self.errors[0]})" if self.errors else ""
            raise LearnerError("missing", f"`{name}` is not defined{because}{self.advice}") from None


def read_cells(path: Path) -> list[tuple[str, int]]:
    """Read the code cells of a .py or .ipynb file, each with the number of its first line.

    Raises:
        ValueError: another kind of file, or not a notebook.
    """
    path = Path(path)
    if path.suffix == ".py":
        text = _read_python(path)
        lines = text.splitlines(keepends=True)
        starts = [0, *(i for i, line in enumerate(lines) if i and line.startswith("# %%")), len(lines)]
        return [("".join(lines[a:b]), a + 1) for a, b in zip(starts, starts[1:], strict=False)]
    if path.suffix != ".ipynb":
        raise ValueError(f"{path.name} is neither a .py nor an .ipynb file")
    try:
        notebook = json.loads(path.read_text(encoding="utf-8-sig"))
        cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        sources = ["".join(cell["source"]) for cell in cells]
    except (KeyError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"{path.name} is not a readable notebook: {error}") from None
    return [(_without_magics(source), 1) for source in sources]


def _read_python(path: Path) -> str:
    """The text of a Python file, in the encoding that its mark or its first lines name, as Python reads it."""
    try:
        with tokenize.open(path) as stream:
            return stream.read()
    except (SyntaxError, UnicodeDecodeError) as error:
        raise ValueError(f"{path.name} is not readable as text: {error}") from None


def _without_magics(source: str) -> str:
    """Turn a cell's IPython lines (%magic, !command, help?) into comments; Python stays as it is."""
    with contextlib.suppress(SyntaxError, ValueError):
        ast.parse(source)  # a line that begins with % may go on with the one before
        return source
    source = re.sub(r"(?m)^(\s*)([%!?].*)$", r"\1pass  # \2", source)
    return re.sub(r"(?m)^(\s*)([\w.]+\?{1,2})[ \t]*$", r"\1pass  # \2", source)


def load_learner(path: Path, name: str = "learner_answer") -> Learner:
    """Execute a learner's file, statement by statement, as a real module.

    One broken cell does not hide the others: its error is noted and the rest still runs. Calls to `check`,
    `hint`, `solution` and `progress` at top level are left out.
    """
    module = types.ModuleType(name)
    sys.modules[name] = module
    learner = Learner(module)
    path = Path(path)
    for number, (source, first_line) in enumerate(read_cells(path), 1):
        notebook = path.suffix == ".ipynb"
        filename = f"<cell {number} of {path.name}>" if notebook else str(path)
        module.__file__ = str(path)
        if notebook:
            linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        try:
            tree = ast.increment_lineno(ast.parse(source, filename), first_line - 1)
        except SyntaxError as error:
            line = (error.lineno or 1) + first_line - 1
            learner.errors.append(f"SyntaxError: {error.msg}, {filename} line {line}")
            continue
        for statement in tree.body:
            if _is_skipped_call(statement):
                continue
            try:
                exec(compile(ast.Module([statement], []), filename, "exec"), vars(module))
            except BaseException as error:
                learner.errors.append(
                    f"{type(error).__name__}: {cut(str(error))}, {Path(filename).name} line {statement.lineno}"
                )
    return learner


def _is_skipped_call(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and getattr(statement.value.func, "id", getattr(statement.value.func, "attr", "")) in SKIPPED_CALLS
    )


def cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + " [cut]"
