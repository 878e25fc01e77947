"""What this machine is: usable cores and memory, compiler, accelerators, and its provenance.

A measurement is only worth something together with the machine it was made on. Containers make
that hard to see: `os.cpu_count()` and the memory shown by most tools describe the host, while the
limits that count stand in the control group (cgroup) of the process. Nothing here raises on a
system that lacks `/proc`, CPU affinity or a GPU: what cannot be found out is reported as "unknown"
or left out of the limit.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

OLDEST_TORCH = (2, 6)
OLDEST_PYTHON, NEWEST_PYTHON = (3, 10), (3, 13)

# Where /proc and /sys are looked up; the tests point it at a directory of fabricated files.
_ROOT = Path("/")


@dataclass
class Settings:
    """How chapters run on this machine; the first cell of each chapter sets it.

    Args:
        budget_s: seconds that one `compare` may take.
        device: where the chapter runs: "auto", "cpu", "cuda", "mps" or "xpu".
        record: write the results to a recording, for readers without this machine.
        fast: cut every budget to half a second or less; intervals get wider.
    """

    budget_s: float = 2.0
    device: str = "auto"
    record: bool = False
    fast: bool = False

    def budget(self) -> float:
        """Seconds that one `compare` takes unless it is told otherwise."""
        return min(self.budget_s, 0.5) if self.fast else self.budget_s


settings = Settings()


def usable_cores() -> float:
    """Count the cores this process may keep busy: CPU affinity and cgroup quota, whichever is less.

    A quota can be a fraction: a container started with `--cpus=1.5` has 1.5 cores.
    """
    cores = float(os.cpu_count() or 1)
    if hasattr(os, "sched_getaffinity"):
        cores = float(len(os.sched_getaffinity(0)))
    return max(0.01, min([cores, *_cpu_quotas()]))


def memory_limit() -> int:
    """Give the memory this process may use, in bytes: physical memory or cgroup limit, whichever
    is less.

    `sys.maxsize` stands for "no limit known".
    """
    limits = [_physical_memory()]
    for text in _cgroup_files("memory", "memory.max", "memory.limit_in_bytes"):
        limits += [int(text)] if text.isdigit() else []
    return min(limits)


def cxx_compiler() -> str | None:
    """Find the C++ compiler that `torch.compile` would call on the CPU: its path, or None.

    The search is TorchInductor's: the variable CXX, else g++ (macOS: clang++, Windows: cl).
    """
    default = {"darwin": "clang++", "win32": "cl"}.get(sys.platform, "g++")
    return shutil.which(os.environ.get("CXX", default))


def accelerators() -> list[str]:
    """Name the accelerator types that PyTorch can use here, out of "cuda", "mps" and "xpu"."""
    present = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "xpu": torch.xpu.is_available(),
    }
    return [name for name, available in present.items() if available]


def unsupported() -> str | None:
    """Say in one line why the course is not tested on this Python or PyTorch; None where it is."""
    python = sys.version_info[:2]
    if not OLDEST_PYTHON <= python <= NEWEST_PYTHON:
        return (
            f"The course is tested on Python {_dotted(OLDEST_PYTHON)} to {_dotted(NEWEST_PYTHON)}; "
            f"this is {_dotted(python)}."
        )
    release = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if release < OLDEST_TORCH:
        return (
            f"The course needs PyTorch {_dotted(OLDEST_TORCH)} or newer; "
            f"this is {torch.__version__}. "
            f'Type: pip install "torch>={_dotted(OLDEST_TORCH)}"'
        )
    return None


def provenance() -> dict[str, object]:
    """Describe the machine and the software a result came from, as JSON-serialisable data.

    Load and threads are those at the time of the call, so ask before measuring.
    """
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "cpu": _cpu_model(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "usable_cores": round(usable_cores(), 2),
        "memory_bytes": memory_limit(),
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "os": platform.platform(),
        "governor": _read("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or "unknown (VM)",
        "load": _load(),
        "mkldnn": torch.backends.mkldnn.is_available(),
        "accelerators": accelerators(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "driver": _gpu_driver(),
    }


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)


def _read(path: str | Path) -> str | None:
    """Read a small text file below `_ROOT`; None where there is none."""
    try:
        return (_ROOT / path).read_text(errors="replace").strip()
    except OSError:
        return None


def _cgroup_files(controller: str, v2_name: str, v1_name: str) -> Iterator[str]:
    """Yield what the limit files of our cgroup and of its ancestors say: any of them can limit us.

    `/proc/self/cgroup` has one line for version 2, `0::/path`, and one for each controller of
    version 1, `4:cpu,cpuacct:/path`. Inside a container the path is often the host's and does not
    exist; the walk up to the root of the mount still finds the container's own files.
    """
    for line in (_read("proc/self/cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number == "0" and not names:
            base, name = Path("sys/fs/cgroup"), v2_name
        elif controller in names.split(","):
            base, name = Path("sys/fs/cgroup") / controller, v1_name
        else:
            continue
        group = Path(path.strip("/"))
        for directory in [group, *group.parents]:
            text = _read(base / directory / name)
            if text:
                yield text


def _cpu_quotas() -> Iterator[float]:
    """Yield each cgroup CPU quota that applies, in cores."""
    quotas = _cgroup_files("cpu", "cpu.max", "cpu.cfs_quota_us")
    periods = _cgroup_files("cpu", "cpu.max", "cpu.cfs_period_us")
    for quota, period in zip(quotas, periods, strict=False):
        # Version 2 writes both into one file, "150000 100000" or "max 100000"; version 1 uses two
        # files and -1 for "no quota".
        allowed, length = quota.split()[0], period.split()[-1]
        if allowed.isdigit() and length.isdigit() and int(length) > 0:
            yield int(allowed) / int(length)


def _physical_memory() -> int:
    with contextlib.suppress(AttributeError, OSError, ValueError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if sys.platform == "win32":
        import ctypes

        kilobytes = ctypes.c_ulonglong()
        if ctypes.windll.kernel32.GetPhysicallyInstalledSystemMemory(ctypes.byref(kilobytes)):
            return kilobytes.value * 1024
    return sys.maxsize


def _cpu_model() -> str:
    for line in (_read("proc/cpuinfo") or "").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    if sys.platform == "darwin":
        model = _output_of("sysctl", "-n", "machdep.cpu.brand_string")
        if model:
            return model
    return platform.processor() or platform.machine() or "unknown"


def _load() -> float | None:
    """Give the load average of the last minute; None where the system keeps none (Windows)."""
    with contextlib.suppress(AttributeError, OSError):
        return round(os.getloadavg()[0], 2)
    return None


def _gpu_driver() -> str | None:
    if not torch.cuda.is_available():
        return None
    versions = _output_of("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return versions.splitlines()[0] if versions else "unknown"


@functools.cache
def _output_of(*command: str) -> str:
    """Run a short command and give its output; empty where it is missing, slow or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
