"""A device made in Python: what a second device is to PyTorch, in one file.

PyTorch keeps one backend spare, PrivateUse1. Here it is given the name `toy`. What makes a device:

- a tag: a `ToyTensor` says `device='toy:0'`; its numbers lie in memory that only this file touches;
- a rule: operands with different tags are refused, in the words that CUDA uses;
- memory: three operations that must work before any tensor carries the tag (see `start`).

Arithmetic is the CPU's, so results equal the CPU's. It is a stand-in: it shows what goes wrong in a
program with two memories, and nothing about speed. It rests on private parts of PyTorch >= 2.10.
"""

from __future__ import annotations

import atexit
import functools
import time
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

aten = torch.ops.aten
INDEXING = (aten.index, aten._unsafe_index, aten.index_put, aten.index_put_, aten._unsafe_index_put)
_libraries: list[torch.library.Library] = []  # a registration lives as long as its Library object


class ToyTensor(torch.Tensor):
    """A tensor on `toy`: PyTorch sees shape, strides and device; the numbers lie in `host`."""

    host: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]  # private, loosely typed

    @staticmethod
    def __new__(cls, host: torch.Tensor) -> ToyTensor:
        """Put the device tag on a CPU tensor, which is shared, not copied."""
        keys = torch._C.DispatchKey
        lazy_bits = torch._C.DispatchKeySet(keys.Conjugate) | torch._C.DispatchKeySet(keys.Negative)
        tensor = torch.Tensor._make_wrapper_subclass(
            cls,
            host.size(),
            strides=host.stride(),
            storage_offset=host.storage_offset(),
            dtype=host.dtype,
            device=torch.device("toy", 0),
            _extra_dispatch_keys=torch._C._dispatch_keys(host) & lazy_bits,
        )
        tensor.host = host
        return tensor

    @classmethod
    def __torch_dispatch__(cls, op, types, args=(), kwargs=None):
        """Run one operation: refuse mixed devices, let the CPU compute, tag what comes out."""
        kwargs = kwargs or {}
        if op._can_decompose():  # in inference mode `to`, `matmul`, ... arrive whole
            return op.decompose(*args, **kwargs)
        _refuse_mixed_devices(op, args, kwargs)
        target = kwargs.get("device")
        seen = {}  # an output that is one of the inputs (in-place, out=) must stay that very object

        def to_host(value):
            if isinstance(value, torch.Tensor):
                host = value.host if isinstance(value, ToyTensor) else value
                seen[id(host)] = value
                return host
            is_toy = isinstance(value, torch.device) and value.type == "toy"
            return torch.device("cpu") if is_toy else value

        def to_toy(value):
            if not isinstance(value, torch.Tensor) or (target and target.type != "toy"):
                return value
            known = seen.get(id(value))
            if known is None:
                return ToyTensor(value)
            if (known.size(), known.stride()) != (value.size(), value.stride()):
                known.data = ToyTensor(value)  # t_(), resize_(), out=: the host got another shape
            return known

        return tree_map(to_toy, op(*tree_map(to_host, args), **tree_map(to_host, kwargs)))

    @property
    def data(self) -> torch.Tensor:
        """The same numbers without history; assigning replaces them, as on any tensor."""
        return torch.Tensor.data.__get__(self)  # type: ignore[attr-defined]  # a descriptor, declared as a Tensor

    @data.setter
    def data(self, new: torch.Tensor) -> None:
        torch.Tensor.data.__set__(self, new)  # type: ignore[attr-defined]  # as above
        assert isinstance(new, ToyTensor)  # any other was refused just now
        self.host = new.host

    def numpy(self, *, force: bool = False):
        """Refuse, as CUDA does: NumPy reads host memory only."""
        if force:
            return self.detach().cpu().numpy(force=True)
        raise TypeError(
            f"can't convert {self.device} device type tensor to numpy. "
            "Use Tensor.cpu() to copy the tensor to host memory first."
        )

    def __array__(self, *args, **kwargs):
        return self.numpy()

    def tolist(self) -> list:
        """The numbers as Python numbers, by way of the CPU."""
        return self.detach().cpu().tolist()

    def untyped_storage(self) -> torch.UntypedStorage:
        """The memory that holds the numbers; two views of one tensor share it."""
        return self.host.untyped_storage()

    def __repr__(self, **kwargs) -> str:  # type: ignore[override]  # mypy sees no names of a dunder's arguments
        suffix = ", requires_grad=True" if self.requires_grad else ""
        return f"{repr(self.detach().cpu())[:-1]}, device='{self.device}'{suffix})"

    def __format__(self, spec: str) -> str:
        return format(self.item() if self.dim() == 0 else self.__repr__(), spec)

    def __reduce_ex__(self, protocol):
        if isinstance(self, torch.nn.Parameter):
            return torch._utils._rebuild_parameter, (self.detach(), self.requires_grad, {})
        # PyTorch's own way for devices without a storage format; it obeys map_location.
        rebuild = torch._utils._rebuild_device_tensor_from_cpu_tensor
        return rebuild, (self.detach().cpu(), self.dtype, str(self.device), self.requires_grad)


def _refuse_mixed_devices(op, args: tuple, kwargs: dict) -> None:
    """Raise what CUDA raises, in its words, if the operands lie on two devices.

    As on CUDA, copies may cross, a zero-dim CPU tensor passes as a number, and indices may lie on
    the CPU.
    """
    if op in (aten.copy_.default, aten._to_copy.default):
        return
    indexing = op.overloadpacket in INDEXING
    names = [argument.name for argument in op._schema.arguments]
    named = [*zip(names, args, strict=False), *kwargs.items()]
    operands = [
        (name, tensor)
        for name, value in named
        if not (indexing and name == "indices")
        for tensor in tree_leaves(value)
        if isinstance(tensor, torch.Tensor)
    ]
    written = {a.name for a in op._schema.arguments if a.alias_info and a.alias_info.is_write}
    operands = [(n, t) for n, t in operands if n in written or t.dim() or isinstance(t, ToyTensor)]
    if indexing and not isinstance(args[0], ToyTensor):
        raise RuntimeError(
            f"indices should be either on {args[0].device} or on the same device as the indexed "
            f"tensor ({args[0].device})"
        )
    first = operands[0][1]
    for name, other in operands:
        if other.device == first.device:
            continue
        text = "Expected all tensors to be on the same device, but "
        if op is aten.convolution.default:
            kinds = f"Input type ({first.type()}) and {name} type ({other.type()})"
            text = f"{kinds} should be the same"
        elif torch.Tag.pointwise in op.tags:
            text += f"found at least two devices, {first.device} and {other.device}!"
        else:
            text += f"got {name} is on {other.device}, different from other tensors on "
            text += f"{first.device} (when checking argument in method "
            text += f"wrapper_toy_{op.overloadpacket.__name__})"
        raise RuntimeError(text)


def start() -> None:
    """Name PyTorch's spare backend `toy`, and teach it to get memory and to be copied to.

    Raises:
        RuntimeError: this torch cannot, or another package has taken the spare backend.
    """
    taken = torch._C._get_privateuse1_backend_name()
    if taken == "toy":
        return
    if taken != "privateuseone":
        raise RuntimeError(f"PyTorch's spare backend is already in use, as {taken!r}")
    from torch.utils import backend_registration

    setup = getattr(backend_registration, "_setup_privateuseone_for_python_backend", None)
    if setup is None:
        raise RuntimeError(f"it needs torch 2.10 or newer, and this is {torch.__version__}")
    setup("toy")

    def empty(size, *, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None):
        return ToyTensor(torch.empty(size, dtype=dtype, device="cpu", memory_format=memory_format))

    def empty_strided(size, stride, *, dtype=None, layout=None, device=None, pin_memory=None):
        return ToyTensor(torch.empty_strided(size, stride, dtype=dtype, device="cpu"))

    def copy_from(source, destination, non_blocking=False):  # torch.tensor(..., device="toy")
        getattr(destination, "host", destination).copy_(getattr(source, "host", source))
        return destination

    library = torch.library.Library("aten", "IMPL")
    library.impl("empty.memory_format", empty, "PrivateUse1")
    library.impl("empty_strided", empty_strided, "PrivateUse1")
    library.impl("_copy_from", copy_from, "PrivateUse1")
    _libraries.append(library)
    _let_waiting_return()
    # Autograd's thread for this device lets go of its last Python tensors shortly after backward() has returned. If
    # the interpreter is gone by then, the process aborts; nobody can be asked when it is done, so wait a moment.
    atexit.register(time.sleep, 0.2)


def _let_waiting_return() -> None:
    """Make `torch.accelerator.synchronize()` return at once where toy is the accelerator.

    Nothing runs behind Python's back on toy, yet some releases raise; and other code, such as the timer of
    torch.utils.benchmark, waits for whatever accelerator there is.
    """
    wait = torch.accelerator.synchronize

    @functools.wraps(wait)
    def synchronize(*args: Any, **kwargs: Any) -> None:
        current = torch.accelerator.current_accelerator()
        if current is None or current.type != "toy":
            wait(*args, **kwargs)

    torch.accelerator.synchronize = synchronize
