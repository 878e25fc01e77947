"""Evidence that needs no clock: what PyTorch recorded, kept, ran and compiled, counted exactly.

Every function here runs a piece of code once and counts what happened, so that the answer is the
same on a busy laptop and on a quiet server. Each takes a function without arguments
(`lambda: model(x)`), or tensors, possibly nested in lists, dicts and dataclasses. Hooks and modes are
removed on the way out, also after an error.

**A trap.** Calling a compiled function (`torch.compile`) under any dispatch mode runs it eager *and
leaves it eager* until `torch.compiler.reset()` (pytorch#190286). Do not hand one to `op_counts`,
`host_syncs`, `peak_memory` or `flops`; count what it compiles with `CountingBackend` instead.
"""

from .compiling import CountingBackend
from .graph import graph_node_names, graph_nodes
from .memory import Memory, peak_memory, saved_for_backward
from .modules import state_hash, training_flags
from .operations import CountingMode, flops, host_syncs, op_counts
from .rows import row_dependencies
from .storage import shares_storage, storage_bytes, tensors_in

__all__ = [
    "CountingBackend",
    "CountingMode",
    "Memory",
    "flops",
    "graph_node_names",
    "graph_nodes",
    "host_syncs",
    "op_counts",
    "peak_memory",
    "row_dependencies",
    "saved_for_backward",
    "shares_storage",
    "state_hash",
    "storage_bytes",
    "tensors_in",
    "training_flags",
]
