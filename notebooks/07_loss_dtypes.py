# %% [markdown]
# # 7 Loss dtypes
#
# Two trainings of the same classifier. In one the loss falls to zero, in the other it stops far above and stays there.
# No error, no NaN, and the accuracy looks fine. Elsewhere a loss refuses to run because a label is `Long`; somebody
# adds `.float()` and `.long()` until the message goes away. This chapter sorts the losses: which ones shout, which ones
# fall silent, and how to find out in a minute, before a training of a week.
#
# About 45 minutes with the exercises. You need to have trained a classifier before, nothing more.

# %% tags=["parameters"]
budget_s: float = 2.0  # seconds that one timing comparison may take (this chapter times nothing)
device: str = "auto"  # where the GPU cell runs: "auto", "cpu" or "cuda"
record: bool = False  # keep results for readers without this machine
fast: bool = False  # small budgets: a quick look

# %% tags=["nbval-ignore-output"]
from helpers import preflight

preflight("07", budget_s=budget_s, device=device, record=record, fast=fast)

# %% [markdown]
# ## Two trainings
# Ten classes, well apart, and a small net. The second net ends in `Softmax`, because its author wanted probabilities.

# %%
from helpers import predict

guess = predict(
    "softmax-end",
    "Both nets learn to classify every point. What does the loss of the one that ends in Softmax do?",
    ["it goes to 0 like the other", "it stops far above 0"],
)

# %%
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
labels = torch.randint(10, (500,))
points = 3 * torch.eye(10)[labels] + 0.3 * torch.randn(500, 10)


def train(loss_of, *ending: nn.Module) -> tuple[float, float]:
    """Train a small net with this ending; gives the last loss and the accuracy."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 10), *ending)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(200):
        loss = loss_of(net(points), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item(), (net(points).argmax(1) == labels).float().mean().item()


runs = {"raw outputs": train(F.cross_entropy), "softmax": train(F.cross_entropy, nn.Softmax(dim=1))}
for name, (loss, accuracy) in runs.items():
    print(f"{name:11}: loss {loss:.1f}, accuracy {accuracy:.2f}")
guess.reveal(guess.options[runs["softmax"][0] > 0.5])

# %% [markdown]
# `cross_entropy` applies softmax itself. Behind a softmax it takes probabilities for
# [logits](../docs/glossary.md#logit). The best logits that a softmax can give are one 1 and zeros, and softmax of
# those is far from certain. The [floor](../docs/glossary.md#loss-floor) for $C$ classes is $$\ln(e + C - 1) - 1 .$$

# %%
import math

for classes in (2, 4, 10, 1000):
    best = F.one_hot(torch.tensor([0]), classes).float()
    measured = F.cross_entropy(best, torch.tensor([0])).item()
    print(f"{classes:4} classes: floor {measured:.4f}, by the formula {math.log(math.e + classes - 1) - 1:.4f}")

# %% [markdown]
# A [public bug report](https://github.com/ariecattan/SciCo/issues/2) names a floor that matches the second row. The
# floor is the harmless half. A confident wrong answer should be corrected the most; we look at the gradient it gets.

# %%
z = torch.zeros(1, 10)
z[0, 3] = 10.0  # certain of class 3
z.requires_grad_()
for name, outputs in {"softmax once": z, "softmax twice": z.softmax(dim=1)}.items():
    (grad,) = torch.autograd.grad(F.cross_entropy(outputs, torch.tensor([0])), z)
    print(f"{name:13}: largest gradient {grad.abs().max():.0e}")

# %% [markdown]
# ## Losses that shout
# A loss that *multiplies* by its target wants a float. A loss that uses its target to *pick* a column wants an index.
# Here is the whole table, forward and backward, for float32 predictions.

# %% tags=["nbval-ignore-output"]
from helpers import expected_error

logits = torch.tensor([[0.2, 0.7], [0.6, 0.1]])
onehot, indices = torch.tensor([[0, 1], [1, 0]]), torch.tensor([1, 0])
dtypes = [torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool]
cases = {
    "BCE": (F.binary_cross_entropy, logits, onehot),
    "BCE with logits": (F.binary_cross_entropy_with_logits, logits, onehot),
    "MSE": (F.mse_loss, logits, onehot),
    "CE, probabilities": (F.cross_entropy, logits, onehot),
    "CE, index a row": (F.cross_entropy, logits, indices),
    "CE, index a pixel": (F.cross_entropy, logits[..., None], indices[:, None]),
    "NLL": (F.nll_loss, logits.log_softmax(1), indices),
}


def verdict(loss_of, prediction: torch.Tensor, target: torch.Tensor) -> str:
    """`trains`, or the class of the error."""
    prediction = prediction.detach().requires_grad_()
    try:
        loss_of(prediction, target).backward()
    except RuntimeError as error:
        return type(error).__name__
    return "trains"


table = {name: [verdict(f, p, t.to(dtype)) for dtype in dtypes] for name, (f, p, t) in cases.items()}
print(f"{'target:':18}" + "".join(f"{str(dtype)[6:]:>15}" for dtype in dtypes))
for name, row in table.items():
    print(f"{name:18}" + "".join(f"{entry:>15}" for entry in row))
with expected_error(RuntimeError):  # an integer prediction; NotImplementedError is a subclass
    F.mse_loss(indices, indices)

# %% [markdown]
# Two entries are worth remembering. Bytes (uint8) are indices where there is one for each row, and refused where there
# is one for each pixel. And MSE is the lenient one: recent releases promote whatever comes, older ones fail in backward
# where the dtypes differ. An integer *prediction* trains nowhere, and two integers are too much even for MSE. Whatever
# the release calls it, it is a `RuntimeError`.
#
# So much for "float for both". The article adds that `BCELoss` is the *summed* cross entropy:

# %%
from helpers import claim, finding


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.isclose(a, b).item()


p, y = torch.tensor([0.9, 0.2, 0.6]), torch.tensor([1.0, 0.0, 1.0])
by_hand = -(y * p.log() + (1 - y) * (1 - p).log())
loss = F.binary_cross_entropy(p, y)
print(f"equals the sum: {same(loss, by_hand.sum())}, the mean: {same(loss, by_hand.mean())}")
refused = all("Error" in entry for entry in table["BCE"][2:])
claim("7.1").judge(
    {
        "summed": finding(same(loss, by_hand.sum()), "compared with sum and mean by hand"),
        "float for both": finding(refused and table["BCE"][0] == "trains", "every integer target is refused"),
    }
)

# %% [markdown]
# ## Where a probability becomes one
# A model is certain and wrong: the logit is large, the target 0. The loss can be written from the probability, by hand
# or with `BCELoss`, or from the logit with `BCEWithLogitsLoss`.

# %%
guess = predict(
    "wrong-17",
    "Logit 17, target 0, float32. What gradient does BCELoss behind a sigmoid send to the logit?",
    ["about 1", "0", "nan"],
)

# %%
forms = {
    "log(1 - sigmoid)": lambda z, y: -(y * z.sigmoid().log() + (1 - y) * (1 - z.sigmoid()).log()),
    "BCE(sigmoid)": lambda z, y: F.binary_cross_entropy(z.sigmoid(), y),
    "BCE with logits": F.binary_cross_entropy_with_logits,
    "MSE(sigmoid)": lambda z, y: F.mse_loss(z.sigmoid(), y),
}


def loss_and_gradient(form: str, logit: float, target: float, dtype=torch.float32) -> tuple[float, float]:
    """Loss and gradient with respect to the logit, at one logit."""
    z = torch.tensor(logit, dtype=dtype, requires_grad=True)
    loss = forms[form](z, torch.tensor(target, dtype=dtype))
    loss.backward()
    return loss.item(), z.grad.item()


for form in list(forms)[:3]:
    cells = [loss_and_gradient(form, logit, 0.0) for logit in (10.0, 17.0, 100.0)]
    print(f"{form:17}", "".join(f"  loss {loss:5.1f}, gradient {grad:3.1f}" for loss, grad in cells))
grad = loss_and_gradient("BCE(sigmoid)", 17.0, 0.0)[1]
guess.reveal("nan" if math.isnan(grad) else "0" if grad == 0 else "about 1")

# %% [markdown]
# In float32 the sigmoid of 17 *is* 1 ([saturation](../docs/glossary.md#saturation)), so the formula by hand takes the
# logarithm of 0. `BCELoss` clamps its logarithms at −100. That turns a NaN, which somebody would notice, into a large
# finite loss with a gradient of zero, which nobody will: the example that most needs correcting is the one that gets
# none.
#
# From the logit, nothing is lost. For target 0 the loss is $\ln(1 + e^z)$, for target 1 it is $\ln(1 + e^{-z})$, and
# `F.softplus` computes $\ln(1 + e^x)$ without ever forming a large $e^x$. A soft target takes a share of each.
#
# How soon the sigmoid becomes 1 depends on the dtype:

# %%
halves = [torch.bfloat16, torch.float16]
for dtype in [*halves, torch.float32, torch.float64]:
    ones = [z for z in (5, 6, 7, 8, 9, 16, 17, 36, 37) if torch.sigmoid(torch.tensor(float(z), dtype=dtype)) == 1]
    print(f"{str(dtype)[6:]:8} of 5, 6, 7, 8, 9, 16, 17, 36 and 37, sigmoid is exactly 1 at {ones}")

# %% [markdown]
# In bfloat16, in which many models are trained, an ordinary logit is enough. Two usual repairs, tried: clamping the
# probability, and a small constant inside the logarithm.

# %%
print("1 - 1e-8 is 1 in float32:", (torch.tensor(1 - 1e-8) == 1).item())
print("log(0 + 1e-8) in float16:", (torch.tensor(0.0, dtype=torch.float16) + 1e-8).log().item())
print("MSE of 300 and 0 in float16:", F.mse_loss(torch.tensor(300.0).half(), torch.tensor(0.0).half()).item())
for logit, target in [(20.0, 0.0), (-20.0, 1.0), (-90.0, 1.0)]:
    grad = loss_and_gradient("BCE(sigmoid)", logit, target)[1]
    print(f"BCE(sigmoid), logit {logit:3.0f}, target {target:.0f}: size of the gradient {abs(grad):.1f}")

# %% [markdown]
# The last lines hold an asymmetry. Near 0 floats are dense, near 1 they are not: a wrong *negative* logit of the same
# size still gets its gradient, and loses it much later. A model can therefore learn one class and not the other.
#
# ## Three losses in one picture
# The gradient that reaches the logit, target 0. Right answers are on the left, wrong ones on the right.

# %% tags=["nbval-ignore-output"]
from helpers import figures

zs = [z / 2 for z in range(-10, 51)]
shown = ["BCE with logits", "BCE(sigmoid)", "MSE(sigmoid)"]
curves = {form: [loss_and_gradient(form, z, 0.0)[1] for z in zs] for form in shown}
figures.line_chart(zs, curves, "logit (target 0: the further right, the more wrong)", "gradient")

# %% [markdown]
# The gradient of BCE grows with the error and stays; written through the sigmoid, it falls off a cliff. That of MSE
# carries a factor $p(1-p)$ and fades on both sides, in any dtype. How long does it take to come back from a wrong
# start? We count steps of gradient descent with rate 1, target 1, until the logit is positive.

# %%
for start in (-4.0, -6.0, -8.0):
    steps = {}
    for form in ("MSE(sigmoid)", "BCE with logits"):
        z, steps[form] = start, 0
        while z <= 0:
            z -= loss_and_gradient(form, z, 1.0, torch.float64)[1]
            steps[form] += 1
    print(f"from {start:.0f}: " + ", ".join(f"{form} {count} steps" for form, count in steps.items()))

# %%
accuracy = train(lambda outputs, labels: F.mse_loss(outputs, F.one_hot(labels, 10).float()))[1]
fades = loss_and_gradient("MSE(sigmoid)", -20.0, 1.0)[1]
stays = loss_and_gradient("BCE with logits", -20.0, 1.0)[1]
claim("7.3").judge(
    {
        "works everywhere": finding(accuracy > 0.95, "without a sigmoid, L2 on one-hot targets learns all ten classes"),
        "vanishes behind a sigmoid": finding(abs(fades) < 1e-6 < abs(stays), "gradients at logit -20, target 1"),
    }
)

# %% [markdown]
# **Limits.** Logits are for the loss; whoever needs probabilities applies sigmoid or softmax afterwards. And a gradient
# that never fades is no virtue with wrong labels: there the bounded loss, MSE on probabilities (the Brier score), is
# pulled less by an example that contradicts all others.
#
# ## The mean of what?
# Class weights, and the same targets once as indices, once as one-hot rows.

# %%
guess = predict(
    "one-hot-weights",
    "With weight=, do indices and the same targets as one-hot rows give the same loss?",
    ["yes", "no"],
)

# %%
scores = torch.tensor([[2.0, 0.0, -1.0], [0.5, 1.0, 0.0], [1.0, -1.0, 0.0], [0.0, 2.0, 1.0]])
classes, weight = torch.tensor([0, 0, 2, 1]), torch.tensor([0.2, 1.0, 3.0])
as_indices = F.cross_entropy(scores, classes, weight=weight)
as_rows = F.cross_entropy(scores, F.one_hot(classes, 3).float(), weight=weight)
total = F.cross_entropy(scores, classes, weight=weight, reduction="sum")
by_weight = total / weight[classes].sum()
print(f"indices {as_indices:.4f}: the sum over the targets' weights, {same(as_indices, by_weight)}")
print(f"one-hot {as_rows:.4f}: the sum over the rows, {same(as_rows, total / len(classes))}")
guess.reveal("yes" if same(as_indices, as_rows) else "no")

# %% [markdown]
# Same numerator, other divisor, and no warning
# ([pytorch#107680](https://github.com/pytorch/pytorch/issues/107680)). Whoever moves from indices to soft labels or
# mixup changes the scale of the weighted loss, and with it every step, without touching the learning rate. Without
# weights the two agree. Two more divisors:

# %%
padded = classes.masked_fill(torch.tensor([False, True, False, True]), -100)
kept = F.cross_entropy(scores[padded >= 0], classes[padded >= 0])
print("ignored rows do not count:", same(F.cross_entropy(scores, padded), kept))
nothing = torch.full((4,), -100)
print("every row ignored, mean:", F.cross_entropy(scores, nothing).item())
print("every row ignored, sum: ", F.cross_entropy(scores, nothing, reduction="sum").item())

batch_means = torch.stack([F.cross_entropy(scores[:3], classes[:3]), F.cross_entropy(scores[3:], classes[3:])])
whole = F.cross_entropy(scores, classes)
print("mean of batch means is the mean:", same(batch_means.mean(), whole))
print("weighted by batch size it is:   ", same(batch_means @ torch.tensor([3.0, 1.0]) / 4, whole))

# %% [markdown]
# One batch without a valid label makes the mean NaN, and one optimizer step later the model is NaN. A guard has to give
# a zero that is still attached to the outputs, or `backward()` raises instead. A last batch that is shorter gets more
# say than its share. Sum, count, and divide once.
#
# ## What professionals still get wrong
# **The class axis.** `cross_entropy` expects classes on dimension 1. A sequence model gives (batch, time, classes).
# The error that protects you disappears on the day when there are as many steps as classes:

# %% tags=["nbval-ignore-output"]
torch.manual_seed(0)
with expected_error(RuntimeError):
    F.cross_entropy(torch.randn(2, 5, 4), torch.randint(4, (2, 5)))

# %%
sequence, tokens = torch.randn(2, 4, 4), torch.randint(4, (2, 4))
silent = F.cross_entropy(sequence, tokens)
right = F.cross_entropy(sequence.transpose(1, 2), tokens)
print("with 4 steps and 4 classes it runs, and equals the right loss:", same(silent, right))

# %% [markdown]
# **One output unit.** Softmax over one number is 1, whatever the number. With a float target of shape (batch, 1)
# nothing raises, and nothing is learned, ever ([APPFL#60](https://github.com/APPFL/APPFL/issues/60)).


# %%
def learns(units: int) -> bool:
    """True if cross entropy sends any gradient to a layer with so many output units."""
    outputs = torch.linspace(-1, 1, 6 * units).reshape(6, units).requires_grad_()
    F.cross_entropy(outputs, torch.full((6, units), 1 / units)).backward()
    return bool(outputs.grad.abs().max() > 1e-6)


for units in (1, 2, 10):
    print(f"{units:2} output units: learns {learns(units)}")
z, y = torch.tensor([[0.3, -1.2], [2.0, 0.5]]), torch.tensor([1, 0])
binary = F.binary_cross_entropy_with_logits(z[:, 1] - z[:, 0], y.float())
claim("7.2").judge(
    {
        "several classes": finding(learns(10) and not learns(1), "ten units learn, a single one gets no gradient"),
        "two count as several": finding(same(F.cross_entropy(z, y), binary), "equal to binary CE"),
    }
)

# %% [markdown]
# **Accepted without a word**, and one that looks like a bug and is none:

# %%
probabilities = scores.softmax(dim=1)
soft = torch.tensor([[0.7, 0.2, 0.1]] * 4)
given, swapped = F.cross_entropy(probabilities, soft), F.cross_entropy(soft, probabilities)
large, plain = F.cross_entropy(scores, 10 * soft), F.cross_entropy(scores, soft)
once, twice = F.cross_entropy(scores, classes), F.cross_entropy(scores.log_softmax(dim=1), classes)
print("NLL on probabilities is negative:   ", (F.nll_loss(probabilities, classes) < 0).item())
print("swapped arguments give another loss:", not same(given, swapped))
print("targets that sum to 10, loss x10:   ", same(large, 10 * plain))
print("log_softmax twice changes the loss: ", not same(once, twice))

# %% [markdown]
# ## A probe for any loss
# Two questions expose most of this chapter before training starts. Give the loss perfect answers: is it 0? Give it
# confident wrong ones: does every wrong entry get a gradient?

# %%
suspects = {
    "cross_entropy(z)": lambda z, y: F.cross_entropy(z, y, reduction="sum"),
    "cross_entropy(softmax(z))": lambda z, y: F.cross_entropy(z.softmax(1), y, reduction="sum"),
    "nll_loss(softmax(z))": lambda z, y: F.nll_loss(z.softmax(1), y, reduction="sum"),
    "bce_with_logits(z)": lambda z, y: F.binary_cross_entropy_with_logits(z, torch.eye(4)[y], reduction="sum"),
    "bce(sigmoid(z))": lambda z, y: F.binary_cross_entropy(z.sigmoid(), torch.eye(4)[y], reduction="sum"),
    "mse(sigmoid(z))": lambda z, y: F.mse_loss(z.sigmoid(), torch.eye(4)[y], reduction="sum"),
}
y = torch.arange(4)
perfect = 60 * torch.eye(4) - 30
for name, loss_of in suspects.items():
    wrong = perfect.roll(1, dims=0).requires_grad_()
    loss_of(wrong, y).backward()
    smallest = wrong.grad[wrong * perfect < 0].abs().min()  # where the sign of the logit is wrong
    print(f"{name:26} perfect: loss {loss_of(perfect, y) / 4:4.1f}   wrong: smallest gradient {smallest:.1f}")

# %% [markdown]
# Only the two losses that take logits pass both. A third question costs nothing: does the loss of an untrained net
# start near $\ln C$? It catches a forgotten [reduction](../docs/glossary.md#reduction) or a scale, but not the second
# softmax, which starts there too.
#
# ## On a GPU
# Under autocast, CUDA refuses `BCELoss`: its gradient with respect to a probability may not fit into float16. On the
# CPU, autocast lets it pass.

# %% tags=["nbval-ignore-output"]
with torch.autocast("cpu", dtype=torch.bfloat16):
    print("CPU autocast runs it:", F.binary_cross_entropy(torch.rand(3), torch.ones(3)).dtype)
if torch.cuda.is_available() and device != "cpu":
    with torch.autocast("cuda"), expected_error(RuntimeError):
        F.binary_cross_entropy(torch.rand(3, device="cuda"), torch.ones(3, device="cuda"))
else:
    print("CUDA autocast: not testable here, this machine has no CUDA device.")

# %% [markdown]
# ## Summary
# - A loss that multiplies by its target wants floats, one that picks a column wants an index. Give losses logits: a
#   probability has already forgotten how wrong the model is, and a clamp turns NaN into a zero gradient.
# - A second softmax, one output unit, or the wrong class axis raise nothing. A loss that stops at
#   $\ln(e + C - 1) - 1$ names the first.
# - A mean has a divisor: rows, weights of the targets, valid rows. Ask which, above all when none is left.
#
# ## Exercises
# Five exercises wait in `07_exercises.ipynb`, next to your copy of this chapter: legal dtypes, the point
# where sigmoid becomes one, a stable loss by hand, the floor and six suspects, and a weighted loss that survives a
# batch with nothing in it.
#
# ## Sources
# - `CrossEntropyLoss`: <https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html>
# - `BCELoss`, with the clamp: <https://docs.pytorch.org/docs/stable/generated/torch.nn.BCELoss.html>
# - Autocast and `BCELoss`: <https://docs.pytorch.org/docs/stable/amp.html>
# - `BCEWithLogitsLoss`: <https://docs.pytorch.org/docs/stable/generated/torch.nn.BCEWithLogitsLoss.html>
# - Further reports behind this chapter:
#   [lightning-bolts#662](https://github.com/Lightning-Universe/lightning-bolts/issues/662) (softmax twice),
#   [bhanML/Co-teaching#4](https://github.com/bhanML/Co-teaching/issues/4) (log_softmax twice),
#   [pytorch#70348](https://github.com/pytorch/pytorch/issues/70348) and
#   [pytorch#116349](https://github.com/pytorch/pytorch/issues/116349) (every row ignored),
#   [pytorch#842](https://github.com/pytorch/pytorch/issues/842) and
#   [pytorch#45373](https://github.com/pytorch/pytorch/issues/45373) (Long labels).

# %% tags=["nbval-ignore-output"]
from helpers import wrap_up

wrap_up()
