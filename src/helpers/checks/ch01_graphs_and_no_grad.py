"""Checks of chapter 1: what autograd records, and who switches it off."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import math
import re
import weakref
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import nn

from ..evidence import op_counts, state_hash, storage_bytes
from ..exercise.declare import Failed, load_exercises
from ..exercise.expect import draw_int, expect, expect_close, expect_raises, expect_tensor
from ..exercise.wire import LearnerError

PREDICT, EVALUATE, COLLECT, TABLE, SERVE = load_exercises(__file__)

MODES = ["train", "train+no_grad", "train+inference_mode", "eval", "eval+no_grad", "eval+inference_mode"]


def make_net() -> nn.Sequential:
    """The net of the notebook: dropout and batch norm, the two layers that behave differently in training."""
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3))


# 1.1


def true_modes() -> dict[str, tuple[bool, bool, bool]]:
    """Run the net in all six modes: outputs repeatable, statistics stay put, graph recorded."""
    contexts = {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode}
    truth = {}
    for mode in MODES:
        torch.manual_seed(0)
        net, x = make_net(), torch.randn(32, 8)
        training, _, context = mode.partition("+")
        net.train(training == "train")
        before = net[1].running_mean.clone()
        with contexts.get(context, torch.enable_grad)():
            first, second = net(x), net(x)
        same = bool(torch.equal(first, second))
        truth[mode] = (same, bool(torch.equal(before, net[1].running_mean)), first.requires_grad)
    return truth


@PREDICT.check("all six rows as the net behaves")
def _(session, rng):
    came = session.call("predict_modes")
    expect(isinstance(came, dict), message="A dict from mode to three bools is expected.", came=came)
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        truth = true_modes()
    missing = [mode for mode in MODES if mode not in came]
    expect(not missing, message=f"Rows are missing: {', '.join(missing)}.")
    for mode in MODES:
        row = came[mode]
        good = isinstance(row, (tuple, list)) and len(row) == 3 and all(type(v) is bool for v in row)
        expect(good, message=f"Row {mode!r} should be three bools.", came=row)
    wrong = [mode for mode in MODES if tuple(came[mode]) != truth[mode]]
    if not wrong:
        return
    no_graph_rows = [m for m in wrong if "+" in m and m.startswith("train")]
    message = f"Look again at {', '.join(wrong)}."
    if "eval" in wrong and came["eval"][2] is False:
        raise Failed("eval-stops-recording", message)
    if any(came[mode][1] for mode in no_graph_rows):
        raise Failed("no-grad-freezes-statistics", message)
    if any(came[mode][0] for mode in no_graph_rows):
        raise Failed("no-grad-stops-dropout", message)
    raise Failed(None, message)


# 1.2


def frozen_net(seed: int) -> nn.Sequential:
    """The net in train mode, batch norm frozen in eval mode, statistics away from their start values."""
    torch.manual_seed(seed)
    net = make_net()
    net[1].running_mean.normal_()
    net[1].running_var.uniform_(0.5, 2.0)
    net.train()
    net[1].eval()
    return net


def make_batches(seed: int, sizes: list[int]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, 8, generator=generator) for size in sizes]


def flags(model: nn.Module) -> list[bool]:
    return [module.training for module in model.modules()]


def hooks(model: nn.Module) -> int:
    """How many hooks of any kind are on a model."""
    names = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return sum(len(getattr(module, name)) for module in model.modules() for name in names)


def trainable(model: nn.Module) -> list[bool]:
    return [parameter.requires_grad for parameter in model.parameters()]


def run_evaluate(learner, seed: int, sizes: list[int], as_generator: bool, freeze: bool) -> dict:
    """Run the learner's `evaluate`; report output, what autograd saved, state hashes and flags."""
    model, batches = frozen_net(seed), make_batches(seed, sizes)
    if not freeze:
        model.train()
    kept = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor.numel())
        return tensor

    before, flags_before = state_hash(model), flags(model)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = learner.evaluate(model, (b for b in batches) if as_generator else batches)
    return {
        "out": out,
        "recorded": bool(kept),
        "state kept": state_hash(model) == before,
        "trainable": all(trainable(model)),
        "hooks": hooks(model),
        "flags before": flags_before,
        "flags after": flags(model),
    }


def run_evaluate_broken(learner, seed: int, broken_model: bool) -> dict:
    """Run `evaluate` on batches of which the second raises; report the error and the flags."""
    model, batches = frozen_net(seed), make_batches(seed, [3, 4])
    before = flags(model)

    def broken() -> Iterator[torch.Tensor]:
        yield batches[0]
        if not broken_model:
            raise OSError("disk gone")
        yield batches[1][:, :5]

    raised = "nothing"
    try:
        learner.evaluate(model, broken())
    except LearnerError:
        raise
    except Exception as error:
        raised = type(error).__name__
    return {"raised": raised, "before": before, "after": flags(model)}


@EVALUATE.check("gives the outputs of eval mode, for a list and for a generator")
def _(session, rng):
    for as_generator in (False, True):
        seed, sizes = draw_int(rng, 0, 10**6), [3, draw_int(rng, 2, 6)] + [1] * as_generator
        on = f"{'a generator of' if as_generator else 'a list of'} batches of {sizes} rows"
        try:
            result = session.probe(run_evaluate, seed, sizes, as_generator, False)
        except LearnerError as error:
            if as_generator and error.reason == "raised" and error.is_a("TypeError"):
                raise Failed("not-only-lists", came=f"TypeError: {error.text}", on=on) from None
            raise
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            model = frozen_net(seed).eval()
            expected = torch.cat([model(batch) for batch in make_batches(seed, sizes)])
        out = expect_tensor(result["out"], on, expected.shape)
        if as_generator:
            expect_close(out, expected, on, "not-only-lists")
        expect_close(out, expected, on, "still-training")


@EVALUATE.check("records no graph")
def _(session, rng):
    result = session.probe(run_evaluate, draw_int(rng, 0, 10**6), [3, 2], True, False)
    facts = {"expected": "no graph", "on": "two batches"}
    expect(not result["out"].requires_grad, "graph-recorded", came="an output with a grad_fn", **facts)
    expect(not result["recorded"], "detach-at-the-end", came="tensors saved for a backward pass", **facts)


@EVALUATE.check("leaves parameters and statistics as they were")
def _(session, rng):
    result = session.probe(run_evaluate, draw_int(rng, 0, 10**6), [3, 2], True, False)
    facts = {"expected": "the same parameters and buffers", "came": "others"}
    expect(result["state kept"], "state-changed", on="two batches", **facts)
    expect(result["trainable"], "parameters-frozen", on="two batches", expected="requires_grad=True", came=False)
    expect(not result["hooks"], "hook-left", on="two batches", expected="no hooks", came=result["hooks"])


@EVALUATE.check("gives every submodule its own mode back")
def _(session, rng):
    for freeze in (False, True):
        result = session.probe(run_evaluate, draw_int(rng, 0, 10**6), [3, 2], True, freeze)
        before, after = result["flags before"], result["flags after"]
        on = "a model in train mode" + (", its batch norm in eval mode" if freeze else "")
        if freeze and all(after):
            raise Failed("frozen-layer-woken", expected=before, came=after, on=on)
        expect(before == after, "mode-not-restored", expected=before, came=after, on=on)


@EVALUATE.check("gives the modes back when a batch raises, and lets the error through")
def _(session, rng):
    for broken_model in (False, True):
        result = session.probe(run_evaluate_broken, draw_int(rng, 0, 10**6), broken_model)
        on = "two batches, the second of which raises"
        expect(result["raised"] != "nothing", message="The error was swallowed.", on=on)
        before, after = result["before"], result["after"]
        expect(before == after, "mode-lost-on-error", expected=before, came=after, on=on)


def run_evaluate_empty(learner) -> object:
    return learner.evaluate(make_net(), iter([]))


@EVALUATE.check("says so when there is no batch")
def _(session, rng):
    request = lambda: session.probe(run_evaluate_empty)  # noqa: E731
    try:
        expect_raises(request, "ValueError", "no batches", "empty-not-told", ["batch"])
    except Failed as failure:
        told = re.search(r"(?i)^ValueError: .*\b(empty|nothing|none|no)\b", failure.came)
        if not told or "torch.cat" in failure.came:
            raise


# 1.3


class Features(nn.Module):
    """A small net whose forward pass notes its own mode, and which of its outputs are alive."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 16))
        self.seen: list[bool] = []
        self.outputs: list[weakref.ref] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(self.training)
        out = self.body(x)
        self.outputs.append(weakref.ref(out))
        return out


def run_collect(learner, seed: int, sizes: list[int], training: bool) -> dict:
    """Run `collect_features`; report values, graph, storages, usability and the mode seen by the model."""
    torch.manual_seed(seed)
    model = Features().train(training)
    found = learner.collect_features(model, (b for b in make_batches(seed, sizes)))
    if not isinstance(found, list) or not all(isinstance(t, torch.Tensor) for t in found):
        return {"kind": f"{type(found).__name__}"}
    gc.collect()
    alive = sum(output() is not None for output in model.outputs)
    usable = ""
    for tensor in found:
        try:
            weight = torch.ones(tensor.shape, requires_grad=True)
            with torch.enable_grad():
                (tensor * weight).sum().backward()
        except RuntimeError as error:
            usable = str(error)
    return {
        "kind": "list",
        "values": [t.detach().clone() for t in found],
        "graph": any(t.requires_grad for t in found),
        "bytes": [t.numel() * t.element_size() for t in found],
        "stored": [storage_bytes(t) for t in found],
        "shared": len(found) > 1 and len({t.untyped_storage().data_ptr() for t in found}) == 1,
        "inference": any(t.is_inference() for t in found),
        "usable": usable,
        "modes": sorted(set(model.seen)),
        "mode after": model.training,
        "alive": alive,
        "trainable": all(trainable(model)),
        "hooks": hooks(model),
    }


@COLLECT.check("gives the first output column of every batch")
def _(session, rng):
    seed, sizes = draw_int(rng, 0, 10**6), [5, draw_int(rng, 2, 9), 1]
    on = f"batches of {sizes} rows"
    result = session.probe(run_collect, seed, sizes, False)
    expect(result["kind"] == "list", message="A list of tensors is expected.", came=result["kind"], on=on)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        model = Features().eval()
        expected = [model(batch)[:, 0] for batch in make_batches(seed, sizes)]
    count = len(result["values"])
    expect(count == len(sizes), message="One tensor a batch is expected.", expected=len(sizes), came=count, on=on)
    for came, wanted in zip(result["values"], expected, strict=True):
        expect_close(came, wanted, on)


@COLLECT.check("keeps no graph")
def _(session, rng):
    result = session.probe(run_collect, draw_int(rng, 0, 10**6), [4, 3], False)
    facts = {"expected": "no graph", "came": "a tensor with a grad_fn"}
    expect(not result["graph"], "graph-kept", on="batches of 4 and 3 rows", **facts)


@COLLECT.check("keeps no memory but the returned numbers")
def _(session, rng):
    for sizes in ([4, 7], [4, 1]):
        result = session.probe(run_collect, draw_int(rng, 0, 10**6), sizes, False)
        wanted, stored = result["bytes"], result["stored"]
        kind = "one-storage" if result["shared"] else "view-pins-storage"
        if stored[0] == wanted[0] and sizes[1] == 1:
            kind = "one-row-still-a-view"
        on = f"batches of {sizes[0]} and {sizes[1]} rows (bytes kept by each)"
        expect(stored == wanted, kind, expected=wanted, came=stored, on=on)
        on = f"batches of {sizes[0]} and {sizes[1]} rows (outputs of the model that are alive)"
        expect(not result["alive"], "output-kept", expected=0, came=result["alive"], on=on)


@COLLECT.check("gives tensors that a later training step can use")
def _(session, rng):
    result = session.probe(run_collect, draw_int(rng, 0, 10**6), [4, 1], False)
    fine = not result["usable"] and not result["inference"]
    expect(fine, "inference-tensor", came=result["usable"] or "an inference tensor")


@COLLECT.check("leaves the model's mode alone")
def _(session, rng):
    for training in (True, False):
        result = session.probe(run_collect, draw_int(rng, 0, 10**6), [4, 2], training)
        expect(result["trainable"], "parameters-frozen", expected="requires_grad=True", came=False)
        expect(not result["hooks"], "hook-left", expected="no hooks", came=result["hooks"])
        fine = result["modes"] == [training] and result["mode after"] == training
        on = f"a model with training={training} (modes seen in its forward pass)"
        expect(fine, "mode-touched", expected=[training], came=result["modes"], on=on)


# 1.4


def true_table(length: int, dim: int) -> torch.Tensor:
    position = torch.arange(length, dtype=torch.float64)[:, None]
    angle = position / 10000 ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    table = torch.empty(length, dim, dtype=torch.float64)
    table[:, 0::2], table[:, 1::2] = angle.sin(), angle.cos()
    return table


@contextlib.contextmanager
def counted_sines() -> Iterator[list[str]]:
    """Note every sine and cosine that NumPy or math computes in the block."""
    computed: list[str] = []

    def watched(function: Callable) -> Callable:
        def run(*args, **kwargs):
            computed.append(function.__name__)
            return function(*args, **kwargs)

        return run

    places = [(place, name) for place in (math, np) for name in ("sin", "cos")]
    with contextlib.ExitStack() as back:
        for place, name in places:
            back.callback(setattr, place, name, getattr(place, name))
            setattr(place, name, watched(getattr(place, name)))
        yield computed


def run_table(learner, dim: int, lengths: list[int]) -> dict:
    """Ask one table for several lengths; report values and the sines and cosines computed by each call."""
    table, values, computed = learner.PositionTable(dim), [], []
    for length in lengths:
        kept = []
        with counted_sines() as outside:
            counts = op_counts(lambda n=length, kept=kept: kept.append(table(n)))
        values.append(kept[0].detach().clone() if isinstance(kept[0], torch.Tensor) else kept[0])
        inside = sum(n for name, n in counts.items() if name.rstrip("_") in ("sin", "cos", "polar", "exp"))
        computed.append(inside + len(outside))
    return {"values": values, "computed": computed, "module": isinstance(table, nn.Module)}


def run_table_training(learner, dim: int, first_under_inference: bool) -> str:
    """Use a table under inference_mode, or not, then train through it; gives the error's text or ''."""
    table = learner.PositionTable(dim)
    if first_under_inference:
        with torch.inference_mode():
            table(6)
    weight = torch.ones(dim, requires_grad=True)
    try:
        (table(4) * weight).sum().backward()
        (table(9) * weight).sum().backward()
    except RuntimeError as error:
        return str(error) or "RuntimeError"
    return "" if bool(torch.isfinite(weight.grad).all()) else "the gradient is not finite"


def run_table_dtype(learner, dim: int, warm: bool) -> dict:
    """Convert a table before or after its first use; report dtypes, the float64 values and the state_dict's keys."""
    built = learner.PositionTable(dim)
    built(5)
    built_follows = built.to(torch.float64)(4).dtype == torch.float64
    table = learner.PositionTable(dim)
    if warm:
        table(5)
    table.to(torch.float64)
    double = table(4)
    keys = list(table.state_dict())
    half = table.half()(7)
    facts = {"half": half.dtype, "keys": keys, "grad": double.requires_grad, "built follows": built_follows}
    return {"double": double.detach().clone(), **facts}


@TABLE.check("gives sines in even columns, cosines in odd ones")
def _(session, rng):
    dim = 2 * draw_int(rng, 2, 6)
    result = session.probe(run_table, dim, [7])
    on, expected = f"dim {dim}, length 7", true_table(7, dim)
    expect(result["module"], message="PositionTable should be an nn.Module.")
    came = expect_tensor(result["values"][0], on, expected.shape)
    halves = torch.cat([expected[:, 0::2], expected[:, 1::2]], 1)
    if torch.allclose(came.double(), halves, atol=1e-5):
        raise Failed("halves-not-interleaved", on=on)
    expect_close(came, expected, on, atol=1e-5)


@TABLE.check("grows for a longer length, and computes nothing for a covered one")
def _(session, rng):
    dim, lengths = 8, [5, 12, 3, 12, draw_int(rng, 13, 30), draw_int(rng, 10_001, 12_000)]
    result = session.probe(run_table, dim, lengths)
    for length, came in zip(lengths, result["values"], strict=True):
        on = f"lengths {lengths}, in this order"
        rows = tuple(came.shape) if isinstance(came, torch.Tensor) else came
        expect(rows == (length, dim), "does-not-grow", expected=(length, dim), came=rows, on=on)
        expected = true_table(length, dim)
        expect_close(came[:30], expected[:30], on, atol=1e-5)
        expect_close(came, expected, on, atol=1e-2)  # angles of thousands, where float32 has a coarse grid
    again = result["computed"][2:4]
    expect(again == [0, 0], "recomputes", expected=[0, 0], came=again, on=f"lengths 3 and 12 after {lengths[:2]}")


@TABLE.check("can be trained through, also when inference_mode used it first")
def _(session, rng):
    for first_under_inference in (False, True):
        problem = session.probe(run_table_training, 8, first_under_inference)
        on = "a first call under inference_mode, then training" if first_under_inference else "training"
        kind = "inference-cache" if first_under_inference else "cache-has-graph"
        expect(not problem, kind, came=problem, on=on)


@TABLE.check("follows .to(dtype), and stays out of state_dict")
def _(session, rng):
    for warm in (False, True):
        result = session.probe(run_table_dtype, 8, warm)
        on = f"to(float64) {'after' if warm else 'before'} the first use, then half()"
        came = [result["double"].dtype, result["half"]]
        wanted = [torch.float64, torch.float16]
        kind = "built-in-default-dtype" if result["built follows"] else "cache-does-not-follow"
        expect(came == wanted, kind, expected=wanted, came=came, on=on)
        expect_close(result["double"], true_table(4, 8), on, atol=1e-5)
        expect(not result["keys"], "cache-in-state-dict", expected=[], came=result["keys"], on=on)
        expect(not result["grad"], "cache-has-graph", on=on)


# 1.5


def _close(awaitables: list) -> None:
    """Let go of requests that nobody will await."""
    for awaitable in awaitables:
        if inspect.iscoroutine(awaitable):
            awaitable.close()


def _plain(answer: object) -> object:
    """Values of a list of tensors; for anything else its name, which no check takes for an answer."""
    if isinstance(answer, list):
        return [t.detach().clone() if isinstance(t, torch.Tensor) else repr(t) for t in answer]
    return answer if isinstance(answer, str) else type(answer).__name__


def run_serve(learner, seed: int, sizes: list[int], grad_mode: bool, servers: int) -> dict:
    """Run `serve` on one event loop beside a task that samples the grad mode; report answers and samples."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    batches = make_batches(seed, sizes)
    samples, inside = [], []

    async def request(x: torch.Tensor, pauses: int) -> torch.Tensor:
        for _ in range(pauses):
            await asyncio.sleep(0)
            inside.append(torch.is_grad_enabled())
        return x

    async def sample(done: asyncio.Event) -> None:
        while not done.is_set():
            samples.append(torch.is_grad_enabled())
            await asyncio.sleep(0)

    async def one_server(delay: int) -> object:
        for _ in range(delay):
            await asyncio.sleep(0)
        pauses = [3 + delay, 1, 2, 4]
        awaitables = [request(x, pauses[i % 4]) for i, x in enumerate(batches)]
        awaitables[-1] = asyncio.ensure_future(awaitables[-1])
        try:
            answer = learner.serve(model, awaitables)
            return await answer if inspect.isawaitable(answer) else "not awaitable"
        finally:
            _close(awaitables)

    async def main() -> list[object]:
        torch._C._set_grad_enabled(grad_mode)
        done = asyncio.Event()
        sampler = asyncio.ensure_future(sample(done))
        try:
            return await asyncio.wait_for(asyncio.gather(*(one_server(2 * i) for i in range(servers))), 8)
        finally:
            samples.append(torch.is_grad_enabled())
            done.set()
            await sampler

    found = torch.is_grad_enabled()
    try:
        answers = asyncio.run(main())
        after = torch.is_grad_enabled()
    finally:
        torch._C._set_grad_enabled(found)
    graph = any(isinstance(t, torch.Tensor) and t.requires_grad for a in answers if isinstance(a, list) for t in a)
    plain = [_plain(answer) for answer in answers]
    return {"answers": plain, "graph": graph, "samples": sorted(set(samples + inside)), "after": after}


@SERVE.check("gives the answers in order")
def _(session, rng):
    seed, sizes = draw_int(rng, 0, 10**6), [2, 5, 1, draw_int(rng, 2, 6)]
    on = f"four requests of {sizes} rows, which take differently long"
    (answers,) = session.probe(run_serve, seed, sizes, True, 1)["answers"]
    expect(answers != "not awaitable", "not-async")
    expect(isinstance(answers, list), message="A list of tensors is expected.", came=answers, on=on)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
        expected = [model(batch) for batch in make_batches(seed, sizes)]
    count = len(answers)
    expect(
        count == len(sizes),
        message="One answer a request is expected.",
        expected=len(sizes),
        came=count,
        on=on,
    )
    shapes = [tuple(a.shape) if isinstance(a, torch.Tensor) else a for a in answers]
    if shapes != [tuple(e.shape) for e in expected] and sorted(map(str, shapes)) == sorted(
        str(tuple(e.shape)) for e in expected
    ):
        raise Failed("out-of-order", on=on, came=shapes, expected=[tuple(e.shape) for e in expected])
    for came, wanted in zip(answers, expected, strict=True):
        expect_close(came, wanted, on)


@SERVE.check("records no graph")
def _(session, rng):
    result = session.probe(run_serve, draw_int(rng, 0, 10**6), [2, 3, 1], True, 1)
    facts = {"expected": "no graph", "came": "a tensor with a grad_fn"}
    expect(not result["graph"], "graph-recorded", on="three requests", **facts)


@SERVE.check("leaves every other task's grad mode alone while it waits")
def _(session, rng):
    result = session.probe(run_serve, draw_int(rng, 0, 10**6), [2, 3, 1, 2], True, 1)
    expect(result["after"] is True, "mode-left-changed", expected=True, came=result["after"], on="one serve() call")
    on = "another task that looks at is_grad_enabled() whenever it runs"
    expect(result["samples"] == [True], "holds-across-await", expected=[True], came=result["samples"], on=on)


@SERVE.check("leaves grad mode as it was, also when two servers interleave")
def _(session, rng):
    result = session.probe(run_serve, draw_int(rng, 0, 10**6), [2, 3, 1, 2], True, 2)
    fine = result["after"] is True and result["samples"] == [True]
    expect(fine, "mode-left-changed", expected=True, came=result["after"], on="two serve() calls side by side")


@SERVE.check("keeps grad mode off where the caller had it off")
def _(session, rng):
    result = session.probe(run_serve, draw_int(rng, 0, 10**6), [2, 3, 1, 2], False, 2)
    fine = result["after"] is False and result["samples"] == [False]
    on = "a thread whose grad mode is off"
    expect(fine, "forces-grad-on", expected=[False], came=result["samples"], on=on)
