"""The course as a whole: its chapters, what each needs, building its files, and running it.

Hand-written sources are `notebooks/NN_slug.py` and `solutions/NN_slug.py`. Everything else is made from them:
`build` writes exercises (answers cut out) and notebooks, `start` makes the learner's copies, `run` executes
chapters through papermill and reads the claims out of the executed notebooks.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from . import claims, machine, predictions, state, verdicts
from .display import FIGURE_MIME, MIME
from .files import write_atomically
from .sessions import child_environment

LIVE, STAND_IN, IN_PART, BLOCKED = "live", "stand-in", "in part", "blocked"
CHAPTER_TIMEOUT_S = 900
_MEMORY_NEEDED = 1_500_000_000


@dataclass(frozen=True)
class Chapter:
    """One chapter: number, slug (the name of all its files), title, symptom, minutes of work, and its needs.

    Attributes:
        gpu: what happens without a GPU: "live" (nothing is missing), or "stand-in".
        compiler: a C++ compiler adds cells.
        packages: packages beyond the base install that a section of the chapter needs.
    """

    number: int
    slug: str
    title: str
    pitfall: str
    minutes: int
    gpu: str = LIVE
    compiler: bool = False
    packages: tuple[str, ...] = ()


CHAPTERS = (
    Chapter(1, "01_graphs_and_no_grad", "Graphs and no_grad", "memory climbs although nothing trains", 50),
    Chapter(2, "02_cudnn_autotuning", "cuDNN autotuning", "the flag is set and nothing changes", 45),
    Chapter(3, "03_jit_compilation", "JIT compilation", "a traced model lies in silence", 50, compiler=True),
    Chapter(4, "04_cpu_vs_gpu", "CPU vs GPU", "a bill, and a benchmark that cannot be true", 50),
    Chapter(5, "05_batching", "Batching", "bigger batches stop paying, and padding leaks in", 50),
    Chapter(6, "06_tensor_shapes", "Tensor shapes", "scrambled data, and no error", 50),
    Chapter(7, "07_loss_dtypes", "Loss dtypes", "a loss that looks fine and does not learn", 45),
    Chapter(8, "08_weight_init", "Weight init", "a deep net that does not start", 50, packages=("scikit-learn",)),
    Chapter(9, "09_device_moves", "Device moves", "half a model stays behind", 50, gpu=STAND_IN),
)


class CourseError(Exception):
    """Something about the course cannot be done; the message says what and what to do next."""


def chapter(name: str | int) -> Chapter:
    """Find a chapter by number (1, "01") or slug.

    Raises:
        CourseError: there is no such chapter; the message names the near ones.
    """
    text = str(name).strip()
    for entry in CHAPTERS:
        if text in (entry.slug, str(entry.number), f"{entry.number:02d}"):
            return entry
    slugs = [entry.slug for entry in CHAPTERS]
    near = difflib.get_close_matches(text, slugs + [entry.title for entry in CHAPTERS], n=3, cutoff=0.3)
    raise CourseError(f"there is no chapter {text!r}; near ones: {', '.join(near or slugs)}")


def root() -> Path:
    """The course's folder: the checkout this package lies in, or the nearest one above the working folder.

    Raises:
        CourseError: neither is there.
    """
    here = Path(__file__).resolve().parents[2]
    for folder in (here, Path.cwd(), *Path.cwd().parents):
        if (folder / "notebooks").is_dir() and (folder / "solutions").is_dir():
            return folder
    raise CourseError("the course's notebooks are not here: run this inside a clone of its repository")


# --- what runs live here ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Readiness:
    """What one chapter can do on this machine."""

    chapter: Chapter
    state: str
    notes: tuple[str, ...]


def readiness(entry: Chapter) -> Readiness:
    """Say how much of a chapter runs live here, and what to install for the rest; runs nothing of it."""
    notes, level = [], LIVE
    problem = machine.unsupported()
    if problem:
        return Readiness(entry, BLOCKED, (problem,))
    missing = [name for name in entry.packages if not _installed(name)]
    if missing:
        notes.append(f"a section is left out: pip install {' '.join(missing)}")
    accelerators = machine.accelerators()
    if entry.gpu == STAND_IN and not accelerators:
        from .devices import second_device

        device = second_device()
        level = STAND_IN if device else IN_PART
        without = f"no second device ({device.reason}): what needs one is not testable here"
        notes.append(device.reason if device else without)
    elif "cuda" not in accelerators:
        notes.append("no CUDA device: a cell that needs one says so")
    if entry.compiler and machine.cxx_compiler() is None:
        notes.append("no C++ compiler: cells that generate machine code are skipped (install g++ or clang)")
    if machine.memory_limit() < _MEMORY_NEEDED:
        notes.append(f"only {machine.memory_limit() / 1e9:.1f} GB of memory: close other programs")
    if machine.usable_cores() < 1:
        notes.append(f"a CPU limit of {machine.usable_cores():.2f} cores: measurements will be noisy")
    return Readiness(entry, level, tuple(notes))


def _installed(package: str) -> bool:
    from importlib import metadata

    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


_opened: dict[str, object] = {}


def preflight(
    chapter_name: str | int,
    budget_s: float = 2.0,
    device: str = "auto",
    record: bool = False,
    fast: bool = False,
) -> None:
    """Open a chapter: take its parameters as defaults for the measurements, and print what runs live here.

    Args:
        budget_s: seconds that one comparison may take.
        device: "auto", "cpu" or "cuda".
        record: write results to recordings/, for readers without this machine.
        fast: small budgets, for a quick look and for CI.
    """
    entry = chapter(chapter_name)
    machine.settings.budget_s, machine.settings.device = budget_s, device
    machine.settings.record, machine.settings.fast = record, fast
    predictions.forget()
    _opened["state"] = state.snapshot()
    ready = readiness(entry)
    print(f"Chapter {entry.number}, {entry.title}: {ready.state} on this machine.")
    for note in ready.notes:
        print(f"  {note}")


def wrap_up() -> None:
    """Close a chapter: score the predictions, and report and undo global state that it left changed."""
    predictions.calibration()
    before = _opened.pop("state", None)
    if before is None:
        return
    leaked = state.leaks(before)
    state.restore(before)
    for leak in leaked:
        print(f"Left changed, now put back: {leak}")
    if not leaked:
        print("Global state: as it was found.")


# --- building exercises and notebooks --------------------------------------------------------------------

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


def build(folder: Path | None = None, execute: Iterable[Chapter] = (), say: Callable = print) -> list[Path]:
    """Write the generated files that changed, of the given chapters or of all; execute the given ones.

    Gives the paths written.
    """
    import nbformat

    folder, execute = folder or root(), list(execute)
    written = []
    for path, content in generated(folder, execute).items():
        if not path.exists() or path.read_text(encoding="utf-8") != content:
            write_atomically(path, content)
            written.append(path)
    for entry in execute:
        path = folder / "notebooks" / f"{entry.slug}.py"
        if not path.exists():
            raise CourseError(f"{path.name} does not exist yet")
        say(f"executing {path.name}")
        notebook = execute_source(path.read_text(encoding="utf-8"), entry.slug)
        target = path.with_suffix(".ipynb")
        write_atomically(target, nbformat.writes(notebook) + "\n")
        written.append(target)
    return written


def execute_source(source: str, name: str) -> dict:
    """Execute a chapter's source in a fresh kernel and give the notebook with its outputs.

    Raises:
        CourseError: a cell raised; the message has its source and error.
    """
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    notebook = to_notebook(source, name)
    client = NotebookClient(
        notebook, timeout=CHAPTER_TIMEOUT_S, kernel_name="python3", record_timing=False, allow_stdin=False
    )
    try:
        client.execute(env=child_environment())
    except CellExecutionError as error:
        raise CourseError(f"{name}: {error}") from None
    notebook.metadata["language_info"] = {"name": "python"}
    return notebook


# --- the learner's copies --------------------------------------------------------------------------------


def start(target: Path | None = None, folder: Path | None = None) -> Iterator[tuple[str, Path]]:
    """Copy the glossary, chapters and exercises into `work/`, and never overwrite a learner's file.

    Yields (what, path): "made", "kept" (same as before, or edited and no newer version) or "new version"
    (placed beside the learner's file as NAME.new.ipynb, or under a free name of that kind).
    """
    folder = folder or root()
    target = target or folder / "work"
    shipped_path = target / ".shipped.json"
    shipped = _read_json(shipped_path)
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


def _read_json(path: Path) -> dict:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


# --- running chapters ------------------------------------------------------------------------------------


@dataclass
class ChapterRun:
    """How the run of one chapter went.

    Attributes:
        status: "finished", "kept" (from an interrupted run) or "failed".
        seconds: how long it took, start of the kernel included.
        verdicts: the data of every claim card in the executed notebook.
        figures: the alt texts of its figures.
        error: for a failed chapter, its last lines.
    """

    chapter: Chapter
    status: str
    seconds: float
    notebook: Path
    verdicts: list[dict]
    figures: list[str]
    error: str = ""


def run(
    chapters: Iterable[Chapter],
    fast: bool = False,
    jobs: int = 1,
    resume: bool = False,
    out: Path | None = None,
    parameters: dict[str, object] | None = None,
    on_done: Callable[[ChapterRun], None] = lambda result: None,
) -> list[ChapterRun]:
    """Execute chapters through papermill, each in a process of its own, and read their claims.

    Args:
        jobs: chapters at a time; more than one makes the measurements noisier.
        resume: keep the chapters that an interrupted run of the same sources has finished. A run that was
            not interrupted leaves nothing to keep.
        out: folder of the executed notebooks, by default build/course.
        parameters: further notebook parameters, such as budget_s.
        on_done: called with each result as it arrives.
    """
    folder = root()
    out = out or folder / "build" / "course"
    out.mkdir(parents=True, exist_ok=True)
    chosen = list(chapters)
    values = {"fast": fast, **(parameters or {})}
    journal_path = out / "unfinished.json"
    journal = _read_json(journal_path) if resume else {}
    keys = {entry.slug: _run_key(folder, entry, values) for entry in chosen}
    done: dict[int, ChapterRun] = {}

    def one(entry: Chapter) -> ChapterRun:
        target = out / f"{entry.slug}.ipynb"
        if journal.get(entry.slug, {}).get("key") == keys[entry.slug] and target.exists():
            return _read_run(entry, "kept", journal[entry.slug]["seconds"], target)
        return _execute(folder, entry, target, values)

    finished = {slug: note for slug, note in journal.items() if slug in {c.slug for c in chosen}}
    with ThreadPoolExecutor(max(1, jobs)) as pool:
        futures = {pool.submit(one, entry): entry for entry in chosen}
        try:
            for future in as_completed(futures):
                result = future.result()
                done[result.chapter.number] = result
                if result.status != "failed":
                    slug = result.chapter.slug
                    finished[slug] = {"key": keys[slug], "seconds": result.seconds}
                    write_atomically(journal_path, json.dumps(finished, indent=1))
                on_done(result)
        except BaseException:  # Ctrl-C above all: the pool would run every chapter that waits before it ends
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    results = [done[number] for number in sorted(done)]
    if all(result.status != "failed" for result in results):
        journal_path.unlink(missing_ok=True)  # complete: the next run measures anew
    return results


def _run_key(folder: Path, entry: Chapter, values: dict) -> str:
    """A digest of all that decides a chapter's outcome but the machine's mood."""
    import torch

    digest = hashlib.sha256(json.dumps([values, torch.__version__, sys.version], sort_keys=True).encode())
    package = Path(__file__).resolve().parent
    sources = [folder / "notebooks" / f"{entry.slug}.py", *package.glob("*.py"), package / "claims.toml"]
    for path in sorted(sources):
        digest.update(path.read_bytes() if path.exists() else b"missing")
    return digest.hexdigest()


def _execute(folder: Path, entry: Chapter, target: Path, values: dict) -> ChapterRun:
    import nbformat

    source_path = folder / "notebooks" / f"{entry.slug}.py"
    if not source_path.exists():
        return ChapterRun(entry, "failed", 0.0, target, [], [], f"{source_path.name} does not exist yet")
    notebook = to_notebook(source_path.read_text(encoding="utf-8"), entry.slug)
    input_path = target.with_suffix(".input.ipynb")
    part = target.with_suffix(".part.ipynb")
    write_atomically(input_path, nbformat.writes(notebook))
    command = [sys.executable, "-m", "papermill", str(input_path), str(part), "--no-progress-bar"]
    command += ["-k", "python3", "--execution-timeout", str(CHAPTER_TIMEOUT_S), "--cwd", str(folder)]
    for name, value in values.items():
        command += ["-p", name, str(value)]
    environment = child_environment(PITFALLS_RETRY_NOISY=os.environ.get("PITFALLS_RETRY_NOISY", "1"))
    began = time.monotonic()
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - began
    input_path.unlink(missing_ok=True)
    if process.returncode:
        error = "\n".join(process.stderr.strip().splitlines()[-12:])
        return ChapterRun(entry, "failed", seconds, part, [], [], error)
    os.replace(part, target)
    return _read_run(entry, "finished", seconds, target)


def _read_run(entry: Chapter, status: str, seconds: float, path: Path) -> ChapterRun:
    cards, figures = read_outputs(path)
    return ChapterRun(entry, status, seconds, path, cards, figures)


def read_outputs(path: Path) -> tuple[list[dict], list[str]]:
    """Read the claim cards and the figures' alt texts out of an executed notebook."""
    cards, figures = [], []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if MIME.format(kind="claim") in data:
                cards.append(data[MIME.format(kind="claim")])
            if FIGURE_MIME in data:
                figures.append(data[FIGURE_MIME]["alt"])
    return cards, figures


def summary(results: Iterable[ChapterRun]) -> dict:
    """The run as data: per chapter its status, seconds and figures; per claim its verdict and evidence."""
    results = list(results)
    decided = {card["id"]: card for result in results for card in result.verdicts}
    numbers = {result.chapter.slug for result in results}
    expected = [c for c in claims.all_claims().values() if c.chapter in numbers]
    return {
        "machine": machine.provenance(),
        "chapters": [
            {
                "number": result.chapter.number,
                "slug": result.chapter.slug,
                "status": result.status,
                "seconds": round(result.seconds, 1),
                "notebook": str(result.notebook),
                "figures": len(result.figures),
                "error": result.error,
            }
            for result in results
        ],
        "claims": [
            {
                "id": entry.id,
                "statement": entry.statement,
                "ruling": entry.ruling,
                "verdict": decided.get(entry.id, {}).get("verdict", "not decided"),
                "parts": decided.get(entry.id, {}).get("parts", {}),
            }
            for entry in expected
        ],
        "counts": {v: sum(c["verdict"] == v for c in decided.values()) for v in verdicts.VERDICTS},
    }


def course_map() -> str:
    """The table of chapters for the README, in Markdown."""
    lines = ["| chapter | the pitfall | minutes | without a GPU |", "| --- | --- | --- | --- |"]
    for entry in CHAPTERS:
        where = "stand-in" if entry.gpu == STAND_IN else "live"
        name = f"[{entry.number} {entry.title}](notebooks/{entry.slug}.ipynb)"
        lines.append(f"| {name} | {entry.pitfall} | {entry.minutes} | {where} |")
    return "\n".join(lines)
