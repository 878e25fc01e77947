"""What differs from CUDA on a stand-in device."""

from __future__ import annotations

# What differs from CUDA. Each line is demonstrated by a test of the same name.
_GAPS = {
    "toy": {
        "Module.to()": "replaces the parameters, where CUDA keeps them: an optimizer made before "
        "the move updates nothing, unless set_swap_module_params_on_conversion(True)",
        "random numbers": "come from the CPU's generator, and a torch.Generator of its own is refused",
        "LSTM and GRU": "raise NotImplementedError, RNN works",
        "pin_memory()": "raises NotImplementedError",
        "autocast": "raises AssertionError",
        "waiting": "is never needed: torch.accelerator.synchronize() returns at once",
        "memory statistics": "are missing",
        "data_ptr()": "is 0; untyped_storage().data_ptr() tells memories apart",
        "sparse tensors": "lose their layout, and their products raise RuntimeError",
        "torch.load(map_location=...)": "raises; load to the CPU and move",
        "lengths on the CPU": "as in ctc_loss are refused",
    },
    "lazy": {
        "Module.to()": "replaces the parameters, as on toy",
        "mixed devices": "are refused in other words: Input tensor is not a lazy tensor",
        "torch.where": "mixes devices silently",
        "indexing": "of a CPU tensor by indices of the device passes, which CUDA refuses",
        "torch.cat": "of mixed devices raises an internal assertion",
        "copy_() to the CPU": "raises an internal assertion; use .cpu()",
        "BatchNorm": "does not update its running statistics",
        "recurrent layers": "raise RuntimeError",
        "torch.save": "raises RuntimeError; move to the CPU first",
        "storage": "cannot be asked for, data_ptr() is 0, and strides are always contiguous",
        "torch.accelerator": "does not know it",
        "transfers() in inference mode": "raises RuntimeError; no_grad works",
    },
}


def gaps(kind: str) -> list[tuple[str, str]]:
    """List what differs from CUDA on a device of this kind: (what, what happens). Empty for hardware."""
    return list(_GAPS.get(kind, {}).items())
