"""Right and wrong answers to the exercises of chapter 4."""

from . import Wrong

ALTERNATIVES = {
    "4.1": {
        "all at once, with numpy": """
def impossible_rows(table, peak_bandwidth, peak_flops):
    if not table:
        return []
    nbytes, flops, seconds = np.array(table, dtype=np.float64).T
    limit = np.maximum(nbytes / peak_bandwidth, flops / peak_flops)
    return np.flatnonzero(seconds < limit).tolist()
""",
        "two conditions, multiplied out": """
def impossible_rows(table, peak_bandwidth, peak_flops):
    return [i for i, (b, f, s) in enumerate(table) if b > s * peak_bandwidth or f > s * peak_flops]
""",
        "rates, with a word for a clock that read 0": """
def impossible_rows(table, peak_bandwidth, peak_flops):
    def too_fast(amount, seconds, peak):
        if seconds == 0:
            return amount > 0
        return amount / seconds > peak
    bad = []
    for i in range(len(table)):
        b, f, s = table[i]
        if too_fast(b, s, peak_bandwidth) or too_fast(f, s, peak_flops):
            bad.append(i)
    return bad
""",
    },
    "4.2": {
        "a tensor without dimensions": """
def lower_bound_seconds(flops, bytes_moved, operations, machine):
    limits = [flops / machine["peak_flops"], bytes_moved / machine["peak_bandwidth"]]
    return torch.tensor([*limits, operations * machine["seconds_per_operation"]]).max()
""",
        "sorted limits": """
def lower_bound_seconds(flops, bytes_moved, operations, machine):
    limits = [
        operations * machine["seconds_per_operation"],
        bytes_moved / machine["peak_bandwidth"],
        flops / machine["peak_flops"],
    ]
    return sorted(limits)[-1]
""",
        "with torch, as a Python number": """
def lower_bound_seconds(flops, bytes_moved, operations, machine):
    amounts = torch.tensor([flops, bytes_moved, operations], dtype=torch.float64)
    rates = torch.tensor([machine["peak_flops"], machine["peak_bandwidth"], 1 / machine["seconds_per_operation"]],
                         dtype=torch.float64)
    return (amounts / rates).max().item()
""",
        "by the ridge": """
def lower_bound_seconds(flops, bytes_moved, operations, machine):
    ridge = machine["peak_flops"] / machine["peak_bandwidth"]
    if flops / bytes_moved > ridge:
        work = flops / machine["peak_flops"]
    else:
        work = bytes_moved / machine["peak_bandwidth"]
    floor = operations * machine["seconds_per_operation"]
    return work if work > floor else floor
""",
    },
    "4.3": {
        "numpy's polyfit": """
def crossover_batch(cpu_points, gpu_points):
    cpu_c, cpu_t0 = np.polyfit(*np.array(cpu_points, dtype=float).T, 1)
    gpu_c, gpu_t0 = np.polyfit(*np.array(gpu_points, dtype=float).T, 1)
    if gpu_c > cpu_c:
        return None
    return max(1, int(np.floor((gpu_t0 - cpu_t0) / (cpu_c - gpu_c))) + 1)
""",
        "torch's lstsq, then a search from below that doubles": """
def crossover_batch(cpu_points, gpu_points):
    def fit(points):
        data = torch.tensor(points, dtype=torch.float64)
        design = torch.stack([torch.ones(len(points), dtype=torch.float64), data[:, 0]], 1)
        return torch.linalg.lstsq(design, data[:, 1:]).solution.flatten().tolist()
    (a, b), (c, d) = fit(cpu_points), fit(gpu_points)
    faster = lambda batch: c + d * batch < a + b * batch
    if d >= b:
        return None
    high = 1
    while not faster(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        if faster(middle):
            high = middle
        else:
            low = middle
    return high
""",
        "the normal equations, the next whole number by ceil": """
def crossover_batch(cpu_points, gpu_points):
    def line(points):
        n = len(points)
        sx = sum(p[0] for p in points)
        sy = sum(p[1] for p in points)
        sxx = sum(p[0] ** 2 for p in points)
        sxy = sum(p[0] * p[1] for p in points)
        slope = (n * sxy - sx * sy) / (n * sxx - sx**2)
        return (sy - slope * sx) / n, slope
    (t_cpu, c_cpu), (t_gpu, c_gpu) = line(cpu_points), line(gpu_points)
    gain = c_cpu - c_gpu
    extra = t_gpu - t_cpu
    if gain <= 0:
        return None
    return 1 if extra < gain else math.ceil(extra / gain)
""",
    },
    "4.4": {
        "items an hour": """
def cost_per_million(seconds_per_batch, batch, price_per_hour, utilization=1.0):
    if math.isnan(utilization) or utilization <= 0 or utilization > 1:
        raise ValueError("utilization must lie in (0, 1]")
    items_per_hour = utilization * 3600 * batch / seconds_per_batch
    return price_per_hour * 10**6 / items_per_hour
""",
        "price an item, a million times": """
def cost_per_million(seconds_per_batch, batch, price_per_hour, utilization=1.0):
    if 0 < utilization <= 1:
        item = price_per_hour * seconds_per_batch / batch / 60 / 60 / utilization
        return item * 1e6
    raise ValueError(f"not a share: {utilization}")
""",
    },
    "4.5": {
        "a plan with names": """
Plan = namedtuple("Plan", "workers threads")

def plan_workers(cores, throughput):
    plans = [Plan(*key) for key in throughput if key[0] * key[1] <= cores]
    if not plans:
        raise ValueError("nothing fits")
    return min(plans, key=lambda plan: (-plan.workers * throughput[plan], plan))
""",
        "a loop that keeps the best": """
def plan_workers(cores, throughput):
    best = None
    for (workers, threads), each in sorted(throughput.items()):
        if workers * threads > cores:
            continue
        if best is None or workers * each > best[0]:
            best = (workers * each, workers, threads)
    if best is None:
        raise ValueError("no plan fits")
    return best[1:]
""",
        "max over a tuple key; an empty max raises the ValueError": """
def plan_workers(cores, throughput):
    plans = {plan: plan[0] * each for plan, each in throughput.items() if plan[0] * plan[1] <= cores}
    return max(plans, key=lambda plan: (plans[plan], -plan[0], -plan[1]))
""",
        "every plan the cores allow, asked with get": """
def plan_workers(cores, throughput):
    best, best_total = None, -math.inf
    for workers in range(1, cores + 1):
        for threads in range(1, cores // workers + 1):
            each = throughput.get((workers, threads))
            if each is not None and each * workers > best_total:
                best, best_total = (workers, threads), each * workers
    if best is None:
        raise ValueError(f"nothing measured fits into {cores} cores")
    return best
""",
    },
}

WRONG = {
    "4.1": [
        Wrong(
            "only-arithmetic",
            """
def impossible_rows(table, peak_bandwidth, peak_flops):
    return [i for i, (b, f, s) in enumerate(table) if f > s * peak_flops]
""",
            "a public CPU/GPU table of 1,000 in-place additions, timed without a synchronise; pytorch#80129",
        ),
        Wrong(
            "fastest-suspected",
            """
def impossible_rows(table, peak_bandwidth, peak_flops):
    seconds = [row[2] for row in table]
    return [seconds.index(min(seconds))] if seconds else []
""",
            "anglixjtu/msg_chn_wacv20 PR#9, aanet#22",
        ),
        Wrong(
            "only-traffic",
            """
def impossible_rows(table, peak_bandwidth, peak_flops):
    return [i for i, (b, f, s) in enumerate(table) if b / peak_bandwidth > s]
""",
        ),
        Wrong(
            "adds-the-limits",
            """
def impossible_rows(table, peak_bandwidth, peak_flops):
    return [i for i, (b, f, s) in enumerate(table) if s < b / peak_bandwidth + f / peak_flops]
""",
        ),
        Wrong(
            "smaller-limit",
            """
def impossible_rows(table, peak_bandwidth, peak_flops):
    return [i for i, (b, f, s) in enumerate(table) if s < b / peak_bandwidth and s < f / peak_flops]
""",
        ),
        Wrong(
            "peaks-swapped",
            """
def impossible_rows(table, peak_bandwidth, peak_flops):
    return [i for i, (b, f, s) in enumerate(table) if s < max(b / peak_flops, f / peak_bandwidth)]
""",
        ),
        Wrong(
            "possible-rows",
            """
def impossible_rows(table, peak_bandwidth, peak_flops):
    return [i for i, (b, f, s) in enumerate(table) if s >= max(b / peak_bandwidth, f / peak_flops)]
""",
        ),
        Wrong(
            "limit-is-possible",
            """
def impossible_rows(table, peak_bandwidth, peak_flops):
    return [i for i, (b, f, s) in enumerate(table) if s <= max(b / peak_bandwidth, f / peak_flops)]
""",
        ),
        Wrong(
            "divides-by-seconds",
            """
def impossible_rows(table, peak_bandwidth, peak_flops):
    return [i for i, (b, f, s) in enumerate(table) if b / s > peak_bandwidth or f / s > peak_flops]
""",
        ),
        Wrong(
            "divides-by-seconds",
            """
def impossible_rows(table, peak_bandwidth, peak_flops):
    return [i for i, (b, f, s) in enumerate(table) if s > 0 and (b / s > peak_bandwidth or f / s > peak_flops)]
""",
        ),
        Wrong(
            "counted-from-1",
            """
def impossible_rows(table, peak_bandwidth, peak_flops):
    return [i for i, (b, f, s) in enumerate(table, 1) if s < max(b / peak_bandwidth, f / peak_flops)]
""",
        ),
        Wrong(
            "not-row-numbers",
            """
def impossible_rows(table, peak_bandwidth, peak_flops):
    return [s < max(b / peak_bandwidth, f / peak_flops) for b, f, s in table]
""",
        ),
    ],
    "4.2": [
        Wrong(
            "only-compute",
            """
def lower_bound_seconds(flops, bytes_moved, operations, machine):
    return flops / machine["peak_flops"]
""",
            "the usual first estimate: flops divided by the data sheet's peak",
        ),
        Wrong(
            "no-floor",
            """
def lower_bound_seconds(flops, bytes_moved, operations, machine):
    return max(flops / machine["peak_flops"], bytes_moved / machine["peak_bandwidth"])
""",
            "the roofline as published, without the launch of operations",
        ),
        Wrong(
            "one-floor",
            """
def lower_bound_seconds(flops, bytes_moved, operations, machine):
    work = max(flops / machine["peak_flops"], bytes_moved / machine["peak_bandwidth"])
    return max(work, machine["seconds_per_operation"])
""",
        ),
        Wrong(
            "adds-the-limits",
            """
def lower_bound_seconds(flops, bytes_moved, operations, machine):
    return (flops / machine["peak_flops"] + bytes_moved / machine["peak_bandwidth"]
            + operations * machine["seconds_per_operation"])
""",
        ),
        Wrong(
            "floor-on-top",
            """
def lower_bound_seconds(flops, bytes_moved, operations, machine):
    work = max(flops / machine["peak_flops"], bytes_moved / machine["peak_bandwidth"])
    return work + operations * machine["seconds_per_operation"]
""",
        ),
        Wrong(
            "wrong-units",
            """
def lower_bound_seconds(flops, bytes_moved, operations, machine):
    work = max(flops / machine["peak_flops"], bytes_moved / machine["peak_bandwidth"])
    return 1e6 * max(work, operations * machine["seconds_per_operation"])
""",
        ),
        Wrong(
            "only-traffic",
            """
def lower_bound_seconds(flops, bytes_moved, operations, machine):
    return bytes_moved / machine["peak_bandwidth"]
""",
        ),
        Wrong(
            "smallest-limit",
            """
def lower_bound_seconds(flops, bytes_moved, operations, machine):
    return min(flops / machine["peak_flops"], bytes_moved / machine["peak_bandwidth"],
               operations * machine["seconds_per_operation"])
""",
        ),
        Wrong(
            "wrong-units",
            """
def lower_bound_seconds(flops, bytes_moved, operations, machine):
    return max(machine["peak_flops"] / flops, machine["peak_bandwidth"] / bytes_moved,
               operations * machine["seconds_per_operation"])
""",
        ),
    ],
    "4.3": [
        Wrong(
            "search-ends-early",
            """
def crossover_batch(cpu_points, gpu_points):
    (cpu_c, cpu_t0), (gpu_c, gpu_t0) = (np.polyfit(*zip(*points), 1) for points in (cpu_points, gpu_points))
    if gpu_c >= cpu_c:
        return None
    return next((b for b in range(1, 100_000) if gpu_t0 + gpu_c * b < cpu_t0 + cpu_c * b), None)
""",
        ),
        Wrong(
            "reads-the-points",
            """
def crossover_batch(cpu_points, gpu_points):
    cpu = dict(cpu_points)
    for batch, seconds in sorted(gpu_points):
        if batch in cpu and seconds < cpu[batch]:
            return batch
    return None
""",
            "comparison tables that name the first row in which the GPU won",
        ),
        Wrong(
            "no-fixed-cost",
            """
def crossover_batch(cpu_points, gpu_points):
    slope = lambda points: sum(b * t for b, t in points) / sum(b * b for b, t in points)
    return 1 if slope(gpu_points) < slope(cpu_points) else None
""",
            "a speed-up at a large batch taken for the speed-up at every batch",
        ),
        Wrong(
            "two-points-only",
            """
def crossover_batch(cpu_points, gpu_points):
    def line(points):
        (b0, s0), (b1, s1) = min(points), max(points)
        c = (s1 - s0) / (b1 - b0)
        return s0 - c * b0, c
    (t, c), (u, d) = line(cpu_points), line(gpu_points)
    return max(1, math.floor((u - t) / (c - d)) + 1) if d < c else None
""",
        ),
        Wrong(
            "two-points-only",
            """
def crossover_batch(cpu_points, gpu_points):
    def line(points):
        (b0, s0), (b1, s1) = points[0], points[-1]
        c = (s1 - s0) / (b1 - b0)
        return s0 - c * b0, c
    (t, c), (u, d) = line(cpu_points), line(gpu_points)
    return max(1, math.floor((u - t) / (c - d)) + 1) if d < c else None
""",
        ),
        Wrong(
            "cpu-still-faster",
            """
def crossover_batch(cpu_points, gpu_points):
    c, t = np.polyfit(*np.array(cpu_points, dtype=float).T, 1)
    d, u = np.polyfit(*np.array(gpu_points, dtype=float).T, 1)
    return max(1, int((u - t) / (c - d))) if d < c else None
""",
        ),
        Wrong(
            "cpu-still-faster",
            """
def crossover_batch(cpu_points, gpu_points):
    c, t = np.polyfit(*np.array(cpu_points, dtype=float).T, 1)
    d, u = np.polyfit(*np.array(gpu_points, dtype=float).T, 1)
    return max(1, round((u - t) / (c - d))) if d < c else None
""",
        ),
        Wrong(
            "below-1",
            """
def crossover_batch(cpu_points, gpu_points):
    c, t = np.polyfit(*np.array(cpu_points, dtype=float).T, 1)
    d, u = np.polyfit(*np.array(gpu_points, dtype=float).T, 1)
    return math.floor((u - t) / (c - d)) + 1 if d < c else None
""",
        ),
        Wrong(
            "wins-only-below",
            """
def crossover_batch(cpu_points, gpu_points):
    c, t = np.polyfit(*np.array(cpu_points, dtype=float).T, 1)
    d, u = np.polyfit(*np.array(gpu_points, dtype=float).T, 1)
    if d > c and u > t:
        return None
    if u + d < t + c:
        return 1
    return math.floor((u - t) / (c - d)) + 1
""",
        ),
        Wrong(
            "never-is-none",
            """
def crossover_batch(cpu_points, gpu_points):
    c, t = np.polyfit(*np.array(cpu_points, dtype=float).T, 1)
    d, u = np.polyfit(*np.array(gpu_points, dtype=float).T, 1)
    return max(1, math.floor((u - t) / (c - d)) + 1)
""",
        ),
        Wrong(
            "search-ends-early",
            """
def crossover_batch(cpu_points, gpu_points):
    c, t = np.polyfit(*np.array(cpu_points, dtype=float).T, 1)
    d, u = np.polyfit(*np.array(gpu_points, dtype=float).T, 1)
    if d >= c:
        return None
    for batch in range(1, 1025):
        if u + d * batch < t + c * batch:
            return batch
    return None
""",
        ),
        Wrong(
            "not-a-whole-batch",
            """
def crossover_batch(cpu_points, gpu_points):
    c, t = np.polyfit(*np.array(cpu_points, dtype=float).T, 1)
    d, u = np.polyfit(*np.array(gpu_points, dtype=float).T, 1)
    return float(max(1, (u - t) / (c - d))) if d < c else None
""",
        ),
        Wrong(
            "swapped",
            """
def crossover_batch(gpu_points, cpu_points):
    c, t = np.polyfit(*np.array(cpu_points, dtype=float).T, 1)
    d, u = np.polyfit(*np.array(gpu_points, dtype=float).T, 1)
    return max(1, math.floor((u - t) / (c - d)) + 1) if d < c else None
""",
        ),
    ],
    "4.4": [
        Wrong(
            "wrong-hour",
            """
def cost_per_million(seconds_per_batch, batch, price_per_hour, utilization=1.0):
    if not 0 < utilization <= 1:
        raise ValueError("utilization")
    return 1e6 / batch * seconds_per_batch / (24 * 3600) * price_per_hour / utilization
""",
            "article A: 100 dollars a day and 0.7 dollars an hour for the same machine",
        ),
        Wrong(
            "wrong-hour",
            """
def cost_per_million(seconds_per_batch, batch, price_per_hour, utilization=1.0):
    if not 0 < utilization <= 1:
        raise ValueError("utilization")
    return 1e6 / batch * seconds_per_batch / 60 * price_per_hour / utilization
""",
        ),
        Wrong(
            "idle-is-free",
            """
def cost_per_million(seconds_per_batch, batch, price_per_hour, utilization=1.0):
    if not 0 < utilization <= 1:
        raise ValueError("utilization")
    return 1e6 / batch * seconds_per_batch / 3600 * price_per_hour * utilization
""",
        ),
        Wrong(
            "utilization-ignored",
            """
def cost_per_million(seconds_per_batch, batch, price_per_hour, utilization=1.0):
    if not 0 < utilization <= 1:
        raise ValueError("utilization")
    return 1e6 / batch * seconds_per_batch / 3600 * price_per_hour
""",
        ),
        Wrong(
            "per-batch",
            """
def cost_per_million(seconds_per_batch, batch, price_per_hour, utilization=1.0):
    if not 0 < utilization <= 1:
        raise ValueError("utilization")
    return 1e6 * seconds_per_batch / 3600 * price_per_hour / utilization
""",
        ),
        Wrong(
            "per-item",
            """
def cost_per_million(seconds_per_batch, batch, price_per_hour, utilization=1.0):
    if not 0 < utilization <= 1:
        raise ValueError("utilization")
    return seconds_per_batch / batch / 3600 * price_per_hour / utilization
""",
        ),
        Wrong(
            "last-batch-whole",
            """
def cost_per_million(seconds_per_batch, batch, price_per_hour, utilization=1.0):
    if not 0 < utilization <= 1:
        raise ValueError("utilization")
    return math.ceil(1_000_000 / batch) * seconds_per_batch / 3600 * price_per_hour / utilization
""",
        ),
        Wrong(
            "last-batch-whole",
            """
def cost_per_million(seconds_per_batch, batch, price_per_hour, utilization=1.0):
    if not 0 < utilization <= 1:
        raise ValueError("utilization")
    return 1_000_000 // batch * seconds_per_batch / 3600 * price_per_hour / utilization
""",
        ),
        Wrong(
            "full-use-refused",
            """
def cost_per_million(seconds_per_batch, batch, price_per_hour, utilization=1.0):
    if not 0 < utilization < 1:
        raise ValueError("utilization")
    return 1e6 / batch * seconds_per_batch / 3600 * price_per_hour / utilization
""",
        ),
        Wrong(
            "hours-rounded-up",
            """
def cost_per_million(seconds_per_batch, batch, price_per_hour, utilization=1.0):
    if not 0 < utilization <= 1:
        raise ValueError("utilization")
    return math.ceil(1e6 / batch * seconds_per_batch / 3600 / utilization) * price_per_hour
""",
        ),
        Wrong(
            "share-unchecked",
            """
def cost_per_million(seconds_per_batch, batch, price_per_hour, utilization=1.0):
    return 1e6 / batch * seconds_per_batch / 3600 * price_per_hour / utilization
""",
        ),
        Wrong(
            "share-unchecked",
            """
def cost_per_million(seconds_per_batch, batch, price_per_hour, utilization=1.0):
    assert 0 < utilization <= 1
    return 1e6 / batch * seconds_per_batch / 3600 * price_per_hour / utilization
""",
        ),
        Wrong(
            "nan-accepted",
            """
def cost_per_million(seconds_per_batch, batch, price_per_hour, utilization=1.0):
    if utilization <= 0 or utilization > 1:
        raise ValueError("utilization")
    return 1e6 / batch * seconds_per_batch / 3600 * price_per_hour / utilization
""",
        ),
        Wrong(
            "default-missing",
            """
def cost_per_million(seconds_per_batch, batch, price_per_hour, utilization):
    if not 0 < utilization <= 1:
        raise ValueError("utilization")
    return 1e6 / batch * seconds_per_batch / 3600 * price_per_hour / utilization
""",
        ),
    ],
    "4.5": [
        Wrong(
            "tie-more-workers",
            """
def plan_workers(cores, throughput):
    fitting = [plan for plan in throughput if plan[0] * plan[1] <= cores]
    if not fitting:
        raise ValueError("nothing fits")
    return max(fitting, key=lambda plan: (plan[0] * throughput[plan], -plan[0] * plan[1]))
""",
        ),
        Wrong(
            "oversubscribed",
            """
def plan_workers(cores, throughput):
    if not throughput:
        raise ValueError("empty")
    return max(throughput, key=lambda plan: (plan[0] * throughput[plan], -plan[0], -plan[1]))
""",
            "pytorch#19163, pytorch#93247, vllm PR#45124: every worker with all threads",
        ),
        Wrong(
            "assumed-not-read",
            """
def plan_workers(cores, throughput):
    return cores, 1
""",
            "the rule 'one worker a core, one thread each', unmeasured",
        ),
        Wrong(
            "assumed-not-read",
            """
def plan_workers(cores, throughput):
    return 1, cores
""",
            "PyTorch's default: one process with all threads",
        ),
        Wrong(
            "worker-not-total",
            """
def plan_workers(cores, throughput):
    fitting = [p for p in throughput if p[0] * p[1] <= cores]
    if not fitting:
        raise ValueError("nothing fits")
    return max(fitting, key=lambda plan: (throughput[plan], -plan[0], -plan[1]))
""",
        ),
        Wrong(
            "threads-counted-twice",
            """
def plan_workers(cores, throughput):
    fitting = [p for p in throughput if p[0] * p[1] <= cores]
    if not fitting:
        raise ValueError("nothing fits")
    return max(fitting, key=lambda plan: (plan[0] * plan[1] * throughput[plan], -plan[0], -plan[1]))
""",
        ),
        Wrong(
            "fills-every-core",
            """
def plan_workers(cores, throughput):
    fitting = [p for p in throughput if p[0] * p[1] == cores]
    if not fitting:
        raise ValueError("nothing fits")
    return max(fitting, key=lambda plan: (plan[0] * throughput[plan], -plan[0], -plan[1]))
""",
        ),
        Wrong(
            "leaves-a-core-idle",
            """
def plan_workers(cores, throughput):
    fitting = [p for p in throughput if p[0] * p[1] < cores]
    if not fitting:
        raise ValueError("nothing fits")
    return max(fitting, key=lambda plan: (plan[0] * throughput[plan], -plan[0], -plan[1]))
""",
        ),
        Wrong(
            "smallest-total",
            """
def plan_workers(cores, throughput):
    fitting = [p for p in throughput if p[0] * p[1] <= cores]
    if not fitting:
        raise ValueError("nothing fits")
    return min(fitting, key=lambda plan: (plan[0] * throughput[plan], plan[0], plan[1]))
""",
        ),
        Wrong(
            "table-has-gaps",
            """
def plan_workers(cores, throughput):
    plans = [(w, t) for w in range(1, cores + 1) for t in range(1, cores // w + 1)]
    return max(plans, key=lambda plan: (plan[0] * throughput[plan], -plan[0], -plan[1]))
""",
        ),
        Wrong(
            "tie-more-workers",
            """
def plan_workers(cores, throughput):
    return max((p for p in throughput if p[0] * p[1] <= cores), key=lambda plan: plan[0] * throughput[plan])
""",
        ),
        Wrong(
            "tie-more-threads",
            """
def plan_workers(cores, throughput):
    fitting = [p for p in throughput if p[0] * p[1] <= cores]
    return sorted(fitting, key=lambda plan: plan[0] * throughput[plan])[-1]
""",
        ),
        Wrong(
            "tie-more-workers",
            """
def plan_workers(cores, throughput):
    fitting = [p for p in throughput if p[0] * p[1] <= cores]
    if not fitting:
        raise ValueError("nothing fits")
    return max(fitting, key=lambda plan: (plan[0] * throughput[plan], plan))
""",
        ),
        Wrong(
            "tie-more-threads",
            """
def plan_workers(cores, throughput):
    fitting = [p for p in throughput if p[0] * p[1] <= cores]
    if not fitting:
        raise ValueError("nothing fits")
    return max(fitting, key=lambda plan: (plan[0] * throughput[plan], -plan[0], plan[1]))
""",
        ),
        Wrong(
            "pair-swapped",
            """
def plan_workers(cores, throughput):
    fitting = [p for p in throughput if p[0] * p[1] <= cores]
    if not fitting:
        raise ValueError("nothing fits")
    workers, threads = max(fitting, key=lambda plan: (plan[0] * throughput[plan], -plan[0], -plan[1]))
    return threads, workers
""",
        ),
        Wrong(
            "not-a-pair",
            """
def plan_workers(cores, throughput):
    totals = [w * each for (w, t), each in throughput.items() if w * t <= cores]
    if not totals:
        raise ValueError("nothing fits")
    return max(totals)
""",
        ),
        Wrong(
            "nothing-fits-not-told",
            """
def plan_workers(cores, throughput):
    fitting = [p for p in throughput if p[0] * p[1] <= cores]
    if not fitting:
        return None
    return max(fitting, key=lambda plan: (plan[0] * throughput[plan], -plan[0], -plan[1]))
""",
        ),
    ],
}
