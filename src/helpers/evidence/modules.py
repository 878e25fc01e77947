"""Fingerprints of a module, to tell whether anything changed."""

from __future__ import annotations

import hashlib

import torch
from torch import nn


def state_hash(module: nn.Module) -> str:
    """Fingerprint the parameters and buffers of a module: the same again means nothing changed.

    Names, dtypes, shapes and bits count, wherever the tensors live. Gradients and plain attributes
    do not.
    """
    digest = hashlib.sha256()
    named: list[tuple[str, torch.Tensor]] = [*module.named_parameters(remove_duplicate=False)]
    named += module.named_buffers(remove_duplicate=False)
    for name, tensor in sorted(named, key=lambda pair: pair[0]):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)};".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def training_flags(module: nn.Module) -> dict[str, bool]:
    """Read the `training` flags of a module and those inside it, by name; its own name is `""`."""
    return {name: part.training for name, part in module.named_modules()}
