"""Values as a check shows them."""

from __future__ import annotations

import torch


def brief(value: object, limit: int = 300) -> str:
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
