"""Tofu: what dividing a loop moves, the least bytes against brute force, recursion, and the plan."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.core.budget import Budget
from experiments.core.integers import prime_factors
from experiments.hardware import Hardware, Link
from experiments.parallel.interface import ParallelPlan, violations
from experiments.parallel.planning.meshes.layouts import WHOLE
from experiments.parallel.planning.operators.operators import operators_of
from experiments.parallel.policies.tofu import Tofu, recursive_partition
from experiments.parallel.policies.tofu.partition_n_reduce import best_loop, bytes_when_divided, kernels
from experiments.parallel.policies.tofu.recursive_partition import (
    TrainingGraph,
    recursion,
)
from experiments.parallel.simulator import simulate
from experiments.workloads.einsum import Operand, Operator
from experiments.workloads.layers import LayerGraph
from experiments.workloads.ragged import Ragged
from tests.experiments.parallel.builders import chain, cluster, estimate
from tests.experiments.parallel.test_optcnn import convolutions


def product(m: int, k: int, n: int) -> Operator:
    """(m x k) by (k x n), an element a byte."""
    return Operator(
        name="matmul",
        kind="einsum",
        layer=0,
        sizes=(("m", m), ("k", k), ("n", n)),
        output=("m", "n"),
        operands=(Operand(("m", "k"), float(m * k)), Operand(("k", "n"), float(k * n), parameter=0)),
        output_bytes=float(m * n),
    )


def planned(model: LayerGraph, hardware: Hardware, batch: int) -> ParallelPlan:
    plan = Tofu().place(model, hardware, batch, estimate(model, hardware, optimizer="sgd"))
    assert violations(plan, model, hardware) == []
    return plan


class TestPartitionAndReduce:
    def test_a_matrix_product_is_divided_where_least_moves(self) -> None:
        """(4 x 8)(8 x 2) on two workers. Rows: all of B, 16. Columns: all of A, 32. Summed loop: C is
        reduced, 8.
        """
        forward = next(kernels(product(4, 8, 2)))
        layouts = {"m": (0, 0, 0), "n": (1, 0, 1), "k": (0, 1, 0)}
        bytes_moved = {loop: bytes_when_divided(forward, loop, layouts[loop], 2).total for loop in layouts}
        assert bytes_moved == {"m": 16, "n": 32, "k": 8}

    def test_of_all_layouts_the_best_loop_is_chosen(self) -> None:
        """Alike for A, B and C by rows: rows move 16 of B; the summed loop half of A (16) and C (8)."""
        forward = next(kernels(product(4, 8, 2)))
        assert best_loop(forward, (0, 0, 0), 2) == (16, "m")
        assert best_loop(forward, (0, 1, 0), 2) == (8, "k")

    def test_a_convolution_over_rows_fetches_its_halo(self) -> None:
        """Width 3: one row beyond each side of a border, 8 floats by 4 samples by 2 channels: 2 * 8 * 4 * 2 *
        4 bytes.
        """
        operator = operators_of(convolutions(2, 2), 4)[1]
        forward = next(kernels(operator))
        fetched = bytes_when_divided(forward, "height", (2, 2, WHOLE), 2)
        assert fetched.total == 2 * 8 * 4 * 2 * 4

    def test_an_element_wise_operator_moves_nothing_where_layouts_agree(self) -> None:
        model = replace(convolutions(2, 2), kind=(convolutions(2).kind[0], "ReLU(inplace)"))
        forward = next(
            kernels(
                replace(
                    operators_of(model, 4)[1],
                    operands=(Operand(("batch", "channel", "height", "width"), 1.0, 0),),
                )
            )
        )
        assert best_loop(forward, (0, 0), 2)[0] == 0
        assert best_loop(forward, (0, 1), 2)[0] > 0

    def test_a_weight_s_gradient_is_summed_over_the_samples(self) -> None:
        """dB (8 x 2) = A' dC: divided by rows of A and C it is a partial sum of 16 bytes on each worker."""
        gradient = list(kernels(product(4, 8, 2)))[1]
        assert gradient.writes == 2
        assert bytes_when_divided(gradient, "m", (0, 0, 0), 2).total == 16


class TestSearch:
    @settings(max_examples=25)
    @given(
        st.lists(st.sampled_from([1, 2, 4, 6]), min_size=1, max_size=3),
        st.sampled_from([2, 3]),
        st.booleans(),
    )
    def test_one_split_equals_brute_force(self, channels: list[int], workers: int, joins: bool) -> None:
        model = convolutions(*channels, image=6)
        if joins and len(channels) == 3:
            model = replace(model, predecessors=Ragged.of([[], [0], [0, 1]]))
        operators = operators_of(model, 4)
        graph = TrainingGraph(operators)
        options = [graph.layouts(tensor, workers) for tensor in range(len(graph.sizes))]

        def total(layouts: tuple[int, ...]) -> float:
            return sum(
                best_loop(
                    kernel, tuple(layouts[t] if t >= 0 else None for t in graph.tensors[number]), workers
                )[0]
                for number, own in enumerate(graph.kernels)
                for kernel in own
            )

        expected = min(map(total, itertools.product(*options)))
        found = graph.split(workers)
        assert found.bytes == pytest.approx(expected)
        assert found.bytes == pytest.approx(sum(move.total for move in found.moves.values()))

    def test_each_step_costs_no_less_than_the_one_before(self) -> None:
        graph = TrainingGraph(operators_of(convolutions(8, 16, 8, image=16), 8))
        totals = [split.total for split in recursion(graph, prime_factors(8), Budget(10**9))]
        assert len(totals) == 3
        assert totals == sorted(totals)

    def test_an_operator_that_reads_many_tensors_is_taken_apart(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = replace(convolutions(4, 6, 2, image=6), predecessors=Ragged.of([[], [0], [0, 1]]))
        whole = TrainingGraph(operators_of(model, 4)).split(2)
        monkeypatch.setattr(recursive_partition, "LARGE_TABLE", 1)
        apart = TrainingGraph(operators_of(model, 4)).split(2)
        assert apart.bytes == pytest.approx(whole.bytes)

    def test_element_wise_operators_share_a_layout(self) -> None:
        kinds = (convolutions(2).kind[0], "ReLU(inplace)", "Dropout(p=0.5)")
        model = replace(convolutions(2, 2, 2), kind=kinds, parameter_bytes=np.array([144.0, 0, 0]))
        graph = TrainingGraph(operators_of(model, 4))
        assert len({tensors[0] for tensors in graph.tensors}) == 1


class TestPolicy:
    def test_one_device_takes_the_serial_time(self) -> None:
        plan = planned(convolutions(4, 4), cluster(1, 1), 4)
        assert plan.notes["predicted_step_time"] == pytest.approx(16)
        assert plan.notes["predicted_bytes"] == 0

    def test_free_transfers_divide_all_work(self) -> None:
        notes = planned(convolutions(4, 4), cluster(2, 2), 4).notes
        assert notes["predicted_step_time"] == pytest.approx(4, rel=1e-6)

    def test_the_simulator_takes_and_sends_what_was_predicted(self) -> None:
        model = convolutions(4, 8, 4)
        hardware = cluster(
            2, 2, link=Link("node", 3e3, 1e-3, True, "t"), network=Link("net", 5e2, 1e-3, True, "t")
        )
        plan = planned(model, hardware, 4)
        found = simulate(plan, estimate(model, hardware, optimizer="sgd"))
        assert found.step_time == pytest.approx(plan.notes["predicted_step_time"])
        assert found.communication_bytes * 4 == pytest.approx(plan.notes["predicted_bytes"])

    def test_every_tensor_is_divided(self) -> None:
        """A quarter of weights and activations on each of four devices."""
        model = replace(convolutions(4, 8), stash_bytes=np.ones(2))
        for sharding in planned(model, cluster(1, 4), 4).shardings:
            assert (sharding.compute, sharding.parameters, sharding.activations) == (4, 4, 4)

    def test_a_layer_of_which_nothing_is_known_is_divided_by_samples(self) -> None:
        plan = planned(chain(2, batch=4, parameter_bytes=8.0), cluster(1, 2), 4)
        assert {sharding.axis for sharding in plan.shardings} == {"batch"}
