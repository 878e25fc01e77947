"""What chapter 7's checks take for granted, asked of the installed library."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from helpers.checks import ch07_loss_dtypes as checks
from helpers.exercise.contract import Draw

ROOT = Path(__file__).resolve().parents[1]
CASES = [
    [(loss_name, kind, given) for (loss_name, kind), pairs in rows.items() for given in pairs]
    for rows in checks.LEGAL_CASES.values()
]


def refusal(dtypes: tuple, loss_name: str, kind: str, given: tuple) -> str:
    """What the loss says against a case in these dtypes."""
    pair = checks.draw_pair(Draw(torch.Generator().manual_seed(0)), kind, *given)
    return checks.refusal(loss_name, *pair, dtypes)


@pytest.mark.parametrize(("loss_name", "kind", "given"), sum(CASES, []))
def test_what_exercise_1_calls_legal_trains(loss_name, kind, given):
    assert refusal(checks.legal_dtypes(kind, *given), loss_name, kind, given) == ""


def illegal(case) -> bool:
    """Two float dtypes that differ are left out: which losses take them depends on the release."""
    _, kind, given = case
    return given != checks.legal_dtypes(kind, *given) and not all(dtype.is_floating_point for dtype in given)


@pytest.mark.parametrize(("loss_name", "kind", "given"), [*filter(illegal, CASES[0] + CASES[1])])
def test_what_exercise_1_calls_illegal_is_refused_or_cheap_to_convert(loss_name, kind, given):
    assert refusal(given, loss_name, kind, given) or loss_name == "mse", (
        "mse alone promotes labels, and only from some release on"
    )


def test_saturation_points_are_the_known_ones():
    points = {dtype: checks.true_saturation(dtype) for dtype in (torch.float16, torch.bfloat16)}
    assert points == {torch.float16: 8.3203125, torch.bfloat16: 6.25}
    assert checks.true_saturation(torch.float32) == pytest.approx(16.6355, abs=1e-3)
    assert checks.true_saturation(torch.float64) == pytest.approx(36.7368, abs=1e-3)


def test_an_answer_may_be_one_step_of_the_dtype_from_its_saturation_point():
    for dtype in (torch.float16, torch.bfloat16):
        point = torch.tensor(checks.true_saturation(dtype), dtype=dtype)
        step = torch.nextafter(point, torch.full_like(point, 64)) - point
        assert checks.ALLOWED[dtype] == float(step)


def six_suspects() -> dict[str, Callable]:
    """The notebook's own functions."""
    tree = ast.parse((ROOT / "solutions" / "07_loss_dtypes.py").read_text(encoding="utf-8"))
    six = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in set("abcdef")]
    names = {"F": F}
    exec(compile(ast.Module(six, []), "the six suspects", "exec"), names)
    return {node.name: names[node.name] for node in six}


def test_the_bugs_among_the_six_suspects_give_another_loss_than_a_loop_over_all_labels():
    rng, bugs = torch.Generator().manual_seed(0), set()
    suspects = six_suspects()
    for name, function in suspects.items():
        shape = {"d": (6, 1), "f": (4, 3, 3)}.get(name, (6, 3))
        z = torch.randn(shape, generator=rng, dtype=torch.float64)
        if name == "d":
            y = torch.tensor([0, 1, 1, 0, 1, 0])
            rows = torch.cat([torch.zeros_like(z), z], dim=1)
        else:
            y = torch.randint(0, 3, shape[:-1], generator=rng)
            rows = z.reshape(-1, 3)
        picked = [row.softmax(0)[label].log() for row, label in zip(rows, y.reshape(-1), strict=True)]
        if not torch.allclose(function(z, y).double(), -torch.stack(picked).mean(), rtol=1e-5):
            bugs.add(name)
    assert (sorted(suspects), bugs) == (list("abcdef"), set(checks.BUGS))


def test_the_spy_passes_what_is_no_loss():
    for name in ("softplus", "logsigmoid", "logaddexp", "log_softmax", "allclose", "isclose", "log_sigmoid_forward"):
        assert not checks.is_loss(name)
