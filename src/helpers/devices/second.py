"""The choice of a second device: hardware if there is some, else a stand-in that lives its errors.

`second_device()` takes cuda, else mps or xpu, else a stand-in: `toy`, a device made in Python
(`toy.py`), or `lazy`, the TorchScript lazy backend that every PyTorch wheel carries. Both rest on
private parts of PyTorch, so each is first rehearsed in a process of its own; the outcome is
remembered for this torch, Python and platform. Importing this module starts nothing; a stand-in,
once started, stays until the process ends.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from ..files import home_folder, package_folder, write_atomically
from ..measure import machine
from . import toy

HARDWARE = ("cuda", "mps", "xpu")
_ABSENT = "absent"
_chosen: dict[str, SecondDevice] = {}


@dataclass(frozen=True, repr=False)
class SecondDevice:
    """The device of this session that is not the CPU; false if there is none.

    Args:
        device: where to send tensors; the CPU if there is no second device.
        kind: "cuda", "mps", "xpu", "toy", "lazy" or "none".
        stand_in: True if it is no hardware.
        reason: why it is this one and not a better one.
    """

    device: torch.device
    kind: str
    stand_in: bool
    reason: str

    def __bool__(self) -> bool:
        return self.kind != "none"

    @property
    def name(self) -> str:
        """The device and its nature, such as `cuda:0 (NVIDIA H200)` or `toy:0 (a stand-in)`."""
        if self.stand_in or not self:
            return f"{self.device} ({'a stand-in' if self else 'no second device'})"
        module = torch.get_device_module(self.device)
        return f"{self.device} ({getattr(module, 'get_device_name', lambda: 'hardware')()})"

    def describe(self) -> str:
        """Say in one sentence what the second device is."""
        if not self:
            return f"No second device: {self.reason}."
        nature = "; real values and errors, but no hardware, so no speed to measure" * self.stand_in
        return f"Second device: {self.name}{nature}; chosen because {self.reason}."

    __str__ = __repr__ = describe


def second_device(prefer: str | None = None) -> SecondDevice:
    """Choose and start a second device; a later call gives the same one at once.

    After a backward pass on CUDA or toy, no forked child of this process can run one, not even on the CPU.

    Args:
        prefer: the kind to try first ("cuda", "mps", "xpu", "toy", "lazy"), or "none" for no second
            device. None and "auto" ask the environment variable PITFALLS_SECOND_DEVICE, and
            without it mean: the best there is.

    Raises:
        ValueError: `prefer` is none of these.
    """
    if prefer in (None, "auto"):
        prefer = os.environ.get("PITFALLS_SECOND_DEVICE") or "auto"
    kinds = (*HARDWARE, *STAND_INS)
    if prefer not in (*kinds, "none", "auto"):
        known = ", ".join((*kinds, "none", "auto"))
        raise ValueError(f"there is no second device {prefer!r}; choose one of {known}")
    if prefer not in _chosen:
        order = {"none": (), "auto": kinds}.get(prefer, (prefer, *kinds))
        _chosen[prefer] = _choose(order, asked=prefer)
    return _chosen[prefer]


def _choose(kinds: tuple[str, ...], asked: str) -> SecondDevice:
    failed: dict[str, str] = {}
    for kind in dict.fromkeys(kinds):
        obstacle = _stand_in_obstacle(kind) if kind in STAND_INS else _hardware_obstacle(kind)
        if not obstacle:
            reason = "it was asked for" if kind == asked else _reason(failed) or "it is there"
            return SecondDevice(torch.device(kind, 0), kind, kind in STAND_INS, reason)
        failed[kind] = obstacle
    return SecondDevice(torch.device("cpu"), "none", False, _reason(failed) or "none was asked for")


def _reason(failed: dict[str, str]) -> str:
    """Say why these kinds were passed over."""
    absent = [kind for kind, why in failed.items() if why == _ABSENT]
    clauses = [f"this machine has no {' or '.join(absent)} device"] if absent else []
    clauses += [f"{kind} fails here ({why})" for kind, why in failed.items() if why != _ABSENT]
    return " and ".join(clauses)


def _hardware_obstacle(kind: str) -> str:
    """Say what keeps this hardware from being used; empty if one sum came out right."""
    if kind not in machine.accelerators():
        return _ABSENT
    try:
        total = torch.ones(2, device=kind).sum().item()
    except Exception as error:  # a driver too old, a card too new for this wheel, ...
        return _first_line(error)
    return "" if total == 2 else f"1 + 1 gave {total}"


def _stand_in_obstacle(kind: str) -> str:
    """Start a stand-in that passed its rehearsal; say what keeps it from being used, or nothing."""
    known, key = _read_known(), _rehearsal_key(kind)
    if not isinstance(known.get(key), str):
        try:
            known[key] = _rehearse_apart(kind)
        except (OSError, subprocess.TimeoutExpired) as error:  # may pass, so it is not remembered
            return _first_line(error)
        _remember(known)
    if known[key]:
        return known[key]
    try:
        device = _start(kind)
        weight = torch.ones(1, requires_grad=True)
        with torch.inference_mode(False), torch.enable_grad():
            torch.autograd.grad(weight.to(device).sum(), weight)
    except Exception as error:
        if "device_ready_queues_" in str(error):
            return (
                "a backward pass ran before it was started, and autograd counts the devices only once: "
                "restart the kernel and call second_device() first"
            )
        return _first_line(error)
    return ""


def _known_file() -> Path:
    return home_folder() / "devices.json"


def _read_known() -> dict[str, str]:
    """The remembered obstacles, empty texts where all went well. A corrupt file counts as none."""
    try:
        known = json.loads(_known_file().read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _remember(known: dict[str, str]) -> None:
    """Keep the outcomes; where nothing can be written, the next session rehearses again."""
    try:
        write_atomically(_known_file(), json.dumps(known, indent=1))
    except OSError:
        pass


STAND_INS = ("toy", "lazy")
_PROBE_SECONDS = 180


def _start(kind: str) -> torch.device:
    """Make a stand-in usable in this process; starting it again changes nothing."""
    if kind == "toy":
        toy.start()
    else:
        from torch._lazy import ts_backend

        try:
            ts_backend.init()
        except RuntimeError as error:
            if "multiple backend fallbacks" not in str(error):  # the words of a second start
                raise
    return torch.device(kind, 0)


def rehearse(kind: str) -> None:
    """Start a stand-in, train a net on it and on the CPU, and commit two errors.

    Raises:
        RuntimeError: it does not start, the results differ, or an error passed without complaint.
    """
    device = _start(kind)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    x, y = torch.randn(5, 4), torch.tensor([0, 1, 2, 1, 0])
    outputs = []
    for place in (torch.device("cpu"), device):
        model = copy.deepcopy(net).to(place)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x.to(place)), y.to(place)).backward()
            optimizer.step()
        outputs.append(model(x.to(place)).detach().cpu())
    on_cpu, on_device = outputs
    if not torch.allclose(on_cpu, on_device, rtol=1e-4, atol=1e-5):
        raise RuntimeError(f"training on {kind} differs from training on the CPU")
    for name, error in {"mixed devices": lambda: model(x), "numpy": x.to(device).numpy}.items():
        try:
            error()
        except (RuntimeError, TypeError):
            continue
        raise RuntimeError(f"{kind} does not refuse {name}")


def _rehearse_apart(kind: str) -> str:
    """Rehearse in a process of its own, because private API may abort; say what went wrong."""
    code = f"import sys; sys.path.insert(0, {str(package_folder().parent)!r}); "
    code += f"from helpers.devices import rehearse; rehearse({kind!r})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=_PROBE_SECONDS,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    if done.returncode == 0:
        return ""
    return (done.stderr.strip().splitlines() or [f"its process ended with {done.returncode}"])[-1]


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or ['no message'])[0]}"


def _rehearsal_key(kind: str) -> str:
    """What the outcome of a rehearsal depends on, our own code included."""
    ours = b"".join(Path(module).read_bytes() for module in (__file__, toy.__file__))
    python = f"{platform.python_version()} at {sys.executable}"
    code = hashlib.sha256(ours).hexdigest()[:12]
    return f"{kind}, torch {torch.__version__}, Python {python}, {platform.platform()}, {code}"
