"""Checks of chapter 3: what a compiler saw, counted. None of them needs a C++ compiler."""

from __future__ import annotations

import contextlib
import copy
import logging
import warnings
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from ..evidence import CountingBackend
from ..exercise.contract import ANYTHING, Case, Contract, Draw, Fact, Where, shaped
from ..exercise.declare import load_exercises
from ..exercise.wire import LearnerError

LYING, BRANCHLESS, PREPARE, COUNTING, EXPORT = load_exercises(__file__)

_SETTINGS = """
cache_size_limit assume_static_by_default automatic_dynamic_shapes allow_unspec_int_on_nn_module
capture_scalar_outputs suppress_errors
""".split()


@contextlib.contextmanager
def fresh_compiler() -> Iterator[None]:
    """Start without compiled code, and leave none behind: nor settings, a stance, or lines in the log."""
    import torch._dynamo

    config = torch._dynamo.config
    torch._dynamo.reset()
    with contextlib.ExitStack() as undo:
        undo.callback(torch._dynamo.reset)
        for logger in map(logging.getLogger, ("torch._dynamo", "torch._guards", "torch.fx")):
            undo.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.CRITICAL)
        undo.enter_context(config.patch({name: getattr(config, name) for name in _SETTINGS if hasattr(config, name)}))
        undo.enter_context(torch.compiler.set_stance("default"))
        undo.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        yield


def error_text(error: Exception) -> str:
    """Class and first lines of an error, short enough for feedback."""
    return f"{type(error).__name__}: {str(error).strip()[:300]}"


def detached(result: object) -> Tensor:
    """A copy of a result without its graph."""
    if not isinstance(result, Tensor):
        raise LearnerError("type", f"the compiled call should give a tensor, not {type(result).__name__}")
    return result.detach().clone()


# 3.1 lying_input


class Liar(nn.Module):
    """A module whose branch compares the peak of its input, the sum or the length with a limit."""

    def __init__(self, what: str, limit: int):
        super().__init__()
        self.what, self.limit = what, limit

    def forward(self, x: Tensor) -> Tensor:
        if self.what == "length":
            return x - x.mean() - 1 if x.shape[0] > self.limit else x
        if self.what == "sum":  # both branches are NaN where x is negative
            return x.sqrt() if x.sum() > self.limit else (2 * x).sqrt()
        peak = x.abs().max()
        return x / peak if peak > self.limit else x


def make_liar(what: str, limit: int, length: int, value: float) -> tuple[nn.Module, torch.jit.ScriptModule]:
    """A module, and its trace on an example that has one value all over."""
    module = Liar(what, limit)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return module, torch.jit.trace(module, torch.full((length,), value), check_trace=False)


def run_lying(learner, *liar) -> dict:
    """Ask for a lying input; report it, and what modules of our own, made alike, give for it."""
    module, traced = make_liar(*liar)
    x = learner.lying_input(traced, module)
    report = {"input": x.detach().clone() if isinstance(x, Tensor) else repr(x)[:200], "error": "", "outputs": ()}
    try:
        with torch.no_grad():
            report["outputs"] = report["input"], *(m(report["input"]).clone() for m in make_liar(*liar))
    except Exception as problem:
        report["error"] = error_text(problem)
    return report


def differ(outputs: tuple[Tensor, Tensor, Tensor]) -> bool:
    _, ours, traced = outputs
    return ours.shape != traced.shape or not torch.allclose(ours, traced, equal_nan=True)


def liar(what: str, limit: int, length: int, value: float, honest: str) -> Case:
    """A module to be parted from its trace; `honest` is what an input tells for which both give the same."""
    good = Where(lambda x: x.dim() == 1 and x.is_floating_point() and len(x) <= 32)
    wrong_inputs = {
        "too-long": Where(lambda x: x.dim() == 1 and x.is_floating_point()),
        "not-one-vector": Where(lambda x: isinstance(x, Tensor)),
        honest: Where(lambda x: what != "peak"),
    }
    no_difference = {"nan-is-no-difference": Where(lambda outputs: outputs[1].isnan().any()), honest: ANYTHING}
    facts = (
        Fact("input", good, wrong_inputs, expected="1 to 32 float numbers for which the modules differ"),
        Fact("error", "", "raises-not-lies"),
        Fact("outputs", Where(differ), no_difference, came=lambda outputs: outputs[0]),
    )
    on = f"a branch on {what} > {limit}, traced on {length} times {value:g}"
    return Case(on, what, limit, length, value, facts=facts)


lying = Contract(LYING, ask=run_lying)
lying.facts(
    "catches the notebook's module, whichever example it was traced on",
    lambda draw: [liar("peak", 1, 3, 0.5, "follows-the-example"), liar("peak", 1, 3, 5.0, "one-answer-for-all")],
)
lying.facts(
    "catches a branch on the sign of the sum",
    lambda draw: [liar("sum", 0, 3, value, "sign-not-tried") for value in (1.0, -1.0)],
)
lying.facts(
    "catches a branch on the length",
    lambda draw: [
        liar("length", n, n + more, 1.0, "length-not-tried")
        for n, more in ((draw(4, 12), 0), (draw(4, 12), 3), (draw(20, 28), 0))
    ],
)


# 3.2 branchless


def branchy(x: Tensor) -> Tensor:
    """The notebook's function."""
    total = x.sum()
    if total > 0:
        return x / total.sqrt()
    return -2 * x


SMALL_SUM, NO_SUM = "a sum of 1/256", "a sum of exactly 0"


def every_sum(draw: Draw) -> Case:
    """One vector for each kind of sum, all of one length, and weights for the gradient."""
    noise = draw.randn(5)
    flat = noise - noise.mean()
    vectors = {
        "a positive sum": flat + 0.8,
        "a sum between 0 and 1": flat + 0.06,
        SMALL_SUM: torch.tensor([1.5, -1.5, 0.25, -0.25, 2.0**-8]),  # exact in whatever order it is added up
        "a negative sum": flat - 0.7,
        NO_SUM: torch.tensor([1.5, -1.5, 0.25, -0.25, 0.0]),
    }
    return Case("vectors of 5 numbers", vectors, torch.rand(5, generator=draw.rng) + 0.5)


def run_eager(learner, vectors: dict, weights: Tensor) -> dict:
    """Call the learner's function, any compilation of its own set aside."""
    with fresh_compiler(), torch.compiler.set_stance("force_eager"):
        return {name: learner.branchless(x) for name, x in vectors.items()}


def with_gradient(fn: Callable, x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """A function's value, and the gradient of its weighted sum: zeros where it has none."""
    x = x.clone().requires_grad_()
    y = fn(x)
    value = detached(y)
    if y.requires_grad:
        (y * weights).sum().backward()
    return value, torch.zeros_like(x) if x.grad is None else x.grad


def run_as_one_graph(learner, vectors: dict, weights: Tensor) -> dict:
    """Compile the learner's function as one graph; report counts, values, and the gradient for each vector."""
    backend = CountingBackend()
    with fresh_compiler():
        compiled = torch.compile(learner.branchless, backend=backend, fullgraph=True)
        values, gradients = zip(*(with_gradient(compiled, x, weights) for x in vectors.values()), strict=True)
    counts = f"compilations: {backend.compiles}, calls of compiled code: {backend.calls}"
    return {"counts": counts, "values": values, **dict(zip(vectors, gradients, strict=True))}


NOT_FINITE = Where(lambda came: came.shape == (5,) and not came.isfinite().all())
values = Contract(
    BRANCHLESS,
    ask=run_eager,
    truth=lambda vectors, weights: {name: branchy(x) for name, x in vectors.items()},
    told={
        "masked-by-product": NOT_FINITE,
        "epsilon-added": {SMALL_SUM: shaped(5)},
        "sum-of-zero": {NO_SUM: shaped(5)},
        "other-values": shaped(5),
    },
    message="The input has {}.",
)
one_graph = Contract(
    BRANCHLESS,
    ask=run_as_one_graph,
    truth=lambda vectors, weights: {name: with_gradient(branchy, x, weights)[1] for name, x in vectors.items()},
    told={"nan-gradient-at-zero": {NO_SUM: NOT_FINITE}, "nan-gradient": NOT_FINITE, "gradient-cut": ANYTHING},
    errors={"Exception": "still-breaks"},
    message="The input has {}.",
    rtol=1e-4,
    atol=1e-5,
)
values.equals("equals branchy on both branches", every_sum)
one_graph.facts(
    "is one graph",
    every_sum,
    Fact("counts", "compilations: 1, calls of compiled code: 5", "still-breaks"),
    Fact("values", lambda vectors, weights: [*map(branchy, vectors.values())], "other-values", rtol=1e-5, atol=1e-6),
)
one_graph.equals("has the gradient of branchy, finite everywhere", every_sum)


# 3.3 prepare


def smooth(x: Tensor) -> Tensor:
    """A function whose values depend on the length in several places."""
    return x.flip(0).cumsum(0) / x.shape[0] + x.softmax(0) * x.mean()


def centre(x: Tensor) -> Tensor:
    """Another one, with a window of the input and a position."""
    position = torch.arange(x.shape[0]) / x.shape[0]
    return x - x.mean() + position * x[-1]


FUNCTIONS = {"smooth": smooth, "centre": centre}
MARK = 4e-6  # too little for torch.allclose, much for float32


class MarkingBackend(CountingBackend):
    """A counting backend whose graphs give slightly larger numbers, by which they are known afterwards."""

    def __call__(self, graph_module, example_inputs):
        run = super().__call__(graph_module, example_inputs)
        return lambda *args: tree_map_only(Tensor, marked, run(*args))


def marked(value: Tensor) -> Tensor:
    return value * (1 + MARK) if value.is_floating_point() else value


def run_prepare(learner, name: str, inputs: list[Tensor]) -> dict:
    """Prepare a function and call it; report outputs, and the counts of compilations and of calls after each."""
    backend = MarkingBackend()
    with fresh_compiler():
        call = learner.prepare(FUNCTIONS[name], backend)
        if not callable(call):
            raise LearnerError("type", f"prepare should give something to call, not {type(call).__name__}")
        report = {"compilations": [], "calls": [backend.calls]}
        for x in inputs:
            try:
                y = call(x.clone())
            except Exception as problem:
                raise RuntimeError(f"at length {len(x)}: {error_text(problem)}") from problem
            report[f"length {len(x)}"] = detached(y)
            report["compilations"].append(backend.compiles)
            report["calls"].append(backend.calls)
            if min(len(report["compilations"]), backend.compiles) > 9:  # each length costs one: the answer is known
                break
    return report


def read_prepared(came: dict, name: str, inputs: list[Tensor]) -> dict:
    """The report, with the lengths that ran no compiled code, and those whose result bears no mark of it."""
    counts = came["calls"]
    ran = [x for x in inputs if len(x) > 1 and f"length {len(x)}" in came]
    eager = [len(x) for x, before, after in zip(ran, counts, counts[1:], strict=False) if before == after]
    plain = [len(x) for x in ran if not is_marked(came[f"length {len(x)}"], FUNCTIONS[name](x))]
    return came | {"eager": sorted(eager), "plain": sorted(plain)}


def is_marked(came: Tensor, plain: Tensor) -> bool:
    """True if a result is off the plain one by more than rounding."""
    return came.shape != plain.shape or bool((came.double() - plain).norm() > plain.norm() * MARK / 3)


def calls_of_both(draw: Draw, few: bool = False) -> Iterator[Case]:
    """Both functions at all lengths from 2 to 64, or at a few of them, then at length 1."""
    for name in FUNCTIONS:
        first, *others = (3 + i for i in draw.permutation(61))
        lengths = [first, 2, 64, *others[:3]] if few else [2 + i for i in draw.permutation(63)]
        on = f"lengths {lengths[:6]}{'' if few else ' and all others from 2 to 64'}, then 1"
        yield Case(on, name, [draw.randn(n) for n in (*lengths, 1)])


prepare = Contract(
    PREPARE,
    ask=run_prepare,
    read=read_prepared,
    truth=lambda name, inputs: {f"length {len(x)}": FUNCTIONS[name](x) for x in inputs},
    told={
        "other-values": {f"length {n}": shaped(n) for n in (1, 64)},
        "padding-changes-values": {f"length {n}": shaped(n) for n in range(2, 64)},
    },
    errors={"at length 1:": "one-is-special", "RecompileLimit": "one-graph-per-length"},
    message="This is the result at {}.",
    rtol=1e-4,
    atol=1e-5,
)
prepare.equals("equals fn at every length", lambda draw: calls_of_both(draw, few=True))
prepare.facts(
    "compiles twice at most",
    calls_of_both,
    Fact(
        "compilations",
        Where(lambda came: came[-1] in (1, 2)),
        {
            "never-compiled": Where(lambda came: came[-1] == 0),
            "third-graph": Where(lambda came: came[-1] == 3),
            "one-graph-per-length": ANYTHING,
        },
        "Shown are the compilations so far, after each call.",
        expected="1 or 2 compilations in the end",
    ),
)
prepare.facts(
    "runs compiled code at every length from 2 to 64, and gives what it computed",
    calls_of_both,
    Fact("eager", [], "runs-eager", "Shown are the lengths that ran eager."),
    Fact("plain", [], "result-thrown-away", "Shown are the lengths with a result of `fn` itself."),
)


# 3.4 CountingLayer

CALLS, MORE = 12, 3
MANY = 2100  # float16 has no number between 2,048 and 2,050


def make_layer(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def call_each(call: Callable, layer: nn.Module, inputs: list[Tensor]) -> tuple[dict, list]:
    """Each call's output, and the last one's gradients of x and of the layer's parameters, None where there is none."""
    outputs = {}
    for number, x in enumerate(inputs, 1):
        x = x.clone().requires_grad_()
        y = call(x)
        outputs[f"output of call {number}"] = detached(y)
    if y.requires_grad:
        y.square().sum().backward()
    return outputs, [x.grad, *(weight.grad for weight in layer.parameters())]


def layer_alone(seed: int, inputs: list[Tensor], *rest: bool) -> tuple[dict, list]:
    layer = make_layer(seed)
    return call_each(layer, layer, inputs)


def run_counting(learner, seed: int, inputs: list[Tensor], go_on: bool) -> dict:
    """Compile the learner's module, call it twelve times, load its state into another and go on there if asked."""
    backend, layer = CountingBackend(), make_layer(seed)
    with fresh_compiler():
        module = learner.CountingLayer(layer)
        kept = "a Python number" if isinstance(module.calls, (int, float)) else "a tensor"
        try:
            outputs, gradients = call_each(torch.compile(module, backend=backend), layer, inputs)
        except Exception:
            if getattr(module.calls, "requires_grad", False):
                raise RuntimeError("forward raised, and calls requires a gradient") from None
            raise
        report = {
            "compilations": (backend.compiles, kept),
            "compiled calls": backend.calls,
            "count": float(module.calls),
            "gradients": gradients,
            **outputs,
        }
        state = copy.deepcopy(module.state_dict())
    if not go_on:
        return report
    with fresh_compiler():
        again = learner.CountingLayer(make_layer(seed + 1))
        compiled = torch.compile(again, backend=CountingBackend())
        try:
            again.load_state_dict(state)
        except Exception as problem:
            return report | {"loaded": error_text(problem), "later": 0, "much later": 0}
        report["loaded"] = float(again.calls)
        for name, calls in (("later", MORE), ("much later", MANY)):
            for _ in range(calls):
                compiled(inputs[0])
            report[name] = float(again.calls)
    return report


def twelve_calls(draw: Draw, go_on: bool = False) -> Case:
    on = f"{CALLS} compiled calls with x of shape (5, 6) that requires a gradient"
    return Case(on, draw.seed(), [draw.randn(5, 6) for _ in range(CALLS)], go_on)


counting = Contract(
    COUNTING,
    ask=run_counting,
    truth=lambda *case: layer_alone(*case)[0],
    told={"other-values": shaped(5, 4)},
    errors={"calls requires a gradient": "count-is-trained"},
)
counting.equals("computes what the layer computes", twelve_calls)
counting.facts(
    "compiles once, and every call runs compiled code",
    twelve_calls,
    Fact(
        "compilations",
        Where(lambda came: came[0] == 1),
        {
            "never-compiled": Where(lambda came: came[0] == 0),
            "int-attribute": Where(lambda came: came[1] == "a Python number"),
            "graph-break": ANYTHING,
        },
        "Shown are the compilations, and what the count is.",
        expected="1 compilation",
    ),
    Fact("compiled calls", Where(lambda came: came >= CALLS), "runs-eager", expected=CALLS),
)
counting.facts("counts twelve calls", twelve_calls, Fact("count", CALLS, "wrong-count"))
counting.facts(
    "lets gradients reach the layer",
    twelve_calls,
    Fact(
        "gradients",
        lambda *case: layer_alone(*case)[1],
        "gradient-cut",
        "Shown are the gradients of x and of each parameter.",
        rtol=1e-4,
        atol=1e-5,
    ),
)
counting.facts(
    "keeps the count in its state_dict, and counts on, to thousands",
    lambda draw: twelve_calls(draw, go_on=True),
    Fact("loaded", CALLS, "not-in-state", expected=f"{CALLS} in a fresh module that loaded the state_dict"),
    Fact("later", CALLS + MORE, "stops-counting"),
    Fact("much later", CALLS + MORE + MANY, "count-stalls"),
)


# 3.5 export_model


class OfImages(nn.Module):
    """Layers in a model whose forward calls its argument `images`."""

    def __init__(self, *layers: nn.Module):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)


SHAPES = {"an nn.Sequential": (8,), "a small convolutional net": (2, 4, 4)}  # of one row


def make_model(net: str, seed: int) -> nn.Module:
    """A model in train mode with its batch norm frozen, statistics away from their start values."""
    torch.manual_seed(seed)
    if net == "an nn.Sequential":
        kind, layer, norm = nn.Sequential, nn.Linear(8, 64), nn.BatchNorm1d(64)
    else:
        kind, layer, norm = OfImages, nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4)
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2.0)
    norm.eval().requires_grad_(False)
    return kind(layer, norm, nn.ReLU(), nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 3))


def make_rows(net: str, rows: int, seed: int) -> Tensor:
    return torch.randn(rows, *SHAPES[net], generator=torch.Generator().manual_seed(seed + rows))


def flags(model: nn.Module) -> tuple[set[str], set[str]]:
    """The submodules in train mode, and the parameters that ask for a gradient."""
    trains = {name or "the model" for name, module in model.named_modules() if module.training}
    return trains, {name for name, parameter in model.named_parameters() if parameter.requires_grad}


def run_export(learner, net: str, rows: int, seed: int, batches: list[int]) -> dict:
    """Export a model; report the program's output or error for each batch size, and whose flags have changed."""
    model, outputs, refused = make_model(net, seed), {}, {}
    trained, asked = flags(model)
    with fresh_compiler():
        program = learner.export_model(model, make_rows(net, rows, seed))
        trains, asks = flags(model)
        if not isinstance(program, torch.export.ExportedProgram):
            raise TypeError(f"a {type(program).__name__} is no ExportedProgram")
        module = program.module()
        for n in batches:
            try:
                with torch.no_grad():
                    outputs[f"batch of {n}"] = module(make_rows(net, n, seed)).clone()
            except Exception as problem:
                outputs[f"batch of {n}"] = refused[n] = error_text(problem)
    changed = {"asleep": sorted(trained - trains), "woken": sorted(trains - trained), "asks": sorted(asks ^ asked)}
    return {**outputs, "refused": refused, **changed}


def export_case(draw: Draw, net: str, *batches: int) -> Case:
    """An export whose program is called with these batch sizes, by default with that of the example."""
    rows, seed = draw(2, 9), draw.seed()
    batches = list(batches) or [rows]
    facts = []
    for n in batches:
        if n <= 64:
            wanted = make_model(net, seed).eval()(make_rows(net, n, seed)).detach()
            facts.append(Fact(f"batch of {n}", wanted, {"training-exported": shaped(n, 3)}, f"In a batch of {n}:"))
    return Case(f"{net}, example of {rows} rows, batches of {batches}", net, rows, seed, batches, facts=facts)


exported = Contract(
    EXPORT,
    ask=run_export,
    errors={"no ExportedProgram": "not-a-program", "arg names": "argument-name", "constant": "example-of-one"},
    rtol=1e-4,
    atol=1e-5,
)
exported.facts(
    "is a program that computes what the model computes in eval mode",
    lambda draw: [export_case(draw, net) for net in SHAPES],
)
exported.facts(
    "takes batches of 1 to 64 rows",
    lambda draw: [export_case(draw, net, 1, 2, 7, 33, 64) for net in SHAPES],
    Fact(
        "refused",
        {},
        {
            "one-batch-size": lambda net, rows, seed, sizes: Where(lambda came: {*sizes} - {rows} <= {*came}),
            "range-too-short": ANYTHING,
        },
        expected="no batch refused",
    ),
)
exported.facts(
    "refuses a batch of 65 rows",
    lambda draw: export_case(draw, "an nn.Sequential", 65),
    Fact("batch of 65", Where(lambda came: isinstance(came, str)), "no-upper-limit", expected="an error"),
)
exported.facts(
    "leaves every submodule in its own mode, and every parameter with its own requires_grad",
    lambda draw: export_case(draw, "an nn.Sequential"),
    Fact("asleep", [], "mode-not-restored", "Shown are submodules now in eval mode."),
    Fact("woken", [], "frozen-layer-woken", "Shown are submodules now in train mode."),
    Fact("asks", [], "requires-grad-changed", "Shown are parameters with another requires_grad."),
)
