# %% [markdown]
# # 6 Tensor shapes: same numbers, another reading order
#
# A pipeline that trained last week now trains badly. No error, every shape as expected, every assert on shapes green.
# The numbers are all there. They are read in another order. This chapter makes that order visible, decides by it what
# `view`, `permute`, `reshape` and `contiguous` do, and builds a [probe](../docs/glossary.md#row-dependency-probe)
# that finds mixed rows in any code.
#
# About 50 minutes with the exercises. You need to have written a model with an image or a sequence in it.

# %% tags=["parameters"]
budget_s: float = 2.0  # seconds that one timing comparison may take
device: str = "auto"  # this chapter runs on the CPU, whatever is chosen
record: bool = False  # keep results for readers without this machine
fast: bool = False  # small budgets: a quick look

# %% tags=["nbval-ignore-output"]
from helpers import preflight

preflight("06", budget_s=budget_s, device=device, record=record, fast=fast)

# %% [markdown]
# ## A picture that came out wrong
# A loader gives pictures as (height, width, channels); a convolution wants (channels, height, width). A disc fills the
# red channel of our picture. Two ways to the new shape:

# %%
import torch

torch.manual_seed(0)
down, across = torch.meshgrid(torch.arange(48), torch.arange(48), indexing="ij")
disc = ((down - 24) ** 2 + (across - 24) ** 2 < 300).float()
picture = torch.stack([disc, across / 47, down / 47], dim=-1)

permuted, viewed = picture.permute(2, 0, 1), picture.view(3, 48, 48)
print("same shape:  ", permuted.shape == viewed.shape)
print("same numbers:", torch.equal(permuted.flatten().sort().values, viewed.flatten().sort().values))
print("same tensor: ", torch.equal(permuted, viewed))

# %% tags=["nbval-ignore-output"]
import io

from matplotlib.figure import Figure

from helpers import show_picture

figure = Figure(figsize=(7.5, 2.8), dpi=110, layout="constrained")
panels = {"the picture": picture, "permute(2, 0, 1)[0]": permuted[0], "view(3, 48, 48)[0]": viewed[0]}
for number, (title, pixels) in enumerate(panels.items(), start=1):
    axes = figure.add_subplot(1, 3, number, xticks=[], yticks=[])
    axes.imshow(pixels.numpy(), cmap="gray", vmin=0, vmax=1)
    axes.set_title(title, size=10)
png = io.BytesIO()
figure.savefig(png, format="png")
show_picture(
    png.getvalue(),
    "Three pictures. Left, the picture in colour: a disc on a ramp. Middle, channel 0 after permute: the disc. "
    "Right, channel 0 after view: a mesh of light and dark dots, with no more than a ghost of the disc's upper edge.",
)

# %% [markdown]
# `view` gave the right shape to the wrong order: its channel 0 holds the top third of the picture, all colours
# interleaved. A convolution takes it without complaint.
#
# ## Size, stride, storage
# A tensor is a flat [storage](../docs/glossary.md#storage) with a way to read it: a **size**, and for every dimension
# a **[stride](../docs/glossary.md#stride)**, the number of places in storage that one step along it moves. Element
# `[i, j]` lies at `offset + i * stride[0] + j * stride[1]`.

# %%
a = torch.arange(12).reshape(3, 4)
for name, matrix in {"a": a, "a.t()": a.t(), "a.view(4, 3)": a.view(4, 3)}.items():
    print(f"{name:13} size {tuple(matrix.shape)}  stride {matrix.stride()}  element [1, 0] is {matrix[1, 0]}")

# %% [markdown]
# In the next picture, a cell's colour is its place in storage. Below each matrix lies that storage; arcs follow the
# matrix row by row.

# %% tags=["nbval-ignore-output"]
from helpers import figures

figures.strides({"a": a, "a.t()": a.t(), "a.t().contiguous()": a.t().contiguous(), "a.view(4, 3)": a.view(4, 3)})

# %% [markdown]
# The transpose moved nothing; reading it jumps at every step. `contiguous()` paid for a copy, so that reading is a walk
# again. `view` moves nothing either and keeps the reading order: it breaks the same line of numbers elsewhere. Its
# colours run as in `a`, which for a transpose is the mistake.
#
# ## Who copies?
# One question settles it: can the old storage, with *some* size and stride, be read in the new order? If so, a
# [view](../docs/glossary.md#view) is possible.

# %%
from helpers import evidence

results = {
    "a.t()": a.t(),
    "a.unsqueeze(1)": a.unsqueeze(1),
    "a[:, ::2]": a[:, ::2],
    "a[:1].expand(3, 4)": a[:1].expand(3, 4),
    "a.reshape(12)": a.reshape(12),
    "a.t().reshape(12)": a.t().reshape(12),
    "a.contiguous()": a.contiguous(),
    "a.t().contiguous()": a.t().contiguous(),
    "a[[0, 2]]": a[[0, 2]],
}
for name, result in results.items():
    memory = "shares memory" if evidence.shares_storage(result, a) else "copied"
    print(f"{name:19} size {tuple(result.shape)!s:10}  stride {result.stride()!s:10}  {memory}")

# %% [markdown]
# `reshape` stands there twice: it views where it can and copies where it must. A stride of 0 repeats a row without
# storing it. An index list may name any rows, which no stride describes, so it always copies.
#
# More than two dimensions at once are a matter for `permute`, or for `movedim`, which names the ones that move.

# %% tags=["nbval-ignore-output"]
from helpers import claim, expected_error, finding

x = torch.randn(2, 3, 4)
with expected_error(TypeError) as refused:
    x.transpose(0, 1, 2)
in_place = [name for name in ("transpose_", "permute_") if hasattr(x, name)]
claim("6.2").judge(
    bool(refused) and torch.equal(x.permute(2, 0, 1), x.movedim(-1, 0)) and in_place == ["transpose_"],
    because="a third dimension is a TypeError; permute and movedim agree; only transpose_ works in place",
)

# %% [markdown]
# ## When does a view exist?
# Two neighbouring dimensions walk through storage as one even line if the outer stride is the inner size times the
# inner stride. Only then can they be joined. Splitting is always possible, dimensions of size 1 never matter, and
# without elements there is nothing to walk. `view` raises exactly where a new dimension would need two lines.


# %%
def view_works(tensor: torch.Tensor, *size: int) -> str:
    try:
        return f"works, stride {tensor.view(*size).stride()}"
    except RuntimeError:
        return "raises"


swapped = torch.zeros(2, 3, 4).transpose(0, 1)
images = torch.zeros(8, 3, 6, 6).to(memory_format=torch.channels_last)
print("swapped: size", tuple(swapped.shape), "stride", swapped.stride())
print("  view(6, 4)      ", view_works(swapped, 6, 4))
print("  view(3, 8)      ", view_works(swapped, 3, 8))
print("  view(3, 2, 2, 2)", view_works(swapped, 3, 2, 2, 2))
print("images: size", tuple(images.shape), "stride", images.stride())
print("  view(8, -1)     ", view_works(images, 8, -1))

# %%
split = view_works(swapped, 3, 2, 2, 2)
claim("6.4").judge(
    {
        "the data has not moved": finding(evidence.shares_storage(a.t(), a), "a and a.t() share their storage"),
        "view needs contiguous()": finding(split == "raises", f"view(3, 2, 2, 2) of a transpose {split.split(',')[0]}"),
    }
)

# %% [markdown]
# A view that raises costs a minute. The first picture was a view that succeeded.
#
# ## A probe for mixed rows
# Shapes cannot tell right from wrong order, and a training run hardly can. Gradients can: the gradient of one output
# row says which input rows it depends on. `evidence.row_dependencies` collects that for every row. Here, sequences
# arrive as (time, batch, features), and one output row a sample is wanted:

# %%
x = torch.randn(4, 3, 5)  # time, batch, features


def show_rows(rows: torch.Tensor) -> None:
    for number, row in enumerate(rows):
        print(f"  row {number} reads  {' '.join('x' if reads else '.' for reads in row)}")


print("x.reshape(3, 20)")
show_rows(evidence.row_dependencies(lambda x: x.reshape(3, 20), x, in_dim=1))
print("x.transpose(0, 1).reshape(3, 20)")
show_rows(evidence.row_dependencies(lambda x: x.transpose(0, 1).reshape(3, 20), x, in_dim=1))

# %% [markdown]
# The first way feeds every sample with parts of the others. In attention the same slip hides better. The features are
# split over heads that work apart; afterwards (B, heads, T, D) must become (B, T, heads·D), and a `reshape` does
# produce that shape. In a causal block, which predicts what comes next, position `t` may read positions up to `t`:

# %%
from torch.nn import functional as F


def causal_block(x: torch.Tensor, merge) -> torch.Tensor:
    heads = x.unflatten(2, (2, -1)).transpose(1, 2)
    scores = heads @ heads.transpose(-2, -1)
    future = torch.ones(scores.shape[-2:]).triu(1).bool()
    return merge(scores.masked_fill(future, float("-inf")).softmax(-1) @ heads)


x = torch.randn(2, 6, 8)  # batch, positions, features
merges = {
    "transpose(1, 2).flatten(2)": lambda heads: heads.transpose(1, 2).flatten(2),
    "reshape(2, 6, 8)": lambda heads: heads.reshape(2, 6, 8),
}
for name, merge in merges.items():
    print(name)
    show_rows(evidence.row_dependencies(lambda x, merge=merge: causal_block(x, merge), x, out_dim=1, in_dim=1))

# %% [markdown]
# With the wrong merge, early positions read later ones: a loss may fall because the block sees the tokens that it is to
# predict. A repository that shipped a merge without its transpose had a training test, and the test passed. With the
# probe a test is one line: `assert not rows.triu(1).any()` for a causal block, and where samples must stay apart
# `assert torch.equal(rows, torch.eye(len(rows)) > 0)`.
#
# The probe has limits: it sees what gradients see, so feed it random floating-point values, and put the model in eval
# mode, because batch norm in train mode mixes the batch by design.
#
# ## The batch of one
# `squeeze()` drops every dimension of size 1. Whether the batch is one of them depends on the data:

# %%
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(3, 10, 3), nn.AdaptiveAvgPool2d(1))
for batch in (4, 1):
    with torch.no_grad():
        features = net(torch.randn(batch, 3, 8, 8))
    predictions = [row.argmax().item() for row in features.squeeze()]
    print(f"batch of {batch}: {tuple(features.squeeze().shape)}, {len(predictions)} predictions")

# %% [markdown]
# One picture in, ten predictions out, no error. `drop_last=True` hides it in training and loses a sample in evaluation.
# Name what goes: `flatten(1)` or `squeeze((2, 3))` keep the batch whatever its size.
#
# Losses do not protect us either. Older releases refused the lost batch in this one; newer ones take it and give the
# right value, and the bug travels on.

# %% tags=["nbval-ignore-output"]
logits, label = features.squeeze(), torch.tensor([3])
try:
    print(f"torch {torch.__version__}: cross_entropy gives {F.cross_entropy(logits, label):.3f}")
except RuntimeError as error:
    print(f"torch {torch.__version__}: RuntimeError, {error}")


# %%
x = torch.zeros(1, 3, 1, 2)
claim("6.3").judge(
    {
        "squeeze drops every dimension of size 1": finding(x.squeeze().shape == (3, 2), "(1, 3, 1, 2) becomes (3, 2)"),
        "unsqueeze copies nothing": finding(evidence.shares_storage(x.unsqueeze(0), x), "one storage before and after"),
    }
)

# %% [markdown]
# ## A loss that learns the mean
# A regression net gives (N, 1); the targets are (N,). The loss below is written as it stands in many repositories.

# %%
from helpers import predict

guess = predict(
    "broadcast-loss",
    "pred is (64, 1), target is (64,). What does ((pred - target) ** 2).mean() teach a linear net?",
    ["a line through the targets", "one constant for every input", "nothing: it raises an error"],
)

# %%
x = torch.linspace(-1, 1, 64)[:, None]
target = 3 * x[:, 0] + 1 + 0.5 * torch.sin(12 * x[:, 0])


def fit(loss) -> nn.Linear:
    torch.manual_seed(0)
    line = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(line.parameters(), lr=0.3)
    for _ in range(400):
        optimizer.zero_grad()
        loss(line(x), target).backward()
        optimizer.step()
    return line


broadcast = fit(lambda pred, target: ((pred - target) ** 2).mean())
matched = fit(lambda pred, target: ((pred[:, 0] - target) ** 2).mean())
print("differences taken:", tuple((broadcast(x) - target).shape))
for name, line in {"broadcast": broadcast, "matched": matched}.items():
    print(f"{name:9} slope {abs(line.weight.item()):.2f}, intercept {line.bias.item():.2f}")
print(f"mean of the targets        {target.mean():.2f}")
guess.reveal("one constant for every input" if abs(broadcast.weight.item()) < 1e-3 else "a line through the targets")

# %% tags=["nbval-ignore-output"]
fits = {"matched shapes": matched(x)[:, 0].tolist(), "(64, 1) against (64,)": broadcast(x)[:, 0].tolist()}
figures.line_chart(x[:, 0].tolist(), {"targets": target.tolist(), **fits}, "input", "output")

# %% [markdown]
# The net learned the mean of the targets, exactly. [Broadcasting](../docs/glossary.md#broadcasting) compares every
# prediction with every target, and
# $\frac{1}{N^2}\sum_{ij}(p_i - y_j)^2 = \frac{1}{N}\sum_i (p_i - \bar y)^2 + \mathrm{Var}(y)$: the only target left
# is the mean, and the loss stops at the variance. A loss that stalls at `target.var()` is the mark of this bug.

# %%
pred = torch.randn(64, 1)
left = ((pred - target) ** 2).mean()
right = ((pred - target.mean()) ** 2).mean() + target.var(correction=0)
print("both sides agree:", torch.allclose(left, right))
print("final loss is the variance:", torch.allclose(((broadcast(x) - target) ** 2).mean(), target.var(correction=0)))

# %% [markdown]
# Who would have told us?

# %%
import warnings

column, vector = torch.zeros(4, 1), torch.zeros(4)
losses = {"by hand": lambda pred, target: ((pred - target) ** 2).mean(), "mse_loss": F.mse_loss}
losses |= {"l1_loss": F.l1_loss, "bce_with_logits": F.binary_cross_entropy_with_logits}
for name, loss in losses.items():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            loss(column, vector)
            print(f"{name:16} {'warns' if caught else 'says nothing'}")
        except ValueError:
            print(f"{name:16} raises ValueError")
predicted, labels = torch.tensor([[1], [0], [1]]), torch.tensor([1, 0, 1])
print(f"accuracy         says nothing: {(predicted == labels).float().mean():.2f}, and all three are right")

# %% [markdown]
# The loss that is written by hand, the one that nobody suspects, is the silent one. Compare shapes before subtracting;
# exercise 4 writes a loss that refuses.
#
# ## What non-contiguity costs
# "Non-[contiguous](../docs/glossary.md#contiguous) is slow" is common advice, and `.contiguous()` gets sprinkled
# accordingly. What does it cost, and what does it save?

# %%
guess = predict(
    "transposed-sum",
    "Summing a transposed matrix, compared with the matrix itself:",
    ["takes longer", "takes the same time", "is faster", "cannot be told here"],
)
big, other = torch.randn(1024, 1024), torch.randn(1024, 1024)
wide = torch.randn(1024, 2048)
columns = wide[:, ::16]
for name, run in {"big.t()": lambda: big.t(), "big.t().contiguous()": lambda: big.t().contiguous()}.items():
    print(f"{name:21} allocates {evidence.peak_memory(run).peak:>9,} bytes")

# %% tags=["nbval-ignore-output"]
from helpers import compare

sums = compare({"big.sum()": lambda: big.sum(), "big.t().sum()": lambda: big.t().sum()}, margin=0.1)
print(sums.sentence("big.t().sum()"))
truths = {"slower": "takes longer", "faster": "is faster", "no practical difference": "takes the same time"}
guess.reveal(truths.get(sums.verdict("big.t().sum()"), "cannot be told here"))

# %% [markdown]
# Here a difference below a tenth counts as none. An operation on one layout may walk in whatever order suits the
# storage, so it need not care about a transpose. Two layouts in one operation cannot both be walked in order. And
# strided columns fetch a whole cache line for each number they use.

# %% tags=["nbval-ignore-output"]
mixed = compare(
    {
        "both as stored": lambda: big + other,
        "both transposed": lambda: big.t() + other.t(),
        "one transposed": lambda: big + other.t(),
    },
    margin=0.1,
)
mixed.show()

# %% tags=["nbval-ignore-output"]
packed = columns.contiguous()
strided = compare({"packed columns": lambda: packed.sum(), "every 16th column": lambda: columns.sum()}, clock="cpu")
print(strided.sentence("every 16th column"))

# %% [markdown]
# So `contiguous()` pays where layouts mix or numbers lie far apart, and where the copy is read more than once. Before a
# sum or an elementwise operation on plain transposes it is a copy for nothing.
#
# ## What professionals still get wrong
# **Writing into an expanded tensor.** All its rows are one row. In-place arithmetic is refused; assignment is not:

# %%
table = torch.zeros(3).expand(4, 3)
try:
    table.add_(1)
except RuntimeError as error:
    print("add_ refused:", "more than one element" in str(error))
table[0, 0] = 5
print(table.tolist())

# %% [markdown]
# `clone()` before writing, or `repeat`, which copies.
#
# **Relying on reshape to share, or not to.** The same line clears the source or leaves it, depending on a layout that
# was decided elsewhere. And **writing through a list index:** one more pair of brackets, and the write goes into a
# temporary copy.

# %%
source, turned, rows = torch.ones(2, 3), torch.ones(3, 2).t(), torch.ones(3, 2)
source.reshape(-1).zero_()
turned.reshape(-1).zero_()
print("left after reshape(-1).zero_():", source.sum().item(), "and, transposed,", turned.sum().item())
rows[[0, 1]] += 1
print("rows[[0, 1]] += 1 changes", (rows != 1).any(1).sum().item(), "rows")
rows[[0, 1]][0] = 9
print("rows[[0, 1]][0] = 9 changes", (rows == 9).any(1).sum().item())

# %% [markdown]
# **Saving a slice.** A view keeps its whole storage, also on disk:


# %%
def saved_bytes(tensor: torch.Tensor) -> int:
    file = io.BytesIO()
    torch.save(tensor, file)
    return len(file.getvalue())


row = big[:1]
print("the file of the slice holds the whole matrix:", saved_bytes(row) > big.nbytes)
print("the file of its clone does:                  ", saved_bytes(row.clone()) > big.nbytes)

# %% [markdown]
# ## The articles' claims
# Three cards stand above. One is left, and it has aged well:

# %%
from torch.autograd import Variable

old = Variable(a)
claim("6.1").judge(
    type(old) is torch.Tensor and evidence.shares_storage(old, a),
    because="Variable(a) is a plain Tensor on a's storage",
)

# %% [markdown]
# ## Summary
# - A tensor is storage, size and stride. `view` keeps the reading order, `permute` changes it; the right shape proves
#   nothing about the order.
# - Name dimensions, compare shapes: `squeeze()` loses a batch of one, (N, 1) against (N,) learns the mean.
# - Test with `row_dependencies`: an identity, or a triangle, where rows should stay apart. Copy for mixed layouts and
#   strided columns, not for transposes.
#
# ## Exercises
# Five exercises wait in `06_exercises.ipynb`, next to your copy of this chapter: eight layouts, a batch
# of one, images and heads, a loss that refuses to broadcast, and the rule that decides whether a view exists.
#
# ## Sources
# - Tensor views: <https://docs.pytorch.org/docs/stable/tensor_view.html>. Broadcasting:
#   <https://docs.pytorch.org/docs/stable/notes/broadcasting.html>. `Tensor.view`, with the rule above:
#   <https://docs.pytorch.org/docs/stable/generated/torch.Tensor.view.html>
# - Reports behind this chapter:
#   [jsbaan/transformer-from-scratch#6](https://github.com/jsbaan/transformer-from-scratch/pull/6) (merge without
#   transpose),
#   [rish-16/tokenlearner-pytorch#1](https://github.com/rish-16/tokenlearner-pytorch/issues/1) (view for transpose),
#   [pytorch#19699](https://github.com/pytorch/pytorch/issues/19699) and
#   [a forum thread](https://discuss.pytorch.org/t/160720) (the broadcast loss),
#   [NVIDIA/tacotron2#303](https://github.com/NVIDIA/tacotron2/pull/303) and
#   [layumi/Person_reID#77](https://github.com/layumi/Person_reID_baseline_pytorch/issues/77) (the batch of one).

# %% tags=["nbval-ignore-output"]
from helpers import wrap_up

wrap_up()
