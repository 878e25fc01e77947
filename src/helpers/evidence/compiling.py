"""What `torch.compile` compiled, counted without a compiler."""

from __future__ import annotations


class CountingBackend:
    """A backend for `torch.compile` that counts, and runs each graph as plain eager code.

    It needs no C++ compiler and takes milliseconds, yet shows every graph break and every
    recompilation.

        backend = CountingBackend()
        compiled = torch.compile(f, backend=backend)
        compiled(x); backend.compiles

    Two compilations of one function count towards the same recompile limit;
    `torch.compiler.reset()` first starts afresh. Never call the compiled function inside
    `op_counts` or another dispatch mode: it would run eager, and stay eager until such a reset.

    compiles: graphs compiled so far. One call that compiles several has graph breaks.
    calls: how often compiled graphs ran so far.
    """

    def __init__(self) -> None:
        self.compiles = 0
        self.calls = 0

    def __call__(self, graph_module, example_inputs):
        self.compiles += 1

        def run(*args):
            self.calls += 1
            return graph_module.forward(*args)

        return run
