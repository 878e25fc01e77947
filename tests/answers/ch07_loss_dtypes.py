"""Right and wrong answers to the exercises of chapter 7."""

from . import Wrong

ALTERNATIVES = {
    "7.1": {
        "ranks of dtypes, step by step": """
def make_legal(loss_name, prediction, target):
    rank = {torch.bfloat16: 0, torch.float32: 1, torch.float64: 2}
    if prediction.dtype not in rank:
        prediction = prediction.to(torch.float32)
    if loss_name == "nll" or (loss_name == "cross_entropy" and target.dim() != prediction.dim()):
        if target.dtype != torch.uint8 or target.dim() > 1:
            target = target.type(torch.int64)
        return prediction, target
    if target.dtype == torch.float16:
        target = target.float()
    if target.dtype not in rank:
        return prediction, target.to(prediction)
    if rank[prediction.dtype] > rank[target.dtype]:
        target = target.to(prediction.dtype)
    elif rank[prediction.dtype] < rank[target.dtype]:
        prediction = prediction.to(target.dtype)
    return prediction, target
""",
        "a dtype from adding the two, as a list": """
def make_legal(loss_name, prediction, target):
    if not torch.is_floating_point(prediction):
        prediction = prediction * 1.0
    if prediction.dtype == torch.half:
        prediction = prediction.type(torch.float)
    picks = loss_name in ("nll", "cross_entropy")
    if picks and not (loss_name == "cross_entropy" and target.size() == prediction.size()):
        legal = {torch.long, torch.uint8} if target.ndim == 1 else {torch.long}
        return [prediction, target.long() if target.dtype not in legal else target]
    common = (prediction.reshape(-1)[:1] + target.reshape(-1)[:1]).dtype
    return [prediction.type(common), target.type(common)]
""",
    },
    "7.2": {
        "every number of the half dtypes, a fine grid for the others": """
def saturation_point(dtype):
    if dtype in (torch.float16, torch.bfloat16):
        z = torch.arange(0, 2**15, dtype=torch.int16).view(dtype)
        z = z[z.isfinite()]
    else:
        z = torch.arange(16.0, 38.0, 1e-4, dtype=dtype)
    return z[torch.sigmoid(z) == 1].min().item()
""",
        "bisection in Python numbers, rounded to the dtype": """
def saturation_point(dtype):
    lo, hi = 0.0, 100.0
    for _ in range(80):
        mid = (lo + hi) / 2
        if float(torch.sigmoid(torch.tensor([mid]).double().to(dtype))) >= 1.0:
            hi = mid
        else:
            lo = mid
    return float(torch.tensor(hi, dtype=torch.float64).to(dtype))
""",
        "the formula of each dtype's own rounding, as a tensor": """
def saturation_point(dtype):
    eps = torch.finfo(dtype).eps
    own = -math.log(eps / 2)
    rounded_late = -math.log(eps / 4)
    z = torch.tensor(own if dtype in (torch.float32, torch.float64) else rounded_late, dtype=dtype)
    return z
""",
    },
    "7.3": {
        "log-sum-exp of two classes": """
def stable_bce(logits, target):
    both = torch.stack([torch.zeros_like(logits), logits], dim=-1)
    log_p = F.log_softmax(both, dim=-1)
    return -(target * log_p[..., 1] + (1 - target) * log_p[..., 0]).mean()
""",
        "logsigmoid on both sides": """
def stable_bce(logits, target):
    return (-target * F.logsigmoid(logits) - (1 - target) * F.logsigmoid(-logits)).sum() / logits.numel()
""",
        "max with a fair gradient at zero": """
def stable_bce(logits, target):
    zero = torch.zeros_like(logits)
    rest = torch.log1p(torch.exp(-logits.abs()))
    return torch.mean(torch.maximum(logits, zero) - logits * target + rest)
""",
        "a softplus module and an autograd function of its own": """
class Bce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z, y):
        ctx.save_for_backward(z, y)
        return nn.Softplus()(z).sub(z * y).mean()

    @staticmethod
    def backward(ctx, grad):
        z, y = ctx.saved_tensors
        return grad * (torch.sigmoid(z) - y) / z.numel(), None

def stable_bce(logits, target):
    return Bce.apply(logits, target)
""",
        "in float64": """
def stable_bce(logits, target):
    z, y = logits.double(), target.double()
    return (torch.logaddexp(z, z * 0) - z * y).mean().float()
""",
    },
    "7.4": {
        "measured with the best logits, bugs as a list": """
def best_possible_loss(classes):
    z = torch.zeros(1, classes, dtype=torch.float64)
    z[0, 0] = 1.0
    return F.cross_entropy(z, torch.tensor([0])).item()

def find_bugs():
    return ["f", "d", "c", "a"]
""",
        "log1p, and a comparison by name": """
def best_possible_loss(classes):
    return math.log1p((classes - 1) / math.e)

def find_bugs():
    return set("abcdef") - {"b", "e"}
""",
    },
    "7.5": {
        "probabilities, summed, over the weights of the kept rows": """
def weighted_cross_entropy(logits, one_hot, weight, ignored):
    keep = (~ignored).to(logits.dtype)
    rows = F.cross_entropy(logits, one_hot.to(logits.dtype), weight=weight, reduction="none")
    share = (one_hot.to(logits.dtype) * weight).sum(1) * keep
    return (rows * keep).sum() / share.sum().clamp(min=1e-12)
""",
        "ignore_index and a guard": """
def weighted_cross_entropy(logits, one_hot, weight, ignored):
    labels = one_hot.argmax(1).masked_fill(ignored, -100)
    total = F.cross_entropy(logits, labels, weight=weight, ignore_index=-100, reduction="sum")
    share = weight[one_hot.argmax(1)][~ignored].sum()
    return total / share if share > 0 else total
""",
        "by hand from log_softmax": """
def weighted_cross_entropy(logits, one_hot, weight, ignored):
    kept = torch.nonzero(~ignored).flatten()
    w = weight * one_hot[kept]
    per_class = -w * logits[kept].log_softmax(dim=-1)
    if len(kept) == 0:
        return per_class.sum()
    return per_class.sum() / w.sum()
""",
        "nan replaced behind ignore_index, where the gradient is zero already": """
def weighted_cross_entropy(logits, one_hot, weight, ignored):
    labels = torch.where(ignored, -1, one_hot.argmax(dim=1))
    loss = F.nll_loss(logits.log_softmax(1), labels, weight=weight, ignore_index=-1)
    return torch.nan_to_num(loss) if bool(ignored.all()) else loss
""",
    },
}

WRONG = {
    "7.1": [
        Wrong(
            "labels-not-float",
            """
def make_legal(loss_name, prediction, target):
    return prediction.float(), target.long()
""",
            "pytorch#842: labels made by an integer fill stay Long",
        ),
        Wrong(
            "indices-not-integer",
            """
def make_legal(loss_name, prediction, target):
    wider = torch.promote_types(prediction.dtype, target.dtype)
    return prediction.to(wider), target.to(wider)
""",
            "discuss.pytorch.org: 'expected Long but got Float' answered by .float() everywhere",
        ),
        Wrong(
            "narrowed",
            """
def make_legal(loss_name, prediction, target):
    if loss_name in ("nll", "cross_entropy"):
        return prediction.float(), target.long()
    return prediction.float(), target.float()
""",
            "the default answer to every dtype error",
        ),
        Wrong(
            "one-hot-not-float",
            """
def make_legal(loss_name, prediction, target):
    if loss_name in ("nll", "cross_entropy"):
        return prediction, target if target.dtype == torch.uint8 else target.long()
    return prediction, target.to(prediction.dtype)
""",
            "pytorch#45373: one_hot gives Long",
        ),
        Wrong(
            "mixed-floats",
            """
def make_legal(loss_name, prediction, target):
    if loss_name == "nll" or (loss_name == "cross_entropy" and target.shape != prediction.shape):
        bytes_are_legal = target.dtype == torch.uint8 and target.dim() == 1
        return prediction, target if bytes_are_legal else target.long()
    return prediction, target if target.is_floating_point() else target.to(prediction.dtype)
""",
        ),
        Wrong(
            "half-kept",
            """
def make_legal(loss_name, prediction, target):
    if not prediction.is_floating_point():
        prediction = prediction.float()
    if loss_name == "nll" or (loss_name == "cross_entropy" and target.shape != prediction.shape):
        bytes_are_legal = target.dtype == torch.uint8 and target.dim() == 1
        return prediction, target if bytes_are_legal else target.long()
    wider = torch.promote_types(prediction.dtype, target.dtype)
    return prediction.to(wider), target.to(wider)
""",
        ),
        Wrong(
            "half-kept",
            """
def make_legal(loss_name, prediction, target):
    if not prediction.is_floating_point() or (prediction.dtype == torch.float16 and loss_name != "nll"):
        prediction = prediction.float()
    if loss_name == "nll" or (loss_name == "cross_entropy" and target.shape != prediction.shape):
        bytes_are_legal = target.dtype == torch.uint8 and target.dim() == 1
        return prediction, target if bytes_are_legal else target.long()
    wider = torch.promote_types(prediction.dtype, target.dtype)
    return prediction.to(wider), target.to(wider)
""",
        ),
        Wrong(
            "prediction-not-float",
            """
def make_legal(loss_name, prediction, target):
    if prediction.dtype == torch.float16:
        prediction = prediction.float()
    if loss_name == "nll" or (loss_name == "cross_entropy" and target.shape != prediction.shape):
        bytes_are_legal = target.dtype == torch.uint8 and target.dim() == 1
        return prediction, target if bytes_are_legal else target.long()
    wider = torch.promote_types(prediction.dtype, target.dtype)
    return prediction.to(wider), target.to(wider)
""",
        ),
        Wrong(
            "bytes-per-position",
            """
def make_legal(loss_name, prediction, target):
    if prediction.dtype == torch.float16 or not prediction.is_floating_point():
        prediction = prediction.float()
    if loss_name == "nll" or (loss_name == "cross_entropy" and target.shape != prediction.shape):
        return prediction, target if target.dtype in (torch.uint8, torch.int64) else target.long()
    wider = torch.promote_types(prediction.dtype, target.dtype)
    return prediction.to(wider), target.to(wider)
""",
            "the table's two rows for indices read as one",
        ),
        Wrong(
            "legal-converted",
            """
def make_legal(loss_name, prediction, target):
    if prediction.dtype == torch.float16 or not prediction.is_floating_point():
        prediction = prediction.float()
    if loss_name == "nll" or (loss_name == "cross_entropy" and target.shape != prediction.shape):
        return prediction, target.long()
    wider = torch.promote_types(prediction.dtype, target.dtype)
    return prediction.to(wider), target.to(wider)
""",
        ),
        Wrong(
            "graph-cut",
            """
def make_legal(loss_name, prediction, target):
    prediction = torch.tensor(prediction.tolist(), dtype=prediction.dtype, requires_grad=True)
    return prediction, target.to(prediction.dtype)
""",
        ),
        Wrong(
            "values-changed",
            """
def make_legal(loss_name, prediction, target):
    if loss_name == "bce":
        prediction = torch.sigmoid(prediction)
    return prediction, target.to(prediction.dtype)
""",
        ),
    ],
    "7.2": [
        Wrong(
            "one-dtype-for-all",
            """
def saturation_point(dtype):
    z = torch.arange(0, 40, 0.0001)
    return float(z[torch.sigmoid(z) == 1][0])
""",
        ),
        Wrong(
            "not-yet-one",
            """
def saturation_point(dtype):
    z = torch.linspace(0, 40, 4001, dtype=dtype)
    return float(z[torch.isclose(torch.sigmoid(z), torch.ones_like(z))][0])
""",
            "1 - 1e-8 taken for a number below 1",
        ),
        Wrong(
            "eps-formula",
            """
def saturation_point(dtype):
    return -math.log(torch.finfo(dtype).eps / 2)
""",
        ),
        Wrong(
            "other-end",
            """
def saturation_point(dtype):
    z = torch.arange(0, 800, 0.01, dtype=torch.float64).to(dtype)
    return float(z[torch.sigmoid(-z) == 0][0])
""",
        ),
        Wrong(
            "not-the-smallest",
            """
def saturation_point(dtype):
    for z in range(100):
        if torch.sigmoid(torch.tensor(float(z), dtype=dtype)) == 1:
            return float(z)
""",
        ),
    ],
    "7.3": [
        Wrong(
            "library-loss",
            """
def stable_bce(logits, target):
    return F.binary_cross_entropy_with_logits(logits, target)
""",
            "the trick: the library has it",
        ),
        Wrong(
            "library-loss",
            """
def stable_bce(logits, target):
    return nn.BCEWithLogitsLoss()(logits, target)
""",
        ),
        Wrong(
            "library-loss",
            """
def stable_bce(logits, target):
    return torch.ops.aten.binary_cross_entropy_with_logits(logits, target).mean()
""",
        ),
        Wrong(
            "library-loss",
            """
def stable_bce(logits, target):
    return -torch.distributions.Bernoulli(logits=logits).log_prob(target).mean()
""",
        ),
        Wrong(
            "library-loss",
            """
loss = nn.MultiLabelSoftMarginLoss()

def stable_bce(logits, target):
    return loss(logits.reshape(-1, 1), target.reshape(-1, 1))
""",
        ),
        Wrong(
            "overflow",
            """
def stable_bce(logits, target):
    p = torch.sigmoid(logits)
    return -(target * torch.log(p) + (1 - target) * torch.log(1 - p)).mean()
""",
            "the textbook formula",
        ),
        Wrong(
            "overflow",
            """
def stable_bce(logits, target):
    p = torch.sigmoid(logits).clamp(1e-8, 1 - 1e-8)
    return -(target * torch.log(p) + (1 - target) * torch.log(1 - p)).mean()
""",
            "clamp(p, 1e-8, 1 - 1e-8), whose upper end is 1.0 in float32",
        ),
        Wrong(
            "clamped",
            """
def stable_bce(logits, target):
    p = torch.sigmoid(logits).clamp(1e-6, 1 - 1e-6)
    return -(target * torch.log(p) + (1 - target) * torch.log(1 - p)).mean()
""",
        ),
        Wrong(
            "clamped",
            """
def stable_bce(logits, target):
    p = torch.sigmoid(logits)
    return -(target * torch.log(p).clamp(min=-100) + (1 - target) * torch.log(1 - p).clamp(min=-100)).mean()
""",
            "what BCELoss does",
        ),
        Wrong(
            "nan-gradient",
            """
def stable_bce(logits, target):
    soft = torch.where(logits > 0, logits + torch.log1p(torch.exp(-logits)), torch.log1p(torch.exp(logits)))
    return (soft - logits * target).mean()
""",
        ),
        Wrong(
            "gradient-lost",
            """
def stable_bce(logits, target):
    tail = torch.log1p(torch.exp(-logits.abs()))
    big = logits.abs() > 50
    value = logits.clamp(min=0) - logits * target + tail
    return torch.where(big, value.detach(), value).mean() + 0 * logits.sum()
""",
        ),
        Wrong(
            "kink-at-zero",
            """
def stable_bce(logits, target):
    return (logits.clamp(min=0) - logits * target + torch.log1p(torch.exp(-logits.abs()))).mean()
""",
            "the formula of many a blog post",
        ),
        Wrong(
            "kink-at-zero",
            """
def stable_bce(logits, target):
    return (F.relu(logits) - logits * target + torch.log1p(torch.exp(-logits.abs()))).mean()
""",
        ),
        Wrong(
            "summed",
            """
def stable_bce(logits, target):
    return (F.softplus(logits) - logits * target).sum()
""",
            "the article: BCELoss is the summed cross entropy",
        ),
        Wrong(
            "sign",
            """
def stable_bce(logits, target):
    return (target * F.logsigmoid(logits) + (1 - target) * F.logsigmoid(-logits)).mean()
""",
        ),
        Wrong(
            "library-loss",
            """
def stable_bce(logits, target):
    two = torch.stack([torch.zeros_like(logits), logits], dim=-1).reshape(-1, 2)
    return F.cross_entropy(two, torch.stack([1 - target, target], dim=-1).reshape(-1, 2))
""",
        ),
        Wrong(
            "not-reduced",
            """
def stable_bce(logits, target):
    return F.softplus(logits) - logits * target
""",
        ),
        Wrong(
            "hard-targets-only",
            """
def stable_bce(logits, target):
    sign = torch.where(target > 0.5, 1.0, -1.0)
    return F.softplus(-sign * logits).mean()
""",
        ),
        Wrong(
            "graph-cut",
            """
def stable_bce(logits, target):
    with torch.no_grad():
        return (F.softplus(logits) - logits * target).mean()
""",
        ),
    ],
    "7.4": [
        Wrong(
            "no-floor",
            """
def best_possible_loss(classes):
    return 0.0

def find_bugs():
    return {"c", "d", "f"}
""",
            "ariecattan/SciCo#2: a floor of about .74 went unnoticed",
        ),
        Wrong(
            "uniform-loss",
            """
def best_possible_loss(classes):
    return math.log(classes)

def find_bugs():
    return {"a", "c", "d", "f"}
""",
        ),
        Wrong(
            "wrong-range",
            """
def best_possible_loss(classes):
    return math.log(math.exp(1) + (classes - 1) * math.exp(-1)) - 1

def find_bugs():
    return {"a", "c", "d", "f"}
""",
        ),
        Wrong(
            "log-softmax-accused",
            """
def best_possible_loss(classes):
    return math.log(math.e + classes - 1) - 1

def find_bugs():
    return {"a", "b", "c", "d", "f"}
""",
            "bhanML/Co-teaching#4",
        ),
        Wrong(
            "double-softmax-missed",
            """
def best_possible_loss(classes):
    return math.log(math.e + classes - 1) - 1

def find_bugs():
    return {"c", "d", "f"}
""",
            "lightning-bolts#654",
        ),
        Wrong(
            "nll-on-probabilities-missed",
            """
def best_possible_loss(classes):
    return math.log(math.e + classes - 1) - 1

def find_bugs():
    return {"a", "d", "f"}
""",
        ),
        Wrong(
            "one-unit-missed",
            """
def best_possible_loss(classes):
    return math.log(math.e + classes - 1) - 1

def find_bugs():
    return {"a", "c", "f"}
""",
            "APPFL#60",
        ),
        Wrong(
            "class-axis-missed",
            """
def best_possible_loss(classes):
    return math.log(math.e + classes - 1) - 1

def find_bugs():
    return {"a", "c", "d"}
""",
        ),
        Wrong(
            "one-hot-accused",
            """
def best_possible_loss(classes):
    return math.log(math.e + classes - 1) - 1

def find_bugs():
    return {"a", "c", "d", "e", "f"}
""",
        ),
    ],
    "7.5": [
        Wrong(
            "divided-by-rows",
            """
def weighted_cross_entropy(logits, one_hot, weight, ignored):
    kept = ~ignored
    return F.cross_entropy(logits[kept], one_hot[kept].to(logits.dtype), weight=weight)
""",
            "pytorch#107680",
        ),
        Wrong(
            "nan-when-all-ignored",
            """
def weighted_cross_entropy(logits, one_hot, weight, ignored):
    return F.cross_entropy(logits, one_hot.argmax(1).masked_fill(ignored, -100), weight=weight)
""",
            "pytorch#70348",
        ),
        Wrong(
            "detached-zero",
            """
def weighted_cross_entropy(logits, one_hot, weight, ignored):
    if ignored.all():
        return torch.tensor(0.0, requires_grad=True)
    return F.cross_entropy(logits, one_hot.argmax(1).masked_fill(ignored, -100), weight=weight)
""",
            "pytorch#116349",
        ),
        Wrong(
            "nan-gradient",
            """
def weighted_cross_entropy(logits, one_hot, weight, ignored):
    w = (weight * one_hot).sum(1) * ~ignored
    rows = -(one_hot * logits.log_softmax(1)).sum(1)
    mean = (w * rows).sum() / w.sum()
    return torch.where(mean.isnan(), 0.0, mean)
""",
        ),
        Wrong(
            "one-hot-long",
            """
def weighted_cross_entropy(logits, one_hot, weight, ignored):
    total = F.cross_entropy(logits, one_hot, weight=weight, reduction="sum")
    return total / (one_hot * weight).sum()
""",
        ),
        Wrong(
            "ignored-counted",
            """
def weighted_cross_entropy(logits, one_hot, weight, ignored):
    labels = one_hot.argmax(1)
    rows = F.cross_entropy(logits, labels, weight=weight, reduction="none")
    return (rows * ~ignored).sum() / weight[labels].sum()
""",
        ),
        Wrong(
            "ignored-counted",
            """
def weighted_cross_entropy(logits, one_hot, weight, ignored):
    return F.cross_entropy(logits, one_hot.argmax(1), weight=weight)
""",
        ),
        Wrong(
            "unweighted",
            """
def weighted_cross_entropy(logits, one_hot, weight, ignored):
    return F.cross_entropy(logits[~ignored], one_hot[~ignored].argmax(1))
""",
        ),
        Wrong(
            "divided-by-all-weights",
            """
def weighted_cross_entropy(logits, one_hot, weight, ignored):
    rows = -(one_hot * logits.log_softmax(1)).sum(1)
    return ((weight * one_hot).sum(1) * rows)[~ignored].sum() / weight.sum()
""",
        ),
        Wrong(
            "summed",
            """
def weighted_cross_entropy(logits, one_hot, weight, ignored):
    return F.cross_entropy(logits[~ignored], one_hot[~ignored].argmax(1), weight=weight, reduction="sum")
""",
        ),
        Wrong(
            "not-zero-when-all-ignored",
            """
def weighted_cross_entropy(logits, one_hot, weight, ignored):
    if ignored.all():
        return logits.mean()
    return F.cross_entropy(logits[~ignored], one_hot[~ignored].argmax(1), weight=weight)
""",
        ),
        Wrong(
            "wrong-gradient",
            """
def weighted_cross_entropy(logits, one_hot, weight, ignored):
    if ignored.all():
        return logits.sum() * 0
    with torch.no_grad():
        loss = F.cross_entropy(logits[~ignored], one_hot[~ignored].argmax(1), weight=weight)
    return loss + 0 * logits.sum()
""",
        ),
    ],
}
