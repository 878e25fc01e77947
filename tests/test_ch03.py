"""Chapter 3 states what TorchScript's standing is, and that a dispatch mode silences the compiler: these fail the day
that either changes, so that the chapter is corrected."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

RELEASE = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
CHAPTER = Path(__file__).resolve().parents[1] / "notebooks" / "03_jit_compilation.py"

# Python hides a DeprecationWarning from the users of a library, and shows them a FutureWarning.
CATEGORY = DeprecationWarning if RELEASE <= (2, 13) else FutureWarning

JIT = "import torch; net = torch.nn.Linear(1, 1); torch.jit.script(net); torch.jit.trace(net, torch.ones(1, 1))"


@pytest.mark.skipif(RELEASE < (2, 10), reason="the warnings came with torch 2.10")
def test_torchscript_still_works_and_calls_itself_deprecated():
    """If the text or the functions are gone, chapter 3's "Leaving Python" and claim 3.1 need new words."""
    net = torch.nn.Linear(1, 1)
    for compile_it in (lambda: torch.jit.script(net), lambda: torch.jit.trace(net, torch.ones(1, 1))):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            compiled = compile_it()
        assert torch.equal(compiled(torch.ones(1, 1)), net(torch.ones(1, 1)))
        texts = [str(warning.message) for warning in told if warning.category is CATEGORY]
        assert any("is deprecated" in text and "torch.export" in text for text in texts), texts


@pytest.mark.skipif(RELEASE < (2, 10), reason="the warnings came with torch 2.10")
def test_pythons_default_filters_hide_the_deprecation_up_to_2_13():
    def shown(*flags: str) -> str:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}
        command = [sys.executable, *flags, "-c", JIT]
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stderr

    assert "deprecated" in shown("-W", "default")
    assert ("deprecated" in shown()) == (RELEASE > (2, 13))


def test_the_chapter_says_it_once_with_its_source():
    text = CHAPTER.read_text(encoding="utf-8")
    assert text.count("TorchScript is deprecated") == 1
    assert "https://docs.pytorch.org/docs/stable/jit.html" in text


def test_a_dispatch_mode_keeps_a_compiled_function_eager_up_to_2_13():
    from helpers import evidence

    def double(x):
        return x * 2

    torch.compiler.reset()
    backend = evidence.CountingBackend()
    watched = torch.compile(double, backend=backend)
    evidence.op_counts(lambda: watched(torch.ones(3)))
    watched(torch.ones(3))
    torch.compiler.reset()
    assert backend.compiles == (0 if RELEASE <= (2, 13) else 1)


def test_nothing_generates_machine_code_unless_asked():
    """CI and nbval run the chapter with its defaults: Inductor must then not be reached."""
    text = CHAPTER.read_text(encoding="utf-8")
    assert "inductor: bool = False" in text
    tree = ast.parse(text)
    opted_in = {
        id(call)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef) and function.name == "machine_code"
        for call in ast.walk(function)
    }
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and id(node) not in opted_in]
    compiles = [call for call in calls if ast.unparse(call.func) == "torch.compile"]
    assert len(compiles) >= 8
    for call in compiles:
        assert "backend" in {keyword.arg for keyword in call.keywords}, ast.unparse(call)


def test_the_recorded_run_belongs_to_the_cell_that_shows_it():
    """Once `machine_code` changes, record again: run the chapter with inductor=True and record=True."""
    import hashlib
    import json

    text = CHAPTER.read_text(encoding="utf-8")
    (function,) = (
        node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name == "machine_code"
    )
    source = ast.get_source_segment(text, function).strip()
    files = (CHAPTER.parents[1] / "recordings").glob("*.json")
    found = [
        entries["inductor"] for entries in map(json.loads, (f.read_text() for f in files)) if "inductor" in entries
    ]
    assert found and {entry["source"] for entry in found} == {hashlib.sha256(source.encode()).hexdigest()[:16]}
