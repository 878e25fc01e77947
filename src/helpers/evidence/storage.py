"""The memory behind tensors: which storages there are, how large they are, and who shares one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn


def tensors_in(*things: object) -> Iterator[Tensor]:
    """Find the tensors in nested containers, dataclasses, and modules (parameters, buffers)."""
    for thing in things:
        if isinstance(thing, Tensor):
            yield thing
        elif isinstance(thing, nn.Module):
            yield from thing.parameters()
            yield from thing.buffers()
        elif isinstance(thing, Mapping):
            yield from tensors_in(*thing.values())
        elif dataclasses.is_dataclass(thing) and not isinstance(thing, type):
            yield from tensors_in(*(getattr(thing, f.name) for f in dataclasses.fields(thing)))
        elif isinstance(thing, (list, tuple, set, frozenset, Iterator)):
            yield from tensors_in(*thing)


def storages(*things: object) -> dict[int, torch.UntypedStorage]:
    """The distinct storages behind tensors, by identity.

    An identity is unique only while its storage is alive, hence the storages in the result. Passed
    over are sparse tensors, which have no storage of their own, and the stand-in device `lazy`,
    where asking for a storage can end the process.
    """
    found = {}
    for tensor in tensors_in(*things):
        if tensor.layout == torch.strided and tensor.device.type != "lazy":
            storage = tensor.untyped_storage()
            found[storage._cdata] = storage
    return found


def storage_bytes(*things: object) -> int:
    """Sum the bytes of the distinct storages behind tensors: views share one, and it counts whole.

    Args:
        things: tensors, containers of tensors, or modules.
    """
    return sum(storage.nbytes() for storage in storages(*things).values())


def shares_storage(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors live in the same memory, so that writing to one may change the other.

    Two tensors made from one numpy array share it too, although each has a storage object of its
    own.
    """
    ours, theirs = a.untyped_storage(), b.untyped_storage()
    if ours._cdata == theirs._cdata:
        return True
    if a.device != b.device or a.device.type == "meta":
        return False
    starts_before_end = ours.data_ptr() < theirs.data_ptr() + theirs.nbytes()
    return starts_before_end and theirs.data_ptr() < ours.data_ptr() + ours.nbytes()
