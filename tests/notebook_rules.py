"""The rules that every chapter's notebook keeps, as functions that list what breaks them.

Each takes a notebook (nbformat 4) and gives one line a problem, with the number of the cell (from 0) and its
first line, so that an author finds it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import zip_longest

MAX_PROSE_WORDS = 1500
MAX_CODE_CELLS = 30
PARAMETERS = {"budget_s", "device", "record", "fast"}
IGNORE = "nbval-ignore-output"
IMAGES = ("image/png", "image/jpeg", "image/svg+xml")
WIDGET = "application/vnd.jupyter.widget-view+json"

# A measured number: digits with a factor, percent, time, memory or rate unit. Minutes are a reader's time,
# bytes an exact count, a year or a version has no unit, and `2x2` is a shape.
UNIT = (
    r"x|×|%|percent|times (?:as|faster|slower|more|less|larger|smaller)|fold"
    r"|ns|µs|μs|us|ms|s|sec|seconds?|milliseconds?|microseconds?|nanoseconds?"
    r"|[kKMGT]i?B(?:/s)?|[kMGT]?FLOPS?|[KMGT]?Hz"
)
NUMBER = r"(?<![\w.§/-])(?!(?:19|20)\d0s)\d+(?:[.,]\d+)?"
MEASURED = re.compile(rf"{NUMBER}(?:\s?|-)(?:{UNIT})(?![\w×])(?!\s(?:confidence|interval))")
BANNED = re.compile(r"\b(?:simply|obviously)\b|\bjust\b(?!-in-time)", re.IGNORECASE)


def problems(notebook: dict) -> list[str]:
    """Everything in the notebook that breaks a rule."""
    rules = (structure, execution, plain_python, outputs, strict_sections, prose)
    return [problem for rule in rules for problem in rule(notebook)]


def code_cells(notebook: dict) -> list[tuple[int, dict]]:
    """(number, cell) of the code cells."""
    return [(n, cell) for n, cell in enumerate(notebook["cells"]) if cell["cell_type"] == "code"]


def at(number: int, cell: dict) -> str:
    """Where a problem is, for its message."""
    first = (cell["source"].strip().splitlines() or [""])[0]
    return f"cell {number} ({first[:50]})"


def structure(notebook: dict) -> Iterator[str]:
    """Kernel, size, the parameters cell, and cell ids."""
    kernel = notebook["metadata"].get("kernelspec", {}).get("name")
    if kernel != "python3":
        yield f"the kernel is {kernel}: it must be python3, the one name that every installation has"
    ids = [cell.get("id") for cell in notebook["cells"]]
    if None in ids or len(set(ids)) < len(ids):
        yield "every cell needs an id of its own (nbformat 4.5)"
    code = code_cells(notebook)
    if len(code) > MAX_CODE_CELLS:
        yield f"{len(code)} code cells, more than {MAX_CODE_CELLS}"
    tagged = [cell for _, cell in code if "parameters" in cell["metadata"].get("tags", [])]
    if len(tagged) != 1:
        yield f"{len(tagged)} cells tagged `parameters`, not one"
        return
    names = {
        target.id
        for node in ast.walk(ast.parse(tagged[0]["source"]))
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    if PARAMETERS - names:
        yield f"the parameters cell lacks {', '.join(sorted(PARAMETERS - names))}"


def execution(notebook: dict) -> Iterator[str]:
    """Every code cell was executed, from top to bottom, and none ended in an error."""
    expected = 1
    for number, cell in code_cells(notebook):
        if not cell["source"].strip():
            yield f"{at(number, cell)}: empty"
        elif cell["execution_count"] is None:
            yield f"{at(number, cell)}: not executed, so nbval would not check it"
        elif cell["execution_count"] != expected:
            yield f"{at(number, cell)}: ran as number {cell['execution_count']}, not {expected}"
        expected += 1
        for output in cell["outputs"]:
            if output["output_type"] == "error":
                yield f"{at(number, cell)}: ends in {output['ename']}; show it with expected_error()"


def plain_python(notebook: dict) -> Iterator[str]:
    """No magics, no output history, no trailing semicolon: the chapter is a script too."""
    for number, cell in code_cells(notebook):
        source = cell["source"].rstrip()
        code_lines = [line for line in source.splitlines() if not line.lstrip().startswith("#")]
        if code_lines and code_lines[-1].rstrip().endswith(";"):
            yield f"{at(number, cell)}: a trailing `;` does not silence nbval; assign to `_`"
        try:
            tree = ast.parse(source, mode="exec")
        except SyntaxError:
            yield f"{at(number, cell)}: not plain Python (a magic, or a top-level await?)"
            continue
        loads = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        stores = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - loads
        history = {name for name in loads if re.fullmatch(r"Out|In|_{1,3}|_i{1,3}|_i?\d+", name)}
        if history - stores:
            yield f"{at(number, cell)}: reads {', '.join(sorted(history))}, which only IPython has"


def outputs(notebook: dict) -> Iterator[str]:
    """Every picture has alternative text, one a cell; no widgets, which freeze."""
    for number, cell in code_cells(notebook):
        pictures = 0
        for output in cell["outputs"]:
            data = output.get("data", {})
            for kind in set(IMAGES) & set(data):
                pictures += 1
                alt = output.get("metadata", {}).get(kind, {}).get("alt", "")
                if not alt.strip():
                    yield f"{at(number, cell)}: a picture without alt text; draw it with helpers.figures"
            if WIDGET in data:
                yield f"{at(number, cell)}: a widget, which is dead once saved; print text"
        if pictures > 1:
            yield f"{at(number, cell)}: {pictures} pictures; one a cell, so each keeps its alt text"


def strict_sections(notebook: dict) -> Iterator[str]:
    """In each `## ` section that shows outputs, nbval compares at least one exactly.

    Not counted: what opens and closes a chapter, and a section headed "On a GPU", which says on most machines
    that it cannot run.
    """
    title, shown, strict = "the part before the first ##", 0, 0
    for cell in [*notebook["cells"], {"cell_type": "markdown", "source": "## end"}]:
        if cell["cell_type"] == "code":
            if re.search(r"\b(preflight|wrap_up)\(", cell["source"]) or title.startswith("On a GPU"):
                continue
            shown += bool(cell["outputs"])
            strict += bool(cell["outputs"]) and IGNORE not in cell["metadata"].get("tags", [])
            continue
        heading = re.search(r"(?m)^## (.+)$", cell["source"])
        if heading is None:
            continue
        if shown and not strict:
            yield (
                f"section {title!r}: every output is tagged {IGNORE}, so nothing in it is tested; "
                "end one cell with an exact value"
            )
        title, shown, strict = heading.group(1), 0, 0


def prose(notebook: dict) -> Iterator[str]:
    """Length and manner of the text; no measured number in it."""
    words = 0
    for number, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] != "markdown":
            continue
        if re.search(r"(?m)^\s*:::|^```\{", cell["source"]):
            yield f"{at(number, cell)}: a MyST directive, raw text in JupyterLab; use a > blockquote"
        text = plain_prose(cell["source"])
        words += len(re.findall(r"\S*\w\S*", text))
        for found in MEASURED.finditer(unquoted(text)):
            yield f"{at(number, cell)}: {found.group(0)!r} in prose: let a cell measure it"
        for found in BANNED.finditer(unquoted(text)):
            yield f"{at(number, cell)}: the word {found.group(0)!r}"
        if re.search(r"\w!(?!\w)", text):
            yield f"{at(number, cell)}: an exclamation mark"
    if words > MAX_PROSE_WORDS:
        yield f"{words} words of prose, more than {MAX_PROSE_WORDS}"


def plain_prose(markdown: str) -> str:
    """Markdown without code, formulas, HTML tags and link targets."""
    text = re.sub(r"(?s)```.*?```|~~~.*?~~~", " ", markdown)
    text = re.sub(r"(?s)\$\$.*?\$\$", " ", text)
    text = re.sub(r"`[^`\n]*`|\$[^$\n]+\$", "CODE", text)
    text = re.sub(r"\]\([^)]*\)|<https?://[^>]*>|https?://\S+", "]", text)
    return re.sub(r"</?\w[^>]*>", " ", text)


def unquoted(text: str) -> str:
    """Text without what stands in double quotation marks: the words of somebody else."""
    return re.sub(r"\"[^\"]*\"|“[^”]*”", "QUOTED", text)


def differences(shipped: dict, ran: dict) -> list[str]:
    """Where a run's outputs differ from the shipped ones; cells tagged as varying, and pictures, are left out."""
    found = []
    for (number, old), (_, new) in zip(code_cells(shipped), code_cells(ran), strict=True):
        if IGNORE in old["metadata"].get("tags", []):
            continue
        pairs = zip_longest(shown(old), shown(new), fillvalue=("", None))
        wrong = next(((was, now) for (_, was), (_, now) in pairs if was != now), None)
        if wrong:
            was, now = ("nothing" if value is None else repr(value)[:200] for value in wrong)
            found.append(f"{at(number, old)}: shipped {was}, ran {now}")
    return found


def shown(cell: dict) -> list[tuple[str, object]]:
    """What a cell shows, piece by piece: (stream or MIME type, content). What is printed in a row is one piece."""
    pieces: list[tuple[str, object]] = []
    for output in cell["outputs"]:
        if output["output_type"] == "stream":
            name, text = output["name"], output["text"]
            earlier = str(pieces.pop()[1]) if pieces and pieces[-1][0] == name else ""
            pieces.append((name, earlier + text))
        elif output["output_type"] == "error":
            pieces.append(("error", output["ename"]))
        else:
            pieces += sorted((mime, value) for mime, value in output["data"].items() if mime not in IMAGES)
    return pieces
