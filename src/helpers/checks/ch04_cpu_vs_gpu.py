"""Checks of chapter 4: limits, fitted cost models, prices and plans. Every number is made up; none is timed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import ge, lt
from statistics import LinearRegression as Line
from statistics import linear_regression

from ..exercise.contract import ANYTHING, Case, Contract, Draw, Where
from ..exercise.declare import load_exercises
from ..exercise.expect import expect

IMPOSSIBLE, BOUND, CROSSOVER, COST, PLAN = load_exercises(__file__)


# 4.1 impossible_rows

Table = list[tuple[float, float, float]]


def impossible(table: Table, bandwidth: float, peak: float, limit: Callable = max, beats: Callable = lt) -> list[int]:
    """The rows that took less than their limit, a function of the traffic and the arithmetic time."""
    limits = [limit(nbytes / bandwidth, flops / peak) for nbytes, flops, _ in table]
    return [i for i, (_, _, seconds) in enumerate(table) if beats(seconds, limits[i])]


POSSIBLE = {"possible-rows": lambda *case: impossible(*case, beats=ge)}


def row_numbers(came: object, *case: object) -> list[int]:
    good = isinstance(came, (list, tuple)) and all(type(row) is int for row in came)
    expect(good, "not-row-numbers", expected="a list of ints", came=came)
    expect(list(came) == sorted(came), None, "Ascending row numbers are wanted.", expected=impossible(*case), came=came)
    return list(came)


rows = Contract(IMPOSSIBLE, truth=impossible, read=row_numbers)
IN_A_TABLE = {
    "only-arithmetic": lambda *case: impossible(*case, limit=lambda traffic, arithmetic: arithmetic),
    "only-traffic": lambda *case: impossible(*case, limit=lambda traffic, arithmetic: traffic),
    "adds-the-limits": lambda *case: impossible(*case, limit=lambda traffic, arithmetic: traffic + arithmetic),
    "smaller-limit": lambda *case: impossible(*case, limit=min),
    "peaks-swapped": lambda table, bandwidth, peak: impossible(table, peak, bandwidth),
    "fastest-suspected": lambda table, *peaks: [min(range(len(table)), key=lambda i: table[i][2])],
    **POSSIBLE,
    "counted-from-1": lambda *case: [row + 1 for row in impossible(*case)],
}


def shuffled_table(draw: Draw) -> Case:
    """Rows of every kind: bound by either limit, or by both, and possible ones."""
    bandwidth, peak = draw.real(2e10, 9e10), draw.real(1e11, 9e11)
    kinds = [(0.4, 0.1, 0.45), (1.0, 0.2, 0.5), (0.2, 1.0, 0.5), (1.0, 0.9, 0.3), (0.1, 0.1, 2.0), (0.02, 0.01, 0.025)]
    kinds += [draw.choice(kinds) for _ in range(draw(1, 3))]
    table, shares = [], []
    for i in draw.permutation(len(kinds)):
        scale, (traffic, arithmetic, seconds) = draw.real(0.5, 1.5), kinds[i]
        table.append((traffic * scale * bandwidth, arithmetic * scale * peak, seconds * scale))
        shares.append(f"{seconds / max(traffic, arithmetic):.2f}")
    return Case(f"rows that took {', '.join(shares)} of their limit", table, bandwidth, peak)


def at_the_limit(draw: Draw) -> Iterator[Case]:
    peaks = 2.0**30, 2.0**36
    table = [(2.0**29, 2.0**30, 0.5), (2.0**20, 2.0**37, 2.0), (2.0**28, 2.0**34, 0.25)]
    table += [(2.0**29, 2.0**30, 0.5 - 2.0**-6), (2.0**20, 2.0**37, 2.0 - 2.0**-6)]
    turn = draw(0, 4)
    yield Case("three rows exactly at their limit and two a little below", table[turn:] + table[:turn], *peaks)
    yield Case("a table without rows", [], *peaks)


def clock_at_0(draw: Draw) -> Case:
    table = [(4e9, 1e9, 1.0), (draw.real(1e6, 1e9), 1e6, 0.0), (1e3, draw.real(1e6, 1e9), 0.0)]
    return Case("two rows of 0 seconds after a possible one", table, 2e10, 1e11)


rows.equals(
    "finds the rows that beat a limit, in two shuffled tables",
    lambda draw: [rows.telling(draw, shuffled_table, IN_A_TABLE) for _ in range(2)],
    told=IN_A_TABLE,
)
rows.equals(
    "lets a row exactly at its limit pass, and an empty table",
    at_the_limit,
    told={"limit-is-possible": lambda table, *peaks: list(range(len(table))), **POSSIBLE},
)
rows.equals(
    "copes with a clock that read 0",
    clock_at_0,
    told={"divides-by-seconds": []},
    errors={"ZeroDivisionError": "divides-by-seconds"},
)


# 4.2 lower_bound_seconds


def limits(flops: float, nbytes: float, operations: int, machine: dict[str, float]) -> tuple[float, float, float]:
    """Seconds for arithmetic, for traffic and for the floor."""
    floor = operations * machine["seconds_per_operation"]
    return flops / machine["peak_flops"], nbytes / machine["peak_bandwidth"], floor


bound = Contract(
    BOUND,
    truth=lambda *net: max(limits(*net)),
    told={
        "only-compute": lambda *net: limits(*net)[0],
        "one-floor": lambda flops, nbytes, operations, machine: max(limits(flops, nbytes, 1, machine)),
        "no-floor": lambda *net: max(limits(*net)[:2]),
        "adds-the-limits": lambda *net: sum(limits(*net)),
        "floor-on-top": lambda *net: max(limits(*net)[:2]) + limits(*net)[2],
        "wrong-units/upside down": lambda *net: max(1 / min(limits(*net)[:2]), limits(*net)[2]),
        "wrong-units/swapped": lambda flops, nbytes, *rest: max(limits(nbytes, flops, *rest)),
        "wrong-units/microseconds": lambda *net: 1e6 * max(limits(*net)),
        "wrong-units/milliseconds": lambda *net: 1e3 * max(limits(*net)),
    },
    atol=0,
)
BEYOND_THE_FLOOR = {  # where the floor decides, these give what `no-floor` and `only-compute` give
    "only-traffic": lambda *net: limits(*net)[1],
    "smallest-limit": lambda *net: min(limits(*net)),
}


def net_case(draw: Draw, kind: str, arithmetic_s: float, traffic_s: float, floor_s: float) -> Case:
    """A net and a machine on which the three limits are about these times."""
    machine = {
        "peak_flops": draw.real(5e10, 9e11),
        "peak_bandwidth": draw.real(1e10, 9e10),
        "seconds_per_operation": draw.real(2e-6, 9e-6),
    }
    operations = max(2, round(floor_s / machine["seconds_per_operation"]))
    flops = arithmetic_s * machine["peak_flops"] * draw.real(0.9, 1.1)
    nbytes = traffic_s * machine["peak_bandwidth"] * draw.real(0.9, 1.1)
    on = f"{kind}: {flops:.3g} flops, {nbytes:.3g} bytes, {operations} operations"
    return Case(on, flops, nbytes, operations, machine)


bound.equals(
    "a large batch: arithmetic decides",
    lambda draw: net_case(draw, "much arithmetic", 20e-3, 6e-3, 100e-6),
    told=BEYOND_THE_FLOOR,
)
bound.equals(
    "one item through a wide net: reading the weights decides",
    lambda draw: net_case(draw, "few flops for many bytes", 60e-6, 800e-6, 30e-6),
    told=BEYOND_THE_FLOOR,
)
bound.equals(
    "a small net of many operations: the floor decides",
    lambda draw: net_case(draw, "tiny operations", 0.3e-6, 0.6e-6, draw.real(80e-6, 300e-6)),
)


# 4.3 crossover_batch

Points = list[tuple[int, float]]
MEASURED = [1, 2, 4, 8, 16, 32, 64, 128, 256]


def points_on(line: Line, batches: Sequence[int]) -> Points:
    """The points of a line: a fixed cost and a cost for each item."""
    return [(batch, line.intercept + line.slope * batch) for batch in batches]


def fitted(points: Points) -> Line:
    return linear_regression(*zip(*points, strict=True))


def through_origin(points: Points) -> Line:
    return Line(sum(b * seconds for b, seconds in points) / sum(b * b for b, _ in points), 0.0)


def meeting(cpu: Line, gpu: Line) -> float:
    """The real number of items at which two lines meet."""
    return (gpu.intercept - cpu.intercept) / (cpu.slope - gpu.slope)


def crossover(cpu_points: Points, gpu_points: Points, fit: Callable = fitted, step: int = 1) -> int | None:
    """The first batch at which the GPU's line is below the CPU's and stays there; None if there is none."""
    cpu, gpu = fit(cpu_points), fit(gpu_points)
    return max(1, math.floor(meeting(cpu, gpu)) + step) if gpu.slope < cpu.slope else None


def first_measured(cpu_points: Points, gpu_points: Points) -> int | None:
    cpu = dict(cpu_points)
    return min((batch for batch, seconds in gpu_points if batch in cpu and seconds < cpu[batch]), default=None)


def whole_batch(came: object, *case: object) -> int | None:
    expect(came is None or type(came) is int, "not-a-whole-batch", expected="an int or None", came=came)
    return came


batch = Contract(
    CROSSOVER,
    truth=crossover,
    read=whole_batch,
    told={
        "reads-the-points": first_measured,
        "no-fixed-cost": lambda *case: crossover(*case, fit=through_origin),
        "cpu-still-faster": lambda *case: crossover(*case, step=0),
        "swapped": lambda cpu_points, gpu_points: crossover(gpu_points, cpu_points),
    },
)
TWO_POINTS = {
    "two-points-only/outermost": lambda *case: crossover(*case, fit=lambda ps: fitted([min(ps), max(ps)])),
    "two-points-only/first and last": lambda *case: crossover(*case, fit=lambda ps: fitted([ps[0], ps[-1]])),
}


def two_lines(draw: Draw, at: float) -> tuple[Line, Line]:
    """A steep line and a flat one that meet at this batch."""
    fixed, steep, flat = draw.real(5e-5, 2e-4), draw.real(4e-6, 9e-6), draw.real(1e-7, 1e-6)
    return Line(steep, fixed), Line(flat, fixed + at * (steep - flat))


def exact(draw: Draw, at: float, steeper: str = "CPU") -> Case:
    """Points without noise."""
    lines = two_lines(draw, at)[:: 1 if steeper == "CPU" else -1]
    on = f"batches {MEASURED} on exact lines that meet at batch {at:,.1f}; the {steeper}'s is steeper"
    return Case(on, *(points_on(line, MEASURED) for line in lines))


def noisy(draw: Draw) -> Case:
    """Shuffled points with a batch measured twice; the fits meet far from a whole number."""
    measured = [1, 4, 16, 16, 64, 100, 200], [1, 4, 10, 64, 64, 256]
    while True:
        case = []
        for line, batches in zip(two_lines(draw, draw.real(15, 60)), measured, strict=True):
            points = [(b, seconds * draw.real(0.85, 1.15)) for b, seconds in points_on(line, batches)]
            case.append([points[i] for i in draw.permutation(len(points))])
        cpu, gpu = map(fitted, case)
        at, two_ends = meeting(cpu, gpu), all(points[0][0] != points[-1][0] for points in case)
        if gpu.slope < cpu.slope and at > 3 and 0.2 < at % 1 < 0.8 and two_ends:
            return Case(f"{len(case[0])} CPU points and {len(case[1])} GPU points with noise", *case)


batch.equals(
    "two exact lines that meet between two measured batches",
    lambda draw: exact(draw, draw(33, 59) + draw.real(0.2, 0.4)),
)
batch.equals(
    "noisy points, unordered, at other batches on each device",
    lambda draw: [batch.telling(draw, noisy, TWO_POINTS) for _ in range(2)],
    told=TWO_POINTS,
)
batch.equals(
    "a GPU that wins from the first item on",
    lambda draw: [exact(draw, -draw.real(3.2, 20.8)), exact(draw, draw.real(0.2, 0.8))],
    told={"below-1": Where(lambda came: came is None or came < 1)},
)
batch.equals(
    "a GPU that never wins, or only below a batch",
    lambda draw: [exact(draw, -draw.real(3.2, 20.8), "GPU"), exact(draw, draw.real(20.2, 60.8), "GPU")],
    told={
        "wins-only-below": lambda cpu_points, gpu_points: Where(lambda came: gpu_points[0][1] < cpu_points[0][1]),
        "never-is-none": ANYTHING,
    },
)
batch.equals(
    "lines that meet far beyond the measured batches",
    lambda draw: exact(draw, draw(200_000, 600_000) + draw.real(0.3, 0.7)),
    told={"search-ends-early": Where(lambda came: came is None)},
)


# 4.4 cost_per_million


def price(
    seconds: float, batch: int, per_hour: float, share: float = 1.0, batches: Callable = float, hours: Callable = float
) -> float:
    """The price of a million items; a belief may round the batches or the hours."""
    return hours(batches(1e6 / batch) * seconds / 3600 / share) * per_hour


cost = Contract(
    COST,
    truth=price,
    told={
        "idle-is-free": lambda seconds, batch, per_hour, share=1.0: price(seconds, batch, per_hour) * share,
        "utilization-ignored": lambda seconds, batch, per_hour, *share: price(seconds, batch, per_hour),
        "per-batch": lambda seconds, batch, *rest: price(seconds, 1, *rest),
        "per-item": lambda *case: price(*case) / 1e6,
        "hours-rounded-up": lambda *case: price(*case, hours=math.ceil),
        "last-batch-whole": lambda *case: price(*case, batches=math.ceil),
        "last-batch-whole/dropped": lambda *case: price(*case, batches=math.floor),
        "wrong-hour/a day": lambda *case: price(*case) / 24,
        "wrong-hour/a minute": lambda *case: price(*case) * 60,
        "wrong-hour/a second": lambda *case: price(*case) * 3600,
        "wrong-hour/milliseconds": lambda *case: price(*case) / 1000,
    },
    atol=0,
)


def cost_case(seconds: float, batch: int, per_hour: float, *utilization: float) -> Case:
    share = f"utilization {utilization[0]:.7g}" if utilization else "no utilization given"
    on = f"{seconds:.4g} s a batch of {batch:,}, {per_hour:.3g} an hour, {share}"
    return Case(on, seconds, batch, per_hour, *utilization)


def always_at_work(draw: Draw) -> Iterator[Case]:
    case = draw.real(0.3, 0.9), draw.choice([32, 50, 64, 80, 200]), draw.real(0.3, 4.0)
    yield cost_case(*case)
    yield cost_case(*case, 1.0)


cost.equals(
    "a machine that works all the time",
    always_at_work,
    errors={"TypeError.*utilization": "default-missing", "ValueError": "full-use-refused"},
)
cost.equals(
    "a last batch that is partly filled",
    lambda draw: cost_case(draw.real(900, 2000), draw(260_000, 320_000), draw.real(0.3, 4.0)),
)
cost.equals(
    "idle hours are paid for",
    lambda draw: [
        cost_case(draw.real(0.01, 0.2), 64, draw.real(0.3, 4.0), draw.real(*shares))
        for shares in ((0.1, 0.6), (0.001, 0.01))
    ],
)
cost.refuses(
    "refuses a utilization that is no share, NaN included",
    "share-unchecked",
    lambda draw: [
        cost_case(0.1, 64, 1.0, share)
        for share in (0.0, -draw.real(0.1, 0.9), 1.0 + draw.real(1e-6, 0.5), math.inf, -math.inf)
    ],
)
cost.refuses(
    "refuses a utilization that is no share, NaN included",
    "nan-accepted",
    lambda draw: cost_case(0.1, 64, 1.0, math.nan),
)


# 4.5 plan_workers

Plan = tuple[int, int]


def best_plan(
    cores: int,
    throughput: dict[Plan, float],
    total: Callable = lambda workers, threads, each: workers * each,
    fits: Callable = lambda threads, cores: threads <= cores,
) -> Plan:
    """The plan with the best total among those that fit; fewer workers, then fewer threads win a tie."""
    plans = [plan for plan in throughput if fits(math.prod(plan), cores)]
    return min(plans, key=lambda plan: (-total(*plan, throughput[plan]), plan))


def read_plan(came: object, cores: int, throughput: dict[Plan, float]) -> Plan:
    pair = isinstance(came, (tuple, list)) and len(came) == 2 and all(type(n) is int for n in came)
    expect(pair, "not-a-pair", expected="(workers, threads)", came=came)
    expect(math.prod(came) <= cores, "oversubscribed", expected=best_plan(cores, throughput), came=came)
    return tuple(came)


plan = Contract(
    PLAN,
    truth=best_plan,
    read=read_plan,
    told={
        "oversubscribed": lambda *case: best_plan(*case, fits=lambda threads, cores: True),
        "worker-not-total": lambda *case: best_plan(*case, total=lambda workers, threads, each: each),
        "threads-counted-twice": lambda *case: best_plan(*case, total=lambda *plan: math.prod(plan)),
        "smallest-total": lambda *case: best_plan(*case, total=lambda workers, threads, each: -workers * each),
        "pair-swapped": lambda *case: best_plan(*case)[::-1],
    },
    errors={"KeyError": "table-has-gaps"},
)
EVERY_CORE_BUSY = {
    "leaves-a-core-idle": lambda *case: best_plan(*case, fits=lambda threads, cores: threads < cores),
    "assumed-not-read/one worker": lambda cores, throughput: (1, cores),
    "assumed-not-read/one thread each": lambda cores, throughput: (cores, 1),
}
A_CORE_IDLE = {"fills-every-core": lambda *case: best_plan(*case, fits=lambda threads, cores: threads == cores)}


def plan_case(cores: int, throughput: dict[Plan, float]) -> Case:
    return Case(f"{cores} cores and the table {throughput}", cores, throughput)


def measured_plans(draw: Draw, busy: bool) -> Case:
    """A shuffled table with gaps, with the rules of thumb and with oversubscribed plans that look good.

    One plan stands out among those that fit; it keeps every core busy, or not.
    """
    cores = draw.choice((6, 8, 9, 10, 12))
    thumb, upto = [(1, cores), (cores, 1)], range(1, cores + 1)
    every = [(w, t) for w in upto for t in upto if w * t <= 2 * cores]
    fitting = [plan for plan in every if cores / 2 < math.prod(plan) <= cores and plan not in thumb]
    good = draw.choice([plan for plan in fitting if (math.prod(plan) == cores) == busy])
    plans = [*dict.fromkeys([good, *thumb, *(every[i] for i in draw.permutation(len(every))[: draw(9, 15)])])]
    throughput = {}
    for i in draw.permutation(len(plans)):
        workers, threads = plans[i]
        most = 1.2 if workers * threads <= cores else 1.9
        luck = 1.5 if plans[i] == good else draw.real(0.2, 0.8) if plans[i] in thumb else draw.real(0.4, most)
        throughput[plans[i]] = round(100 * luck * min(threads, 4) ** 0.6 / workers**0.4, 1)
    return plan_case(cores, throughput)


def tied_plans(draw: Draw) -> Iterator[Case]:
    each = 2.0 ** draw(4, 8)
    yield plan_case(8, {(4, 1): each, (2, 4): 2 * each, (2, 3): 2 * each})  # fewer workers, though more threads in all
    plans = {(4, 2): each, (2, 2): 2 * each, (2, 4): 2 * each, (2, 3): 2 * each, (8, 1): each / 2, (1, 1): each}
    for _ in range(2):
        while True:  # the first and the last of the equal plans are wrong, so that no luck with the order passes
            names = [list(plans)[i] for i in draw.permutation(len(plans))]
            tied = [name for name in names if name != (1, 1)]
            if tied[0][0] > 2 and tied[-1] in ((2, 3), (2, 4)):
                break
        yield plan_case(8, {name: plans[name] for name in names})


plan.equals(
    "the best total of plans that fit",
    lambda draw: plan.telling(draw, partial(measured_plans, busy=True), EVERY_CORE_BUSY),
    told=EVERY_CORE_BUSY,
)
plan.equals(
    "a core left idle where the table says so",
    lambda draw: plan.telling(draw, partial(measured_plans, busy=False), A_CORE_IDLE),
    told=A_CORE_IDLE,
)
plan.equals(
    "equal totals: fewer workers, then fewer threads",
    tied_plans,
    told={"tie-more-workers": Where(lambda came: came[0] != 2), "tie-more-threads": ANYTHING},
)
plan.refuses(
    "says so where nothing fits",
    "nothing-fits-not-told",
    lambda draw: [plan_case(3, {(2, 2): 50.0, (1, 4): 90.0}), plan_case(draw(2, 8), {})],
)
