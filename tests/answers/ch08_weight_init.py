"""Right and wrong answers to the exercises of chapter 8."""

from . import Wrong

FLAGS = """
def uninitialised(make_module):
    D = torch.utils.deterministic
    was = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    fill, rng = D.fill_uninitialized_memory, torch.get_rng_state()
    D.fill_uninitialized_memory = True
    torch.use_deterministic_algorithms(True)
    try:
        m = make_module()
    finally:
        torch.use_deterministic_algorithms(was[0], warn_only=was[1])
        D.fill_uninitialized_memory = fill
        torch.set_rng_state(rng)
    tensors = {**dict(m.named_parameters()), **dict(m.named_buffers())}
    return [n for n, t in tensors.items() if marked(t)]
"""
MARKED = """
def marked(t):
    if t.dtype.is_floating_point:
        return torch.isnan(t).any().item()
    return (t == torch.iinfo(t.dtype).max).any().item()
"""

DENSE_INIT = """
class DenseLayer(nn.Module):
    def __init__(self, in_features, out_features, bias=True, device=None, dtype=None):
        super().__init__()
        kind = {"device": device, "dtype": dtype}
        b = in_features ** -0.5
        self.weight = nn.Parameter(torch.empty(out_features, in_features, **kind).uniform_(-b, b))
        self.bias = nn.Parameter(torch.empty(out_features, **kind).uniform_(-b, b)) if bias else None
"""
FORWARD = """
    def forward(self, x):
        return F.linear(x, self.weight, self.bias)
"""

DEEP_LOOP = """
def init_deep(model):
    for m in model.modules():
        if isinstance(m, nn.Linear):
            {draw}
            if m.bias is not None:
                m.bias.data.zero_()
"""
KERAS_LOOP = """
def keras_init(module):
    for m in module.modules():
        if isinstance(m, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)):
            w = m.weight
            {draw}
            if m.bias is not None:
                nn.init.zeros_(m.bias)
"""

CULPRIT = """
def culprit(run, seeds):
    def score(i, s):
        return sum(run(i, s, seed) for seed in seeds) / len(seeds)
    none, init, shapes, pair = score(False, False), score(True, False), score(False, True), score(True, True)
"""

ALTERNATIVES = {
    "8.1": {
        "two fills compared, no global flag": """
from torch.utils._python_dispatch import TorchDispatchMode

class Fill(TorchDispatchMode):
    def __init__(self, value):
        super().__init__()
        self.value = value

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if "empty" in func._schema.name:
            out.fill_(self.value)
        return out

def uninitialised(make_module):
    found = []
    for value in (3, 5):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            with Fill(value):
                module = make_module()
        found.append({**dict(module.named_parameters()), **dict(module.named_buffers())})
    first, second = found
    return [name for name in first if not torch.equal(first[name], second[name])]
""",
        "flags and random state by hand": MARKED + FLAGS,
        "a context manager, names collected by module": """
from contextlib import contextmanager

@contextmanager
def filled():
    mode = torch.get_deterministic_debug_mode()
    old = torch.utils.deterministic.fill_uninitialized_memory
    torch.set_deterministic_debug_mode("warn")
    torch.utils.deterministic.fill_uninitialized_memory = True
    state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)
        torch.set_deterministic_debug_mode(mode)
        torch.utils.deterministic.fill_uninitialized_memory = old

def uninitialised(make_module):
    with filled():
        net = make_module()
    names = []
    for prefix, part in net.named_modules():
        own = list(part.named_parameters(recurse=False)) + list(part.named_buffers(recurse=False))
        for name, t in own:
            v = t.detach().numpy() if t.dtype != torch.bfloat16 else t.detach().float().numpy()
            bad = np.isnan(v) if v.dtype.kind == "f" else v == np.iinfo(v.dtype).max
            if bad.any():
                names.append(f"{prefix}.{name}" if prefix else name)
    return sorted(names)
""",
    },
    "8.2": {
        "as the library's source reads": """
class DenseLayer(nn.Module):
    def __init__(self, in_features, out_features, bias=True, device=None, dtype=None):
        super().__init__()
        self.weight = nn.Parameter(torch.empty((out_features, in_features), device=device, dtype=dtype))
        if bias:
            self.bias = nn.Parameter(torch.empty(out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = nn.init._calculate_fan_in_and_fan_out(self.weight)
            bound = 1 / math.sqrt(fan_in)
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x):
        out = x @ self.weight.mT
        return out if self.bias is None else out + self.bias
""",
        "draws in place, bias as a plain None": DENSE_INIT + FORWARD,
        "a sum over products, parameters registered by name": """
class DenseLayer(nn.Module):
    def __init__(self, in_features, out_features, bias=True, device=None, dtype=None):
        super().__init__()
        limit = math.sqrt(1 / in_features)
        shapes = {"weight": (out_features, in_features), "bias": (out_features,)}
        for name, shape in shapes.items():
            if name == "bias" and not bias:
                self.register_parameter(name, None)
                continue
            t = torch.zeros(shape, device=device, dtype=dtype)
            t.uniform_(-limit, limit)
            self.register_parameter(name, nn.Parameter(t))

    def forward(self, x):
        y = torch.einsum("...i,oi->...o", x, self.weight)
        if self.bias is not None:
            y = y + self.bias
        return y
""",
    },
    "8.3": {
        "orthogonal, scaled by ReLU's gain": DEEP_LOOP.format(
            draw='nn.init.orthogonal_(m.weight, gain=nn.init.calculate_gain("relu"))'
        ),
        "by hand, through apply": """
def init_deep(model):
    @torch.no_grad()
    def one(m):
        if type(m) is nn.Linear:
            fan_in = m.weight.shape[1]
            m.weight.normal_(0, (2 / fan_in) ** 0.5)
            if m.bias is not None:
                m.bias.zero_()
    model.apply(one)
    return model
""",
        "uniform, with the last axis as fan": DEEP_LOOP.format(
            draw="""bound = math.sqrt(6 / m.in_features)
            m.weight.data.uniform_(-bound, bound)"""
        ),
    },
    "8.4": {
        "fans by hand": """
@torch.no_grad()
def keras_init(module):
    def one(part):
        if isinstance(part, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)):
            out_features, in_features = part.weight.shape[:2]
            field = part.weight[0, 0].numel()
            b = math.sqrt(6.0 / ((in_features + out_features) * field))
            part.weight.uniform_(-b, b)
            if part.bias is not None:
                part.bias.fill_(0)
    module.apply(one)
""",
        "its own recursion, values copied in": """
def keras_init(module):
    if type(module).__name__ in ("Linear", "Conv1d", "Conv2d", "Conv3d"):
        w = module.weight
        receptive = w[0][0].numel()
        scale = 1.0 / ((w.size(0) + w.size(1)) * receptive / 2)
        limit = math.sqrt(3 * scale)
        w.data.copy_((torch.rand_like(w) * 2 - 1) * limit)
        if module.bias is not None:
            module.bias.data.mul_(0)
    for child in module.children():
        keras_init(child)
""",
    },
    "8.5": {
        "means, a table of cells": CULPRIT
        + """
    repaired = [e < none / 2 for e in (init, shapes)]
    if all(repaired):
        return "both"
    if repaired[0]:
        return "init"
    if repaired[1]:
        return "shapes"
    return "both" if pair < none / 2 else "neither"
""",
        "medians of paired ratios": """
def culprit(run, seeds):
    seeds = list(seeds)[:5]
    base = [run(init=False, shapes=False, seed=s) for s in seeds]
    def helps(i, s):
        ratios = [run(init=i, shapes=s, seed=seed) / b for seed, b in zip(seeds, base)]
        return np.median(ratios) < 0.5
    alone = helps(True, False), helps(False, True)
    together = helps(True, True)
    return {(True, False): "init", (False, True): "shapes", (True, True): "both"}.get(
        alone, "both" if together else "neither")
""",
        "main effects on a log scale": """
def culprit(run, seeds):
    cells = {(i, s): np.log([run(i, s, seed) for seed in seeds]).mean() for i in (0, 1) for s in (0, 1)}
    init = (cells[0, 0] - cells[1, 0] + cells[0, 1] - cells[1, 1]) / 2
    shapes = (cells[0, 0] - cells[0, 1] + cells[1, 0] - cells[1, 1]) / 2
    guilty = [name for name, effect in (("init", init), ("shapes", shapes)) if effect > math.log(2)]
    return "both" if len(guilty) == 2 else guilty[0] if guilty else "neither"
""",
    },
}

WRONG = {
    "8.1": [
        Wrong(
            "relies-on-luck",
            """
def uninitialised(make_module):
    with torch.random.fork_rng(devices=[]):
        m = make_module()
    return [n for n, p in m.named_parameters() if not torch.isfinite(p).all() or p.abs().max() > 1e3]
""",
            "hopwise#271, STALE#16: NaN now and then",
        ),
        Wrong(
            "relies-on-luck",
            """
def uninitialised(make_module):
    models = []
    for _ in range(2):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            models.append(dict(make_module().named_parameters()))
    return [n for n in models[0] if not torch.equal(models[0][n], models[1][n])]
""",
            "CLIP#15: compare two builds",
        ),
        Wrong("wholly-only", MARKED.replace(".any()", ".all()") + FLAGS),
        Wrong(
            "buffers-forgotten",
            MARKED
            + FLAGS.replace("{**dict(m.named_parameters()), **dict(m.named_buffers())}", "dict(m.named_parameters())"),
            "facts: named_parameters",
        ),
        Wrong(
            "not-in-state-dict",
            MARKED + FLAGS.replace("{**dict(m.named_parameters()), **dict(m.named_buffers())}", "m.state_dict()"),
        ),
        Wrong("integers-forgotten", "def marked(t):\n    return t.isnan().any().item()\n" + FLAGS),
        Wrong("integers-forgotten", "def marked(t):\n    return bool((t != t).any())\n" + FLAGS),
        Wrong("random-state-moved", MARKED + FLAGS.replace("        torch.set_rng_state(rng)\n", "")),
        Wrong(
            "flag-left-changed",
            MARKED
            + FLAGS.replace(
                "torch.use_deterministic_algorithms(was[0], warn_only=was[1])",
                "torch.use_deterministic_algorithms(False)",
            ),
        ),
        Wrong("flag-left-changed", MARKED + FLAGS.replace(", warn_only=was[1]", "")),
        Wrong("fill-switched-off", MARKED + FLAGS.replace("    D.fill_uninitialized_memory = True\n", "")),
        Wrong(
            "flag-lost-on-error",
            MARKED
            + FLAGS.replace(
                "    try:\n        m = make_module()\n    finally:\n", "    m = make_module()\n    if True:\n"
            ),
        ),
        Wrong(
            "error-swallowed",
            MARKED + FLAGS.replace("    finally:\n", "    except Exception:\n        m = nn.Module()\n    if True:\n"),
        ),
        Wrong(
            "random-is-not-uninitialised",
            """
def uninitialised(make_module):
    with torch.random.fork_rng(devices=[]):
        first, second = make_module(), make_module()
    second = dict(second.named_parameters())
    found = [n for n, p in first.named_parameters() if not torch.equal(p, second[n])]
    return sorted({*found, "fresh"} if len(second) == 2 else {*found, "1.0.weight", "1.2.weight", "2.weight", "2.bias"})
""",
        ),
        Wrong(
            "reports-initialised",
            "def marked(t):\n    return t.numel() > 0 and bool((t != t).any() or t.flatten()[0] == 0)\n" + FLAGS,
        ),
        Wrong("names-not-dotted", MARKED + FLAGS.replace("[n for n", "[n.split('.')[-1] for n")),
    ],
    "8.2": [
        Wrong(
            "uninitialised",
            """
class DenseLayer(nn.Module):
    def __init__(self, in_features, out_features, bias=True, device=None, dtype=None):
        super().__init__()
        self.weight = nn.Parameter(torch.Tensor(out_features, in_features))
        self.bias = nn.Parameter(torch.Tensor(out_features))
"""
            + FORWARD,
            "hopwise#271, STALE#16, CLIP#15: bare Parameter(torch.Tensor(...))",
        ),
        Wrong(
            "kaiming-gain",
            DENSE_INIT.replace(
                ").uniform_(-b, b))\n        self.bias",
                "))\n        nn.init.kaiming_uniform_(self.weight)\n        self.bias",
            )
            + FORWARD,
            "pytorch#57109: why a = sqrt(5)",
        ),
        Wrong(
            "transposed",
            DENSE_INIT.replace("(out_features, in_features, **", "(in_features, out_features, **")
            + "\n    def forward(self, x):\n        return x @ self.weight + self.bias\n",
        ),
        Wrong("fan-out", DENSE_INIT.replace("b = in_features", "b = out_features") + FORWARD),
        Wrong(
            "bias-first",
            """
class DenseLayer(nn.Module):
    def __init__(self, in_features, out_features, bias=True, device=None, dtype=None):
        super().__init__()
        b = in_features ** -0.5
        self.bias = nn.Parameter(torch.empty(out_features, device=device, dtype=dtype).uniform_(-b, b))
        self.weight = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype).uniform_(-b, b))
"""
            + FORWARD,
        ),
        Wrong(
            "glorot",
            """
class DenseLayer(nn.Module):
    def __init__(self, in_features, out_features, bias=True, device=None, dtype=None):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        nn.init.xavier_uniform_(self.weight)
        self.bias = nn.Parameter(torch.zeros(out_features))
"""
            + FORWARD,
        ),
        Wrong(
            "bias-zero",
            DENSE_INIT.replace("torch.empty(out_features, **kind).uniform_(-b, b)", "torch.zeros(out_features, **kind)")
            + FORWARD,
        ),
        Wrong(
            "bias-bound",
            DENSE_INIT.replace(
                "torch.empty(out_features, **kind).uniform_(-b, b)", "torch.empty(out_features, **kind).uniform_(0, b)"
            )
            + FORWARD,
        ),
        Wrong("extra-draws", DENSE_INIT + "        torch.rand(1)\n" + FORWARD),
        Wrong(
            "other-draws",
            """
class DenseLayer(nn.Module):
    def __init__(self, in_features, out_features, bias=True, device=None, dtype=None):
        super().__init__()
        b = in_features ** -0.5
        self.weight = nn.Parameter(torch.tensor(np.random.uniform(-b, b, (out_features, in_features)),
                                                dtype=torch.float32))
        self.bias = nn.Parameter(torch.empty(out_features).uniform_(-b, b))
"""
            + FORWARD,
        ),
        Wrong(
            "other-distribution",
            DENSE_INIT.replace("in_features, **kind).uniform_(-b, b)", "in_features, **kind).normal_(0, b)") + FORWARD,
        ),
        Wrong(
            "wraps-linear",
            "class DenseLayer(nn.Linear):\n    pass\n",
        ),
        Wrong(
            "wraps-linear",
            """
class DenseLayer(nn.Module):
    def __init__(self, in_features, out_features, bias=True, device=None, dtype=None):
        super().__init__()
        inner = nn.Linear(in_features, out_features, bias, device, dtype)
        self.weight, self.bias = inner.weight, inner.bias
"""
            + FORWARD,
        ),
        Wrong("not-registered", DENSE_INIT.replace("nn.Parameter", "") + FORWARD),
        Wrong(
            "bias-key",
            DENSE_INIT.replace("if bias else None", "if bias else nn.Parameter(torch.zeros(out_features))") + FORWARD,
        ),
        Wrong(
            "bias-key",
            DENSE_INIT.replace("        self.bias = ", "        if bias:\n            self.bias = ").replace(
                " if bias else None", ""
            )
            + "\n    def forward(self, x):\n"
            "        return F.linear(x, self.weight, getattr(self, 'bias', None))\n",
        ),
        Wrong(
            "leading-dimensions",
            DENSE_INIT
            + """
    def forward(self, x):
        if self.bias is None:
            return x @ self.weight.t()
        return torch.addmm(self.bias, x, self.weight.t())
""",
        ),
        Wrong(
            "bias-none-used", DENSE_INIT + "\n    def forward(self, x):\n        return x @ self.weight.T + self.bias\n"
        ),
        Wrong("dtype-or-device-ignored", DENSE_INIT.replace('{"device": device, "dtype": dtype}', "{}") + FORWARD),
    ],
    "8.3": [
        Wrong(
            "default-shrinks",
            "def init_deep(model):\n    for m in model.modules():\n        if isinstance(m, nn.Linear):\n"
            "            m.reset_parameters()\n            nn.init.zeros_(m.bias)\n",
        ),
        Wrong("glorot-shrinks", DEEP_LOOP.format(draw="nn.init.xavier_normal_(m.weight)"), "Keras's default"),
        Wrong("explodes", DEEP_LOOP.format(draw="nn.init.normal_(m.weight)"), "facts: N(0, 1)"),
        Wrong("needs-no-grad", DEEP_LOOP.format(draw="m.weight.normal_(0, math.sqrt(2 / m.in_features))")),
        Wrong("all-zero", DEEP_LOOP.format(draw="nn.init.zeros_(m.weight)"), "facts: zeros"),
        Wrong("default-shrinks", DEEP_LOOP.format(draw="nn.init.trunc_normal_(m.weight, std=0.02)")),
        Wrong("out-of-range", DEEP_LOOP.format(draw="nn.init.normal_(m.weight, std=0.08)"), "one std for all widths"),
        Wrong(
            "not-recursive",
            """
def init_deep(model):
    for m in model.children():
        if isinstance(m, nn.Linear):
            nn.init.kaiming_normal_(m.weight)
            if m.bias is not None:
                nn.init.zeros_(m.bias)
""",
        ),
        Wrong(
            "padding-row-lost",
            """
def init_deep(model):
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.kaiming_normal_(p)
        else:
            nn.init.zeros_(p)
""",
            "facts: padding_idx row is lost by a later nn.init.normal_",
        ),
        Wrong(
            "bias-not-zero",
            DEEP_LOOP.format(draw="nn.init.kaiming_normal_(m.weight)").replace("zero_()", "uniform_(-.01, .01)"),
        ),
        Wrong(
            "bias-none",
            DEEP_LOOP.format(draw="nn.init.kaiming_normal_(m.weight)").replace("if m.bias is not None", "if True"),
        ),
        Wrong(
            "weight-none",
            """
def init_deep(model):
    for m in model.modules():
        if hasattr(m, "weight") and not isinstance(m, nn.Embedding):
            nn.init.kaiming_normal_(m.weight)
        if getattr(m, "bias", None) is not None:
            nn.init.zeros_(m.bias)
""",
        ),
        Wrong(
            "touches-weightless",
            DEEP_LOOP.format(draw="nn.init.kaiming_normal_(m.weight)")
            + "    for b in model.buffers():\n        b.zero_()\n",
        ),
    ],
    "8.4": [
        Wrong(
            "still-default",
            KERAS_LOOP.format(draw="m.reset_parameters()"),
        ),
        Wrong("still-default", "def keras_init(module):\n    pass\n"),
        Wrong(
            "kernel-forgotten",
            KERAS_LOOP.format(draw="b = math.sqrt(6 / (w.shape[0] + w.shape[1])); nn.init.uniform_(w, -b, b)"),
        ),
        Wrong("one-fan", KERAS_LOOP.format(draw="nn.init.kaiming_uniform_(w)"), "He instead of Glorot"),
        Wrong("glorot-normal", KERAS_LOOP.format(draw="nn.init.xavier_normal_(w)")),
        Wrong(
            "std-as-bound",
            KERAS_LOOP.format(
                draw="b = math.sqrt(2 / sum(nn.init._calculate_fan_in_and_fan_out(w))); nn.init.uniform_(w, -b, b)"
            ),
        ),
        Wrong(
            "groups-forgotten",
            KERAS_LOOP.format(
                draw="k = w[0, 0].numel(); fan_in = getattr(m, 'in_channels', w.shape[1]); "
                "b = math.sqrt(6 / ((fan_in + w.shape[0]) * k)); nn.init.uniform_(w, -b, b)"
            ),
        ),
        Wrong("bias-kept", KERAS_LOOP.format(draw="nn.init.xavier_uniform_(w)").replace("zeros_", "ones_")),
        Wrong(
            "bias-none",
            KERAS_LOOP.format(draw="nn.init.xavier_uniform_(w)").replace("if m.bias is not None", "if True"),
        ),
        Wrong(
            "needs-no-grad",
            KERAS_LOOP.format(
                draw="f = nn.init._calculate_fan_in_and_fan_out(w); b = math.sqrt(6 / sum(f)); w.uniform_(-b, b)"
            ),
        ),
        Wrong(
            "not-recursive",
            KERAS_LOOP.format(draw="nn.init.xavier_uniform_(w)").replace(
                "module.modules()", "[module] + list(module.children())"
            ),
        ),
        Wrong(
            "root-forgotten",
            KERAS_LOOP.format(draw="nn.init.xavier_uniform_(w)").replace(
                "module.modules()", "(p for c in module.children() for p in c.modules())"
            ),
        ),
        Wrong(
            "kind-forgotten",
            KERAS_LOOP.format(draw="nn.init.xavier_uniform_(w)").replace("nn.Conv1d, ", "").replace(", nn.Conv3d", ""),
        ),
        Wrong(
            "transposed-touched",
            KERAS_LOOP.format(draw="nn.init.xavier_uniform_(w)").replace(
                "nn.Conv1d, nn.Conv2d, nn.Conv3d", "nn.modules.conv._ConvNd"
            ),
        ),
        Wrong(
            "touches-others",
            """
def keras_init(module):
    for p in module.parameters():
        if p.dim() > 1:
            nn.init.xavier_uniform_(p)
        else:
            nn.init.zeros_(p)
""",
            "the snippet passed around: xavier on every p.dim() > 1",
        ),
        Wrong("wrong-bound", KERAS_LOOP.format(draw="nn.init.uniform_(w, -0.05, 0.05)"), "Keras's RandomUniform"),
        Wrong(
            "builds-on-old-values",
            """
def keras_init(module):
    for m in module.modules():
        if isinstance(m, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)):
            b = math.sqrt(6 / sum(nn.init._calculate_fan_in_and_fan_out(m.weight)))
            w = m.weight.data
            w.mul_(b / w.abs().max())
            w.add_(torch.rand(()) * b / 500).clamp_(-b, b)
            if m.bias is not None:
                nn.init.zeros_(m.bias)
""",
        ),
    ],
    "8.5": [
        Wrong(
            "cell-missing",
            """
def culprit(run, seeds):
    def score(i, s):
        return np.mean([run(i, s, seed) for seed in seeds])
    base, init, shapes = score(False, False), score(True, False), score(False, True)
    if min(init, shapes) > base / 2:
        return "neither"
    return "init" if init < shapes else "shapes"
""",
            "discuss 160720: blamed on init after changing one thing",
        ),
        Wrong(
            "too-few-seeds",
            CULPRIT.replace("for seed in seeds) / len(seeds)", "for seed in list(seeds)[:1])")
            + "    if init < none / 2:\n        return 'both' if shapes < none / 2 else 'init'\n"
            + "    return 'shapes' if shapes < none / 2 else 'neither'\n",
            "jsboige/CoursIA PR#926: judged under the bug",
        ),
        Wrong(
            "too-few-seeds",
            CULPRIT.replace("run(i, s, seed) for seed", "run(i, s, seeds[0]) for seed")
            + "    return 'shapes' if shapes < none / 2 else 'neither'\n",
        ),
        Wrong(
            "someone-must-be-guilty",
            CULPRIT
            + """
    if init < none / 2 and shapes < none / 2:
        return "both"
    if pair < none / 2 and init > none / 2 and shapes > none / 2:
        return "both"
    return "init" if init < shapes else "shapes"
""",
        ),
        Wrong(
            "only-together",
            CULPRIT
            + """
    helped = (init < none / 2, shapes < none / 2)
    return {(True, True): "both", (True, False): "init", (False, True): "shapes"}.get(helped, "neither")
""",
            "one factor at a time",
        ),
        Wrong(
            "either-alone",
            CULPRIT
            + """
    if init < none / 2:
        return "init"
    if shapes < none / 2:
        return "shapes"
    return "both" if pair < none / 2 else "neither"
""",
        ),
        Wrong(
            "innocent-accused",
            CULPRIT + "    return 'both' if pair < none / 2 else 'neither'\n",
        ),
        Wrong(
            "innocent-accused",
            CULPRIT
            + """
    if init < none / 2 and shapes < none / 2:
        return "both"
    if init < none / 2:
        return "shapes"
    if shapes < none / 2:
        return "init"
    return "both" if pair < none / 2 else "neither"
""",
        ),
        Wrong("not-a-verdict", CULPRIT + "    return 'the shapes' if shapes < none / 2 else None\n"),
    ],
}
