"""What the course's machinery costs: importing it, checking an exercise, and running a chapter as a notebook.

    python benchmarks/overheads.py [--json FILE] [--repeats N] [--chapter NN]

Each figure is a difference or a ratio of runs made side by side, in random order, in fresh processes where that
matters. Prints one table.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))


def seconds(command: list[str]) -> float:
    """Run a command and give its wall time; a command that fails ends the benchmark."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PITFALLS_ASK": "0", "PYTHONPATH": str(ROOT / "src")}
    began = time.perf_counter()
    subprocess.run(command, check=True, env=environment, cwd=ROOT, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def interleave(variants: dict[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """Run every variant once a round, in random order; give the seconds of each."""
    times: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(repeats):
        for name in random.sample(list(variants), len(variants)):
            times[name].append(variants[name]())
    return times


IMPORT = "import time, torch; t = time.perf_counter(); {}; print(time.perf_counter() - t)"


def import_cost(repeats: int) -> list[dict]:
    """Seconds that `import helpers` and the names of a notebook add after `import torch`."""
    statements = {
        "import helpers": "import helpers",
        "the names a chapter imports": "from helpers import compare, claim, predict, check, evidence",
    }
    rows = []
    for name, statement in statements.items():
        found = []
        for _ in range(repeats):
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
            code = [sys.executable, "-c", IMPORT.format(statement)]
            done = subprocess.run(code, check=True, capture_output=True, text=True, env=environment)
            found.append(float(done.stdout))
        rows.append(row(f"{name}, after import torch", found, "s", "under 0.1"))
    return rows


def check_latency(repeats: int) -> list[dict]:
    """Seconds from `check` to its result for each exercise's solution, in this process, first call apart."""
    from helpers.exercise.answers import load_learner
    from helpers.exercise.declare import PASSED
    from helpers.exercise.finding import exercises_of
    from helpers.exercise.ladder import run_checks
    from helpers.exercise.sessions import LocalSession
    from helpers.lesson.chapters import CHAPTERS

    rows = []
    for entry in CHAPTERS:
        path = ROOT / "solutions" / f"{entry.slug}.py"
        if not path.exists():
            continue
        session = LocalSession(load_learner(path))
        for exercise in exercises_of(entry.number):
            found = []
            for _ in range(repeats + 1):
                began = time.perf_counter()
                report = run_checks(exercise, session)
                found.append(time.perf_counter() - began)
                if report.state != PASSED:
                    raise SystemExit(f"{exercise.id} does not pass:\n{report.to_text()}")
            first, *later = found
            rows.append(row(f"check {exercise.id} (first call {first:.2f} s)", later, "s", "well under 1"))
    return rows


def notebook_cost(chapter: str, repeats: int) -> list[dict]:
    """A chapter through papermill against the same file as a plain script, both with `fast`."""
    from helpers.lesson.chapters import chapter as find_chapter

    entry = find_chapter(chapter)
    source = (ROOT / "notebooks" / f"{entry.slug}.py").read_text(encoding="utf-8")
    build = ROOT / "build" / "overheads"
    build.mkdir(parents=True, exist_ok=True)
    script = build / f"{entry.slug}.py"
    script.write_text(source.replace("fast: bool = False", "fast: bool = True"), encoding="utf-8")
    times = interleave(
        {
            "script": lambda: seconds([sys.executable, str(script)]),
            "papermill": lambda: seconds(
                [sys.executable, "-m", "helpers.cli", "run", chapter, "--fast", "--out", str(build)]
            ),
        },
        repeats,
    )
    ratios = [b / a for a, b in zip(times["script"], times["papermill"], strict=True)]
    return [
        row(f"chapter {chapter} as a script, fast", times["script"], "s"),
        row(f"chapter {chapter} through papermill, fast", times["papermill"], "s"),
        row("papermill / script, within a round", ratios, "x"),
    ]


def row(what: str, values: list[float], unit: str, wanted: str = "") -> dict:
    """One line of the table: median and extremes."""
    low, high = min(values), max(values)
    return {"what": what, "median": statistics.median(values), "low": low, "high": high, "unit": unit, "want": wanted}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="runs of each (default: 5)")
    parser.add_argument("--chapter", default="01", help="the chapter that is run (default: 01)")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    options = parser.parse_args()
    if options.repeats < 1:
        parser.error("--repeats must be at least 1")
    rows = import_cost(options.repeats)
    rows += check_latency(options.repeats)
    rows += notebook_cost(options.chapter, max(1, options.repeats // 2))
    print(f"{'what':<52} {'median':>9} {'lowest':>9} {'highest':>9}     wanted")
    for line in rows:
        numbers = " ".join(f"{line[key]:>9.3f}" for key in ("median", "low", "high"))
        print(f"{line['what']:<52} {numbers} {line['unit']:<3} {line['want']}")
    if options.json:
        from helpers.measure import machine

        options.json.write_text(json.dumps({"rows": rows, "machine": machine.provenance()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
