"""Right and wrong answers to the exercises of chapter 6."""

from . import Wrong

LAYOUT_ROWS = """
def predict_layouts():
    rows = {
        "a.t()": ((3, 2), (1, 3), True),
        "a.view(3, 2)": ((3, 2), (2, 1), True),
        "a.reshape(6)": ((6,), (1,), True),
        "a.t().reshape(6)": ((6,), (1,), False),
        "a.t().contiguous()": ((3, 2), (2, 1), False),
        "a[:, 1]": ((2,), (3,), True),
        "a[[0, 1]]": ((2, 3), (3, 1), False),
        "a[:1].expand(4, 3)": ((4, 3), (0, 1), True),
    }
    rows.update(CHANGED)
    return rows
"""


def layouts_but(changed: str) -> str:
    """The right table with some rows replaced."""
    return f"CHANGED = {{{changed}}}\n" + LAYOUT_ROWS


CHANNELS = """
def to_channels_first(images):
    return images.movedim(-1, 1)
"""

SPLIT = """
def split_heads(x, heads):
    B, T, F = x.shape
    return x.view(B, T, heads, F // heads).transpose(1, 2)
"""

MERGE = """
def merge_heads(x):
    B, H, T, D = x.shape
    return x.transpose(1, 2).reshape(B, T, H * D)
"""

REFUSING_LOSS = """
def regression_loss(pred, target):
    p, t = tuple(pred.shape), tuple(target.shape)
    if p != t and not (len(p) + len(t) == 3 and p[0] == t[0] and max(p, t, key=len)[1] == 1):
        raise ValueError(f"pred is {p}, target is {t}")
"""

CHUNKS = """
def joined(size, stride):
    chunks = []
    for n, s in zip(size, stride):
        if n == 1:
            continue
        if chunks and chunks[-1][1] == n * s:
            chunks[-1] = (chunks[-1][0] * n, s)
        else:
            chunks.append((n, s))
    return [n for n, _ in chunks]

def fits(chunks, new_size):
    new = [n for n in new_size if n != 1]
    for n in chunks:
        have = 1
        while have < n and new:
            have *= new.pop(0)
        if have != n:
            return False
    return True
"""

ALTERNATIVES = {
    "6.1": {
        "computed": """
def predict_layouts():
    a = torch.arange(6).reshape(2, 3)
    rows = {}
    for text in ["a.t()", "a.view(3, 2)", "a.reshape(6)", "a.t().reshape(6)", "a.t().contiguous()", "a[:, 1]",
                 "a[[0, 1]]", "a[:1].expand(4, 3)"]:
        b = eval(text)
        rows[text] = (b.shape, b.stride(), b.untyped_storage().data_ptr() == a.untyped_storage().data_ptr())
    return rows
""",
        "lists, with a row to spare": """
def predict_layouts():
    return {
        "a": [[2, 3], [3, 1], True],
        "a[:1].expand(4, 3)": [[4, 3], [0, 1], True],
        "a[[0, 1]]": [[2, 3], [3, 1], False],
        "a[:, 1]": [[2], [3], True],
        "a.t().contiguous()": [[3, 2], [2, 1], False],
        "a.t().reshape(6)": [[6], [1], False],
        "a.reshape(6)": [[6], [1], True],
        "a.view(3, 2)": [[3, 2], [2, 1], True],
        "a.t()": [[3, 2], [1, 3], True],
    }
""",
    },
    "6.2": {
        "flattened from dimension 1": "def pool_logits(features):\n    return features.flatten(1)\n",
        "indexed": "def pool_logits(features):\n    return features[:, :, 0, 0]\n",
        "sizes named": """
def pool_logits(features):
    B, C = features.shape[:2]
    return features.view(B, C)
""",
        "averaged over the two dimensions": "def pool_logits(features):\n    return features.mean((-1, -2))\n",
        "one at a time, from the back": "def pool_logits(features):\n    return features.squeeze(-1).squeeze(-1)\n",
        "permuted first": """
def pool_logits(features):
    return features.permute(2, 3, 0, 1)[0][0]
""",
    },
    "6.3": {
        "movedim, view and reshape": CHANNELS + SPLIT + MERGE,
        "einsum, chunks and a concatenation": """
def to_channels_first(images):
    return torch.einsum("bhwc->bchw", images)

def split_heads(x, heads):
    return torch.stack(x.chunk(heads, dim=-1), dim=1)

def merge_heads(x):
    return torch.cat(x.unbind(1), dim=-1)
""",
        "filled slice by slice": """
def to_channels_first(images):
    B, H, W, C = images.shape
    out = images.new_zeros(B, C, H, W)
    for c in range(C):
        out[:, c] = images[..., c]
    return out

def split_heads(x, heads):
    D = x.shape[2] // heads
    return torch.stack([x[:, :, h * D:(h + 1) * D] for h in range(heads)], 1)

def merge_heads(x):
    out = torch.empty(x.shape[0], x.shape[2], x.shape[1] * x.shape[3], dtype=x.dtype)
    D = x.shape[3]
    for h in range(x.shape[1]):
        out[..., h * D:(h + 1) * D] = x[:, h]
    return out
""",
        "two transposes, one permute, contiguous before each view": """
def to_channels_first(images):
    return images.transpose(1, 3).transpose(2, 3).contiguous()

def split_heads(x, heads):
    B, T, F = x.size()
    return x.contiguous().view(B, T, heads, -1).permute(0, 2, 1, 3).contiguous()

def merge_heads(x):
    B, H, T, D = x.size()
    return x.permute(0, 2, 1, 3).contiguous().view(B, T, -1)
""",
    },
    "6.4": {
        "the library loss after the shapes are settled": REFUSING_LOSS
        + """
    return F.mse_loss(pred.reshape(-1), target.reshape(-1).to(pred.dtype))
""",
        "squeezes the column of whichever is one": """
def regression_loss(pred, target):
    a, b = pred, target
    if a.ndim == 2 and b.ndim == 1 and a.shape[1] == 1:
        a = a[:, 0]
    elif b.ndim == 2 and a.ndim == 1 and b.shape[1] == 1:
        b = b.squeeze(1)
    if a.size() != b.size():
        raise ValueError("shapes {} and {} differ".format(list(pred.size()), list(target.size())))
    d = a - b
    return (d * d).sum() / d.numel()
""",
        "shapes as torch writes them, a norm": REFUSING_LOSS.replace(
            'f"pred is {p}, target is {t}"', 'f"{target.shape=} does not fit {pred.shape=}"'
        )
        + """
    return (pred.flatten() - target.flatten()).pow(2).mean()
""",
    },
    "6.5": {
        "chunks, then sizes": CHUNKS
        + """
def can_view(size, stride, new_size):
    if math.prod(size) != math.prod(new_size):
        return False
    return 0 in size or fits(joined(size, stride), new_size)
""",
        "by the places that are read": """
import itertools

def can_view(size, stride, new_size):
    if math.prod(size) != math.prod(new_size):
        return False
    places = [sum(i * s for i, s in zip(index, stride)) for index in itertools.product(*map(range, size))]
    inner = 1
    steps = []
    for n in reversed(new_size):
        steps.insert(0, places[inner] - places[0] if n > 1 and inner < len(places) else 0)
        inner *= n
    wanted = itertools.product(*map(range, new_size))
    return all(places[0] + sum(i * s for i, s in zip(index, steps)) == place for index, place in zip(wanted, places))
""",
        "index tensors, reshaped and looked at": """
def can_view(size, stride, new_size):
    if math.prod(size) != math.prod(new_size):
        return False
    if math.prod(size) == 0:
        return True
    places = torch.zeros((), dtype=torch.int64)
    for n, s in zip(size, stride):
        places = places[..., None] + s * torch.arange(n)
    places = places.reshape(new_size)
    return all(len(places.diff(dim=d).unique()) <= 1 for d in range(places.dim()))
""",
        "torch's own algorithm, from the back": """
def can_view(size, stride, new_size):
    if math.prod(size) != math.prod(new_size):
        return False
    if math.prod(size) == 0 or len(size) == 0:
        return True
    v = len(new_size) - 1
    base, old, new = stride[-1], 1, 1
    for d in range(len(size) - 1, -1, -1):
        old *= size[d]
        if d == 0 or (size[d - 1] != 1 and stride[d - 1] != old * base):
            while v >= 0 and (new < old or new_size[v] == 1):
                new *= new_size[v]
                v -= 1
            if new != old:
                return False
            if d > 0:
                base, old, new = stride[d - 1], 1, 1
    return v == -1
""",
        "cut points as sets, numbers computed with a tensor": """
def can_view(size, stride, new_size):
    total = int(torch.tensor([1, *size]).prod())
    if total != int(torch.tensor([1, *new_size]).prod()):
        return False
    if total == 0:
        return True
    dims = [(n, s) for n, s in zip(size, stride) if n != 1]
    needed, inner = set(), 1
    for d in range(len(dims) - 1, 0, -1):
        inner *= dims[d][0]
        if dims[d - 1][1] != dims[d][0] * dims[d][1]:
            needed.add(inner)
    offered, inner = set(), 1
    for n in reversed(new_size):
        inner *= n
        offered.add(inner)
    return needed <= offered
""",
    },
}

WRONG = {
    "6.1": [
        Wrong("reshape-never-copies", layouts_but('"a.t().reshape(6)": ((6,), (1,), True)'), "facts: a.t().reshape"),
        Wrong("contiguous-in-place", layouts_but('"a.t().contiguous()": ((3, 2), (2, 1), True)')),
        Wrong("transpose-moves-data", layouts_but('"a.t()": ((3, 2), (2, 1), False)'), "article B, claim 6.4"),
        Wrong("view-is-transpose", layouts_but('"a.view(3, 2)": ((3, 2), (1, 3), True)'), "rish-16/tokenlearner#1"),
        Wrong("reshape-always-copies", layouts_but('"a.reshape(6)": ((6,), (1,), False)')),
        Wrong("list-index-is-view", layouts_but('"a[[0, 1]]": ((2, 3), (3, 1), True)')),
        Wrong("expand-is-packed", layouts_but('"a[:1].expand(4, 3)": ((4, 3), (3, 1), False)')),
        Wrong("view-copies", layouts_but('"a[:1].expand(4, 3)": ((4, 3), (0, 1), False)')),
        Wrong("view-copies", layouts_but('"a.t()": ((3, 2), (1, 3), False)')),
        Wrong("column-is-packed", layouts_but('"a[:, 1]": ((2,), (1,), False)')),
        Wrong("contiguous-keeps-strides", layouts_but('"a.t().contiguous()": ((3, 2), (1, 3), False)')),
    ],
    "6.2": [
        Wrong(
            "batch-of-one-lost",
            "def pool_logits(features):\n    return features.squeeze()\n",
            "ludwig PR#1726, NVIDIA/tacotron2 PR#303, layumi/Person_reID#77",
        ),
        Wrong(
            "one-channel-lost",
            """
def pool_logits(features):
    out = features.squeeze()
    return out.unsqueeze(0) if out.dim() == 1 else out
""",
            "layumi/Person_reID#77",
        ),
        Wrong(
            "batch-of-one-lost",
            """
def pool_logits(features):
    if len(features) == 1:
        raise ValueError("use drop_last=True")
    return features.squeeze(3).squeeze(2)
""",
            "chenyuntc/scene-baseline#2: drop_last hides it",
        ),
        Wrong(
            "empty-batch",
            "def pool_logits(features):\n    return features.reshape(len(features), -1)\n",
        ),
        Wrong(
            "empty-batch",
            """
def pool_logits(features):
    return torch.stack([sample[:, 0, 0] for sample in features])
""",
        ),
        Wrong("input-changed", "def pool_logits(features):\n    return features.squeeze_(3).squeeze_(2)\n"),
        Wrong("dtype-changed", "def pool_logits(features):\n    return features.flatten(1).double()\n"),
        Wrong("dtype-changed", "def pool_logits(features):\n    return features.flatten(1).float()\n"),
        Wrong("graph-cut", "def pool_logits(features):\n    return features.detach().flatten(1)\n"),
        Wrong(
            "graph-cut",
            "def pool_logits(features):\n    return torch.from_numpy(features.numpy()[:, :, 0, 0].copy())\n",
        ),
        Wrong("dimension-left", "def pool_logits(features):\n    return features.squeeze(-1)\n"),
        Wrong("dimension-left", "def pool_logits(features):\n    return features.squeeze(2).squeeze(1)\n"),
        Wrong("batch-size-fixed", "def pool_logits(features):\n    return features.view(4, -1)\n"),
        Wrong(
            "numbers-moved",
            "def pool_logits(features):\n    B, C = features.shape[:2]\n    return features.reshape(C, B).t()\n",
        ),
        Wrong(
            "one-channel-lost",
            """
def pool_logits(features):
    out = features.squeeze()
    return out[None] if features.shape[0] == 1 else out
""",
        ),
    ],
    "6.3": [
        Wrong(
            "merge-forgets-transpose",
            CHANNELS + SPLIT + "def merge_heads(x):\n    B, H, T, D = x.shape\n    return x.reshape(B, T, H * D)\n",
            "jsbaan/transformer-from-scratch PR#6",
        ),
        Wrong(
            "view-for-permute",
            "def to_channels_first(images):\n    B, H, W, C = images.shape\n    return images.view(B, C, H, W)\n"
            + SPLIT
            + MERGE,
            "rish-16/tokenlearner#1",
        ),
        Wrong(
            "heads-by-view",
            CHANNELS
            + "def split_heads(x, heads):\n    B, T, F = x.shape\n    return x.view(B, heads, T, -1)\n"
            + MERGE,
            "rish-16/tokenlearner#1",
        ),
        Wrong(
            "height-width-swapped",
            "def to_channels_first(images):\n    return images.transpose(1, 3)\n" + SPLIT + MERGE,
        ),
        Wrong(
            "view-needs-contiguous",
            CHANNELS
            + SPLIT
            + "def merge_heads(x):\n    B, H, T, D = x.shape\n    return x.transpose(1, 2).view(B, T, H * D)\n",
        ),
        Wrong(
            "features-interleaved",
            CHANNELS
            + "def split_heads(x, heads):\n    return x.unflatten(2, (-1, heads)).permute(0, 3, 1, 2)\n"
            + "def merge_heads(x):\n    return x.permute(0, 2, 3, 1).flatten(2)\n",
        ),
        Wrong(
            "heads-behind-positions",
            CHANNELS + "def split_heads(x, heads):\n    return x.unflatten(2, (heads, -1))\n" + MERGE,
        ),
        Wrong(
            "heads-is-width",
            CHANNELS + "def split_heads(x, heads):\n    return x.unflatten(2, (-1, heads)).transpose(1, 2)\n" + MERGE,
        ),
        Wrong(
            "assumes-layout",
            """
def to_channels_first(images):
    B, H, W, C = images.shape
    return images.as_strided((B, C, H, W), (H * W * C, 1, W * C, C))
"""
            + SPLIT
            + MERGE,
        ),
        Wrong(
            "graph-cut",
            """
def to_channels_first(images):
    return torch.from_numpy(images.detach().numpy().transpose(0, 3, 1, 2))
"""
            + SPLIT
            + MERGE,
        ),
        Wrong(
            "graph-cut",
            CHANNELS
            + SPLIT
            + "def merge_heads(x):\n    return torch.tensor(np.concatenate(list(x.numpy().swapaxes(0, 1)), -1))\n",
        ),
        Wrong(
            "batch-of-one-lost",
            CHANNELS + SPLIT + "def merge_heads(x):\n    return x.transpose(1, 2).squeeze(0).flatten(-2)\n",
        ),
        Wrong(
            "graph-cut",
            "@torch.no_grad()\ndef to_channels_first(images):\n    return images.permute(0, 3, 1, 2)\n" + SPLIT + MERGE,
        ),
        Wrong(
            "input-changed",
            "def to_channels_first(images):\n    return images.transpose_(1, 3).transpose_(2, 3)\n" + SPLIT + MERGE,
        ),
        Wrong(
            "dtype-changed",
            """
def to_channels_first(images):
    return images.float().permute(0, 3, 1, 2)

def split_heads(x, heads):
    return x.float().unflatten(2, (heads, -1)).transpose(1, 2)

def merge_heads(x):
    return x.float().transpose(1, 2).flatten(2)
""",
        ),
        Wrong(
            "dtype-changed",
            CHANNELS
            + SPLIT
            + """
def merge_heads(x):
    B, H, T, D = x.shape
    out = torch.empty(B, T, H * D)
    for h in range(H):
        out[..., h * D:(h + 1) * D] = x[:, h]
    return out
""",
        ),
        Wrong(
            "rows-mixed",
            CHANNELS + SPLIT + MERGE.replace("(B, T, H * D)", "(B, T, H * D) + (x.mean() - x.mean().detach())"),
        ),
        Wrong(
            "merge-not-inverse",
            CHANNELS
            + SPLIT
            + """
def merge_heads(x):
    B, H, T, D = x.shape
    if x.stride(2) > x.stride(1):  # it still lies as before split_heads
        return x.as_strided((B, T, H * D), (T * H * D, H * D, 1))
    return x.transpose(1, 2).reshape(B, T, H * D)
""",
        ),
    ],
    "6.4": [
        Wrong(
            "broadcast",
            "def regression_loss(pred, target):\n    return ((pred - target) ** 2).mean()\n",
            "discuss 160720; jsboige/CoursIA PR#926",
        ),
        Wrong(
            "broadcast", "def regression_loss(pred, target):\n    return F.mse_loss(pred, target)\n", "pytorch#19699"
        ),
        Wrong(
            "equal-numel-accepted",
            "def regression_loss(pred, target):\n    return F.mse_loss(pred, target.view_as(pred).float())\n",
            "pytorch#16045: the advice given there",
        ),
        Wrong(
            "equal-numel-accepted",
            """
def regression_loss(pred, target):
    if pred.numel() != target.numel():
        raise ValueError(f"{tuple(pred.shape)} and {tuple(target.shape)}")
    return (pred.flatten() - target.flatten()).square().mean()
""",
        ),
        Wrong(
            "only-one-order",
            """
def regression_loss(pred, target):
    if target.dim() == 1:
        target = target.unsqueeze(1)
    return ((pred - target) ** 2).mean()
""".replace("if target.dim() == 1:", "if target.dim() == 1 and pred.dim() == 2:"),
        ),
        Wrong(
            "only-one-order",
            """
def regression_loss(pred, target):
    if pred.dim() == 2 and target.dim() == 1:
        pred = pred.squeeze(1)
    if pred.shape != target.shape:
        raise ValueError(f"{pred.shape} and {target.shape}")
    return ((pred - target) ** 2).mean()
""",
        ),
        Wrong(
            "broadcast",
            """
def regression_loss(pred, target):
    if pred.dim() != target.dim():
        target = target.unsqueeze(0) if target.dim() == 1 else target
        pred = pred.unsqueeze(0) if pred.dim() == 1 else pred
    return ((pred - target) ** 2).mean()
""",
            "facts: y.unsqueeze(0)",
        ),
        Wrong(
            "column-refused",
            """
def regression_loss(pred, target):
    if pred.shape != target.shape:
        raise ValueError(f"pred {tuple(pred.shape)}, target {tuple(target.shape)}")
    return F.mse_loss(pred, target)
""",
        ),
        Wrong(
            "extra-ones-dropped",
            """
def regression_loss(pred, target):
    p, t = pred.squeeze(), target.squeeze()
    if p.shape != t.shape:
        raise ValueError(f"pred {tuple(pred.shape)}, target {tuple(target.shape)}")
    return (p - t).pow(2).mean()
""",
        ),
        Wrong(
            "scalar-accepted",
            """
def regression_loss(pred, target):
    p, t = tuple(pred.shape), tuple(target.shape)
    n = pred.numel()
    if p != t and {p, t} != {(n,), (n, 1)} and {p, t} != {(), (1,)}:
        raise ValueError(f"{p} and {t}")
    return (pred.flatten() - target.flatten()).square().mean()
""",
        ),
        Wrong(
            "scalar-accepted",
            """
def regression_loss(pred, target):
    p, t = tuple(pred.shape), tuple(target.shape)
    n = target.numel()
    if p != t and {p, t} != {(n,), (n, 1)} and (p or n > 1):
        raise ValueError(f"{p} and {t}")
    return (pred.flatten() - target.flatten()).square().mean()
""",
        ),
        Wrong(
            "broadcast-accepted",
            """
def regression_loss(pred, target):
    p, t = tuple(pred.shape), tuple(target.shape)
    if pred.dim() != target.dim() and pred.numel() == target.numel() and pred.shape[0] == target.shape[0] \\
            and pred.dim() + target.dim() == 3:
        target = target.reshape(p)
    elif p != t and (pred.numel() == target.numel() or {len(p), len(t)} == {2} and len({p[0], t[0]}) == 2):
        raise ValueError(f"{p} {t}")
    return ((pred - target) ** 2).mean()
""",
        ),
        Wrong(
            "one-sample-refused",
            """
def regression_loss(pred, target):
    p, t = pred.squeeze(-1) if pred.dim() else pred, target.squeeze(-1) if target.dim() else target
    if p.shape != t.shape:
        raise ValueError(f"{tuple(pred.shape)} and {tuple(target.shape)}")
    return (p - t).pow(2).mean()
""",
        ),
        Wrong(
            "not-a-value-error",
            """
def regression_loss(pred, target):
    p, t = tuple(pred.shape), tuple(target.shape)
    assert p == t or (len(p) + len(t) == 3 and max(p, t, key=len) == (*min(p, t, key=len), 1)), f"{p} {t}"
    return (pred.flatten() - target.flatten()).square().mean()
""",
            "pytorch#19699: assert",
        ),
        Wrong(
            "shapes-not-named",
            REFUSING_LOSS.replace('f"pred is {p}, target is {t}"', '"shapes differ"')
            + "    return (pred.flatten() - target.flatten()).square().mean()\n",
        ),
        Wrong(
            "shapes-not-named",
            REFUSING_LOSS.replace('f"pred is {p}, target is {t}"', 'f"unexpected target of shape {t}"')
            + "    return (pred.flatten() - target.flatten()).square().mean()\n",
        ),
        Wrong(
            "integer-target",
            REFUSING_LOSS
            + """
    if target.dtype != pred.dtype:
        raise TypeError("float targets, please")
    return (pred.flatten() - target.flatten()).square().mean()
""",
        ),
        Wrong(
            "whole-numbers-lost",
            REFUSING_LOSS
            + """
    pred = pred.to(target.dtype).reshape(-1)
    return (pred - target.reshape(-1)).float().square().mean()
""",
        ),
        Wrong(
            "sum-not-mean",
            REFUSING_LOSS + "    return (pred.flatten() - target.flatten()).square().sum()\n",
        ),
        Wrong(
            "graph-cut",
            REFUSING_LOSS + "    return torch.tensor((pred.flatten() - target.flatten()).square().mean().item())\n",
        ),
        Wrong(
            "graph-cut",
            REFUSING_LOSS + "    return float((pred.flatten() - target.flatten()).square().mean())\n",
        ),
        Wrong(
            "gradient-wrong",
            REFUSING_LOSS
            + """
    d = pred.flatten() - target.flatten()
    return (d * d.detach()).mean()
""",
        ),
    ],
    "6.5": [
        Wrong(
            "numel-only",
            "def can_view(size, stride, new_size):\n    return math.prod(size) == math.prod(new_size)\n",
        ),
        Wrong(
            "contiguous-only",
            """
def can_view(size, stride, new_size):
    step, packed = 1, True
    for n, s in zip(reversed(size), reversed(stride)):
        packed = packed and (n == 1 or s == step)
        step *= n
    return math.prod(size) == math.prod(new_size) and (packed or 0 in size)
""",
            "article B, claim 6.4",
        ),
        Wrong(
            "never-joins",
            """
def can_view(size, stride, new_size):
    new = [n for n in new_size if n != 1]
    if math.prod(size) != math.prod(new_size):
        return False
    for n in size:
        have = 1
        while have < n and new:
            have *= new.pop(0)
        if have != n:
            return False
    return True
""",
        ),
        Wrong(
            "another-number",
            CHUNKS
            + """
def can_view(size, stride, new_size):
    return 0 in size or fits(joined(size, stride), new_size)
""",
        ),
        Wrong(
            "size-one-counts",
            CHUNKS.replace("        if n == 1:\n            continue\n", "")
            + """
def can_view(size, stride, new_size):
    if math.prod(size) != math.prod(new_size):
        return False
    return 0 in size or fits(joined(size, stride), new_size)
""",
        ),
        Wrong(
            "empty-tensor",
            CHUNKS
            + """
def can_view(size, stride, new_size):
    if math.prod(size) != math.prod(new_size):
        return False
    return fits(joined(size, stride), new_size)
""",
        ),
        Wrong(
            "empty-tensor",
            CHUNKS
            + """
def can_view(size, stride, new_size):
    if 0 in size:
        return True
    return math.prod(size) == math.prod(new_size) and fits(joined(size, stride), new_size)
""",
        ),
        Wrong(
            "stride-zero",
            CHUNKS
            + """
def can_view(size, stride, new_size):
    if math.prod(size) != math.prod(new_size):
        return False
    if 0 in size:
        return True
    expanded = any(s == 0 for n, s in zip(size, stride) if n != 1)
    return not expanded and fits(joined(size, stride), new_size)
""",
        ),
        Wrong(
            "asked-torch",
            """
def can_view(size, stride, new_size):
    try:
        torch.empty_strided(size, stride).view(new_size)
        return True
    except RuntimeError:
        return False
""",
        ),
        Wrong(
            "asked-torch",
            """
def can_view(size, stride, new_size):
    places = sum((n - 1) * s for n, s in zip(size, stride)) + 1 if 0 not in size else 1
    x = torch.arange(places).as_strided(size, stride)
    return math.prod(size) == math.prod(new_size) and x.reshape(new_size).data_ptr() == x.data_ptr()
""",
        ),
        Wrong(
            "another-number",
            CHUNKS
            + """
def can_view(size, stride, new_size):
    if len(size) == 0:
        return True
    return math.prod(size) == math.prod(new_size) and (0 in size or fits(joined(size, stride), new_size))
""",
        ),
        Wrong(
            "scalar",
            CHUNKS
            + """
def can_view(size, stride, new_size):
    if len(size) == 0:
        return len(new_size) == 0
    if math.prod(size) != math.prod(new_size):
        return False
    return 0 in size or fits(joined(size, stride), new_size)
""",
        ),
        Wrong(
            "contiguous-only",
            CHUNKS
            + """
def can_view(size, stride, new_size):
    if math.prod(size) != math.prod(new_size):
        return False
    chunks = joined(size, stride)
    old = [n for n in size if n != 1]
    if len(chunks) > 1 and [n for n in new_size if n != 1] not in (chunks, old):
        return False
    return 0 in size or fits(chunks, new_size)
""",
        ),
    ],
}
