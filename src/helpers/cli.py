"""The `pitfalls` command: start, run, check, doctor, build, progress, dev.

`pitfalls check` and `pitfalls run` are a public interface: their exit codes and JSON stay as they are.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from .files import write_atomically

app = typer.Typer(
    help="PyTorch Pitfalls, measured.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

PASSED, FAILED, NOT_ATTEMPTED, NOT_RUN = 0, 1, 2, 3
_EXIT_CODES = {"passed": PASSED, "failed": FAILED, "not attempted": NOT_ATTEMPTED, "not testable here": NOT_RUN}


def main() -> None:
    """Entry point: one line instead of a traceback for what the course knows how to say."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a learner's text may hold what the terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    try:
        from .measure import machine
    except ImportError as error:
        print(f"pitfalls: {error}. Install the course first: pip install -e .", file=sys.stderr)
        sys.exit(NOT_RUN)
    problem = machine.unsupported()
    if problem and "doctor" not in sys.argv[1:2]:
        print(f"pitfalls: {problem}", file=sys.stderr)
        sys.exit(NOT_RUN)
    from .exercise.declare import UnknownExerciseError
    from .files import CourseError

    # A command line that cannot be understood ran nothing; 2, its usual code, means "not attempted" here.
    usage_error: Any = typer.BadParameter.__base__
    usage_error.exit_code = NOT_RUN
    try:
        app()
    except (CourseError, UnknownExerciseError, OSError) as error:
        print(f"pitfalls: {error}", file=sys.stderr)
        sys.exit(NOT_RUN)


@app.command()
def start(
    target: Annotated[Path | None, typer.Option("--to", help="Folder of your copies; by default work/.")] = None,
) -> None:
    """Make your own copies of chapters, exercises and the glossary; never overwrites a file of yours."""
    from .course import copies
    from .files import checkout

    counts: Counter[str] = Counter()
    for what, path in copies.start(target):
        if what == "new version":
            print(f"{path.name}: a newer version, beside your own file")
        counts[what] += 1
    made, where = counts["made"], target or checkout() / "work"
    print(f"{made} files made in {where}; {counts.total() - made} were there and stay as they are.")


@app.command()
def run(
    chapters: Annotated[list[str] | None, typer.Argument(help="Numbers or slugs; by default all.")] = None,
    fast: Annotated[bool, typer.Option("--fast", help="Small budgets: a quick look.")] = False,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Chapters at a time; 1 measures best.")] = 1,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the report here.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Keep what an interrupted run finished.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Folder of the executed notebooks.")] = None,
) -> None:
    """Execute chapters and print the claims report. Exit code 1 if a chapter failed."""
    from rich.console import Console
    from rich.progress import Progress

    from .course import report, run
    from .course.build import written_chapters
    from .files import CourseError, checkout
    from .lesson.chapters import chapter

    chosen = [chapter(name) for name in chapters] if chapters else written_chapters(checkout())
    if importlib.util.find_spec("papermill") is None:
        raise CourseError('running chapters needs more packages: pip install -e ".[run]"')
    screen = Console(stderr=True, highlight=False, soft_wrap=True)
    with Progress(console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task("chapters", total=len(chosen))

        def tell(result: report.ChapterRun) -> None:
            bar.advance(task)
            screen.print(f"{result.chapter.slug}: {result.status}, {result.seconds:.0f} s", markup=False)

        try:
            results = run.run(chosen, fast=fast, jobs=jobs, resume=resume, out=out, on_done=tell)
        except KeyboardInterrupt:  # typer would end without a word
            screen.print("pitfalls: interrupted; --resume keeps the chapters that finished", markup=False)
            raise typer.Exit(130) from None
    outcome = report.summary(results)
    _print_report(outcome)  # first: what took minutes is shown even where the file cannot be written
    if json_file:
        write_atomically(json_file, json.dumps(outcome, indent=1) + "\n")
    if any(result.status == "failed" for result in results):
        raise typer.Exit(FAILED)


def _print_report(report: dict) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 120)
    table = Table("claim", "what the article says", "ruling", "on this machine", title="Claims")
    for entry in report["claims"]:
        table.add_row(entry["id"], entry["statement"], entry["ruling"], entry["verdict"])
    console.print(table)
    for entry in report["chapters"]:
        if entry["status"] == "failed":
            console.print(f"{entry['slug']} failed:\n{entry['error']}", markup=False, highlight=False)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in report["counts"].items() if count)
    machine = report["machine"]
    console.print(f"{counts or 'no claim decided'}", highlight=False)
    console.print(f"{machine.get('cpu')}, torch {machine.get('torch')}, {machine.get('date')}", highlight=False)


@app.command()
def check(
    exercise: Annotated[str, typer.Argument(help="The exercise, such as 1.2.")],
    answer: Annotated[Path, typer.Option("--answer", help="A .py or .ipynb file that holds the answer.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, max=(1 << 31) - 1, help="Draw the hidden cases of an earlier check again."),
    ] = None,
) -> None:
    """Check one exercise in a file, in a process of its own.

    Exit code: 0 passed, 1 failed, 2 not attempted, 3 could not be run, or not every check of it on this machine.
    """
    from .exercise.answers import read_cells
    from .exercise.declare import UnknownExerciseError
    from .exercise.finding import find_exercise
    from .exercise.ladder import run_checks
    from .exercise.sessions import open_answer

    try:
        entry = find_exercise(exercise)
        read_cells(answer)
    except (UnknownExerciseError, OSError, ValueError) as error:
        _not_run(exercise, str(error), as_json)
    with open_answer(answer) as session:
        report = run_checks(entry, session, seed=seed)
    if report.reason == "missing":
        _not_run(exercise, report.message, as_json)
    print(json.dumps(report.to_data(), indent=1) if as_json else report.to_text())
    raise typer.Exit(_EXIT_CODES[report.state])


def _not_run(exercise: str, reason: str, as_json: bool) -> None:
    if as_json:
        print(
            json.dumps({"exercise": exercise, "state": "could not be run", "message": reason, "checks": []}, indent=1)
        )
    else:
        print(f"pitfalls: {reason}", file=sys.stderr)
    raise typer.Exit(NOT_RUN)


@app.command()
def doctor() -> None:
    """Say for each chapter what runs live here, and what to install for the rest; runs nothing."""
    from .lesson.chapters import BLOCKED, CHAPTERS
    from .lesson.opening import readiness
    from .measure import machine

    problem = machine.unsupported()
    if problem:
        print(problem)
    facts = machine.provenance()
    print(f"{facts.get('cpu')}, {machine.usable_cores():g} usable cores, {machine.memory_limit() / 1e9:.1f} GB")
    print(f"torch {facts.get('torch')}, Python {facts.get('python')}, GPU: {facts.get('gpu') or 'none'}")
    print(f"C++ compiler: {machine.cxx_compiler() or 'none'}")
    blocked = False
    for entry in CHAPTERS:
        ready = readiness(entry)
        blocked |= ready.state == BLOCKED
        print(f"{entry.number}  {entry.title:<20} {ready.state:<9} {'; '.join(ready.notes)}")
    raise typer.Exit(FAILED if blocked else PASSED)


@app.command()
def build(
    chapters: Annotated[list[str] | None, typer.Argument(help="Chapters to execute into their notebooks.")] = None,
    execute_all: Annotated[bool, typer.Option("--all", help="Execute every chapter.")] = False,
) -> None:
    """Regenerate exercises and notebooks from their sources, for authors."""
    from .course import build as building
    from .files import checkout
    from .lesson.chapters import chapter

    folder = checkout()
    chosen = building.written_chapters(folder) if execute_all else [chapter(name) for name in chapters or ()]
    for path in building.build(folder, chosen):
        print(f"wrote {path.relative_to(folder)}")
    if building.update_map(folder / "README.md"):
        print("wrote README.md")


@app.command()
def progress(
    chapter: Annotated[int | None, typer.Argument(help="A chapter's number; by default all.")] = None,
    reset: Annotated[str | None, typer.Option("--reset", help="Forget one exercise, such as 1.2.")] = None,
) -> None:
    """Show which exercises have passed, or forget one."""
    from .exercise import learner

    if reset is not None:
        learner.reset_progress(reset)
        print(f"{reset}: forgotten.")
        return
    learner.progress(chapter)


dev = typer.Typer(help="For authors.", no_args_is_help=True)
app.add_typer(dev, name="dev")


@dev.command("check")
def check_exercise(
    exercise: Annotated[str, typer.Argument(help="The exercise, such as 5.2.")],
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How often to draw the hidden cases.")] = 3,
) -> None:
    """Check an exercise itself: its blank, solution, answer bank and beliefs, each on several seeds.

    Exit code: 0 if every answer is told what it must be, 1 if one is not or something is missing.
    """
    from rich.console import Console
    from rich.progress import track

    from .course.bank import answers, complaints, mimics
    from .course.build import generated
    from .devices import second_device
    from .exercise.finding import find_exercise
    from .files import checkout, read_text
    from .lesson.chapters import chapter

    second_device()  # a stand-in must be there before the first backward pass
    entry, folder, began = find_exercise(exercise), checkout(), time.monotonic()
    stale = [path for path, text in generated(folder, [chapter(entry.chapter)]).items() if read_text(path) != text]
    problems = ["run `pitfalls build`: exercises/ is not what solutions/ gives"] if stale else []
    problems += complaints(entry, folder, range(seeds))
    asked = [*answers(entry, folder), *mimics(entry, folder)]
    screen = Console(stderr=True)
    for answer in track(asked, "answers", console=screen, transient=True, disable=not screen.is_terminal):
        reports = [answer.check(entry, seed) for seed in range(seeds)]
        wrong = [(told, report) for report in reports if (told := answer.wrong_about(report))]
        if wrong:  # the first tells enough
            told, report = wrong[0]
            problems.append(f"{told}\n{textwrap.indent(report.to_text(), '    ')}")
    print(*problems, sep="\n", end="\n" * bool(problems))
    took = time.monotonic() - began
    print(f"{entry.id}: {len(asked)} answers on {seeds} seeds, {len(problems)} complaints, {took:.0f} s")
    raise typer.Exit(FAILED if problems else PASSED)


if __name__ == "__main__":
    main()
