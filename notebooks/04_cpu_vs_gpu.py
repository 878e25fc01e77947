# %% [markdown]
# # 4 CPU vs GPU: how close to the limit?
#
# The GPU bill has doubled. A colleague shows a table in which the GPU takes the same time for sixteen numbers as for
# sixteen million, and concludes that CPUs are a dead end. Before anyone signs an order we want three things: what the
# hardware can do at most, how far our nets are from it, and where one device overtakes the other.
#
# About 50 minutes with the exercises. No GPU is needed: what would take one is modelled here, and labelled so.

# %% tags=["parameters"]
budget_s: float = 2.0  # seconds that one timing comparison may take
device: str = "auto"  # where the GPU cells run: "auto", "cpu" or "cuda"
record: bool = False  # keep results for readers without this machine
fast: bool = False  # small budgets: a quick look

# %% tags=["nbval-ignore-output"]
from helpers import preflight

preflight("04", budget_s=budget_s, device=device, record=record, fast=fast)

# %% [markdown]
# ## Three limits
# A forward pass computes, moves bytes and starts operations. Each of the three alone sets a lower bound on its time.
# The amounts can be counted without a clock. Bytes moved are the weights once, and what each layer reads and writes.

# %%
import torch
from torch import nn

from helpers import evidence

torch.manual_seed(0)
small = nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.ReLU())]).eval()
wide = nn.Sequential(nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 4096)).eval()
convolutions = [nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()]
conv = nn.Sequential(*convolutions, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)).eval()
inputs = {small: torch.randn(256, 64), wide: torch.randn(64, 4096), conv: torch.randn(32, 3, 32, 32)}
nets = {"small net": small, "wide net": wide, "conv net": conv}


@torch.inference_mode()
def amounts(net: nn.Sequential, batch: int) -> tuple[int, int, int]:
    """Flops, bytes moved and operations of one forward pass."""
    x = inputs[net][:batch]
    flops, operations = evidence.flops(lambda: net(x)), evidence.op_counts(lambda: net(x)).total()
    nbytes = evidence.storage_bytes(net)
    for layer in net:
        nbytes += x.nbytes
        x = layer(x)
        nbytes += x.nbytes
    return flops, nbytes, operations


for name, net in nets.items():
    for batch in (1, len(inputs[net])):
        flops, nbytes, _ = amounts(net, batch)
        print(f"{name}, batch {batch:3}: {flops:13,} flops, {nbytes:11,} bytes, {flops / nbytes:5.1f} flops per byte")

# %% [markdown]
# The last column is the [*arithmetic intensity*](../docs/glossary.md#arithmetic-intensity). One item through the wide
# net reads every weight to use it once; a batch uses it for every item. The same net is a different load at another
# batch size.

# %%
from helpers import predict

wide_guess = predict(
    "wide-limit", "One item through the wide net: what bounds its time?", ["arithmetic", "memory", "operations"]
)
bf16_guess = predict(
    "bfloat16",
    "A 256x256 matrix product in bfloat16, half the bytes of float32. On this CPU it is:",
    ["faster", "slower", "no practical difference", "too noisy to tell"],
)

# %% [markdown]
# ## What this machine can do
# Data sheets promise peaks; we measure them, on one thread. A peak is a best case, so here the *fastest* of many calls
# is the right number, and the roof is the best that anything reached. Neighbours on the machine slow everything alike,
# so roof and nets take turns in the same rounds.

# %%
import random
import sys
import time

from helpers import settings, state

# The thread's own clock stops while a neighbour runs; on Windows it ticks too coarsely.
clock = time.perf_counter if sys.platform == "win32" else time.thread_time


def fastest(calls: dict) -> dict:
    """Seconds of each call at its best; the calls take turns on one thread, for two budgets or five rounds."""
    blocks, best = {}, dict.fromkeys(calls, float("inf"))
    with state.guard(), torch.inference_mode():
        torch.set_num_threads(1)
        for name, call in calls.items():
            call()
            start = clock()
            call()
            blocks[name] = range(max(1, min(100, int(2e-4 / max(clock() - start, 1e-7)))))
        end, rounds = time.perf_counter() + 2 * settings.budget(), 0
        while time.perf_counter() < end or rounds < 5:
            rounds += 1
            for name in random.sample(list(calls), len(calls)):
                call = calls[name]
                start = clock()
                for _ in blocks[name]:
                    call()
                best[name] = min(best[name], (clock() - start) / len(blocks[name]))
    return best


# %% tags=["nbval-ignore-output"]
long, few, half = torch.ones(2**25), torch.ones(8), 2**24
target, squares = torch.empty(half), {n: torch.randn(n, n) for n in (256, 512, 768)}
loads = {(name, batch): net for name, net in nets.items() for batch in (1, len(inputs[net]))}
seconds = fastest(
    {f"matmul {n}": lambda a=a: a @ a for n, a in squares.items()}
    | {"read": long.sum, "copy": lambda: target.copy_(long[:half]), "operation": lambda: few.add(few)}
    | {"addition": lambda: torch.add(long[:half], long[half:], out=target), "in place": lambda: target.mul_(1.0)}
    | {(name, batch): lambda net=net, x=inputs[net][:batch]: net(x) for (name, batch), net in loads.items()}
)
streams = {"read": long.nbytes, "copy": long.nbytes, "in place": long.nbytes, "addition": 12 * half}
streams["wide net", 1] = amounts(wide, 1)[1]
products = {f"matmul {n}": 2 * n**3 for n in squares} | {
    (name, b): amounts(net, b)[0] for (name, b), net in loads.items()
}
machine = {
    "peak_flops": max(flops / seconds[name] for name, flops in products.items()),
    "peak_bandwidth": max(nbytes / seconds[name] for name, nbytes in streams.items()),
    "seconds_per_operation": seconds["operation"],
}
print(f"arithmetic: {machine['peak_flops'] / 1e9:.0f} GFLOP/s on one thread, float32")
print(f"memory:     {machine['peak_bandwidth'] / 1e9:.1f} GB/s for more bytes than a cache holds")
print(f"operation:  {machine['seconds_per_operation'] * 1e6:.1f} microseconds for the smallest one")

# %% [markdown]
# The [*roofline*](../docs/glossary.md#roofline) puts the first two into one picture: left of the ridge a load waits
# for memory, right of it for arithmetic. Distance below the roof is what better software could still gain, on the
# same hardware.

# %% tags=["nbval-ignore-output"]
from helpers import figures

points = {"addition, long": (1 / 12, half / seconds["addition"])}
for (name, batch), net in loads.items():
    flops, nbytes, _ = amounts(net, batch)
    points[f"{name}, batch {batch}"] = (flops / nbytes, flops / seconds[name, batch])
figures.roofline(points, machine["peak_flops"], machine["peak_bandwidth"])

# %% [markdown]
# The small net at batch 1 lies far below both roofs. Its largest limit is the third one:

# %% tags=["nbval-ignore-output"]
limits = {}
print(f"{'microseconds':22} {'arithmetic':>10} {'memory':>10} {'operations':>10} {'measured':>10}")
for (name, batch), net in loads.items():
    flops, nbytes, operations = amounts(net, batch)
    bounds = {
        "arithmetic": flops / machine["peak_flops"],
        "memory": nbytes / machine["peak_bandwidth"],
        "operations": operations * machine["seconds_per_operation"],
    }
    limits[name, batch] = max(bounds, key=bounds.get)
    row = " ".join(f"{1e6 * bound:10,.1f}" for bound in [*bounds.values(), seconds[name, batch]])
    print(f"{name + ', batch ' + str(batch):22} {row}   bound by {limits[name, batch]}")
wide_guess.reveal(limits["wide net", 1])

# %% [markdown]
# At batch 1 the wide net keeps its core busy all the time, and the core does little but wait for weights: a system
# monitor shows full use either way. More arithmetic units would not help it. More bandwidth would, or fewer bytes, or
# more items for each reading. The bounds are loose where a net is small: a `Linear` costs several of the cheapest
# operation, and bytes that stay in a cache arrive sooner than memory can send them.

# %%
print("the wide net at batch 1 waits for", limits["wide net", 1])

# %% [markdown]
# ## The impossible benchmark
# Now the colleague's table. It exists, copied from page to page: a thousand times `b += b`, square tensors of growing
# size, on a CPU and on a GPU. The times are the page's. The bytes we add: each addition reads and writes `b` once.

# %%
PUBLIC_TABLE = {4: (0.009267, 0.043121), 40: (0.01473, 0.044742), 400: (0.970261, 0.044156), 4000: (38.0887, 0.044649)}
V100_BYTES_PER_S = 900e9  # the data sheet of the fastest GPU on sale when the table was made

for side, (cpu_s, gpu_s) in PUBLIC_TABLE.items():
    nbytes = 2 * 4 * side**2
    rate = 1000 * nbytes / gpu_s
    text = f"CPU {1e3 * cpu_s:8.1f} µs, GPU {1e3 * gpu_s:4.1f} µs, which is {rate / 1e9:6.1f} GB/s"
    print(f"{side:4}x{side:<4} one addition: {text}, possible on a V100: {rate <= V100_BYTES_PER_S}")

# %% [markdown]
# The largest tensor cannot have been added in that time, and the GPU's column hardly moves. A GPU works through a
# queue: `b += b` puts a request in and returns. Nobody [synchronised](../docs/glossary.md#synchronise), so the clock
# saw a thousand [launches](../docs/glossary.md#launch). We can live through this without a GPU. A worker thread is a
# queue, too:

# %%
from concurrent.futures import ThreadPoolExecutor

b = torch.ones(4000, 4000)


def additions() -> None:
    for _ in range(20):
        b.add_(b)


with state.guard(), ThreadPoolExecutor(1) as queue:
    torch.set_num_threads(1)
    queue.submit(int).result()  # the thread is there before the clock starts
    start = time.perf_counter()
    job = queue.submit(additions)
    launched_s, finished = time.perf_counter() - start, job.done()
    job.result()  # this is what torch.cuda.synchronize() does: wait for the queue
    waited_s = time.perf_counter() - start
print("work finished when the first clock stopped:", finished)

# %% tags=["nbval-ignore-output"]
moved = 20 * 2 * b.nbytes
for name, passed in {"without waiting": launched_s, "with waiting": waited_s}.items():
    rate = moved / passed
    print(f"{name:15} {rate / 1e9:12,.1f} GB/s, {rate / machine['peak_bandwidth']:12,.2f} of the peak measured above")

# %% [markdown]
# So the check costs one division: bytes over time, flops over time, each held against the peak. It catches a missing
# `synchronize`, and as well a cached result or a loop that was never run. `compare` waits for the device by itself.
#
# ## Threads
# So far one thread. PyTorch would take as many as it sees cores. Which sizes gain, and what happens beyond the cores?
# The worker runs in a process of its own with a time limit, because the answer can be "it hangs".

# %% tags=["nbval-ignore-output"]
import math
import os
import subprocess

from helpers import machine as this_machine

WORKER = """
import sys, time, torch
print("  threads PyTorch takes by itself:", torch.get_num_threads(), flush=True)
short, long = torch.randn(96, 96), torch.randn(1_000_000)
for name, work in (("96x96 product", lambda: short @ short), ("million products", lambda: long * long)):
    for threads in map(int, sys.argv[1:]):
        torch.set_num_threads(threads)
        work()
        times, end = [], time.perf_counter() + 0.3
        while time.perf_counter() < end or not times:
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
        median = 1e6 * sorted(times)[len(times) // 2]
        print(f"  {name:16} {threads:3} threads {median:10,.0f} microseconds", flush=True)
"""


def run_worker(threads: list[int], limit_s: float = 20, **variables: str) -> str:
    """What the worker printed until it ended or the limit was reached."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "MKL_"))}
    command = [sys.executable, "-c", WORKER, *map(str, threads)]
    try:
        done = subprocess.run(command, env=kept | variables, capture_output=True, text=True, timeout=limit_s)
        return done.stdout
    except subprocess.TimeoutExpired as ended:
        printed = ended.stdout or ""
        return (printed if isinstance(printed, str) else printed.decode()) + "  ended at the time limit"


cores = this_machine.usable_cores()
counts = sorted({1, math.ceil(cores), 4 * math.ceil(cores)})
print(f"usable cores: {cores:g}")
for name, variables in {"as installed": {}, "OMP_WAIT_POLICY=PASSIVE": {"OMP_WAIT_POLICY": "PASSIVE"}}.items():
    print(f"{name}\n{'  left out of a fast run' if fast else run_worker(counts, **variables)}")

# %% [markdown]
# Threads help where each has enough to do. Where [threads outnumber free cores](../docs/glossary.md#oversubscription),
# they wait at a barrier for one that is not running, and the usual OpenMP runtime waits by spinning, on the core the
# other one needs. On a busy machine this can turn microseconds into tens of milliseconds. `OMP_WAIT_POLICY=PASSIVE`,
# set before PyTorch starts, makes them sleep.
#
# In a server, workers multiply. The number that PyTorch takes by itself follows the CPU affinity, not a CPU quota: a
# container limited by quota still counts the cores of its host. These are the plans that fill eight cores:

# %%
server_cores = 8
fitting = [(workers, server_cores // workers) for workers in range(1, server_cores + 1) if server_cores % workers == 0]
print("workers x threads:", ", ".join(f"{workers}x{threads}" for workers, threads in fitting))
print("eight workers with the default:", 8 * server_cores, "threads on", server_cores, "cores")

# %% [markdown]
# Which of them is best is a matter of measuring, not of taste; exercise 5 chooses from such a table.
#
# ## Fewer bytes, and what the CPU makes of them
# If bytes are the limit, halve them: bfloat16. The saving and the price in accuracy are exact:

# %%
a = torch.randn(256, 256, generator=torch.Generator().manual_seed(0))
product, rough = a @ a, (a.bfloat16() @ a.bfloat16()).float()
error = float((product - rough).norm() / product.norm())
print(f"bytes: {a.nbytes:,} and {a.bfloat16().nbytes:,}; relative error below one percent: {error < 0.01}")

# %% [markdown]
# Whether it is fast depends on instructions that not every CPU has, and on what the libraries make of them. Without
# them, each product is emulated.

# %% tags=["nbval-ignore-output"]
from helpers import compare

halves = {"float32": a, "bfloat16": a.bfloat16(), "float16": a.half()}
product_speed = compare({name: lambda m=m: m @ m for name, m in halves.items()})
product_speed.show()
print("widest instruction set PyTorch uses here:", torch.backends.cpu.get_cpu_capability())
bf16_guess.reveal(product_speed.verdict("bfloat16"))

# %% [markdown]
# And two layers at batch 1, bound by their weights? Here int8 joins in: weights of one byte, activations quantized on
# the way. That API is deprecated in favour of torchao, yet it is the one that PyTorch still brings along.

# %% tags=["nbval-ignore-output"]
import copy
import warnings

row = torch.randn(1, 1024)
layer = nn.Sequential(nn.Linear(1024, 1024), nn.Linear(1024, 1024)).eval()
variants = {"float32": layer, "bfloat16": copy.deepcopy(layer).bfloat16()}
try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        variants["int8"] = torch.ao.quantization.quantize_dynamic(layer, {nn.Linear})
        variants["int8"](row)
except (AttributeError, RuntimeError) as reason:
    variants.pop("int8", None)
    print(f"int8 is not testable here: {str(reason).splitlines()[0]}")
rows = {name: row.bfloat16() if name == "bfloat16" else row for name in variants}
layer_speed = compare({name: torch.inference_mode()(lambda n=name: variants[n](rows[n])) for name in variants})
layer_speed.show()

# %% [markdown]
# The two measurements need not agree: arithmetic limits the product, bytes the layers. A dtype is not a speed. Measure
# the shape you serve, on the CPU you rent.
#
# ## Two lines and a crossover
# A device's time for a batch is close to a line: $t_0 + c \cdot b$, a fixed part and a part for each item. A GPU has
# the smaller $c$ and the larger $t_0$: launches, a synchronise, two transfers. Two such lines have a
# [crossover](../docs/glossary.md#crossover-batch). With a CUDA device, its line is measured below. Without one, these
# assumptions stand in, all in one place, for you to replace:

# %%
GPU_MODEL = {  # assumptions for a small inference GPU, not measurements
    "launch_s": 6e-6,  # one operation
    "synchronise_s": 10e-6,
    "transfer_latency_s": 10e-6,  # once to the device, once back
    "bytes_per_s": 12e9,  # over the bus
    "flops_per_s": 5e12,  # reached, not promised
}


def modelled_seconds(net: nn.Sequential, batch: int) -> float:
    """What the assumptions give for one batch: input over the bus, the net, output back."""
    flops, _, operations = amounts(net, 1)
    x = inputs[net][:1]
    with torch.inference_mode():
        moved = batch * (x.nbytes + net(x).nbytes)
    fixed = operations * GPU_MODEL["launch_s"] + GPU_MODEL["synchronise_s"] + 2 * GPU_MODEL["transfer_latency_s"]
    return fixed + moved / GPU_MODEL["bytes_per_s"] + batch * flops / GPU_MODEL["flops_per_s"]


print("GPU, a model: one item takes the time of", round(modelled_seconds(small, 1) / GPU_MODEL["launch_s"]), "launches")

# %%
import numpy as np

on_gpu = torch.cuda.is_available() and device != "cpu"
gpu_name = f"GPU, measured ({torch.cuda.get_device_name()})" if on_gpu else "GPU, a model"
batches = {small: [1, 2, 4, 8, 16, 32, 64, 128, 256], conv: [1, 2, 3, 4, 6, 8]}


def measured_on_gpu(call) -> float:
    """Seconds of a call at its best, waiting for the queue at both ends."""
    times = []
    for _ in range(30):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times)


@torch.inference_mode()
def gpu_seconds(net: nn.Sequential) -> list[float]:
    """Seconds for each batch, from input in main memory to output in main memory."""
    if not on_gpu:
        return [modelled_seconds(net, batch) for batch in batches[net]]
    there = copy.deepcopy(net).cuda()
    return [measured_on_gpu(lambda x=inputs[net][:batch]: there(x.cuda()).cpu()) for batch in batches[net]]


# %% tags=["nbval-ignore-output"]
if on_gpu:
    one, block = torch.ones(1, device="cuda"), torch.ones(2**24)
    launch_s = measured_on_gpu(lambda: [one.add_(1) for _ in range(1000)]) / 1000
    print(f"launch: {1e6 * launch_s:.1f} µs; transfer: {block.nbytes / measured_on_gpu(block.cuda) / 1e9:.1f} GB/s")
turns = fastest({(net, batch): lambda n=net, x=inputs[net][:batch]: n(x) for net in batches for batch in batches[net]})
times, lines = {}, {}
for net, name in ((small, "small net"), (conv, "conv net")):
    times[name] = {"CPU, one core": [turns[net, batch] for batch in batches[net]], gpu_name: gpu_seconds(net)}
    for where, values in times[name].items():
        c, t0 = np.polyfit(batches[net], values, 1)
        lines[name, where] = t0, c
        print(f"{name}, {where}: {1e6 * t0:.0f} µs + {1e6 * c:.2f} µs an item")
    cpu, gpu = lines[name, "CPU, one core"], lines[name, gpu_name]
    first = next((b for b in range(1, 10_001) if gpu[0] + gpu[1] * b < cpu[0] + cpu[1] * b), None)
    print(f"  the GPU's line is below the CPU's from batch {first}" if first else "  the CPU's line stays below")

# %% tags=["nbval-ignore-output"]
figures.line_chart(
    batches[small],
    {where: [1e6 * value for value in values] for where, values in times["small net"].items()},
    "batch size",
    "microseconds a batch",
    logx=True,
    title=f"Small net: CPU, measured; {gpu_name}",
)

# %% [markdown]
# Left of the crossing the GPU is slower, however strong it is: the fixed part does not care. A request that arrives
# alone is a batch of one.
#
# ## The bill
# Machines are paid by the hour, idle or not. So the price of a million items depends on the
# [utilisation](../docs/glossary.md#utilisation): the share of the paid time in which the machine works. Prices are
# parameters with a date; replace them by those on your own bill.

# %%
PRICES = {"read": "May 2026", "CPU": 0.10, "GPU": 0.53}  # dollars an hour: a guess for one core, a list price for a T4


def cost_per_million(items_per_s: float, capacity: float, per_hour: float) -> float:
    """Dollars for a million items at a steady load, with as many machines as the load needs."""
    machines = math.ceil(items_per_s / capacity)
    return machines * per_hour * 1e6 / (3600 * items_per_s)


for load in (10, 1000, 100_000):
    cost = cost_per_million(load, 1e5, PRICES["GPU"])
    print(f"a GPU that could do 100,000 items/s, utilisation {load / 1e5:7.2%}: {cost:8.4f} dollars a million")

# %% tags=["nbval-ignore-output"]
asked = np.geomspace(10, 1e6, 41)
prices = {"CPU, one core": PRICES["CPU"], gpu_name: PRICES["GPU"]}
bills = {}
for where, per_hour in prices.items():
    capacity = max(b / t for b, t in zip(batches[conv], times["conv net"][where], strict=True))
    bills[where] = [cost_per_million(load, capacity, per_hour) for load in asked]
figures.line_chart(
    asked,
    bills,
    "items per second asked for",
    "dollars for a million items",
    logx=True,
    logy=True,
    title=f"Conv net; prices of {PRICES['read']}",
)

# %% [markdown]
# At a low load the cheaper hour wins, whatever the faster device could do. Each step is one more CPU; where the steps
# level off, the cores are full, and the GPU overtakes when its own hour is used enough.
#
# ## What professionals still get wrong
# **Counting flops where the counter is blind.** With oneDNN, an LSTM runs as one fused kernel on a CPU, and the counter
# has no formula for it. Whoever puts it on a roofline puts it at zero:

# %%
lstm = nn.LSTM(64, 64, batch_first=True).eval()
with torch.inference_mode():
    print("flops counted for an LSTM:", evidence.flops(lambda: lstm(torch.randn(8, 20, 64))))

# %% [markdown]
# **Measuring bandwidth on memory that is not there.** `torch.empty` reserves addresses; the system may back all of
# them with one page of zeros until something is written. Reading it is reading a cache.

# %% tags=["nbval-ignore-output"]
untouched = torch.empty(2**25)
reading = fastest({"untouched": untouched.sum, "written": long.sum})
for name, value in reading.items():
    rate = long.nbytes / value
    print(f"{name:9} {rate / 1e9:6.1f} GB/s, {rate / machine['peak_bandwidth']:5.2f} of the peak measured above")

# %% [markdown]
# ## The articles' claims
# The first is arithmetic, and a date.

# %%
from helpers import claim, finding, untested

per_day = 0.7 * 24
claim("4.1").judge(
    {
        "the two figures agree": finding(abs(per_day - 100) < 10, f"0.7 dollars an hour are {per_day:.1f} a day"),
        "0.7 dollars is the lowest": finding(
            PRICES["GPU"] >= 0.7, f"a list price read in {PRICES['read']}, a parameter: {PRICES['GPU']} an hour"
        ),
    }
)

# %% [markdown]
# The second needs a GPU to be decided. "Always" asks for one load on which the CPU wins; "dead end" for one at which it
# costs less.

# %% tags=["nbval-ignore-output"]
if on_gpu:
    there, one_row = copy.deepcopy(small).cuda(), inputs[small][:1]
    calls = {"CPU": lambda: small(one_row), "GPU": lambda: there(one_row.cuda()).cpu()}
    race = compare({n: torch.inference_mode()(f) for n, f in calls.items()}, clock="wall", device="cpu", waits=True)
    dearer = all(cpu > gpu for cpu, gpu in zip(bills["CPU, one core"], bills[gpu_name], strict=True))
    claim("4.2").judge(
        {
            "slower, one item, small net": race.slower("CPU"),
            "dearer at every load, conv net": finding(dearer, f"at the prices of {PRICES['read']}, a parameter"),
        }
    )
else:
    t = times["small net"]
    claim("4.2").judge(
        untested(
            "no CUDA device. By the model above, one item of the small net takes the GPU "
            f"{t[gpu_name][0] / t['CPU, one core'][0]:.1f} times as long as the CPU: replace it by your run"
        )
    )

# %% [markdown]
# ## Summary
# - Three limits bound a forward pass: arithmetic, bytes, operations. A benchmark that beats them timed something else.
# - Threads beyond the cores cost more than they bring; a narrow dtype is fast only where the CPU has instructions
#   for it.
# - A device is a line, $t_0 + c \cdot b$. Size, batch and utilisation decide who wins, and the price is a parameter.
#
# ## Exercises
# Five exercises wait in `04_exercises.ipynb`, next to your copy of this chapter: the impossible benchmark, a
# lower bound, the crossover, the bill, and workers times threads.
#
# ## Sources
# - Williams, Waterman, Patterson, "Roofline: an insightful visual performance model" (2009):
#   <https://doi.org/10.1145/1498765.1498785>
# - CUDA semantics, "Asynchronous execution": <https://docs.pytorch.org/docs/stable/notes/cuda.html>
# - CPU threading: <https://docs.pytorch.org/docs/stable/notes/cpu_threading_torchscript_inference.html>
# - The table of the impossible benchmark: <https://ogeek.cn/qa/?qa=1048144>
# - Reports behind this chapter: [pytorch#80129](https://github.com/pytorch/pytorch/issues/80129),
#   [haofeixu/aanet#22](https://github.com/haofeixu/aanet/issues/22) (timed without a synchronise),
#   [pytorch#19163](https://github.com/pytorch/pytorch/issues/19163),
#   [pytorch#93247](https://github.com/pytorch/pytorch/issues/93247) (workers times threads),
#   [pytorch#146508](https://github.com/pytorch/pytorch/issues/146508),
#   [pytorch#118499](https://github.com/pytorch/pytorch/issues/118499) (half precision without instructions for it).

# %% tags=["nbval-ignore-output"]
from helpers import wrap_up

wrap_up()
