"""Every figure renders, returns nothing, and says in words and in a table what it shows."""

import sys
from itertools import pairwise

import numpy as np
import pytest
import torch
from matplotlib.text import Text
from torch import nn

from helpers import evidence, figures
from helpers.figures import canvas, comparison
from helpers.measure.comparison import Comparison

PNG = b"\x89PNG"


@pytest.fixture
def shown(monkeypatch):
    """Call a figure function; give its picture, alt text, columns and rows."""

    def show(function, *args, **kwargs):
        caught = []
        monkeypatch.setattr(canvas, "show_picture", lambda *given: caught.append(given))
        assert function(*args, **kwargs) is None
        ((png, alt, (columns, rows)),) = caught
        assert png.startswith(PNG) and len(png) > 2000
        assert alt.strip().endswith(".") and "nan" not in alt
        assert all(len(row) == len(columns) for row in rows)
        return alt, columns, rows

    return show


def compared(rounds=200, **ratios):
    noise = np.random.default_rng(0).normal(0, 0.01, (len(ratios), rounds))
    times = [np.ones(rounds)]
    times += [ratio * np.exp(e) for ratio, e in zip(ratios.values(), noise, strict=True)]
    return Comparison(names=("train", *ratios), times=1e-4 * np.stack(times, 1))


@pytest.fixture
def net():
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))


class TestRatioStrip:
    def test_says_what_the_comparison_says(self, shown):
        comparison = compared(no_grad=0.8, eval=1.0, compiled=2.5)
        alt, _, rows = shown(figures.ratio_strip, comparison)
        assert "relative to train, 200 rounds" in alt
        for name, verdict in [
            ("no_grad", "faster"),
            ("eval", "no practical difference"),
            ("compiled", "slower"),
        ]:
            low, median, high = comparison.ratio(name).rounded()
            assert f"{name} takes {median}x the time ({low}–{high}): {verdict}" in alt
        assert rows[0] == ["no_grad", *comparison.ratio("no_grad"), "faster"]

    @pytest.mark.parametrize("ratio", [0.0004, 0.1, 0.7, 0.97, 1.001, 1.2, 1.7, 9, 60, 3000])
    def test_the_axis_reads_as_ratios_at_any_scale(self, ratio):
        fig, ax = canvas.new_figure(7, 2)
        comparison._ratio_axis(ax, [1 / 1.03, 1.03, ratio])
        labels = [text.get_text() for text in ax.get_xticklabels()]
        assert "1x" in labels
        assert 2 <= len(labels) <= 13
        fig.canvas.draw()
        boxes = [text.get_window_extent() for text in ax.get_xticklabels()]
        assert all(a.x1 < b.x0 for a, b in pairwise(boxes))

    def test_too_few_rounds_for_an_interval(self, shown):
        alt, _, _ = shown(figures.ratio_strip, compared(rounds=5, eval=1.0))
        assert "too noisy to tell" in alt


class TestDrawGraph:
    def test_leaves_carry_parameter_names(self, shown, net):
        alt, columns, rows = shown(figures.draw_graph, net(torch.ones(1, 6)), net)
        assert "9 nodes in 5 levels" in alt
        assert "2 x Addmm" in alt and "Relu" in alt and "Backward" not in alt
        assert "0.weight" in alt and "2.bias" in alt
        assert columns == ["node", "computed from"]
        assert ["T", "0.weight (5, 6)"] in rows

    def test_names_from_a_dict_and_none(self, shown):
        a, b = (torch.ones(2, requires_grad=True) for _ in range(2))
        alt, _, _ = shown(figures.draw_graph, a * b, {"scale": a})
        assert "scale" in alt and "leaf" in alt

    def test_no_graph(self, shown, net):
        alt, _, rows = shown(figures.draw_graph, net(torch.ones(1, 6)).detach(), net)
        assert "0 nodes" in alt and "Nothing was recorded" in alt and rows == []

    def test_a_leaf_alone(self, shown):
        alt, _, _ = shown(figures.draw_graph, torch.ones(2, requires_grad=True))
        assert "Nothing was recorded" in alt

    def test_a_large_graph_is_cut_and_says_so(self, shown):
        w, total = torch.ones((), requires_grad=True), torch.zeros(())
        for _ in range(400):
            total = total + w * 2
        alt, _, rows = shown(figures.draw_graph, total, {"w": w})
        assert "801 nodes" in alt and "are not drawn" in alt and "400 x Add" in alt
        assert len(rows) <= 40

    def test_boxes_do_not_touch(self, monkeypatch, net):
        fig = drawn(monkeypatch, figures.draw_graph, (net(torch.ones(1, 6)) + 1).mean(), net)
        (ax,) = fig.axes
        fig.canvas.draw()
        boxes = [text.get_bbox_patch().get_window_extent() for text in ax.texts if text.get_text()]
        assert len(boxes) == 11
        for index, box in enumerate(boxes):
            assert not any(box.overlaps(other) for other in boxes[:index])


def drawn(monkeypatch, function, *args):
    """The figure object that a function finishes with."""
    caught = []
    for name in ("charts", "comparison", "graph", "layout", "limits", "memory"):
        monkeypatch.setattr(f"helpers.figures.{name}.finish", lambda fig, alt, table: caught.append(fig))
    function(*args)
    return caught[0]


class TestStrides:
    def test_a_transpose_shares_memory_and_jumps(self, shown):
        a = torch.arange(12.0).reshape(3, 4)
        matrices = {"a = arange(12)": a, "a.t()": a.t(), "a.t().contiguous()": a.t().contiguous()}
        alt, columns, rows = shown(figures.strides, matrices)
        assert "a.t() (4 by 3): stride (1, 4), same memory as a, 11 of 11 steps jump" in alt
        assert "a.t().contiguous() (4 by 3): stride (3, 1), own memory, 0 of 11" in alt
        assert [row[columns.index("jumps")] for row in rows] == [0, 11, 0]

    def test_slices_and_expanded_rows(self, shown):
        a = torch.arange(12).reshape(3, 4)
        alt, _, rows = shown(figures.strides, {"a": a, "part": a[1:, 1:3]})
        assert "part (2 by 2): stride (4, 1), same memory as a, 1 of 3 steps jump" in alt
        assert rows[1][3] == 5
        alt, _, _ = shown(figures.strides, {"row": torch.arange(4.0).expand(3, 4)})
        assert "stride (0, 1)" in alt and "2 of 11" in alt

    def test_requires_grad_and_other_dtypes(self, shown):
        shown(figures.strides, {"w": torch.ones(2, 3, requires_grad=True)})
        shown(figures.strides, {"mask": torch.eye(3, dtype=torch.bool)})

    @pytest.mark.parametrize("tensor", [torch.ones(5, 5), torch.ones(4)])
    def test_what_cannot_be_drawn(self, tensor):
        with pytest.raises(ValueError, match="matrix over at most 24 elements"):
            figures.strides({"x": tensor})


def test_memory_timeline(shown, net):
    x = torch.ones(4, 6)
    memories = {"grad": evidence.peak_memory(lambda: net(x))}
    with torch.no_grad():
        memories["no_grad"] = evidence.peak_memory(lambda: net(x))
    alt, columns, rows = shown(figures.memory_timeline, memories)
    assert "no_grad peaks at 160 bytes and keeps 32 bytes" in alt
    assert rows[0][columns.index("peak (bytes)")] == memories["grad"].peak


def test_memory_timeline_of_nothing(shown):
    alt, _, _ = shown(figures.memory_timeline, {"idle": evidence.peak_memory(lambda: None)})
    assert "idle peaks at 0 bytes" in alt


class TestLineChart:
    def test_tells_ends_and_extremes(self, shown):
        series = {"a": [1, 2000, 3], "b": [5, float("nan"), 4.25]}
        alt, columns, rows = shown(
            figures.line_chart, [1, 2, 4], series, "batch", "time (ms)", True, True, "Cost", {"best": 2}
        )
        assert alt.startswith("Cost: time (ms) against batch.")
        assert "a: from 1 to 3, highest 2,000 at 2" in alt
        assert "b: from 5 to 4.25" in alt
        assert "marks best at 2" in alt
        assert columns == ["batch", "a", "b"] and rows[0] == (1, 1, 5)

    def test_tensors_arrays_and_overflow(self, shown):
        series = {"t": torch.tensor([1.0, 2.0]), "n": np.array([3.0, np.inf]), "none": [np.nan] * 2}
        alt, _, _ = shown(figures.line_chart, range(2), series, "x", "y")
        assert "n: from 3 to 3" in alt and "none: no values" in alt

    def test_names_on_the_horizontal_axis(self, monkeypatch):
        fig = drawn(monkeypatch, figures.line_chart, ["a", "b"], {"s": [1, 2]}, "x", "y")
        assert [text.get_text() for text in fig.axes[0].get_xticklabels()] == ["a", "b"]

    def test_series_differ_by_more_than_colour(self):
        colours, markers, lines = zip(*map(canvas.series_look, range(7)), strict=True)
        assert len(set(colours)) == len(set(markers)) == 7
        assert all(line != following for line, following in pairwise(lines))


def test_bars(shown):
    alt, _, rows = shown(figures.bars, {"fp32": 4.8, "bf16": 220}, "time (ms)", title="Matmul", errors={"bf16": 12})
    assert alt == "Matmul: time (ms). fp32 4.8; bf16 220 ± 12."
    assert rows[1] == ("bf16", 220.0, 12.0)
    shown(figures.bars, {"a": 1e-4, "b": 100}, "x", log=True)


def test_heat_map(shown):
    alt, columns, rows = shown(figures.heat_map, [[1.0, 2.5], [0.5, 2]], ["r0", "r1"], ["c0", "c1"], "{:.1f}", "Cost")
    assert alt == "Cost, 2 rows by 2 columns: highest 2.5 at r0 c1; lowest 0.5 at r1 c0."
    assert columns == ["", "c0", "c1"] and rows[1] == ["r1", "0.5", "2.0"]


def test_heat_map_of_booleans(shown):
    names = ["0", "1"]
    alt, _, _ = shown(figures.heat_map, torch.eye(2) > 0, names, names, "{}")
    assert "true at 0 0, 1 1; false elsewhere" in alt
    alt, _, _ = shown(figures.heat_map, torch.zeros(2, 2) > 0, names, names, "{}")
    assert "true at no place" in alt


def test_throughput_curve(shown):
    t0, c = 0.9, 0.1
    batches = [1, 4, 16, 64]
    measured = [b / (t0 + c * b) for b in batches]
    alt, columns, rows = shown(figures.throughput_curve, batches, measured, (t0, c))
    assert "Measured: 1 items/s at 1, most at 64" in alt
    assert "levels off at 10 items/s, 10 times one at a time" in alt
    assert len(columns) == 3 and rows[0][1] == pytest.approx(rows[0][2])
    alt, columns, _ = shown(figures.throughput_curve, batches, measured)
    assert "fit" not in alt and len(columns) == 2


def test_roofline(shown):
    points = {"small": (0.5, 4e9), "large": (50, 6e10), "claimed": (0.1, 1e11)}
    alt, _, rows = shown(figures.roofline, points, 1e11, 1e10)
    assert "ridge at 10 flops per byte" in alt
    assert "small: 80 % of its memory roof" in alt
    assert "large: 60 % of its compute roof" in alt
    assert "claimed: 100 times its memory roof, more than is possible" in alt
    assert rows[0] == ["small", 0.5, 4e9, 5e9, "memory"]


def test_depth_plot(shown):
    stds = {"default": [1, 0.5, 0.25], "He": [1, 1, 1], "short": [2.0]}
    alt, columns, rows = shown(figures.depth_plot, stds)
    assert "Mean factor per layer: default 0.5, He 1." in alt
    assert columns[0] == "layer" and [row[0] for row in rows] == [1, 2, 3]


FIGURES = [
    lambda: figures.ratio_strip(compared(a=0.9, b=1.1)),
    lambda: figures.draw_graph((torch.ones(3, requires_grad=True) * 2).sum()),
    lambda: figures.memory_timeline({"f": evidence.peak_memory(lambda: torch.ones(3) + 1)}),
    lambda: figures.strides({"a": torch.ones(2, 3)}),
    lambda: figures.line_chart([1, 2], {"a": [1, 2], "b": [2, 3]}, "x", "y", title="t"),
    lambda: figures.bars({"a": 1, "b": 2}, "length"),
    lambda: figures.heat_map([[1, 2]], ["r"], ["a", "b"]),
    lambda: figures.throughput_curve([1, 2], [1.0, 1.5], (0.5, 0.5)),
    lambda: figures.roofline({"a": (1, 1e9)}, 1e11, 1e10),
    lambda: figures.depth_plot({"a": [1, 0.5]}),
]


@pytest.mark.parametrize("draw", FIGURES)
class TestEveryFigure:
    def test_a_script_prints_the_alt_text(self, draw, capsys):
        pyplot_before = "matplotlib.pyplot" in sys.modules
        assert draw() is None
        assert ("matplotlib.pyplot" in sys.modules) == pyplot_before
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 1 and lines[0].startswith("[figure] ") and len(lines[0]) > 20

    def test_text_is_readable_and_inside_the_picture(self, draw, monkeypatch):
        fig = drawn(monkeypatch, draw)
        texts = [text for text in fig.findobj(Text) if text.get_text().strip()]
        assert texts and all(text.get_fontsize() >= 9 for text in texts)
        width, height = fig.get_size_inches()
        fig.canvas.draw()
        inside = fig.get_tightbbox()
        assert inside.x0 > -0.02 and inside.x1 < width + 0.02
        assert inside.y0 > -0.02 and inside.y1 < height + 0.02
