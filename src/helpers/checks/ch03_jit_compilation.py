"""Checks of chapter 3: what a compiler saw, counted. None of them needs a C++ compiler."""

from __future__ import annotations

import contextlib
import copy
import logging
import warnings
from collections.abc import Iterator

import torch
from torch import nn

from ..evidence import CountingBackend
from ..exercise.declare import Failed, load_exercises
from ..exercise.expect import draw_int, expect, expect_close, expect_tensor
from ..exercise.wire import LearnerError

LYING, BRANCHLESS, PREPARE, COUNTING, EXPORT = load_exercises(__file__)

# The first import of torch._dynamo takes a second of processor time, several on a busy machine.
CPU_LIMIT_S = 60.0

_SETTINGS = (
    "cache_size_limit",
    "assume_static_by_default",
    "automatic_dynamic_shapes",
    "allow_unspec_int_on_nn_module",
    "capture_scalar_outputs",
    "suppress_errors",
)


@contextlib.contextmanager
def fresh_compiler() -> Iterator[None]:
    """Start without compiled code, and leave none behind: nor settings, a stance, or lines in the log."""
    import torch._dynamo

    config = torch._dynamo.config
    loggers = [logging.getLogger(name) for name in ("torch._dynamo", "torch._guards", "torch.fx")]
    levels = [logger.level for logger in loggers]
    torch._dynamo.reset()
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        with config.patch({name: getattr(config, name) for name in _SETTINGS if hasattr(config, name)}):
            with torch.compiler.set_stance("default"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
    finally:
        torch._dynamo.reset()
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def error_text(error: Exception) -> str:
    """Class and first lines of an error, short enough for feedback."""
    return f"{type(error).__name__}: {str(error).strip()[:300]}"


# 3.1


class ByPeak(nn.Module):
    """The notebook's module: the branch looks at the largest absolute value."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        peak = x.abs().max()
        return x / peak if peak > 1 else x


class BySum(nn.Module):
    """The branch looks at the sign of the sum; both branches are NaN where x is negative."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sqrt() if x.sum() > 0 else (2 * x).sqrt()


class ByLength(nn.Module):
    """The branch looks at the length."""

    def __init__(self, limit: int):
        super().__init__()
        self.limit = limit

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - x.mean() - 1 if x.shape[0] > self.limit else x


LONGEST = 32  # as the exercise says

EXAMPLES = {
    "peak": ("a quiet example", "a loud example"),
    "sum": ("an example with a positive sum", "an example with a negative sum"),
    "length": ("a short example", "a long example"),
}


def make_liar(kind: str, other_example: bool, limit: int) -> tuple[nn.Module, torch.jit.ScriptModule]:
    """A module and its trace, on an example that takes the one branch or the other."""
    if kind == "peak":
        module, examples = ByPeak(), (torch.full((3,), 0.5), torch.full((3,), 5.0))
    elif kind == "sum":
        module, examples = BySum(), (torch.ones(3), -torch.ones(3))
    else:
        module, examples = ByLength(limit), (torch.ones(limit), torch.ones(limit + 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return module, torch.jit.trace(module, examples[other_example], check_trace=False)


def run_lying(learner, kind: str, other_example: bool, limit: int) -> dict:
    """Ask for a lying input; report what modules of our own, made alike, give for it."""
    module, traced = make_liar(kind, other_example, limit)
    x = learner.lying_input(traced, module)
    if not isinstance(x, torch.Tensor):
        return {"x": repr(x)[:200], "error": "", "outputs": []}
    x = x.detach().clone()
    outputs, error = [], ""
    if x.dim() == 1 and x.is_floating_point():
        try:
            with torch.no_grad():
                outputs = [m(x).clone() for m in make_liar(kind, other_example, limit)]
        except Exception as problem:
            error = error_text(problem)
    return {"x": x, "error": error, "outputs": outputs}


def judge_liar(session, kind: str, other_example: bool, limit: int, otherwise: str) -> None:
    """Fail unless the learner's input parts a module and its trace; `otherwise` names an honest input."""
    result = session.probe(run_lying, kind, other_example, limit)
    where = {"peak": "ByPeak", "sum": "a branch on the sum", "length": f"a branch on length > {limit}"}[kind]
    on = f"{where}, traced on {EXAMPLES[kind][other_example]}"
    x = result["x"]
    if not isinstance(x, torch.Tensor):
        expected = "a tensor for which the two modules differ"
        raise Failed(None if kind == "peak" else otherwise, expected=expected, came=x, on=on)
    shaped = x.dim() == 1 and x.is_floating_point()
    expect(shaped, "not-one-vector", came=f"{x.dtype}, shape {tuple(x.shape)}", on=on)
    expect(len(x) <= LONGEST, "too-long", expected=f"1 to {LONGEST} numbers", came=f"{len(x)} numbers", on=on)
    expect(not result["error"], "raises-not-lies", came=result["error"], on=on)
    theirs, ours = result["outputs"]
    if theirs.shape != ours.shape or not torch.allclose(theirs, ours, equal_nan=True):
        return
    if theirs.isnan().any():
        raise Failed("nan-is-no-difference", came=x, on=on)
    raise Failed(otherwise, came=x, on=on)


@LYING.check("catches the notebook's module, whichever example it was traced on")
def _(session, rng):
    judge_liar(session, "peak", False, 0, "follows-the-example")
    judge_liar(session, "peak", True, 0, "one-answer-for-all")


@LYING.check("catches a branch on the sign of the sum")
def _(session, rng):
    judge_liar(session, "sum", False, 0, "sign-not-tried")
    judge_liar(session, "sum", True, 0, "sign-not-tried")


@LYING.check("catches a branch on the length")
def _(session, rng):
    judge_liar(session, "length", False, draw_int(rng, 4, 12), "length-not-tried")
    judge_liar(session, "length", True, draw_int(rng, 4, 12), "length-not-tried")
    judge_liar(session, "length", False, draw_int(rng, 20, 28), "length-not-tried")


# 3.2


def branchy(x: torch.Tensor) -> torch.Tensor:
    """The notebook's function."""
    total = x.sum()
    if total > 0:
        return x / total.sqrt()
    return -2 * x


SMALL_SUM = "a sum of 1/256"  # exact in whatever order it is added up


def branchy_cases(rng: torch.Generator) -> dict[str, torch.Tensor]:
    """One vector for each kind of sum, all of one length."""
    noise = torch.randn(5, generator=rng)
    flat = noise - noise.mean()
    return {
        "a positive sum": flat + 0.8,
        "a sum between 0 and 1": flat + 0.06,
        SMALL_SUM: torch.tensor([1.5, -1.5, 0.25, -0.25, 2.0**-8]),
        "a negative sum": flat - 0.7,
        "a sum of exactly 0": torch.tensor([1.5, -1.5, 0.25, -0.25, 0.0]),
    }


def run_branchless_eager(learner, cases: list[torch.Tensor]) -> list:
    """Call the learner's function, any compilation of its own set aside."""
    with fresh_compiler(), torch.compiler.set_stance("force_eager"):
        return [learner.branchless(x) for x in cases]


def run_branchless(learner, cases: list[torch.Tensor], weights: torch.Tensor) -> dict:
    """Compile the learner's function as one graph; report counts, values, and gradients of a weighted sum."""
    fn, backend, values, gradients = learner.branchless, CountingBackend(), [], []
    with fresh_compiler():
        compiled = torch.compile(fn, backend=backend, fullgraph=True)
        try:
            for x in cases:
                x = x.clone().requires_grad_()
                y = compiled(x)
                values.append(y.detach().clone())
                gradient = None
                if y.requires_grad:
                    (gradient,) = torch.autograd.grad((y * weights).sum(), x, allow_unused=True)
                gradients.append(torch.zeros_like(x) if gradient is None else gradient)
        except LearnerError:
            raise
        except Exception as problem:
            return {"error": error_text(problem), "compiles": backend.compiles, "calls": backend.calls}
    return {
        "error": "",
        "compiles": backend.compiles,
        "calls": backend.calls,
        "values": values,
        "gradients": gradients,
    }


@BRANCHLESS.check("equals branchy on both branches")
def _(session, rng):
    cases = branchy_cases(rng)
    came = session.probe(run_branchless_eager, list(cases.values()))
    for (name, x), y in zip(cases.items(), came, strict=True):
        expected = branchy(x)
        expect_tensor(y, name, expected.shape)
        if y.isnan().any() or y.isinf().any():
            raise Failed("masked-by-product", expected=expected, came=y, on=name)
        wrong = {SMALL_SUM: "epsilon-added", "a sum of exactly 0": "sum-of-zero"}
        expect_close(y, expected, name, wrong.get(name, "other-values"))


@BRANCHLESS.check("is one graph")
def _(session, rng):
    cases = branchy_cases(rng)
    result = session.probe(run_branchless, list(cases.values()), torch.ones(5))
    expect(not result["error"], "still-breaks", came=result["error"])
    seen = f"{result['compiles']} compilations, {result['calls']} calls of compiled code"
    good = result["compiles"] == 1 and result["calls"] == len(cases)
    expect(good, "still-breaks", expected=f"1 compilation, {len(cases)} calls of compiled code", came=seen)
    for (name, x), y in zip(cases.items(), result["values"], strict=True):
        expect_close(y, branchy(x), f"{name}, compiled", "other-values")


@BRANCHLESS.check("has the gradient of branchy, finite everywhere")
def _(session, rng):
    cases = branchy_cases(rng)
    weights = torch.rand(5, generator=rng) + 0.5
    result = session.probe(run_branchless, list(cases.values()), weights)
    expect(not result["error"], "still-breaks", came=result["error"])
    for (name, x), came in zip(cases.items(), result["gradients"], strict=True):
        with torch.enable_grad():
            x = x.clone().requires_grad_()
            (expected,) = torch.autograd.grad((branchy(x) * weights).sum(), x)
        wrong = "nan-gradient-at-zero" if "exactly" in name else "nan-gradient"
        expect(bool(came.isfinite().all()), wrong, expected=expected, came=came, on=name)
        expect_close(came, expected, name, "gradient-cut", rtol=1e-4, atol=1e-5)


# 3.3


def smooth(x: torch.Tensor) -> torch.Tensor:
    """A function whose values depend on the length in several places."""
    return x.flip(0).cumsum(0) / x.shape[0] + x.softmax(0) * x.mean()


def centre(x: torch.Tensor) -> torch.Tensor:
    """Another one, with a window of the input and a position."""
    position = torch.arange(x.shape[0]) / x.shape[0]
    return x - x.mean() + position * x[-1]


FUNCTIONS = {"smooth": smooth, "centre": centre}
ENOUGH_COMPILES = 9  # where each length costs one, the answer is known by then


MARK = 4e-6  # too little for torch.allclose, much for float32


class MarkingBackend(CountingBackend):
    """A counting backend whose graphs give slightly larger numbers, by which they are known afterwards."""

    def __call__(self, graph_module, example_inputs):
        run = super().__call__(graph_module, example_inputs)

        def run_marked(*args):
            return marked(run(*args))

        return run_marked


def marked(value: object) -> object:
    """Scale float tensors, alone or in a tuple or list, by 1 + `MARK`; leave all else alone."""
    if type(value) in (tuple, list):
        return type(value)(marked(item) for item in value)
    floats = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value * (1 + MARK) if floats else value


def is_marked(came: torch.Tensor, plain: torch.Tensor) -> bool:
    """True if a result is off the plain one by more than rounding."""
    return bool((came.double() - plain.double()).norm() > plain.double().norm() * MARK / 3)


def run_prepare(learner, name: str, inputs: list[torch.Tensor], mark: bool) -> dict:
    """Prepare a function and call it; report outputs, and the counts after each call."""
    outputs, compiles, calls = [], [], []
    backend = MarkingBackend() if mark else CountingBackend()
    with fresh_compiler():
        call = learner.prepare(FUNCTIONS[name], backend)
        if not callable(call):
            raise LearnerError("type", f"prepare should give something to call, not {type(call).__name__}")
        at_start = backend.calls
        for x in inputs:
            try:
                outputs.append(call(x.clone()).detach().clone())
            except LearnerError:
                raise
            except Exception as problem:
                kinds = [kind.__name__ for kind in type(problem).__mro__]
                return {"error": error_text(problem), "kinds": kinds, "length": len(x)}
            compiles.append(backend.compiles)
            calls.append(backend.calls)
            if backend.compiles > ENOUGH_COMPILES:
                break
    return {"error": "", "start": at_start, "outputs": outputs, "compiles": compiles, "calls": calls}


def prepared(session, rng, name: str, few: bool = False, mark: bool = False) -> tuple[list[torch.Tensor], dict]:
    """Draw inputs of lengths 2 to 64, or of a few of them, in random order, then of length 1, and run them.

    With `mark`, compiled code gives results that `is_marked` knows.
    """
    lengths = [2 + int(i) for i in torch.randperm(63, generator=rng)]
    lengths = [lengths[0], 2, 64, *lengths[1:4], 1] if few else [*lengths, 1]
    inputs = [torch.randn(n, generator=rng) for n in lengths]
    result = session.probe(run_prepare, name, inputs, mark)
    if result["error"]:
        on, came = f"length {result['length']}", result["error"]
        if result["length"] == 1:
            raise Failed("one-is-special", came=came, on=on)
        limit = any("RecompileLimit" in kind for kind in result["kinds"])
        raise Failed("one-graph-per-length" if limit else None, "Your code raised.", came=came, on=on)
    return inputs, result


@PREPARE.check("equals fn at every length")
def _(session, rng):
    for name, fn in FUNCTIONS.items():
        inputs, result = prepared(session, rng, name, few=True)
        for x, y in zip(inputs, result["outputs"], strict=False):
            on, expected = f"length {len(x)}", fn(x)
            expect_tensor(y, on, expected.shape)
            wrong = "other-values" if len(x) in (1, 64) else "padding-changes-values"
            expect_close(y, expected, on, wrong, rtol=1e-4, atol=1e-5)


@PREPARE.check("compiles twice at most")
def _(session, rng):
    for name in FUNCTIONS:
        _, result = prepared(session, rng, name)
        compiles = result["compiles"]
        if compiles[-1] > 2:
            wrong = "third-graph" if compiles[-1] == 3 else "one-graph-per-length"
            seen = f"{compiles[-1]} after {len(compiles)} calls, the first ten: {compiles[:10]}"
            raise Failed(wrong, expected="at most 2 compilations", came=seen)
        expect(compiles[-1] > 0, "never-compiled", expected="1 or 2 compilations", came=0)


@PREPARE.check("runs compiled code at every length from 2 to 64, and gives what it computed")
def _(session, rng):
    for name, fn in FUNCTIONS.items():
        inputs, result = prepared(session, rng, name, mark=True)
        steps = zip([result["start"], *result["calls"]], result["calls"], inputs, strict=False)
        eager = sorted(len(x) for before, after, x in steps if after == before and len(x) > 1)
        expect(not eager, "runs-eager", came=f"{len(eager)} lengths ran without it, such as {eager[:3]}")
        pairs = zip(inputs, result["outputs"], strict=False)
        lost = sorted(len(x) for x, y in pairs if len(x) > 1 and not is_marked(y, fn(x)))
        expect(not lost, "result-thrown-away", came=f"the result of `fn` itself at {len(lost)} lengths: {lost[:3]} ...")


# 3.4


CALLS, MORE_CALLS = 12, 3
MANY_CALLS = 2100  # float16 has no number between 2,048 and 2,050


def make_layer(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def counting_inputs(seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(5, 6, generator=generator) for _ in range(CALLS)]


def run_counting(learner, seed: int) -> dict:
    """Compile the learner's module, call it twelve times, load its state into another and go on there."""
    backend, outputs = CountingBackend(), []
    inputs = counting_inputs(seed)
    with fresh_compiler():
        layer = make_layer(seed)
        module = learner.CountingLayer(layer)
        kept_number = isinstance(module.calls, (int, float))
        compiled = torch.compile(module, backend=backend)
        for x in inputs:
            x.requires_grad_()
            try:
                y = compiled(x)
            except Exception:
                if getattr(module.calls, "requires_grad", False):
                    return {"trained": True}
                raise
            if not isinstance(y, torch.Tensor):
                raise LearnerError("type", f"the module should give what its layer gives, not {type(y).__name__}")
            outputs.append(y.detach().clone())
        result = {"outputs": outputs, "compiles": backend.compiles, "calls": backend.calls}
        result |= {"number": kept_number, "count": float(module.calls), "gradients": []}
        if y.requires_grad:
            y.square().sum().backward()
            found = [x.grad, *(p.grad for p in layer.parameters())]
            result["gradients"] = [torch.zeros(0) if g is None else g for g in found]
        state = copy.deepcopy(module.state_dict())
    with fresh_compiler():
        again = learner.CountingLayer(make_layer(seed + 1))
        try:
            again.load_state_dict(state)
        except Exception as problem:
            return result | {"loaded": error_text(problem), "later": 0.0}
        result["loaded"] = float(again.calls)
        compiled = torch.compile(again, backend=CountingBackend())
        for x in inputs[:MORE_CALLS]:
            compiled(x)
        result["later"] = float(again.calls)
    return result


def run_many(learner) -> float:
    """Compile the learner's module around nothing, call it many times, and report the count."""
    x = torch.ones(1)
    with fresh_compiler(), torch.no_grad():
        module = learner.CountingLayer(nn.Identity())
        compiled = torch.compile(module, backend=CountingBackend())
        for _ in range(MANY_CALLS):
            compiled(x)
        return float(module.calls)


@COUNTING.check("computes what the layer computes")
def _(session, rng):
    seed = draw_int(rng, 0, 10**6)
    result = session.probe(run_counting, seed)
    expect("trained" not in result, "count-is-trained", on="the first call, with x that requires a gradient")
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        layer = make_layer(seed)
        expected = [layer(x) for x in counting_inputs(seed)]
    for number, (came, wanted) in enumerate(zip(result["outputs"], expected, strict=True), 1):
        expect_close(came, wanted, f"call {number}", "other-values")


@COUNTING.check("compiles once, and every call runs compiled code")
def _(session, rng):
    result = session.probe(run_counting, draw_int(rng, 0, 10**6))
    compiles, calls = result["compiles"], result["calls"]
    came = f"{compiles} compilations, {calls} calls of compiled code, in {CALLS} calls"
    expect(compiles > 0, "never-compiled", came=came)
    wrong = "int-attribute" if result["number"] else "graph-break"
    expect(compiles == 1, wrong, expected="1 compilation", came=came)
    expect(calls >= CALLS, "runs-eager", came=came)


@COUNTING.check("counts twelve calls")
def _(session, rng):
    result = session.probe(run_counting, draw_int(rng, 0, 10**6))
    expect(result["count"] == CALLS, "wrong-count", expected=CALLS, came=result["count"])


@COUNTING.check("lets gradients reach the layer")
def _(session, rng):
    seed = draw_int(rng, 0, 10**6)
    result = session.probe(run_counting, seed)
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        layer = make_layer(seed)
        x = counting_inputs(seed)[-1].requires_grad_()
        layer(x).square().sum().backward()
        expected = [x.grad, *(p.grad for p in layer.parameters())]
    came = result["gradients"]
    same = len(came) == len(expected) and all(
        a.shape == b.shape and torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(came, expected, strict=True)
    )
    expect(same, "gradient-cut", expected=expected[1], came=came[1] if came else "no graph")


@COUNTING.check("keeps the count in its state_dict, and counts on, to thousands")
def _(session, rng):
    result = session.probe(run_counting, draw_int(rng, 0, 10**6))
    on = "a fresh module that loaded the state_dict"
    expect(result["loaded"] == CALLS, "not-in-state", expected=CALLS, came=result["loaded"], on=on)
    on += f" and was called {MORE_CALLS} times"
    wanted = CALLS + MORE_CALLS
    expect(result["later"] == wanted, "stops-counting", expected=wanted, came=result["later"], on=on)
    count = session.probe(run_many)
    expect(count == MANY_CALLS, "count-stalls", expected=MANY_CALLS, came=count, on=f"{MANY_CALLS} calls")


# 3.5


BATCHES = (1, 2, 7, 33, 64)


class SmallConv(nn.Module):
    """A small image classifier; its forward calls its argument `images`."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.head = nn.Sequential(nn.Dropout(0.5), nn.Linear(4 * 16, 3))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(images).flatten(1))


def make_model(kind: str, seed: int) -> nn.Module:
    """A model in train mode with its batch norm frozen, statistics away from their start values."""
    torch.manual_seed(seed)
    if kind == "conv":
        model = SmallConv()
    else:
        model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3))
    model.train()
    for module in model.modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2.0)
            module.eval()
            module.requires_grad_(False)
    return model


def make_rows(kind: str, rows: int, seed: int) -> torch.Tensor:
    shape = (rows, 2, 4, 4) if kind == "conv" else (rows, 8)
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + rows))


def asks_gradient(model: nn.Module) -> list[bool]:
    """Each parameter's own `requires_grad`."""
    return [parameter.requires_grad for parameter in model.parameters()]


def run_export(learner, kind: str, rows: int, seed: int, batches: list[int]) -> dict:
    """Export a model; report what the program gives for each batch size, and the model's flags."""
    model = make_model(kind, seed)
    before, asked = [module.training for module in model.modules()], asks_gradient(model)
    with fresh_compiler():
        program = learner.export_model(model, make_rows(kind, rows, seed))
        after, asks = [module.training for module in model.modules()], asks_gradient(model)
        if not isinstance(program, torch.export.ExportedProgram):
            return {"kind": type(program).__name__}
        module, outputs = program.module(), []
        for size in batches:
            try:
                with torch.no_grad():
                    outputs.append(module(make_rows(kind, size, seed)).detach().clone())
            except Exception as problem:
                outputs.append(error_text(problem))
    modes = {"before": before, "after": after, "asked": asked, "asks": asks}
    return {"kind": "program", "outputs": outputs, **modes}


def exported(session, kind: str, rows: int, seed: int, batches: list[int]) -> dict:
    """Run the learner's export; errors of known misconceptions are told as those."""
    on = f"{'a small convolutional net' if kind == 'conv' else 'an nn.Sequential'}, example of {rows} rows"
    try:
        result = session.probe(run_export, kind, rows, seed, batches)
    except LearnerError as error:
        if error.reason == "raised" and "arg names" in error.text:
            raise Failed("argument-name", came=error.text[:300], on=on) from None
        if error.reason == "raised" and "constant" in error.text:
            raise Failed("example-of-one", came=error.text[:300], on=on) from None
        raise
    expect(result["kind"] == "program", "not-a-program", came=result["kind"], on=on)
    return result | {"on": on}


def expected_rows(kind: str, size: int, seed: int) -> torch.Tensor:
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        return make_model(kind, seed).eval()(make_rows(kind, size, seed))


@EXPORT.check("is a program that computes what the model computes in eval mode")
def _(session, rng):
    for kind in ("mlp", "conv"):
        rows, seed = draw_int(rng, 2, 9), draw_int(rng, 0, 10**6)
        result = exported(session, kind, rows, seed, [rows])
        came = result["outputs"][0]
        expect(not isinstance(came, str), message="The program raises on a batch like its example.", came=came)
        wanted = expected_rows(kind, rows, seed)
        expect_close(came, wanted, result["on"], "training-exported", rtol=1e-4, atol=1e-5)


@EXPORT.check("takes batches of 1 to 64 rows")
def _(session, rng):
    for kind in ("mlp", "conv"):
        rows, seed = draw_int(rng, 2, 9), draw_int(rng, 0, 10**6)
        result = exported(session, kind, rows, seed, list(BATCHES))
        refused = [n for n, y in zip(BATCHES, result["outputs"], strict=True) if isinstance(y, str)]
        if refused:
            reason = next(y for y in result["outputs"] if isinstance(y, str))
            wrong = "one-batch-size" if set(BATCHES) - {rows} <= set(refused) else "range-too-short"
            raise Failed(wrong, f"Refused: {refused}.", came=reason, on=result["on"])
        for n, came in zip(BATCHES, result["outputs"], strict=True):
            on = f"{result['on']}, batch of {n}"
            expect_close(came, expected_rows(kind, n, seed), on, "training-exported", rtol=1e-4, atol=1e-5)


@EXPORT.check("refuses a batch of 65 rows")
def _(session, rng):
    result = exported(session, "mlp", draw_int(rng, 2, 9), draw_int(rng, 0, 10**6), [65])
    came = result["outputs"][0]
    expect(isinstance(came, str), "no-upper-limit", expected="an error", came=came, on=result["on"] + ", batch of 65")


@EXPORT.check("leaves every submodule in its own mode, and every parameter with its own requires_grad")
def _(session, rng):
    result = exported(session, "mlp", draw_int(rng, 2, 9), draw_int(rng, 0, 10**6), [])
    before, after = result["before"], result["after"]
    if before != after:
        woken = all(after) or all(now or not was for was, now in zip(before, after, strict=True))
        raise Failed("frozen-layer-woken" if woken else "mode-not-restored", expected=before, came=after)
    asked, asks = result["asked"], result["asks"]
    expect(asked == asks, "requires-grad-changed", expected=asked, came=asks)
