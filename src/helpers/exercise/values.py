"""Values as a check compares and shows them."""

from __future__ import annotations

import math
from typing import Any

import torch


def same(came: Any, wanted: Any, rtol: float = 1e-5, atol: float = 1e-6) -> bool:
    """Whether an answer agrees with the truth.

    Floats agree within the tolerance, and so do tensors of one shape, whatever their dtypes; NaN agrees with NaN. A
    tensor without dimensions counts as its number, a tuple as a list. Anything else is equal or is not.
    """
    if isinstance(wanted, torch.Tensor):
        return (
            isinstance(came, torch.Tensor)
            and came.shape == wanted.shape
            and came.is_complex() == wanted.is_complex()
            and _close(came.detach(), wanted.detach(), rtol, atol)
        )
    if isinstance(came, torch.Tensor):
        alone = came.dim() == 0 and not came.is_complex()
        return alone and is_number(wanted) and same(came.item(), wanted, rtol, atol)
    if is_number(wanted) and is_number(came):
        if isinstance(wanted, int) and isinstance(came, int):
            return came == wanted
        return math.isclose(came, wanted, rel_tol=rtol, abs_tol=atol) or (math.isnan(came) and math.isnan(wanted))
    if isinstance(wanted, (list, tuple)):
        alike = isinstance(came, (list, tuple)) and len(came) == len(wanted)
        return alike and all(same(a, b, rtol, atol) for a, b in zip(came, wanted, strict=True))
    if isinstance(wanted, dict):
        alike = isinstance(came, dict) and came.keys() == wanted.keys()
        return alike and all(same(came[key], value, rtol, atol) for key, value in wanted.items())
    return isinstance(came, bool) == isinstance(wanted, bool) and came == wanted


def _close(came: torch.Tensor, wanted: torch.Tensor, rtol: float, atol: float) -> bool:
    wide = torch.complex128 if wanted.is_complex() else torch.float64
    return torch.allclose(came.to(wide), wanted.to(wide), rtol=rtol, atol=atol, equal_nan=True)


def is_number(value: object) -> bool:
    """True for an int or float, not for a bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def kind_of(came: Any, wanted: Any) -> str:
    """Say that the answer is of another kind than the truth, or has another shape; an empty text where it has not."""
    if isinstance(wanted, torch.Tensor):
        if not isinstance(came, torch.Tensor):
            return "This should be a tensor."
        return "" if came.shape == wanted.shape else "The shape is wrong."
    if is_number(wanted) and not is_number(came):
        alone = isinstance(came, torch.Tensor) and came.dim() == 0
        return "" if alone else "This should be a number."
    if isinstance(wanted, (list, tuple)) and not isinstance(came, (list, tuple)):
        return "This should be a list."
    return ""


def brief(value: Any, limit: int = 300) -> str:
    """Write a value in a short form: a tensor as shape, dtype and its first values."""
    if isinstance(value, torch.Tensor):
        flat = value.detach().reshape(-1)
        if flat.numel() == 1:
            text = f"tensor {flat.tolist()[0]!r}, shape {tuple(value.shape)}"
        else:
            shown = ", ".join(f"{v:.6g}" if isinstance(v, float) else str(v) for v in flat[:6].tolist())
            dots = ", ..." if flat.numel() > 6 else ""
            text = f"tensor of shape {tuple(value.shape)}, {str(value.dtype)[6:]}: [{shown}{dots}]"
    elif isinstance(value, str):
        text = value
    elif isinstance(value, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in value):
        text = f"{type(value).__name__} of {len(value)}: " + "; ".join(brief(v, 80) for v in value[:4])
    else:
        text = repr(value)
    return text if len(text) <= limit else text[: limit - 6] + " [cut]"
