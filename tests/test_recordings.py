"""Recordings: bound to the source that made them, honest about where from, and never a pass."""

import ast
import hashlib
import json
import re
import textwrap
from pathlib import Path

import pytest

from helpers.lesson import recordings
from helpers.measure import verdicts

ROOT = Path(__file__).resolve().parents[1]


def measure():
    return {"speedup": 1.5}


def other_measure():
    return {"speedup": 2.5}


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PITFALLS_RECORDINGS", str(tmp_path / "recordings"))
    return tmp_path / "recordings"


def test_what_was_saved_is_loaded_with_its_provenance():
    saved = recordings.save("speed", measure, measure(), on="A test machine (2)")
    (loaded,) = recordings.load("speed", measure)
    assert loaded == saved
    assert loaded.machine == "a-test-machine-2"
    assert loaded.result == {"speedup": 1.5}
    assert {"torch", "python", "date", "cpu"} <= loaded.provenance.keys()


def test_it_says_that_it_was_recorded():
    sentence = str(recordings.save("speed", measure, 1, on="elsewhere"))
    for word in ("Recorded on elsewhere", "torch", "not run here"):
        assert word in sentence


def test_it_never_counts_as_a_pass():
    finding = recordings.save("speed", measure, {"holds": True}, on="m").finding("Twice as fast.")
    assert finding.verdict == verdicts.UNTESTED
    assert finding.holds is None
    assert finding.data["recorded"] == {"holds": True}
    assert "Twice as fast. Recorded on m" in finding.text


def test_a_changed_function_makes_it_stale():
    recordings.save("speed", measure, 1, on="m")
    assert recordings.load("speed", other_measure) == []
    assert recordings.stale("speed", other_measure) == ["m"]
    assert recordings.stale("speed", measure) == []


def test_indentation_does_not_make_it_stale(tmp_path):
    import importlib.util

    hashes = set()
    for name, head in {"plain": "", "nested": "if True:\n"}.items():
        body = "def f():\n    return 1\n"
        path = tmp_path / f"{name}.py"
        path.write_text(head + (textwrap.indent(body, "    ") if head else body))
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        hashes.add(recordings.source_hash(module.f))
    assert len(hashes) == 1


def test_a_later_recording_replaces_the_earlier_and_keeps_the_others():
    recordings.save("speed", measure, 1, on="m")
    recordings.save("memory", measure, 7, on="m")
    recordings.save("speed", measure, 2, on="m")
    assert [r.result for r in recordings.load("speed", measure)] == [2]
    assert [r.result for r in recordings.load("memory", measure)] == [7]


def test_one_recording_a_machine():
    for name in ("b", "a"):
        recordings.save("speed", measure, name, on=name)
    assert [r.machine for r in recordings.load("speed", measure)] == ["a", "b"]


def test_nothing_on_file_gives_nothing():
    assert recordings.load("speed", measure) == []
    assert recordings.stale("speed", measure) == []


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"speed": 1}', '{"speed": {"source": "x"}}'])
def test_a_corrupt_file_is_set_aside_with_a_message(own_folder, text):
    own_folder.mkdir()
    (own_folder / "m.json").write_text(text)
    with pytest.warns(UserWarning, match=r"m\.json is no file of recordings; it is now m\.json\."):
        assert recordings.load("speed", measure) == []
    assert (own_folder / "m.json.corrupt").read_text() == text
    recordings.save("speed", measure, 1, on="m")
    assert len(recordings.load("speed", measure)) == 1


def test_a_failed_write_leaves_the_old_file_and_nothing_else(own_folder, monkeypatch):
    recordings.save("speed", measure, 1, on="m")
    before = (own_folder / "m.json").read_text()
    with pytest.raises(TypeError):
        recordings.save("speed", measure, {1, 2}, on="m")
    monkeypatch.setattr("os.replace", lambda *paths: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        recordings.save("speed", measure, 2, on="m")
    assert (own_folder / "m.json").read_text() == before
    assert [path.name for path in own_folder.iterdir()] == ["m.json"]


def test_a_function_without_source_is_refused_in_words():
    with pytest.raises(ValueError, match="define it in a file or a cell"):
        recordings.source_hash(eval("lambda: 1"))


def test_what_is_published_belongs_to_the_chapters_as_they_stand(monkeypatch):
    """Every recording names its machine, and comes from the function that its chapter measures with today."""
    monkeypatch.delenv("PITFALLS_RECORDINGS", raising=False)
    sources = "\n".join(path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("notebooks/*.py")))
    tree = ast.parse(sources)
    functions = {node.name: ast.get_source_segment(sources, node) for node in tree.body if hasattr(node, "name")}
    measured_by = dict(re.findall(r'recordings\.save\("([\w-]+)", (\w+), ', sources))
    published = sorted(recordings.folder().glob("*.json"))
    assert published
    for path in published:
        for name, entry in json.loads(path.read_text(encoding="utf-8")).items():
            source = hashlib.sha256(functions[measured_by[name]].encode()).hexdigest()[:16]
            assert entry["source"] == source, f"{path.name} was recorded by another version of {measured_by[name]}"
            assert {"cpu", "torch", "date"} <= entry["provenance"].keys() and entry["result"]
