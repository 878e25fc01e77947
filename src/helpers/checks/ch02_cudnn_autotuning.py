"""Checks of chapter 2: where the backend flags live, and what a tuner has to remember."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

from ..evidence import state_hash
from ..exercise.contract import ANYTHING, Case, Contract, Draw, Fact, Where
from ..exercise.declare import load_exercises
from ..exercise.expect import expect
from ..exercise.values import same
from ..measure import state

CLASSIFY, AUTOTUNED, TUNER, BUCKETED, BREAK_EVEN = load_exercises(__file__)


# 2.1 classify_settings

TYPO, NO_MODULE, ON_MODEL, NOT_ENTERED, INT = (
    "torch.backends.cudnn.benchmrk = True",
    "torch.cudnn.benchmark = True",
    "model.cudnn_benchmark = True",
    "torch.backends.cudnn.flags(enabled=True, benchmark=True)",
    "torch.backends.cudnn.deterministic = 1",
)
LINES = (TYPO, NO_MODULE, ON_MODEL, NOT_ENTERED, INT, "torch.backends.cudnn.benchmark = True")
WORDS = ("effective", "ignored", "error")


def read_words(came: object) -> dict[str, str]:
    """A dict with one of the words for every line."""
    expect(isinstance(came, dict), message="A dict from each line to a word is expected.", came=came)
    missing = [line for line in LINES if line not in came]
    expect(not missing, message=f"Lines are missing: {'; '.join(missing)}.")
    for line in LINES:
        expect(came[line] in WORDS, message=f"Use one of {', '.join(WORDS)}.", came=came[line], on=line)
    return came


def what_lines_do() -> dict[str, Where]:
    """Execute each line; gives a `Where`, so that a wrong answer is not shown the right one."""
    truth = {}
    for line in LINES:
        with state.guard():
            torch._C._set_cudnn_benchmark(False)
            torch._C._set_cudnn_deterministic(False)
            names, before = {"torch": torch, "nn": nn, "model": nn.Conv2d(3, 8, 3)}, state.snapshot()
            try:
                exec(line, names)
                word = "effective" if state.leaks(before) else "ignored"
            except (AttributeError, RuntimeError, TypeError):
                word = "error"
            vars(torch.backends.cudnn).pop("benchmrk", None)
        truth[line] = Where(lambda came, word=word: came == word)
    return truth


settings = Contract(
    CLASSIFY,
    truth=what_lines_do,
    read=read_words,
    told={
        "typo-is-noticed": {TYPO: "error"},
        "typo-still-works": {TYPO: "effective"},
        "wrong-path-accepted": {NO_MODULE: ANYTHING},
        "module-attribute": {ON_MODEL: ANYTHING},
        "context-not-entered": {NOT_ENTERED: ANYTHING},
        "int-for-bool": {INT: ANYTHING},
    },
    message="The word for `{}` is wrong.",
)
settings.equals("says of each line what it does", lambda draw: Case(""))


# 2.2 autotuned


def run_autotuned(learner, start: dict, block: str) -> dict:
    """Use the learner's `autotuned` from given cuDNN flags; report what was on, and which flags changed, in words.

    Args:
        start: flag of torch.backends.cudnn -> bool.
        block: "plain", "raising" (a KeyError) or "nested" (with a second block inside).
    """

    def benchmark() -> str:
        return "benchmark is on" if torch._C._get_cudnn_benchmark() else "benchmark is off"

    report = dict.fromkeys(("manager", "inside", "others", "after inner", "after", "error"), "")
    with state.guard():
        for name, value in start.items():
            getattr(torch._C, f"_set_cudnn_{name}")(value)
        before = state.snapshot()
        manager = learner.autotuned()
        if not hasattr(type(manager), "__enter__") or not hasattr(type(manager), "__exit__"):
            return report | {"manager": type(manager).__name__}
        try:
            with manager:
                report["inside"] = benchmark()
                report["others"] = "; ".join(leak for leak in state.leaks(before) if "cudnn.benchmark" not in leak)
                if block == "raising":
                    raise KeyError("from the block")
                if block == "nested":
                    with learner.autotuned():
                        pass
                    report["after inner"] = benchmark()
        except KeyError:
            if block != "raising":
                raise
            report["error"] = "KeyError"
        report["after"] = "; ".join(state.leaks(before))
    return report


def blocks(draw: Draw, benchmark: bool, block: str = "plain") -> list[Case]:
    """A block from the usual flags, with cuDNN off, and with every other flag away from its default."""
    usual = {"enabled": True, "benchmark": benchmark, "deterministic": False, "allow_tf32": True}
    odd = usual | {"deterministic": True, "allow_tf32": False}
    cases = []
    for start in (usual, usual | {"enabled": False}, odd, odd | {"enabled": False})[: draw(3, 4)]:
        flags = ", ".join(f"{name}={value}" for name, value in start.items())
        cases.append(Case(f"a {block} block, cudnn flags at the start: {flags}", start, block))
    return cases


def off_and_on(block: str) -> Callable[[Draw], list[Case]]:
    """Blocks from the usual flags, with benchmark off and on before them."""
    return lambda draw: [blocks(draw, benchmark, block)[0] for benchmark in (False, True)]


def says(words: str) -> Where:
    return Where(lambda came: words in came)


def flags_back(told: dict[str, Where]) -> Fact:
    return Fact("after", "", told, expected="every flag as it was before the block")


autotuned = Contract(AUTOTUNED, ask=run_autotuned)
autotuned.facts(
    "switches benchmark on",
    lambda draw: blocks(draw, False)[:2],
    Fact("manager", "", "not-a-context-manager", expected="a context manager"),
    Fact("inside", "benchmark is on", "benchmark-not-on"),
)
OTHERS_CHANGED = {
    "cudnn-switched-off": says("cudnn.enabled was True"),
    "enabled-forced-on": says("cudnn.enabled was False"),
    "other-flag-changed": ANYTHING,
}
autotuned.facts(
    "leaves cuDNN enabled as it was, and every other flag too",
    lambda draw: blocks(draw, False),
    Fact("others", "", OTHERS_CHANGED, expected="every other flag as it was, also inside the block"),
)
autotuned.facts(
    "puts benchmark back",
    lambda draw: blocks(draw, False) + blocks(draw, True),
    flags_back({"not-restored": says("benchmark was False"), "switched-off-afterwards": says("benchmark was True")}),
)
autotuned.facts(
    "puts it back when blocks are nested",
    off_and_on("nested"),
    Fact("after inner", "benchmark is on", "inner-block-ends-it"),
    flags_back({"nested-not-restored": says("benchmark")}),
)
autotuned.facts(
    "puts it back when the block raises, and lets the error through",
    off_and_on("raising"),
    flags_back({"lost-on-error": says("benchmark")}),
    Fact("error", "KeyError", "swallows-errors", expected="the block's KeyError outside of it", came="nothing"),
)


# 2.3 Autotuner

NAMES = ["direct", "other", "unfolded"]


def make_pair(spec: dict, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """An image batch and a weight as a spec says: shapes, dtypes, layouts, device."""
    generator = torch.Generator().manual_seed(seed)

    def make(name: str) -> torch.Tensor:
        values = torch.randn(spec[name], generator=generator).to(spec.get(f"{name}_dtype", torch.float32))
        layout = spec.get(f"{name}_layout")
        if layout == "channels_last":
            values = values.contiguous(memory_format=torch.channels_last)
        elif layout == "cut":
            values = F.pad(values, (0, 2))[..., :-2]
        return values.to(spec.get("device", "cpu"))

    return make("x"), make("weight")


def convolve(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The result of every candidate, whatever the dtypes; on the meta device, which has no numbers, x itself."""
    return x if x.device.type == "meta" else F.conv2d(x.double(), weight.double()).to(x.dtype)


def make_candidates(slow: str = "") -> tuple[dict[str, Callable], list[str]]:
    """Candidates, and the names of those that ran; the slow one spends a while on every clock a tuner may read."""
    ran: list[str] = []

    def candidate(name: str) -> Callable:
        def run(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            ran.append(name)
            wall, cpu = time.perf_counter() + 0.004, time.thread_time() + 0.004
            while name == slow and (time.perf_counter() < wall or time.thread_time() < cpu):
                pass
            return convolve(x, weight)

        return run

    return {name: candidate(name) for name in NAMES}, ran


def run_tuner(learner, specs: list[dict], seed: int, same_objects: bool = False, slow: str = "") -> dict:
    """Give a tuner one pair after another, of which another tuner has met the first; report what they did.

    Args:
        same_objects: equal specs give the very same tensors, not new ones with other numbers.
        slow: a candidate that is far slower than the others; it ends with the first key that this one loses.
    """
    pairs = [make_pair(spec, seed + number) for number, spec in enumerate(specs)]  # kept: no id may come back by chance
    first_candidates, first_ran = make_candidates()
    learner.Autotuner(first_candidates)(*pairs[0])
    candidates, ran = make_candidates(slow)
    tuner = learner.Autotuner(dict(candidates))
    left_out, again, not_run, tunings, winners = set(), [], [], [tuner.tunings], []
    for number, spec in enumerate(specs):
        pair = pairs[specs.index(spec) if same_objects else number]
        ran.clear()
        output = tuner(*pair)
        names, winner = list(ran), tuner.winner(*pair)
        winners.append(winner)
        tunings.append(tuner.tunings)
        if spec not in specs[:number]:
            left_out |= set(NAMES) - set(names)
        else:
            again.append(len(names))
            if names[:1] != [winner]:
                not_run.append(f"{', '.join(names)}, where winner() gives {winner}")
        if slow and winner != slow:
            break
    return {
        "output": output if isinstance(output, torch.Tensor) and output.device.type == "cpu" else type(output).__name__,
        "left out by another": sorted(set(NAMES) - set(first_ran)),
        "left out": sorted(left_out),
        "known key": {"candidates run": again, "tunings": tunings[-1]},
        "winner not run": not_run,
        "tunings": tunings,
        "winners": winners,
    }


def draw_spec(draw: Draw) -> dict:
    """A hidden pair of shapes; no size is 1, so that every layout has strides of its own."""
    channels, height, width = draw(2, 4), draw(9, 30), draw(9, 30)
    return {"x": (2, channels, height, width + (height == width)), "weight": (draw(2, 5), channels, 3, 5)}


def first_calls(draw: Draw) -> Iterator[Case]:
    seed, spec, another = draw.seed(), draw_spec(draw), draw_spec(draw)
    for number, specs in enumerate(([spec], [spec, spec], [spec, spec, another]), 1):
        yield Case(f"call {number}: x {specs[-1]['x']}, weight {specs[-1]['weight']}", specs, seed)


def one_key(draw: Draw) -> list[Case]:
    specs, seed = [draw_spec(draw)] * 4, draw.seed()
    on = "four calls with a pair that another Autotuner has met", "four calls with new tensors of one key"
    return [Case(on[0], specs, seed, True), Case(on[1], specs, seed, False)]


def one_slow(draw: Draw) -> Iterator[Case]:
    """Up to three keys: a candidate can look slow once because the machine was busy."""
    for slow in NAMES:
        specs = [draw_spec(draw) for _ in range(3)]
        yield Case(f"candidates {', '.join(NAMES)}, of which {slow} is far slower", specs, draw.seed(), False, slow)


def other_keys(draw: Draw) -> Iterator[Case]:
    """A spec, then a variation that its key has to tell apart, then the first again; at last all of them, twice."""
    seed, spec, double = draw.seed(), draw_spec(draw), torch.float64
    (n, c, h, w), (out, _, kh, kw) = spec["x"], spec["weight"]
    variations = [
        ("key-misses-shape", "x with height and width swapped", {"x": (n, c, w, h)}),
        ("key-misses-shape", "x with another batch size", {"x": (n + 1, c, h, w)}),
        ("weight-left-out", "a weight with height and width swapped", {"weight": (out, c, kw, kh)}),
        ("key-misses-layout", "x in channels_last", {"x_layout": "channels_last"}),
        ("key-misses-layout", "x cut out of wider rows", {"x_layout": "cut"}),
        ("weight-left-out", "a weight in channels_last", {"weight_layout": "channels_last"}),
        ("key-misses-dtype", "both in float64", {"x_dtype": double, "weight_dtype": double}),
        ("weight-left-out", "a weight in float64", {"weight_dtype": double}),
        ("key-misses-dtype", "x in float64", {"x_dtype": double}),
        ("key-misses-device", "both on the device `meta`", {"device": "meta"}),
    ]
    for kind, words, change in variations:
        on = f"x {spec['x']} and weight {spec['weight']}, then {words}, then the first again"
        told = {kind: Where(lambda came: came[2] != 2), "remembers-only-last": ANYTHING}
        facts = Fact("tunings", [0, 1, 2, 2], told, expected="tunings [0, 1, 2, 2]"), tries_all("left out", kind)
        yield Case(on, [spec, spec | change, spec], seed, facts=facts)
    keys = [spec, *(spec | change for _, _, change in variations)]
    each_once = Where(lambda came: came[-1] == len(keys))
    fact = Fact("tunings", each_once, "remembers-only-last", expected=f"{len(keys)} tunings in the end")
    yield Case("all of them, twice", keys * 2, seed, facts=[fact])


def tries_all(part: str, told: str) -> Fact:
    return Fact(part, [], told, expected="no candidate left out on a new key")


autotuner = Contract(TUNER, ask=run_tuner)
autotuner.facts(
    "gives the result, also on the call that tunes",
    first_calls,
    Fact(
        "output",
        lambda specs, seed: convolve(*make_pair(specs[-1], seed + len(specs) - 1)),
        {"first-call-gives-nothing": lambda specs, seed: Where(lambda came: len(specs) != 2 and isinstance(came, str))},
    ),
)
autotuner.facts(
    "tries every candidate once a key, then runs the winner alone",
    one_key,
    tries_all("left out by another", "does-not-try-all"),
    tries_all("left out", "cache-shared"),
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
    Fact("winner not run", [], "winner-not-run", expected="the winner runs at each later call"),
)
autotuner.facts(
    "picks the faster one",
    one_slow,
    Fact(
        "winners",
        lambda specs, seed, same_objects, slow: Where(lambda came: came[-1] in NAMES and came[-1] != slow),
        {"slowest-wins": lambda specs, seed, same_objects, slow: [slow] * len(specs)},
        expected="the name of a faster candidate",
    ),
)
autotuner.facts("tells shapes, layouts, dtypes and devices apart, of x and of weight, and forgets none", other_keys)


# 2.4 run_bucketed

LAYERS = [((3, 3), (1, 1)), ((3, 3), (0, 0)), ((5, 3), (1, 0)), ((1, 3), (2, 2))]  # kernel and padding


def make_images(layer: tuple, sizes: list, seed: int) -> tuple[nn.Conv2d, list[torch.Tensor]]:
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
    given, copies = list(images), [image.clone() for image in images]
    settings = conv.padding, conv.stride, state_hash(conv)
    with SizesSeen() as seen:
        outputs = learner.run_bucketed(conv, images, list(buckets))
    changed = {
        "the list of images": list(map(id, images)) != list(map(id, given)),
        "an image": not all(map(torch.equal, given, copies)),
        "conv": settings != (conv.padding, conv.stride, state_hash(conv)),
    }
    return {
        "outputs": outputs if isinstance(outputs, (list, tuple)) else type(outputs).__name__,
        "sizes": sorted(seen.sizes),
        "changed": [name for name, differs in changed.items() if differs],
    }


def read_outputs(came: dict, layer: tuple, sizes: list, *rest: object) -> dict:
    """The report with each output by itself."""
    outputs = came["outputs"]
    good = isinstance(outputs, (list, tuple)) and len(outputs) == len(sizes)
    expect(good, message=f"A list of {len(sizes)} tensors is expected, one output an image.", came=outputs)
    return {**came, **{f"image {number}": output for number, output in enumerate(outputs)}}


def beliefs(good: torch.Tensor, others: list, layer: tuple, size: tuple, buckets: list[int]) -> dict[str, Where]:
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


def is_shifted(came: torch.Tensor, good: torch.Tensor) -> bool:
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
    seed, facts = draw.seed(), []
    conv, images = make_images(layer, sizes, seed)
    outputs = [conv(image).detach() for image in images]
    for number, (good, size) in enumerate(zip(outputs, sizes, strict=True)):
        others = outputs[:number] + outputs[number + 1 :]
        kinds = told or beliefs(good, others, layer, size, buckets)
        facts.append(Fact(f"image {number}", good, kinds, f"The output of image {number} is wrong."))
    on = f"kernel {layer[0]}, padding {layer[1]}, buckets {buckets}, images {sizes}"
    return Case(on, layer, sizes, buckets, seed, facts=facts)


def too_large(draw: Draw) -> Iterator[Case]:
    side, buckets = draw(21, 40), [12, 20]
    for size in ((side, 9), (9, side), (side - 1, side)):
        sizes = [(8, 8), size]
        on = f"buckets {buckets}, images {sizes}"
        yield Case(on, LAYERS[0], sizes, buckets, draw.seed(), mentions=[str(side)])


bucketed = Contract(
    BUCKETED,
    ask=run_buckets,
    read=read_outputs,
    errors={"RuntimeError": "axes-confused", "ValueError": "exact-fit-refused"},
    rtol=1e-4,
    atol=1e-4,
)
bucketed.facts(
    "gives what the convolution gives for each image alone",
    lambda draw: [many_sizes(draw, layer) for layer in LAYERS[:2]],
)
bucketed.facts(
    "also where kernel and padding differ between height and width",
    lambda draw: [many_sizes(draw, layer, "axes-confused") for layer in LAYERS[2:]],
)
bucketed.facts(
    "lets no more sizes reach the convolution than there are buckets",
    lambda draw: many_sizes(draw, LAYERS[0]),
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


def times(*seconds: float) -> Case:
    return Case("tuning_s={:g}, default_s={:g}, tuned_s={:g}".format(*seconds), *seconds)


def seconds(draw: Draw, low: float, high: float) -> float:
    """A drawn time, short enough to be shown whole."""
    return round(draw.real(low, high), 4)


def paying(draw: Draw) -> Iterator[Case]:
    yield times(1.5, 0.5, 0.3)
    yield times(seconds(draw, 1, 4), seconds(draw, 0.02, 0.4), seconds(draw, 0.001, 0.01))
    yield times(seconds(draw, 0.01, 0.1), 3.0, 0.0)
    yield times(0.0, 0.5, 0.25)


def never_paying(draw: Draw, slower_by: float) -> Case:
    default = seconds(draw, 0.1, 0.5)
    return times(seconds(draw, 1, 4), default, default + slower_by)


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


def never(misconception: str, cases: Callable[[Draw], Case]) -> None:
    """Where tuning never pays, any other number and any error tell the same."""
    not_inf = Where(lambda came: math.isnan(came) or came < math.inf)
    errors = {"Exception": misconception}
    break_even.equals("gives inf where tuning never pays", cases, told={misconception: not_inf}, errors=errors)


never("negative-break-even", lambda draw: never_paying(draw, seconds(draw, 0.01, 0.5)))
never("divides-by-zero", lambda draw: never_paying(draw, 0.0))
break_even.refuses("refuses negative times and NaN", "negative-accepted", lambda draw: bad_times(draw, -0.5))
break_even.refuses("refuses negative times and NaN", "nan-slips-through", lambda draw: bad_times(draw, math.nan))
