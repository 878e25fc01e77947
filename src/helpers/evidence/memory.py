"""What a function allocates, and what autograd keeps of it for a backward pass."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from .operations import CountingMode, operation_name
from .storage import storages


def saved_for_backward(fn: Callable[[], object], parameters: object = ()) -> int:
    """Measure the most bytes that autograd held for a backward pass at one time while `fn` ran.

    A storage counts once and whole, however many nodes save it or views of it. Inputs that are
    saved count. What a backward pass inside `fn` frees is no longer held, so a training loop counts
    as one step of it.

    Args:
        fn: runs the forward pass, and may run the backward pass too.
        parameters: what to leave out because it is in memory anyway: `model.parameters()` or the
            model.
    """
    left_out = storages(parameters)
    held: Counter[int] = Counter()
    now = peak = 0

    def release(key: int, nbytes: int) -> None:
        nonlocal now
        held[key] -= 1
        if not held[key]:
            now -= nbytes

    def pack(tensor: Tensor) -> _Saved:
        nonlocal now, peak
        saved = _Saved(tensor)
        for key, storage in storages(tensor).items():
            if key in left_out:
                continue
            now += 0 if held[key] else storage.nbytes()
            held[key] += 1
            # Called when the graph lets go of what it saved, or is freed as a whole.
            weakref.finalize(saved, release, key, storage.nbytes()).atexit = False
        peak = max(peak, now)
        return saved

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved.tensor):
        fn()
    return peak


class _Saved:
    """What the graph holds instead of a tensor it saves; it dies when the graph lets go of it."""

    def __init__(self, tensor: Tensor) -> None:
        # Detached: a saved output that knew its graph would keep itself alive for ever.
        self.tensor = tensor.detach()


class Memory(NamedTuple):
    """What a function allocated, in bytes.

    peak: the most that was alive at one time.
    live: what is still alive afterwards, while the function's result is held.
    timeline: after each operation its name and the bytes alive, in order; last `("return", live)`.
    """

    peak: int
    live: int
    timeline: list[tuple[str, int]]


def peak_memory(fn: Callable[[], object]) -> Memory:
    """Measure the memory of the tensors that are born while `fn` runs.

    What existed before is not counted. An operation in place allocates nothing, a view shares its
    storage, a temporary is given back when Python or autograd drops it. Scratch space inside a
    kernel is not seen, except on CUDA: there `peak` and `live` are those of PyTorch's own allocator
    on the current device, and the first call may hold a workspace more, so call `fn` once before.
    """
    on_cuda = torch.cuda.is_available()
    if on_cuda:
        gc.collect()  # garbage that is freed while fn runs would be subtracted from its memory
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
    with _LiveStorages() as storages:
        result = fn()  # held, so that what it keeps alive counts as live
    storages.timeline.append(("return", storages.live))
    peak, live = max(now for _, now in storages.timeline), storages.live
    if on_cuda and "cuda" in storages.device_types:
        peak = torch.cuda.max_memory_allocated() - before
        live = torch.cuda.memory_allocated() - before
    del result
    return Memory(peak, live, storages.timeline)


class _LiveStorages(CountingMode):
    """Follows the storages that are born under it until they die."""

    def __init__(self) -> None:
        super().__init__()
        self.live = 0
        self.timeline: list[tuple[str, int]] = []
        self.device_types: set[str] = set()
        self._sizes: dict[int, int] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        # `torch.tensor` shows its new tensor to a mode as the input of `lift_fresh`.
        fresh = func is torch.ops.aten.lift_fresh.default
        before = {} if fresh else storages(args, kwargs)
        result = func(*args, **(kwargs or {}))
        for key, storage in storages(result, args, kwargs).items():
            if key in self._sizes:
                self._resize(key, storage.nbytes())
            elif key not in before:
                self._sizes[key] = 0
                self._resize(key, storage.nbytes())
                self.device_types.add(storage.device.type)
                weakref.finalize(storage, self._die, key).atexit = False
        self.timeline.append((operation_name(func), self.live))
        return result

    def _resize(self, key: int, nbytes: int) -> None:
        self.live += nbytes - self._sizes[key]
        self._sizes[key] = nbytes

    def _die(self, key: int) -> None:
        self.live -= self._sizes.pop(key)
