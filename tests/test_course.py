"""The course's files and its command: building, copying, running, checking, and their bad input."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from helpers import files
from helpers.course import build as building
from helpers.course import copies
from helpers.course import report as run_report
from helpers.course import run as running
from helpers.files import CourseError, write_atomically
from helpers.lesson import chapters, opening

ROOT = Path(__file__).resolve().parents[1]


def pitfalls(*args: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src"), **environment}
    command = [sys.executable, "-m", "helpers.cli", *args]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env, timeout=300, check=False)


# --- building --------------------------------------------------------------------------------------------

SOURCE = """\
# %% [markdown]
# # Exercises
#
# ## 1.1 First
# %%
def f(x):
    ### BEGIN SOLUTION
    y = x
    return y
    ### END SOLUTION
# %% [markdown]
# ## 1.2 Second
# %%
class G:
    def h(self):
        ### BEGIN SOLUTION
        return 1
        ### END SOLUTION
"""


def test_blank_cuts_answers_and_names_the_exercise():
    empty = building.blank(SOURCE)
    assert '    raise NotImplementedError("Exercise 1.1 is yours to write")\n' in empty
    assert '        raise NotImplementedError("Exercise 1.2 is yours to write")\n' in empty
    assert "return" not in empty and "SOLUTION" not in empty
    compile(empty, "blank", "exec")


@pytest.mark.parametrize(
    "source",
    [SOURCE.replace("### END SOLUTION", "", 1), SOURCE.replace("# ## 1.1 First", "#"), "x = 1\n"],
    ids=["no end", "no heading", "no answer"],
)
def test_a_malformed_solutions_file_is_refused(source):
    with pytest.raises(CourseError, match="bad.py"):
        building.blank(source, "bad.py")


def test_notebooks_come_out_the_same_every_time():
    one, two = (building.to_notebook(SOURCE, "name") for _ in range(2))
    assert one == two
    ids = [cell["id"] for cell in one.cells]
    assert len(set(ids)) == len(ids)


def test_an_unknown_chapter_names_near_ones():
    assert chapters.chapter("1") is chapters.chapter("01") is chapters.chapter("01_graphs_and_no_grad")
    with pytest.raises(CourseError, match="05_batching"):
        chapters.chapter("batching")
    with pytest.raises(CourseError, match="01_graphs"):
        chapters.chapter("17")


# --- the learner's copies --------------------------------------------------------------------------------


@pytest.fixture
def tiny(tmp_path):
    """A course of one chapter, so that its files can be changed."""
    import nbformat

    for kind in ("notebooks", "exercises", "solutions"):
        (tmp_path / kind).mkdir()
        notebook = building.to_notebook("# %% [markdown]\n# # Title\n# %%\nprint(1)\n", kind)
        nbformat.write(notebook, tmp_path / kind / "01_graphs_and_no_grad.ipynb")
    return tmp_path


def copy_into(folder: Path) -> dict[str, str]:
    return {path.name: what for what, path in copies.start(folder=folder)}


def test_start_makes_copies_without_outputs_or_pairing(tiny):
    made = copy_into(tiny)
    assert made == {
        "01_graphs_and_no_grad.ipynb": "made",
        "01_exercises.ipynb": "made",
    }
    for path in (tiny / "work").glob("*.ipynb"):
        notebook = json.loads(path.read_text())
        assert "jupytext" not in notebook["metadata"]
        assert all(not cell.get("outputs") for cell in notebook["cells"])


def test_copies_reach_the_glossary_beside_them(tiny):
    import nbformat

    (tiny / "docs").mkdir()
    (tiny / "docs" / "glossary.md").write_text('<a id="view"></a>\n**view** (1): ...\n')
    source = "# %% [markdown]\n# A note.\n#\n# A [view](../docs/glossary.md#view) reads.\n"
    nbformat.write(building.to_notebook(source, "x"), tiny / "notebooks" / "01_graphs_and_no_grad.ipynb")
    assert copy_into(tiny)["glossary.md"] == "made"
    assert (tiny / "work" / "glossary.md").read_text() == (tiny / "docs" / "glossary.md").read_text()
    copy = (tiny / "work" / "01_graphs_and_no_grad.ipynb").read_text()
    assert "[view](glossary.md#view)" in copy and "../docs" not in copy
    (tiny / "docs" / "glossary.md").write_text("a later edition")
    assert copy_into(tiny)["glossary.new.md"] == "new version"


def test_start_never_overwrites_a_learner_s_work(tiny):
    copy_into(tiny)
    mine = tiny / "work" / "01_graphs_and_no_grad.ipynb"
    mine.write_text(mine.read_text().replace("print(1)", "print(2)"))
    before = mine.read_text()
    assert set(copy_into(tiny).values()) == {"kept"}
    shipped = tiny / "notebooks" / "01_graphs_and_no_grad.ipynb"
    shipped.write_text(shipped.read_text().replace("print(1)", "print(3)"))
    assert copy_into(tiny)["01_graphs_and_no_grad.new.ipynb"] == "new version"
    assert mine.read_text() == before
    assert "print(3)" in (tiny / "work" / "01_graphs_and_no_grad.new.ipynb").read_text()
    assert set(copy_into(tiny).values()) == {"kept"}, "an announced version is not announced again"


def test_start_never_overwrites_work_in_a_newer_version(tiny):
    copy_into(tiny)
    shipped = tiny / "notebooks" / "01_graphs_and_no_grad.ipynb"
    newer = tiny / "work" / "01_graphs_and_no_grad.new.ipynb"
    for edition in ("print(2)", "print(3)"):
        shipped.write_text(re.sub(r"print\(\d\)", edition, shipped.read_text()))
        assert copy_into(tiny)[newer.name] == "new version", "an untouched one makes way for the next"
    newer.write_text(newer.read_text().replace("print(3)", "my answer"))
    shipped.write_text(shipped.read_text().replace("print(3)", "print(4)"))
    assert copy_into(tiny)["01_graphs_and_no_grad.new2.ipynb"] == "new version"
    assert "my answer" in newer.read_text()


def test_a_file_that_cannot_be_written_whole_leaves_no_part(tmp_path):
    with pytest.raises(UnicodeEncodeError):
        write_atomically(tmp_path / "copy.ipynb", "\ud800")
    assert list(tmp_path.iterdir()) == []


def test_start_survives_a_damaged_record_of_what_was_shipped(tiny):
    copy_into(tiny)
    (tiny / "work" / ".shipped.json").write_text("not json")
    mine = tiny / "work" / "01_graphs_and_no_grad.ipynb"
    mine.write_text("my notes")
    copy_into(tiny)
    assert mine.read_text() == "my notes"


# --- running ---------------------------------------------------------------------------------------------


@pytest.fixture
def runnable(tiny, monkeypatch):
    monkeypatch.setattr(running, "checkout", lambda: tiny)
    body = '# %% tags=["parameters"]\nfast = False\n# %%\nfrom helpers import claim\nclaim("{}").judge(fast, "x")\n'
    (tiny / "notebooks" / "01_graphs_and_no_grad.py").write_text(body.format("1.1"))
    (tiny / "notebooks" / "02_cudnn_autotuning.py").write_text(body.format("2.1"))
    return tiny


def run(**options) -> dict[str, str]:
    chosen = [chapters.chapter(1), chapters.chapter(2)]
    return {r.chapter.slug[:2]: r.status for r in running.run(chosen, **options)}


@pytest.mark.slow
def test_a_run_reads_claims_and_an_interrupted_one_resumes(runnable):
    broken = runnable / "notebooks" / "02_cudnn_autotuning.py"
    good = broken.read_text()
    broken.write_text(good + "# %%\nraise RuntimeError('boom')\n")
    results = running.run([chapters.chapter(1), chapters.chapter(2)], fast=True)
    assert [r.status for r in results] == ["finished", "failed"] and "boom" in results[1].error
    assert results[0].verdicts[0]["verdict"] == "holds"
    broken.write_text(good)
    assert run(fast=True, resume=True) == {"01": "kept", "02": "finished"}
    assert run(fast=True, resume=True) == {"01": "finished", "02": "finished"}, "a complete run leaves nothing to keep"


def test_an_interrupted_run_starts_no_further_chapter(runnable, monkeypatch):
    started = []

    second_may_end = threading.Event()

    def execute(folder, entry, target, values):
        started.append(entry.number)
        if entry.number > 1:
            second_may_end.wait()
        target.write_text('{"cells": []}')
        return run_report.ChapterRun(entry, "finished", 0.0, target, [], [])

    class Pool(ThreadPoolExecutor):
        """Lets the second chapter end once the pool has been told to start no further one."""

        def shutdown(self, wait=True, *, cancel_futures=False):
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            second_may_end.set()
            super().shutdown(wait=wait)

    def stop(result):
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(running, "_execute", execute)
    all_nine = [chapters.chapter(number) for number in range(1, 10)]
    with pytest.raises(KeyboardInterrupt):
        running.run(all_nine, fast=True, on_done=stop)
    assert started in ([1], [1, 2]), "the second may have been under way"
    assert json.loads((runnable / "build" / "course" / "unfinished.json").read_text()).keys() == {all_nine[0].slug}


@pytest.mark.slow
def test_a_changed_chapter_is_not_kept(runnable):
    (runnable / "notebooks" / "02_cudnn_autotuning.py").unlink()
    assert run(fast=True) == {"01": "finished", "02": "failed"}
    assert run(fast=False, resume=True)["01"] == "finished", "other parameters, other run"


@pytest.mark.slow
def test_building_a_chapter_keeps_its_outputs_and_no_times(tiny):
    source = '# %% tags=["parameters"]\nfast = False\n# %%\nprint("seen")\n# %% [markdown]\n# text\n'
    (tiny / "notebooks" / "01_graphs_and_no_grad.py").write_text(source)
    (path,) = [path for path in building.build(tiny, [chapters.chapter(1)]) if path.parent.name == "notebooks"]
    built, plain = json.loads(path.read_text()), building.to_notebook(source, "01_graphs_and_no_grad")
    assert [cell["metadata"] for cell in built["cells"]] == [cell["metadata"] for cell in plain.cells]
    assert built["metadata"] == plain.metadata
    assert [cell.get("execution_count") for cell in built["cells"]] == [1, 2, None]
    assert built["cells"][1]["outputs"][0]["text"] == ["seen\n"]
    (tiny / "notebooks" / "01_graphs_and_no_grad.py").write_text("# %%\n1 / 0\n")
    with pytest.raises(files.CourseError, match="ZeroDivisionError"):
        building.build(tiny, [chapters.chapter(1)])


def test_a_report_says_what_was_not_decided(tmp_path):
    result = run_report.ChapterRun(chapters.chapter(1), "failed", 0.0, tmp_path / "x", [], [], "boom")
    report = run_report.summary([result])
    assert [c["verdict"] for c in report["claims"]] == ["not decided"] * 4
    json.dumps(report)


# --- the command -----------------------------------------------------------------------------------------


def answer(tmp_path: Path, source: str, name: str = "answer.py") -> Path:
    path = tmp_path / name
    path.write_text(source)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "code", "state"),
    [
        ((ROOT / "solutions" / "01_graphs_and_no_grad.py").read_text(encoding="utf-8"), 0, "passed"),
        ("def predict_modes(): return {}", 1, "failed"),
        ("def predict_modes(): raise NotImplementedError", 2, "not attempted"),
        ("x = 1", 3, "could not be run"),
        ("def predict_modes(:", 3, "could not be run"),
    ],
    ids=["passed", "failed", "blank", "missing", "syntax error"],
)
def test_check_answers_by_exit_code_and_json(tmp_path, source, code, state):
    done = pitfalls("check", "1.1", "--answer", str(answer(tmp_path, source)), "--json")
    assert done.returncode == code, done.stderr
    data = json.loads(done.stdout)
    assert data["state"] == state
    if code < 3:
        assert set(data["checks"][0]) == {"name", "points", "state", "misconception", "message", "next_hint"}


@pytest.mark.slow
def test_a_result_is_told_whatever_the_terminal_can_show(tmp_path):
    path = answer(tmp_path, "def predict_modes(): raise ValueError('\\ud800 \\u2713')")
    done = pitfalls("check", "1.1", "--answer", str(path), PYTHONIOENCODING="ascii")
    assert done.returncode == 1 and "ValueError" in done.stdout and not done.stderr


@pytest.mark.slow
def test_check_reads_a_notebook(tmp_path):
    notebook = ROOT / "solutions" / "01_graphs_and_no_grad.ipynb"
    assert pitfalls("check", "1.2", "--answer", str(notebook)).returncode == 0


@pytest.mark.slow
def test_the_command_s_bad_input_is_one_line(tmp_path):
    for args, word in [
        (("check", "1.9", "--answer", str(answer(tmp_path, "x = 1"))), "near ones"),
        (("check", "1.1", "--answer", str(tmp_path / "nowhere.py")), "nowhere.py"),
        (("check", "1.1", "--answer", str(answer(tmp_path, "x", "a.txt"))), "a.txt"),
        (("check", "1.1"), "--answer"),
        (("check", "1.1", "--answer", str(answer(tmp_path, "x = 1")), "--seed", "-1"), "--seed"),
        (("start", "--to", str(answer(tmp_path, "x = 1") / "work")), "answer.py"),
        (("run", "01", "--out", str(answer(tmp_path, "x = 1"))), "answer.py"),
        (("run", "nonsense"), "near ones"),
        (("progress", "--reset", "1.77"), "near ones"),
    ]:
        done = pitfalls(*args)
        assert done.returncode == 3 and word in done.stderr and "Traceback" not in done.stderr, (args, done.stderr)


@pytest.mark.slow
def test_doctor_says_per_chapter_what_runs_here(tmp_path):
    done = pitfalls("doctor", PITFALLS_HOME=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    for entry in chapters.CHAPTERS:
        assert entry.title in done.stdout
    assert "live" in done.stdout


def test_readiness_covers_every_lack(monkeypatch):
    from helpers.measure import machine

    entry = chapters.Chapter(3, "03_jit_compilation", "JIT", "", 1, compiler=True, packages=("numpy",))
    monkeypatch.setattr(machine, "cxx_compiler", lambda: None)
    monkeypatch.setattr(machine, "memory_limit", lambda: 500_000_000)
    monkeypatch.setattr(machine, "usable_cores", lambda: 0.5)
    monkeypatch.setattr(machine, "accelerators", list)
    notes = " ".join(opening.readiness(entry).notes)
    assert "compiler" in notes and "memory" in notes and "CPU limit" in notes and "CUDA" in notes
    lacking = chapters.Chapter(3, "x", "x", "", 1, packages=("no-such-package-here",))
    assert opening.readiness(lacking).state == chapters.LIVE, "a section is left out, the chapter runs"
    assert "pip install no-such-package-here" in " ".join(opening.readiness(lacking).notes)
    monkeypatch.setattr(machine, "unsupported", lambda: "torch 1.0 is too old")
    assert opening.readiness(entry).notes == ("torch 1.0 is too old",)


def test_readiness_without_a_second_device_promises_no_recording(monkeypatch):
    from helpers.measure import machine

    monkeypatch.setenv("PITFALLS_SECOND_DEVICE", "none")
    monkeypatch.setattr(machine, "accelerators", list)
    ready = opening.readiness(chapters.chapter(9))
    assert ready.state == "in part" and "not testable here" in ready.notes[0]


def test_wrap_up_reports_and_undoes_what_a_chapter_left(capsys):
    import torch

    opening.preflight("01", fast=True)
    torch.use_deterministic_algorithms(True)
    opening.wrap_up()
    out = capsys.readouterr().out
    assert "deterministic algorithms was" in out and not torch.are_deterministic_algorithms_enabled()


def test_the_readme_s_course_map_is_fresh():
    assert building.course_map() in (ROOT / "README.md").read_text(encoding="utf-8"), "run `make build`"
