"""Which rows of an input each row of an output depends on."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def row_dependencies(fn: Callable[[Tensor], Tensor], x: Tensor, out_dim: int = 0, in_dim: int = 0) -> Tensor:
    """Find which rows of the input each row of the output depends on, from gradients at `x`.

    A net that treats the samples of a batch apart gives an identity matrix, however it is written.
    `fn` is called once; gradients of its parameters stay untouched.

    Args:
        fn: maps one tensor to one tensor. Put a model in eval mode first: batch norm mixes rows by
            design.
        x: a floating-point input. Random values are best: a unit that a ReLU switches off has no
            gradient.
        out_dim: the dimension of the output whose slices are its rows.
        in_dim: the dimension of `x` whose slices are its rows.

    Returns:
        a bool tensor of shape [rows of the output, rows of x].

    Raises:
        ValueError: there is no gradient to read: `x` is not floating point, or `fn` cuts the graph.
    """
    if not x.is_floating_point():
        raise ValueError(f"x is {x.dtype}: gradients need a floating-point input")
    with torch.inference_mode(False), torch.enable_grad():
        x = x.detach().clone().requires_grad_()
        output = fn(x)
        if not output.requires_grad:
            raise ValueError("the output has no graph: does fn detach, or run under no_grad?")
        # Random weights, because a plain sum can cancel: the sum of a softmax is constant.
        generator = torch.Generator().manual_seed(0)
        weights = torch.rand(output.shape, generator=generator).to(output) + 0.5
        weighted = (output * weights).movedim(out_dim, 0)
        rows = [_rows_with_gradient(row.sum(), x, in_dim) for row in weighted]
    return torch.stack(rows)


def _rows_with_gradient(value: Tensor, x: Tensor, in_dim: int) -> Tensor:
    (gradient,) = torch.autograd.grad(value, x, retain_graph=True, materialize_grads=True)
    return (gradient != 0).movedim(in_dim, 0).reshape(x.shape[in_dim], -1).any(1).cpu()
