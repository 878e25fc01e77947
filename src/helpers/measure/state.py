"""The global state that PyTorch code can change behind one's back, and a guard that puts it back.

Grad mode belongs to the current thread; the rest belongs to the process. A chapter flips these to teach
them, and a learner's code may flip them by mistake: either way the next cell should not inherit it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

# name -> (read, write)
_STATE: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "grad mode": (torch.is_grad_enabled, torch._C._set_grad_enabled),
    "threads": (torch.get_num_threads, torch.set_num_threads),
    "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "deterministic algorithms": (
        lambda: (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        lambda v: torch.use_deterministic_algorithms(v[0], warn_only=v[1]),
    ),
    "deterministic fill": (
        lambda: torch.utils.deterministic.fill_uninitialized_memory,  # type: ignore[attr-defined]  # added at import
        lambda v: setattr(torch.utils.deterministic, "fill_uninitialized_memory", v),
    ),
    "anomaly detection": (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    "swap module params": (
        torch.__future__.get_swap_module_params_on_conversion,
        torch.__future__.set_swap_module_params_on_conversion,
    ),
}


def _add_backend_flag(label: str, backend: object, name: str) -> None:
    # The private accessors are used on purpose: backend modules refuse assignment after
    # `disable_global_flags()`, and reading some of them on a CPU build warns.
    read, write = getattr(torch._C, f"_get_{name}", None), getattr(torch._C, f"_set_{name}", None)
    if read is not None and write is not None:
        _STATE[label] = (read, write)


for _label, _name in {
    "cudnn.enabled": "cudnn_enabled",
    "cudnn.benchmark": "cudnn_benchmark",
    "cudnn.deterministic": "cudnn_deterministic",
    "cudnn.allow_tf32": "cudnn_allow_tf32",
    "mkldnn.enabled": "mkldnn_enabled",
    "mkldnn.deterministic": "mkldnn_deterministic",
    "float32 matmul precision": "float32_matmul_precision",
}.items():
    _add_backend_flag(_label, torch.backends, _name)


def snapshot() -> dict[str, object]:
    """Read every watched flag."""
    return {name: read() for name, (read, _) in _STATE.items()}


def restore(before: dict[str, object]) -> None:
    """Put every watched flag back to what it was in `before`."""
    for name, value in before.items():
        read, write = _STATE[name]
        if read() != value:
            write(value)


def leaks(before: dict[str, object], after: dict[str, object] | None = None) -> list[str]:
    """Name what differs between two snapshots, one sentence each: `grad mode was True, is now False`."""
    after = snapshot() if after is None else after
    return [f"{name} was {value}, is now {after[name]}" for name, value in before.items() if after[name] != value]


@contextlib.contextmanager
def guard() -> Iterator[list[str]]:
    """Restore the watched flags on leaving the block; the yielded list then names what had leaked."""
    before = snapshot()
    leaked: list[str] = []
    try:
        yield leaked
    finally:
        leaked += leaks(before)
        restore(before)
