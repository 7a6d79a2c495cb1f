"""OptCNN: configurations of layers, what transfers move, elimination against brute force, and the plan it
gives.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.core.options import WorkloadOptions
from experiments.hardware import Hardware, Link
from experiments.parallel.interface import ParallelPlan, violations
from experiments.parallel.planning.operators.divisions import Configuration
from experiments.parallel.planning.operators.enumeration import MOST_ENTRIES, least
from experiments.parallel.planning.operators.one_group import parts_together
from experiments.parallel.planning.operators.operator_costs import OperatorCosts
from experiments.parallel.policies.optcnn import OptCnn
from experiments.parallel.policies.optcnn.elimination import eliminate
from experiments.parallel.simulator import simulate
from experiments.readers.base import open_file
from experiments.workloads.layers import LayerGraph
from tests.experiments.parallel.builders import chain, cluster, estimate

SLOW = Link("slow", 1.0, 0.0, True, "test")


def convolutions(*channels: int, image: int = 8, seconds: float = 8.0, batch: int = 4) -> LayerGraph:
    """3x3 convolutions in a row, as a profile writes them; the first reads 2 channels."""
    ins = (2, *channels)
    model = chain(len(channels), seconds / 2 / batch, seconds / 2 / batch, batch=batch)
    kinds = [
        f"Conv2d({i}, {o}, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))"
        for i, o in itertools.pairwise(ins)
    ]
    outputs = np.array([4.0 * batch * count * image * image for count in channels])
    weights = np.array([4.0 * 9 * i * o for i, o in itertools.pairwise(ins)])
    return replace(model, kind=tuple(kinds), output_bytes=outputs, parameter_bytes=weights)


def halved(axis: str) -> Configuration:
    """Two parts along one axis of a convolution; one part for no axis."""
    return tuple(2 if name == axis else 1 for name in ("batch", "height", "width", "channel"))


def planned(model: LayerGraph, hardware: Hardware, batch: int, **knobs: Any) -> ParallelPlan:
    plan = OptCnn(**knobs).place(model, hardware, batch, estimate(model, hardware, optimizer="sgd"))
    assert violations(plan, model, hardware) == []
    return plan


class TestAxes:
    def test_parameters_come_last_so_that_their_parts_are_neighbors(self) -> None:
        axes = OperatorCosts(estimate(convolutions(4), cluster(1, 2)), 4).axes[0]
        assert axes.names == ("batch", "height", "width", "channel")
        assert axes.sizes == (4, 8, 8, 4)

    def test_what_is_not_known_is_divided_by_samples_only(self) -> None:
        model = replace(chain(1, batch=4), kind=("LSTM(4, 4)",))
        assert OperatorCosts(estimate(model, cluster(1, 2)), 4).choices == (((1,), (2,)),)

    def test_samples_that_nobody_counted_divide_by_any_number(self) -> None:
        model = replace(chain(1), kind=("LSTM(4, 4)",), facts={"batch": None})
        assert OperatorCosts(estimate(model, cluster(1, 3)), 1).choices == (((1,), (3,)),)


class TestTransfers:
    def received(self, sent: str, read: str) -> float:
        """Bytes that the busier of two devices receives between two convolutions of 4 x 4 x 8 x 8 floats
        (4,096 bytes).
        """
        model = convolutions(4, 4)
        costs = OperatorCosts(estimate(model, cluster(1, 2)), 4)
        return float(costs.exchange(0, 1, [halved(sent)], [halved(read)]).received[0, 0])

    def test_equal_samples_move_nothing(self) -> None:
        assert self.received("batch", "batch") == 0

    def test_rows_need_the_halo_of_a_window(self) -> None:
        """One of eight rows of the neighbor."""
        assert self.received("height", "height") == 4096 / 8

    def test_output_channels_read_all_input_channels(self) -> None:
        assert self.received("channel", "channel") == 4096 / 2

    def test_samples_to_channels_move_the_other_half(self) -> None:
        assert self.received("batch", "channel") == 4096 / 2

    def test_channels_to_samples_move_a_quarter(self) -> None:
        """A device needs half the samples and has half of their channels."""
        assert self.received("channel", "batch") == 4096 / 4

    def test_an_idle_device_gets_its_part_from_the_one_that_worked(self) -> None:
        assert self.received("", "batch") == 4096 / 2


class TestElimination:
    def test_chain_of_three(self) -> None:
        """Costs (4,3), (5,2), (2,6); an edge costs 3 unless both choose alike: 1, 1, 0 at 3 + 2 + 2 + 3."""
        nodes = [np.array([4.0, 3]), np.array([5.0, 2]), np.array([2.0, 6])]
        edge = np.array([[0.0, 3], [3, 0]])
        found = eliminate(nodes, {(0, 1): edge, (1, 2): edge})
        assert (found.cost, found.choices) == (10.0, (1, 1, 0))

    def test_branches_that_join_reduce_to_one_node(self) -> None:
        """0 - 1 - 3 and 0 - 2 - 3: two node eliminations make parallel edges, one of which is eliminated."""
        edges = {pair: np.ones((2, 2)) for pair in ((0, 1), (0, 2), (1, 3), (2, 3))}
        found = eliminate([np.zeros(2)] * 4, edges)
        assert found.exact
        assert (found.cost, found.edges_eliminated, found.enumerated) == (4.0, 1, 1)

    @settings(max_examples=60)
    @given(st.data())
    def test_it_equals_brute_force_on_any_graph(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(1, 6))
        whole = st.integers(0, 20)
        sizes = [data.draw(st.integers(1, 3)) for _ in range(count)]
        nodes = [np.array([float(data.draw(whole)) for _ in range(size)]) for size in sizes]
        pairs = [pair for pair in itertools.combinations(range(count), 2) if data.draw(st.booleans())]
        edges = {
            (i, j): np.array([[float(data.draw(whole)) for _ in range(sizes[j])] for _ in range(sizes[i])])
            for i, j in pairs
        }

        def cost(chosen: tuple[int, ...]) -> float:
            own = sum(node[choice] for node, choice in zip(nodes, chosen, strict=True))
            return float(own + sum(edge[chosen[i], chosen[j]] for (i, j), edge in edges.items()))

        found = eliminate(nodes, edges)
        assert found.exact
        assert found.cost == cost(found.choices) == min(map(cost, itertools.product(*map(range, sizes))))

    def test_what_is_too_wide_is_narrowed_and_says_so(self) -> None:
        """Ten nodes of ten choices, all joined: 10^10 choices. The best, choice 3 of each, costs nothing."""
        own = np.where(np.arange(10) == 3, 0.0, 1.0)
        edges = {pair: np.zeros((10, 10)) for pair in itertools.combinations(range(10), 2)}
        assert MOST_ENTRIES < 10**10
        found = eliminate([own] * 10, edges)
        assert not found.exact
        assert (found.cost, found.choices) == (0.0, (3,) * 10)


class TestPolicy:
    def test_one_device_takes_the_serial_time(self) -> None:
        assert planned(convolutions(4, 4), cluster(1, 1), 4).notes["predicted_step_time"] == pytest.approx(16)

    def test_free_transfers_divide_all_work(self) -> None:
        plan = planned(convolutions(4, 4, 8), cluster(2, 2), 4)
        assert plan.notes["predicted_step_time"] == pytest.approx(24 / 4, rel=1e-5)
        assert plan.notes["predicted_step_time"] == pytest.approx(plan.notes["lower_bound"], rel=1e-5)

    def test_the_simulator_takes_what_was_predicted(self) -> None:
        """Nothing can overlap where the first layer alone has gradients: at its backward pass nothing else is
        left.
        """
        model = replace(convolutions(4, 4, 4), parameter_bytes=np.array([4.0 * 72, 0, 0]))
        hardware = cluster(1, 4, link=Link("slow", 1000.0, 1e-3, True, "test"))
        plan = planned(model, hardware, 4)
        found = simulate(plan, estimate(model, hardware, optimizer="sgd"))
        assert found.step_time == pytest.approx(plan.notes["predicted_step_time"])

    def test_dear_weights_are_divided_by_channels(self) -> None:
        """A wide layer on one sample's worth of activations: channels, not samples."""
        model = replace(convolutions(2, 64, image=1), output_bytes=np.array([32.0, 1024.0]))
        plan = planned(model, cluster(1, 2, link=Link("slow", 1e4, 0.0, True, "test")), 4)
        assert [sharding.axis for sharding in plan.shardings][1] == "channel 2"
        assert plan.shardings[1].parameters == 2

    @settings(max_examples=10)
    @given(
        st.lists(st.sampled_from([2, 3, 4, 8]), min_size=1, max_size=4),
        st.sampled_from([(1, 2), (1, 4), (2, 2)]),
    )
    def test_it_equals_brute_force(self, channels: list[int], shape: tuple[int, int]) -> None:
        model = convolutions(*channels, image=4)
        hardware = cluster(
            *shape, link=Link("node", 3e3, 1e-3, True, "test"), network=Link("net", 5e2, 1e-3, True, "test")
        )
        costs = OperatorCosts(estimate(model, hardware, optimizer="sgd"), 4)
        tables = costs.tables()
        best = min(
            tables.total(chosen) for chosen in itertools.product(*(range(len(c)) for c in tables.choices))
        )
        assert planned(model, hardware, 4, judge="costs").notes["predicted_step_time"] == pytest.approx(best)

    def test_a_residual_network_of_a_profile(self, shared_data: Path) -> None:
        """176 layers on 16 devices: everything eliminates to one node; better than data parallelism at 10
        Gb/s.
        """
        path = shared_data / "parallel/pipedream_profiles/resnet50.txt"
        model = open_file(path, "auto", WorkloadOptions()).reading.value
        hardware = cluster(
            4,
            2,
            memory=16 * 10**9,
            link=Link("pcie", 12e9, 5e-6, True, ""),
            network=Link("10g", 1.25e9, 2e-5, True, ""),
        )
        notes = planned(model, hardware, model.batch).notes
        assert notes["exact"]
        assert notes["enumerated"] == 1
        assert notes["lower_bound"] < notes["predicted_step_time"] < notes["data_parallel_time"]

    def test_operators_of_one_layer_may_be_divided_differently(self) -> None:
        """Half the time on 4 parts, half on 2: as if on 1 / (0.5 / 4 + 0.5 / 2) = 2.67 parts."""
        assert parts_together(iter([(0.5, 4), (0.5, 2)])) == pytest.approx(8 / 3)
        assert parts_together(iter([(0.5, 4), (0.0, 1)])) == 4


def test_nodes_without_a_choice_are_no_dimensions_of_a_table() -> None:
    """A hub with a hundred neighbors, none with a choice: arrays of numpy have at most 64 dimensions."""
    alone = [((0, name), np.full((1, 1), 1.0)) for name in range(1, 101)]
    clash = ((101, 102), np.array([[9.0, 0.5], [0.0, 9.0]]))
    chosen, cost = least([*alone, clash])
    assert cost == 100.0 and (chosen[101], chosen[102]) == (1, 0)
    assert {chosen[name] for name in range(101)} == {0}
