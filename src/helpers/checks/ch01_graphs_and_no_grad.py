"""Checks of chapter 1: what autograd records, and who switches it off."""

from __future__ import annotations

import asyncio
import gc
import inspect
import math
import re
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from unittest import mock

import numpy as np
import torch
from torch import nn

from ..evidence import op_counts, state_hash, storage_bytes, training_flags
from ..exercise.contract import ANYTHING, Case, Contract, Draw, Fact, Where, shaped
from ..exercise.declare import load_exercises
from ..exercise.expect import expect

PREDICT, EVALUATE, COLLECT, TABLE, SERVE = load_exercises(__file__)


def make_net(seed: int, batch_norm: str = "train") -> nn.Sequential:
    """The notebook's net in train mode, batch norm in a mode of its own, its statistics away from their start."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3))
    net[1].running_mean.normal_()
    net[1].running_var.uniform_(0.5, 2.0)
    net[1].train(batch_norm == "train")
    return net


def make_batches(seed: int, sizes: list[int]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, 8, generator=generator) for size in sizes]


@torch.no_grad()
def eval_outputs(seed: int, sizes: list[int], *_: object) -> list[torch.Tensor]:
    """What the net gives for each batch in eval mode."""
    net = make_net(seed).eval()
    return [net(batch) for batch in make_batches(seed, sizes)]


def of_rows(draw: Draw, *sizes: int, errors: dict | None = None, **options: object) -> Case:
    """A case of random batches, with what else its probe is given."""
    on = ", ".join([f"batches of {list(sizes)} rows", *(f"{name}: {value}" for name, value in options.items())])
    return Case(on, draw.seed(), list(sizes), *options.values(), errors=errors)


def traces_on(model: nn.Module) -> dict:
    """What a function may leave on a model: frozen parameters, and hooks."""
    names = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return {
        "frozen": [name for name, parameter in model.named_parameters() if not parameter.requires_grad],
        "hooks": sum(len(getattr(module, name)) for module in model.modules() for name in names),
    }


NO_TRACES = (Fact("frozen", [], "parameters-frozen"), Fact("hooks", 0, "hook-left"))


def no_graph(part: str, misconception: str) -> Fact:
    """No tensor, or row of a tensor, in this part of a report carries a graph."""
    return Fact(part, Where(lambda came: not any(tensor.requires_grad for tensor in came)), misconception)


def listed(answers: object) -> object:
    """A list of tensors as it is; anything else in words, which no check takes for an answer."""
    good = isinstance(answers, list) and all(isinstance(answer, torch.Tensor) for answer in answers)
    return answers if good else f"not a list of tensors: {answers!r}"


def error_of(action: Callable[[], object], kind: type[Exception] = Exception) -> str:
    """The error that an action raises, as `ValueError: no batches`; an empty text where it raises none."""
    try:
        action()
    except kind as error:
        return f"{'ValueError' if isinstance(error, ValueError) else type(error).__name__}: {error}"
    return ""


# 1.1 predict_modes

MODES = [training + grad for training in ("train", "eval") for grad in ("", "+no_grad", "+inference_mode")]


def true_row(mode: str) -> tuple[bool, bool, bool]:
    """Run the net in a mode: outputs repeatable, statistics stay put, graph recorded."""
    training, _, grad = mode.partition("+")
    net, (x,) = make_net(0).train(training == "train"), make_batches(0, [32])
    before = net[1].running_mean.clone()
    with getattr(torch, grad or "enable_grad")():
        first, second = net(x), net(x)
    return torch.equal(first, second), torch.equal(before, net[1].running_mean), first.requires_grad


def wrong_rows(came: object) -> dict:
    """The rows in which an answer differs from what the net does."""
    expect(isinstance(came, dict), message="A dict from mode to three bools is expected.", came=came)
    rows = {mode: tuple(row) for mode, row in came.items() if isinstance(row, (tuple, list))}
    bad = [mode for mode in MODES if [type(value) for value in rows.get(mode, ())] != [bool] * 3]
    expect(not bad, message=f"Rows of three bools are missing: {', '.join(bad)}.", came=came)
    return {"rows": {mode: rows[mode] for mode in MODES if rows[mode] != true_row(mode)}}


def without_graph(column: int) -> Where:
    """Rows of train mode that say yes in this column because no graph is recorded."""
    return Where(lambda rows: any(row[column] for mode, row in rows.items() if mode.startswith("train+")))


Contract(PREDICT, read=wrong_rows).facts(
    "all six rows as the net behaves",
    lambda draw: Case("a net with dropout and batch norm"),
    Fact(
        "rows",
        {},
        {
            "eval-stops-recording": Where(lambda rows: not rows["eval"][2]),
            "no-grad-freezes-statistics": without_graph(1),
            "no-grad-stops-dropout": without_graph(0),
        },
        "Look again at these rows.",
        expected="what the net does",
    ),
)


# 1.2 evaluate


def run_evaluate(learner, seed: int, sizes: list[int], source: str = "generator", batch_norm: str = "train") -> dict:
    """Run the learner's `evaluate`; report its output, how much autograd saved, and what happened to the model."""
    model, batches, saved = make_net(seed, batch_norm), make_batches(seed, sizes), []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(0) or tensor, lambda tensor: tensor):
        out = learner.evaluate(model, batches if source == "list" else (batch for batch in batches))
    report = {"out": out, "saved": len(saved), "state": state_hash(model), "modes": training_flags(model)}
    return {**report, **traces_on(model)}


evaluation = Contract(EVALUATE, ask=run_evaluate)
evaluation.facts(
    "gives the outputs of eval mode, for a list and for a generator",
    lambda draw: [
        of_rows(draw, 3, draw(2, 6), source="list"),
        of_rows(draw, 3, draw(2, 6), 1, source="generator", errors={"^[^:]*TypeError": "not-only-lists"}),
    ],
    Fact(
        "out",
        lambda *case: torch.cat(eval_outputs(*case)),
        {
            "still-training": lambda seed, sizes, source: source == "list" and shaped(sum(sizes), 3),
            "not-only-lists": lambda seed, sizes, source: shaped(sum(sizes), 3),
        },
    ),
)
evaluation.facts(
    "records no graph",
    lambda draw: of_rows(draw, 3, 2),
    no_graph("out", "graph-recorded"),
    Fact("saved", 0, "detach-at-the-end"),
)
evaluation.facts(
    "leaves parameters and statistics as they were",
    lambda draw: of_rows(draw, 3, 2),
    Fact(
        "state", lambda seed, sizes: state_hash(make_net(seed)), "state-changed", expected="as it was", came="another"
    ),
    *NO_TRACES,
)
evaluation.facts(
    "gives every submodule its own mode back",
    lambda draw: [of_rows(draw, 3, 2, source="generator", batch_norm=mode) for mode in ("train", "eval")],
    Fact(
        "modes",
        lambda seed, sizes, source, batch_norm: training_flags(make_net(seed, batch_norm)),
        {"frozen-layer-woken": Where(lambda came: all(came.values())), "mode-not-restored": ANYTHING},
    ),
)


def run_broken(learner, widths: list[int]) -> dict:
    """Run `evaluate` on batches of these widths, of which 0 cannot be read; report the error and the modes."""
    model = make_net(0, batch_norm="eval")

    def batches() -> Iterator[torch.Tensor]:
        for width in widths:
            if not width:
                raise OSError("disk gone")
            yield torch.randn(3, width)

    return {"raised": error_of(lambda: learner.evaluate(model, batches())) or "nothing", "modes": training_flags(model)}


NO_BATCHES = r"(?is)^ValueError: (.*batch|(?!.*torch\.cat).*\b(empty|nothing|none|no)\b)"
broken = Contract(EVALUATE, ask=run_broken)
broken.facts(
    "gives the modes back when a batch raises, and lets the error through",
    lambda draw: [
        Case("two batches, the second of which cannot be read", [8, 0]),
        Case("two batches, the second of which the model refuses", [8, 5]),
    ],
    Fact("raised", Where(lambda came: came != "nothing"), message="The error was swallowed."),
    Fact("modes", lambda widths: training_flags(make_net(0, batch_norm="eval")), "mode-lost-on-error"),
)
broken.facts(
    "says so when there is no batch",
    lambda draw: Case("no batches", []),
    Fact("raised", Where(lambda came: re.search(NO_BATCHES, came)), "empty-not-told"),
)


# 1.3 collect_features


class Features(nn.Sequential):
    """A small net whose forward pass notes its own mode, and which of its outputs are alive."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        super().__init__(nn.Linear(8, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 16))
        self.seen: list[bool] = []
        self.outputs: list[weakref.ref] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = super().forward(x)
        self.seen.append(self.training)
        self.outputs.append(weakref.ref(out))
        return out


def run_collect(learner, seed: int, sizes: list[int], training: bool = False) -> dict:
    """Run `collect_features`; report the features, what they keep alive, and what happened to the model."""
    model = Features(seed).train(training)
    found = listed(learner.collect_features(model, (batch for batch in make_batches(seed, sizes))))
    tensors = [tensor for tensor in found if isinstance(tensor, torch.Tensor)]
    if any(output() is not None for output in model.outputs):  # perhaps a cycle that nobody holds
        gc.collect()
    return {
        "features": found,
        "storages": len({tensor.untyped_storage().data_ptr() for tensor in tensors}),
        "spare bytes": [storage_bytes(tensor) - tensor.nbytes for tensor in tensors],
        "alive": sum(output() is not None for output in model.outputs),
        "problem": next(filter(None, map(problem_of, tensors)), ""),
        "modes": [*sorted(set(model.seen)), model.training],
        **traces_on(model),
    }


def problem_of(tensor: torch.Tensor) -> str:
    """Why a later training step cannot use a tensor; an empty text where it can."""
    weight = torch.ones(tensor.shape, requires_grad=True)
    with torch.enable_grad():
        problem = error_of(lambda: (tensor * weight).sum().backward(), RuntimeError)
    return problem or ("an inference tensor" if tensor.is_inference() else "")


collection = Contract(COLLECT, ask=run_collect)
collection.facts(
    "gives the first output column of every batch",
    lambda draw: of_rows(draw, 5, draw(2, 9), 1),
    Fact(
        "features",
        lambda seed, sizes: [Features(seed)(batch)[:, 0] for batch in make_batches(seed, sizes)],
        message="A list with one tensor a batch, of shape (B,), is expected.",
    ),
)
collection.facts("keeps no graph", lambda draw: of_rows(draw, 4, 3), no_graph("features", "graph-kept"))
collection.facts(
    "keeps no memory but the returned numbers",
    lambda draw: [of_rows(draw, 4, 7), of_rows(draw, 4, 1)],
    Fact("storages", 2, "one-storage"),
    Fact(
        "spare bytes",
        [0, 0],
        {"one-row-still-a-view": [0, 60], "view-pins-storage": ANYTHING},  # 16 numbers kept, where one is returned
        expected="no bytes beyond each tensor's own: [0, 0]",
    ),
    Fact("alive", 0, "output-kept"),
)
collection.facts(
    "gives tensors that a later training step can use",
    lambda draw: of_rows(draw, 4, 1),
    Fact("problem", "", "inference-tensor"),
)
collection.facts(
    "leaves the model's mode alone",
    lambda draw: [of_rows(draw, 4, 2, training=training) for training in (True, False)],
    *NO_TRACES,
    Fact("modes", lambda seed, sizes, training: [training] * 2, "mode-touched"),
)


# 1.4 PositionTable


def true_tables(dim: int, lengths: list[int], rows: int | None = None) -> list[torch.Tensor]:
    """The tables of these lengths, or so many rows of each."""
    position = torch.arange(max(lengths), dtype=torch.float64)[:, None]
    angle = position / 10000 ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    table = torch.stack([angle.sin(), angle.cos()], -1).flatten(1)
    return [table[:length][:rows] for length in lengths]


def sines_in(action: Callable[[], object]) -> int:
    """Count the sines and cosines that PyTorch, NumPy or math computes in an action."""
    outside = []

    def watched(place: object) -> AbstractContextManager:
        def counted(function: Callable) -> Callable:
            return lambda *args, **kwargs: outside.append(0) or function(*args, **kwargs)

        return mock.patch.multiple(place, sin=counted(place.sin), cos=counted(place.cos))

    with watched(math), watched(np):
        inside = op_counts(action)
    return len(outside) + sum(n for name, n in inside.items() if name.rstrip("_") in ("sin", "cos", "polar", "exp"))


def run_table(learner, dim: int, lengths: list[int]) -> dict:
    """Ask one table for several lengths; report what came, and the sines computed for each length already covered."""
    table, tables = learner.PositionTable(dim), []
    computed = [sines_in(lambda length=length: tables.append(table(length))) for length in lengths]
    return {
        "module": isinstance(table, nn.Module),
        "tables": tables,
        "shapes": [tuple(getattr(came, "shape", ())) for came in tables],
        "first rows": [came[:30] for came in tables if isinstance(came, torch.Tensor)],
        "again": [sines for k, sines in enumerate(computed) if lengths[k] <= max(lengths[:k], default=0)],
    }


def table_case(dim: int, *lengths: int) -> Case:
    return Case(f"dim {dim}, lengths {list(lengths)} in this order", dim, list(lengths))


tables = Contract(TABLE, ask=run_table, atol=1e-5)
tables.facts(
    "gives sines in even columns, cosines in odd ones",
    lambda draw: table_case(2 * draw(2, 6), 7),
    Fact("module", True, message="PositionTable should be an nn.Module."),
    Fact(
        "tables",
        true_tables,
        {
            "halves-not-interleaved": lambda *case: [
                torch.cat([table[:, ::2], table[:, 1::2]], 1) for table in true_tables(*case)
            ]
        },
    ),
)
tables.facts(
    "grows for a longer length, and computes nothing for a covered one",
    lambda draw: table_case(8, 5, 12, 3, 12, draw(13, 30), draw(10_001, 12_000)),
    Fact("shapes", lambda dim, lengths: [(length, dim) for length in lengths], "does-not-grow"),
    Fact("first rows", lambda dim, lengths: true_tables(dim, lengths, rows=30), message="Early rows are wrong."),
    Fact("tables", true_tables, message="Later rows are wrong.", atol=1e-2),  # float32 is coarse at large angles
    Fact("again", Where(lambda came: not any(came)), "recomputes"),
)


def run_table_training(learner, inference_first: bool) -> dict:
    """Use a table under inference_mode, or not, then train through it; report what went wrong."""
    table, weight = learner.PositionTable(8), torch.ones(8, requires_grad=True)
    if inference_first:
        with torch.inference_mode():
            table(6)
    problem = error_of(lambda: [(table(length) * weight).sum().backward() for length in (4, 9)], RuntimeError)
    return {"problem": problem or ("" if weight.grad.isfinite().all() else "a gradient that is not finite")}


Contract(TABLE, ask=run_table_training).facts(
    "can be trained through, also when inference_mode used it first",
    lambda draw: [Case("training", False), Case("a call under inference_mode, then training", True)],
    Fact("problem", "", {"inference-cache": lambda first: Where(lambda came: first), "cache-has-graph": ANYTHING}),
)


def run_table_dtype(learner, used: bool) -> dict:
    """Convert a table after its first use or before; report what it gives then, and what is in state_dict."""
    table = learner.PositionTable(8)
    if used:
        table(5)
    double, keys = table.to(torch.float64)(4), list(table.state_dict())
    half = table.half()(7)
    return {"dtypes": [double.dtype, half.dtype], "double": double, "keys": keys, "both": [double, half]}


Contract(TABLE, ask=run_table_dtype, atol=1e-5).facts(
    "follows .to(dtype), and stays out of state_dict",
    lambda draw: [
        Case("to(float64) after a first use, then half()", True),
        Case("to(float64) before the first use, then half()", False),
    ],
    Fact(
        "dtypes",
        [torch.float64, torch.float16],
        {
            "cache-does-not-follow": lambda used: Where(lambda came: used and came[0] != torch.float64),
            "built-in-default-dtype": ANYTHING,
        },
    ),
    Fact("double", lambda used: true_tables(8, [4])[0]),
    Fact("keys", [], "cache-in-state-dict"),
    no_graph("both", "cache-has-graph"),
)


# 1.5 serve


def grad_mode() -> str:
    return "on" if torch.is_grad_enabled() else "off"


def run_serve(learner, seed: int, sizes: list[int], calls: int = 1, mode: str = "on") -> dict:
    """Run `serve`, once or side by side, beside a task that looks at the grad mode; report answers and modes."""
    model, seen = make_net(seed).eval(), set()

    async def pause(times: int) -> None:
        for _ in range(times):
            await asyncio.sleep(0)
            seen.add(grad_mode())

    async def request(x: torch.Tensor, pauses: int) -> torch.Tensor:
        await pause(pauses)
        return x

    async def one_server(delay: int) -> object:
        await pause(delay)
        pauses = [3 + delay, 1, 2, 4]
        requests = [request(x, pauses[i % 4]) for i, x in enumerate(make_batches(seed, sizes))]
        requests[-1] = asyncio.ensure_future(requests[-1])
        try:
            answers = learner.serve(model, requests)
            return listed(await answers) if inspect.isawaitable(answers) else "not awaitable"
        finally:
            for left in filter(inspect.iscoroutine, requests):
                left.close()  # nobody will await it

    async def main() -> list[object]:
        looking = asyncio.ensure_future(pause(10**9))
        answers = await asyncio.wait_for(asyncio.gather(*(one_server(2 * i) for i in range(calls))), 8)
        looking.cancel()
        return answers

    with torch.set_grad_enabled(mode == "on"):
        answers = asyncio.run(main())[0]
        return {"answers": answers, "seen": sorted(seen), "after": grad_mode()}


def keeps_mode(mode: str, told: str, seen: str = "") -> tuple[Fact, Fact]:
    """What is told where the caller's grad mode changed, after the call or, as `seen`, when another task looks."""
    return Fact("after", mode, told), Fact("seen", [mode], seen or told)


serving = Contract(SERVE, ask=run_serve)
serving.facts(
    "gives the answers in order",
    lambda draw: of_rows(draw, 2, 5, 1, draw(2, 6)),
    Fact(
        "answers",
        eval_outputs,
        {
            "not-async": "not awaitable",
            "out-of-order": lambda seed, sizes: Where(
                lambda came: sorted(map(len, came)) == sorted(sizes) and [*map(len, came)] != sizes
            ),
        },
    ),
)
serving.facts("records no graph", lambda draw: of_rows(draw, 2, 3, 1), no_graph("answers", "graph-recorded"))
serving.facts(
    "leaves every other task's grad mode alone while it waits",
    lambda draw: of_rows(draw, 2, 3, 1, 2),
    *keeps_mode("on", "mode-left-changed", seen="holds-across-await"),
)
serving.facts(
    "leaves grad mode as it was, also when two servers interleave",
    lambda draw: of_rows(draw, 2, 3, 1, 2, calls=2),
    *keeps_mode("on", "mode-left-changed"),
)
serving.facts(
    "keeps grad mode off where the caller had it off",
    lambda draw: of_rows(draw, 2, 3, 1, 2, calls=2, grad_mode="off"),
    *keeps_mode("off", "forces-grad-on"),
)
