"""What `helpers.machine` promises: limits that count in a container, and no crash anywhere."""

from __future__ import annotations

import json
import os
import sys

import pytest
import torch

from helpers.measure import machine


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Stand in for /proc and /sys: `files(path, text)` makes a file; at first there is none."""

    def fabricate(path: str, text: str) -> None:
        target = tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    monkeypatch.setattr(machine, "_ROOT", tmp_path)
    return fabricate


@pytest.fixture
def eight_cores(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)


# --- cores ----------------------------------------------------------------------------------------


def test_without_limits_all_cores_are_usable(files, eight_cores):
    assert machine.usable_cores() == 8


def test_affinity_limits_the_cores(files, eight_cores, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1, 3}, raising=False)
    assert machine.usable_cores() == 2


def test_a_cgroup_v2_quota_may_be_a_fraction_of_a_core(files, eight_cores):
    files("proc/self/cgroup", "0::/\n")
    files("sys/fs/cgroup/cpu.max", "150000 100000\n")
    assert machine.usable_cores() == 1.5


def test_a_cgroup_v2_quota_of_max_is_no_limit(files, eight_cores):
    files("proc/self/cgroup", "0::/\n")
    files("sys/fs/cgroup/cpu.max", "max 100000\n")
    assert machine.usable_cores() == 8


def test_the_smallest_quota_on_the_way_to_the_root_counts(files, eight_cores):
    files("proc/self/cgroup", "0::/pod/box\n")
    files("sys/fs/cgroup/pod/cpu.max", "200000 100000\n")
    files("sys/fs/cgroup/pod/box/cpu.max", "400000 100000\n")
    assert machine.usable_cores() == 2


def test_a_cgroup_v1_quota_counts(files, eight_cores):
    files("proc/self/cgroup", "5:memory:/\n4:cpu,cpuacct:/box\n0::/\n")
    files("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "300000\n")
    files("sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n")
    assert machine.usable_cores() == 3


def test_a_cgroup_v1_quota_of_minus_one_is_no_limit(files, eight_cores):
    files("proc/self/cgroup", "4:cpu,cpuacct:/\n")
    files("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n")
    files("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")
    assert machine.usable_cores() == 8


def test_the_path_of_the_host_does_not_hide_the_limits_of_the_container(files, eight_cores):
    files("proc/self/cgroup", "4:cpu,cpuacct:/docker/0a1b2c\n")
    files("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n")
    files("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")
    assert machine.usable_cores() == 0.5


@pytest.mark.parametrize("text", ["", "rubbish", "rubbish more", "100000 0"])
def test_a_quota_that_cannot_be_read_is_no_limit(files, eight_cores, text):
    files("proc/self/cgroup", "0::/\nrubbish\n")
    files("sys/fs/cgroup/cpu.max", text)
    assert machine.usable_cores() == 8


def test_without_proc_and_affinity_the_core_count_remains(files, monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    assert machine.usable_cores() == 4


def test_an_unknown_core_count_is_one_core(files, monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert machine.usable_cores() == 1


# --- memory ---------------------------------------------------------------------------------------


@pytest.fixture
def four_gigabytes(monkeypatch):
    pages = {"SC_PHYS_PAGES": 4 * 2**30 // 4096, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "sysconf", pages.__getitem__, raising=False)


def test_without_limits_physical_memory_is_the_limit(files, four_gigabytes):
    assert machine.memory_limit() == 4 * 2**30


@pytest.mark.parametrize(("text", "expected"), [("1073741824", 2**30), ("max", 4 * 2**30)])
def test_cgroup_v2_memory(files, four_gigabytes, text, expected):
    files("proc/self/cgroup", "0::/box\n")
    files("sys/fs/cgroup/box/memory.max", text + "\n")
    assert machine.memory_limit() == expected


@pytest.mark.parametrize(("text", "expected"), [("536870912", 2**29), ("9223372036854771712", 4 * 2**30)])
def test_cgroup_v1_memory_where_a_huge_number_means_no_limit(files, four_gigabytes, text, expected):
    files("proc/self/cgroup", "4:memory:/box\n")
    files("sys/fs/cgroup/memory/box/memory.limit_in_bytes", text + "\n")
    assert machine.memory_limit() == expected


@pytest.mark.skipif(sys.platform == "win32", reason="Windows asks the kernel instead")
def test_unknown_memory_is_no_limit(files, monkeypatch):
    monkeypatch.delattr(os, "sysconf", raising=False)
    assert machine.memory_limit() == sys.maxsize


# --- compiler and accelerators --------------------------------------------------------------------


def test_the_compiler_is_the_one_that_torch_compile_calls(monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(machine.shutil, "which", lambda name: f"/bin/{name}")
    for system, name in {"linux": "g++", "darwin": "clang++", "win32": "cl"}.items():
        monkeypatch.setattr(sys, "platform", system)
        assert machine.cxx_compiler() == f"/bin/{name}"
    monkeypatch.setenv("CXX", "mycc")
    assert machine.cxx_compiler() == "/bin/mycc"


def test_no_compiler_is_none(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert machine.cxx_compiler() is None


def test_accelerators_names_only_what_is_there(monkeypatch):
    for module in (torch.cuda, torch.backends.mps, torch.xpu):
        monkeypatch.setattr(module, "is_available", lambda: False)
    assert machine.accelerators() == []
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert machine.accelerators() == ["mps"]


# --- provenance -----------------------------------------------------------------------------------

PROMISED = (
    "date cpu cpu_capability cores usable_cores memory_bytes threads torch python os governor load "
    "gpu driver accelerators"
).split()


def test_provenance_says_everything_and_is_json():
    described = json.loads(json.dumps(machine.provenance()))
    assert set(PROMISED) <= set(described)
    assert described["date"].endswith("+00:00")
    assert described["torch"] == torch.__version__


def test_provenance_reads_the_cpu_model_and_governor(files):
    files("proc/cpuinfo", "processor\t: 0\nmodel name\t: Fast CPU\n\nmodel name\t: Fast CPU\n")
    files("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n")
    described = machine.provenance()
    assert (described["cpu"], described["governor"]) == ("Fast CPU", "performance")


@pytest.mark.parametrize("system", ["darwin", "win32", "linux"])
def test_provenance_survives_a_system_that_tells_nothing(files, monkeypatch, system):
    for name in ("sched_getaffinity", "getloadavg"):
        monkeypatch.delattr(os, name, raising=False)
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(machine, "_output_of", lambda *command: "")
    monkeypatch.setattr(machine, "_physical_memory", lambda: sys.maxsize)
    described = machine.provenance()
    assert described["load"] is None
    assert described["governor"] == "unknown (VM)"
    assert described["cpu"]


def test_a_missing_or_failing_command_has_no_output():
    assert machine._output_of("no-such-command-anywhere") == ""
    assert machine._output_of(sys.executable, "-c", "raise SystemExit(3)") == ""
    assert machine._output_of(sys.executable, "-c", "print('fine')") == "fine"


# --- versions and settings ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("python", "release", "complaint"),
    [
        ((3, 10), "2.6.0", None),
        ((3, 13), "2.13.0+cpu", None),
        ((3, 11), "3.0.0a0+git123", None),
        ((3, 9), "2.8.0", "Python 3.10 to 3.13; this is 3.9"),
        ((3, 14), "2.10.0", "this is 3.14"),
        ((3, 12), "2.5.1+cu121", 'pip install "torch>=2.6"'),
    ],
)
def test_unsupported_versions_are_named_in_one_line(monkeypatch, python, release, complaint):
    monkeypatch.setattr(sys, "version_info", (*python, 0, "final", 0))
    monkeypatch.setattr(torch, "__version__", release)
    answer = machine.unsupported()
    if complaint is None:
        assert answer is None
    else:
        assert complaint in answer
        assert "\n" not in answer


def test_fast_cuts_the_budget_but_never_raises_it():
    assert machine.Settings().budget() == 2.0
    assert machine.Settings(fast=True).budget() == 0.5
    assert machine.Settings(budget_s=0.1, fast=True).budget() == 0.1
