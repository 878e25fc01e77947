# %% [markdown]
# # Exercises 4: CPU vs GPU
#
# Five exercises, easy to hard. Write your answer where a cell raises `NotImplementedError`, run the cell, then run
# the `check` below it. `hint("4.2")` gives one more hint, first as a question. Chapter 4 holds all you need. Nothing
# here is timed: the numbers are given, the reasoning is yours.

# %%
import math

from helpers import check, hint, progress, solution

# %% [markdown]
# ## 4.1 The impossible benchmark (1 point)
#
# A colleague's table of measurements has rows `(bytes, flops, seconds)`: what a piece of work must move and compute,
# and how long it is said to take. In plain SI units: bytes, operations, seconds.
#
# Return the numbers of the rows that cannot be true on a machine with these peaks (bytes per second, flops per
# second), as a list, counted from 0, ascending.
#
# - Memory and arithmetic work at the same time: the limit is the larger of the two times.
# - A row exactly at its limit is possible.
# - A coarse clock may have read 0 seconds for work that is not nothing.


# %%
def impossible_rows(table: list[tuple[float, float, float]], peak_bandwidth: float, peak_flops: float) -> list[int]:
    raise NotImplementedError("Exercise 4.1 is yours to write")


# %%
check("4.1")

# %% [markdown]
# ## 4.2 No faster than this (1 point)
#
# `lower_bound_seconds(flops, bytes_moved, operations, machine)` gives the least time that a forward pass can take.
#
# - `machine` is a dict with `peak_flops` (per second), `peak_bandwidth` (bytes per second) and
#   `seconds_per_operation`, which every PyTorch operation costs however small it is.
# - Arithmetic, traffic and the per-operation floor each set a limit; the largest one counts.


# %%
def lower_bound_seconds(flops: float, bytes_moved: float, operations: int, machine: dict[str, float]) -> float:
    raise NotImplementedError("Exercise 4.2 is yours to write")


# %%
check("4.2")

# %% [markdown]
# ## 4.3 From which batch on? (2 points)
#
# The same net was timed on two devices. Each list holds `(batch, seconds)` pairs; order and batch sizes may differ
# between the lists, and a batch may appear twice.
#
# Fit `t0 + c * batch` to each list by least squares (unweighted, all points). Return the smallest whole batch from
# 1 on where the fitted GPU time is strictly below the fitted CPU time **and stays so** for every larger batch, or
# `None` if there is none. The answer may lie beyond the batches that were measured.


# %%
def crossover_batch(cpu_points: list[tuple[int, float]], gpu_points: list[tuple[int, float]]) -> int | None:
    raise NotImplementedError("Exercise 4.3 is yours to write")


# %%
check("4.3")

# %% [markdown]
# ## 4.4 The bill (2 points)
#
# `cost_per_million(seconds_per_batch, batch, price_per_hour, utilization=1.0)` gives the price of a million items on a
# machine that is paid by the hour.
#
# - `utilization` is the share of the paid time in which the machine works. Idle hours are paid for.
# - A partly filled last batch counts pro rata, and so does a begun hour.
# - A utilization that is not above 0 and at most 1, or that is NaN: raise a `ValueError`.


# %%
def cost_per_million(seconds_per_batch: float, batch: int, price_per_hour: float, utilization: float = 1.0) -> float:
    raise NotImplementedError("Exercise 4.4 is yours to write")


# %%
check("4.4")

# %% [markdown]
# ## 4.5 Workers and threads (3 points)
#
# A server runs several worker processes, each with its own number of threads. `throughput[(workers, threads)]` holds
# the items per second that **each** worker reached while all of them ran. Combinations that nobody measured are
# missing.
#
# `plan_workers(cores, throughput)` returns the pair `(workers, threads)` with the best total.
#
# - Only plans with at most `cores` threads in all count, whatever the table says about the others.
# - Equal totals: fewer workers win, then fewer threads.
# - No measured plan fits: raise a `ValueError`.


# %%
def plan_workers(cores: int, throughput: dict[tuple[int, int], float]) -> tuple[int, int]:
    raise NotImplementedError("Exercise 4.5 is yours to write")


# %%
check("4.5")

# %%
progress(4)
