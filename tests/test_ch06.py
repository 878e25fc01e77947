"""What chapter 6 says of torch and of its own hidden cases: fails the day either changes."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from helpers.checks import ch06_tensor_shapes as ch06
from helpers.exercise.contract import Draw


@pytest.mark.skipif(torch.__version__ < "2.13", reason="older releases refuse the lost batch, as the chapter says")
def test_cross_entropy_takes_a_lost_batch_of_one_and_gives_the_right_value():
    torch.manual_seed(0)
    logits, label = torch.randn(1, 10), torch.tensor([3])
    assert torch.equal(F.cross_entropy(logits.squeeze(), label), F.cross_entropy(logits, label))


def test_there_is_still_no_permute_in_place():
    assert hasattr(torch.Tensor, "transpose_") and not hasattr(torch.Tensor, "permute_")


@pytest.mark.parametrize("seed", range(5))
def test_random_layouts_are_not_decided_by_the_number_of_elements(seed):
    draw = Draw(torch.Generator().manual_seed(seed))
    cases = [ch06.draw_layout(draw) for _ in range(500)]
    truths = [ch06.torch_can_view(*case) for case in cases]
    same = [math.prod(size) == math.prod(new_size) for size, _, new_size in cases]
    assert 200 < sum(truths) < 400
    assert sum(s and not t for s, t in zip(same, truths, strict=True)) > 75
    assert sum(not s for s in same) > 5
    assert any(0 in size for size, _, _ in cases) and any(not size for size, _, _ in cases)
