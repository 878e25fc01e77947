"""What chapter 7's checks take for granted, asked of the installed library."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch

from helpers.checks import ch07_loss_dtypes as checks

ROOT = Path(__file__).resolve().parents[1]
CASES = checks.LABELS + checks.INDICES + checks.FLOATS + checks.ALREADY_LEGAL


@pytest.mark.parametrize(("loss_name", "given", "wanted", "kind"), CASES)
def test_what_exercise_1_calls_legal_trains(loss_name, given, wanted, kind):
    rng = torch.Generator().manual_seed(0)
    prediction, target = checks.draw_case(rng, loss_name, given, kind)
    prediction = prediction.to(wanted[0]).requires_grad_()
    checks._LOSSES[loss_name](prediction, target.to(wanted[1])).backward()
    assert prediction.grad.dtype == wanted[0]


def illegal(case) -> bool:
    """Two float dtypes that differ are left out: which losses take them depends on the release."""
    _, given, wanted, _ = case
    return given != wanted and not all(dtype.is_floating_point for dtype in given)


@pytest.mark.parametrize(("loss_name", "given", "wanted", "kind"), [*filter(illegal, checks.LABELS + checks.INDICES)])
def test_what_exercise_1_calls_illegal_is_refused_or_cheap_to_convert(loss_name, given, wanted, kind):
    rng = torch.Generator().manual_seed(0)
    prediction, target = checks.draw_case(rng, loss_name, given, kind)
    refused = bool(checks._what_the_loss_says(loss_name, prediction, target))
    assert refused or loss_name == "mse", "mse alone promotes labels, and only from some release on"


def test_saturation_points_are_the_known_ones():
    points = {dtype: checks.true_saturation(dtype) for dtype in (torch.float16, torch.bfloat16)}
    assert points == {torch.float16: 8.3203125, torch.bfloat16: 6.25}
    assert checks.true_saturation(torch.float32) == pytest.approx(16.6355, abs=1e-3)
    assert checks.true_saturation(torch.float64) == pytest.approx(36.7368, abs=1e-3)


def test_the_six_suspects_are_those_of_the_notebook():
    """The check runs its own copies; both must be the same code."""
    tree = ast.parse((ROOT / "solutions" / "07_loss_dtypes.py").read_text(encoding="utf-8"))
    shown = {
        node.name: ast.unparse(node.body[0].value)
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name in checks.SNIPPETS
    }
    source = ast.parse(Path(checks.__file__).read_text(encoding="utf-8"))
    table = next(
        node.value
        for node in source.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "SNIPPETS"
    )
    judged = {key.value: ast.unparse(value.body) for key, value in zip(table.keys, table.values, strict=True)}
    assert shown == judged
    assert checks.true_bugs() == {"a", "c", "d", "f"}


def test_the_spy_passes_what_is_no_loss():
    for name in ("softplus", "logsigmoid", "logaddexp", "log_softmax", "allclose", "isclose", "log_sigmoid_forward"):
        assert not checks._is_loss(name)
