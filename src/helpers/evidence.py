"""Evidence that needs no clock: what PyTorch recorded, kept, ran and compiled, counted exactly.

Every function here runs a piece of code once and counts what happened, so that the answer is the
same on a busy laptop and on a quiet server. Each takes a function without arguments
(`lambda: model(x)`), or tensors, possibly nested in lists, dicts and dataclasses. Hooks and modes are
removed on the way out, also after an error.

Most counters sit under a dispatch mode: they see every operation that reaches a backend from this
thread, its backward pass included, but not what a kernel does inside, nor what other threads run.

**A trap.** Calling a compiled function (`torch.compile`) under any dispatch mode runs it eager *and
leaves it eager* until `torch.compiler.reset()` (pytorch#190286). Do not hand one to `op_counts`,
`host_syncs`, `peak_memory` or `flops`; count what it compiles with `CountingBackend` instead.
"""

from __future__ import annotations

import dataclasses
import gc
import hashlib
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

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


def graph_node_names(*outputs: object) -> Counter[str]:
    """Count the nodes of the autograd graph behind tensors, by kind, such as `AddmmBackward0`.

    Args:
        outputs: tensors, or containers of tensors. One without a graph adds nothing.
    """
    roots = [tensor.grad_fn for tensor in tensors_in(*outputs) if tensor.grad_fn is not None]
    return Counter(node.name() for node in _walk(roots))


def graph_nodes(*outputs: object) -> int:
    """Count the nodes of the autograd graph behind tensors, each once.

    A parameter has a node of its own (`AccumulateGrad`), and so has the transpose of a weight.
    """
    return graph_node_names(*outputs).total()


def _walk(roots: list) -> Iterator:
    seen, todo = set(), list(roots)
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            yield node
            todo += [parent for parent, _ in node.next_functions if parent is not None]


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


def _storages(*things: object) -> dict[int, torch.UntypedStorage]:
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
    return sum(storage.nbytes() for storage in _storages(*things).values())


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
    left_out = _storages(parameters)
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
        for key, storage in _storages(tensor).items():
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


class CountingMode(TorchDispatchMode):
    """A dispatch mode that costs nothing where nothing is compiled.

    PyTorch keeps its compiler out of every mode, and imports it for that purpose: seconds, at the first operation
    counted. Where the compiler is not loaded there is nothing to keep out, so the method is called as written.
    """

    def __init_subclass__(cls, **kwargs: object) -> None:
        cls._as_written = cls.__torch_dispatch__
        super().__init_subclass__(**kwargs)
        cls._compiler_kept_out = cls.__torch_dispatch__

    def __enter__(self):
        kind = type(self)
        loaded = "torch._dynamo" in sys.modules
        kind.__torch_dispatch__ = kind._compiler_kept_out if loaded else kind._as_written
        return super().__enter__()


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
        before = {} if fresh else _storages(args, kwargs)
        result = func(*args, **(kwargs or {}))
        for key, storage in _storages(result, args, kwargs).items():
            if key in self._sizes:
                self._resize(key, storage.nbytes())
            elif key not in before:
                self._sizes[key] = 0
                self._resize(key, storage.nbytes())
                self.device_types.add(storage.device.type)
                weakref.finalize(storage, self._die, key).atexit = False
        self.timeline.append((_name(func), self.live))
        return result

    def _resize(self, key: int, nbytes: int) -> None:
        self.live += nbytes - self._sizes[key]
        self._sizes[key] = nbytes

    def _die(self, key: int) -> None:
        self.live -= self._sizes.pop(key)


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
        self.counts[_name(func)] += 1
        if _name(func) == "index":
            masks = (torch.bool, torch.uint8)
            self.mask_lookups += any(index.dtype in masks for index in tensors_in(args[1]))
        return func(*args, **(kwargs or {}))


def _name(func: object) -> str:
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


class CountingBackend:
    """A backend for `torch.compile` that counts, and runs each graph as plain eager code.

    It needs no C++ compiler and takes milliseconds, yet shows every graph break and every
    recompilation.

        backend = CountingBackend()
        compiled = torch.compile(f, backend=backend)
        compiled(x); backend.compiles

    Two compilations of one function count towards the same recompile limit;
    `torch.compiler.reset()` first starts afresh. Never call the compiled function inside
    `op_counts` or another dispatch mode: it would run eager, and stay eager until such a reset.

    compiles: graphs compiled so far. One call that compiles several has graph breaks.
    calls: how often compiled graphs ran so far.
    """

    def __init__(self) -> None:
        self.compiles = 0
        self.calls = 0

    def __call__(self, graph_module, example_inputs):
        self.compiles += 1

        def run(*args):
            self.calls += 1
            return graph_module.forward(*args)

        return run


def row_dependencies(fn: Callable[[Tensor], Tensor], x: Tensor, out_dim: int = 0, in_dim: int = 0) -> Tensor:
    """Find which rows of the input each row of the output depends on, from gradients at `x`.

    A net that treats the samples of a batch apart gives an identity matrix, however it is written.
    `fn` is called once; gradients of its parameters stay untouched.

    Args:
        fn: maps one tensor to one tensor. Put a model in eval mode first: batch norm mixes rows by
            design.
        x: a floating-point input. Random values are best: a unit that a ReLU switches off has no
            gradient.
        out_dim: the dimension of the output whose slices are its rows.
        in_dim: the dimension of `x` whose slices are its rows.

    Returns:
        a bool tensor of shape [rows of the output, rows of x].

    Raises:
        ValueError: there is no gradient to read: `x` is not floating point, or `fn` cuts the graph.
    """
    if not x.is_floating_point():
        raise ValueError(f"x is {x.dtype}: gradients need a floating-point input")
    with torch.inference_mode(False), torch.enable_grad():
        x = x.detach().clone().requires_grad_()
        output = fn(x)
        if not output.requires_grad:
            raise ValueError("the output has no graph: does fn detach, or run under no_grad?")
        # Random weights, because a plain sum can cancel: the sum of a softmax is constant.
        generator = torch.Generator().manual_seed(0)
        weights = torch.rand(output.shape, generator=generator).to(output) + 0.5
        weighted = (output * weights).movedim(out_dim, 0)
        rows = [_rows_with_gradient(row.sum(), x, in_dim) for row in weighted]
    return torch.stack(rows)


def _rows_with_gradient(value: Tensor, x: Tensor, in_dim: int) -> Tensor:
    (gradient,) = torch.autograd.grad(value, x, retain_graph=True, materialize_grads=True)
    return (gradient != 0).movedim(in_dim, 0).reshape(x.shape[in_dim], -1).any(1).cpu()


def state_hash(module: nn.Module) -> str:
    """Fingerprint the parameters and buffers of a module: the same again means nothing changed.

    Names, dtypes, shapes and bits count, wherever the tensors live. Gradients and plain attributes
    do not.
    """
    digest = hashlib.sha256()
    named = [*module.named_parameters(remove_duplicate=False)]
    named += module.named_buffers(remove_duplicate=False)
    for name, tensor in sorted(named, key=lambda pair: pair[0]):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)};".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()[:16]


def training_flags(module: nn.Module) -> dict[str, bool]:
    """Read the `training` flags of a module and those inside it, by name; its own name is `""`."""
    return {name: part.training for name, part in module.named_modules()}
