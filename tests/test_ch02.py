"""Chapter 2 teaches defaults and a trap of PyTorch: these fail the day one of them changes."""

from __future__ import annotations

import inspect

import pytest
import torch

from helpers import figures
from helpers.measure import state

CUDNN = torch.backends.cudnn


@pytest.fixture(autouse=True)
def guarded():
    with state.guard():
        yield


def test_defaults_are_those_of_the_chapter():
    arguments = inspect.signature(CUDNN.flags).parameters
    taught = {"enabled": False, "benchmark": False, "deterministic": False, "allow_tf32": True}
    assert {name: arguments[name].default for name in taught} == taught


def test_flags_switch_cudnn_off_unless_told():
    torch._C._set_cudnn_enabled(True)
    with CUDNN.flags(benchmark=True):
        assert CUDNN.benchmark and not CUDNN.enabled
    assert CUDNN.enabled


def test_a_misspelt_flag_is_accepted():
    CUDNN.benchmrk = True
    assert vars(CUDNN).pop("benchmrk") is True
    with pytest.raises(RuntimeError):
        CUDNN.benchmark = 1


def test_pytorch_tells_which_library_it_picks():
    """The chapter asks a private function, for want of a public one."""
    pair, none = [1, 1], [0, 0]
    x, weight = torch.ones(1, 2, 8, 8), torch.ones(2, 2, 3, 3)
    assert str(torch._C._select_conv_backend(x, weight, None, pair, pair, pair, False, none, 1))


def test_a_heat_map_with_logarithmic_colours_shows_the_numbers_themselves(capsys):
    figures.heat_map([[1.0, 10.0], [1000.0, 1.5]], ["a", "b"], ["one", "two"], log=True)
    shown = capsys.readouterr().out
    assert "highest 1e+03 at b one" in shown and "lowest 1 at a one" in shown
