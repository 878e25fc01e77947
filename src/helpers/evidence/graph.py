"""The autograd graph behind tensors, counted node by node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from .storage import tensors_in


def graph_node_names(*outputs: object) -> Counter[str]:
    """Count the nodes of the autograd graph behind tensors, by kind, such as `AddmmBackward0`.

    Args:
        outputs: tensors, or containers of tensors. One without a graph adds nothing.
    """
    roots = [tensor.grad_fn for tensor in tensors_in(*outputs) if tensor.grad_fn is not None]
    return Counter(node.name() for node in _walk(roots))


def graph_nodes(*outputs: object) -> int:
    """Count the nodes of the autograd graph behind tensors, each once.

    A parameter has a node of its own (`AccumulateGrad`), and so has the transpose of a weight.
    """
    return graph_node_names(*outputs).total()


def _walk(roots: list) -> Iterator:
    seen, todo = set(), list(roots)
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            yield node
            todo += [parent for parent, _ in node.next_functions if parent is not None]
