"""Right and wrong answers to the exercises of chapter 3."""

from . import Wrong

ALTERNATIVES = {
    "3.1": {
        "a random search with numpy": """
def lying_input(traced, module):
    rng = np.random.default_rng(0)
    for _ in range(3000):
        n = int(rng.integers(1, 33))
        x = torch.tensor(rng.normal(0, 3, n), dtype=torch.float32) * float(rng.choice([0.05, 1.0]))
        a, b = module(x).numpy(), traced(x).numpy()
        if a.shape != b.shape or not np.allclose(a, b, equal_nan=True):
            return x
""",
        "ramps of every length and sign": """
def lying_input(traced, module):
    for n in [1, 2, 3, 5, 8, 16, 32]:
        for low, high in [(0.1, 0.9), (2, 9), (-9, 0.5), (-0.5, 9)]:
            x = torch.linspace(low, high, n) if n > 1 else torch.tensor([float(high)])
            a, b = traced(x), module(x)
            if a.shape != b.shape or ((a != b) & ~(a.isnan() & b.isnan())).any():
                return x
    return torch.zeros(1)
""",
    },
    "3.2": {
        "torch.cond with functions": """
def taken(x):
    return x / x.sum().sqrt()

def other(x):
    return -2 * x

def branchless(x):
    return torch.cond(x.sum() > 0, taken, other, (x,))
""",
        "a clamp far below any sum that matters": """
def branchless(x):
    total = x.sum()
    return torch.where(total > 0, x * total.clamp(min=1e-12).rsqrt(), x * -2)
""",
        "masked_fill and a choice of factors": """
def branchless(x):
    s = x.sum()
    low = s <= 0
    factor = torch.where(low, torch.tensor(-2.0), 1 / s.masked_fill(low, 1.0).sqrt())
    return x * factor
""",
        "compiled by the learner already": """
@torch.compile(backend="eager", fullgraph=True)
def branchless(x):
    s = x.sum()
    safe = torch.where(s > 0, s, 1.0)
    return torch.where(s > 0, x / safe.sqrt(), -2 * x)
""",
    },
    "3.3": {
        "dynamic from the start": """
def prepare(fn, backend):
    return torch.compile(fn, backend=backend, dynamic=True)
""",
        "one whole graph, marked, length 1 left eager": """
def prepare(fn, backend):
    fast = torch.compile(fn, backend=backend, fullgraph=True)
    def run(x):
        if x.numel() < 2:
            return fn(x)
        torch._dynamo.mark_dynamic(x, 0, min=2, max=64)
        return fast(x)
    return run
""",
        "each result held against that of fn": """
def prepare(fn, backend):
    compiled = torch.compile(fn, backend=backend, dynamic=True)
    def call(x):
        y = compiled(x.double()).float()
        assert torch.allclose(y, fn(x), rtol=1e-4, atol=1e-5)
        return y
    return call
""",
        "maybe_mark_dynamic in a class": """
class Prepared:
    def __init__(self, fn, backend):
        self.fn = torch.compile(fn, backend=backend)
    def __call__(self, x):
        torch._dynamo.maybe_mark_dynamic(x, 0)
        return self.fn(x)

def prepare(fn, backend):
    return Prepared(fn, backend)
""",
    },
    "3.4": {
        "a float buffer, counted after the call": """
class CountingLayer(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.register_buffer("calls", torch.tensor([0.0]))

    def forward(self, x):
        y = self.layer(x)
        self.calls = self.calls + 1
        return y
""",
        "a Python number kept outside the graph": """
class CountingLayer(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.inner = layer
        self.calls = 0

    @torch.compiler.disable
    def count(self):
        self.calls += 1

    def forward(self, x):
        self.count()
        return self.inner(x)

    def get_extra_state(self):
        return {"calls": self.calls}

    def set_extra_state(self, state):
        self.calls = state["calls"]
""",
        "a property over a buffer": """
class CountingLayer(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.register_buffer("n", torch.zeros(1, dtype=torch.int32))

    @property
    def calls(self):
        return int(self.n)

    def forward(self, *args):
        with torch.no_grad():
            self.n.add_(1)
        return self.layer(*args)
""",
        "a parameter that takes no gradient": """
class CountingLayer(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.calls = nn.Parameter(torch.zeros(()), requires_grad=False)

    def forward(self, x):
        self.calls += 1
        return self.layer(x)
""",
    },
    "3.5": {
        "flags restored by name": """
def export_model(model, example):
    flags = {name: m.training for name, m in model.named_modules()}
    model.eval()
    try:
        shapes = ({0: torch.export.Dim("rows", min=1, max=64)},)
        return torch.export.export(model, args=(example,), dynamic_shapes=shapes)
    finally:
        for name, m in model.named_modules():
            m.training = flags[name]
""",
        "the argument's name looked up": """
import inspect

def export_model(model, example):
    name = next(iter(inspect.signature(model.forward).parameters))
    batch = torch.export.Dim("batch", min=1, max=64)
    twin = copy.deepcopy(model)
    twin.train(False)
    return torch.export.export(twin, (example.clone(),), dynamic_shapes={name: {0: batch}})
""",
    },
}

WRONG = {
    "3.1": [
        Wrong(
            "follows-the-example",
            """
def lying_input(traced, module):
    return torch.zeros(3)
""",
            "RealBasicVSR#70, pytorch#22485: the warning was ignored, the example trusted",
        ),
        Wrong(
            "one-answer-for-all",
            """
def lying_input(traced, module):
    return torch.full((4,), 3.0)
""",
        ),
        Wrong(
            "sign-not-tried",
            """
def lying_input(traced, module):
    for n in range(1, 33):
        for scale in (0.1, 1.0, 10.0):
            x = torch.rand(n) * scale
            if not torch.equal(traced(x), module(x)):
                return x
""",
        ),
        Wrong(
            "length-not-tried",
            """
def lying_input(traced, module):
    for _ in range(1000):
        x = torch.randn(3) * torch.rand(1) * 4
        if not torch.allclose(traced(x), module(x), equal_nan=True):
            return x
    return x
""",
            "pytorch#59530, #15319: a loop frozen to its example's length",
        ),
        Wrong(
            "length-not-tried",
            """
def lying_input(traced, module):
    for _ in range(2000):
        x = torch.randn(int(torch.randint(1, 17, ()))) * torch.rand(1) * 4
        if not torch.allclose(traced(x), module(x), equal_nan=True):
            return x
    return x
""",
        ),
        Wrong(
            "too-long",
            """
def lying_input(traced, module):
    for n in [100, 64, 33, *range(1, 33)]:
        for x in (torch.randn(n), torch.rand(n) * 0.5, torch.rand(n) * 9, -torch.rand(n) * 0.5, torch.randn(n) - 2):
            a, b = traced(x), module(x)
            if a.shape != b.shape or not torch.allclose(a, b, equal_nan=True):
                return x
""",
        ),
        Wrong(
            "nan-is-no-difference",
            """
def lying_input(traced, module):
    for n in range(1, 33):
        for value in (0.1, 5.0, -0.1, -5.0):
            x = torch.full((n,), value)
            if not torch.equal(traced(x), module(x)):
                return x
""",
        ),
        Wrong(
            "raises-not-lies",
            """
def lying_input(traced, module):
    return torch.empty(0)
""",
        ),
        Wrong(
            "not-one-vector",
            """
def lying_input(traced, module):
    return torch.randn(2, 3) * 10
""",
        ),
    ],
    "3.2": [
        Wrong(
            "epsilon-added",
            """
def branchless(x):
    total = x.sum()
    return torch.where(total > 0, x / (total.clamp(min=0) + 1e-6).sqrt(), -2 * x)
""",
        ),
        Wrong(
            "still-breaks",
            """
def branchless(x):
    total = x.sum()
    if total.item() > 0:
        return x / total.sqrt()
    return -2 * x
""",
        ),
        Wrong(
            "still-breaks",
            """
@torch.compiler.disable
def branchless(x):
    total = x.sum()
    return x / total.sqrt() if total > 0 else -2 * x
""",
        ),
        Wrong(
            "still-breaks",
            """
def branchless(x):
    scale = float(x.sum() > 0)
    total = x.sum() if scale else torch.ones(())
    return scale * x / total.sqrt() + (1 - scale) * -2 * x
""",
        ),
        Wrong(
            "nan-gradient",
            """
def branchless(x):
    total = x.sum()
    return torch.where(total > 0, x / total.sqrt(), -2 * x)
""",
        ),
        Wrong(
            "nan-gradient",
            """
def branchless(x):
    total = x.sum()
    return torch.where(total > 0, torch.nan_to_num(x / total.sqrt()), -2 * x)
""",
        ),
        Wrong(
            "nan-gradient",
            """
def branchless(x):
    total = x.sum()
    return torch.where(total > 0, x / total.clamp(min=0).sqrt(), -2 * x)
""",
        ),
        Wrong(
            "nan-gradient-at-zero",
            """
def branchless(x):
    total = x.sum()
    return torch.where(total > 0, x / total.abs().sqrt(), -2 * x)
""",
        ),
        Wrong(
            "masked-by-product",
            """
def branchless(x):
    total = x.sum()
    mask = (total > 0).float()
    return mask * (x / total.sqrt()) + (1 - mask) * (-2 * x)
""",
        ),
        Wrong(
            "gradient-cut",
            """
def branchless(x):
    total = x.sum().detach()
    safe = torch.where(total > 0, total, 1.0)
    return torch.where(total > 0, x / safe.sqrt(), -2 * x)
""",
        ),
        Wrong(
            "other-values",
            """
def branchless(x):
    total = x.sum()
    return torch.where(total > 0, x / total.clamp(min=1).sqrt(), -2 * x)
""",
        ),
        Wrong(
            "sum-of-zero",
            """
def branchless(x):
    total = x.sum()
    safe = torch.where(total > 0, total, 1.0)
    return torch.where(total >= 0, x / safe.sqrt(), -2 * x)
""",
        ),
    ],
    "3.3": [
        Wrong(
            "one-graph-per-length",
            """
def prepare(fn, backend):
    return torch.compile(fn, backend=backend, dynamic=False)
""",
            "NVIDIA/TensorRT-LLM#6142",
        ),
        Wrong(
            "one-graph-per-length",
            """
def prepare(fn, backend):
    return torch.compile(fn, backend=backend, dynamic=False, fullgraph=True)
""",
            "microsoft/dion#23",
        ),
        Wrong(
            "one-graph-per-length",
            """
def prepare(fn, backend):
    torch._dynamo.config.cache_size_limit = 100
    compiled = {}
    def call(x):
        if len(x) not in compiled:
            compiled[len(x)] = torch.compile(fn, backend=backend, dynamic=False)
        return compiled[len(x)](x)
    return call
""",
        ),
        Wrong(
            "third-graph",
            """
def prepare(fn, backend):
    return torch.compile(fn, backend=backend)
""",
        ),
        Wrong(
            "third-graph",
            """
def prepare(fn, backend):
    compiled = torch.compile(fn, backend=backend)
    compiled(torch.zeros(2))
    compiled(torch.zeros(3))
    return compiled
""",
        ),
        Wrong(
            "padding-changes-values",
            """
def prepare(fn, backend):
    compiled = torch.compile(fn, backend=backend)
    def call(x):
        n = len(x)
        return compiled(F.pad(x, (0, 64 - n)))[:n]
    return call
""",
        ),
        Wrong(
            "never-compiled",
            """
def prepare(fn, backend):
    return torch.compile(fn, backend="eager", dynamic=True)
""",
        ),
        Wrong(
            "runs-eager",
            """
def prepare(fn, backend):
    compiled = torch.compile(fn, backend=backend)
    first = []
    def call(x):
        first.append(len(x))
        return compiled(x) if len(x) == first[0] else fn(x)
    return call
""",
        ),
        Wrong(
            "result-thrown-away",
            """
def prepare(fn, backend):
    compiled = torch.compile(fn, backend=backend, dynamic=True)
    def call(x):
        compiled(x)
        return fn(x)
    return call
""",
        ),
        Wrong(
            "result-thrown-away",
            """
def prepare(fn, backend):
    compiled = torch.compile(fn, backend=backend, dynamic=True)
    def call(x):
        y = compiled(x)
        return y if len(x) != 40 else fn(x)
    return call
""",
        ),
        Wrong(
            "one-is-special",
            """
def prepare(fn, backend):
    compiled = torch.compile(fn, backend=backend)
    def call(x):
        torch._dynamo.mark_dynamic(x, 0, min=2, max=64)
        return compiled(x)
    return call
""",
        ),
        Wrong(
            "other-values",
            """
def prepare(fn, backend):
    compiled = torch.compile(fn, backend=backend, dynamic=True)
    return lambda x: compiled(x) if len(x) > 1 else x
""",
        ),
    ],
    "3.4": [
        Wrong(
            "count-stalls",
            """
class CountingLayer(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.register_buffer("calls", torch.zeros((), dtype=torch.float16))

    def forward(self, x):
        self.calls += 1
        return self.layer(x)
""",
        ),
        Wrong(
            "count-stalls",
            """
class CountingLayer(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.register_buffer("calls", torch.zeros((), dtype=torch.uint8))

    def forward(self, x):
        self.calls += 1
        return self.layer(x)
""",
        ),
        Wrong(
            "count-is-trained",
            """
class CountingLayer(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.calls = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.layer(x)
""",
        ),
        Wrong(
            "int-attribute",
            """
class CountingLayer(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.layer(x)
""",
            "pytorch#128319, #115711, torchrec PR#4338",
        ),
        Wrong(
            "int-attribute",
            """
class CountingLayer(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.calls = 0
        if hasattr(torch._dynamo.config, "allow_unspec_int_on_nn_module"):
            torch._dynamo.config.allow_unspec_int_on_nn_module = True

    def forward(self, x):
        self.calls += 1
        return self.layer(x)
""",
            "pytorch#128319",
        ),
        Wrong(
            "graph-break",
            """
class CountingLayer(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls.fill_(self.calls.item() + 1)
        return self.layer(x)
""",
        ),
        Wrong(
            "never-compiled",
            """
class CountingLayer(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.calls = 0

    @torch.compiler.disable
    def forward(self, x):
        self.calls += 1
        return self.layer(x)
""",
        ),
        Wrong(
            "wrong-count",
            """
class CountingLayer(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.calls = 0

    def forward(self, x):
        if not torch.compiler.is_compiling():
            self.calls += 1
        return self.layer(x)
""",
        ),
        Wrong(
            "gradient-cut",
            """
class CountingLayer(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def forward(self, x):
        self.calls += 1
        return self.layer(x)
""",
        ),
        Wrong(
            "not-in-state",
            """
class CountingLayer(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.calls = torch.zeros((), dtype=torch.int64)

    def forward(self, x):
        self.calls += 1
        return self.layer(x)
""",
        ),
        Wrong(
            "not-in-state",
            """
class CountingLayer(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.register_buffer("calls", torch.zeros(()), persistent=False)

    def forward(self, x):
        self.calls += 1
        return self.layer(x)
""",
        ),
        Wrong(
            "not-in-state",
            """
class CountingLayer(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.calls = 0

    @torch.compiler.disable
    def count(self):
        self.calls += 1

    def forward(self, x):
        self.count()
        return self.layer(x)
""",
        ),
        Wrong(
            "stops-counting",
            """
class CountingLayer(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.limit = 12

    def forward(self, x):
        self.calls.copy_((self.calls + 1).clamp(max=self.limit))
        return self.layer(x)
""",
        ),
        Wrong(
            "other-values",
            """
class CountingLayer(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls += 1
        return self.layer(x) / self.calls
""",
        ),
        Wrong(
            "runs-eager",
            """
class CountingLayer(nn.Module):
    def __init__(self, layer):
        super().__init__()
        torch._dynamo.config.cache_size_limit = 1
        self.layer = layer
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.layer(x)
""",
        ),
    ],
    "3.5": [
        Wrong(
            "one-batch-size",
            """
def export_model(model, example):
    return torch.export.export(copy.deepcopy(model).eval(), (example,))
""",
        ),
        Wrong(
            "example-of-one",
            """
def export_model(model, example):
    batch = torch.export.Dim("batch", min=1, max=64)
    return torch.export.export(copy.deepcopy(model).eval(), (example[:1],), dynamic_shapes=({0: batch},))
""",
            "pytorch#133653, #140011",
        ),
        Wrong(
            "training-exported",
            """
def export_model(model, example):
    batch = torch.export.Dim("batch", min=1, max=64)
    return torch.export.export(model, (example,), dynamic_shapes=({0: batch},))
""",
        ),
        Wrong(
            "no-upper-limit",
            """
def export_model(model, example):
    batch = torch.export.Dim("batch")
    return torch.export.export(copy.deepcopy(model).eval(), (example,), dynamic_shapes=({0: batch},))
""",
        ),
        Wrong(
            "no-upper-limit",
            """
def export_model(model, example):
    auto = torch.export.Dim.AUTO
    return torch.export.export(copy.deepcopy(model).eval(), (example,), dynamic_shapes=({0: auto},))
""",
        ),
        Wrong(
            "range-too-short",
            """
def export_model(model, example):
    batch = torch.export.Dim("batch", min=1, max=63)
    return torch.export.export(copy.deepcopy(model).eval(), (example,), dynamic_shapes=({0: batch},))
""",
        ),
        Wrong(
            "argument-name",
            """
def export_model(model, example):
    batch = torch.export.Dim("batch", min=1, max=64)
    return torch.export.export(copy.deepcopy(model).eval(), (example,), dynamic_shapes={"x": {0: batch}})
""",
        ),
        Wrong(
            "mode-not-restored",
            """
def export_model(model, example):
    batch = torch.export.Dim("batch", min=1, max=64)
    return torch.export.export(model.eval(), (example,), dynamic_shapes=({0: batch},))
""",
        ),
        Wrong(
            "frozen-layer-woken",
            """
def export_model(model, example):
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(model.eval(), (example,), dynamic_shapes=({0: batch},))
    model.train()
    return program
""",
        ),
        Wrong(
            "requires-grad-changed",
            """
def export_model(model, example):
    flags = [m.training for m in model.modules()]
    batch = torch.export.Dim("batch", min=1, max=64)
    model.eval().requires_grad_(False)
    program = torch.export.export(model, (example,), dynamic_shapes=({0: batch},))
    for m, flag in zip(model.modules(), flags):
        m.training = flag
    return program
""",
        ),
        Wrong(
            "requires-grad-changed",
            """
def export_model(model, example):
    flags = [m.training for m in model.modules()]
    batch = torch.export.Dim("batch", min=1, max=64)
    model.eval().requires_grad_(False)
    program = torch.export.export(model, (example,), dynamic_shapes=({0: batch},))
    for m, flag in zip(model.modules(), flags):
        m.training = flag
    model.requires_grad_(True)
    return program
""",
        ),
        Wrong(
            "not-a-program",
            """
def export_model(model, example):
    batch = torch.export.Dim("batch", min=1, max=64)
    return torch.export.export(copy.deepcopy(model).eval(), (example,), dynamic_shapes=({0: batch},)).module()
""",
        ),
    ],
}
