"""The operations that reach a backend: which, how often, how many flops, and which of them make Python wait.

Counters sit under a dispatch mode: they see every operation that reaches a backend from this thread, its backward
pass included, but not what a kernel does inside, nor what other threads run.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .storage import tensors_in

# Operations that hand Python a value, or a size that depends on values: a GPU has to finish first.
_WAITS_FOR_VALUES = (
    "_local_scalar_dense",
    "equal",
    "allclose",
    "nonzero",
    "masked_select",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
)


class CountingMode(TorchDispatchMode):
    """A dispatch mode that costs nothing where nothing is compiled.

    PyTorch keeps its compiler out of every mode, and imports it for that purpose: seconds, at the first operation
    counted. Where the compiler is not loaded there is nothing to keep out, so the method is called as written.
    """

    _as_written: ClassVar[Callable[..., Any]]
    _compiler_kept_out: ClassVar[Callable[..., Any]]

    def __init_subclass__(cls, **kwargs: object) -> None:
        cls._as_written = cls.__torch_dispatch__
        super().__init_subclass__(**kwargs)
        cls._compiler_kept_out = cls.__torch_dispatch__

    def __enter__(self):
        kind = type(self)
        loaded = "torch._dynamo" in sys.modules
        kind.__torch_dispatch__ = kind._compiler_kept_out if loaded else kind._as_written
        return super().__enter__()


def op_counts(fn: Callable[[], object]) -> Counter[str]:
    """Count the operations that reach a backend while `fn` runs, by name: `addmm`, `relu`, `view`.

    The names are PyTorch's internal ones (`aten`), without overloads. Autograd adds operations of
    its own, such as `t` and `detach`, so the counts depend on the grad mode.
    """
    with _Ops() as ops:
        fn()
    return ops.counts


def host_syncs(fn: Callable[[], object]) -> int:
    """Count the times `fn` makes Python wait for a tensor's values.

    These are `.item()`, `float(t)`, `if t`, and operations whose answer or output size depends on
    values: `equal`, `nonzero`, `masked_select`, `unique`, indexing with a mask. On a GPU each waits
    until the queue is empty; on a CPU the same places are counted, so no GPU is needed to find
    them. Copies to the host (`.cpu()`, `.tolist()`) wait as well and are not counted here.
    """
    with _Ops() as ops:
        fn()
    return ops.mask_lookups + sum(ops.counts[name] for name in _WAITS_FOR_VALUES)


class _Ops(CountingMode):
    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.mask_lookups = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.counts[operation_name(func)] += 1
        if operation_name(func) == "index":
            masks = (torch.bool, torch.uint8)
            self.mask_lookups += any(index.dtype in masks for index in tensors_in(args[1]))
        return func(*args, **(kwargs or {}))


def operation_name(func: torch._ops.OpOverload) -> str:
    return func.overloadpacket.__name__


def flops(fn: Callable[[], object]) -> int:
    """Count the floating-point operations of `fn`'s matrix products, convolutions and attention.

    A multiplication and an addition count as two. Elementwise operations are left out by
    convention. LSTM, GRU and RNN modules count as 0 on a CPU, because they run as one fused kernel
    that has no formula.
    """
    from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

    def attention(query, key, value, *args, out_shape=None, **kwargs) -> int:
        return sdpa_flop_count(query, key, value)

    def attention_backward(grad, query, key, value, *args, out_shape=None, **kwargs) -> int:
        return sdpa_backward_flop_count(grad, query, key, value)

    # The CPU's fused attention is missing from the registry, and would count as 0.
    aten = torch.ops.aten
    fused = {
        aten._scaled_dot_product_flash_attention_for_cpu: attention,
        aten._scaled_dot_product_flash_attention_for_cpu_backward: attention_backward,
    }
    with FlopCounterMode(display=False, custom_mapping=fused) as counter:
        fn()
    return counter.get_total_flops()
