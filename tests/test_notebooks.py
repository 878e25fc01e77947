"""Chapters: source and notebook agree, the rules hold, and each runs in every way the README names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import notebook_rules as rules
import pytest
import torch
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from helpers.course import build as building
from helpers.course import report as run_report
from helpers.lesson import chapters, claims
from helpers.measure import verdicts

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.py"))
LIMIT_S = 600

each_chapter = pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)


def executed(source: Path) -> dict:
    """The chapter's notebook with its outputs, as shipped."""
    return nbformat.read(source.with_suffix(".ipynb"), as_version=4)


def run(*command: str, cwd: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run a command with the project's source on the path, nobody to ask, and its own progress folder."""
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8"}
    environment |= {"PITFALLS_ASK": "0", "PITFALLS_HOME": str(cwd / "home"), **extra}
    return subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=LIMIT_S,
        stdin=subprocess.DEVNULL,
    )


def end_of(done: subprocess.CompletedProcess[str]) -> str:
    """The last lines of what a command printed, for a failure's message."""
    return "\n".join((done.stdout + done.stderr).splitlines()[-40:])


# --- pairs and rules ------------------------------------------------------------------------------


def test_there_are_chapters():
    assert SOURCES
    known = {entry.slug for entry in chapters.CHAPTERS}
    assert {source.stem for source in SOURCES} <= known


def shape(cell: dict) -> dict:
    """What source and notebook must agree on in one cell."""
    return {key: cell[key] for key in ("id", "cell_type", "source", "metadata")}


@each_chapter
def test_source_and_notebook_agree(source):
    written = building.to_notebook(source.read_text(encoding="utf-8"), source.stem)
    shipped = executed(source)
    repair = f"run `pitfalls build {source.stem[:2]}` to execute it again"
    assert len(shipped.cells) == len(written.cells), repair
    for number, (new, old) in enumerate(zip(written.cells, shipped.cells, strict=True)):
        assert shape(old) == shape(new), f"cell {number} of {source.stem}.ipynb differs: {repair}"
    assert (shipped.nbformat, shipped.nbformat_minor) == (4, 5)


@each_chapter
def test_notebook_keeps_the_rules(source):
    found = rules.problems(executed(source))
    assert not found, "\n" + "\n".join(found)


def good_notebook() -> dict:
    """A notebook that breaks no rule."""
    cells = [
        new_markdown_cell("# A title\n\nAbout 15 minutes, torch 2.13, a 3x3 kernel, 4 bytes (2024)."),
        new_code_cell(
            "budget_s: float = 2.0\ndevice = 'auto'\nrecord = False\nfast = False",
            metadata={"tags": ["parameters"]},
        ),
        new_markdown_cell('## One\n\nThe article says "30 % faster, simply". `x = 12 ms` is code.'),
        new_code_cell("_ = 1\n2", outputs=[new_output("execute_result", {"text/plain": "2"})]),
    ]
    for count, cell in enumerate((cells[1], cells[3]), start=1):
        cell["execution_count"] = count
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    return new_notebook(cells=cells, metadata=kernel)


def picture(**metadata: str) -> dict:
    return new_output("display_data", {"image/png": "AAAA"}, metadata={"image/png": metadata})


BROKEN = {
    "not executed": lambda cell: cell.update(execution_count=None),
    "ran as number": lambda cell: cell.update(execution_count=7),
    "empty": lambda cell: cell.update(source=" "),
    "trailing": lambda cell: cell.update(source="f = 2\nf;"),
    "not plain Python": lambda cell: cell.update(source="%timeit 1"),
    "which only IPython has": lambda cell: cell.update(source="print(Out[1], _)"),
    "ends in KeyError": lambda cell: cell.update(
        outputs=[new_output("error", ename="KeyError", evalue="", traceback=[])]
    ),
    "without alt text": lambda cell: cell.update(outputs=[picture()]),
    "2 pictures": lambda cell: cell.update(outputs=[picture(alt="a"), picture(alt="b")]),
    "a widget": lambda cell: cell.update(outputs=[new_output("display_data", {rules.WIDGET: {}})]),
    "nothing in it is tested": lambda cell: cell["metadata"].update(tags=[rules.IGNORE]),
    "not one": lambda cell: cell["metadata"].update(tags=["parameters"]),
}


def test_rules_accept_a_good_notebook():
    assert rules.problems(good_notebook()) == []


@pytest.mark.parametrize("message", BROKEN)
def test_rules_find_a_broken_code_cell(message):
    notebook = good_notebook()
    BROKEN[message](notebook.cells[3])
    assert any(message in problem for problem in rules.problems(notebook))


@pytest.mark.parametrize(
    "text",
    [
        "It is 1.3x faster.",
        "a 2× speed-up",
        "takes 12 ms",
        "takes 12ms on a laptop",
        "35 % less",
        "35% less",
        "0.5 s later",
        "saves 2 GB",
        "three (3 times faster)",
        "10-fold",
        "at 900 GB/s",
        "a 1.5 percent margin",
    ],
)
def test_rules_find_a_measured_number_in_prose(text):
    notebook = good_notebook()
    notebook.cells[0]["source"] += f"\n\n{text}"
    assert [problem for problem in rules.problems(notebook) if "in prose" in problem]


@pytest.mark.parametrize(
    "text",
    [
        "torch 2.6 and later",
        "in the 1990s",
        "since 2024, see §4",
        "a 3x3 kernel on 224x224 images",
        "[a page](https://example.org/12ms)",
        "$0.1 s$ and `5 ms`",
        "a 99 % confidence interval",
        "run it 10 times",
        "about 50 minutes",
        "CUDA 12 streams, a just-in-time compiler",
        "float32 takes 4 bytes",
        "a != b",
    ],
)
def test_rules_allow_other_numbers_in_prose(text):
    notebook = good_notebook()
    notebook.cells[0]["source"] += f"\n\n{text}"
    assert rules.problems(notebook) == []


def test_rules_count_no_opening_cell_and_no_gpu_section_as_untested():
    notebook = good_notebook()
    cell = notebook.cells[3]
    cell["metadata"]["tags"] = [rules.IGNORE]
    cell["source"] = "preflight(1)"
    assert rules.problems(notebook) == []
    cell["source"] = "1 + 1"
    assert rules.problems(notebook) != []
    notebook.cells[2]["source"] = "## On a GPU"
    assert rules.problems(notebook) == []


def test_rules_count_words_and_cells():
    notebook = good_notebook()
    notebook.cells[0]["source"] += " word" * 1500
    notebook.cells += [new_code_cell("1", execution_count=count) for count in range(3, 33)]
    found = "\n".join(rules.problems(notebook))
    assert "words of prose" in found and "32 code cells" in found


# --- every way to run a chapter -------------------------------------------------------------------


def pinned_torch() -> str:
    """The torch release that the shipped outputs come from."""
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    return re.search(r"(?m)^torch==(\S+)", text).group(1)


on_the_pinned_torch = pytest.mark.skipif(
    torch.__version__.split("+")[0] != pinned_torch(),
    reason="exact outputs are those of the pinned torch",
)


@pytest.fixture(scope="session")
def fast_run(tmp_path_factory):
    """Run a chapter through papermill with `fast`, once for all tests that look at it; gives its notebook."""
    done: dict[Path, Path] = {}

    def run_once(source: Path) -> Path:
        if source not in done:
            folder = tmp_path_factory.mktemp(source.stem)
            out = folder / "out.ipynb"
            command = [sys.executable, "-m", "papermill", str(source.with_suffix(".ipynb")), str(out)]
            command += ["--no-progress-bar", "-k", "python3", "--execution-timeout", "300", "-p", "fast", "True"]
            ended = run(*command, cwd=folder)
            assert ended.returncode == 0, end_of(ended)
            done[source] = out
        return done[source]

    return run_once


# The tests of one chapter's fast run share a worker, and so the run.
each_fast_run = pytest.mark.parametrize(
    "source", [pytest.param(path, id=path.stem, marks=pytest.mark.xdist_group(path.stem)) for path in SOURCES]
)


@pytest.mark.slow
@each_fast_run
def test_runs_through_papermill(source, fast_run):
    """A fast run ends without an error, decides each of the chapter's claims, and names each figure."""
    cards, _ = run_report.read_outputs(fast_run(source))
    expected = {c.id for c in claims.all_claims().values() if c.chapter == source.stem}
    assert {card["id"] for card in cards} == expected
    assert {card["verdict"] for card in cards} <= set(verdicts.VERDICTS)
    assert list(rules.outputs(nbformat.read(fast_run(source), as_version=4))) == []


@pytest.mark.slow
@on_the_pinned_torch
@each_fast_run
def test_exact_outputs_are_reproduced(source, fast_run):
    """Every output that is not tagged as varying is as shipped, whatever the budget of the measurements."""
    ran = [cell for cell in nbformat.read(fast_run(source), as_version=4).cells if not injected(cell)]
    assert rules.differences(executed(source), nbformat.from_dict({"cells": ran})) == []


def injected(cell: dict) -> bool:
    """Whether papermill put a cell there, to set the parameters."""
    return "injected-parameters" in cell["metadata"].get("tags", ())


@pytest.mark.slow
@on_the_pinned_torch
def test_nbval_accepts_a_chapter(tmp_path):
    """A reader's `pytest --nbval` executes and compares as we do; the shortest chapter stands for all."""
    source = ROOT / "notebooks" / "07_loss_dtypes.ipynb"
    copy = tmp_path / source.name
    copy.write_bytes(source.read_bytes())
    command = [sys.executable, "-m", "pytest", "--nbval", copy.name, "--nbval-cell-timeout=180"]
    command += ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir=.", "-c", os.devnull]
    done = run(*command, cwd=tmp_path)
    assert done.returncode == 0, end_of(done)
    assert " passed" in done.stdout


def test_a_changed_output_is_a_difference():
    shipped, ran = good_notebook(), good_notebook()
    assert rules.differences(shipped, ran) == []
    ran.cells[3]["outputs"][0]["data"]["text/plain"] = "3"
    assert rules.differences(shipped, ran) == ["cell 3 (_ = 1): shipped '2', ran '3'"]
    ran.cells[3]["metadata"]["tags"] = shipped.cells[3]["metadata"]["tags"] = [rules.IGNORE]
    assert rules.differences(shipped, ran) == []
    shipped.cells[3]["metadata"].clear()
    ran.cells[3]["outputs"] = []
    assert rules.differences(shipped, ran) == ["cell 3 (_ = 1): shipped '2', ran nothing"]


# Hides packages as if they were not installed: no finder sees them, so nothing that probes for one breaks.
WITHOUT = """
import runpy, sys

hidden = set(sys.argv[1].split())

class Finder:
    def __init__(self, finder):
        self.finder = finder
    def __getattr__(self, name):
        return getattr(self.finder, name)
    def find_spec(self, name, path=None, target=None):
        return None if name.split(".")[0] in hidden else self.finder.find_spec(name, path, target)

sys.meta_path[:] = map(Finder, sys.meta_path)
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
JUPYTER = "IPython ipykernel jupyter_client jupyter_core jupyterlab jupytext nbclient nbconvert nbformat papermill tqdm"
IMPORT_NAMES = {"scikit-learn": "sklearn"}


@pytest.mark.slow
@each_chapter
def test_runs_as_a_plain_script_without_jupyter(source, tmp_path):
    wanted = {IMPORT_NAMES[package] for package in chapters.chapter(source.stem).packages}
    hidden = " ".join(name for name in [*JUPYTER.split(), *IMPORT_NAMES.values()] if name not in wanted)
    done = run(sys.executable, "-c", WITHOUT, hidden, str(source), cwd=tmp_path, MPLBACKEND="Agg")
    assert done.returncode == 0, end_of(done)
    assert "Claim " in done.stdout
    assert "<div" not in done.stdout, "HTML was printed in a script"


def test_hidden_packages_are_not_there(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import importlib.util, json, IPython\n")
    done = run(sys.executable, "-c", WITHOUT, JUPYTER, str(script), cwd=tmp_path)
    assert "No module named 'IPython'" in done.stderr


# --- generated files ------------------------------------------------------------------------------


def test_generated_files_are_fresh():
    stale = [
        str(path.relative_to(ROOT))
        for path, content in building.generated(ROOT).items()
        if not path.exists() or path.read_text(encoding="utf-8") != content
    ]
    assert not stale, f"run `make build`; these differ from what solutions/ gives: {stale}"


def test_nothing_stray_lies_among_the_notebooks():
    expected = {entry.slug for entry in chapters.CHAPTERS}
    for folder in ["notebooks", "solutions", "exercises"]:
        for path in (ROOT / folder).glob("[!._]*"):
            assert path.stem in expected and path.suffix in {".py", ".ipynb"}, path
