"""The project around the course: metadata, pins, README, Makefile, files, order of the rooms."""

from __future__ import annotations

import ast
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "helpers"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]

# From the ground up: a room imports only from rooms before it, in its own wing or in wings before that.
HOUSE = {
    "files": "",
    "show": "blocks display",
    "measure": "verdicts machine state clocks rounds intervals comparison timing",
    "evidence": "storage graph operations memory compiling rows modules",
    "devices": "toy second gaps transfers",
    "figures": "canvas comparison graph memory layout charts limits",
    "lesson": "chapters claims predictions recordings opening",
    "exercise": "wire answers limits serving sessions values declare expect contract finding "
    "report ladder records learner",
    "checks": "",
    "course": "copies execute build report run bank",
    "cli": "",
}
ROOMS = [room for wing, rooms in HOUSE.items() for room in [*(f"{wing}.{room}" for room in rooms.split()), wing]]
HEAVY = ["IPython", "jupytext", "matplotlib", "nbformat", "papermill", "scipy", "sklearn"]
MAX_CODE_LINES = 330  # of one file of machinery, without docstrings, comments and blank lines
MAX_BYTES = 2 << 20


def tracked_files() -> list[Path]:
    """Every file that git tracks; skips the test where this is no clone."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git clone")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.is_file()]


# --- metadata and pins ----------------------------------------------------------------------------


def requirements(*extras: str) -> list[Requirement]:
    """The base requirements and those of the extras, with the project's own extras followed."""
    found = [Requirement(text) for text in PROJECT["dependencies"]]
    for extra in extras:
        for text in PROJECT["optional-dependencies"][extra]:
            requirement = Requirement(text)
            if canonicalize_name(requirement.name) == PROJECT["name"]:
                found += requirements(*sorted(requirement.extras))
            else:
                found.append(requirement)
    return found


def pins() -> list[Requirement]:
    """The lines of constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [Requirement(line) for line in lines if line.strip() and not line.startswith("#")]


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13"])
def test_every_requirement_is_pinned_within_its_range(python):
    here = {"python_version": python}
    pinned = {
        canonicalize_name(pin.name): next(iter(pin.specifier)).version
        for pin in pins()
        if pin.marker is None or pin.marker.evaluate(here)
    }
    problems = []
    for requirement in requirements("dev"):
        if requirement.marker is not None and not requirement.marker.evaluate(here):
            continue
        version = pinned.get(canonicalize_name(requirement.name))
        if version is None or version not in requirement.specifier:
            problems.append(f"{requirement}: pinned {version}")
    assert not problems, f"write constraints.txt again with tools/pin.py: {problems}"


def test_pins_are_exact_and_name_no_build():
    for pin in pins():
        (specifier,) = pin.specifier
        assert specifier.operator == "==", pin
        assert "+" not in specifier.version, f"{pin} names one build: resolve without local wheels"
        assert not re.match(r"nvidia-|cuda-|triton", pin.name), f"{pin} belongs to one torch build"


def test_conda_environment_matches_the_project():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    assert environment["name"] == PROJECT["name"]
    assert environment["channels"][0] == "conda-forge"
    *specs, pip_section = environment["dependencies"]
    ranges = dict(text.split() for text in specs)
    assert list(ranges) == ["python", "pip"], "everything but Python and pip comes from pip, at our pins"
    assert SpecifierSet(ranges["python"]) == SpecifierSet(PROJECT["requires-python"])
    options = [shlex.split(line) for line in pip_section["pip"]]
    assert ["-c", "constraints.txt"] in options
    (editable,) = [words[1] for words in options if words[0] == "-e"]
    extras = re.fullmatch(r"\.\[([\w,]+)\]", editable).group(1).split(",")
    assert {"lab", "run"} <= set(extras) <= set(PROJECT["optional-dependencies"])


def test_classifiers_and_lint_target_follow_the_python_range():
    allowed = SpecifierSet(PROJECT["requires-python"])
    named = [line.rsplit(" ", 1)[1] for line in PROJECT["classifiers"] if ":: 3." in line]
    assert named == [f"3.{minor}" for minor in range(20) if f"3.{minor}.1" in allowed]
    assert PYPROJECT["tool"]["ruff"]["target-version"] == "py" + named[0].replace(".", "")


def test_the_changelog_has_a_place_for_what_comes_next():
    assert "\n## [Unreleased]\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


# --- README and Makefile --------------------------------------------------------------------------


def documented_commands() -> list[str]:
    """Every `make …` and `pitfalls …` in the documents' code blocks and spans."""
    commands = []
    for name in ["README.md", "CONTRIBUTING.md"]:
        path = ROOT / name
        if not path.exists():
            continue
        text = path.read_text(encoding="utf-8")
        blocks = re.findall(r"```\w*\n(.*?)```", text, flags=re.S)
        spans = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.S))
        for line in [line for block in blocks for line in block.splitlines()] + spans:
            commands += [part.strip() for part in line.split("&&") if re.match(r"\s*(make|pitfalls) [a-z]", part)]
    return sorted(set(commands))


COMMANDS = documented_commands()


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("make ")])
def test_documented_make_target_exists(command):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^\.PHONY: (.+)$", makefile, flags=re.M).group(1).split()
    variables = set(re.findall(r"^(\w+) \?=", makefile, flags=re.M))
    variables |= set(re.findall(r"\$\((\w+_FLAGS)\)", makefile))
    for word in shlex.split(command, comments=True)[1:]:
        if "=" in word:
            assert word.split("=")[0] in variables, f"the Makefile knows no {word}"
        else:
            assert word in phony, f"the Makefile has no target {word}"


@pytest.mark.parametrize("subcommand", sorted({c.split()[1] for c in COMMANDS if c.startswith("pitfalls ")}))
def test_documented_subcommand_and_its_options_exist(subcommand):
    call = "import sys; from helpers.cli import main; sys.argv[0] = 'pitfalls'; main()"
    shown = subprocess.run(
        [sys.executable, "-c", call, subcommand, "--help"],
        capture_output=True,
        text=True,
        env=environment(COLUMNS="200", TERM="dumb", NO_COLOR="1"),
        timeout=120,
    )
    assert shown.returncode == 0, shown.stdout + shown.stderr
    for command in COMMANDS:
        if command.split()[:2] == ["pitfalls", subcommand]:
            for option in re.findall(r"(?<!\S)--[a-z-]+", command):
                assert option in shown.stdout, f"`{command}`: no {option} in --help"


def test_readme_shows_every_make_target_and_the_layout():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in ["lab", "test", "course", "build", "lint", "bench"]:
        assert f"make {target}" in readme
    layout = re.search(r"## Layout\n+```\n(.*?)```", readme, flags=re.S).group(1)
    for line in layout.splitlines():
        folder = line.split()[0]
        if folder != "work/":
            assert (ROOT / folder).is_dir(), f"README names {folder}, which is not there"


needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="no make here")


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run make in the project, without the outer make's flags."""
    clean = {name: value for name, value in environment().items() if not name.startswith("MAKE")}
    return subprocess.run(["make", *arguments], cwd=ROOT, capture_output=True, text=True, env=clean, timeout=60)


def fake_python(path: Path, *, old: bool = False) -> Path:
    """A stand-in interpreter: too old, or without the venv module."""
    refused = "sys.version_info" if old else "ensurepip"
    path.write_text(
        f'#!/bin/sh\n[ "$1" = -V ] && {{ echo Python 3.9.2; exit 0; }}\ncase "$2" in *{refused}*) exit 1;; esac\n'
    )
    path.chmod(0o755)
    return path


@needs_make
def test_make_says_in_one_line_what_python_it_needs(tmp_path):
    missing = make("lab", f"VENV={tmp_path / 'a'}", "PYTHON=no-such-python")
    old = make("lab", f"VENV={tmp_path / 'b'}", f"PYTHON={fake_python(tmp_path / 'old', old=True)}")
    bare = make("lab", f"VENV={tmp_path / 'c'}", f"PYTHON={fake_python(tmp_path / 'bare')}")
    for result, expected in [
        (missing, "install Python 3.10 to 3.13"),
        (old, "needs Python 3.10 to 3.13, and"),
        (bare, "install its venv module"),
    ]:
        assert result.returncode != 0
        complaint = [line for line in result.stderr.splitlines() if not line.startswith("make")]
        assert len(complaint) == 1 and expected in complaint[0], result.stderr
    assert "Python 3.9.2" in old.stderr


@needs_make
def test_make_installs_again_only_when_something_changed(tmp_path):
    for stamp in [".created", ".extra-lab"]:
        (tmp_path / stamp).touch()
    assert " install " not in make("-n", "lab", f"VENV={tmp_path}").stdout
    os.utime(tmp_path / ".extra-lab", (1, 1))
    assert '-e ".[lab]"' in make("-n", "lab", f"VENV={tmp_path}").stdout


@pytest.mark.skipif(os.name == "nt", reason="a shell script")
@pytest.mark.parametrize("failing", ["", "lint", "test"])
def test_ci_lints_and_tests_and_fails_where_either_does(tmp_path, failing):
    fake, log = tmp_path / "make", tmp_path / "log"
    fake.write_text(f'#!/bin/sh\necho "$@" >> {log}\n[ "$1" != "{failing}" ]\n')
    fake.chmod(0o755)
    here = environment(PATH=f"{tmp_path}:{os.environ['PATH']}", PYTHON=sys.executable, CHROMIUM="/bin/true")
    done = subprocess.run([ROOT / ".ci" / "run"], env=here, capture_output=True, text=True, timeout=120)
    assert (done.returncode == 0) == (not failing), done.stderr
    commands = log.read_text().splitlines()
    assert [command.split()[0] for command in commands] == ["lint", "test"], "a complaint about style hides no test"
    assert all("TESTS=browser" in command for command in commands)


# --- files ----------------------------------------------------------------------------------------


def test_no_tracked_file_is_large():
    large = [str(path) for path in tracked_files() if path.stat().st_size > MAX_BYTES]
    assert not large


def test_no_tracked_text_holds_a_path_of_somebodys_machine():
    local = re.compile(r"(?<![\w.>~)}\]])(?:/(?:home|root|Users|tmp|work)/\w|[A-Z]:\\+Users\\)")
    found = []
    for path in tracked_files():
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(lines, start=1):
            if len(line) < 10_000 and local.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}")
    assert not found, "\n".join(found)


# --- the house ------------------------------------------------------------------------------------


def room_of(module: str) -> str:
    """The room that a module or name of ours belongs to: `wing.room`, or the wing where it is the wing's own."""
    parts = module.split(".")[1:3]
    return next((room for room in (".".join(parts), *parts[:1]) if room in ROOMS), "".join(parts[:1]))


def imported_rooms(path: Path) -> set[tuple[str, int]]:
    """(room, line) of every import of ours in a file, those inside functions too."""
    package = ["helpers", *path.relative_to(SOURCE).parent.parts]
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            base = ".".join([*above, *(node.module or "").split(".")]).strip(".")
            targets = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        ours = [target for target in targets if target.split(".")[0] == "helpers"]
        rooms |= {(room_of(target), node.lineno) for target in ours}
    return rooms


MODULES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_room_imports_only_rooms_below_it(path):
    here = room_of(".".join(["helpers", *path.relative_to(SOURCE).with_suffix("").parts]))
    assert here in ROOMS, f"{here} is not in the list of rooms: say where it stands"
    problems = []
    for room, line in sorted(imported_rooms(path)):
        if room not in ROOMS:
            problems.append(f"line {line}: import from the room that defines it, not from helpers")
        elif ROOMS.index(room) > ROOMS.index(here):
            problems.append(f"line {line}: {here} stands below {room}")
    assert not problems, "\n".join(problems)


def test_import_stays_light():
    code = f"import sys, helpers; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]", f"`import helpers` imports {done.stdout.strip()}"


def code_lines(path: Path) -> int:
    """Lines that hold code: no docstring, no comment, not blank."""
    text = path.read_text(encoding="utf-8")
    documented = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and ast.get_docstring(node) is not None
        for line in range(node.body[0].lineno, node.body[0].end_lineno + 1)
    }
    blank = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    used = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in blank
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(used - documented)


@pytest.mark.parametrize("path", [p for p in MODULES if "checks" not in p.parts], ids=lambda p: p.stem)
def test_a_file_of_machinery_fits_in_the_head(path):
    assert code_lines(path) <= MAX_CODE_LINES


def environment(**extra: str) -> dict[str, str]:
    """This process's environment, with the project's source on the path."""
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8", **extra}
