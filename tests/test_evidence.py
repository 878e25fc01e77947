"""The counters of helpers.evidence against counts worked out by hand."""

import copy
import gc
import weakref
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode

from helpers import evidence

FLOAT = 4  # bytes
GRAD_MODES = [torch.enable_grad, torch.no_grad, torch.inference_mode]


@pytest.fixture
def net():
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8))


@pytest.fixture
def x():
    return torch.randn(16, 64)


class Boom(Exception):
    pass


def explode():
    (torch.ones(3, requires_grad=True) * torch.ones(3)).exp()
    raise Boom


class TestGraph:
    def test_nodes_of_a_small_net(self, net, x):
        # Each Linear: Addmm, the transpose of its weight, and a leaf for weight and bias.
        names = evidence.graph_node_names(net(x))
        leaves = sum(count for name, count in names.items() if name.endswith("AccumulateGrad"))
        assert leaves == 4
        assert names["AddmmBackward0"] == names["TBackward0"] == 2
        assert names["ReluBackward0"] == 1
        assert evidence.graph_nodes(net(x)) == names.total() == 9

    @given(st.integers(1, 30))
    @settings(max_examples=10, deadline=None)
    def test_a_running_sum_grows_the_graph_step_by_step(self, steps):
        w = torch.ones((), requires_grad=True)
        total = torch.zeros(())
        for _ in range(steps):
            total = total + w * 2
        assert evidence.graph_nodes(total) == 2 * steps + 1  # an addition, a product; one leaf

    def test_shared_parts_count_once(self):
        w = torch.ones(2, requires_grad=True)
        h = w.exp()
        assert evidence.graph_nodes(h.sin(), [{"again": h.cos()}, h]) == 4

    def test_no_graph(self, net, x):
        with torch.no_grad():
            assert evidence.graph_nodes(net(x)) == 0
        assert evidence.graph_nodes(net(x).detach(), 3.0, None) == 0

    def test_a_deep_graph_needs_no_recursion(self):
        h = torch.ones((), requires_grad=True)
        for _ in range(5000):
            h = h + 1
        assert evidence.graph_nodes(h) == 5001


class TestStorages:
    def test_views_count_once_and_whole(self):
        a = torch.zeros(100)
        assert evidence.storage_bytes(a[:10], a.view(10, 10).t(), [a]) == 100 * FLOAT

    def test_nested_containers(self):
        class Pair(NamedTuple):
            left: object
            right: object

        @dataclass
        class Batch:
            images: torch.Tensor
            label: str = "cat"

        inside = {"a": [torch.zeros(1), (torch.zeros(2), None)], "b": Pair(torch.zeros(3), 7)}
        assert evidence.storage_bytes(inside, Batch(torch.zeros(4)), {torch.zeros(5)}) == 15 * FLOAT

    def test_modules_and_generators(self):
        norm = nn.BatchNorm1d(4)
        assert evidence.storage_bytes(norm) == 4 * 4 * FLOAT + 8  # and num_batches_tracked
        assert evidence.storage_bytes(norm.parameters()) == 2 * 4 * FLOAT

    def test_tied_weights_count_once(self):
        a, b = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
        b.weight = a.weight
        assert evidence.storage_bytes(nn.Sequential(a, b)) == 16 * FLOAT

    def test_sparse_tensors_are_passed_over(self):
        assert evidence.storage_bytes(torch.eye(3).to_sparse()) == 0

    def test_shares_storage(self):
        a = torch.arange(12.0).reshape(3, 4)
        assert evidence.shares_storage(a, a.t())
        assert evidence.shares_storage(a[0], a[2])
        assert evidence.shares_storage(a, a.detach())
        assert not evidence.shares_storage(a, a.clone())
        assert not evidence.shares_storage(a, a.t().contiguous())
        assert not evidence.shares_storage(torch.empty(0), torch.empty(0))

    def test_shares_storage_through_numpy(self):
        array = np.zeros(8, dtype=np.float32)
        assert evidence.shares_storage(torch.from_numpy(array), torch.from_numpy(array[4:]))

    def test_meta_tensors_have_no_memory_to_share(self):
        a = torch.empty(3, device="meta")
        assert evidence.shares_storage(a, a[1:])
        assert not evidence.shares_storage(a, torch.empty(3, device="meta"))

    @given(st.lists(st.integers(0, 3), min_size=1, max_size=6))
    @settings(max_examples=25, deadline=None)
    def test_any_mix_of_views_costs_its_bases(self, picks):
        bases = [torch.zeros(n + 1) for n in range(4)]
        views = [bases[n][n // 2 :].view(1, -1) for n in picks]
        assert evidence.storage_bytes(views) == sum(n + 1 for n in set(picks)) * FLOAT


class TestSavedForBackward:
    def test_linear_relu_linear(self, net, x):
        # The first Linear saves x; ReLU saves its output, which the second Linear saves again.
        expected = (16 * 64 + 16 * 32) * FLOAT
        assert evidence.saved_for_backward(lambda: net(x), net.parameters()) == expected
        assert evidence.saved_for_backward(lambda: net(x), net) == expected

    def test_parameters_count_unless_left_out(self, net, x):
        # The gradient of the hidden layer needs the second weight; x needs no gradient.
        extra = 32 * 8 * FLOAT
        without = evidence.saved_for_backward(lambda: net(x), net)
        assert evidence.saved_for_backward(lambda: net(x)) == without + extra

    def test_views_save_one_storage(self):
        a = torch.randn(10, 10, requires_grad=True)

        def products():
            h = a + 1
            return h * h, h[0] * h[1], h.t() * h.t()

        assert evidence.saved_for_backward(products) == 100 * FLOAT

    def test_a_loop_holds_one_step_at_a_time(self, net, x):
        once = evidence.saved_for_backward(lambda: net(x).sum().backward(), net)

        def loop():
            for _ in range(3):
                net(x).sum().backward()

        assert evidence.saved_for_backward(loop, net) == once
        assert once == (16 * 64 + 16 * 32) * FLOAT

    def test_keeping_the_graphs_adds_up(self, net):
        def two():
            return [net(torch.randn(16, 64)) for _ in range(2)]

        assert evidence.saved_for_backward(two, net) == 2 * (16 * 64 + 16 * 32) * FLOAT

    def test_checkpointing_saves_less(self):
        from torch.utils.checkpoint import checkpoint

        deep = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(4)])
        x = torch.randn(4, 8, requires_grad=True)
        plain = evidence.saved_for_backward(lambda: deep(x), deep)
        light = evidence.saved_for_backward(lambda: checkpoint(deep, x, use_reentrant=False), deep)
        assert plain == 5 * 4 * 8 * FLOAT  # x and four outputs
        assert light == 4 * 8 * FLOAT  # x alone

    @pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
    def test_nothing_without_grad_mode(self, net, x, mode):
        with mode():
            assert evidence.saved_for_backward(lambda: net(x)) == 0
        assert evidence.saved_for_backward(mode()(lambda: net(x))) == 0

    def test_eval_mode_saves_as_much_as_train_mode(self, net, x):
        train = evidence.saved_for_backward(lambda: net(x), net)
        assert evidence.saved_for_backward(lambda: net.eval()(x), net) == train

    def test_second_derivatives_work_under_it(self):
        a = torch.tensor(2.0, requires_grad=True)
        found = []

        def twice():
            (slope,) = torch.autograd.grad(a.exp() * a, a, create_graph=True)
            found.extend(torch.autograd.grad(slope, a))

        evidence.saved_for_backward(twice)
        assert torch.isclose(found[0], 4 * torch.tensor(2.0).exp())  # (a e^a)'' = (a + 2) e^a

    def test_gradients_stay_right(self, net, x):
        other = copy.deepcopy(net)
        evidence.saved_for_backward(lambda: net(x).sum().backward())
        other(x).sum().backward()
        for ours, theirs in zip(net.parameters(), other.parameters(), strict=True):
            assert torch.equal(ours.grad, theirs.grad)

    def test_returning_nothing_and_inplace(self):
        def nothing():
            torch.ones(5, requires_grad=True).exp().mul_(2)

        assert evidence.saved_for_backward(nothing) == 5 * FLOAT

    @given(st.integers(1, 6), st.integers(1, 8))
    @settings(max_examples=15, deadline=None)
    def test_a_chain_of_exp_saves_each_output(self, depth, size):
        def chain():
            h = torch.zeros(size, requires_grad=True)
            for _ in range(depth):
                h = h.exp()
            return h

        assert evidence.saved_for_backward(chain) == depth * size * FLOAT


class TestPeakMemory:
    def test_a_chain_that_drops_its_temporaries(self):
        def chain():
            a = torch.ones(100)
            a = a + 1  # two alive
            a = a * 2  # two alive
            return a.add_(1)  # in place: nothing new

        memory = evidence.peak_memory(chain)
        assert memory.peak == 2 * 100 * FLOAT
        assert memory.live == 100 * FLOAT
        assert memory.timeline == [
            ("ones", 400),
            ("add", 800),
            ("mul", 800),
            ("add_", 400),
            ("return", 400),
        ]

    def test_what_was_there_before_is_not_counted(self):
        a = torch.ones(100)
        assert evidence.peak_memory(lambda: a.add_(1)).peak == 0
        assert evidence.peak_memory(lambda: a.view(10, 10).t()).peak == 0
        assert evidence.peak_memory(lambda: a[:50]).live == 0

    def test_a_view_pins_the_whole_storage(self):
        memory = evidence.peak_memory(lambda: torch.ones(100)[:1])
        assert memory.live == 100 * FLOAT
        assert evidence.peak_memory(lambda: torch.ones(100)[:1].clone()).live == FLOAT

    def test_no_grad_frees_activations(self):
        net, x = nn.Sequential(*[nn.Linear(8, 8) for _ in range(6)]), torch.ones(8, 8)
        recorded = evidence.peak_memory(lambda: net(x))
        assert (recorded.peak, recorded.live) == (6 * 64 * FLOAT, 6 * 64 * FLOAT)
        with torch.no_grad():
            bare = evidence.peak_memory(lambda: net(x))
        assert (bare.peak, bare.live) == (2 * 64 * FLOAT, 64 * FLOAT)

    def test_detaching_the_output_saves_no_peak(self):
        net, x = nn.Sequential(*[nn.Linear(8, 8) for _ in range(6)]), torch.ones(8, 8)
        memory = evidence.peak_memory(lambda: net(x).detach())
        assert (memory.peak, memory.live) == (6 * 64 * FLOAT, 64 * FLOAT)

    def test_gradients_stay_alive(self):
        net, x = nn.Linear(8, 8), torch.ones(4, 8)
        memory = evidence.peak_memory(lambda: net(x).sum().backward())
        assert memory.live == evidence.storage_bytes([p.grad for p in net.parameters()])

    def test_new_tensors_from_python_data_and_resizing(self):
        assert evidence.peak_memory(lambda: torch.tensor([1.0, 2.0])).live == 2 * FLOAT
        assert evidence.peak_memory(lambda: torch.empty(0).resize_(10)).live == 10 * FLOAT
        net = nn.Linear(3, 3)
        assert evidence.peak_memory(lambda: copy.deepcopy(net)).live == 12 * FLOAT

    @pytest.mark.parametrize("mode", GRAD_MODES)
    def test_any_grad_mode(self, mode):
        with mode():
            memory = evidence.peak_memory(lambda: torch.ones(10).exp())
        assert (memory.peak, memory.live) == (20 * FLOAT, 10 * FLOAT)

    def test_results_in_containers_are_held(self):
        memory = evidence.peak_memory(lambda: {"a": [torch.ones(10), (torch.ones(5),)]})
        assert memory.live == 15 * FLOAT

    def test_returning_nothing(self):
        memory = evidence.peak_memory(lambda: None)
        assert memory == (0, 0, [("return", 0)])

    def test_a_reference_cycle_that_awaits_the_collector_is_still_alive(self):
        gc.disable()
        try:

            def cycle():
                loop = [torch.ones(10)]
                loop.append(loop)

            assert evidence.peak_memory(cycle).live == 10 * FLOAT
        finally:
            gc.enable()

    @given(st.lists(st.integers(1, 20), min_size=1, max_size=8))
    @settings(max_examples=25, deadline=None)
    def test_peak_of_a_sequence_is_its_largest_neighbours(self, sizes):
        def sequence():
            held = torch.ones(0)
            for size in sizes:
                held = torch.ones(size)
            return held

        memory = evidence.peak_memory(sequence)
        pairs = [a + b for a, b in zip([0, *sizes[:-1]], sizes, strict=True)]
        assert memory.peak == max(pairs) * FLOAT == max(now for _, now in memory.timeline)
        assert memory.live == sizes[-1] * FLOAT


class TestOperations:
    def test_op_counts(self, net, x):
        with torch.no_grad():
            ops = evidence.op_counts(lambda: net(x).sum().item())
        assert ops == Counter(addmm=2, t=2, relu=1, sum=1, _local_scalar_dense=1)

    def test_inference_mode_runs_fewer(self, net, x):
        counts = []
        for mode in GRAD_MODES:
            with mode():
                counts.append(evidence.op_counts(lambda: net(x)).total())
        assert counts[2] < counts[1] <= counts[0]

    def test_the_backward_pass_counts(self):
        w = torch.ones(3, requires_grad=True)
        assert evidence.op_counts(lambda: w.exp().sum().backward())["mul"] == 1

    @pytest.mark.parametrize(
        ("fn", "syncs"),
        [
            (lambda t: t.sum().item(), 1),
            (lambda t: float(t.sum()) + int(t[0]), 2),
            (lambda t: 1 if t.sum() > 0 else 0, 1),
            (lambda t: t[t > 0], 1),
            (lambda t: t[torch.tensor([0])], 0),
            (lambda t: torch.equal(t, t), 1),
            (lambda t: (t > 0).nonzero(), 1),
            (lambda t: torch.where(t > 0, t, 0 * t), 0),
            (lambda t: t.exp().sum().detach(), 0),
        ],
    )
    def test_host_syncs(self, fn, syncs):
        t = torch.arange(4.0)
        assert evidence.host_syncs(lambda: fn(t)) == syncs

    def test_flops_of_products(self, net, x):
        assert evidence.flops(lambda: net(x)) == 2 * 16 * (64 * 32 + 32 * 8)
        assert evidence.flops(lambda: x + x) == 0

    @pytest.mark.parametrize("mode", GRAD_MODES)
    def test_flops_of_attention(self, mode):
        q = torch.randn(1, 4, 16, 8)
        attend = nn.functional.scaled_dot_product_attention
        with mode():
            assert evidence.flops(lambda: attend(q, q, q)) == 2 * 2 * 4 * 16 * 16 * 8

    @given(*[st.integers(1, 12)] * 3)
    @settings(max_examples=15, deadline=None)
    def test_flops_of_any_product(self, n, k, m):
        a, b = torch.ones(n, k), torch.ones(k, m)
        assert evidence.flops(lambda: a @ b) == 2 * n * k * m


COUNTERS = [
    evidence.saved_for_backward,
    evidence.peak_memory,
    evidence.op_counts,
    evidence.host_syncs,
    evidence.flops,
]


@pytest.mark.parametrize("counter", COUNTERS, ids=lambda counter: counter.__name__)
class TestEveryCounter:
    def test_hooks_and_modes_are_gone_after_an_error(self, counter):
        with pytest.raises(Boom):
            counter(explode)
        assert _get_current_dispatch_mode() is None
        packed = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
            torch.ones(2, requires_grad=True).exp()
        assert len(packed) == 1  # our own hook alone, and it is on top
        assert evidence.op_counts(lambda: torch.ones(1)) == Counter(ones=1)

    def test_the_grad_mode_is_untouched(self, counter):
        with torch.no_grad():
            counter(lambda: torch.ones(2).exp())
            assert not torch.is_grad_enabled()
        assert torch.is_grad_enabled()

    def test_twice_gives_the_same(self, counter, net, x):
        assert counter(lambda: net(x)) == counter(lambda: net(x))

    def test_nothing_is_kept_alive(self, counter):
        seen = []

        def fn():
            h = torch.ones(3, requires_grad=True).exp()
            seen.append(weakref.ref(h.untyped_storage()))
            return h

        counter(fn)
        gc.collect()
        assert seen[0]() is None


class TestCountingBackend:
    @pytest.fixture(autouse=True)
    def fresh(self):
        torch.compiler.reset()
        yield
        torch.compiler.reset()

    def test_one_graph(self):
        backend = evidence.CountingBackend()
        compiled = torch.compile(lambda t: t.sin() + 1, backend=backend)
        x = torch.randn(3)
        assert torch.equal(compiled(x), x.sin() + 1)
        compiled(x)
        assert (backend.compiles, backend.calls) == (1, 2)

    def test_a_branch_on_a_tensor_breaks_the_graph(self):
        backend = evidence.CountingBackend()

        @torch.compile(backend=backend)
        def f(t):
            return t.sin() if t.sum() > 0 else t.cos()

        f(torch.ones(3))
        assert (backend.compiles, backend.calls) == (2, 2)
        f(-torch.ones(3))
        assert (backend.compiles, backend.calls) == (3, 4)

    def test_the_trap_in_the_docstring_is_still_there(self):
        backend, x = evidence.CountingBackend(), torch.ones(3)
        compiled = torch.compile(lambda t: t.cos() + 1, backend=backend)
        compiled(x)
        assert evidence.op_counts(lambda: compiled(x)) == Counter(cos=1, add=1)
        compiled(x)
        assert backend.calls == 1  # eager ever since
        torch.compiler.reset()
        compiled(x)
        assert backend.calls == 2

    def test_static_shapes_compile_each(self):
        backend = evidence.CountingBackend()
        compiled = torch.compile(lambda t: t * 2, backend=backend, dynamic=False)
        for size in (2, 3, 4, 3, 2):
            compiled(torch.ones(size))
        assert (backend.compiles, backend.calls) == (3, 5)


class TestRowDependencies:
    def test_a_net_keeps_samples_apart(self, net):
        assert torch.equal(evidence.row_dependencies(net, torch.randn(5, 64)), torch.eye(5) > 0)

    @pytest.mark.parametrize("mode", GRAD_MODES)
    def test_softmax_over_the_batch_mixes_all(self, net, mode):
        with mode():
            assert evidence.row_dependencies(lambda x: x.softmax(0), torch.randn(4, 3)).all()

    def test_batch_norm_mixes_in_train_mode_only(self):
        norm = nn.BatchNorm1d(3)
        assert evidence.row_dependencies(norm, torch.randn(4, 3)).all()
        apart = evidence.row_dependencies(norm.eval(), torch.randn(4, 3))
        assert torch.equal(apart, torch.eye(4) > 0)

    def test_view_for_transpose_is_found_out(self):
        x = torch.randn(6, 4)
        right = evidence.row_dependencies(lambda x: x.t(), x, in_dim=1)
        wrong = evidence.row_dependencies(lambda x: x.reshape(4, 6), x, in_dim=1)
        assert torch.equal(right, torch.eye(4) > 0)
        assert not torch.equal(wrong, right)

    def test_causal_order_along_time(self):
        x = torch.randn(2, 5, 3)
        table = evidence.row_dependencies(lambda x: x.cumsum(1), x, out_dim=1, in_dim=1)
        assert torch.equal(table, torch.ones(5, 5).tril() > 0)

    def test_vectors(self):
        table = evidence.row_dependencies(lambda x: x.cumsum(0), torch.randn(4))
        assert torch.equal(table, torch.ones(4, 4).tril() > 0)

    def test_rows_that_are_not_read(self):
        table = evidence.row_dependencies(lambda x: x[:2] * 1, torch.randn(3, 2))
        assert torch.equal(table, torch.eye(3)[:2] > 0)

    def test_parameters_and_input_stay_as_they_were(self, net):
        x = torch.randn(3, 64, requires_grad=True)
        evidence.row_dependencies(net, x)
        assert x.grad is None
        assert all(parameter.grad is None for parameter in net.parameters())

    def test_no_gradient_to_read(self):
        with pytest.raises(ValueError, match="detach"):
            evidence.row_dependencies(lambda x: x.detach(), torch.randn(2, 2))
        with pytest.raises(ValueError, match="int64"):
            evidence.row_dependencies(lambda x: x, torch.arange(3))

    @given(st.permutations(range(5)))
    @settings(max_examples=15, deadline=None)
    def test_a_permutation_of_the_batch_is_read_off(self, order):
        table = evidence.row_dependencies(lambda x: x[list(order)], torch.randn(5, 2))
        assert torch.equal(table, torch.eye(5)[list(order)] > 0)


class TestState:
    def test_hash_follows_parameters_and_buffers(self):
        norm, x = nn.BatchNorm1d(3), torch.randn(4, 3)
        before = evidence.state_hash(norm)
        assert evidence.state_hash(copy.deepcopy(norm)) == before
        norm.eval()(x)
        assert evidence.state_hash(norm) == before
        with torch.no_grad():
            norm.train()(x)
        assert evidence.state_hash(norm) != before

    def test_hash_sees_one_bit_and_the_dtype(self):
        net = nn.Linear(3, 3)
        before = evidence.state_hash(net)
        with torch.no_grad():
            net.bias[0] = torch.nextafter(net.bias[0], torch.tensor(9.0))
        assert evidence.state_hash(net) != before
        zeros = nn.Linear(2, 2)
        nn.init.zeros_(zeros.weight)
        nn.init.zeros_(zeros.bias)
        assert evidence.state_hash(zeros) != evidence.state_hash(copy.deepcopy(zeros).bfloat16())

    def test_hash_ignores_gradients_and_memory_layout(self):
        net = nn.Conv2d(2, 2, 3)
        before = evidence.state_hash(net)
        net(torch.ones(1, 2, 4, 4)).sum().backward()
        assert evidence.state_hash(net) == before
        assert evidence.state_hash(net.to(memory_format=torch.channels_last)) == before

    def test_training_flags(self, net):
        net[1].eval()
        assert evidence.training_flags(net) == {"": True, "0": True, "1": False, "2": True}
