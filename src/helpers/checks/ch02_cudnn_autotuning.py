"""Checks of chapter 2: where the backend flags live, and what a tuner has to remember."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..evidence import state_hash
from ..exercise.contract import ANYTHING, Case, Contract, Draw, Fact, Where
from ..exercise.declare import load_exercises
from ..exercise.expect import expect
from ..exercise.values import same
from ..measure import state

CLASSIFY, AUTOTUNED, TUNER, BUCKETED, BREAK_EVEN = load_exercises(__file__)


# 2.1 classify_settings

TYPO = "torch.backends.cudnn.benchmrk = True"
LINES = {  # and what a wrong word tells
    TYPO: {"typo-is-noticed": "error", "typo-still-works": "effective"},
    "torch.cudnn.benchmark = True": "wrong-path-accepted",
    "model.cudnn_benchmark = True": "module-attribute",
    "torch.backends.cudnn.flags(enabled=True, benchmark=True)": "context-not-entered",
    "torch.backends.cudnn.deterministic = 1": "int-for-bool",
    "torch.backends.cudnn.benchmark = True": None,
}
WORDS = ("effective", "ignored", "error")


def read_words(came: object) -> dict[str, str]:
    """A dict with one of the words for every line."""
    expect(isinstance(came, dict), message="A dict from each line to a word is expected.", came=came)
    missing = [line for line in LINES if line not in came]
    expect(not missing, message=f"Lines are missing: {'; '.join(missing)}.")
    for line in LINES:
        expect(came[line] in WORDS, message=f"Use one of {', '.join(WORDS)}.", came=came[line], on=line)
    return came


def what_it_does(line: str) -> str:
    """Execute a line."""
    with state.guard():
        torch._C._set_cudnn_benchmark(False)
        torch._C._set_cudnn_deterministic(False)
        names, before = {"torch": torch, "model": nn.Conv2d(3, 8, 3)}, state.snapshot()
        try:
            exec(line, names)
            return "effective" if state.leaks(before) else "ignored"
        except (AttributeError, RuntimeError, TypeError):
            return "error"
        finally:
            vars(torch.backends.cudnn).pop("benchmrk", None)


settings = Contract(CLASSIFY, read=read_words)
settings.facts(
    "says of each line what it does",
    lambda draw: Case(""),
    *(
        Fact(line, partial(what_it_does, line), told, f"The word for `{line}` is wrong.", expected="")  # not shown
        for line, told in LINES.items()
    ),
)


# 2.2 autotuned


def run_autotuned(learner, start: dict[str, bool], block: str) -> dict:
    """Use the learner's `autotuned` from given cuDNN flags; report whether benchmark was on, and which flags changed.

    Args:
        block: "plain", "raising" (a KeyError) or "nested" (with a second block inside).
    """
    report = {"error": ""}
    with state.guard():
        for name, value in start.items():
            getattr(torch._C, f"_set_cudnn_{name}")(value)
        before = state.snapshot()
        try:
            with learner.autotuned():
                report["inside"] = torch._C._get_cudnn_benchmark()
                report["others"] = "; ".join(leak for leak in state.leaks(before) if "cudnn.benchmark" not in leak)
                if block == "raising":
                    raise KeyError("from the block")
                if block == "nested":
                    with learner.autotuned():
                        pass
                    report["after inner"] = torch._C._get_cudnn_benchmark()
        except KeyError:
            if block != "raising":
                raise
            report["error"] = "KeyError"
        report["after"] = "; ".join(state.leaks(before))
    return report


def blocks(*benchmarks: bool, block: str = "plain", count: int = 4) -> Callable[[Draw], list[Case]]:
    """Blocks from the usual flags, with cuDNN off, and from either with every other flag away from its default."""
    starts = [
        {"enabled": enabled, "benchmark": benchmark, "deterministic": odd, "allow_tf32": not odd}
        for benchmark in benchmarks
        for odd, enabled in [(False, True), (False, False), (True, True), (True, False)][:count]
    ]
    return lambda draw: [Case(f"a {block} block, cudnn flags at the start: {start}", start, block) for start in starts]


def kept(which: str, part: str, told: dict[str, str]) -> Fact:
    """The report names no changed flag; each belief is told by words in what it names."""
    beliefs = {name: Where(lambda came, words=words: words in came) for name, words in told.items()}
    return Fact(part, "", beliefs, expected=f"{which} as it was before the block")


autotuned = Contract(AUTOTUNED, ask=run_autotuned)
autotuned.facts(
    "switches benchmark on",
    blocks(False, count=2),
    Fact("inside", True, "benchmark-not-on"),
    errors={"context manager|__enter__|__exit__": "not-a-context-manager"},
)
OTHERS_CHANGED = {
    "cudnn-switched-off": "cudnn.enabled was True",
    "enabled-forced-on": "cudnn.enabled was False",
    "other-flag-changed": "",
}
autotuned.facts(
    "leaves cuDNN enabled as it was, and every other flag too",
    blocks(False),
    kept("every other flag", "others", OTHERS_CHANGED),
)
autotuned.facts(
    "puts benchmark back",
    blocks(False, True),
    kept(
        "every flag", "after", {"not-restored": "benchmark was False", "switched-off-afterwards": "benchmark was True"}
    ),
)
autotuned.facts(
    "puts it back when blocks are nested",
    blocks(False, True, block="nested", count=1),
    Fact("after inner", True, "inner-block-ends-it"),
    kept("every flag", "after", {"nested-not-restored": "benchmark"}),
)
autotuned.facts(
    "puts it back when the block raises, and lets the error through",
    blocks(False, True, block="raising", count=1),
    kept("every flag", "after", {"lost-on-error": "benchmark"}),
    Fact("error", "KeyError", "swallows-errors", came="nothing"),
)


# 2.3 Autotuner

NAMES = ["direct", "other", "unfolded"]


def make_pair(spec: tuple[dict, dict], seed: int) -> list[Tensor]:
    """An image batch and a weight, each as its part of the spec says."""
    generator = torch.Generator().manual_seed(seed)

    def make(shape, dtype=torch.float32, layout="", device="cpu"):
        values = torch.randn(shape, generator=generator).to(dtype)
        if layout == "channels_last":
            values = values.contiguous(memory_format=torch.channels_last)
        elif layout == "cut":
            values = F.pad(values, (0, 2))[..., :-2]
        return values.to(device)

    return [make(**part) for part in spec]


def convolve(x: Tensor, weight: Tensor) -> Tensor:
    """The result of every candidate, whatever the dtypes; on the meta device, which has no numbers, x itself."""
    return x if x.device.type == "meta" else F.conv2d(x.double(), weight.double()).to(x.dtype)


def make_candidates(ran: list[str], slow: str = "") -> dict[str, Callable]:
    """Candidates that note when they ran; the slow one spends a while on every clock that a tuner may read."""

    def run(name: str, x: Tensor, weight: Tensor) -> Tensor:
        ran.append(name)
        wall, cpu = time.perf_counter() + 0.004, time.thread_time() + 0.004
        while name == slow and (time.perf_counter() < wall or time.thread_time() < cpu):
            pass
        return convolve(x, weight)

    return {name: lambda x, weight, name=name: run(name, x, weight) for name in NAMES}


def run_tuner(learner, specs: list, seed: int, same_objects: bool = False, slow: str = "") -> dict:
    """Give a tuner one pair after another, of which another tuner has met the first; report what each call did.

    Args:
        same_objects: equal specs give the very same tensors, not new ones with other numbers.
        slow: a candidate that is far slower than the others.
    """
    pairs = [make_pair(spec, seed + n) for n, spec in enumerate(specs)]  # all kept: no id may come back by chance
    report = {"another ran": [], "ran": [], "winners": []}
    learner.Autotuner(make_candidates(report["another ran"]))(*pairs[0])
    ran: list[str] = []
    tuner = learner.Autotuner(make_candidates(ran, slow))
    report["tunings"] = [tuner.tunings]
    for n, spec in enumerate(specs):
        pair = pairs[specs.index(spec) if same_objects else n]
        ran.clear()
        output = tuner(*pair)
        report["ran"].append(list(ran))
        report["winners"].append(tuner.winner(*pair))
        report["tunings"].append(tuner.tunings)
        usable = isinstance(output, Tensor) and output.device.type == "cpu"
        report[f"output {n}"] = output if usable else type(output).__name__
    return report


def read_tuner(came: dict, specs: list, *rest: object) -> dict:
    """The report, with what the candidates that ran tell of new keys and of known ones."""
    new = [names for n, names in enumerate(came["ran"]) if specs[n] not in specs[:n]]
    known = [n for n, spec in enumerate(specs) if spec in specs[:n]]
    return came | {
        "tried by another": sorted({*came["another ran"]}),
        "tried": [name for name in NAMES if all(name in names for names in new)],
        "known key": {"candidates run": [len(came["ran"][n]) for n in known], "tunings": came["tunings"][-1]},
        "winner not run": [
            f"{', '.join(came['ran'][n])}, where winner() gives {came['winners'][n]}"
            for n in known
            if came["ran"][n][:1] != [came["winners"][n]]
        ],
    }


def draw_spec(draw: Draw) -> tuple[dict, dict]:
    """A hidden pair of shapes; no size is 1, so that every layout has strides of its own."""
    channels, height, width = draw(2, 4), draw(9, 30), draw(9, 30)
    return {"shape": (2, channels, height, width + (height == width))}, {"shape": (draw(2, 5), channels, 3, 5)}


def first_calls(draw: Draw) -> Case:
    """A key, the same again, and another one."""
    spec, seed = draw_spec(draw), draw.seed()
    specs = [spec, spec, draw_spec(draw)]
    nothing = {"first-call-gives-nothing": Where(lambda came: isinstance(came, str))}
    facts = [
        Fact(f"output {n}", convolve(*make_pair(spec, seed + n)), told, f"This is call {n + 1}.")
        for n, (spec, told) in enumerate(zip(specs, (nothing, None, nothing), strict=True))
    ]
    return Case(f"calls with {specs}", specs, seed, facts=facts)


def one_key(draw: Draw) -> list[Case]:
    specs, seed = [draw_spec(draw)] * 4, draw.seed()
    return [
        Case("four calls with a pair that another Autotuner has met", specs, seed, True),
        Case("four calls with new tensors of one key", specs, seed, False),
    ]


def one_slow(draw: Draw) -> Iterator[Case]:
    """Three keys each: a candidate can look slow once because the machine was busy."""
    for slow in NAMES:
        specs = [draw_spec(draw) for _ in range(3)]
        told = {"slowest-wins": [slow] * 3}
        good = Where(lambda came, all_slow=[slow] * 3: set(came) <= set(NAMES) and came != all_slow)
        fact = Fact("winners", good, told, expected="the name of a faster candidate")
        on = f"candidates {', '.join(NAMES)}, of which {slow} is far slower"
        yield Case(on, specs, draw.seed(), False, slow, facts=[fact])


def other_keys(draw: Draw) -> Iterator[Case]:
    """A spec, then a variation that its key has to tell apart, then the first again; at last all of them, twice."""
    seed, (x, weight) = draw.seed(), draw_spec(draw)
    (n, c, h, w), (out, _, kh, kw) = x["shape"], weight["shape"]
    channels_last, double, meta = {"layout": "channels_last"}, {"dtype": torch.float64}, {"device": "meta"}
    variations = [
        ("key-misses-shape", "x with height and width swapped", {"shape": (n, c, w, h)}, {}),
        ("key-misses-shape", "x with another batch size", {"shape": (n + 1, c, h, w)}, {}),
        ("weight-left-out", "a weight with height and width swapped", {}, {"shape": (out, c, kw, kh)}),
        ("key-misses-layout", "x in channels_last", channels_last, {}),
        ("key-misses-layout", "x cut out of wider rows", {"layout": "cut"}, {}),
        ("weight-left-out", "a weight in channels_last", {}, channels_last),
        ("key-misses-dtype", "both in float64", double, double),
        ("weight-left-out", "a weight in float64", {}, double),
        ("key-misses-dtype", "x in float64", double, {}),
        ("key-misses-device", "both on the device `meta`", meta, meta),
    ]
    specs = [(x, weight)]
    for kind, words, *changes in variations:
        varied = (x | changes[0], weight | changes[1])
        specs.append(varied)
        told = {kind: Where(lambda came: came[2] != 2), "remembers-only-last": ANYTHING}
        facts = Fact("tunings", [0, 1, 2, 2], told), Fact("tried", NAMES, kind)
        on = f"x {x['shape']} and weight {weight['shape']}, then {words}, then the first again"
        yield Case(on, [specs[0], varied, specs[0]], seed, facts=facts)
    each_once = Where(lambda came: came[-1] == len(specs))
    fact = Fact("tunings", each_once, "remembers-only-last", expected=f"{len(specs)} tunings in the end")
    yield Case("all of them, twice", specs * 2, seed, facts=[fact])


autotuner = Contract(TUNER, ask=run_tuner, read=read_tuner)
autotuner.facts("gives the result, also on the call that tunes", first_calls)
autotuner.facts(
    "tries every candidate once a key, then runs the winner alone",
    one_key,
    Fact("tried by another", NAMES, "does-not-try-all"),
    Fact("tried", NAMES, "cache-shared"),
    Fact(
        "known key",
        Where(lambda came: came["candidates run"] == [1, 1, 1]),
        {
            "runs-all-every-time": Where(lambda came: came["tunings"] <= 1),
            "tunes-every-call": lambda specs, seed, same_objects: Where(lambda came: same_objects),
            "holds-identity": ANYTHING,
        },
        expected="one candidate run at each later call",
    ),
    Fact("tunings", [0, 1, 1, 1, 1], "counts-wrong"),
    Fact("winner not run", [], "winner-not-run"),
)
autotuner.facts("picks the faster one", one_slow)
autotuner.facts("tells shapes, layouts, dtypes and devices apart, of x and of weight, and forgets none", other_keys)


# 2.4 run_bucketed

ALIKE = [((3, 3), (1, 1)), ((3, 3), (0, 0))]  # kernel and padding, alike for height and width
UNLIKE = [((5, 3), (1, 0)), ((1, 3), (2, 2))]


def make_images(layer: tuple, sizes: list, seed: int) -> tuple[nn.Conv2d, list[Tensor]]:
    """A convolution with this kernel and padding, and images of these sizes."""
    torch.manual_seed(seed)
    return nn.Conv2d(2, 3, layer[0], padding=layer[1]), [torch.randn(2, *size) + 1 for size in sizes]


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


def run_buckets(learner, layer: tuple, sizes: list, buckets: list[int], seed: int) -> dict:
    """Run the learner's `run_bucketed`; report outputs, the sizes that reached the convolution, and what changed."""
    conv, images = make_images(layer, sizes, seed)
    given = list(images)

    def look() -> dict[str, object]:
        return {
            "the list of images": list(map(id, images)),
            "an image": [image.tolist() for image in given],
            "conv": (conv.padding, conv.stride, state_hash(conv)),
        }

    before = look()
    with SizesSeen() as seen:
        outputs = learner.run_bucketed(conv, images, list(buckets))
    changed = [name for name, value in look().items() if value != before[name]]
    usable = isinstance(outputs, (list, tuple))
    return {"outputs": outputs if usable else repr(outputs), "sizes": sorted(seen.sizes), "changed": changed}


def read_outputs(came: dict, layer: tuple, sizes: list, *rest: object) -> dict:
    """The report with each output by itself."""
    outputs = came["outputs"]
    good = not isinstance(outputs, str) and len(outputs) == len(sizes)
    expect(good, message=f"A list of {len(sizes)} tensors is expected, one output an image.", came=outputs)
    return came | {f"image {n}": output for n, output in enumerate(outputs)}


def beliefs(good: Tensor, others: list, layer: tuple, size: tuple, buckets: list[int]) -> dict[str, Where]:
    """What a wrong output of an image tells, from its shape and then from its values."""
    rows, columns = (k - 1 - 2 * p for k, p in zip(*layer, strict=True))  # an output has so many less
    squares = {(3, b - rows, b - columns) for b in buckets} - {good.shape}
    fitting = [b for b in buckets if b >= max(size)]
    like_image = {(3, min(size[0], b - rows), min(size[1], b - columns)) for b in fitting} - {good.shape}
    bottom, right = good.shape[1] - layer[0][0], good.shape[2] - layer[0][1]  # beyond, the image's end may be seen
    return {
        "order-lost": Where(lambda came: any(same(came, other, 1e-4, 1e-4) for other in others)),
        "cut-to-nothing": Where(lambda came: came.numel() == 0 and set(size) & set(buckets)),
        "not-cropped": Where(lambda came: came.shape in squares),
        "cropped-to-image-size": Where(lambda came: came.shape in like_image),
        "axes-confused": Where(lambda came: came.dim() == 3 and came.shape != good.shape),
        "padding-not-zero": Where(lambda came: same(came[:, :bottom, :right], good[:, :bottom, :right], 1e-4, 1e-4)),
        "padded-around": Where(lambda came: is_shifted(came, good)),
        "image-not-kept": Where(lambda came: came.shape == good.shape),
    }


def is_shifted(came: Tensor, good: Tensor) -> bool:
    """True if a patch of the right output stands somewhere else in what came."""
    row, column = good.shape[1] // 3, good.shape[2] // 3
    patch = good[:, row : row + 2, column : column + 2]
    windows = came.unfold(1, 2, 1).unfold(2, 2, 1)
    close = (windows - patch[:, None, None]).abs().amax(dim=(0, 3, 4)) < 1e-3
    close[row, column] = False
    return bool(close.any())


def many_sizes(draw: Draw, layer: tuple, told: str | None = None) -> Case:
    """Images of many sizes in no order: some wide, some tall, some that fill a bucket.

    The first nearly fills its bucket: there a shift leaves most of it in sight. A wrong output tells `told`, if given.
    """
    small, large = buckets = [draw(12, 14), draw(20, 24)]
    short, side, long = draw(7, small - 2), draw(7, small - 2), draw(small + 1, large - 1)
    sizes = [(large - 2, large - 3), (short, long), (side, side + 1), (large, long - 2)]
    sizes += [(small, small), (long + 1, side), (short + 1, short - 1)]
    seed = draw.seed()
    conv, images = make_images(layer, sizes, seed)
    outputs, facts = [conv(image).detach() for image in images], []
    for n, (good, size) in enumerate(zip(outputs, sizes, strict=True)):
        kinds = told or beliefs(good, outputs[:n] + outputs[n + 1 :], layer, size, buckets)
        facts.append(Fact(f"image {n}", good, kinds, f"The output of image {n} is wrong."))
    on = f"kernel {layer[0]}, padding {layer[1]}, buckets {buckets}, images {sizes}"
    return Case(on, layer, sizes, buckets, seed, facts=facts)


def too_large(draw: Draw) -> Iterator[Case]:
    side, buckets = draw(21, 40), [12, 20]
    for size in ((side, 9), (9, side), (side - 1, side)):
        sizes = [(8, 8), size]
        on = f"buckets {buckets}, images {sizes}"
        yield Case(on, ALIKE[0], sizes, buckets, draw.seed(), mentions=[str(side)])


bucketed = Contract(
    BUCKETED,
    ask=run_buckets,
    read=read_outputs,
    errors={"RuntimeError": "axes-confused", "ValueError": "exact-fit-refused"},
    rtol=1e-4,
    atol=1e-4,
)
bucketed.facts(
    "gives what the convolution gives for each image alone", lambda draw: [many_sizes(draw, layer) for layer in ALIKE]
)
bucketed.facts(
    "also where kernel and padding differ between height and width",
    lambda draw: [many_sizes(draw, layer, "axes-confused") for layer in UNLIKE],
)
bucketed.facts(
    "lets no more sizes reach the convolution than there are buckets",
    lambda draw: many_sizes(draw, ALIKE[0]),
    Fact(
        "sizes",
        Where(lambda came: 1 <= len(came) <= 2),
        {"every-size-reaches-conv": Where(lambda came: len(came) > 2)},
        expected="one or two distinct sizes that reach `conv`, as a module or through F.conv2d",
    ),
    Fact("changed", [], "caller-changed", expected="nothing changed"),
)
bucketed.refuses("refuses an image that fits no bucket, and names its larger side", "too-large-not-told", too_large)


# 2.5 break_even_calls


def exact_calls(tuning: float, default: float, tuned: float) -> float:
    """The number of calls after which tuning has paid."""
    return tuning / (default - tuned) if default > tuned else math.inf


def times(*seconds: float, **rest: dict) -> Case:
    return Case("tuning_s={:g}, default_s={:g}, tuned_s={:g}".format(*seconds), *seconds, **rest)


def seconds(draw: Draw, low: float, high: float) -> float:
    """A drawn time, short enough to be shown whole."""
    return round(draw.real(low, high), 4)


def paying(draw: Draw) -> Iterator[Case]:
    yield times(1.5, 0.5, 0.3)
    yield times(seconds(draw, 1, 4), seconds(draw, 0.02, 0.4), seconds(draw, 0.001, 0.01))
    yield times(seconds(draw, 0.01, 0.1), 3.0, 0.0)
    yield times(0.0, 0.5, 0.25)


def never_paying(draw: Draw, misconception: str, slower_by: float) -> Case:
    """Where tuning never pays; there any other number and any error tell the same."""
    default = seconds(draw, 0.1, 0.5)
    return times(seconds(draw, 1, 4), default, default + slower_by, errors={"Exception": misconception})


def bad_times(draw: Draw, bad: float) -> Iterator[Case]:
    good = [seconds(draw, 1, 4), seconds(draw, 0.2, 0.4), seconds(draw, 0.01, 0.1)]
    for place in range(3):
        yield times(*good[:place], bad, *good[place + 1 :])


break_even = Contract(
    BREAK_EVEN,
    truth=exact_calls,
    told={
        "ratio-not-difference": lambda tuning, default, tuned: tuning / (default / tuned),
        "divides-by-default": lambda tuning, default, tuned: tuning / default,
        "divides-by-default/tuned": lambda tuning, default, tuned: tuning / tuned,
        "rounded/down": lambda *case: math.floor(exact_calls(*case)),
        "rounded/up": lambda *case: math.ceil(exact_calls(*case)),
    },
)
break_even.equals("gives the exact number of calls where tuning pays", paying)


break_even.equals(
    "gives inf where tuning never pays",
    lambda draw: [
        never_paying(draw, "negative-break-even", seconds(draw, 0.01, 0.5)),
        never_paying(draw, "divides-by-zero", 0.0),
    ],
    told={
        "divides-by-zero": lambda _, default, tuned: Where(lambda came: tuned == default and not came >= math.inf),
        "negative-break-even": Where(lambda came: not came >= math.inf),
    },
)
break_even.refuses("refuses negative times and NaN", "negative-accepted", lambda draw: bad_times(draw, -0.5))
break_even.refuses("refuses negative times and NaN", "nan-slips-through", lambda draw: bad_times(draw, math.nan))
