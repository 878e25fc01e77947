"""What crosses between the CPU and a device while a function runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.utils._pytree import tree_leaves

from ..evidence.operations import CountingMode
from . import toy

aten = torch.ops.aten


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
    if not isinstance(out, torch.Tensor) or out.device.type != "lazy":
        return out
    if torch._is_functional_tensor(out) or any(map(_on_device, tree_leaves(args))):
        return out
    return torch._to_functional_tensor(out)


class _Census(CountingMode):
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
