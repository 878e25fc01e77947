"""The second device: how it is chosen, that the stand-ins compute as the CPU and fail as CUDA, and the census."""

import copy
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torch.utils.benchmark
from torch import nn

from helpers import devices
from helpers.devices import SecondDevice, Transfers, gaps, second, second_device, transfers
from helpers.files import write_atomically
from helpers.measure import machine

SOURCE = Path(devices.__file__).parents[1]
VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
KINDS = ["toy", "lazy"]
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory):
    """Each stand-in as this torch really gives it, found out once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PITFALLS_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setattr(second, "_chosen", {})
        patch.setattr(machine, "accelerators", lambda: [])
        return {kind: second_device(kind) for kind in KINDS}


def started(rehearsed, kind):
    if rehearsed[kind].kind != kind:
        pytest.skip(f"torch {torch.__version__} has no {kind}: {rehearsed[kind].reason}")
    return rehearsed[kind].device


@pytest.fixture(params=KINDS)
def device(request, rehearsed):
    return started(rehearsed, request.param)


@pytest.fixture
def toy(rehearsed):
    return started(rehearsed, "toy")


@pytest.fixture
def lazy(rehearsed):
    return started(rehearsed, "lazy")


# How it is chosen


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """Nothing chosen, nothing remembered, no hardware, and stand-ins that start and work at once."""
    monkeypatch.setenv("PITFALLS_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PITFALLS_SECOND_DEVICE", raising=False)
    monkeypatch.setattr(second, "_chosen", {})
    monkeypatch.setattr(machine, "accelerators", lambda: [])
    monkeypatch.setattr(second, "_start", lambda kind: CPU)
    monkeypatch.setattr(torch, "device", lambda *place: place)  # no kind needs to be registered
    asked = []
    monkeypatch.setattr(second, "_rehearse_apart", lambda kind: asked.append(kind) or "")
    monkeypatch.setattr(second, "_hardware_obstacle", lambda kind: second._ABSENT)
    return asked


def remembered(tmp_path):
    return json.loads((tmp_path / "home" / "devices.json").read_text())


def test_this_torch_has_the_stand_ins_that_it_should(rehearsed):
    expected = "toy" if VERSION >= (2, 10) else "lazy"
    assert rehearsed["toy"].kind == expected, rehearsed["toy"].reason
    assert rehearsed["lazy"].kind == "lazy", rehearsed["lazy"].reason
    assert rehearsed["toy"].stand_in and rehearsed["lazy"].stand_in


def test_a_stand_in_says_that_it_is_one(rehearsed):
    for chosen in rehearsed.values():
        assert "stand-in" in chosen.name
        for sentence in (str(chosen), repr(chosen), chosen.describe()):
            assert "a stand-in" in sentence and "no hardware" in sentence and "no speed" in sentence
            assert "\n" not in sentence


def test_the_best_is_toy_where_there_is_no_hardware(fresh):
    chosen = second_device()
    assert (chosen.kind, chosen.stand_in, bool(chosen)) == ("toy", True, True)
    assert "this machine has no cuda or mps or xpu device" in chosen.reason


def test_a_second_call_gives_the_same_at_once(fresh):
    assert second_device() is second_device("auto") is second_device()
    assert fresh == ["toy"]


def test_starting_twice_changes_nothing(device):
    before = torch.ones(2, device=device)
    assert second._start(device.type) == device
    assert (before + torch.ones(2, device=device)).cpu().tolist() == [2, 2]


def test_hardware_comes_first(fresh, monkeypatch):
    obstacles = {"cuda": second._ABSENT, "mps": "", "xpu": ""}
    monkeypatch.setattr(second, "_hardware_obstacle", obstacles.get)
    chosen = second_device()
    assert (chosen.kind, chosen.stand_in, fresh) == ("mps", False, [])


def test_broken_hardware_is_passed_over_with_its_reason(fresh, monkeypatch):
    obstacles = {"cuda": "RuntimeError: no kernel image", "mps": "absent", "xpu": "absent"}
    monkeypatch.setattr(second, "_hardware_obstacle", obstacles.get)
    assert second_device().kind == "toy"
    assert "cuda fails here (RuntimeError: no kernel image)" in second_device().reason


def test_hardware_that_raises_is_an_obstacle(monkeypatch):
    monkeypatch.setattr(machine, "accelerators", lambda: ["xpu"])
    if not torch.xpu.is_available():
        assert second._hardware_obstacle("xpu").split(":")[0].endswith("Error")
    assert second._hardware_obstacle("cuda") == second._ABSENT


def test_a_preference_decides(fresh, monkeypatch):
    assert second_device("lazy").kind == "lazy"
    monkeypatch.setenv("PITFALLS_SECOND_DEVICE", "lazy")
    assert second_device().kind == "lazy"
    assert second_device("toy").kind == "toy"
    monkeypatch.setenv("PITFALLS_SECOND_DEVICE", "none")
    assert second_device().kind == "none"


def test_a_preference_that_is_not_there_gives_the_next_best_and_says_so(fresh):
    chosen = second_device("cuda")
    assert chosen.kind == "toy"
    assert "no cuda" in chosen.reason


def test_an_unknown_preference_is_refused_with_the_choices(fresh):
    with pytest.raises(ValueError, match="'gpu'; choose one of cuda, mps, xpu, toy, lazy, none"):
        second_device("gpu")


def test_without_any_there_is_none_with_the_reasons(fresh, monkeypatch):
    monkeypatch.setattr(second, "_rehearse_apart", lambda kind: f"{kind} is broken")
    chosen = second_device()
    assert (chosen.kind, bool(chosen), chosen.stand_in) == ("none", False, False)
    assert "toy is broken" in chosen.describe() and "lazy is broken" in chosen.describe()
    assert gaps("none") == []


def test_a_later_session_does_not_rehearse_again(fresh, monkeypatch):
    second_device()
    monkeypatch.setattr(second, "_chosen", {})
    assert second_device().kind == "toy"
    assert fresh == ["toy"]


def test_another_torch_or_python_is_rehearsed_anew(fresh, monkeypatch, tmp_path):
    second_device()
    for name, value in {"__version__": "9.9"}.items():
        monkeypatch.setattr(torch, name, value)
    monkeypatch.setattr(second, "_chosen", {})
    second_device()
    assert fresh == ["toy", "toy"]
    assert len(remembered(tmp_path)) == 2


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", '{"%s": 3}', "\x00\xff"])
def test_a_corrupt_memory_is_ignored_and_rewritten(fresh, tmp_path, text):
    (tmp_path / "home").mkdir()
    text = text.replace("%s", second._rehearsal_key("toy").replace("\\", "\\\\"))
    (tmp_path / "home" / "devices.json").write_text(text, encoding="latin-1")
    assert second_device().kind == "toy"
    assert fresh == ["toy"]
    assert remembered(tmp_path)[second._rehearsal_key("toy")] == ""


def test_where_nothing_can_be_written_it_works_all_the_same(fresh, tmp_path, monkeypatch):
    (tmp_path / "home").write_text("a file where the folder should be")
    assert second_device().kind == "toy"


def test_a_failed_write_leaves_no_trace(tmp_path, monkeypatch):
    write_atomically(tmp_path / "a" / "file", "old")
    monkeypatch.setattr("os.replace", lambda *paths: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        write_atomically(tmp_path / "a" / "file", "new")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["file"]
    assert (tmp_path / "a" / "file").read_text() == "old"


def test_an_obstacle_is_remembered_but_not_a_lack_of_time(fresh, monkeypatch, tmp_path):
    def rehearse(kind):
        if kind == "toy":
            raise subprocess.TimeoutExpired("python", 1)
        return "RuntimeError: broken"

    monkeypatch.setattr(second, "_rehearse_apart", rehearse)
    assert second_device().kind == "none"
    assert list(remembered(tmp_path).values()) == ["RuntimeError: broken"]


def test_a_stand_in_that_rehearses_but_does_not_start_here_is_passed_over(fresh, monkeypatch):
    def start(kind):
        if kind == "toy":
            raise RuntimeError("PyTorch's spare backend is in use")

    monkeypatch.setattr(second, "_start", start)
    chosen = second_device()
    assert chosen.kind == "lazy"
    assert "toy fails here (RuntimeError: PyTorch's spare backend is in use)" in chosen.reason


@pytest.mark.skipif(os.name == "nt", reason="a shell script stands in for Python")
def test_a_rehearsal_that_aborts_is_an_obstacle(monkeypatch, tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nkill -ABRT $$\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    assert second._rehearse_apart("toy") == "its process ended with -6"


def test_a_rehearsal_tells_what_was_wrong():
    assert second._rehearse_apart("toaster").startswith("RuntimeError: ")


def test_a_rehearsal_notices_an_error_that_passes(monkeypatch):
    monkeypatch.setattr(second, "_start", lambda kind: CPU)
    with pytest.raises(RuntimeError, match="cpu does not refuse mixed devices"):
        devices.rehearse("cpu")


def test_importing_starts_nothing_and_a_spare_backend_in_use_is_left_alone():
    code = (
        "import torch, helpers.devices.second, helpers.lesson.recordings\n"
        "assert torch._C._get_privateuse1_backend_name() == 'privateuseone'\n"
        "from torch._lazy import ts_backend\n"
        "ts_backend.init()\n"  # a second start would raise
        "torch.utils.rename_privateuse1_backend('npu')\n"
        "try: helpers.devices.second._start('toy')\n"
        "except RuntimeError as error: assert 'npu' in str(error), error\n"
        "else: raise AssertionError('taken over')\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, capture_output=True)


# That it computes as the CPU does


def mlp():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 3)), (6,)


def convolutional():
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3)
    )
    return net, (2, 6, 6)


def transformer():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(24, 3)), (3, 8)


def train(model, shape, make_optimizer, place):
    optimizer = make_optimizer(model.parameters())
    generator = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(4):
        x = torch.randn(5, *shape, generator=generator).to(place)
        y = torch.randint(0, 3, (5,), generator=generator).to(place)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, optimizer


OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    "foreach": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, foreach=True),
}


# Not the transformer with Adam: it amplifies the noise in the key bias, whose gradient is zero.
@pytest.mark.parametrize(
    ("make_net", "make_optimizer"),
    [(net, OPTIMIZERS[name]) for net in (mlp, convolutional) for name in OPTIMIZERS]
    + [(transformer, OPTIMIZERS["sgd"])],
    ids=[f"{net}-{name}" for net in ("mlp", "conv") for name in OPTIMIZERS] + ["transformer-sgd"],
)
def test_training_equals_the_cpu(device, make_net, make_optimizer):
    if device.type == "lazy" and make_net is convolutional:
        pytest.skip("BatchNorm is one of lazy's gaps")
    torch.manual_seed(0)
    net, shape = make_net()
    twin = copy.deepcopy(net).to(device)
    expected, _ = train(net, shape, make_optimizer, CPU)
    came, optimizer = train(twin, shape, make_optimizer, device)
    assert came == pytest.approx(expected, rel=1e-4, abs=1e-5)
    for name, value in twin.state_dict().items():
        assert value.device == device
        torch.testing.assert_close(value.cpu(), net.state_dict()[name], rtol=1e-4, atol=1e-5)
    for state in optimizer.state.values():
        for value in state.values():
            if isinstance(value, torch.Tensor) and value.dim():
                assert value.device == device


def fill_through_view(x):
    y = x.clone()
    y.view(-1)[1:3].zero_()
    y[0].mul_(2)
    y.t()[1].add_(1)
    return y


def assign(x):
    y = x.clone()
    y[0] = 5.0
    y[y > 4] = 0.0
    y[torch.tensor([1, 2])] = 7.0
    y[:, 0] = torch.arange(3.0)
    return y


def change_shape_in_place(x):
    y = x.clone()
    y.t_()
    y.unsqueeze_(0)
    return y, y.shape[0]


def replace_data(x):
    y = x.clone()
    y.data = x[:2] * 2
    return y, y + 1


OPERATIONS = {
    "add": lambda x: x + 1,
    "matmul": lambda x: x @ x.T,
    "cpu scalar": lambda x: x * torch.tensor(2.0) + torch.tensor(1),
    "in place": lambda x: x.clone().add_(1).clamp_(0),
    "views": fill_through_view,
    "assignment": assign,
    "in-place shapes": change_shape_in_place,
    "data": replace_data,
    "out=": lambda x: torch.add(x, x, out=torch.empty(0, device=x.device)),
    "cpu indices": lambda x: (x[torch.tensor([0, 2])], x[:, torch.tensor([1])]),
    "cpu mask": lambda x: x[torch.tensor([True, False, True])],
    "mask": lambda x: x[x > 0],
    "nonzero": lambda x: (x > 0).nonzero(),
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "cat": lambda x: torch.cat([x, x], 1),
    "sort": lambda x: x.sort(1),
    "half": lambda x: x.half(),
    "bfloat16": lambda x: x.bfloat16() * 2,
    "double": lambda x: x.to(torch.float64),
    "to cpu and dtype": lambda x: x.to("cpu", torch.float64),
    "non_blocking": lambda x: x.to("cpu", non_blocking=True).to(x.device, non_blocking=True),
    "zero-dim": lambda x: (x.sum(), x.sum().item(), float(x[0, 0]), bool(x[0, 0] > 0)),
    "lists": lambda x: (x.tolist(), x.sum().tolist(), len(x), [row.sum() for row in x]),
    "conj": lambda x: (torch.complex(x, x).conj() * 2).resolve_conj(),
    "conj to cpu": lambda x: torch.complex(x, x + 1).conj().cpu().resolve_conj(),
    "neg": lambda x: torch.complex(x, x + 1).conj().imag.cpu().resolve_neg(),
    "zeros": lambda x: torch.zeros(2, 3, device=x.device),
    "ones": lambda x: torch.ones(2, dtype=torch.int64, device=x.device),
    "arange": lambda x: torch.arange(4, device=x.device),
    "empty": lambda x: torch.empty(2, 3, device=x.device).fill_(1),
    "full": lambda x: torch.full((2,), 3.0, device=x.device),
    "eye": lambda x: torch.eye(3, device=x.device),
    "tensor": lambda x: torch.tensor([[1.0, 2.0]], device=x.device),
    "as_tensor": lambda x: torch.as_tensor([1, 2], device=x.device),
    "new_tensor": lambda x: (x.new_tensor([1.0]), x.new_zeros(2), torch.ones_like(x)),
    "like on the cpu": lambda x: torch.zeros_like(x, device="cpu") + 1,
    "one_hot": lambda x: F.one_hot(torch.tensor([0, 2]).to(x.device)),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    "numpy force": lambda x: x.numpy(force=True).tolist(),
    "format": lambda x: f"{x.sum():.3f}",
    "detach": lambda x: x.detach() * 1,
}


def assert_same(came, expected):
    came, expected = (torch.utils._pytree.tree_leaves(value) for value in (came, expected))
    assert len(came) == len(expected)
    for ours, theirs in zip(came, expected, strict=True):
        if isinstance(theirs, torch.Tensor):
            assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
            torch.testing.assert_close(ours.cpu(), theirs)
        elif isinstance(theirs, float):
            assert ours == pytest.approx(theirs, rel=1e-5)
        else:
            assert ours == theirs


@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_equals_the_cpu(device, name):
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(3))
    assert_same(OPERATIONS[name](x.to(device)), OPERATIONS[name](x))


@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_equals_the_cpu_in_inference_mode(toy, name):
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(3))
    with torch.inference_mode():
        assert_same(OPERATIONS[name](x.to(toy)), OPERATIONS[name](x))


def test_results_stay_on_the_device_until_they_are_moved(toy):
    x = torch.ones(2, 2, device=toy)
    for result in (x + 1, x @ x, x.sum(), x > 0, x.half(), x[0], torch.rand_like(x), torch.randn(2, device=toy)):
        assert result.device == toy and result.is_toy
    for result in (x.cpu(), x.to("cpu"), x.to(torch.ones(1)), torch.zeros_like(x, device="cpu")):
        assert type(result) is torch.Tensor and result.device == CPU


def test_moving_to_where_it_is_gives_the_same_object(toy):
    x = torch.ones(2, device=toy)
    assert x.to("toy") is x and x.to("toy:0") is x and x.to(toy) is x
    assert torch.device("toy") != x.device  # as cuda and cuda:0 differ


def test_moving_copies(device):
    x = torch.ones(3)
    y = x.to(device)
    x.zero_()
    z = y.cpu()
    z.zero_()
    assert y.cpu().tolist() == [1, 1, 1]


def test_autograd_crosses_devices(device):
    x = torch.arange(3.0, requires_grad=True)
    moved = x.to(device)
    assert moved.requires_grad and not moved.is_leaf
    (moved * 2).cpu().pow(2).sum().backward()
    assert x.grad.device == CPU
    assert x.grad.tolist() == [0, 8, 16]
    assert moved.grad_fn is not None


def test_a_leaf_on_the_device_gets_its_gradient_there(device):
    x = torch.ones(3, device=device, requires_grad=True)
    (x * 3).sum().backward()
    assert x.grad.device == device
    assert x.grad.cpu().tolist() == [3, 3, 3]


def test_deepcopy_is_independent(device):
    net = nn.Linear(2, 2).to(device)
    twin = copy.deepcopy(net)
    with torch.no_grad():
        twin.weight.zero_()
    assert isinstance(twin.weight, nn.Parameter) and twin.weight.requires_grad
    assert twin.weight.device == device
    assert net.weight.detach().cpu().abs().sum() > 0


def test_state_dict_travels_both_ways(device):
    here, there = nn.Linear(2, 2), nn.Linear(2, 2).to(device)
    there.load_state_dict(here.state_dict())
    assert there.weight.device == device
    assert_same(there.weight.detach(), here.weight.detach())
    with torch.no_grad():
        there.weight.mul_(2)
    state = there.state_dict()
    if device.type == "lazy":  # copy_() to the CPU is one of its gaps
        state = {name: value.cpu() for name, value in state.items()}
    here.load_state_dict(state)
    assert here.weight.device == CPU
    assert_same(there.weight.detach(), here.weight.detach())


def test_half_reaches_the_numbers_and_keeps_the_parameters(toy):
    net = nn.Linear(2, 2).to(toy)
    weight = net.weight
    assert net.half().weight is weight
    assert weight.dtype == torch.float16
    assert weight.detach().cpu().dtype == torch.float16
    assert net.to("cpu").weight.dtype == torch.float16


def test_swapping_parameters_keeps_the_optimizer(toy):
    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0, momentum=0.9)
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        weight = net.weight
        net.to(toy)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    assert net.weight is weight and weight.device == toy
    before = net.weight.detach().cpu()
    net(torch.ones(1, 2, device=toy)).sum().backward()
    optimizer.step()
    assert not torch.equal(before, net.weight.detach().cpu())


def test_optimizer_state_left_behind_is_refused(toy):
    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0, momentum=0.9)
    net(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        net.to(toy)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    net.zero_grad()
    net(torch.ones(1, 2, device=toy)).sum().backward()
    with pytest.raises(RuntimeError, match="same device"):
        optimizer.step()


def test_a_state_dict_saved_on_the_device_loads_there_or_on_the_cpu(toy):
    net, file = nn.Linear(2, 2).to(toy), io.BytesIO()
    torch.save(net.state_dict(), file)
    for place, options in {toy: {}, CPU: {"map_location": "cpu"}}.items():
        file.seek(0)
        loaded = torch.load(file, **options)
        assert loaded["weight"].device == place
        assert_same(loaded["weight"].cpu(), net.weight.detach().cpu())
    file = io.BytesIO()
    torch.save(net, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert isinstance(loaded.weight, nn.Parameter) and loaded.weight.device == toy


def test_views_share_memory(toy):
    x = torch.ones(2, 3, device=toy)
    memories = [t.untyped_storage().data_ptr() for t in (x, x[0], x.t(), x.detach(), x.clone())]
    assert len(set(memories[:4])) == 1 and memories[4] != memories[0]
    assert x.t().stride() == (1, 3) and x[1].storage_offset() == 3


def test_writing_to_what_backward_needs_is_noticed(toy):
    x = torch.ones(2, device=toy, requires_grad=True)
    y = x.exp()
    z = (y * y).sum()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


def test_printing_names_the_device(device):
    assert f"device='{device}'" in repr(torch.ones(2, device=device))
    parameter = nn.Parameter(torch.ones(1, device=device))
    assert "requires_grad=True" in repr(parameter)


def test_device_agnostic_code_finds_the_toy(toy):
    assert torch.accelerator.current_accelerator().type == "toy"
    assert torch.get_device_module("toy").device_count() == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_child_forked_after_starting_can_train_and_one_forked_after_a_backward_cannot(toy):
    code = (
        "import os, torch; from helpers.devices.second import _start\n"
        "device = _start('toy')\n"
        "def backward(device): torch.ones(2, device=device, requires_grad=True).sum().backward()\n"
        "def trains_in_child(device):\n"
        "    if not (child := os.fork()):\n"
        "        try: backward(device)\n"
        "        except RuntimeError: os._exit(1)\n"
        "        os._exit(0)\n"
        "    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0\n"
        "assert trains_in_child(device)\n"
        "backward(device)\n"
        "assert not trains_in_child('cpu')\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, capture_output=True)


# That it fails as CUDA does

SAME_DEVICE = "Expected all tensors to be on the same device, but "
MIXTURES = {
    "elementwise": (lambda x, c: x + c, SAME_DEVICE + "found at least two devices, toy:0 and cpu!"),
    "in place": (lambda x, c: c.add_(x), SAME_DEVICE + "found at least two devices, cpu and toy:0!"),
    "matmul": (
        lambda x, c: x @ c,
        SAME_DEVICE + "got mat2 is on cpu, different from other tensors on toy:0 "
        "(when checking argument in method wrapper_toy_mm)",
    ),
    "linear": (lambda x, c: F.linear(c, x), SAME_DEVICE + "got "),
    "target": (lambda x, c: F.cross_entropy(x, torch.tensor([0, 1])), SAME_DEVICE + "got target is on cpu"),
    "embedding": (lambda x, c: F.embedding(torch.tensor([0]), x), SAME_DEVICE),
    "cat": (lambda x, c: torch.cat([x, c]), SAME_DEVICE + "got tensors is on cpu"),
    "where": (lambda x, c: torch.where(x > 0, x, c), SAME_DEVICE),
    "out=": (lambda x, c: torch.add(x, x, out=torch.empty(2, 2)), SAME_DEVICE),
    "into a cpu scalar": (lambda x, c: torch.tensor(1.0).add_(x.sum()), SAME_DEVICE),
    "convolution": (
        lambda x, c: F.conv2d(x[None, None], c[None, None]),
        "Input type (torch.toy.FloatTensor) and weight type (torch.FloatTensor) should be the same",
    ),
    "cpu indexed by toy": (
        lambda x, c: c[torch.tensor([0]).to(x.device)],
        "indices should be either on cpu or on the same device as the indexed tensor (cpu)",
    ),
}


@pytest.mark.parametrize("name", MIXTURES)
def test_mixed_devices_are_refused_in_cudas_words(toy, name):
    mix, words = MIXTURES[name]
    with pytest.raises(RuntimeError) as caught:
        mix(torch.ones(2, 2, device=toy), torch.ones(2, 2))
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize("name", ["elementwise", "matmul", "target", "embedding", "convolution"])
def test_mixed_devices_are_refused(device, name):
    with pytest.raises(RuntimeError):
        MIXTURES[name][0](torch.ones(2, 2, device=device), torch.ones(2, 2))


def test_numpy_is_refused_in_cudas_words(device):
    words = (
        f"can't convert {device.type}:0 device type tensor to numpy. "
        "Use Tensor.cpu() to copy the tensor to host memory first."
    )
    x = torch.ones(2, device=device)
    parameter = x.clone().requires_grad_()
    for call in (x.numpy, parameter.numpy, lambda: np.asarray(x)):
        with pytest.raises(TypeError) as caught:
            call()
        assert str(caught.value) == words
    with pytest.raises(RuntimeError, match="requires grad"):
        parameter.cpu().numpy()
    assert parameter.numpy(force=True).tolist() == [1, 1]
    with pytest.raises(TypeError, match="BFloat16"):
        x.bfloat16().cpu().numpy()


# The gaps, each demonstrated


def toy_replaces_parameters(device):
    net = nn.Linear(2, 2)
    weight = net.weight
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    net.to(device)
    before = net.weight.detach().cpu()
    net(torch.ones(1, 2, device=device)).sum().backward()
    optimizer.step()
    assert net.weight is not weight and torch.equal(before, net.weight.detach().cpu())


def toy_random_numbers(device):
    torch.manual_seed(0)
    here = torch.randn(3)
    torch.manual_seed(0)
    assert_same(torch.randn(3, device=device), here)
    torch.randn(3, device=device, generator=torch.Generator())
    with pytest.raises((NotImplementedError, RuntimeError)):
        torch.Generator(device=device)


def toy_recurrent(device):
    x = torch.ones(5, 2, 3, device=device)
    for layer in (nn.LSTM, nn.GRU):
        with pytest.raises(NotImplementedError):
            layer(3, 4).to(device)(x)
    assert nn.RNN(3, 4).to(device)(x)[0].shape == (5, 2, 4)


def raises(kind, call):
    def demonstrate(device):
        with pytest.raises(kind):
            call(device)

    return demonstrate


def toy_waiting(device):
    x = torch.ones(2, device=device) * 2
    assert x.to("cpu", non_blocking=True).tolist() == [2, 2]
    assert torch.accelerator.synchronize() is None
    timer = torch.utils.benchmark.Timer("x + 1", globals={"x": torch.ones(2)})
    assert timer.timeit(2).median > 0, "code that waits for any accelerator still works"


def toy_data_ptr(device):
    assert torch.ones(2, device=device).data_ptr() == torch.ones(3, device=device).data_ptr() == 0


def toy_statistics(device):
    assert not hasattr(torch.get_device_module(device), "memory_allocated")


def toy_lengths(device):
    with pytest.raises(RuntimeError, match="same device"):
        scores = torch.zeros(6, 1, 4, device=device).log_softmax(2)
        target = torch.tensor([[1, 2]], device=device)
        F.ctc_loss(scores, target, torch.tensor([6]), torch.tensor([2]))


def toy_sparse(device):
    eye = torch.eye(2, device=device)
    assert eye.to_sparse().layout == torch.strided
    with pytest.raises(RuntimeError):
        torch.sparse.mm(eye.to_sparse(), eye)


def toy_map_location(device):
    file = io.BytesIO()
    torch.save(torch.ones(2), file)
    file.seek(0)
    with pytest.raises((AttributeError, RuntimeError)):
        torch.load(file, map_location=device)


def lazy_words(device):
    with pytest.raises(RuntimeError, match="Input tensor is not a lazy tensor"):
        torch.ones(2, device=device) + torch.ones(2)


def lazy_where(device):
    x = torch.ones(2, device=device)
    assert torch.where(x > 0, x, torch.zeros(2)).device == device


def lazy_indexing(device):
    assert torch.arange(4)[torch.tensor([1, 2], device=device)].shape == (2,)


def lazy_batch_norm(device):
    norm = nn.BatchNorm1d(2).to(device)
    norm(torch.tensor([[1.0, 2.0], [3.0, 4.0]]).to(device)).sum().backward()
    assert norm.running_mean.cpu().tolist() == [0, 0]


def lazy_storage(device):
    code = (
        "import torch; from helpers.devices.second import _start; x = torch.ones(2, device=_start('lazy'))\n"
        "assert x.data_ptr() == 0; x.untyped_storage().data_ptr(); print('reached')"
    )
    assert torch.ones(2, 3, device=device).t().stride() == (2, 1)
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode != 0 and "reached" not in done.stdout and "AssertionError" not in done.stderr


def lazy_accelerator(device):
    try:
        found = torch.accelerator.current_accelerator()
    except RuntimeError:
        return
    assert found is None or found.type != "lazy"


def lazy_inference(device):
    net = nn.Linear(2, 2).to(device)
    with torch.no_grad():
        transfers(lambda: net(torch.ones(1, 2).to(device)).cpu())
    with torch.inference_mode(), pytest.raises(RuntimeError):
        transfers(lambda: net(torch.ones(1, 2).to(device)).cpu())


DEMONSTRATIONS = {
    "toy": {
        "Module.to()": toy_replaces_parameters,
        "random numbers": toy_random_numbers,
        "LSTM and GRU": toy_recurrent,
        "pin_memory()": raises(NotImplementedError, lambda d: torch.ones(2).pin_memory()),
        "autocast": raises(AssertionError, lambda d: torch.autocast("toy", torch.bfloat16)),
        "waiting": toy_waiting,
        "memory statistics": toy_statistics,
        "data_ptr()": toy_data_ptr,
        "sparse tensors": toy_sparse,
        "torch.load(map_location=...)": toy_map_location,
        "lengths on the CPU": toy_lengths,
    },
    "lazy": {
        "Module.to()": toy_replaces_parameters,
        "mixed devices": lazy_words,
        "torch.where": lazy_where,
        "indexing": lazy_indexing,
        "torch.cat": raises(RuntimeError, lambda d: torch.cat([torch.ones(1, 2, device=d), torch.ones(1, 2)])),
        "copy_() to the CPU": raises(RuntimeError, lambda d: torch.ones(2).copy_(torch.ones(2, device=d))),
        "BatchNorm": lazy_batch_norm,
        "recurrent layers": raises(RuntimeError, lambda d: nn.RNN(3, 4).to(d)(torch.ones(5, 2, 3, device=d))),
        "torch.save": raises(RuntimeError, lambda d: torch.save(torch.ones(2, device=d), io.BytesIO())),
        "storage": lazy_storage,
        "torch.accelerator": lazy_accelerator,
        "transfers() in inference mode": lazy_inference,
    },
}


@pytest.mark.parametrize(("kind", "what"), [(kind, what) for kind in KINDS for what, _ in gaps(kind)], ids=str)
def test_gap_is_there(rehearsed, kind, what):
    DEMONSTRATIONS[kind][what](started(rehearsed, kind))


def test_every_demonstration_belongs_to_a_gap():
    for kind in KINDS:
        assert DEMONSTRATIONS[kind].keys() == dict(gaps(kind)).keys()
    assert gaps("cuda") == []


# The census

CROSSINGS = {
    "nothing": (lambda x, c: x + 1, {}),
    "to the device": (lambda x, c: c.to(x.device), dict(to_device=1, to_device_bytes=24)),
    "to the device and half": (
        lambda x, c: c.to(x.device, torch.float16),
        dict(to_device=1, to_device_bytes=12),
    ),
    "to where it is": (lambda x, c: (x.to(x.device), c.cpu()), {}),
    "copy_": (lambda x, c: x.copy_(c), dict(to_device=1, to_device_bytes=24)),
    "assign": (lambda x, c: x.__setitem__(0, c[0]), dict(to_device=1, to_device_bytes=12)),
    "assign a number": (lambda x, c: x.__setitem__(0, 1.0), {}),
    "fill by mask": (lambda x, c: x.__setitem__(x > 0, 1.0), {}),
    "torch.tensor": (
        lambda x, c: torch.tensor([1.0, 2.0], device=x.device),
        dict(to_device=1, to_device_bytes=8),
    ),
    "from numpy": (
        lambda x, c: torch.as_tensor(np.ones(2), device=x.device),
        dict(to_device=1, to_device_bytes=16),
    ),
    "made there": (lambda x, c: torch.zeros(2, device=x.device) + torch.arange(2, device=x.device), {}),
    "module": (lambda x, c: nn.Linear(3, 2).to(x.device), dict(to_device=2, to_device_bytes=32)),
    "cpu()": (lambda x, c: x.cpu(), dict(to_host=1, to_host_bytes=24, syncs=1)),
    "cpu and double": (
        lambda x, c: x.to("cpu", torch.float64),
        dict(to_host=1, to_host_bytes=24, syncs=1),
    ),
    "non_blocking": (
        lambda x, c: x.to("cpu", non_blocking=True),
        dict(to_host=1, to_host_bytes=24),
    ),
    "numpy": (lambda x, c: x.numpy(force=True), dict(to_host=1, to_host_bytes=24, syncs=1)),
    "item": (lambda x, c: x.sum().item(), dict(to_host=1, to_host_bytes=4, syncs=1)),
    "if": (lambda x, c: 1 if x.sum() > 0 else 0, dict(to_host=1, to_host_bytes=1, syncs=1)),
    "format": (lambda x, c: f"{x.sum():.1f}", dict(to_host=1, to_host_bytes=4, syncs=1)),
    "tolist": (lambda x, c: x.tolist(), dict(to_host=1, to_host_bytes=24, syncs=1)),
    "cpu scalars": (lambda x, c: (c.sum().item(), float(c[0, 0]), bool(c[0, 0] > 0), c.tolist()), {}),
    "cpu scalar in arithmetic": (lambda x, c: x * torch.tensor(2.0), {}),
    "nonzero": (lambda x, c: x.nonzero(), dict(syncs=1)),
    "mask": (lambda x, c: x[x > 0], dict(syncs=1)),
    "masked_select": (lambda x, c: x.masked_select(x > 0), dict(syncs=1)),
    "unique": (lambda x, c: x.unique(), dict(syncs=1)),
    "equal": (lambda x, c: torch.equal(x, x), dict(syncs=1)),
    "cpu nonzero": (lambda x, c: (c.nonzero(), c[c > 0], torch.equal(c, c)), {}),
    "cpu indices": (
        lambda x, c: x[torch.tensor([0, 1, 0])],
        dict(to_device=1, to_device_bytes=24),
    ),
    "cpu mask": (lambda x, c: x[c > 0], dict(to_device=2, to_device_bytes=96)),
    "device indices": (lambda x, c: x[torch.arange(2, device=x.device)], {}),
}


@pytest.mark.parametrize("name", CROSSINGS)
def test_census_is_exact(device, name):
    run, expected = CROSSINGS[name]
    x, c = torch.ones(2, 3, device=device), torch.ones(2, 3)
    assert transfers(lambda: run(x, c)) == Transfers(**expected)


def test_census_of_a_training_step(device):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).to(device)
    for optimizer in (torch.optim.SGD(net.parameters(), lr=0.1), torch.optim.Adam(net.parameters())):

        def step(optimizer=optimizer):
            x, y = torch.randn(5, 4).to(device), torch.tensor([0, 1, 2, 0, 1]).to(device)
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            return loss.item()

        for _ in range(2):
            assert transfers(step) == Transfers(2, 80 + 40, 1, 4, 1)


def test_census_sees_the_backward_pass(device):
    x = torch.ones(3, requires_grad=True)
    y = x.to(device).sum()
    assert transfers(y.backward) == Transfers(to_host=1, to_host_bytes=12, syncs=1)


def test_census_in_inference_mode(toy):
    net = nn.Linear(2, 2).to(toy)
    with torch.inference_mode():
        counts = transfers(lambda: net(torch.ones(1, 2).to(toy)).cpu())
    assert counts == Transfers(1, 8, 1, 8, 1)


def test_census_counts_what_printing_costs(toy):
    assert transfers(lambda: repr(torch.ones(3, device=toy))).syncs == 1


def test_census_lets_errors_through_and_ends(toy):
    with pytest.raises(ZeroDivisionError):
        transfers(lambda: 1 / 0)
    torch.ones(1, device=toy).item()
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None


def test_census_on_the_cpu_alone_is_empty():
    assert transfers(lambda: torch.ones(2).cpu().sum().item()) == Transfers()


def test_a_second_device_is_plain_data():
    chosen = SecondDevice(CPU, "none", False, "of a test")
    assert str(chosen) == "No second device: of a test."


def test_a_backward_pass_that_came_first_is_told_and_lazy_steps_in():
    code = """
import torch
(torch.ones(2, requires_grad=True) * 2).sum().backward()
from helpers.devices import second_device
device = second_device()
print(device)
weight = torch.ones(2, requires_grad=True)
print(torch.autograd.grad(weight.to(device.device).sum(), weight))
"""
    if machine.accelerators():
        pytest.skip("this machine has hardware")
    if second._stand_in_obstacle("toy"):
        pytest.skip("toy does not run on this torch")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "lazy" in done.stdout and "restart the kernel" in done.stdout
