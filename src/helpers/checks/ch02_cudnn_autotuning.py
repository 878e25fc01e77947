"""Checks of chapter 2: where the backend flags live, and what a tuner has to remember."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

from ..evidence import state_hash
from ..exercise.declare import Failed, load_exercises
from ..exercise.expect import draw_int, expect, expect_close, expect_raises
from ..exercise.wire import LearnerError
from ..measure import state

CLASSIFY, AUTOTUNED, TUNER, BUCKETED, BREAK_EVEN = load_exercises(__file__)

# 2.1

LINES = [
    "torch.backends.cudnn.benchmark = True",
    "torch.backends.cudnn.benchmrk = True",
    "torch.cudnn.benchmark = True",
    "model.cudnn_benchmark = True",
    "torch.backends.cudnn.flags(enabled=True, benchmark=True)",
    "torch.backends.cudnn.deterministic = 1",
]
WORDS = ("effective", "ignored", "error")


def true_settings() -> dict[str, str]:
    """Execute the six lines, each from the same start, and report what each did."""
    truth = {}
    with state.guard():
        for line in LINES:
            torch._C._set_cudnn_benchmark(False)
            torch._C._set_cudnn_deterministic(False)
            names = {"torch": torch, "nn": nn, "model": nn.Conv2d(3, 8, 3)}
            before = state.snapshot()
            try:
                exec(line, names)
                truth[line] = "effective" if state.leaks(before) else "ignored"
            except (AttributeError, RuntimeError, TypeError):
                truth[line] = "error"
            vars(torch.backends.cudnn).pop("benchmrk", None)
    return truth


@CLASSIFY.check("says of each line what it does")
def _(session, rng):
    came = session.call("classify_settings")
    expect(isinstance(came, dict), message="A dict from each line to a word is expected.", came=came)
    missing = [line for line in LINES if line not in came]
    expect(not missing, message=f"Lines are missing: {'; '.join(missing)}.")
    for line in LINES:
        expect(came[line] in WORDS, message=f"Use one of {', '.join(WORDS)}.", came=came[line], on=line)
    with torch.random.fork_rng(devices=[]):
        truth = true_settings()
    wrong = [line for line in LINES if came[line] != truth[line]]
    if not wrong:
        return
    known = {
        LINES[1]: "typo-is-noticed" if came[LINES[1]] == "error" else "typo-still-works",
        LINES[2]: "wrong-path-accepted",
        LINES[3]: "module-attribute",
        LINES[4]: "context-not-entered",
        LINES[5]: "int-for-bool",
    }
    line = next((line for line in wrong if line in known), wrong[0])
    raise Failed(known.get(line), on=line, came=came[line])


# 2.2


def run_autotuned(learner, start: dict, scenario: str) -> dict:
    """Use the learner's `autotuned` from given cuDNN flags; report all watched flags inside and after.

    Args:
        start: flag of torch.backends.cudnn -> bool.
        scenario: "plain", "error" (the block raises) or "nested".
    """
    with state.guard():
        for name, value in start.items():
            getattr(torch._C, f"_set_cudnn_{name}")(value)
        before = _flags()
        manager = learner.autotuned()
        if not hasattr(type(manager), "__enter__") or not hasattr(type(manager), "__exit__"):
            return {"manager": type(manager).__name__}
        report = {"manager": "", "before": before, "between": {}, "raised": False}
        try:
            with manager:
                report["inside"] = _flags()
                if scenario == "error":
                    raise KeyError("from the block")
                if scenario == "nested":
                    with learner.autotuned():
                        pass
                    report["between"] = _flags()
        except KeyError:
            report["raised"] = True
        report["after"] = _flags()
    return report


def _flags() -> dict[str, str]:
    return {name: str(value) for name, value in state.snapshot().items()}


def _starts(rng: torch.Generator, benchmark: bool) -> list[dict[str, bool]]:
    """Starting flags: the usual ones, cuDNN off, and every other flag away from its default."""
    usual = {"enabled": True, "benchmark": benchmark, "deterministic": False, "allow_tf32": True}
    odd = {"deterministic": True, "allow_tf32": False}
    starts = [usual, usual | {"enabled": False}, usual | odd]
    if draw_int(rng, 0, 1):
        starts.append(usual | odd | {"enabled": False})
    return starts


def _told(start: dict) -> str:
    return "cudnn flags at the start: " + ", ".join(f"{name}={value}" for name, value in start.items())


@AUTOTUNED.check("switches benchmark on")
def _(session, rng):
    for start in _starts(rng, False)[:2]:
        result = session.probe(run_autotuned, start, "plain")
        expect(not result["manager"], "not-a-context-manager", came=result["manager"])
        came = result["inside"]["cudnn.benchmark"]
        expect(came == "True", "benchmark-not-on", expected=True, came=came, on=_told(start))


@AUTOTUNED.check("leaves cuDNN enabled as it was, and every other flag too")
def _(session, rng):
    for start in _starts(rng, False):
        result = session.probe(run_autotuned, start, "plain")
        before, inside = result["before"], result["inside"]
        changed = [name for name in before if before[name] != inside[name] and name != "cudnn.benchmark"]
        if not changed:
            continue
        kind = "other-flag-changed"
        if "cudnn.enabled" in changed:
            kind = "cudnn-switched-off" if start["enabled"] else "enabled-forced-on"
        name = "cudnn.enabled" if "cudnn.enabled" in changed else changed[0]
        wanted, came = f"{name}={before[name]}", f"{name}={inside[name]}"
        raise Failed(kind, expected=wanted, came=came, on=_told(start))


@AUTOTUNED.check("puts benchmark back")
def _(session, rng):
    for benchmark in (False, True):
        for start in _starts(rng, benchmark):
            result = session.probe(run_autotuned, start, "plain")
            kind = "switched-off-afterwards" if benchmark else "not-restored"
            _expect_flags_back(result, kind, _told(start))


@AUTOTUNED.check("puts it back when blocks are nested")
def _(session, rng):
    for benchmark in (False, True):
        start = _starts(rng, benchmark)[0]
        result = session.probe(run_autotuned, start, "nested")
        came = result["between"]["cudnn.benchmark"]
        expect(came == "True", "inner-block-ends-it", expected=True, came=came, on=_told(start))
        _expect_flags_back(result, "nested-not-restored", _told(start))


@AUTOTUNED.check("puts it back when the block raises, and lets the error through")
def _(session, rng):
    for benchmark in (False, True):
        start = _starts(rng, benchmark)[0]
        result = session.probe(run_autotuned, start, "error")
        _expect_flags_back(result, "lost-on-error", _told(start))
        expect(result["raised"], "swallows-errors", expected="KeyError", came="nothing", on="a block that raises it")


def _expect_flags_back(result: dict, kind: str, on: str) -> None:
    changed = [name for name, value in result["before"].items() if result["after"][name] != value]
    if changed:
        kind = kind if "cudnn.benchmark" in changed else None
        name = "cudnn.benchmark" if kind else changed[0]
        wanted, came = f"{name}={result['before'][name]}", f"{name}={result['after'][name]}"
        raise Failed(kind, "" if kind else "A flag is left changed.", expected=wanted, came=came, on=on)


# 2.3


NAMES = ("direct", "unfolded", "other")
LAYOUTS = ("contiguous", "channels_last", "cut")


def make_pair(spec: dict, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """An image batch and a weight as a spec says: shapes, dtypes, layouts, device."""
    generator = torch.Generator().manual_seed(seed)
    pair = []
    for name in ("x", "weight"):
        values = torch.randn(spec[name], generator=generator).to(spec.get(f"{name}_dtype", torch.float32))
        layout = spec.get(f"{name}_layout", "contiguous")
        if layout == "channels_last":
            values = values.contiguous(memory_format=torch.channels_last)
        elif layout == "cut":
            values = F.pad(values, (0, 2))[..., :-2]
        pair.append(values.to(spec.get("device", "cpu")))
    return pair[0], pair[1]


def convolve(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The result of every candidate, whatever the dtypes; on the meta device, which has no numbers, x itself."""
    if x.device.type == "meta":
        return x
    return F.conv2d(x.double(), weight.double()).to(x.dtype)


def make_candidates(slow: str = "") -> tuple[dict[str, Callable], list[str]]:
    """Candidates that note their name when called; the slow one keeps the processor busy for a while."""
    calls: list[str] = []

    def candidate(name: str) -> Callable:
        def run(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            calls.append(name)
            if name == slow:
                _stay_busy(0.004)
            return convolve(x, weight)

        return run

    return {name: candidate(name) for name in NAMES}, calls


def _stay_busy(seconds: float) -> None:
    """Spend this long on every clock that a tuner may read."""
    wall, cpu = time.perf_counter() + seconds, time.thread_time() + seconds
    while time.perf_counter() < wall or time.thread_time() < cpu:
        pass


def run_tuner(learner, specs: list[dict], seed: int, same_objects: bool = False) -> dict:
    """Give a tuner one pair after another; report outputs, candidates run and `tunings` after each call.

    Args:
        same_objects: equal specs give the very same tensors, not new ones with other numbers.
    """
    candidates, calls = make_candidates()
    tuner = learner.Autotuner(dict(candidates))
    outputs, called, tunings, winners, pairs = [], [], [tuner.tunings], [], []
    for number, spec in enumerate(specs):
        pair = make_pair(spec, seed + number)
        if same_objects and spec in specs[:number]:
            pair = pairs[specs.index(spec)]
        pairs.append(pair)  # keep them alive: an id in a key must not come back by chance
        calls.clear()
        out = tuner(*pair)
        called.append(list(calls))
        tunings.append(tuner.tunings)
        winners.append(tuner.winner(*pair))
        outputs.append(out if isinstance(out, torch.Tensor) and out.device.type == "cpu" else repr(type(out)))
    return {"outputs": outputs, "called": called, "tunings": tunings, "winners": winners, "end": tuner.tunings}


def run_two_tuners(learner, spec: dict, seed: int) -> list[list[str]]:
    """Give two tuners the same pair; report the candidates that each ran."""
    x, weight = make_pair(spec, seed)
    called = []
    for _ in range(2):
        candidates, calls = make_candidates()
        learner.Autotuner(candidates)(x, weight)
        called.append(list(calls))
    return called


def run_slow_candidate(learner, slow: str, specs: list[dict], seed: int) -> list[str]:
    """Give a tuner, one of whose candidates is far slower, up to three keys; report the winners.

    A candidate can look slow once because the machine was busy; it ends with the first key that it loses.
    """
    candidates, _ = make_candidates(slow)
    tuner = learner.Autotuner(candidates)
    winners = []
    for number, spec in enumerate(specs):
        pair = make_pair(spec, seed + number)
        tuner(*pair)
        winners.append(tuner.winner(*pair))
        if winners[-1] != slow:
            break
    return winners


def draw_spec(rng: torch.Generator) -> dict:
    """A hidden pair of shapes; no size is 1, so that every layout has strides of its own."""
    channels = draw_int(rng, 2, 4)
    height, width = draw_int(rng, 9, 30), draw_int(rng, 9, 30)
    return {"x": (2, channels, height, width + (height == width)), "weight": (draw_int(rng, 2, 5), channels, 3, 5)}


@TUNER.check("gives the result, also on the call that tunes")
def _(session, rng):
    seed, specs = draw_int(rng, 0, 10**6), [draw_spec(rng)] * 2 + [draw_spec(rng)]
    result = session.probe(run_tuner, specs, seed)
    for number, (spec, came) in enumerate(zip(specs, result["outputs"], strict=True)):
        on = f"call {number + 1}: x {spec['x']}, weight {spec['weight']}"
        if not isinstance(came, torch.Tensor):
            kind = "first-call-gives-nothing" if number != 1 else None
            raise Failed(kind, expected="a tensor", came=came, on=on)
        expect_close(came, convolve(*make_pair(spec, seed + number)), on)


@TUNER.check("tries every candidate once a key, then runs the winner alone")
def _(session, rng):
    seed, spec = draw_int(rng, 0, 10**6), draw_spec(rng)
    first, second = session.probe(run_two_tuners, spec, seed)
    expect(set(second) == set(NAMES) or set(first) != set(NAMES), "cache-shared", expected=NAMES, came=second)
    for same_objects in (True, False):
        result = session.probe(run_tuner, [spec] * 4, seed, same_objects)
        called, tunings = result["called"], result["tunings"]
        on = f"four calls with {'one pair of tensors' if same_objects else 'new tensors of one key'}: candidates run"
        expect(set(called[0]) == set(NAMES), "does-not-try-all", expected=NAMES, came=called[0], on=on)
        again = [len(names) for names in called[1:]]
        if again != [1, 1, 1]:
            kind = "tunes-every-call" if same_objects else "holds-identity"
            if tunings[-1] <= 1:
                kind = "runs-all-every-time"
            raise Failed(kind, expected=[1, 1, 1], came=again, on=on)
        wanted = [0, 1, 1, 1, 1]
        expect(tunings == wanted, "counts-wrong", expected=wanted, came=tunings, on=on)
        run, named = [names[0] for names in called[1:]], result["winners"][1:]
        expect(run == named, "winner-not-run", expected=named, came=run, on=on)


@TUNER.check("picks the faster one")
def _(session, rng):
    seed = draw_int(rng, 0, 10**6)
    for slow in NAMES:
        specs = [draw_spec(rng) for _ in range(3)]
        winners = session.probe(run_slow_candidate, slow, specs, seed)
        on = f"candidates {', '.join(NAMES)}, of which {slow} is far slower"
        expect(winners[-1] in NAMES, message="winner() gives a candidate's name.", came=winners[-1])
        expect(winners[-1] != slow, "slowest-wins", came=winners, on=on)


def variations(spec: dict) -> list[tuple[str, str, dict]]:
    """What a key has to tell apart from a spec: (misconception, words, varied spec)."""
    n, c, h, w = spec["x"]
    out, _, kh, kw = spec["weight"]
    double = torch.float64
    return [
        ("key-misses-shape", "x with height and width swapped", spec | {"x": (n, c, w, h)}),
        ("key-misses-shape", "x with another batch size", spec | {"x": (n + 1, c, h, w)}),
        ("weight-left-out", "a weight with height and width swapped", spec | {"weight": (out, c, kw, kh)}),
        ("key-misses-layout", "x in channels_last", spec | {"x_layout": "channels_last"}),
        ("key-misses-layout", "x cut out of wider rows", spec | {"x_layout": "cut"}),
        ("weight-left-out", "a weight in channels_last", spec | {"weight_layout": "channels_last"}),
        ("key-misses-dtype", "both in float64", spec | {"x_dtype": double, "weight_dtype": double}),
        ("weight-left-out", "a weight in float64", spec | {"weight_dtype": double}),
        ("key-misses-dtype", "x in float64", spec | {"x_dtype": double}),
        ("key-misses-device", "both on the device `meta`", spec | {"device": "meta"}),
    ]


@TUNER.check("tells shapes, layouts, dtypes and devices apart, of x and of weight, and forgets none")
def _(session, rng):
    seed, spec = draw_int(rng, 0, 10**6), draw_spec(rng)
    cases = variations(spec)
    for kind, words, varied in cases:
        result = session.probe(run_tuner, [spec, varied, spec], seed)
        tunings, tried = result["tunings"], set(result["called"][1])
        on = f"x {spec['x']} and weight {spec['weight']}, then {words}, then the first again: tunings"
        distinct = tunings[2] == 2 and tried == set(NAMES)
        expect(distinct, kind, expected=[0, 1, 2, 2], came=tunings, on=on)
        expect(tunings[3] == 2, "remembers-only-last", expected=[0, 1, 2, 2], came=tunings, on=on)
    result = session.probe(run_tuner, [spec, *(varied for _, _, varied in cases)] * 2, seed)
    wanted = 1 + len(cases)
    expect(result["end"] == wanted, "remembers-only-last", expected=wanted, came=result["end"], on="all of them, twice")


# 2.4


CONVOLUTIONS = [
    {"kernel": (3, 3), "padding": (1, 1)},
    {"kernel": (3, 3), "padding": (0, 0)},
    {"kernel": (5, 3), "padding": (1, 0)},
    {"kernel": (1, 3), "padding": (2, 2)},
]


def make_conv(layer: dict, seed: int) -> nn.Conv2d:
    torch.manual_seed(seed)
    return nn.Conv2d(2, 3, layer["kernel"], padding=layer["padding"])


def make_images(sizes: list, seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(2, height, width, generator=generator) + 1 for height, width in sizes]


class SizesSeen(TorchFunctionMode):
    """Note height and width of every image that reaches a convolution, as a module or as a function."""

    def __init__(self):
        super().__init__()
        self.sizes: set[tuple[int, int]] = set()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") in ("conv2d", "convolution"):
            self.sizes.add(tuple((args[0] if args else kwargs["input"]).shape[-2:]))
        return func(*args, **kwargs)


def run_buckets(learner, layer: dict, sizes: list, buckets: list[int], seed: int) -> dict:
    """Run the learner's `run_bucketed`; report outputs and the image sizes that reached the convolution."""
    conv, images = make_conv(layer, seed), make_images(sizes, seed)
    given, settings = list(images), (conv.padding, conv.stride, state_hash(conv))
    with SizesSeen() as seen:
        outputs = learner.run_bucketed(conv, images, list(buckets))
    fresh = make_images(sizes, seed)
    kept = len(images) == len(given) and all(
        image is old and torch.equal(image, new) for image, old, new in zip(images, given, fresh, strict=True)
    )
    kept = kept and settings == (conv.padding, conv.stride, state_hash(conv))
    if isinstance(outputs, (list, tuple)):
        outputs = [out.detach().clone() if isinstance(out, torch.Tensor) else repr(out) for out in outputs]
    else:
        outputs = type(outputs).__name__
    return {"outputs": outputs, "sizes": sorted(seen.sizes), "kept": kept}


def alone(layer: dict, sizes: list, seed: int) -> list[torch.Tensor]:
    """What the convolution gives for each image alone."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        conv = make_conv(layer, seed)
        return [conv(image) for image in make_images(sizes, seed)]


def _draw_sizes(rng: torch.Generator, buckets: list[int]) -> list[tuple[int, int]]:
    """Six image sizes: some wide, some tall, one that fills a bucket, in no order."""
    small, large = buckets[0], buckets[-1]
    sides = [draw_int(rng, 7, small - 2), draw_int(rng, small + 1, large - 1), draw_int(rng, 7, small - 2)]
    return [
        (sides[0], sides[1]),
        (sides[2], sides[2] + 1),
        (large, sides[1] - 2),
        (small, small),
        (sides[1] + 1, sides[2]),
        (sides[0] + 1, sides[0] - 1),
    ]


def _run_case(session, rng, layer: dict) -> tuple[dict, list, list, list[int], str]:
    buckets = [draw_int(rng, 12, 14), draw_int(rng, 20, 24)]
    sizes, seed = _draw_sizes(rng, buckets), draw_int(rng, 0, 10**6)
    on = f"kernel {layer['kernel']}, padding {layer['padding']}, buckets {buckets}, images {sizes}"
    expected = alone(layer, sizes, seed)
    try:
        result = session.probe(run_buckets, layer, sizes, buckets, seed)
    except LearnerError as error:
        if error.reason == "raised" and error.is_a("RuntimeError"):
            raise Failed("axes-confused", came=f"RuntimeError: {error.text}", on=on) from None
        if error.reason == "raised" and error.is_a("ValueError"):
            raise Failed("exact-fit-refused", came=f"ValueError: {error.text}", on=on) from None
        raise
    outputs = result["outputs"]
    expect(isinstance(outputs, list), message="A list of tensors is expected.", came=outputs, on=on)
    count = len(outputs)
    expect(count == len(sizes), message="One output an image is expected.", expected=len(sizes), came=count, on=on)
    return result, expected, sizes, buckets, on


def _judge_outputs(outputs: list, expected: list, sizes: list, buckets: list[int], layer: dict, on: str) -> None:
    """Raise the misconception that explains the first output that is wrong."""
    shapes = [tuple(out.shape) if isinstance(out, torch.Tensor) else out for out in outputs]
    wanted = [tuple(out.shape) for out in expected]
    if shapes != wanted:
        first = next(i for i, (came, good) in enumerate(zip(shapes, wanted, strict=True)) if came != good)
        details = {"expected": wanted[first], "came": shapes[first], "on": f"{on}; image {first}"}
        if sorted(map(str, shapes)) == sorted(map(str, wanted)):
            raise Failed("order-lost", **details)
        if 0 in shapes[first] and set(sizes[first]) & set(buckets):
            raise Failed("cut-to-nothing", **details)
        grown = [k - 1 - 2 * p for k, p in zip(layer["kernel"], layer["padding"], strict=True)]
        if shapes[first] in [(3, b - grown[0], b - grown[1]) for b in buckets]:
            raise Failed("not-cropped", **details)
        height, width = sizes[first]
        fitting = [b for b in buckets if b >= max(height, width)]
        if shapes[first] in [(3, min(height, b - grown[0]), min(width, b - grown[1])) for b in fitting]:
            raise Failed("cropped-to-image-size", **details)
        raise Failed("axes-confused" if grown[0] != grown[1] or len(shapes[first]) == 3 else None, **details)
    pairs = list(zip(outputs, expected, strict=True))
    wrong = [n for n, (came, good) in enumerate(pairs) if not torch.allclose(came, good, rtol=1e-4, atol=1e-4)]
    if not wrong:
        return
    kind = "image-not-kept"
    if all(_differs_at_the_end_only(*pairs[number], layer["kernel"]) for number in wrong):
        kind = "padding-not-zero"
    elif any(_is_shifted(*pairs[number]) for number in wrong):
        kind = "padded-around"
    came, good = pairs[wrong[0]]
    raise Failed(kind, expected=good, came=came, on=f"{on}; image {wrong[0]}")


def _differs_at_the_end_only(came: torch.Tensor, good: torch.Tensor, kernel: tuple[int, int]) -> bool:
    """True if the outputs agree but for the last rows and columns, which see what lies beyond the image."""
    height, width = good.shape[1] - kernel[0], good.shape[2] - kernel[1]
    return torch.allclose(came[:, :height, :width], good[:, :height, :width], rtol=1e-4, atol=1e-4)


def _is_shifted(came: torch.Tensor, good: torch.Tensor) -> bool:
    """True if a patch of the right output stands somewhere else in what came."""
    row, column = good.shape[1] // 3, good.shape[2] // 3
    patch = good[:, row : row + 2, column : column + 2]
    windows = came.unfold(1, 2, 1).unfold(2, 2, 1)
    close = (windows - patch[:, None, None]).abs().amax(dim=(0, 3, 4)) < 1e-3
    close[row, column] = False
    return bool(close.any())


@BUCKETED.check("gives what the convolution gives for each image alone")
def _(session, rng):
    for layer in CONVOLUTIONS[:2]:
        result, expected, sizes, buckets, on = _run_case(session, rng, layer)
        _judge_outputs(result["outputs"], expected, sizes, buckets, layer, on)


@BUCKETED.check("also where kernel and padding differ between height and width")
def _(session, rng):
    for layer in CONVOLUTIONS[2:]:
        result, expected, sizes, buckets, on = _run_case(session, rng, layer)
        try:
            _judge_outputs(result["outputs"], expected, sizes, buckets, layer, on)
        except Failed as failure:
            failure.misconception = "axes-confused"
            raise


@BUCKETED.check("lets no more sizes reach the convolution than there are buckets")
def _(session, rng):
    result, _, _, buckets, on = _run_case(session, rng, CONVOLUTIONS[0])
    came = len(result["sizes"])
    expect(came > 0, message="No image reached `conv`, as a module or through F.conv2d.", on=on)
    at_most = f"at most {len(buckets)} distinct sizes"
    expect(came <= len(buckets), "every-size-reaches-conv", expected=at_most, came=result["sizes"], on=on)
    expect(result["kept"], "caller-changed", on=on)


@BUCKETED.check("refuses an image that fits no bucket, and names its larger side")
def _(session, rng):
    buckets = [12, 20]
    side = draw_int(rng, 21, 40)
    for large in ((side, 9), (9, side), (side - 1 if side > 21 else 9, side)):
        sizes, seed = [(8, 8), large], draw_int(rng, 0, 10**6)
        on = f"buckets {buckets}, images {sizes}"
        arguments = (CONVOLUTIONS[0], sizes, buckets, seed)
        expect_raises(
            lambda arguments=arguments: session.probe(run_buckets, *arguments),
            "ValueError",
            on,
            "too-large-not-told",
            mentions=[str(side)],
        )


# 2.5


def _draw_seconds(rng: torch.Generator, low: float, high: float) -> float:
    return round(low + (high - low) * float(torch.rand((), generator=rng)), 6)


def _call(session, times: tuple[float, float, float], kind: str | None) -> object:
    on = "tuning_s={:g}, default_s={:g}, tuned_s={:g}".format(*times)
    try:
        return session.call("break_even_calls", *times), on
    except LearnerError as error:
        if kind and error.reason == "raised":
            raise Failed(kind, expected=math.inf, came=f"{error.kinds[0]}: {error.text}", on=on) from None
        raise


@BREAK_EVEN.check("gives the exact number of calls where tuning pays")
def _(session, rng):
    cases = [(_draw_seconds(rng, 1, 4), _draw_seconds(rng, 0.02, 0.4), _draw_seconds(rng, 0.001, 0.01))]
    cases += [(1.5, 0.5, 0.3), (_draw_seconds(rng, 0.01, 0.1), 3.0, 0.0), (0.0, 0.5, 0.25)]
    for times in cases:
        tuning, default, tuned = times
        came, on = _call(session, times, None)
        expected = tuning / (default - tuned)
        number = float(came) if isinstance(came, (int, float, torch.Tensor)) else None
        kind = None
        if number is not None and tuning:
            if tuned and math.isclose(number, tuning / (default / tuned), rel_tol=1e-5):
                kind = "ratio-not-difference"
            elif any(part and math.isclose(number, tuning / part, rel_tol=1e-5) for part in (default, tuned) if tuned):
                kind = "divides-by-default"
            elif number in (math.floor(expected), math.ceil(expected), math.floor(expected) + 1):
                kind = "rounded"
        expect_close(came, expected, on, kind)


@BREAK_EVEN.check("gives inf where tuning never pays")
def _(session, rng):
    default = _draw_seconds(rng, 0.1, 0.5)
    slower = (_draw_seconds(rng, 1, 4), default, default + _draw_seconds(rng, 0.01, 0.5))
    for kind, times in (("negative-break-even", slower), ("divides-by-zero", (1.0, default, default))):
        came, on = _call(session, times, kind)
        expect_close(came, math.inf, on, kind)


@BREAK_EVEN.check("refuses negative times and NaN")
def _(session, rng):
    good = [_draw_seconds(rng, 1, 4), _draw_seconds(rng, 0.2, 0.4), _draw_seconds(rng, 0.01, 0.1)]
    for kind, bad in (("negative-accepted", -0.5), ("nan-slips-through", math.nan)):
        for place in range(3):
            times = [*good[:place], bad, *good[place + 1 :]]
            on = "tuning_s={:g}, default_s={:g}, tuned_s={:g}".format(*times)
            expect_raises(lambda times=times: session.call("break_even_calls", *times), "ValueError", on, kind)
