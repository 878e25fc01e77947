"""Checks of chapter 4: limits, fitted cost models, prices and plans. Every number is made up or drawn; none is timed.

A wrong answer is explained by `judge`: each misconception comes with the function that a learner who holds it
would write, a mimic, and the one that gives what came is named. Hidden cases are drawn until all mimics differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from ..exercise.declare import Failed, load_exercises
from ..exercise.expect import draw_int, expect, expect_raises
from ..exercise.sessions import Session
from ..exercise.wire import LearnerError

IMPOSSIBLE, BOUND, CROSSOVER, COST, PLAN = load_exercises(__file__)

# By misconception; a second mimic of the same one has a note after a slash: "two-points-only/the outermost".
Mimics = dict[str, Callable]


def draw(rng: torch.Generator, low: float, high: float) -> float:
    """Draw a hidden number from low to high."""
    return low + (high - low) * float(torch.rand((), generator=rng, dtype=torch.float64))


def same(came: object, wanted: object) -> bool:
    """Whether two answers agree: numbers within 1e-5 relative, anything else exactly."""
    if type(came) is float or type(wanted) is float:
        numbers = all(type(value) in (int, float) for value in (came, wanted))
        return numbers and math.isclose(came, wanted, rel_tol=1e-5)
    return came == wanted


def outcome(mimic: Callable, arguments: Sequence) -> object:
    """What a mimic answers; for one that breaks on this case, a value that no answer equals."""
    try:
        return mimic(*arguments)
    except (ArithmeticError, LookupError, ValueError):
        return object()


def draw_telling(rng: torch.Generator, make: Callable, solve: Callable, mimics: Mimics) -> tuple:
    """Draw arguments until the right answer and those of all mimics differ from each other."""
    for _ in range(1000):
        arguments = make(rng)
        answers = [solve(*arguments), *(outcome(mimic, arguments) for mimic in mimics.values())]
        if not any(same(a, b) for i, a in enumerate(answers) for b in answers[:i]):
            return arguments
    raise AssertionError("no telling case found: a mimic is right, or the cases are too narrow")


def judge(came: object, wanted: object, arguments: Sequence, mimics: Mimics, on: str) -> None:
    """Fail unless the right answer came; name the misconception whose own answer this is."""
    if same(came, wanted):
        return
    told = next((name for name, mimic in mimics.items() if same(came, outcome(mimic, arguments))), None)
    raise Failed(told and told.partition("/")[0], expected=wanted, came=came, on=on)


def expect_number(came: object, on: str) -> float:
    """Fail unless a finite number came, plain or in a tensor without dimensions; gives the plain one."""
    if isinstance(came, torch.Tensor) and came.dim() == 0 and not came.is_complex():
        came = came.item()
    good = type(came) in (int, float) and math.isfinite(came)
    expect(good, None, "This should be a number.", expected="a finite number", came=came, on=on)
    return came


def pick(mimics: Mimics, *names: str) -> Mimics:
    """The named mimics alone: those whose answer is wrong on a rung's cases."""
    return {name: mimics[name] for name in names}


# 4.1


Table = list[tuple[float, float, float]]


def find_impossible(table: Table, bandwidth: float, peak: float, limit: Callable = max) -> list[int]:
    """The rows that took less than their limit, which is a function of the traffic and the arithmetic time."""
    return [i for i, (nbytes, flops, seconds) in enumerate(table) if seconds < limit(nbytes / bandwidth, flops / peak)]


def mimic_swapped_peaks(table: Table, bandwidth: float, peak: float) -> list[int]:
    return find_impossible(table, peak, bandwidth)


def mimic_fastest(table: Table, bandwidth: float, peak: float) -> list[int]:
    return [min(range(len(table)), key=lambda i: table[i][2])]


def mimic_complement(table: Table, bandwidth: float, peak: float) -> list[int]:
    return sorted(set(range(len(table))) - set(find_impossible(table, bandwidth, peak)))


IMPOSSIBLE_MIMICS: Mimics = {
    "only-arithmetic": lambda *case: find_impossible(*case, limit=lambda traffic, compute: compute),
    "only-traffic": lambda *case: find_impossible(*case, limit=lambda traffic, compute: traffic),
    "adds-the-limits": lambda *case: find_impossible(*case, limit=lambda traffic, compute: traffic + compute),
    "smaller-limit": lambda *case: find_impossible(*case, limit=min),
    "peaks-swapped": mimic_swapped_peaks,
    "fastest-suspected": mimic_fastest,
    "possible-rows": mimic_complement,
    "counted-from-1": lambda *case: [row + 1 for row in find_impossible(*case)],
}


def make_table(rng: torch.Generator) -> tuple[Table, float, float]:
    """A shuffled table with every kind of row: bound by either limit, or by both, and possible ones."""
    bandwidth, peak = draw(rng, 2e10, 9e10), draw(rng, 1e11, 9e11)
    kinds = [(0.4, 0.1, 0.45), (1.0, 0.2, 0.5), (0.2, 1.0, 0.5), (1.0, 0.9, 0.3), (0.1, 0.1, 2.0), (0.02, 0.01, 0.025)]
    kinds += [kinds[draw_int(rng, 0, 5)] for _ in range(draw_int(rng, 1, 3))]
    rows = []
    for index in torch.randperm(len(kinds), generator=rng).tolist():
        traffic, compute, seconds = kinds[index]
        scale = draw(rng, 0.5, 1.5)
        rows.append((traffic * scale * bandwidth, compute * scale * peak, seconds * scale))
    return rows, bandwidth, peak


def ask_for_rows(session: Session, table: Table, bandwidth: float, peak: float, on: str) -> list[int]:
    came = session.call("impossible_rows", table, bandwidth, peak)
    rows = isinstance(came, (list, tuple)) and all(type(row) is int for row in came)
    expect(rows, "not-row-numbers", expected="a list of ints", came=came, on=on)
    return list(came)


@IMPOSSIBLE.check("finds the rows that beat a limit, in two shuffled tables")
def _(session, rng):
    for _ in range(2):
        case = draw_telling(rng, make_table, find_impossible, IMPOSSIBLE_MIMICS)
        table, bandwidth, peak = case
        shares = [f"{t / max(b / bandwidth, f / peak):.2f}" for b, f, t in table]
        on = f"rows that took {', '.join(shares)} of their limit"
        wanted = find_impossible(*case)
        came = ask_for_rows(session, *case, on)
        expect(came == sorted(came), message="Ascending row numbers are wanted.", expected=wanted, came=came, on=on)
        judge(came, wanted, case, IMPOSSIBLE_MIMICS, on)


@IMPOSSIBLE.check("lets a row exactly at its limit pass, and an empty table")
def _(session, rng):
    bandwidth, peak = float(2**30), float(2**36)
    at_limit = [(2.0**29, 2.0**30, 0.5), (2.0**20, 2.0**37, 2.0), (2.0**28, 2.0**34, 0.25)]
    below = [(2.0**29, 2.0**30, 0.5 - 2.0**-6), (2.0**20, 2.0**37, 2.0 - 2.0**-6)]
    turn = draw_int(rng, 0, 4)
    table = [*at_limit, *below][turn:] + [*at_limit, *below][:turn]
    case, on = (table, bandwidth, peak), "three rows exactly at their limit and two a little below"
    came = ask_for_rows(session, *case, on)
    strict = {
        "limit-is-possible": lambda *case: list(range(5)),
        "possible-rows": mimic_complement,
    }
    judge(came, find_impossible(*case), case, strict, on)
    on = "a table without rows"
    judge(ask_for_rows(session, [], bandwidth, peak, on), [], ([], bandwidth, peak), {}, on)


@IMPOSSIBLE.check("copes with a clock that read 0")
def _(session, rng):
    case = ([(4e9, 1e9, 1.0), (draw(rng, 1e6, 1e9), 1e6, 0.0), (1e3, draw(rng, 1e6, 1e9), 0.0)], 2e10, 1e11)
    on = "two rows of 0 seconds after a possible one"
    try:
        came = ask_for_rows(session, *case, on)
    except LearnerError as error:
        if error.is_a("ZeroDivisionError"):
            raise Failed("divides-by-seconds", came=f"ZeroDivisionError: {error.text}", on=on) from None
        raise
    judge(came, [1, 2], case, {"divides-by-seconds": lambda *case: []}, on)


# 4.2


def bound(flops: float, nbytes: float, operations: int, machine: dict, combine: Callable = max) -> float:
    """A combination of the compute, the traffic and the floor time, in seconds."""
    compute, traffic = flops / machine["peak_flops"], nbytes / machine["peak_bandwidth"]
    return combine(compute, traffic, operations * machine["seconds_per_operation"])


def mimic_one_floor(flops: float, nbytes: float, operations: int, machine: dict) -> float:
    return bound(flops, nbytes, 1, machine)


def mimic_upside_down(flops: float, nbytes: float, operations: int, machine: dict) -> float:
    floor = operations * machine["seconds_per_operation"]
    return max(machine["peak_flops"] / flops, machine["peak_bandwidth"] / nbytes, floor)


def mimic_swapped_amounts(flops: float, nbytes: float, operations: int, machine: dict) -> float:
    return bound(nbytes, flops, operations, machine)


BOUND_MIMICS: Mimics = {
    "only-compute": lambda *case: bound(*case, combine=lambda compute, traffic, floor: compute),
    "one-floor": mimic_one_floor,
    "no-floor": lambda *case: bound(*case, combine=lambda compute, traffic, floor: max(compute, traffic)),
    "only-traffic": lambda *case: bound(*case, combine=lambda compute, traffic, floor: traffic),
    "adds-the-limits": lambda *case: bound(*case, combine=lambda *limits: sum(limits)),
    "floor-on-top": lambda *case: bound(*case, combine=lambda compute, traffic, floor: max(compute, traffic) + floor),
    "smallest-limit": lambda *case: bound(*case, combine=min),
    "wrong-units/upside down": mimic_upside_down,
    "wrong-units/swapped": mimic_swapped_amounts,
    "wrong-units/microseconds": lambda *case: 1e6 * bound(*case),
    "wrong-units/milliseconds": lambda *case: 1e3 * bound(*case),
}


def draw_net(rng: torch.Generator, compute_s: float, traffic_s: float, floor_s: float) -> tuple:
    """A net and a machine on which the three limits are about these times."""
    machine = {
        "peak_flops": draw(rng, 5e10, 9e11),
        "peak_bandwidth": draw(rng, 1e10, 9e10),
        "seconds_per_operation": draw(rng, 2e-6, 9e-6),
    }
    operations = max(2, round(floor_s / machine["seconds_per_operation"]))
    flops, nbytes = compute_s * machine["peak_flops"], traffic_s * machine["peak_bandwidth"]
    return flops * draw(rng, 0.9, 1.1), nbytes * draw(rng, 0.9, 1.1), operations, machine


def check_bound(session: Session, case: tuple, on: str) -> None:
    came = expect_number(session.call("lower_bound_seconds", *case), on)
    judge(came, bound(*case), case, BOUND_MIMICS, on)


@BOUND.check("a large batch: arithmetic decides")
def _(session, rng):
    check_bound(session, draw_net(rng, 20e-3, 6e-3, 100e-6), "much arithmetic")


@BOUND.check("one item through a wide net: reading the weights decides")
def _(session, rng):
    check_bound(session, draw_net(rng, 60e-6, 800e-6, 30e-6), "few flops for many bytes")


@BOUND.check("a small net of many operations: the floor decides")
def _(session, rng):
    case = draw_net(rng, 0.3e-6, 0.6e-6, draw(rng, 80e-6, 300e-6))
    check_bound(session, case, f"{case[2]} tiny operations")


# 4.3


Points = list[tuple[int, float]]
MEASURED = [1, 2, 4, 8, 16, 32, 64, 128, 256]


def fit_line(points: Points) -> tuple[float, float]:
    """(t0, c) of the least-squares line through (batch, seconds) pairs."""
    x = torch.tensor([batch for batch, _ in points], dtype=torch.float64)
    y = torch.tensor([seconds for _, seconds in points], dtype=torch.float64)
    c = ((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum()
    return float(y.mean() - c * x.mean()), float(c)


def crossing(cpu: tuple[float, float], gpu: tuple[float, float], whole: Callable = lambda at: math.floor(at) + 1):
    """The first batch at which the GPU's line (t0, c) is below the CPU's and stays there; None if there is none."""
    if gpu[1] >= cpu[1]:
        return None
    return max(1, whole((gpu[0] - cpu[0]) / (cpu[1] - gpu[1])))


def cross_fitted(cpu_points: Points, gpu_points: Points) -> int | None:
    return crossing(fit_line(cpu_points), fit_line(gpu_points))


def mimic_points(cpu_points: Points, gpu_points: Points) -> int | None:
    cpu = dict(cpu_points)
    return min((batch for batch, seconds in gpu_points if batch in cpu and seconds < cpu[batch]), default=None)


def mimic_ends(cpu_points: Points, gpu_points: Points) -> int | None:
    lines = [fit_line([min(points), max(points)]) for points in (cpu_points, gpu_points)]
    return crossing(*lines)


def mimic_first_and_last(cpu_points: Points, gpu_points: Points) -> int | None:
    lines = [fit_line([points[0], points[-1]]) for points in (cpu_points, gpu_points)]
    return crossing(*lines)


def mimic_origin(cpu_points: Points, gpu_points: Points) -> int | None:
    slopes = [sum(b * t for b, t in points) / sum(b * b for b, _ in points) for points in (cpu_points, gpu_points)]
    return crossing((0.0, slopes[0]), (0.0, slopes[1]))


def mimic_floor(cpu_points: Points, gpu_points: Points) -> int | None:
    return crossing(fit_line(cpu_points), fit_line(gpu_points), math.floor)


def mimic_swapped(cpu_points: Points, gpu_points: Points) -> int | None:
    return cross_fitted(gpu_points, cpu_points)


CROSSOVER_MIMICS: Mimics = {
    "reads-the-points": mimic_points,
    "no-fixed-cost": mimic_origin,
    "cpu-still-faster": mimic_floor,
    "swapped": mimic_swapped,
}


def points_on(line: tuple[float, float], batches: Sequence[int], rng=None, noise: float = 0.0) -> Points:
    """Points of a line, each off by up to this share."""
    return [(b, (line[0] + line[1] * b) * (1 + (draw(rng, -noise, noise) if noise else 0.0))) for b in batches]


def two_lines(rng: torch.Generator, at: float) -> tuple[tuple[float, float], tuple[float, float]]:
    """A CPU and a GPU line that meet at this batch, the GPU's with the larger fixed cost if that is positive."""
    cpu, gpu_c = (draw(rng, 5e-5, 2e-4), draw(rng, 4e-6, 9e-6)), draw(rng, 1e-7, 1e-6)
    return cpu, (cpu[0] + at * (cpu[1] - gpu_c), gpu_c)


def ask_for_batch(session: Session, cpu_points: Points, gpu_points: Points, on: str) -> int | None:
    came = session.call("crossover_batch", cpu_points, gpu_points)
    whole = came is None or type(came) is int
    expect(whole, "not-a-whole-batch", expected="an int or None", came=came, on=on)
    return came


@CROSSOVER.check("two exact lines that meet between two measured batches")
def _(session, rng):
    cpu, gpu = two_lines(rng, draw_int(rng, 33, 59) + draw(rng, 0.2, 0.4))
    case = points_on(cpu, MEASURED), points_on(gpu, MEASURED)
    on = f"batches {MEASURED}"
    judge(ask_for_batch(session, *case, on), cross_fitted(*case), case, CROSSOVER_MIMICS, on)


def make_noisy(rng: torch.Generator) -> tuple[Points, Points]:
    """Shuffled noisy points at different batches, one of them measured twice; the crossing far from a whole number."""
    while True:
        cpu, gpu = two_lines(rng, draw(rng, 15, 60))
        case = []
        for line, batches in ((cpu, [1, 4, 16, 16, 64, 100, 200]), (gpu, [1, 4, 10, 64, 64, 256])):
            points = points_on(line, batches, rng, 0.15)
            case.append([points[i] for i in torch.randperm(len(points), generator=rng).tolist()])
        fitted = [fit_line(points) for points in case]
        same_ends = any(points[0][0] == points[-1][0] for points in case)
        if fitted[1][1] < fitted[0][1] and fitted[1][0] > fitted[0][0] and not same_ends:
            at = (fitted[1][0] - fitted[0][0]) / (fitted[0][1] - fitted[1][1])
            if at > 3 and 0.2 < at % 1 < 0.8:
                return tuple(case)


@CROSSOVER.check("noisy points, unordered, at other batches on each device")
def _(session, rng):
    two_points = {"two-points-only/outermost": mimic_ends, "two-points-only/first and last": mimic_first_and_last}
    mimics = CROSSOVER_MIMICS | two_points
    for _ in range(2):
        case = draw_telling(rng, make_noisy, cross_fitted, mimics)
        on = f"{len(case[0])} CPU points and {len(case[1])} GPU points with noise"
        judge(ask_for_batch(session, *case, on), cross_fitted(*case), case, mimics, on)


@CROSSOVER.check("a GPU that wins from the first item on")
def _(session, rng):
    for at in (-draw(rng, 3.2, 20.8), draw(rng, 0.2, 0.8)):
        cpu, gpu = two_lines(rng, at)
        case, on = (points_on(cpu, MEASURED), points_on(gpu, MEASURED)), f"lines that meet at batch {at:.1f}"
        came = ask_for_batch(session, *case, on)
        expect(came is None or came >= 1, "below-1", expected=1, came=came, on=on)
        judge(came, 1, case, {"below-1": lambda *case: None}, on)


@CROSSOVER.check("a GPU that never wins, or only below a batch")
def _(session, rng):
    for at in (-draw(rng, 3.2, 20.8), draw(rng, 20.2, 60.8)):
        gpu, cpu = two_lines(rng, at)
        case, on = (points_on(cpu, MEASURED), points_on(gpu, MEASURED)), f"lines that meet at batch {at:.1f}"
        came = ask_for_batch(session, *case, f"{on}; the GPU's is the steeper one")
        kind = "wins-only-below" if at > 0 else "never-is-none"
        expect(came is None, kind, expected=None, came=came, on=f"{on}; the GPU's is the steeper one")


@CROSSOVER.check("lines that meet far beyond the measured batches")
def _(session, rng):
    cpu, gpu = two_lines(rng, draw_int(rng, 200_000, 600_000) + draw(rng, 0.3, 0.7))
    case = points_on(cpu, MEASURED), points_on(gpu, MEASURED)
    on = f"a crossing beyond the largest batch measured, {MEASURED[-1]}"
    judge(ask_for_batch(session, *case, on), cross_fitted(*case), case, {"search-ends-early": lambda *case: None}, on)


# 4.4


def price(seconds: float, batch: int, per_hour: float, utilization: float = 1.0) -> float:
    """Price of a million items."""
    return 1e6 / batch * seconds / 3600 * per_hour / utilization


def mimic_unit(seconds_an_hour: float) -> Callable:
    return lambda seconds, batch, per_hour, u=1.0: price(seconds, batch, per_hour, u) * 3600 / seconds_an_hour


def mimic_whole_batches(seconds: float, batch: int, per_hour: float, u: float = 1.0) -> float:
    return math.ceil(1e6 / batch) * seconds / 3600 * per_hour / u


def mimic_dropped_batch(seconds: float, batch: int, per_hour: float, u: float = 1.0) -> float:
    return 1_000_000 // batch * seconds / 3600 * per_hour / u


def mimic_whole_hours(seconds: float, batch: int, per_hour: float, u: float = 1.0) -> float:
    return math.ceil(1e6 / batch * seconds / 3600 / u) * per_hour


COST_MIMICS: Mimics = {
    "per-batch": lambda seconds, batch, per_hour, u=1.0: price(seconds, 1, per_hour, u),
    "per-item": lambda *case: price(*case) / 1e6,
    "hours-rounded-up": mimic_whole_hours,
    "last-batch-whole": mimic_whole_batches,
    "last-batch-whole/dropped": mimic_dropped_batch,
}
UNIT_MIMICS: Mimics = {f"wrong-hour/{seconds}": mimic_unit(seconds) for seconds in (86_400, 60, 1, 3_600_000)}


def check_price(session: Session, case: tuple, on: str, mimics: Mimics) -> None:
    came = expect_number(session.call("cost_per_million", *case), on)
    judge(came, price(*case), case, mimics | UNIT_MIMICS, on)


@COST.check("a machine that works all the time")
def _(session, rng):
    batch = [32, 50, 64, 80, 200][draw_int(rng, 0, 4)]
    case = (draw(rng, 0.3, 0.9), batch, draw(rng, 0.3, 4.0))
    on = f"batches of {batch}, no utilization given"
    mimics = pick(COST_MIMICS, "per-batch", "per-item", "hours-rounded-up")
    try:
        check_price(session, case, on, mimics)
    except LearnerError as error:
        if error.is_a("TypeError") and "utilization" in error.text:
            raise Failed("default-missing", came=f"TypeError: {error.text}", on=on) from None
        if error.is_a("ValueError"):
            raise Failed("full-use-refused", came=f"ValueError: {error.text}", on=on) from None
        raise
    check_price(session, (*case, 1.0), f"batches of {batch}, utilization 1.0", mimics)


@COST.check("a last batch that is partly filled")
def _(session, rng):
    batch = draw_int(rng, 260_000, 320_000)
    check_price(session, (draw(rng, 900, 2000), batch, draw(rng, 0.3, 4.0)), f"batches of {batch:,}", COST_MIMICS)


@COST.check("idle hours are paid for")
def _(session, rng):
    for low, high in ((0.1, 0.6), (0.001, 0.01)):
        case = (draw(rng, 0.01, 0.2), 64, draw(rng, 0.3, 4.0), draw(rng, low, high))
        free = {
            "idle-is-free": lambda seconds, batch, per_hour, u: price(seconds, batch, per_hour) * u,
            "utilization-ignored": lambda seconds, batch, per_hour, u: price(seconds, batch, per_hour),
        }
        check_price(session, case, f"utilization {case[3]:.3g}", free | pick(COST_MIMICS, "hours-rounded-up"))


@COST.check("refuses a utilization that is no share, NaN included")
def _(session, rng):
    for share in (0.0, -draw(rng, 0.1, 0.9), 1.0 + draw(rng, 1e-6, 0.5), math.inf, -math.inf, math.nan):
        kind = "nan-accepted" if math.isnan(share) else "share-unchecked"
        request = lambda share=share: session.call("cost_per_million", 0.1, 64, 1.0, share)  # noqa: E731
        expect_raises(request, "ValueError", f"utilization {share:g}", kind)


# 4.5


Plans = dict[tuple[int, int], float]


def best_plan(
    cores: int,
    throughput: Plans,
    total: Callable = lambda workers, threads, each: workers * each,
    fits: Callable = lambda workers, threads, cores: workers * threads <= cores,
) -> tuple[int, int]:
    """The plan with the best total among those that fit; fewer workers, then fewer threads win a tie."""
    plans = [plan for plan in throughput if fits(*plan, cores)]
    return min(plans, key=lambda plan: (-total(*plan, throughput[plan]), *plan))


def mimic_smallest(cores: int, throughput: Plans) -> tuple[int, int]:
    return best_plan(cores, throughput, total=lambda workers, threads, each: -workers * each)


PLAN_MIMICS: Mimics = {
    "oversubscribed": lambda *case: best_plan(*case, fits=lambda workers, threads, cores: True),
    "worker-not-total": lambda *case: best_plan(*case, total=lambda workers, threads, each: each),
    "threads-counted-twice": lambda *case: best_plan(*case, total=lambda w, t, each: w * t * each),
    "fills-every-core": lambda *case: best_plan(*case, fits=lambda w, t, cores: w * t == cores),
    "smallest-total": mimic_smallest,
    "pair-swapped": lambda *case: best_plan(*case)[::-1],
}


def make_plans(rng: torch.Generator) -> tuple[int, Plans]:
    """A table in random order, with gaps, with oversubscribed plans that look good; the rules of thumb are measured."""
    cores = draw_int(rng, 6, 12)
    every = [(w, t) for w in range(1, cores + 1) for t in range(1, cores + 1) if w * t <= 2 * cores]
    chosen = [every[i] for i in torch.randperm(len(every), generator=rng).tolist()[: draw_int(rng, 10, 16)]]
    chosen += [plan for plan in ((1, cores), (cores, 1)) if plan not in chosen]
    plans = {}
    for workers, threads in chosen:
        by_thumb = (workers, threads) in ((1, cores), (cores, 1))
        luck = draw(rng, 0.2, 0.8) if by_thumb else draw(rng, 0.4, 1.6)
        plans[workers, threads] = round(100 * luck * min(threads, 4) ** 0.6 / workers**0.4, 1)
    return cores, plans


def make_idle(rng: torch.Generator) -> tuple[int, Plans]:
    """A table whose best plan leaves a core idle."""
    while True:
        cores, plans = make_plans(rng)
        workers, threads = best_plan(cores, plans)
        if workers * threads < cores:
            return cores, plans


def make_full(rng: torch.Generator) -> tuple[int, Plans]:
    """A table whose best plan keeps every core busy, and is no rule of thumb."""
    while True:
        cores, plans = make_plans(rng)
        workers, threads = best_plan(cores, plans)
        if workers * threads == cores and 1 not in (workers, threads):
            return cores, plans


def ask_for_plan(session: Session, cores: int, plans: Plans, on: str) -> tuple[int, int]:
    try:
        came = session.call("plan_workers", cores, plans)
    except LearnerError as error:
        if error.is_a("KeyError"):
            raise Failed("table-has-gaps", came=f"KeyError: {error.text}", on=on) from None
        raise
    pair = isinstance(came, (tuple, list)) and len(came) == 2 and all(type(n) is int for n in came)
    expect(pair, "not-a-pair", expected="(workers, threads)", came=came, on=on)
    return tuple(came)


def check_plan(session: Session, case: tuple[int, Plans], mimics: Mimics) -> None:
    cores, plans = case
    shown = ", ".join(f"{plan}: {each:g}" for plan, each in sorted(plans.items()))
    on = f"{cores} cores and {shown}"
    came, wanted = ask_for_plan(session, cores, plans, on), best_plan(cores, plans)
    if came != wanted and came[0] * came[1] > cores:
        raise Failed("oversubscribed", expected=wanted, came=came, on=on)
    judge(came, wanted, case, mimics, on)


@PLAN.check("the best total of plans that fit")
def _(session, rng):
    mimics = PLAN_MIMICS | {
        "leaves-a-core-idle": lambda *case: best_plan(*case, fits=lambda w, t, cores: w * t < cores),
        "assumed-not-read/one worker": lambda cores, plans: (1, cores),
        "assumed-not-read/one thread each": lambda cores, plans: (cores, 1),
    }
    mimics.pop("fills-every-core")
    check_plan(session, draw_telling(rng, make_full, best_plan, mimics), mimics)


@PLAN.check("a core left idle where the table says so")
def _(session, rng):
    case = draw_telling(rng, make_idle, best_plan, PLAN_MIMICS)
    check_plan(session, case, PLAN_MIMICS)


@PLAN.check("equal totals: fewer workers, then fewer threads")
def _(session, rng):
    each = float(2 ** draw_int(rng, 4, 8))
    plans = {(4, 2): each, (2, 2): 2 * each, (2, 4): 2 * each, (2, 3): 2 * each, (8, 1): each / 2, (1, 1): each}
    names, best = list(plans), max(workers * each for (workers, _), each in plans.items())
    for _ in range(2):
        while True:  # the first and the last of the equal plans are wrong, so that no luck with the order passes
            order = torch.randperm(len(names), generator=rng).tolist()
            shuffled = {names[i]: plans[names[i]] for i in order}
            tied = [plan for plan in shuffled if plan[0] * plans[plan] == best]
            if tied[0][0] > 2 and tied[-1][0] == 2 and tied[-1] != (2, 2):
                break
        came = ask_for_plan(session, 8, shuffled, "plans of equal total")
        on = f"8 cores and {shuffled}"
        expect(came[0] == 2, "tie-more-workers", expected=(2, 2), came=came, on=on)
        expect(came == (2, 2), "tie-more-threads", expected=(2, 2), came=came, on=on)
    plans = {(4, 1): each, (2, 4): 2 * each, (2, 3): 2 * each}  # fewer workers, though more threads in all
    came, on = ask_for_plan(session, 8, plans, "plans of equal total"), f"8 cores and {plans}"
    expect(came[0] == 2, "tie-more-workers", expected=(2, 3), came=came, on=on)
    expect(came == (2, 3), "tie-more-threads", expected=(2, 3), came=came, on=on)


@PLAN.check("says so where nothing fits")
def _(session, rng):
    for cores, plans in ((3, {(2, 2): 50.0, (1, 4): 90.0}), (draw_int(rng, 2, 8), {})):
        request = lambda cores=cores, plans=plans: session.call("plan_workers", cores, plans)  # noqa: E731
        expect_raises(request, "ValueError", f"{cores} cores and the table {plans}", "nothing-fits-not-told")
