"""The driver itself, on a small notebook: what it reports is what a reader would see."""

from __future__ import annotations

import base64

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from . import lab

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("browser")]

PIXEL = base64.b64encode(
    base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
).decode()
CELLS = [
    new_markdown_cell("# A small notebook"),
    new_code_cell("name = input('Who? ')\nprint('Hello', name)"),
    new_code_cell(
        "from helpers.show import display\n"
        f"import base64\ndisplay.show_picture(base64.b64decode({PIXEL!r}), 'a dot', (['x'], [[1]]))"
    ),
    new_code_cell("undefined_name"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shown")
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(new_notebook(cells=CELLS, metadata=kernel), folder / "small.ipynb")
    with lab.serve(folder, tmp_path_factory.mktemp("private")) as running:
        yield running


def test_runs_answers_edits_and_reads(browser, server, tmp_path):
    notebook = lab.LabNotebook.open(browser, server, "small.ipynb")
    asked = []
    notebook.run_all(answer=lambda prompt: asked.append(prompt) or "Ada")
    notebook.screenshot(tmp_path / "small.png", 2)
    assert [prompt.strip() for prompt in asked] == ["Who?"]
    assert "Hello Ada" in notebook.output(1).inner_text()
    assert len(notebook.errors()) == 1 and "NameError" in notebook.errors()[0]

    index = notebook.find("undefined_name")
    text = "def double(x):\n    if x:\n        return [x, x]\n    return ('', {\"a\": x})\n\nprint(double(3))"
    notebook.type_source(index, text)
    notebook.run(index)
    assert "[3, 3]" in notebook.output(index).inner_text()
    assert notebook.errors() == []
    assert notebook.outside == []
