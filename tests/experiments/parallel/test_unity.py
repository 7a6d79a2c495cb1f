"""Unity: what its parallel operators do to arrays, placement of branches, the joint search, and the plan."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.core.budget import Budget
from experiments.hardware import Hardware, Link
from experiments.parallel.interface import ParallelPlan, violations
from experiments.parallel.planning.operators.divisions import axes_of, configurations
from experiments.parallel.planning.operators.operator_costs import CostTables, OperatorCosts
from experiments.parallel.policies.unity import Unity, _space
from experiments.parallel.policies.unity.algebra import Alternatives
from experiments.parallel.policies.unity.graph_piece import GraphPiece
from experiments.parallel.policies.unity.joint_search import cuts, joint_search
from experiments.parallel.policies.unity.parallel_ops import (
    COMBINE,
    PARTITION,
    REDUCE,
    REPLICATE,
    ParallelOp,
    entering,
    leaving,
    simplified,
    substitutions,
)
from experiments.parallel.policies.unity.placement import OperatorBranch, place_branches
from experiments.parallel.policies.unity.search_space import JointSearchLimits, JointSearchSpace
from experiments.parallel.simulator import simulate
from experiments.workloads.layers import LayerGraph
from tests.experiments.parallel.builders import cluster, estimate
from tests.experiments.parallel.test_optcnn import convolutions
from tests.experiments.parallel.test_tofu import product

Shards = list[npt.NDArray[np.float64]]
WITHOUT_LIMIT = JointSearchLimits(alpha=1e9, budget=10**6, threshold=10, layouts=1000)


def carried_out(ops: list[ParallelOp], shards: Shards) -> Shards:
    """The parallel operators on real parts; the parts of one operator are neighbors."""
    for op in ops:
        if op.kind == PARTITION:
            shards = [part for shard in shards for part in np.split(shard, op.degree, op.axis)]
        elif op.kind == REPLICATE:
            shards = [shard for shard in shards for _ in range(op.degree)]
        else:
            groups = [shards[i : i + op.degree] for i in range(0, len(shards), op.degree)]
            shards = [np.concatenate(g, op.axis) if op.kind == COMBINE else np.sum(g, axis=0) for g in groups]
    return shards


def planned(model: LayerGraph, hardware: Hardware, batch: int, **knobs: float) -> ParallelPlan:
    plan = Unity(**knobs).place(model, hardware, batch, estimate(model, hardware, optimizer="sgd"))  # type: ignore[arg-type]
    assert violations(plan, model, hardware) == []
    return plan


class TestParallelOperators:
    def test_every_division_of_a_matrix_product_computes_the_same(self) -> None:
        """(4 x 8)(8 x 2) on up to four devices: rows, columns, and partial sums X1 W1 + X2 W2."""
        operator = product(4, 8, 2)
        axes = axes_of(operator, partial_sums=True)
        left, right = np.arange(32.0).reshape(4, 8), np.arange(16.0).reshape(8, 2)
        found = configurations(axes, 4)
        assert (
            len(found) == 9
        )  # whole; three halves; quarters of m and k (n has two columns); three pairs of halves
        for choice in found:
            xs, ws = (
                carried_out(entering(operand, axes, choice), [whole])
                for operand, whole in zip(operator.operands, (left, right), strict=True)
            )
            results = [x @ w for x, w in zip(xs, ws, strict=True)]
            whole = carried_out(leaving(operator, axes, choice)[::-1], results)
            assert len(whole) == 1
            assert (whole[0] == left @ right).all()

    def test_what_one_undoes_of_the_other_goes_away(self) -> None:
        combine, partition = ParallelOp(COMBINE, 0, 4), ParallelOp(PARTITION, 0, 4)
        assert simplified([combine, partition]) == []
        assert simplified([combine, partition._replace(degree=2)]) == [ParallelOp(COMBINE, 0, 2)]
        assert simplified([combine, partition._replace(axis=1)]) == [combine, partition._replace(axis=1)]
        assert simplified([ParallelOp(REDUCE, -1, 2), ParallelOp(REPLICATE, -1, 2)]) != []

    def test_gradients_are_in_pairs(self) -> None:
        for kind in (PARTITION, COMBINE, REPLICATE, REDUCE):
            op = ParallelOp(kind, 0, 2)
            assert op.gradient.kind != kind
            assert op.gradient.gradient == op

    def test_a_substitution_adds_takes_or_moves_one_factor(self) -> None:
        assert set(substitutions((2, 1), (2,))) == {(4, 1), (2, 2), (1, 2), (1, 1)}


class TestPlacement:
    def test_two_branches_run_side_by_side_where_that_is_faster(self) -> None:
        """4 s on one device or 2.5 s on two: in turn 5 s, side by side 4 s."""
        assert place_branches([OperatorBranch(2.5, 2.5, 2)] * 2, 2).seconds == 5
        assert place_branches([OperatorBranch(4, 4, 1)] * 2, 2) == (4, (0, 1))

    def test_what_a_branch_fetches_from_afar_counts(self) -> None:
        assert place_branches([OperatorBranch(4, 9, 1), OperatorBranch(1, 9, 1)], 2) == (5, (0, 0))
        assert place_branches([OperatorBranch(4, 9, 1), OperatorBranch(3, 4.5, 1)], 2) == (4.5, (0, 1))

    def test_three_branches_on_four_devices(self) -> None:
        """The long one on two devices next to the others, which follow each other on the other two."""
        found = place_branches([OperatorBranch(6, 6, 2), OperatorBranch(3, 3, 2), OperatorBranch(3, 3, 2)], 4)
        assert found.seconds == 6
        assert sorted(found.firsts) in ([0, 0, 2], [0, 2, 2])

    def test_the_search_finds_it_together_with_the_degrees(self) -> None:
        """One device each (4 s) side by side is faster than two devices each (2.5 s) in turn."""
        choices = ((1,), (2,))
        nodes = (np.zeros(2), np.array([4, 2.5]), np.array([4, 2.5]), np.zeros(2))
        edges = {pair: np.zeros((2, 2)) for pair in ((0, 1), (0, 2), (1, 3), (2, 3))}
        far = {pair: np.zeros(2) for pair in edges}
        space = JointSearchSpace(
            CostTables((choices,) * 4, nodes, edges), far, [[(1,), (0,)]] * 4, [1, 1, 1, 1], 2
        )
        assert cuts(space) == [0, 3]
        found = joint_search(space, WITHOUT_LIMIT)
        assert (found.seconds, found.choices[1:3], found.firsts[1:3]) == (4, [0, 0], [0, 1])
        assert joint_search(space, JointSearchLimits(1.0, 1, 10, 1)).seconds == 5


class TestSearch:
    @settings(max_examples=15)
    @given(st.lists(st.sampled_from([2, 4, 6]), min_size=1, max_size=4), st.sampled_from([1, 3, 10]))
    def test_without_limits_a_chain_equals_brute_force(self, channels: list[int], threshold: int) -> None:
        model = convolutions(*channels, image=2)
        hardware = cluster(1, 2, link=Link("node", 3e3, 1e-3, True, "test"))
        costs = OperatorCosts(estimate(model, hardware, optimizer="sgd"), 4, partial_sums=True, most=2)
        tables = costs.tables()
        best = min(map(tables.total, itertools.product(*(range(len(c)) for c in tables.choices))))
        limits = JointSearchLimits(1e9, 10**6, threshold, 1000)
        found = joint_search(
            _space(costs, tables, Alternatives.none(costs.operators)),
            limits,
        )
        assert found.seconds == pytest.approx(best)
        assert tables.total(found.choices) == pytest.approx(best)

    def test_a_piece_that_no_operator_cuts_is_searched_in_runs(self) -> None:
        """Twelve operators of which every second is read by the next but two, at a threshold of two: from 12
        s to 6 s.
        """
        count = 12
        edges = {(i, i + 1): np.array([[0.0, 1], [1, 0]]) for i in range(count - 1)}
        edges |= {(i, i + 3): np.zeros((2, 2)) for i in range(0, count - 3, 2)}
        nodes = tuple(np.array([1.0, 0.5]) for _ in range(count))
        tables = CostTables((((1,), (2,)),) * count, nodes, edges)
        space = JointSearchSpace(
            tables, {pair: np.zeros(2) for pair in edges}, [[(1,), (0,)]] * count, [0] * count, 2
        )
        assert cuts(space) == [0, count - 1]
        found = joint_search(space, JointSearchLimits(1.5, 100, 2, 2))
        assert found.seconds == pytest.approx(tables.total(found.choices))
        assert (found.seconds, set(found.choices)) == (6, {1})

    def test_a_run_touches_its_own_operators_and_their_neighbors(self) -> None:
        """3 reads 2 and is read by 4, which 5 and 7 read; the cuts 0 and 11 have no share."""
        count, rng = 12, np.random.default_rng(0)
        pairs = [(i, i + 1) for i in range(count - 1)] + [(i, i + 3) for i in range(0, count - 3, 2)]
        edges = {pair: rng.random((2, 2)) for pair in pairs}
        nodes = tuple(rng.random(2) for _ in range(count))
        tables = CostTables((((1,), (2,)),) * count, nodes, edges)
        far = {pair: np.zeros(2) for pair in edges}
        space = JointSearchSpace(tables, far, [[(1,), (0,)]] * count, [0] * count, 2)
        piece = GraphPiece(space, 0, count - 1, Budget(1))
        before = dict.fromkeys(range(count), 0)
        after = before | {3: 1, 4: 1}
        changed = {n for n in piece.inside if piece.share(n, before) != piece.share(n, after)}
        assert piece.touched_by((3, 4)) == changed == {2, 3, 4, 5, 7}


class TestPolicy:
    def test_one_device_takes_the_serial_time(self) -> None:
        assert planned(convolutions(4, 4), cluster(1, 1), 4).notes["predicted_step_time"] == pytest.approx(16)

    def test_free_transfers_divide_all_work(self) -> None:
        notes = planned(convolutions(4, 4), cluster(2, 2), 4).notes
        assert notes["predicted_step_time"] == pytest.approx(4, rel=1e-5)

    def test_a_larger_budget_is_never_worse(self) -> None:
        model = convolutions(4, 8, 16, 8, image=4)
        hardware = cluster(
            2, 2, link=Link("node", 3e4, 1e-3, True, "t"), network=Link("net", 5e3, 1e-3, True, "t")
        )
        times = [planned(model, hardware, 4, budget=b).notes["predicted_step_time"] for b in (1, 5, 50)]
        assert times == sorted(times, reverse=True)
        assert times[-1] < planned(model, hardware, 4).notes["data_parallel_time"]

    def test_partial_sums_are_added_up_in_the_simulated_step(self) -> None:
        """Many channels in, few out, one sample: the loop that is summed over is divided; the simulator takes
        as long.
        """
        model = convolutions(64, 2, image=2, batch=1)
        hardware = cluster(1, 2, link=Link("node", 2e3, 0.0, True, "t"))
        plan = planned(model, hardware, 1, alpha=10.0, layouts=100)
        assert "channel.in 2" in plan.shardings[1].axis
        found = simulate(plan, estimate(model, hardware, optimizer="sgd"))
        assert found.step_time <= plan.notes["predicted_step_time"] * (1 + 1e-9)
