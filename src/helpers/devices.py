"""A second device for everyone: hardware if there is some, else a stand-in that lives its errors.

    device = second_device().device

`second_device()` takes cuda, else mps or xpu, else a stand-in: `toy`, a device made in Python
(`toy.py`), or `lazy`, the TorchScript lazy backend that every PyTorch wheel carries. Both rest on
private parts of PyTorch, so each is first rehearsed in a process of its own; the outcome is
remembered for this torch, Python and platform. `gaps(kind)` lists what differs from CUDA. Importing
this module starts nothing; a stand-in, once started, stays until the process ends.

`transfers(fn)` counts what crosses between the CPU and the device while `fn` runs.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.utils._pytree import tree_leaves

from helpers import evidence, machine, toy
from helpers.files import home_folder, write_atomically

aten = torch.ops.aten
HARDWARE = ("cuda", "mps", "xpu")
STAND_INS = ("toy", "lazy")
_ABSENT = "absent"
_PROBE_SECONDS = 180
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


# What differs from CUDA. Each line is demonstrated by a test of the same name.
_GAPS = {
    "toy": {
        "Module.to()": "replaces the parameters, where CUDA keeps them: an optimizer made before "
        "the move updates nothing, unless set_swap_module_params_on_conversion(True)",
        "random numbers": "come from the CPU's generator, and a torch.Generator of its own is refused",
        "LSTM and GRU": "raise NotImplementedError, RNN works",
        "pin_memory()": "raises NotImplementedError",
        "autocast": "raises AssertionError",
        "waiting": "is never needed: torch.accelerator.synchronize() returns at once",
        "memory statistics": "are missing",
        "data_ptr()": "is 0; untyped_storage().data_ptr() tells memories apart",
        "sparse tensors": "lose their layout, and their products raise RuntimeError",
        "torch.load(map_location=...)": "raises; load to the CPU and move",
        "lengths on the CPU": "as in ctc_loss are refused",
    },
    "lazy": {
        "Module.to()": "replaces the parameters, as on toy",
        "mixed devices": "are refused in other words: Input tensor is not a lazy tensor",
        "torch.where": "mixes devices silently",
        "indexing": "of a CPU tensor by indices of the device passes, which CUDA refuses",
        "torch.cat": "of mixed devices raises an internal assertion",
        "copy_() to the CPU": "raises an internal assertion; use .cpu()",
        "BatchNorm": "does not update its running statistics",
        "recurrent layers": "raise RuntimeError",
        "torch.save": "raises RuntimeError; move to the CPU first",
        "storage": "cannot be asked for, data_ptr() is 0, and strides are always contiguous",
        "torch.accelerator": "does not know it",
        "transfers() in inference mode": "raises RuntimeError; no_grad works",
    },
}


def gaps(kind: str) -> list[tuple[str, str]]:
    """List what differs from CUDA on a device of this kind: (what, what happens). Empty for hardware."""
    return list(_GAPS.get(kind, {}).items())


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
    if not torch.allclose(*outputs, rtol=1e-4, atol=1e-5):
        raise RuntimeError(f"training on {kind} differs from training on the CPU")
    for name, error in {"mixed devices": lambda: model(x), "numpy": x.to(device).numpy}.items():
        try:
            error()
        except (RuntimeError, TypeError):
            continue
        raise RuntimeError(f"{kind} does not refuse {name}")


def _rehearse_apart(kind: str) -> str:
    """Rehearse in a process of its own, because private API may abort; say what went wrong."""
    source = str(Path(__file__).resolve().parents[1])
    code = f"import sys; sys.path.insert(0, {source!r}); "
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


@dataclass
class Transfers:
    """What crossed between the CPU and the device.

    Args:
        to_device, to_host: copies of tensors; reading a number (`item()`, `if tensor:`) is a copy
            to the host.
        to_device_bytes, to_host_bytes: their bytes.
        syncs: how often the CPU waited for a result of the device: a blocking copy to the host, a
            number read, or an output whose shape depends on values (`nonzero()`, `x[mask]`).
    """

    to_device: int = 0
    to_device_bytes: int = 0
    to_host: int = 0
    to_host_bytes: int = 0
    syncs: int = 0


def transfers(fn: Callable[[], object]) -> Transfers:
    """Run `fn` once and count the copies between the CPU and the device, and the syncs.

    Reads of CPU tensors count nothing. The counts follow CUDA's rules on every device, so a
    stand-in gives the same: a copy that changes the dtype crosses in the device's dtype.
    """
    census = _Census()
    with census:
        fn()
    return census.counts


def _on_device(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type not in ("cpu", "meta")


def _wrap_if_lazy(out: object, args: tuple) -> object:
    """Give a new lazy tensor the wrapper that views need, which is left out under a dispatch mode."""
    is_lazy = isinstance(out, torch.Tensor) and out.device.type == "lazy"
    if not is_lazy or torch._is_functional_tensor(out) or any(map(_on_device, tree_leaves(args))):
        return out
    return torch._to_functional_tensor(out)


class _Census(evidence.CountingMode):
    def __init__(self) -> None:
        super().__init__()
        self.counts = Transfers()

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if op._can_decompose():  # in inference mode `to`, `matmul`, … arrive whole
            with self:
                return op.decompose(*args, **kwargs)
        out = op(*args, **kwargs)
        if op is aten._to_copy.default:
            self._count_copy(args[0], out, kwargs.get("non_blocking", False))
        elif op in (aten.copy_.default, aten.copy.default):
            self._count_copy(args[1], out, args[2] if len(args) > 2 else False)
        elif op is aten.lift_fresh.default and _on_device(out):  # torch.tensor(..., device=...)
            self._count_to_device(out.numel() * out.element_size())
        elif op.overloadpacket in toy.INDEXING:
            self._count_indices(args)
        elif op is aten._local_scalar_dense.default and _on_device(args[0]):
            self._count_to_host(args[0].element_size())
        elif {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output} & set(op.tags):
            self.counts.syncs += any(map(_on_device, tree_leaves((args, kwargs))))
        return _wrap_if_lazy(out, args)

    def _count_copy(self, source: torch.Tensor, copy: torch.Tensor, non_blocking: bool) -> None:
        if _on_device(copy) and source.device.type == "cpu":
            self._count_to_device(copy.numel() * copy.element_size())
        elif _on_device(source) and copy.device.type == "cpu":
            self._count_to_host(copy.numel() * source.element_size(), sync=not non_blocking)

    def _count_to_device(self, size: int) -> None:
        self.counts.to_device += 1
        self.counts.to_device_bytes += size

    def _count_to_host(self, size: int, sync: bool = True) -> None:
        self.counts.to_host += 1
        self.counts.to_host_bytes += size
        self.counts.syncs += sync

    def _count_indices(self, args: tuple) -> None:
        """In `x[i]`, indices on the CPU are copied over; a mask on the device makes the CPU wait."""
        if not _on_device(args[0]):
            return
        fills = len(args) > 2 and args[2].numel() == 1  # `x[mask] = 0` needs no positions
        for index in (i for i in args[1] if i is not None):
            is_mask = index.dtype in (torch.bool, torch.uint8)
            if _on_device(index):
                self.counts.syncs += is_mask and not fills
            elif is_mask:  # its positions are copied: one index tensor a dimension
                for _ in range(index.dim()):
                    self._count_to_device(8 * int(index.count_nonzero()))
            else:
                self._count_to_device(8 * index.numel())
