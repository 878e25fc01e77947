"""Right and wrong answers to the exercises of chapter 1."""

from . import Wrong

ALTERNATIVES = {
    "1.1": {
        "a dict with a default, and rows with names": """
Row = namedtuple("Row", "repeatable statistics graph")

def predict_modes():
    table = defaultdict(Row)
    for training in ("train", "eval"):
        for mode in ("", "+no_grad", "+inference_mode"):
            table[training + mode] = Row(training == "eval", training == "eval", not mode)
    return table
""",
        "computed by running a net": """
def predict_modes():
    table = {}
    for training in ("train", "eval"):
        for mode in ("", "+no_grad", "+inference_mode"):
            still = training == "eval"
            table[training + mode] = (still, still, mode == "")
    return table
""",
        "rows as lists, filled column by column": """
def predict_modes():
    rows = {f"{t}{m}": [t == "eval"] * 2 for t in ["train", "eval"] for m in ["", "+no_grad", "+inference_mode"]}
    for name, row in rows.items():
        row.append("+" not in name)
    return rows
""",
    },
    "1.2": {
        "an error that says it in other words": """
@torch.no_grad()
def evaluate(model, batches):
    frozen = copy.deepcopy(model).eval()
    outputs = [frozen(batch) for batch in batches]
    if not outputs:
        raise ValueError("Nothing to evaluate: the iterable was empty")
    return torch.cat(outputs)
""",
        "a stack of callbacks that restore": """
from contextlib import ExitStack

def evaluate(model, batches):
    with ExitStack() as stack:
        for module in model.modules():
            stack.callback(setattr, module, "training", module.training)
        stack.enter_context(torch.inference_mode())
        model.eval()
        outputs = list(map(model, batches))
        if not outputs:
            raise ValueError("Batches must not be empty")
        return torch.cat(outputs)
""",
        "works on a deep copy": """
@torch.no_grad()
def evaluate(model, batches):
    frozen = copy.deepcopy(model).eval()
    outputs = [frozen(batch) for batch in batches]
    if len(outputs) == 0:
        raise ValueError("no batches to evaluate")
    return torch.cat(outputs)
""",
        "a context manager that restores flags by name": """
from contextlib import contextmanager

@contextmanager
def eval_mode(model):
    flags = {name: m.training for name, m in model.named_modules()}
    try:
        yield model.eval()
    finally:
        for name, m in model.named_modules():
            m.training = flags[name]

def evaluate(model, batches):
    batches = list(batches)
    if not batches:
        raise ValueError("There are no batches.")
    with eval_mode(model), torch.inference_mode():
        return torch.cat([model(b) for b in batches], 0)
""",
        "switches grad mode by hand, in a finally": """
def evaluate(model, batches):
    training = [m for m in model.modules() if m.training]
    was = torch.is_grad_enabled()
    model.eval()
    torch.set_grad_enabled(False)
    try:
        found = []
        for b in batches:
            found.append(model(b))
        if not found:
            raise ValueError("empty batches")
        return torch.vstack(found)
    finally:
        torch.set_grad_enabled(was)
        for m in training:
            m.training = True
""",
    },
    "1.3": {
        "a new tensor by value": """
def collect_features(model, batches):
    out = []
    for b in batches:
        with torch.no_grad():
            y = model(b)
        out.append(torch.tensor(y[:, 0].tolist()))
    return out
""",
        "detach and clone": """
def collect_features(model, batches):
    return [model(batch)[:, 0].detach().clone() for batch in batches]
""",
        "copied into an empty tensor": """
def collect_features(model, batches):
    result = []
    for batch in batches:
        y = model(batch).detach()
        column = torch.empty(len(y), dtype=y.dtype)
        column.copy_(y[:, 0])
        result.append(column)
    return result
""",
    },
    "1.4": {
        "a plain attribute converted on the way out": """
class PositionTable(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim
        self.cache = torch.zeros(0, dim)
        self.register_buffer("probe", torch.zeros(()), persistent=False)

    def forward(self, length):
        if self.cache.shape[0] < length:
            with torch.inference_mode(False):
                p = torch.arange(length).double().unsqueeze(1)
                i = torch.arange(self.dim // 2).double()
                a = p / 10000 ** (2 * i / self.dim)
                t = torch.zeros(length, self.dim, dtype=torch.float64)
                t[:, 0::2] = torch.sin(a)
                t[:, 1::2] = torch.cos(a)
                self.cache = t
        return self.cache[:length].to(self.probe.dtype)
""",
        "filled in Python, doubled when it grows": """
class PositionTable(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim
        self.register_buffer("rows", torch.zeros(0, dim), persistent=False)

    def forward(self, length):
        have = self.rows.size(0)
        if have < length:
            values = []
            for p in range(max(length, 2 * have)):
                row = []
                for i in range(0, self.dim, 2):
                    angle = p / 10000 ** (i / self.dim)
                    row += [math.sin(angle), math.cos(angle)]
                values.append(row)
            with torch.inference_mode(False):
                self.rows = torch.tensor(values, dtype=self.rows.dtype, device=self.rows.device)
        return self.rows[:length]
""",
    },
    "1.5": {
        "gathers first, computes after": """
async def serve(model, requests):
    inputs = await asyncio.gather(*requests)
    with torch.inference_mode():
        return [model(x) for x in inputs]
""",
        "a task a request, a decorated function for the forward pass": """
@torch.no_grad()
def forward(model, x):
    return model(x)

async def serve(model, requests):
    async def answer(request):
        return forward(model, await request)
    tasks = [asyncio.ensure_future(answer(r)) for r in requests]
    return [await task for task in tasks]
""",
        "in a worker thread, with grad mode switched off there": """
async def serve(model, requests):
    def work(x):
        with torch.no_grad():
            return model(x)
    loop = asyncio.get_running_loop()
    results = []
    for request in requests:
        results.append(await loop.run_in_executor(None, work, await request))
    return results
""",
    },
}

WRONG = {
    "1.1": [
        Wrong(
            "eval-stops-recording",
            """
def predict_modes():
    t, e = (False, False), (True, True)
    return {"train": (*t, True), "train+no_grad": (*t, False), "train+inference_mode": (*t, False),
            "eval": (*e, False), "eval+no_grad": (*e, False), "eval+inference_mode": (*e, False)}
""",
            "hszhao/semseg#60",
        ),
        Wrong(
            "no-grad-freezes-statistics",
            """
def predict_modes():
    return {"train": (False, False, True), "train+no_grad": (False, True, False),
            "train+inference_mode": (False, True, False), "eval": (True, True, True),
            "eval+no_grad": (True, True, False), "eval+inference_mode": (True, True, False)}
""",
            "pytorch/vision#2079",
        ),
        Wrong(
            "no-grad-stops-dropout",
            """
def predict_modes():
    return {"train": (False, False, True), "train+no_grad": (False, False, False),
            "train+inference_mode": (True, False, False), "eval": (True, True, True),
            "eval+no_grad": (True, True, False), "eval+inference_mode": (True, True, False)}
""",
        ),
    ],
    "1.2": [
        Wrong(
            "parameters-frozen",
            """
def evaluate(model, batches):
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    modes = [(m, m.training) for m in model.modules()]
    model.eval()
    try:
        outputs = [model(batch) for batch in batches]
    finally:
        for m, mode in modes:
            m.training = mode
    if not outputs:
        raise ValueError("no batches")
    return torch.cat(outputs)
""",
        ),
        Wrong(
            "hook-left",
            """
@torch.no_grad()
def evaluate(model, batches):
    outputs = []
    model.register_forward_hook(lambda module, inputs, output: outputs.append(output))
    modes = [(m, m.training) for m in model.modules()]
    model.eval()
    try:
        for batch in batches:
            model(batch)
    finally:
        for m, mode in modes:
            m.training = mode
    if not outputs:
        raise ValueError("no batches")
    return torch.cat(outputs)
""",
        ),
        Wrong(
            "graph-recorded",
            """
def evaluate(model, batches):
    batches = list(batches)
    if not batches:
        raise ValueError("no batches")
    flags = [(m, m.training) for m in model.modules()]
    try:
        model.eval()
        return torch.cat([model(b) for b in batches])
    finally:
        for m, flag in flags:
            m.training = flag
""",
            "hszhao/semseg#60",
        ),
        Wrong(
            "detach-at-the-end",
            """
def evaluate(model, batches):
    flags = [(m, m.training) for m in model.modules()]
    try:
        model.eval()
        return torch.cat([model(b).detach() for b in batches])
    finally:
        for m, flag in flags:
            m.training = flag
""",
        ),
        Wrong(
            "still-training",
            """
@torch.no_grad()
def evaluate(model, batches):
    return torch.cat([model(b) for b in batches])
""",
            "pytorch/vision#2079",
        ),
        Wrong(
            "state-changed",
            """
@torch.no_grad()
def evaluate(model, batches):
    batches = list(batches)
    model.train()
    for b in batches:
        if len(b) > 1:
            keep = [m.running_mean.clone() for m in model.modules() if hasattr(m, "running_mean")]
            keep_var = [m.running_var.clone() for m in model.modules() if hasattr(m, "running_mean")]
            model(b)
            norms = [m for m in model.modules() if hasattr(m, "running_mean")]
            for m, mean, var in zip(norms, keep, keep_var):
                m.running_mean.copy_(mean)
                m.running_var.copy_(var)
    model.eval()
    return torch.cat([model(b) for b in batches])
""",
        ),
        Wrong(
            "mode-not-restored",
            """
@torch.no_grad()
def evaluate(model, batches):
    model.eval()
    return torch.cat([model(b) for b in batches])
""",
        ),
        Wrong(
            "frozen-layer-woken",
            """
@torch.no_grad()
def evaluate(model, batches):
    model.eval()
    out = [model(b) for b in batches]
    model.train()
    if not out:
        raise ValueError("no batches")
    return torch.cat(out)
""",
        ),
        Wrong(
            "mode-lost-on-error",
            """
@torch.no_grad()
def evaluate(model, batches):
    flags = [(m, m.training) for m in model.modules()]
    model.eval()
    out = [model(b) for b in batches]
    for m, flag in flags:
        m.training = flag
    if not out:
        raise ValueError("no batches")
    return torch.cat(out)
""",
        ),
        Wrong(
            "not-only-lists",
            """
@torch.no_grad()
def evaluate(model, batches):
    flags = [(m, m.training) for m in model.modules()]
    model.eval()
    try:
        return torch.cat([model(batches[i]) for i in range(len(batches))])
    finally:
        for m, flag in flags:
            m.training = flag
""",
        ),
        Wrong(
            "empty-not-told",
            """
@torch.no_grad()
def evaluate(model, batches):
    flags = [(m, m.training) for m in model.modules()]
    model.eval()
    try:
        return torch.cat([model(b) for b in batches])
    finally:
        for m, flag in flags:
            m.training = flag
""",
        ),
        Wrong(
            "leaves-state-changed",
            """
def evaluate(model, batches):
    torch.set_grad_enabled(False)
    flags = [(m, m.training) for m in model.modules()]
    model.eval()
    try:
        return torch.cat([model(b) for b in batches])
    finally:
        for m, flag in flags:
            m.training = flag
""",
        ),
    ],
    "1.3": [
        Wrong(
            "parameters-frozen",
            """
def collect_features(model, batches):
    model.requires_grad_(False)
    return [model(batch)[:, 0].clone() for batch in batches]
""",
        ),
        Wrong(
            "output-kept",
            """
seen = []

@torch.no_grad()
def collect_features(model, batches):
    features = []
    for batch in batches:
        output = model(batch)
        seen.append(output)
        features.append(output[:, 0].clone())
    return features
""",
        ),
        Wrong(
            "hook-left",
            """
def collect_features(model, batches):
    features = []
    model.register_forward_hook(lambda module, inputs, output: features.append(output.detach()[:, 0].clone()))
    for batch in batches:
        model(batch)
    return features
""",
        ),
        Wrong(
            "graph-kept",
            """
def collect_features(model, batches):
    return [model(batch)[:, 0].clone() for batch in batches]
""",
            "MarvinLvn/voice-type-classifier#12, pytorch#4932",
        ),
        Wrong(
            "view-pins-storage",
            """
def collect_features(model, batches):
    return [model(batch)[:, 0].detach() for batch in batches]
""",
        ),
        Wrong(
            "view-pins-storage",
            """
@torch.no_grad()
def collect_features(model, batches):
    return [model(batch)[:, 0] for batch in batches]
""",
        ),
        Wrong(
            "one-row-still-a-view",
            """
@torch.no_grad()
def collect_features(model, batches):
    return [model(batch)[:, 0].contiguous() for batch in batches]
""",
        ),
        Wrong(
            "inference-tensor",
            """
@torch.inference_mode()
def collect_features(model, batches):
    return [model(batch)[:, 0].clone() for batch in batches]
""",
            "sglang#33470",
        ),
        Wrong(
            "mode-touched",
            """
@torch.no_grad()
def collect_features(model, batches):
    model.eval()
    return [model(batch)[:, 0].clone() for batch in batches]
""",
        ),
        Wrong(
            "one-storage",
            """
@torch.no_grad()
def collect_features(model, batches):
    columns = [model(batch)[:, 0] for batch in batches]
    return list(torch.cat(columns).split([len(c) for c in columns]))
""",
        ),
    ],
    "1.4": [
        Wrong(
            "does-not-grow",
            """
class PositionTable(nn.Module):
    def __init__(self, dim, max_len=5000):
        super().__init__()
        position = torch.arange(max_len, dtype=torch.float64)[:, None]
        angle = position / 10000 ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim)
        table = torch.zeros(max_len, dim)
        table[:, 0::2], table[:, 1::2] = angle.sin(), angle.cos()
        self.register_buffer("table", table, persistent=False)

    def forward(self, length):
        return self.table[:length]
""",
        ),
        Wrong(
            "recomputes",
            """
class PositionTable(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim
        self.register_buffer("probe", torch.zeros(()), persistent=False)

    def forward(self, length):
        angle = np.arange(length)[:, None] / 10000 ** (np.arange(0, self.dim, 2) / self.dim)
        table = np.stack([np.sin(angle), np.cos(angle)], -1).reshape(length, self.dim)
        return torch.tensor(table, dtype=self.probe.dtype)
""",
        ),
        Wrong(
            "inference-cache",
            """
class PositionTable(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim
        self.register_buffer("table", torch.empty(0, dim), persistent=False)

    def forward(self, length):
        if length > len(self.table):
            p = torch.arange(length).double()[:, None]
            a = p / 10000 ** (torch.arange(0, self.dim, 2).double() / self.dim)
            self.table = torch.stack([a.sin(), a.cos()], -1).reshape(length, self.dim).to(self.table.dtype)
        return self.table[:length]
""",
            "roboflow/rf-detr#461, sglang#33470",
        ),
        Wrong(
            "cache-in-state-dict",
            """
class PositionTable(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim
        self.register_buffer("table", torch.empty(0, dim))

    def forward(self, length):
        if length > len(self.table):
            with torch.inference_mode(False):
                p = torch.arange(length).double()[:, None]
                a = p / 10000 ** (torch.arange(0, self.dim, 2).double() / self.dim)
                self.table = torch.stack([a.sin(), a.cos()], -1).reshape(length, self.dim).to(self.table.dtype)
        return self.table[:length]
""",
        ),
        Wrong(
            "cache-does-not-follow",
            """
class PositionTable(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim, self.table = dim, torch.empty(0, dim)

    def forward(self, length):
        if length > len(self.table):
            with torch.inference_mode(False):
                p = torch.arange(length).double()[:, None]
                a = p / 10000 ** (torch.arange(0, self.dim, 2).double() / self.dim)
                self.table = torch.stack([a.sin(), a.cos()], -1).reshape(length, self.dim).float()
        return self.table[:length]
""",
        ),
        Wrong(
            "built-in-default-dtype",
            """
class PositionTable(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim
        self.register_buffer("table", torch.empty(0, dim), persistent=False)

    def forward(self, length):
        if length > len(self.table):
            with torch.inference_mode(False):
                p = torch.arange(length)[:, None]
                a = p / 10000 ** (torch.arange(0, self.dim, 2) / self.dim)
                self.table = torch.stack([a.sin(), a.cos()], -1).reshape(length, self.dim)
        return self.table[:length]
""",
        ),
        Wrong(
            "recomputes",
            """
class PositionTable(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim
        self.register_buffer("probe", torch.empty(0), persistent=False)

    def forward(self, length):
        p = torch.arange(length).double()[:, None]
        a = p / 10000 ** (torch.arange(0, self.dim, 2).double() / self.dim)
        return torch.stack([a.sin(), a.cos()], -1).reshape(length, self.dim).to(self.probe.dtype)
""",
        ),
        Wrong(
            "does-not-grow",
            """
class PositionTable(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim
        self.register_buffer("table", torch.empty(0, dim), persistent=False)

    def forward(self, length):
        if len(self.table) == 0:
            with torch.inference_mode(False):
                p = torch.arange(length).double()[:, None]
                a = p / 10000 ** (torch.arange(0, self.dim, 2).double() / self.dim)
                self.table = torch.stack([a.sin(), a.cos()], -1).reshape(length, self.dim).to(self.table.dtype)
        return self.table[:length]
""",
        ),
        Wrong(
            "halves-not-interleaved",
            """
class PositionTable(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim
        self.register_buffer("table", torch.empty(0, dim), persistent=False)

    def forward(self, length):
        if length > len(self.table):
            with torch.inference_mode(False):
                p = torch.arange(length).double()[:, None]
                a = p / 10000 ** (torch.arange(0, self.dim, 2).double() / self.dim)
                self.table = torch.cat([a.sin(), a.cos()], -1).to(self.table.dtype)
        return self.table[:length]
""",
        ),
        Wrong(
            "cache-has-graph",
            """
class PositionTable(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim
        self.frequency = nn.Parameter(10000 ** (-torch.arange(0, dim, 2).double() / dim))
        self.register_buffer("table", torch.empty(0, dim), persistent=False)

    def forward(self, length):
        if length > len(self.table):
            rows = max(length, 64)
            with torch.inference_mode(False):
                a = torch.arange(rows).double()[:, None] * self.frequency.double()
                self.table = torch.stack([a.sin(), a.cos()], -1).reshape(rows, self.dim).to(self.table.dtype)
        return self.table[:length]
""",
        ),
        Wrong(
            "cache-has-graph",
            """
class PositionTable(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim
        self.register_buffer("table", torch.empty(0, dim), persistent=False)

    def forward(self, length):
        if length > len(self.table):
            with torch.inference_mode(False):
                p = torch.arange(length).double()[:, None]
                a = p / 10000 ** (torch.arange(0, self.dim, 2).double() / self.dim)
                table = torch.stack([a.sin(), a.cos()], -1).reshape(length, self.dim).to(self.table.dtype)
            self.table = table.requires_grad_()
        return self.table[:length]
""",
        ),
    ],
    "1.5": [
        Wrong(
            "holds-across-await",
            """
async def serve(model, requests):
    with torch.no_grad():
        return [model(await request) for request in requests]
""",
        ),
        Wrong(
            "mode-left-changed",
            """
async def serve(model, requests):
    inputs = [await request for request in requests]
    torch.set_grad_enabled(False)
    answers = [model(x) for x in inputs]
    return answers
""",
        ),
        Wrong(
            "forces-grad-on",
            """
async def serve(model, requests):
    answers = []
    for request in requests:
        x = await request
        torch.set_grad_enabled(False)
        answers.append(model(x))
        torch.set_grad_enabled(True)
    return answers
""",
        ),
        Wrong(
            "graph-recorded",
            """
def serve(model, requests):
    async def run():
        return [model(await request) for request in requests]
    with torch.no_grad():
        return run()
""",
            "kyutai pocket-tts PR#16",
        ),
        Wrong(
            "not-async",
            """
def serve(model, requests):
    with torch.no_grad():
        return [model(request) for request in []]
""",
        ),
        Wrong(
            "out-of-order",
            """
async def serve(model, requests):
    answers = []
    for done in asyncio.as_completed(requests):
        x = await done
        with torch.no_grad():
            answers.append(model(x))
    return answers
""",
        ),
    ],
}
