"""Right and wrong answers to the exercises of chapter 2."""

from . import Wrong

_LINES = """
LINES = ["torch.backends.cudnn.benchmark = True", "torch.backends.cudnn.benchmrk = True",
         "torch.cudnn.benchmark = True", "model.cudnn_benchmark = True",
         "torch.backends.cudnn.flags(enabled=True, benchmark=True)", "torch.backends.cudnn.deterministic = 1"]
"""


def _classified(*words: str) -> str:
    return f"{_LINES}\ndef classify_settings():\n    return dict(zip(LINES, {list(words)!r}))\n"


_KEYED = """
import time

class Autotuner:
    def __init__(self, candidates):
        self.candidates, self.tunings, self.known = candidates, 0, {{}}

    def key(self, x, weight):
        return {key}

    def winner(self, x, weight):
        return self.known[self.key(x, weight)]

    def __call__(self, x, weight):
        key = self.key(x, weight)
        if key not in self.known:
            self.tunings += 1
            best = math.inf
            for name, run in self.candidates.items():
                run(x, weight)
                start = time.perf_counter()
                run(x, weight)
                took = time.perf_counter() - start
                if took < best:
                    best, self.known[key] = took, name
        return self.candidates[self.known[key]](x, weight)
"""


def _keyed(key: str) -> str:
    """An autotuner that is right but for its key."""
    return _KEYED.format(key=key)


_WHOLE_KEY = "(x.shape, x.stride(), x.dtype, x.device, weight.shape, weight.stride(), weight.dtype, weight.device)"

ALTERNATIVES = {
    "2.1": {
        "a dict from a zip": _classified("effective", "ignored", "error", "ignored", "ignored", "error"),
        "grouped by word, the lines executed on paper": _LINES
        + """
def classify_settings():
    words = {line: "ignored" for line in LINES}
    words[LINES[0]] = "effective"
    words.update({LINES[i]: "error" for i in (2, 5)})
    return words
""",
    },
    "2.2": {
        "a class": """
class autotuned:
    def __enter__(self):
        self.before = torch.backends.cudnn.benchmark
        torch.backends.cudnn.benchmark = True
        return self

    def __exit__(self, *error):
        torch.backends.cudnn.benchmark = self.before
        return False
""",
        "flags() with every argument named": """
from contextlib import contextmanager

@contextmanager
def autotuned():
    now = torch.backends.cudnn
    with torch.backends.cudnn.flags(enabled=now.enabled, benchmark=True, deterministic=now.deterministic,
                                    allow_tf32=now.allow_tf32):
        yield
""",
        "the flags() manager itself, handed out": """
def autotuned():
    cudnn = torch.backends.cudnn
    return cudnn.flags(cudnn.enabled, True, 10, cudnn.deterministic, cudnn.allow_tf32)
""",
        "an exit stack": """
import contextlib

def autotuned():
    stack = contextlib.ExitStack()
    stack.callback(setattr, torch.backends.cudnn, "benchmark", torch.backends.cudnn.benchmark)
    torch.backends.cudnn.benchmark = True
    return stack
""",
    },
    "2.3": {
        "best of three, winners kept as functions": """
import time

def describe(t):
    return (tuple(t.shape), t.stride(), str(t.dtype), str(t.device))

class Autotuner:
    def __init__(self, candidates):
        self.names = list(candidates)
        self.functions = [candidates[n] for n in self.names]
        self.cache = {}

    @property
    def tunings(self):
        return len(self.cache)

    def __call__(self, x, weight):
        key = describe(x) + describe(weight)
        if key in self.cache:
            return self.functions[self.cache[key]](x, weight)
        best = []
        for run in self.functions:
            times = []
            for _ in range(3):
                t0 = time.perf_counter_ns()
                out = run(x, weight)
                times.append(time.perf_counter_ns() - t0)
            best.append(min(times))
        self.cache[key] = best.index(min(best))
        return out

    def winner(self, x, weight):
        return self.names[self.cache[describe(x) + describe(weight)]]
""",
        "layout told by contiguity, a timer from the library": """
from torch.utils.benchmark import Timer

class Autotuner:
    def __init__(self, candidates):
        self.candidates = candidates
        self.tunings = 0
        self.cache = defaultdict(dict)

    def layout(self, t):
        return t.is_contiguous(), t.is_contiguous(memory_format=torch.channels_last)

    def winner(self, x, weight):
        key = [(t.dtype, t.device, t.size(), self.layout(t)) for t in (x, weight)]
        inner = self.cache[key[0]]
        if key[1] not in inner:
            self.tunings += 1
            timed = [(Timer("f(x, w)", globals={"f": f, "x": x, "w": weight}).timeit(2).median, name)
                     for name, f in self.candidates.items()]
            inner[key[1]] = sorted(timed)[0][1]
        return inner[key[1]]

    def __call__(self, x, weight):
        f = self.candidates[self.winner(x, weight)]
        return f(x, weight)
""",
        "processor time, a key of text": """
import time

class Autotuner:
    def __init__(self, candidates):
        self.candidates = candidates
        self.best = {}
        self.tunings = 0

    def winner(self, x, weight):
        key = "; ".join(f"{t.dtype} {t.device} {list(t.shape)} {t.stride()}" for t in [x, weight])
        if key in self.best:
            return self.best[key]
        def cost(name):
            start = time.thread_time()
            self.candidates[name](x, weight)
            self.candidates[name](x, weight)
            return time.thread_time() - start
        self.tunings += 1
        self.best[key] = min(self.candidates, key=cost)
        return self.best[key]

    def __call__(self, x, weight):
        return self.candidates[self.winner(x, weight)](x, weight)
""",
        "a plain key of everything": _keyed(_WHOLE_KEY),
    },
    "2.4": {
        "a batch a bucket, sizes from the formula": """
def run_bucketed(conv, images, buckets):
    groups = {b: [] for b in buckets}
    for i, image in enumerate(images):
        larger = max(image.shape[1:])
        fitting = [b for b in buckets if b >= larger]
        if not fitting:
            raise ValueError(f"no bucket for a side of {larger}")
        groups[fitting[0]].append(i)
    outputs = [None] * len(images)
    for b, indices in groups.items():
        if not indices:
            continue
        batch = torch.zeros(len(indices), images[0].shape[0], b, b)
        for row, i in enumerate(indices):
            h, w = images[i].shape[1:]
            batch[row, :, :h, :w] = images[i]
        out = conv(batch)
        for row, i in enumerate(indices):
            h, w = images[i].shape[1:]
            rows = h + 2 * conv.padding[0] - conv.kernel_size[0] + 1
            columns = w + 2 * conv.padding[1] - conv.kernel_size[1] + 1
            outputs[i] = out[row, :, :rows, :columns]
    return outputs
""",
        "always the largest bucket": """
def run_bucketed(conv, images, buckets):
    side = max(buckets)
    found = []
    for image in images:
        c, h, w = image.shape
        if max(h, w) > side:
            raise ValueError("too large: " + str(max(h, w)))
        canvas = image.new_zeros(c, side, side)
        canvas[:, :h, :w] = image
        out = conv(canvas)
        found.append(out.narrow(1, 0, out.size(1) - side + h).narrow(2, 0, out.size(2) - side + w).clone())
    return found
""",
        "padding on the left and above, the functional convolution, bisect": """
import bisect

def run_bucketed(conv, images, buckets):
    result = []
    for image in images:
        h, w = image.shape[-2], image.shape[-1]
        place = bisect.bisect_left(buckets, max(h, w))
        if place == len(buckets):
            raise ValueError(f"{max(h, w)} > {buckets[-1]}")
        b = buckets[place]
        padded = nn.ZeroPad2d((b - w, 0, b - h, 0))(image)[None]
        out = F.conv2d(padded, conv.weight, conv.bias, padding=conv.padding)
        result.append(out[0, :, b - h:, b - w:])
    return result
""",
    },
    "2.5": {
        "solved with an exception": """
def break_even_calls(tuning_s, default_s, tuned_s):
    times = (tuning_s, default_s, tuned_s)
    if any(math.isnan(t) or t < 0 for t in times):
        raise ValueError(f"bad times: {times}")
    try:
        calls = tuning_s / (default_s - tuned_s)
    except ZeroDivisionError:
        return float("inf")
    return calls if default_s > tuned_s else float("inf")
""",
        "in numpy": """
def break_even_calls(tuning_s, default_s, tuned_s):
    times = np.array([tuning_s, default_s, tuned_s], dtype=float)
    if not (times >= 0).all():
        raise ValueError("times in seconds must not be negative or NaN")
    if tuned_s >= default_s:
        return math.inf
    return float(times[0] / (times[1] - times[2]))
""",
    },
}

WRONG = {
    "2.1": [
        Wrong("typo-is-noticed", _classified("effective", "error", "error", "ignored", "ignored", "error")),
        Wrong("typo-still-works", _classified("effective", "effective", "error", "ignored", "ignored", "error")),
        Wrong("wrong-path-accepted", _classified("effective", "ignored", "ignored", "ignored", "ignored", "error")),
        Wrong(
            "module-attribute",
            _classified("effective", "ignored", "error", "effective", "ignored", "error"),
            "article A, claim 2.1",
        ),
        Wrong("module-attribute", _classified("effective", "ignored", "error", "error", "ignored", "error")),
        Wrong("context-not-entered", _classified("effective", "ignored", "error", "ignored", "effective", "error")),
        Wrong("int-for-bool", _classified("effective", "ignored", "error", "ignored", "ignored", "effective")),
    ],
    "2.2": [
        Wrong(
            "cudnn-switched-off",
            """
def autotuned():
    return torch.backends.cudnn.flags(benchmark=True)
""",
            "pytorch#77467",
        ),
        Wrong(
            "enabled-forced-on",
            """
def autotuned():
    return torch.backends.cudnn.flags(enabled=True, benchmark=True)
""",
            "the workaround given in pytorch#77467",
        ),
        Wrong(
            "other-flag-changed",
            """
def autotuned():
    return torch.backends.cudnn.flags(enabled=torch.backends.cudnn.enabled, benchmark=True)
""",
        ),
        Wrong(
            "other-flag-changed",
            """
import contextlib

@contextlib.contextmanager
def autotuned():
    cudnn = torch.backends.cudnn
    before = cudnn.benchmark, cudnn.deterministic
    cudnn.benchmark, cudnn.deterministic = True, False
    try:
        yield
    finally:
        cudnn.benchmark, cudnn.deterministic = before
""",
        ),
        Wrong(
            "benchmark-not-on",
            """
import contextlib

@contextlib.contextmanager
def autotuned():
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmrk = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
""",
        ),
        Wrong(
            "not-a-context-manager",
            """
def autotuned():
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    yield
    torch.backends.cudnn.benchmark = before
""",
        ),
        Wrong(
            "not-restored",
            """
import contextlib

@contextlib.contextmanager
def autotuned():
    torch.backends.cudnn.benchmark = True
    yield
""",
        ),
        Wrong(
            "switched-off-afterwards",
            """
class autotuned:
    def __enter__(self):
        torch.backends.cudnn.benchmark = True

    def __exit__(self, *error):
        torch.backends.cudnn.benchmark = False
""",
        ),
        Wrong(
            "inner-block-ends-it",
            """
_before = torch.backends.cudnn.benchmark

class autotuned:
    depth = 0
    def __enter__(self):
        if autotuned.depth == 0:
            autotuned.before = torch.backends.cudnn.benchmark
        autotuned.depth += 1
        torch.backends.cudnn.benchmark = True

    def __exit__(self, *error):
        autotuned.depth -= 1
        torch.backends.cudnn.benchmark = autotuned.before
""",
        ),
        Wrong(
            "nested-not-restored",
            """
class autotuned:
    def __enter__(self):
        autotuned.before = torch.backends.cudnn.benchmark
        torch.backends.cudnn.benchmark = True

    def __exit__(self, *error):
        torch.backends.cudnn.benchmark = autotuned.before
""",
        ),
        Wrong(
            "lost-on-error",
            """
import contextlib

@contextlib.contextmanager
def autotuned():
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    yield
    torch.backends.cudnn.benchmark = before
""",
        ),
        Wrong(
            "swallows-errors",
            """
class autotuned:
    def __enter__(self):
        self.before = torch.backends.cudnn.benchmark
        torch.backends.cudnn.benchmark = True
        return self

    def __exit__(self, *error):
        torch.backends.cudnn.benchmark = self.before
        return self
""",
        ),
    ],
    "2.3": [
        Wrong(
            "first-call-gives-nothing",
            """
import time

class Autotuner:
    def __init__(self, candidates):
        self.candidates, self.tunings, self.known = candidates, 0, {}

    def key(self, x, weight):
        return tuple((t.shape, t.stride(), t.dtype, t.device) for t in (x, weight))

    def winner(self, x, weight):
        return self.known[self.key(x, weight)]

    def __call__(self, x, weight):
        key = self.key(x, weight)
        if key in self.known:
            return self.candidates[self.known[key]](x, weight)
        self.tunings += 1
        took = {}
        for name, run in self.candidates.items():
            start = time.perf_counter()
            run(x, weight)
            took[name] = time.perf_counter() - start
        self.known[key] = min(took, key=took.get)
""",
        ),
        Wrong("key-misses-layout", _keyed("(x.shape, weight.shape, x.dtype, x.device)"), "the shapes alone as key"),
        Wrong("key-misses-layout", _keyed("(x.shape, weight.shape)")),
        Wrong(
            "key-misses-dtype",
            _keyed("(x.shape, x.stride(), weight.shape, weight.stride())"),
        ),
        Wrong(
            "key-misses-device",
            _keyed("(x.shape, x.stride(), x.dtype, weight.shape, weight.stride(), weight.dtype)"),
        ),
        Wrong("weight-left-out", _keyed("(x.shape, x.stride(), x.dtype, x.device)")),
        Wrong("weight-left-out", _keyed("(x.shape, x.stride(), x.dtype, x.device, weight.shape)")),
        Wrong(
            "weight-left-out",
            _keyed("(x.shape, x.stride(), x.dtype, x.device, weight.shape, weight.stride())"),
        ),
        Wrong("key-misses-shape", _keyed("(x.numel(), x.dtype, x.device, weight.shape, weight.stride())")),
        Wrong(
            "key-misses-shape",
            _keyed("(x.shape[1:], x.stride(), x.dtype, x.device, weight.shape, weight.stride(), weight.dtype)"),
            "the batch size left out of the key",
        ),
        Wrong("holds-identity", _keyed("(x, weight)"), "tensors as dict keys hash by identity"),
        Wrong("holds-identity", _keyed("(x.data_ptr(), x.shape, weight.shape)")),
        Wrong(
            "tunes-every-call",
            """
import time

class Autotuner:
    def __init__(self, candidates):
        self.candidates, self.tunings = candidates, 0

    def winner(self, x, weight):
        self.tunings += 1
        took = {}
        for name, run in self.candidates.items():
            start = time.perf_counter()
            run(x, weight)
            took[name] = time.perf_counter() - start
        return min(took, key=took.get)

    def __call__(self, x, weight):
        return self.candidates[self.winner(x, weight)](x, weight)
""",
            "pytorch#2759: a tuning at every call is what varying sizes give",
        ),
        Wrong(
            "runs-all-every-time",
            """
class Autotuner:
    def __init__(self, candidates):
        self.candidates, self.known = candidates, {}

    @property
    def tunings(self):
        return len(self.known)

    def winner(self, x, weight):
        return self.known[x.shape, x.stride(), x.dtype, x.device, weight.shape, weight.stride(), weight.dtype]

    def __call__(self, x, weight):
        import time
        took, outs = {}, {}
        for name, run in self.candidates.items():
            start = time.perf_counter()
            outs[name] = run(x, weight)
            took[name] = time.perf_counter() - start
        key = (x.shape, x.stride(), x.dtype, x.device, weight.shape, weight.stride(), weight.dtype)
        best = self.known.setdefault(key, min(took, key=took.get))
        return outs[best]
""",
        ),
        Wrong(
            "does-not-try-all",
            """
class Autotuner:
    def __init__(self, candidates):
        self.candidates, self.known = candidates, {}

    @property
    def tunings(self):
        return len(self.known)

    def winner(self, x, weight):
        key = (x.shape, x.stride(), x.dtype, weight.shape, weight.stride(), weight.dtype, x.device)
        return self.known.setdefault(key, "direct" if weight.shape[-1] < 7 else "unfolded")

    def __call__(self, x, weight):
        return self.candidates[self.winner(x, weight)](x, weight)
""",
        ),
        Wrong("slowest-wins", _keyed(_WHOLE_KEY).replace("took < best", "-took < best")),
        Wrong("counts-wrong", _keyed(_WHOLE_KEY).replace("self.tunings += 1", "self.tunings += len(self.candidates)")),
        Wrong(
            "remembers-only-last",
            _keyed(_WHOLE_KEY).replace(
                "            self.tunings += 1", "            self.known.clear(); self.tunings += 1"
            ),
        ),
        Wrong(
            "cache-shared",
            _keyed(_WHOLE_KEY)
            .replace(
                "self.candidates, self.tunings, self.known = candidates, 0, {}",
                "self.candidates, self.tunings = candidates, 0",
            )
            .replace("    def __init__", "    known = {}\n\n    def __init__"),
        ),
        Wrong(
            "winner-not-run",
            _keyed(_WHOLE_KEY).replace(
                "return self.candidates[self.known[key]](x, weight)",
                "return next(f for n, f in self.candidates.items() if n != self.known[key])(x, weight)",
            ),
        ),
    ],
    "2.4": [
        Wrong(
            "caller-changed",
            """
def run_bucketed(conv, images, buckets):
    down, across = conv.padding
    conv.padding = (0, 0)
    outputs = []
    for image in images:
        height, width = image.shape[1:]
        side = next((b for b in buckets if b >= max(height, width)), None)
        if side is None:
            raise ValueError(f"a side of {max(height, width)} fits no bucket")
        out = conv(F.pad(image, (across, side - width + across, down, side - height + down)))
        rows = height + 2 * down - conv.kernel_size[0] + 1
        outputs.append(out[:, :rows, : width + 2 * across - conv.kernel_size[1] + 1])
    return outputs
""",
        ),
        Wrong(
            "every-size-reaches-conv",
            """
def run_bucketed(conv, images, buckets):
    for image in images:
        if max(image.shape[1:]) > buckets[-1]:
            raise ValueError(f"side {max(image.shape[1:])}")
    return [conv(image) for image in images]
""",
            "pytorch#2759",
        ),
        Wrong(
            "not-cropped",
            """
def run_bucketed(conv, images, buckets):
    outputs = []
    for image in images:
        c, h, w = image.shape
        b = [b for b in buckets if b >= max(h, w)]
        if not b:
            raise ValueError(f"side {max(h, w)}")
        outputs.append(conv(F.pad(image, (0, b[0] - w, 0, b[0] - h))))
    return outputs
""",
        ),
        Wrong(
            "cropped-to-image-size",
            """
def run_bucketed(conv, images, buckets):
    outputs = []
    for image in images:
        c, h, w = image.shape
        b = [b for b in buckets if b >= max(h, w)]
        if not b:
            raise ValueError(f"side {max(h, w)}")
        outputs.append(conv(F.pad(image, (0, b[0] - w, 0, b[0] - h)))[:, :h, :w])
    return outputs
""",
        ),
        Wrong(
            "axes-confused",
            """
def run_bucketed(conv, images, buckets):
    outputs = []
    for image in images:
        c, h, w = image.shape
        b = [b for b in buckets if b >= max(h, w)]
        if not b:
            raise ValueError(f"side {max(h, w)}")
        out = conv(F.pad(image, (0, b[0] - h, 0, b[0] - w)))
        outputs.append(out[:, :out.shape[1] - b[0] + h, :out.shape[2] - b[0] + w])
    return outputs
""",
        ),
        Wrong(
            "axes-confused",
            """
def run_bucketed(conv, images, buckets):
    outputs = []
    k, p = conv.kernel_size[0], conv.padding[0]
    for image in images:
        c, h, w = image.shape
        b = [b for b in buckets if b >= max(h, w)]
        if not b:
            raise ValueError(f"side {max(h, w)}")
        out = conv(F.pad(image, (0, b[0] - w, 0, b[0] - h)))
        outputs.append(out[:, :h + 2 * p - k + 1, :w + 2 * p - k + 1])
    return outputs
""",
        ),
        Wrong(
            "padded-around",
            """
def run_bucketed(conv, images, buckets):
    outputs = []
    for image in images:
        c, h, w = image.shape
        b = [b for b in buckets if b >= max(h, w)]
        if not b:
            raise ValueError(f"side {max(h, w)}")
        dh, dw = b[0] - h, b[0] - w
        out = conv(F.pad(image, (dw // 2, dw - dw // 2, dh // 2, dh - dh // 2)))
        outputs.append(out[:, :out.shape[1] - dh, :out.shape[2] - dw])
    return outputs
""",
        ),
        Wrong(
            "padding-not-zero",
            """
def run_bucketed(conv, images, buckets):
    outputs = []
    for image in images:
        c, h, w = image.shape
        b = [b for b in buckets if b >= max(h, w)]
        if not b:
            raise ValueError(f"side {max(h, w)}")
        dh, dw = b[0] - h, b[0] - w
        out = conv(F.pad(image, (0, dw, 0, dh), mode="replicate"))
        outputs.append(out[:, :out.shape[1] - dh, :out.shape[2] - dw])
    return outputs
""",
        ),
        Wrong(
            "image-not-kept",
            """
def run_bucketed(conv, images, buckets):
    outputs = []
    for image in images:
        c, h, w = image.shape
        b = [b for b in buckets if b >= max(h, w)]
        if not b:
            raise ValueError(f"side {max(h, w)}")
        resized = F.interpolate(image[None], size=(b[0], b[0]), mode="bilinear")[0]
        out = conv(resized)
        rows, columns = out.shape[1] - b[0] + h, out.shape[2] - b[0] + w
        outputs.append(F.interpolate(out[None], size=(rows, columns), mode="bilinear")[0])
    return outputs
""",
        ),
        Wrong(
            "order-lost",
            """
def run_bucketed(conv, images, buckets):
    outputs = []
    if any(max(i.shape[1:]) > buckets[-1] for i in images):
        raise ValueError(f"side {max(max(i.shape[1:]) for i in images)}")
    low = 0
    for b in buckets:
        for image in images:
            c, h, w = image.shape
            if low < max(h, w) <= b:
                out = conv(F.pad(image, (0, b - w, 0, b - h)))
                outputs.append(out[:, :out.shape[1] - b + h, :out.shape[2] - b + w])
        low = b
    return outputs
""",
        ),
        Wrong(
            "too-large-not-told",
            """
def run_bucketed(conv, images, buckets):
    outputs = []
    for image in images:
        c, h, w = image.shape
        b = next(b for b in buckets if b >= max(h, w))
        out = conv(F.pad(image, (0, b - w, 0, b - h)))
        outputs.append(out[:, :out.shape[1] - b + h, :out.shape[2] - b + w])
    return outputs
""",
        ),
        Wrong(
            "too-large-not-told",
            """
def run_bucketed(conv, images, buckets):
    outputs = []
    for image in images:
        c, h, w = image.shape
        b = min((b for b in buckets if b >= max(h, w)), default=None)
        if b is None:
            raise ValueError(f"image of height {h} is too large")
        out = conv(F.pad(image, (0, b - w, 0, b - h)))
        outputs.append(out[:, :out.shape[1] - b + h, :out.shape[2] - b + w])
    return outputs
""",
        ),
        Wrong(
            "axes-confused",
            """
def run_bucketed(conv, images, buckets):
    outputs = []
    for image in images:
        c, h, w = image.shape
        b = min((b for b in buckets if b >= h), default=None)
        if b is None:
            raise ValueError(f"side {max(h, w)}")
        out = conv(F.pad(image, (0, b - w, 0, b - h)))
        outputs.append(out[:, : out.shape[1] - b + h, : out.shape[2] - b + w])
    return outputs
""",
            "the width forgotten: F.pad with a negative number cuts in silence",
        ),
        Wrong(
            "cut-to-nothing",
            """
def run_bucketed(conv, images, buckets):
    outputs = []
    for image in images:
        h, w = image.shape[1:]
        b = next((b for b in buckets if b >= max(h, w)), None)
        if b is None:
            raise ValueError(f"side {max(h, w)}")
        outputs.append(conv(F.pad(image, (0, b - w, 0, b - h)))[:, : h - b, : w - b])
    return outputs
""",
        ),
        Wrong(
            "exact-fit-refused",
            """
def run_bucketed(conv, images, buckets):
    outputs = []
    for image in images:
        h, w = image.shape[1:]
        b = next((b for b in buckets if b > max(h, w)), None)
        if b is None:
            raise ValueError(f"side {max(h, w)}")
        out = conv(F.pad(image, (0, b - w, 0, b - h)))
        outputs.append(out[:, : out.shape[1] - b + h, : out.shape[2] - b + w])
    return outputs
""",
        ),
    ],
    "2.5": [
        Wrong(
            "divides-by-default",
            """
def break_even_calls(tuning_s, default_s, tuned_s):
    return tuning_s / default_s
""",
        ),
        Wrong(
            "ratio-not-difference",
            """
def break_even_calls(tuning_s, default_s, tuned_s):
    if tuned_s == 0:
        return 0.0
    return tuning_s / (default_s / tuned_s)
""",
        ),
        Wrong(
            "rounded",
            """
def break_even_calls(tuning_s, default_s, tuned_s):
    if not min(tuning_s, default_s, tuned_s) >= 0:
        raise ValueError("negative")
    if tuned_s >= default_s:
        return math.inf
    return math.ceil(tuning_s / (default_s - tuned_s))
""",
        ),
        Wrong(
            "negative-break-even",
            """
def break_even_calls(tuning_s, default_s, tuned_s):
    if min(tuning_s, default_s, tuned_s) < 0:
        raise ValueError("negative")
    if default_s == tuned_s:
        return math.inf
    return tuning_s / (default_s - tuned_s)
""",
        ),
        Wrong(
            "divides-by-zero",
            """
def break_even_calls(tuning_s, default_s, tuned_s):
    calls = tuning_s / (default_s - tuned_s)
    return calls if calls >= 0 else math.inf
""",
        ),
        Wrong(
            "negative-accepted",
            """
def break_even_calls(tuning_s, default_s, tuned_s):
    return tuning_s / (default_s - tuned_s) if default_s > tuned_s else math.inf
""",
        ),
        Wrong(
            "nan-slips-through",
            """
def break_even_calls(tuning_s, default_s, tuned_s):
    if tuning_s < 0 or default_s < 0 or tuned_s < 0:
        raise ValueError("times must not be negative")
    if tuned_s >= default_s:
        return math.inf
    return tuning_s / (default_s - tuned_s)
""",
        ),
    ],
}
