# %% [markdown]
# # 3 JIT compilation: what did the compiler see?
#
# A model was traced for serving. Every test passed, for every test used the example it was traced with. In production
# some answers are wrong: no error, no warning, no slow-down. This chapter shows what a compiler sees of a model,
# counts what it makes of that, and names the [guards](../docs/glossary.md#guard) that would have spoken up.
#
# About 50 minutes with the exercises. Almost all of it runs without a C++ compiler: we count with a
# [backend](../docs/glossary.md#backend) of our own.

# %% tags=["parameters"]
budget_s: float = 2.0  # seconds that one timing comparison may take
device: str = "auto"  # taken like in every chapter; this one runs on the CPU
record: bool = False  # keep results for readers without this machine
fast: bool = False  # small budgets: a quick look
inductor: bool = False  # generate machine code too: needs a C++ compiler, and up to a minute the first time

# %% tags=["nbval-ignore-output"]
from helpers import preflight

preflight("03", budget_s=budget_s, device=device, record=record, fast=fast)

# %% [markdown]
# ## A trace that lies
# The model turns over signals that were recorded with the wrong polarity. TorchScript, PyTorch's older compiler, can
# *trace* it: run it once on an example and write down the operations that ran.

# %%
import warnings

import torch
from torch import nn

from helpers import predict


class Polarity(nn.Module):
    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        if signal.sum() > 0:
            return signal.clone()
        return -signal


upright = torch.tensor([1.0, 2.0, 3.0])
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    traced = torch.jit.trace(Polarity(), upright)
print("warned by:", "TracerWarning" in {warning.category.__name__ for warning in told})
guess = predict("lying-trace", "The trace gets a signal of the other polarity:", ["an error", "right", "wrong"])

# %%
model = Polarity()
print("model:", model(-upright).tolist())
print("trace:", traced(-upright).tolist())
guess.reveal("right" if torch.equal(traced(-upright), model(-upright)) else "wrong")
print(traced.code)

# %% [markdown]
# The code is all that the trace knows: the branch is gone, and nothing tells that there was one. The only warning
# came while tracing, on somebody else's screen. A loop over a size is frozen in the same way: this one was traced on
# three steps and gets five.


# %%
def running_sums(steps: torch.Tensor) -> torch.Tensor:
    return torch.stack([steps[: n + 1].sum() for n in range(steps.shape[0])])


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    traced_sums = torch.jit.trace(running_sums, torch.ones(3))
print("function:", running_sums(torch.ones(5)).tolist())
print("trace:   ", traced_sums(torch.ones(5)).tolist())

# %% [markdown]
# ## What torch.compile sees
# `torch.compile` also watches a model run, but it keeps the conditions. It hands the operations it saw to a
# *backend*, as a [graph](../docs/glossary.md#compiled-graph). The usual backend generates machine code. Ours prints
# what it is given and runs it as it is:


# %% tags=["nbval-ignore-output"]
def printing_backend(graph_module, example_inputs):
    print(graph_module.code.strip(), "\n")
    return graph_module.forward


compiled = torch.compile(Polarity(), backend=printing_backend)
compiled(upright)
compiled(-upright)

# %% [markdown]
# Three graphs: the sum and the comparison; then, after Python has looked at the result, one graph for each branch.
# The place between them is a [*graph break*](../docs/glossary.md#graph-break). The answers are right, at the price of
# a return to Python in the middle, where nothing can be [fused](../docs/glossary.md#fusion). From here on we count:
# `CountingBackend` counts compilations and runs of compiled graphs.

# %%
import logging

from helpers import evidence

for name in ("torch._dynamo", "torch._guards"):
    logging.getLogger(name).setLevel(logging.CRITICAL)  # we count instead of reading its notes


def count_graphs(function) -> tuple[int, bool]:
    """Graphs made for both polarities, and whether the results are right."""
    torch.compiler.reset()
    backend = evidence.CountingBackend()
    compiled = torch.compile(function, backend=backend)
    right = all(torch.equal(compiled(x), function(x)) for x in (upright, -upright))
    return backend.compiles, right


def reads_item(x):
    return x * x.sum().item()


def logs(x):
    doubled = x * 2
    print("", end="")
    return doubled + 1


def asks_for_the_length(x):
    return x * 2 if x.shape[0] > 2 else x


def chooses(x):
    return torch.where(x.sum() > 0, x, -x)


def keep(x):
    return x.clone()


def turn(x):
    return -x


def condition(x):
    return torch.cond(x.sum() > 0, keep, turn, (x,))


patterns = {
    "if on a tensor": model,
    ".item()": reads_item,
    "print": logs,
    "if on a length": asks_for_the_length,
    "torch.where": chooses,
    "torch.cond": condition,
}
graphs = {name: count_graphs(function) for name, function in patterns.items()}
for name, (count, right) in graphs.items():
    print(f"{name:15} graphs: {count}, results right: {right}")

# %% [markdown]
# A length is known while the compiler watches, a value is not. `torch.where` computes both sides and chooses, also in
# the backward pass: an unused side without a value, such as the root of a negative number, makes the gradient NaN.
# `torch.cond` puts both branches into the graph and runs one. Breaks make no noise, so ask for it: with
# `fullgraph=True` a break is an error.

# %% tags=["nbval-ignore-output"]
from helpers import expected_error

torch.compiler.reset()
whole = torch.compile(model, backend=evidence.CountingBackend(), fullgraph=True)
with expected_error(RuntimeError):
    whole(upright)

# %% [markdown]
# A widely copied article warns that a model with conditions does not work. TorchScript has a second front end,
# `script`, which reads the source code instead of watching a run. All four on trial:

# %%
from helpers import claim, finding

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    scripted = torch.jit.script(model)


def fails(right: bool) -> object:
    """The claim's word on one way: it does not work."""
    return finding(not right, "right for both polarities" if right else "wrong for one polarity, in silence")


claim("3.3").judge(
    {
        "torch.jit.trace": fails(torch.equal(traced(-upright), model(-upright))),
        "torch.jit.script": fails(torch.equal(scripted(-upright), model(-upright))),
        "torch.compile": fails(graphs["if on a tensor"][1]),
        "torch.cond": fails(graphs["torch.cond"][1]),
    }
)

# %% [markdown]
# ## What a graph takes for granted
# A graph holds under assumptions: shapes, dtypes, Python values, modes. They are kept as *guards*, checked before
# each call; if one fails, the function is compiled anew. How often does that happen when batch sizes vary?

# %%
sizes = [8, 9, 10, 11, 16, 32, 1, 2, 1, 0]
guess = predict("recompiles", f"Default settings, sizes {sizes}: how many compilations?", ["1", "4", "7", "10"])


def scaled(x):
    return x * 2 + 1


def compilations(sizes: list[int], **settings) -> list[int]:
    """Compilations so far, after each call."""
    torch.compiler.reset()
    backend = evidence.CountingBackend()
    compiled, so_far = torch.compile(scaled, backend=backend, **settings), []
    for size in sizes:
        compiled(torch.ones(size))
        so_far.append(backend.compiles)
    return so_far


by_setting = {f"dynamic={dynamic}": compilations(sizes, dynamic=dynamic) for dynamic in (None, False, True)}
for name, so_far in by_setting.items():
    print(f"{name:14} {so_far}")
guess.reveal(str(by_setting["dynamic=None"][-1]))

# %% tags=["nbval-ignore-output"]
from helpers import figures

figures.line_chart(list(range(1, 11)), by_setting, "call", "compilations so far")

# %% [markdown]
# By default the first size is taken for the only one; the second shows that it varies and gets a graph with a
# symbolic size, which serves all others. 1 and 0 are special whatever the setting: 1 broadcasts, 0 is empty. With
# `dynamic=False` every size costs a graph, until the line goes flat, which is no good sign:

# %%
torch.compiler.reset()
backend = evidence.CountingBackend()
compiled = torch.compile(scaled, backend=backend, dynamic=False)
for size in range(2, 16):
    compiled(torch.ones(size))
print(f"14 calls, {backend.compiles} compilations, {backend.calls} calls ran compiled code")

# %% [markdown]
# After eight compilations of one function the compiler gives up and runs it eager. One line in the log says so. Three
# ways to keep that from happening unseen. Say beforehand which dimension varies:

# %%
torch.compiler.reset()
backend = evidence.CountingBackend()
compiled = torch.compile(scaled, backend=backend)
for size in (8, 9, 64):
    x = torch.ones(size)
    torch._dynamo.mark_dynamic(x, 0)
    compiled(x)
print("marked:", backend.compiles, "compilation")
needs_fixed_shapes = backend.compiles > 1

# %% [markdown]
# Or, with `fullgraph=True`, let the limit raise instead. Or, once warmed up, forbid any
# [recompilation](../docs/glossary.md#recompilation). The error then names the guard that failed (not yet in torch 2.6),
# which makes it the best alarm for a service:

# %% tags=["nbval-ignore-output"]
torch.compiler.reset()
serving = torch.compile(scaled, backend=evidence.CountingBackend())
serving(torch.ones(4))
with torch.compiler.set_stance("fail_on_recompile"), expected_error(RuntimeError) as caught:
    serving(torch.ones(5))
print(str(caught[0])[-90:])

# %% [markdown]
# ## Faster, or slower?
# The article saw little difference. We take a small net, where each operation is short and the time goes into Python
# and dispatch. `script` runs it without Python. `torch.compile`, with a backend that changes nothing, adds the price
# of its guards.

# %% tags=["nbval-ignore-output"]
from helpers import compare

torch.manual_seed(0)
small = nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.ReLU())]).eval()
row = torch.randn(1, 64)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    ways = {"eager": small, "script": torch.jit.script(small), "guards only": torch.compile(small, backend="eager")}
runs = {name: torch.no_grad()(lambda way=way: way(row)) for name, way in ways.items()}
for _ in range(5):  # script optimises after its first runs
    for run in runs.values():
        run()
small_speed = compare(runs)
small_speed.show()

# %% [markdown]
# What a generating backend can win is written in the operations. Eager runs them one by one, and each reads and
# writes all of its data; fused into one loop, the data is read once and written once.


# %%
def polynomial(x):
    return ((x * 2 + 1) * x - 3) * x + (x * 0.5 - 1) * x * x + 4


signal = torch.linspace(-1, 1, 1_000_000)
steps = evidence.op_counts(lambda: polynomial(signal)).total()
print(f"{steps} passes over {evidence.storage_bytes(signal):,} bytes; fused: one")

# %% [markdown]
# The next cell generates machine code with Inductor, where `inductor=True` asks for it. The first compilation of a
# process takes from seconds to a minute, so by default the cell shows one recorded run instead. A recording informs;
# the verdict below counts only what ran here.

# %% tags=["nbval-ignore-output"]
from helpers import recordings, settings, untested
from helpers.measure.machine import cxx_compiler


def machine_code(function, x) -> object:
    """Time a function with and without Inductor."""
    torch.compiler.reset()
    compiled = torch.compile(function)
    with torch.no_grad():
        compiled(x)
        return compare({"eager": lambda: function(x), "compiled": lambda: compiled(x)})


reason = "inductor=True was not asked for" if not inductor else "a fast run" if settings.fast else ""
reason = reason or ("" if cxx_compiler() else "no C++ compiler here")
fused = {}
if reason:
    print(f"Not run here ({reason}).")
    for recording in recordings.load("inductor", machine_code):
        print(recording.describe(), *recording.result, sep="\n   ")
else:
    fused = {"polynomial": machine_code(polynomial, signal), "small net": machine_code(small, row)}
    results = [f"{name}: {speed.sentence('compiled')}, first call not counted" for name, speed in fused.items()]
    print(*results, sep="\n")
    if settings.record:
        recordings.save("inductor", machine_code, results)

# %% tags=["nbval-ignore-output"]
little = {"script, small net": small_speed.same("script"), "guards, small net": small_speed.same("guards only")}
for name in ("polynomial", "small net"):
    little[f"Inductor, {name}"] = fused[name].same("compiled") if fused else untested(reason)
claim("3.2").judge(little)

# %% [markdown]
# Little difference is what one sees between the two ends: where operations are few and long, as in large matrix
# products, there is little to fuse and little overhead to save. Measure your own model, the first call included.
#
# ## Leaving Python
# The article's JIT also carried models to C++. PyTorch's documentation now says
# ["TorchScript is deprecated"](https://docs.pytorch.org/docs/stable/jit.html) and sends readers to `torch.export`.
# Exporting states what may vary, and the program checks it:

# %% tags=["nbval-ignore-output"]
classifier = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3)).eval()
batch = torch.export.Dim("batch", max=64)
program = torch.export.export(classifier, (torch.randn(4, 8),), dynamic_shapes=({0: batch},))
served = program.module()
with expected_error(AssertionError, RuntimeError):
    served(torch.randn(65, 8))

# %%
import io

file = io.BytesIO()
torch.export.save(program, file)
file.seek(0)
reloaded = torch.export.load(file).module()
for rows in (1, 2, 64):
    x = torch.randn(rows, 8)
    print(f"{rows:2} rows: equal {torch.allclose(reloaded(x), classifier(x), atol=1e-6)}")

# %% [markdown]
# The file holds the graph and the weights, no Python class. AOTInductor turns it into a shared library for C++:
# `torch._inductor.aoti_compile_and_package(program)`, which generates machine code and so runs only where you ask for
# it. Beware: where we tried it, the package accepted 65 rows.

# %% tags=["nbval-ignore-output"]
if reason:
    print(f"Not run here ({reason}).")
else:
    import tempfile

    package = tempfile.mkdtemp() + "/model.pt2"
    torch._inductor.aoti_compile_and_package(program, package_path=package)
    library = torch._inductor.aoti_load_package(package)
    print("equal:", torch.allclose(library(x), classifier(x), atol=1e-5))
    try:
        print("65 rows accepted, shape", tuple(library(torch.randn(65, 8)).shape))
    except RuntimeError as error:
        print("65 rows refused:", type(error).__name__)

# %%
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    torch.jit.script(classifier)
deprecated = any("deprecated" in str(warning.message) for warning in told)
claim("3.1").judge(
    {
        "shapes must not change": finding(needs_fixed_shapes, "one graph served three sizes"),
        "a supported way to other languages": finding(
            not deprecated, f"torch.jit.script calls itself deprecated: {deprecated}"
        ),
    }
)

# %% [markdown]
# ## What professionals still get wrong
# **A warning that nobody sees.** Up to torch 2.13 TorchScript announces its end by a `DeprecationWarning` raised inside
# PyTorch, a kind that Python hides outside of tests; 2.14 made it a `FutureWarning`, which is shown. With Python's
# default filters:

# %%
with warnings.catch_warnings(record=True) as told:
    warnings.resetwarnings()
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    warnings.filterwarnings("default", category=DeprecationWarning, module="__main__")
    torch.jit.script(classifier)
print("shown by default:", len(told))

# %% [markdown]
# **A Python number on a module is a constant.** The compiler guards it, so a counter or a schedule in `forward` asks
# for a new graph at its next value. (Torch 2.6 makes such an integer symbolic at its second value.) A tensor is data
# and may change. Exercise 4 wants the cure.


# %%
class Annealed(nn.Module):
    def __init__(self):
        super().__init__()
        self.step = 0

    def forward(self, x):
        self.step += 1
        return x / self.step


torch.compiler.reset()
backend = evidence.CountingBackend()
annealed = torch.compile(Annealed(), backend=backend)
for _ in range(12):
    annealed(row)
print(f"12 calls with one shape: {backend.compiles} compilations, {backend.calls} compiled calls")

# %% [markdown]
# **Modes are guards.** Training, evaluation, `no_grad` and `inference_mode` each get their own graph. Warm up in the
# mode that you serve in, or the first request pays.

# %%
torch.compiler.reset()
backend = evidence.CountingBackend()
compiled = torch.compile(classifier, backend=backend)
for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
    with mode():
        compiled(x)
    print(f"eval + {mode.__name__}: {backend.compiles} compilations so far")
compiled(x)
print(f"back to enable_grad: {backend.compiles}")

# %% [markdown]
# **An exported mode stays.** Dropout exported in train mode drops for ever, and the program cannot be switched. And
# an example of one row makes the batch size the constant 1:

# %% tags=["nbval-ignore-output"]
with expected_error(NotImplementedError):
    served.eval()
with expected_error(RuntimeError):
    torch.export.export(classifier, (torch.randn(1, 8),), dynamic_shapes=({0: batch},))

# %% [markdown]
# `mark_dynamic` on a tensor of size 1 does not even raise; the graph is static, and the next size compiles again.
#
# **Watching switches it off.** A compiled function that is called under a dispatch mode, as counters and debuggers use,
# runs eager. In torch 2.13 and before it stays eager after the mode has ended:

# %%
torch.compiler.reset()
backend = evidence.CountingBackend()
watched = torch.compile(scaled, backend=backend)
evidence.op_counts(lambda: watched(row))
watched(row)
print(f"2 calls, {backend.compiles} compilations")

# %% [markdown]
# ## Summary
# - A trace keeps what its example did and forgets that there was a choice. `script`, `torch.compile` and `torch.cond`
#   keep the choice.
# - A compiled graph holds under guards. Count compilations with a backend of your own, refuse breaks with `fullgraph`,
#   and refuse surprises with `set_stance("fail_on_recompile")`.
# - Compiling wins where many short passes become one, and loses where guards cost more than the work.
#
# ## Exercises
# Five exercises wait in `03_exercises.ipynb`, next to your copy of this chapter: catch a lying trace,
# one graph for two branches, any length in two graphs, a layer that counts, and a program with a contract.
#
# ## Sources
# - TorchScript: <https://docs.pytorch.org/docs/stable/jit.html>; `torch.compile`, programming model:
#   <https://docs.pytorch.org/docs/stable/user_guide/torch_compiler/compile/programming_model.html>
# - Dynamic shapes:
#   <https://docs.pytorch.org/docs/stable/user_guide/torch_compiler/torch.compiler_dynamic_shapes.html>; `torch.export`:
#   <https://docs.pytorch.org/docs/stable/user_guide/torch_compiler/export.html>
# - Reports behind this chapter: [pytorch#22485](https://github.com/pytorch/pytorch/issues/22485) and
#   [pytorch#59530](https://github.com/pytorch/pytorch/issues/59530) (frozen branches and loops),
#   [pytorch#128319](https://github.com/pytorch/pytorch/issues/128319) (a counter recompiles),
#   [NVIDIA/TensorRT-LLM#6142](https://github.com/NVIDIA/TensorRT-LLM/issues/6142) (limit hit, silently eager),
#   [pytorch#133653](https://github.com/pytorch/pytorch/issues/133653) (example of one row),
#   [pytorch#190286](https://github.com/pytorch/pytorch/issues/190286) (dispatch modes).

# %% tags=["nbval-ignore-output"]
from helpers import wrap_up

wrap_up()
