"""Write constraints.txt: the versions the tests run on, for every Python the course supports.

    python tools/pin.py python3.10 python3.11 python3.12 python3.13 --torch 2.13.0

For each interpreter pip resolves the `dev` extra in a new environment, without installing it and
without any local wheel folder or user configuration, so the file records `torch==2.13.0` and never
the name of one build. A version that all interpreters agree on is written once, others with a
marker. PyTorch's companion packages (CUDA, Triton) are left out: each build of torch names its own.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMPANIONS = re.compile(r"^(nvidia-|cuda-|triton|pytorch-triton)")
HEADER = """\
# The versions the tests run on, for `pip install -c constraints.txt`. Written by tools/pin.py.
"""


def normalized(name: str) -> str:
    """A distribution's name as the package index spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def resolve(python: str, torch: str) -> tuple[str, dict[str, str]]:
    """The interpreter's version ("3.11") and what pip would install with it: name -> version."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PIP_FIND")}
    clean.update(PIP_CONFIG_FILE=os.devnull, PIP_DISABLE_PIP_VERSION_CHECK="1")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([python, "-m", "venv", folder], check=True)
        scripts = Path(folder) / ("Scripts" if os.name == "nt" else "bin")
        pip = [str(scripts / "python"), "-m", "pip"]
        subprocess.run([*pip, "install", "--quiet", "--upgrade", "pip"], check=True, env=clean)
        report = Path(folder) / "report.json"
        subprocess.run(
            [*pip, "install", "--quiet", "--dry-run", "--report", str(report)] + [f"{ROOT}[dev]", f"torch=={torch}"],
            check=True,
            env=clean,
        )
        found = json.loads(report.read_text(encoding="utf-8"))
    version = found["environment"]["python_version"]
    installed = {normalized(i["metadata"]["name"]): i["metadata"]["version"] for i in found["install"]}
    return version, installed


def merged(resolved: dict[str, dict[str, str]]) -> list[str]:
    """One line a version, with a marker where the interpreters differ."""
    lines = []
    for name in sorted(set().union(*resolved.values())):
        if name == "pytorch-pitfalls" or COMPANIONS.match(name):
            continue
        pythons_of = defaultdict(list)
        for python, packages in resolved.items():
            if name in packages:
                pythons_of[packages[name]].append(python)
        for version, pythons in pythons_of.items():
            marker = "" if len(pythons_of) == 1 else f" ; {marker_for(pythons, list(resolved))}"
            lines.append(f"{name}=={version}{marker}")
    return lines


def marker_for(pythons: list[str], known: list[str]) -> str:
    """An environment marker for a run of neighbouring Python versions among the known ones."""
    known = sorted(known, key=lambda text: tuple(map(int, text.split("."))))
    parts = []
    if pythons[0] != known[0]:
        parts.append(f"python_version >= '{pythons[0]}'")
    if pythons[-1] != known[-1]:
        parts.append(f"python_version < '{known[known.index(pythons[-1]) + 1]}'")
    return " and ".join(parts)


def main() -> int:
    """Resolve for each interpreter and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pythons", nargs="+", help="interpreters, oldest first")
    parser.add_argument("--torch", required=True, help="the torch release to pin, e.g. 2.13.0")
    options = parser.parse_args()
    resolved = dict(resolve(python, options.torch) for python in options.pythons)
    lines = merged(resolved)
    (ROOT / "constraints.txt").write_text(HEADER + "\n".join(lines) + "\n", encoding="utf-8")
    print(f"constraints.txt: {len(lines)} lines for Python {', '.join(resolved)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
