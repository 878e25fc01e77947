"""Running chapters: those that an interrupted run finished are kept, the others executed."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from ..files import checkout, package_folder, read_json, write_atomically
from ..lesson.chapters import Chapter
from .build import to_notebook
from .execute import execute
from .report import ChapterRun, read_outputs


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
    folder = checkout()
    out = out or folder / "build" / "course"
    out.mkdir(parents=True, exist_ok=True)
    chosen = list(chapters)
    values = {"fast": fast, **(parameters or {})}
    journal_path = out / "unfinished.json"
    journal = read_json(journal_path) if resume else {}
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
    package = package_folder()
    ours = (path for path in package.rglob("*.py") if path.parent.name != "checks")
    sources = [folder / "notebooks" / f"{entry.slug}.py", *ours, package / "lesson" / "claims.toml"]
    for path in sorted(sources):
        digest.update(path.read_bytes() if path.exists() else b"missing")
    return digest.hexdigest()


def _execute(folder: Path, entry: Chapter, target: Path, values: dict) -> ChapterRun:
    source = folder / "notebooks" / f"{entry.slug}.py"
    if not source.exists():
        return ChapterRun(entry, "failed", 0.0, target, [], [], f"{source.name} does not exist yet")
    notebook = to_notebook(source.read_text(encoding="utf-8"), entry.slug)
    began = time.monotonic()
    problem = execute(notebook, target, folder, values)
    seconds = time.monotonic() - began
    if problem:
        return ChapterRun(entry, "failed", seconds, target.with_suffix(".part.ipynb"), [], [], problem)
    return _read_run(entry, "finished", seconds, target)


def _read_run(entry: Chapter, status: str, seconds: float, path: Path) -> ChapterRun:
    cards, figures = read_outputs(path)
    return ChapterRun(entry, status, seconds, path, cards, figures)
