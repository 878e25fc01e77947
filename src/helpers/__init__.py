"""PyTorch Pitfalls, measured: what the course's notebooks import.

    from helpers import compare, claim, predict, check, hint, evidence, figures

Names are loaded at first use, so that importing this package costs next to nothing beyond importing torch.

To read how it works, begin where your question is: a verdict is made in `measure/comparison.py` and
`measure/verdicts.py`, a wrong answer gets its message in `exercise/contract.py` and `exercise/ladder.py`, a chapter
is run in `course/run.py`. CONTRIBUTING.md shows all wings.
"""

from __future__ import annotations

import importlib

from .show.display import Shown, register_picture

_HOMES = {
    "calibration": "lesson.predictions",
    "check": "exercise.learner",
    "claim": "lesson.claims",
    "compare": "measure.timing",
    "expected_error": "show.display",
    "finding": "measure.verdicts",
    "hint": "exercise.learner",
    "predict": "lesson.predictions",
    "preflight": "lesson.opening",
    "progress": "exercise.learner",
    "reset_progress": "exercise.learner",
    "second_device": "devices.second",
    "settings": "measure.machine",
    "show_picture": "show.display",
    "solution": "exercise.learner",
    "untested": "measure.verdicts",
    "wrap_up": "lesson.opening",
}
_MODULES = {
    "devices": "devices",
    "evidence": "evidence",
    "figures": "figures",
    "machine": "measure.machine",
    "recordings": "lesson.recordings",
    "state": "measure.state",
    "verdicts": "measure.verdicts",
}
__all__ = [*_HOMES, *_MODULES]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    if name in _MODULES:
        return importlib.import_module(f".{_MODULES[name]}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


def _draw_rounds(comparison: Shown) -> None:
    importlib.import_module(".figures", __name__).ratio_strip(comparison)


register_picture("comparison", _draw_rounds)
