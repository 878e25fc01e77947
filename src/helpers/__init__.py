"""PyTorch Pitfalls, measured: what the course's notebooks import.

    from helpers import compare, claim, predict, check, hint, evidence, figures

Names are loaded at first use, so that importing this package costs next to nothing beyond importing torch.
"""

from __future__ import annotations

import importlib

_HOMES = {
    "calibration": "predictions",
    "check": "exercises",
    "claim": "claims",
    "compare": "timing",
    "expected_error": "display",
    "finding": "verdicts",
    "hint": "exercises",
    "predict": "predictions",
    "preflight": "course",
    "progress": "exercises",
    "reset_progress": "exercises",
    "second_device": "devices",
    "settings": "machine",
    "solution": "exercises",
    "untested": "verdicts",
    "wrap_up": "course",
}
_MODULES = ("devices", "evidence", "figures", "machine", "state")
__all__ = [*_HOMES, *_MODULES]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
