"""Right and wrong answers to the exercises of chapter 9."""

from . import Wrong

ALTERNATIVES = {
    "9.1": {
        "nn.Sequential, and masks cached by device and dtype": """
class Tower(nn.Module):
    def __init__(self, width=8, depth=2):
        super().__init__()
        self.blocks = nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.Dropout(0.5)) for _ in range(depth)])
        self.heads = nn.ModuleDict([("a", nn.Linear(width, 3)), ("b", nn.Linear(width, 2))])
        self.register_buffer("scale", torch.ones(width) / 2)
        self._masks = {}

    def forward(self, x, head):
        key = (x.shape[1], x.device, x.dtype)
        if key not in self._masks:
            self._masks[key] = torch.tril(torch.ones(x.shape[1], x.shape[1])).to(x)
        for block in self.blocks:
            x = F.relu(block(x))
        return self.heads[head](self._masks[key] @ (x * self.scale))
""",
        "no mask at all: a running sum": """
class Tower(nn.Module):
    def __init__(self, width=8, depth=2):
        super().__init__()
        self.blocks = nn.ModuleList()
        for _ in range(depth):
            self.blocks.append(nn.Sequential(nn.Linear(width, width), nn.Dropout()))
        self.heads = nn.ModuleDict()
        self.heads["a"] = nn.Linear(width, 3)
        self.heads["b"] = nn.Linear(width, 2)
        self.scale = nn.Buffer(torch.full((width,), 0.5))

    def forward(self, x, head):
        for block in self.blocks:
            x = block(x).relu()
        return self.heads[head](torch.cumsum(x * self.scale, dim=1))
""",
        "a mask buffer that starts as None": """
class Tower(nn.Module):
    def __init__(self, width=8, depth=2):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(width, width), nn.Dropout(0.5)) for _ in range(depth)])
        self.heads = nn.ModuleDict({k: nn.Linear(width, n) for k, n in {"a": 3, "b": 2}.items()})
        self.register_buffer("scale", torch.full((width,), 0.5))
        self.register_buffer("mask", None, persistent=False)

    def forward(self, x, head):
        n = x.size(1)
        if self.mask is None or self.mask.size(0) < n:
            self.mask = x.new_ones(n, n).tril()
        for block in self.blocks:
            x = torch.relu(block(x))
        return self.heads[head](self.mask[:n, :n] @ (x * self.scale))
""",
    },
    "9.2": {
        "asks the optimizer where its parameters are": """
def train_step(model, batch, optimizer):
    place = optimizer.param_groups[0]["params"][0].device
    x, y = batch[0].to(place, non_blocking=True), batch[1].to(place, non_blocking=True)
    loss = nn.CrossEntropyLoss()(model(x), y)
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()
    return float(loss)
""",
        "labels follow the logits": """
def train_step(model, batch, optimizer):
    x, labels = batch
    for p in model.parameters():
        break
    logits = model(x.to(p))
    target = labels.to(logits.device)
    loss = -torch.log_softmax(logits, 1).gather(1, target[:, None]).mean()
    for p in model.parameters():
        p.grad = None
    loss.backward()
    optimizer.step()
    return loss.detach().cpu().item()
""",
        "in a closure": """
def train_step(model, batch, optimizer):
    device = {p.device for p in model.parameters()}.pop()
    x, labels = [t.to(device=device) for t in batch]

    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        return loss

    return optimizer.step(closure).item()
""",
    },
    "9.3": {
        "force, after bfloat16 was widened": """
def to_numpy(tensor):
    if tensor.dtype is torch.bfloat16:
        tensor = tensor.to(torch.float32)
    return np.array(tensor.numpy(force=True), copy=True)
""",
        "clones on the device": """
def to_numpy(tensor):
    with torch.no_grad():
        own = tensor.clone(memory_format=torch.contiguous_format).resolve_conj().resolve_neg().cpu().detach()
    return (own.float() if own.dtype == torch.bfloat16 else own).numpy()
""",
        "fills an array of its own": """
def to_numpy(tensor):
    dtype = torch.float32 if tensor.dtype == torch.bfloat16 else tensor.dtype
    array = torch.empty(tensor.shape, dtype=dtype)
    array.copy_(tensor.detach().cpu())
    return array.numpy()
""",
    },
    "9.4": {
        "loads on the CPU, moves, then makes the optimizer": """
def resume(make_model, make_optimizer, checkpoint, device):
    model = make_model()
    model.load_state_dict({k: v.cpu() for k, v in checkpoint["model"].items()})
    model = model.to(device)
    optimizer = make_optimizer(list(model.parameters()))
    optimizer.load_state_dict(checkpoint["optimizer"])
    return model, optimizer
""",
        "assigns the moved weights before the optimizer is made": """
def resume(make_model, make_optimizer, checkpoint, device):
    model = make_model()
    weights = {k: v.detach().clone().to(device) for k, v in checkpoint["model"].items()}
    model.load_state_dict(weights, assign=True)
    model.requires_grad_(True)
    optimizer = make_optimizer(model.parameters())
    optimizer.load_state_dict(copy.deepcopy(checkpoint["optimizer"]))
    return model, optimizer
""",
        "moves the state by hand": """
def resume(make_model, make_optimizer, checkpoint, device):
    model = make_model().to(device)
    model.load_state_dict(checkpoint["model"])
    optimizer = make_optimizer(model.parameters())
    saved = checkpoint["optimizer"]
    for group, old in zip(optimizer.param_groups, saved["param_groups"]):
        group.update({k: v for k, v in old.items() if k != "params"})
    for index, p in enumerate(model.parameters()):
        optimizer.state[p] = {
            k: v.clone().to(p.device) if isinstance(v, torch.Tensor) and v.dim() else v
            for k, v in saved["state"][index].items()
        }
    return [model, optimizer]
""",
    },
    "9.5": {
        "a stack instead of recursion": """
def hidden_tensors(module):
    mine = {id(m) for m in module.modules()}
    for m in module.modules():
        mine |= {id(t) for t in m._parameters.values()} | {id(t) for t in m._buffers.values()}
    stack, visited, out = [], set(), []
    for path, m in module.named_modules():
        for name, value in m.__dict__.items():
            if name in {"_parameters", "_buffers", "_modules"}:
                continue
            stack.append((".".join(filter(None, [path, name])), value))
    while stack:
        name, value = stack.pop()
        if id(value) in mine:
            continue
        if isinstance(value, torch.Tensor):
            out.append(name)
        elif isinstance(value, nn.Module):
            out.append(name)
            stack += [(f"{name}.{k}", p) for k, p in value.named_parameters()]
        elif isinstance(value, (dict, list, tuple)) and id(value) not in visited:
            visited.add(id(value))
            items = value.items() if isinstance(value, dict) else enumerate(value)
            stack += [(f"{name}.{k}", v) for k, v in items]
    return sorted(out)
""",
        "a generator that carries its path": """
def hidden_tensors(module):
    known = [*module.modules(), *module.parameters(), *module.buffers()]

    def registered(value):
        return any(value is k for k in known)

    def walk(value, name, path):
        if any(value is p for p in path) or registered(value):
            return
        if isinstance(value, (nn.Module, torch.Tensor)):
            yield name
        elif isinstance(value, (list, tuple)):
            for i, v in enumerate(value):
                yield from walk(v, f"{name}.{i}", [*path, value])
        elif isinstance(value, dict):
            for k, v in value.items():
                yield from walk(v, f"{name}.{k}", [*path, value])

    names = []
    for prefix, child in module.named_modules():
        for attribute, value in vars(child).items():
            if attribute in ("_parameters", "_buffers", "_modules"):
                continue
            names += walk(value, (prefix + "." + attribute).lstrip("."), [])
    return names
""",
    },
}

WRONG = {
    "9.1": [
        Wrong(
            "list-not-registered",
            """
class Tower(nn.Module):
    def __init__(self, width=8, depth=2):
        super().__init__()
        self.blocks = [nn.Sequential(nn.Linear(width, width), nn.Dropout(0.5)) for _ in range(depth)]
        self.heads = nn.ModuleDict({"a": nn.Linear(width, 3), "b": nn.Linear(width, 2)})
        self.register_buffer("scale", torch.full((width,), 0.5))

    def forward(self, x, head):
        for block in self.blocks:
            x = torch.relu(block.to(x.device)(x))
        mask = torch.ones(x.shape[1], x.shape[1], device=x.device).tril()
        return self.heads[head](mask @ (x * self.scale))
""",
            "pytorch#15005",
        ),
        Wrong(
            "dict-not-registered",
            """
class Tower(nn.Module):
    def __init__(self, width=8, depth=2):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.Dropout(0.5)) for _ in range(depth))
        self.heads = {"a": nn.Linear(width, 3), "b": nn.Linear(width, 2)}
        self.register_buffer("scale", torch.full((width,), 0.5))

    def forward(self, x, head):
        for block in self.blocks:
            x = torch.relu(block(x))
        return self.heads[head]((x * self.scale).cumsum(1))
""",
            "pytorch#131861",
        ),
        Wrong(
            "scale-not-registered",
            """
class Tower(nn.Module):
    def __init__(self, width=8, depth=2):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.Dropout(0.5)) for _ in range(depth))
        self.heads = nn.ModuleDict({"a": nn.Linear(width, 3), "b": nn.Linear(width, 2)})
        self.scale = torch.full((width,), 0.5)

    def forward(self, x, head):
        for block in self.blocks:
            x = torch.relu(block(x))
        return self.heads[head]((x * self.scale.to(x)).cumsum(1))
""",
            "torchgeo PR#3232",
        ),
        Wrong(
            "overridden-instead-of-registered",
            """
class Tower(nn.Module):
    def __init__(self, width=8, depth=2):
        super().__init__()
        self.blocks = [nn.Sequential(nn.Linear(width, width), nn.Dropout(0.5)) for _ in range(depth)]
        self.heads = {"a": nn.Linear(width, 3), "b": nn.Linear(width, 2)}
        self.scale = torch.full((width,), 0.5)
        self.mask = None

    def _apply(self, fn, *args):
        super()._apply(fn, *args)
        self.blocks = [block._apply(fn) for block in self.blocks]
        self.heads = {name: head._apply(fn) for name, head in self.heads.items()}
        self.scale = fn(self.scale)
        self.mask = None
        return self

    def forward(self, x, head):
        if self.mask is None or len(self.mask) != x.shape[1]:
            self.mask = torch.ones(x.shape[1], x.shape[1], device=x.device, dtype=x.dtype).tril()
        for block in self.blocks:
            x = torch.relu(block(x))
        return self.heads[head](self.mask @ (x * self.scale))
""",
            "the article; refused in unit8co/darts#3052",
        ),
        Wrong(
            "scale-not-saved",
            """
class Tower(nn.Module):
    def __init__(self, width=8, depth=2):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.Dropout(0.5)) for _ in range(depth))
        self.heads = nn.ModuleDict({"a": nn.Linear(width, 3), "b": nn.Linear(width, 2)})
        self.register_buffer("scale", torch.full((width,), 0.5), persistent=False)

    def forward(self, x, head):
        for block in self.blocks:
            x = torch.relu(block(x))
        return self.heads[head]((x * self.scale).cumsum(1))
""",
        ),
        Wrong(
            "scale-is-parameter",
            """
class Tower(nn.Module):
    def __init__(self, width=8, depth=2):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.Dropout(0.5)) for _ in range(depth))
        self.heads = nn.ModuleDict({"a": nn.Linear(width, 3), "b": nn.Linear(width, 2)})
        self.scale = nn.Parameter(torch.full((width,), 0.5), requires_grad=False)

    def forward(self, x, head):
        for block in self.blocks:
            x = torch.relu(block(x))
        return self.heads[head]((x * self.scale).cumsum(1))
""",
        ),
        Wrong(
            "mask-left-behind",
            """
class Tower(nn.Module):
    def __init__(self, width=8, depth=2):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.Dropout(0.5)) for _ in range(depth))
        self.heads = nn.ModuleDict({"a": nn.Linear(width, 3), "b": nn.Linear(width, 2)})
        self.register_buffer("scale", torch.full((width,), 0.5))
        self.mask = None

    def forward(self, x, head):
        if self.mask is None or len(self.mask) != x.shape[1]:
            self.mask = torch.ones(x.shape[1], x.shape[1], device=x.device).tril()
        for block in self.blocks:
            x = torch.relu(block(x))
        return self.heads[head](self.mask @ (x * self.scale))
""",
            "lyuwenyu/RT-DETR#677",
        ),
        Wrong(
            "mask-made-on-the-cpu",
            """
class Tower(nn.Module):
    def __init__(self, width=8, depth=2):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.Dropout(0.5)) for _ in range(depth))
        self.heads = nn.ModuleDict({"a": nn.Linear(width, 3), "b": nn.Linear(width, 2)})
        self.register_buffer("scale", torch.full((width,), 0.5))

    def forward(self, x, head):
        mask = torch.ones(x.shape[1], x.shape[1]).tril()
        for block in self.blocks:
            x = torch.relu(block(x))
        return self.heads[head](mask @ (x * self.scale))
""",
            "pytorch/audio PR#457",
        ),
        Wrong(
            "mask-in-state-dict",
            """
class Tower(nn.Module):
    def __init__(self, width=8, depth=2):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.Dropout(0.5)) for _ in range(depth))
        self.heads = nn.ModuleDict({"a": nn.Linear(width, 3), "b": nn.Linear(width, 2)})
        self.register_buffer("scale", torch.full((width,), 0.5))
        self.register_buffer("mask", None)

    def forward(self, x, head):
        if self.mask is None or len(self.mask) != x.shape[1]:
            self.mask = torch.ones(x.shape[1], x.shape[1], device=x.device).tril()
        for block in self.blocks:
            x = torch.relu(block(x))
        return self.heads[head](self.mask @ (x * self.scale))
""",
        ),
        Wrong(
            "mask-keeps-dtype",
            """
class Tower(nn.Module):
    def __init__(self, width=8, depth=2):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.Dropout(0.5)) for _ in range(depth))
        self.heads = nn.ModuleDict({"a": nn.Linear(width, 3), "b": nn.Linear(width, 2)})
        self.register_buffer("scale", torch.full((width,), 0.5))
        self.masks = {}

    def forward(self, x, head):
        key = (x.shape[1], x.device)
        if key not in self.masks:
            self.masks[key] = torch.ones(x.shape[1], x.shape[1], device=x.device).tril()
        for block in self.blocks:
            x = torch.relu(block(x))
        return self.heads[head](self.masks[key] @ (x * self.scale))
""",
        ),
        Wrong(
            "mask-of-one-length",
            """
class Tower(nn.Module):
    def __init__(self, width=8, depth=2):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.Dropout(0.5)) for _ in range(depth))
        self.heads = nn.ModuleDict({"a": nn.Linear(width, 3), "b": nn.Linear(width, 2)})
        self.register_buffer("scale", torch.full((width,), 0.5))
        self.register_buffer("mask", None, persistent=False)

    def forward(self, x, head):
        if self.mask is None:
            self.mask = torch.ones(x.shape[1], x.shape[1], device=x.device, dtype=x.dtype).tril()
        for block in self.blocks:
            x = torch.relu(block(x))
        return self.heads[head](self.mask @ (x * self.scale))
""",
        ),
        Wrong(
            "other-keys",
            """
class Tower(nn.Module):
    def __init__(self, width=8, depth=2):
        super().__init__()
        self.blocks = []
        for i in range(depth):
            self.blocks.append(nn.Sequential(nn.Linear(width, width), nn.Dropout(0.5)))
            self.add_module(f"block{i}", self.blocks[-1])
        self.heads = nn.ModuleDict({"a": nn.Linear(width, 3), "b": nn.Linear(width, 2)})
        self.register_buffer("scale", torch.full((width,), 0.5))

    def forward(self, x, head):
        for block in self.blocks:
            x = torch.relu(block(x))
        return self.heads[head]((x * self.scale).cumsum(1))
""",
        ),
    ],
    "9.2": [
        Wrong(
            "hard-coded-device",
            """
def train_step(model, batch, optimizer):
    x, labels = batch[0].cuda(), batch[1].cuda()
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), labels)
    loss.backward()
    optimizer.step()
    return loss.item()
""",
        ),
        Wrong(
            "batch-left-behind",
            """
def train_step(model, batch, optimizer):
    x, labels = batch
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), labels)
    loss.backward()
    optimizer.step()
    return loss.item()
""",
        ),
        Wrong(
            "result-of-to-dropped",
            """
def train_step(model, batch, optimizer):
    device = next(model.parameters()).device
    x, labels = batch
    x.to(device)
    labels.to(device)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), labels)
    loss.backward()
    optimizer.step()
    return loss.item()
""",
        ),
        Wrong(
            "labels-left-behind",
            """
def train_step(model, batch, optimizer):
    x, labels = batch
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x.to(next(model.parameters()).device)), labels)
    loss.backward()
    optimizer.step()
    return loss.item()
""",
        ),
        Wrong(
            "model-moved",
            """
def train_step(model, batch, optimizer):
    x, labels = batch
    model.to(x.device)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), labels)
    loss.backward()
    optimizer.step()
    return loss.item()
""",
        ),
        Wrong(
            "gradients-accumulate",
            """
def train_step(model, batch, optimizer):
    device = next(model.parameters()).device
    x, labels = (t.to(device) for t in batch)
    loss = F.cross_entropy(model(x), labels)
    loss.backward()
    optimizer.step()
    return loss.item()
""",
        ),
        Wrong(
            "weights-do-not-change",
            """
def train_step(model, batch, optimizer):
    device = next(model.parameters()).device
    x, labels = (t.to(device) for t in batch)
    loss = F.cross_entropy(model(x), labels)
    loss.backward()
    optimizer.zero_grad()
    optimizer.step()
    return loss.item()
""",
        ),
        Wrong(
            "loss-after-update",
            """
def train_step(model, batch, optimizer):
    device = next(model.parameters()).device
    x, labels = (t.to(device) for t in batch)
    optimizer.zero_grad()
    F.cross_entropy(model(x), labels).backward()
    optimizer.step()
    with torch.no_grad():
        return F.cross_entropy(model(x), labels).item()
""",
        ),
        Wrong(
            "not-a-float",
            """
def train_step(model, batch, optimizer):
    device = next(model.parameters()).device
    x, labels = (t.to(device) for t in batch)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), labels)
    loss.backward()
    optimizer.step()
    return loss.detach()
""",
        ),
        Wrong(
            "too-many-syncs",
            """
def train_step(model, batch, optimizer):
    device = next(model.parameters()).device
    x, labels = (t.to(device) for t in batch)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), labels)
    if torch.isnan(loss):
        raise ValueError("the loss is not a number")
    loss.backward()
    optimizer.step()
    print(f"loss {loss.item():.3f}")
    return loss.item()
""",
        ),
    ],
    "9.3": [
        Wrong(
            "stays-on-the-device",
            """
def to_numpy(tensor):
    return tensor.detach().numpy().copy()
""",
            "the article",
        ),
        Wrong(
            "still-requires-grad",
            """
def to_numpy(tensor):
    return tensor.cpu().numpy().copy()
""",
        ),
        Wrong(
            "bfloat16-unknown",
            """
def to_numpy(tensor):
    return tensor.numpy(force=True).copy()
""",
        ),
        Wrong(
            "bfloat16-not-float32",
            """
def to_numpy(tensor):
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.half()
    return tensor.numpy().copy()
""",
        ),
        Wrong(
            "dtype-changed",
            """
def to_numpy(tensor):
    return tensor.detach().cpu().float().numpy().copy()
""",
        ),
        Wrong(
            "dtype-changed",
            """
def to_numpy(tensor):
    return np.array(tensor.tolist())
""",
        ),
        Wrong(
            "conjugate-bit",
            """
def to_numpy(tensor):
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    return tensor.numpy().copy()
""",
        ),
        Wrong(
            "negative-bit",
            """
def to_numpy(tensor):
    tensor = tensor.detach().cpu().resolve_conj()
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    return tensor.numpy().copy()
""",
        ),
        Wrong(
            "zero-dim-lost",
            """
def to_numpy(tensor):
    if tensor.dim() == 0:
        return tensor.item()
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    return tensor.numpy(force=True).copy()
""",
        ),
        Wrong(
            "tensor-changed",
            """
def to_numpy(tensor):
    if tensor.is_leaf:
        tensor.requires_grad_(False)
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    return tensor.numpy(force=True).copy()
""",
        ),
        Wrong(
            "aliases-the-tensor",
            """
def to_numpy(tensor):
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
""",
        ),
    ],
    "9.4": [
        Wrong(
            "optimizer-orphaned",
            """
def resume(make_model, make_optimizer, checkpoint, device):
    model = make_model()
    optimizer = make_optimizer(model.parameters())
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    model.to(device)
    return model, optimizer
""",
            "rasbt/LLMs-from-scratch#232",
        ),
        Wrong(
            "optimizer-orphaned",
            """
def resume(make_model, make_optimizer, checkpoint, device):
    model = make_model().to(device)
    optimizer = make_optimizer(model.parameters())
    weights = {name: value.to(device) for name, value in checkpoint["model"].items()}
    model.load_state_dict(weights, assign=True)
    optimizer.load_state_dict(checkpoint["optimizer"])
    return model, optimizer
""",
        ),
        Wrong(
            "state-left-behind",
            """
def resume(make_model, make_optimizer, checkpoint, device):
    model = make_model().to(device)
    model.load_state_dict(checkpoint["model"])
    optimizer = make_optimizer(model.parameters())
    saved = copy.deepcopy(checkpoint["optimizer"])
    optimizer.param_groups[0].update({k: v for k, v in saved["param_groups"][0].items() if k != "params"})
    for index, parameter in enumerate(model.parameters()):
        optimizer.state[parameter] = saved["state"][index]
    return model, optimizer
""",
            "microsoft/Cream#2",
        ),
        Wrong(
            "state-forgotten",
            """
def resume(make_model, make_optimizer, checkpoint, device):
    model = make_model().to(device)
    model.load_state_dict(checkpoint["model"])
    optimizer = make_optimizer(model.parameters())
    optimizer.param_groups[0]["lr"] = checkpoint["optimizer"]["param_groups"][0]["lr"]
    return model, optimizer
""",
        ),
        Wrong(
            "learning-rate-forgotten",
            """
def resume(make_model, make_optimizer, checkpoint, device):
    model = make_model().to(device)
    model.load_state_dict(checkpoint["model"])
    optimizer = make_optimizer(model.parameters())
    fresh = optimizer.param_groups[0]["lr"]
    optimizer.load_state_dict(checkpoint["optimizer"])
    optimizer.param_groups[0]["lr"] = fresh
    return model, optimizer
""",
        ),
        Wrong(
            "weights-not-loaded",
            """
def resume(make_model, make_optimizer, checkpoint, device):
    model = make_model().to(device)
    optimizer = make_optimizer(model.parameters())
    optimizer.load_state_dict(checkpoint["optimizer"])
    return model, optimizer
""",
        ),
        Wrong(
            "model-not-on-the-device",
            """
def resume(make_model, make_optimizer, checkpoint, device):
    model = make_model().to(device)
    model.load_state_dict(checkpoint["model"], assign=True)
    optimizer = make_optimizer(model.parameters())
    optimizer.load_state_dict(checkpoint["optimizer"])
    return model, optimizer
""",
        ),
        Wrong(
            "hard-coded-device",
            """
def resume(make_model, make_optimizer, checkpoint, device):
    model = make_model().to("cuda")
    model.load_state_dict(checkpoint["model"])
    optimizer = make_optimizer(model.parameters())
    optimizer.load_state_dict(checkpoint["optimizer"])
    return model, optimizer
""",
        ),
        Wrong(
            "no-pair",
            """
def resume(make_model, make_optimizer, checkpoint, device):
    model = make_model().to(device)
    model.load_state_dict(checkpoint["model"])
    return model
""",
        ),
    ],
    "9.5": [
        Wrong(
            "children-not-searched",
            """
def hidden_tensors(module):
    return [name for name, value in vars(module).items() if isinstance(value, (torch.Tensor, nn.Module))]
""",
        ),
        Wrong(
            "containers-not-opened",
            """
def hidden_tensors(module):
    found = []
    for path, child in module.named_modules():
        for name, value in vars(child).items():
            if isinstance(value, (torch.Tensor, nn.Module)):
                found.append(f"{path}.{name}" if path else name)
    return found
""",
        ),
        Wrong(
            "containers-not-opened",
            """
def hidden_tensors(module):
    found = []
    for path, child in module.named_modules():
        for name, value in vars(child).items():
            if name in ("_parameters", "_buffers", "_modules"):
                continue
            full = f"{path}.{name}" if path else name
            items = value if isinstance(value, (list, tuple)) else [value]
            items = value.values() if isinstance(value, dict) else items
            if any(isinstance(item, (torch.Tensor, nn.Module)) for item in items):
                found.append(full)
    return found
""",
        ),
        Wrong(
            "not-deep-enough",
            """
def hidden_tensors(module):
    found = []
    for path, child in module.named_modules():
        for name, value in vars(child).items():
            if name in ("_parameters", "_buffers", "_modules"):
                continue
            full = f"{path}.{name}" if path else name
            if isinstance(value, (torch.Tensor, nn.Module)):
                found.append(full)
            elif isinstance(value, (list, tuple, dict)):
                for key, item in value.items() if isinstance(value, dict) else enumerate(value):
                    if isinstance(item, (torch.Tensor, nn.Module)):
                        found.append(f"{full}.{key}")
    return found
""",
        ),
        Wrong(
            "private-skipped",
            """
def hidden_tensors(module):
    return [
        f"{path}.{name}" if path else name
        for path, child in module.named_modules()
        for name, value in vars(child).items()
        if isinstance(value, torch.Tensor) and not name.startswith("_")
    ]
""",
        ),
        Wrong(
            "modules-missed",
            """
def hidden_tensors(module):
    known, seen, found = {id(t) for t in [*module.parameters(), *module.buffers()]}, set(), []

    def look(value, name):
        if id(value) in known or id(value) in seen:
            return
        seen.add(id(value))
        if isinstance(value, torch.Tensor):
            found.append(name)
        elif isinstance(value, (list, tuple, dict)):
            for key, item in value.items() if isinstance(value, dict) else enumerate(value):
                look(item, f"{name}.{key}")

    for path, child in module.named_modules():
        for name, value in vars(child).items():
            look(value, f"{path}.{name}".lstrip("."))
    return found
""",
        ),
        Wrong(
            "registered-listed",
            """
def hidden_tensors(module):
    seen, found = set(), []

    def look(value, name):
        if id(value) in seen:
            return
        seen.add(id(value))
        if isinstance(value, (torch.Tensor, nn.Module)):
            found.append(name)
        elif isinstance(value, (list, tuple, dict)):
            for key, item in value.items() if isinstance(value, dict) else enumerate(value):
                look(item, f"{name}.{key}")

    for path, child in module.named_modules():
        for name, value in vars(child).items():
            if name not in ("_parameters", "_buffers", "_modules"):
                look(value, f"{path}.{name}".lstrip("."))
    return found
""",
        ),
        Wrong(
            "compared-by-value",
            """
def hidden_tensors(module):
    known, seen, found = [*module.parameters(), *module.buffers()], set(), []
    modules = list(module.modules())

    def look(value, name):
        if id(value) in seen:
            return
        seen.add(id(value))
        if isinstance(value, nn.Module):
            if value not in modules:
                found.append(name)
        elif isinstance(value, torch.Tensor):
            if not any(value.shape == k.shape and torch.equal(value, k) for k in known):
                found.append(name)
        elif isinstance(value, (list, tuple, dict)):
            for key, item in value.items() if isinstance(value, dict) else enumerate(value):
                look(item, f"{name}.{key}")

    for path, child in module.named_modules():
        for name, value in vars(child).items():
            if name not in ("_parameters", "_buffers", "_modules"):
                look(value, f"{path}.{name}".lstrip("."))
    return found
""",
        ),
        Wrong(
            "compared-by-value",
            """
def hidden_tensors(module):
    known = list(module.parameters()) + list(module.buffers())
    return [
        f"{path}.{name}".lstrip(".")
        for path, child in module.named_modules()
        for name, value in vars(child).items()
        if isinstance(value, torch.Tensor) and value not in known
    ]
""",
        ),
        Wrong(
            "endless",
            """
def hidden_tensors(module):
    known, found = {id(t) for t in [*module.parameters(), *module.buffers(), *module.modules()]}, []

    def look(value, name):
        if id(value) in known:
            return
        if isinstance(value, (torch.Tensor, nn.Module)):
            found.append(name)
        elif isinstance(value, (list, tuple, dict)):
            for key, item in value.items() if isinstance(value, dict) else enumerate(value):
                look(item, f"{name}.{key}")

    for path, child in module.named_modules():
        for name, value in vars(child).items():
            if name not in ("_parameters", "_buffers", "_modules"):
                look(value, f"{path}.{name}".lstrip("."))
    return found
""",
        ),
        Wrong(
            "other-names",
            """
def hidden_tensors(module):
    known, seen, found = {id(t) for t in [*module.parameters(), *module.buffers(), *module.modules()]}, set(), []

    def look(value, name):
        if id(value) in known or id(value) in seen:
            return
        seen.add(id(value))
        if isinstance(value, (torch.Tensor, nn.Module)):
            found.append(name)
        elif isinstance(value, (list, tuple, dict)):
            for key, item in value.items() if isinstance(value, dict) else enumerate(value):
                look(item, f"{name}[{key!r}]")

    for path, child in module.named_modules():
        for name, value in vars(child).items():
            if name not in ("_parameters", "_buffers", "_modules"):
                look(value, f"{path}.{name}".lstrip("."))
    return found
""",
        ),
        Wrong(
            "other-names",
            """
def hidden_tensors(module):
    copied, seen, found = copy.deepcopy(module).to("meta"), set(), []

    def look(value, path):
        if id(value) in seen:
            return
        seen.add(id(value))
        if isinstance(value, torch.Tensor):
            if value.device.type != "meta":
                found.append(".".join(path))
        elif isinstance(value, (nn.Module, dict, list, tuple)):
            items = vars(value) if isinstance(value, nn.Module) else value
            for key, item in items.items() if isinstance(items, dict) else enumerate(items):
                look(item, [*path, str(key)])

    look(copied, [])
    return found
""",
        ),
        Wrong(
            "attributes-missed",
            """
def hidden_tensors(module):
    known, seen, found = {id(t) for t in [*module.parameters(), *module.buffers(), *module.modules()]}, set(), []

    def look(container, path):
        if id(container) in seen:
            return
        seen.add(id(container))
        for key, item in container.items() if isinstance(container, dict) else enumerate(container):
            if isinstance(item, (list, tuple, dict)):
                look(item, f"{path}.{key}")
            elif isinstance(item, (torch.Tensor, nn.Module)) and id(item) not in known:
                found.append(f"{path}.{key}")

    for path, child in module.named_modules():
        for name, value in vars(child).items():
            if isinstance(value, (list, tuple, dict)) and name not in ("_parameters", "_buffers", "_modules"):
                look(value, f"{path}.{name}".lstrip("."))
    return found
""",
        ),
    ],
}
