"""What was reached beside what is possible: throughput with its limit, and the roofline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from .canvas import COLOURS, GREY, finish, label_axes, legend, new_figure, series_look, short


def throughput_curve(
    batches: Sequence[int],
    items_per_s: Sequence[float],
    fit: tuple[float, float] | None = None,
    unit: str = "items/s",
) -> None:
    """Draw throughput against batch size, with the fitted curve `b / (t0 + c * b)` and its limit.

    Args:
        batches: batch sizes.
        items_per_s: measured throughput for each.
        fit: `(t0, c)` in seconds: what a call costs whatever its size, and what each item adds.
    """
    fig, ax = new_figure(7.5, 4)
    ax.plot(batches, items_per_s, "o", color=COLOURS[0], ms=8, mec="black", label="measured")
    best = int(np.argmax(items_per_s))
    first, most = short(items_per_s[0]), short(items_per_s[best])
    alt = "Throughput against batch size. "
    alt += f"Measured: {first} {unit} at {batches[0]}, most at {batches[best]} with {most} {unit}."
    columns = ["batch", f"measured ({unit})"]
    rows: list[Sequence[float]] = list(zip(batches, items_per_s, strict=True))
    if fit is not None:
        t0, c = fit
        curve = np.geomspace(min(batches), max(batches), 200)
        label = "fit: b / (t0 + c·b)"
        ax.plot(curve, curve / (t0 + c * curve), "--", color=COLOURS[1], lw=1.8, label=label)
        ax.axhline(1 / c, color=GREY, lw=1.2, ls=":", label=f"limit 1/c: {short(1 / c)} {unit}")
        gain = short(1 + t0 / c)
        alt += f" The fit levels off at {short(1 / c)} {unit}, {gain} times one at a time."
        columns += [f"fitted ({unit})"]
        rows = [[b, measured, b / (t0 + c * b)] for b, measured in rows]
    ax.set_xscale("log", base=2)
    ax.set_xticks(batches, [str(batch) for batch in batches])
    ax.set_xticks([], minor=True)
    ax.set_ylim(bottom=0)
    label_axes(ax, "batch size", unit)
    legend(fig, ax)
    finish(fig, alt, (columns, rows))


def roofline(points: Mapping[str, tuple[float, float]], peak_flops: float, peak_bandwidth: float) -> None:
    """Draw what was reached below what a machine can do: memory traffic, then arithmetic, bounds it.

    Args:
        points: `(flops per byte moved, flops per second reached)` by name.
        peak_flops: the machine's flops per second.
        peak_bandwidth: its bytes per second.
    """
    ridge = peak_flops / peak_bandwidth
    at = [intensity for intensity, _ in points.values()]
    span = np.geomspace(min(*at, ridge) / 4, max(*at, ridge) * 4, 300)
    fig, ax = new_figure(7.5, 3.6 + 0.2 * len(points))
    ax.plot(span, np.minimum(peak_flops, span * peak_bandwidth), color="black", lw=2, label="roof")
    ax.axvline(ridge, color=GREY, lw=1.2, ls=":", label=f"ridge: {short(ridge)} flops per byte")
    facts, rows = [], []
    for number, (name, (intensity, reached)) in enumerate(points.items()):
        colour, marker, _ = series_look(number)
        roof = min(peak_flops, intensity * peak_bandwidth)
        bound = "memory" if intensity < ridge else "compute"
        possible = reached <= roof
        share = f"{reached / roof * 100:.0f} % of" if possible else f"{short(reached / roof)} times"
        text = f"{name}: {share} its {bound} roof"
        ax.plot(intensity, reached, marker, color=colour, ms=9, mec="black", label=text)
        facts.append(text + ("" if possible else ", more than is possible"))
        rows.append([name, intensity, reached, roof, bound])
    ax.set_xscale("log")
    ax.set_yscale("log")
    label_axes(ax, "arithmetic intensity (flops per byte)", "flops per second")
    legend(fig, ax)
    alt = f"Roofline with its ridge at {short(ridge)} flops per byte. {'; '.join(facts)}."
    finish(fig, alt, (["point", "flops per byte", "flops/s", "roof (flops/s)", "bound by"], rows))
