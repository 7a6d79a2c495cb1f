"""Alpa: the integer program and the dynamic program against enumeration, and the plans that the paper
reports.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.core.errors import Infeasible
from experiments.hardware import Hardware, Link
from experiments.parallel.interface import ParallelPlan, violations
from experiments.parallel.planning.meshes import partition as part
from experiments.parallel.planning.meshes.mesh import Mesh
from experiments.parallel.planning.meshes.mesh_plan import traffic_by_layer
from experiments.parallel.planning.meshes.partition import OperatorPartition
from experiments.parallel.policies.alpa import Alpa
from experiments.parallel.policies.alpa.choice_program import ChoiceProblem, solve
from experiments.parallel.policies.alpa.intra_op import StageProblem
from experiments.parallel.policies.alpa.stage_program import (
    StageChoice,
    Stages,
    best_stages,
    cluster_operators,
    submeshes,
    tile_devices,
)
from experiments.parallel.policies.alpa.strategies import Ways, split_seconds, strategies
from experiments.parallel.simulator import simulate
from experiments.workloads.einsum import Operator
from experiments.workloads.layers import LayerGraph
from tests.experiments.parallel.builders import chain, cluster, estimate
from tests.experiments.parallel.einsums import product
from tests.experiments.parallel.test_layouts import mesh
from tests.experiments.parallel.test_partition import gpt

Floats = np.typing.NDArray[np.float64]


class TestChoices:
    def test_two_operators_of_two_specs(self) -> None:
        """Each has a free spec, (0, 1), but moving between them costs 3; alike costs 5."""
        costs = [np.array([0.0, 5.0]), np.array([5.0, 0.0])]
        moving = np.array([[0.0, 3.0], [3.0, 0.0]])
        found = solve(ChoiceProblem(costs, {(0, 1): moving}), 1000)
        assert found is not None and (found.choices, found.cost, found.proven) == ((0, 1), 3.0, True)

    def test_memory_excludes_what_is_fast_and_large(self) -> None:
        costs, sizes = [np.array([1.0, 9.0])] * 2, [np.array([8.0, 1.0])] * 2
        found = solve(ChoiceProblem(costs, {}, sizes, 10.0), 1000)
        assert found is not None and sorted(found.choices) == [0, 1] and found.cost == 10.0
        assert solve(ChoiceProblem(costs, {}, sizes, 1.0), 1000) is None

    def test_tied_parameters_lie_alike(self) -> None:
        costs = [np.array([0.0, 1.0]), np.array([4.0, 0.0, 2.0])]
        found = solve(
            ChoiceProblem(costs, {}, alike=[(0, 1, ["rows", "whole"], ["rows", "columns", "whole"])]), 1000
        )
        assert found is not None and found.choices == (1, 2)

    @settings(max_examples=20)
    @given(st.integers(0, 10**6), st.integers(1, 5))
    def test_the_program_finds_what_enumeration_finds(self, seed: int, count: int) -> None:
        rng = np.random.default_rng(seed)
        sizes = rng.integers(1, 4, count)
        nodes = [rng.integers(0, 20, size).astype(np.float64) for size in sizes]
        edges = {
            (u, v): rng.integers(0, 9, (sizes[u], sizes[v])).astype(np.float64)
            for u, v in itertools.combinations(range(count), 2)
            if rng.random() < 0.6
        }
        memory = [rng.integers(1, 9, size).astype(np.float64) for size in sizes]
        problem = ChoiceProblem(nodes, edges, memory, 4.0 * count)
        every = [
            problem.cost(chosen)
            for chosen in itertools.product(*map(range, sizes))
            if problem.bytes(chosen) <= problem.capacity
        ]
        found = solve(problem, 10_000)
        assert (found is None) == (not every)
        if found is not None:
            assert (
                found.cost == pytest.approx(min(every)) and problem.bytes(found.choices) <= problem.capacity
            )


def stage_seconds(work: list[float], sizes: list[int]) -> Floats:
    """Of the card: work / n + log2(n) / 2."""
    count = len(work)
    table = np.full((count, count, len(sizes)), np.inf)
    for i, j in itertools.combinations_with_replacement(range(count), 2):
        for m, size in enumerate(sizes):
            table[i, j, m] = sum(work[i : j + 1]) / size + 0.5 * math.log2(size)
    return table


class TestStages:
    @pytest.mark.parametrize(
        ("micro_batches", "seconds", "stages"),
        [
            (4, 12.0, [(0, 3, 2)]),
            (8, 22.5, [(0, 2, 1), (2, 3, 1)]),
            (16, 42.5, [(0, 2, 1), (2, 3, 1)]),
        ],
    )
    def test_three_layers_on_four_devices(
        self, micro_batches: int, seconds: float, stages: list[tuple[int, int, int]]
    ) -> None:
        """Work 2, 2, 4: few micro-batches want one stage on all, many a pipeline of halves."""
        sizes = [1, 2, 4]
        table = stage_seconds([2, 2, 4], sizes)
        fits = np.ones((3, *table.shape), np.bool_)
        found = best_stages(table, fits, sizes, 4, micro_batches)
        assert found is not None and found.seconds == seconds
        assert found.stages == tuple(StageChoice(*stage) for stage in stages)

    def test_stages_with_more_behind_them_hold_more(self) -> None:
        """No stage has memory for the activations of three micro-batches: at most two stages."""
        sizes = [1, 2, 4]
        table = stage_seconds([2, 2, 2, 2], sizes)
        fits = np.ones((4, *table.shape), np.bool_)
        fits[2:] = False
        assert len(stages_of(best_stages(table, fits | True, sizes, 4, 64))) == 4
        assert len(stages_of(best_stages(table, fits, sizes, 4, 64))) == 2
        assert best_stages(table, fits & False, sizes, 4, 64) is None

    @settings(max_examples=25)
    @given(st.integers(0, 10**6), st.integers(1, 5), st.sampled_from([1, 2, 4]), st.integers(1, 9))
    def test_the_dynamic_program_finds_what_enumeration_finds(
        self, seed: int, count: int, devices: int, micro_batches: int
    ) -> None:
        rng = np.random.default_rng(seed)
        sizes = [size for _, size in submeshes(1, devices)]
        table = rng.integers(1, 30, (count, count, len(sizes))).astype(np.float64)
        table[np.tril_indices(count, -1)] = np.inf
        fits = rng.random((count, *table.shape)) < 0.8
        found = best_stages(table, fits, sizes, devices, micro_batches)
        best = min(every(table, fits, sizes, devices, micro_batches), default=math.inf)
        assert (found.seconds if found else math.inf) == best

    def test_submeshes_are_halves_of_a_node_and_whole_nodes(self) -> None:
        assert submeshes(3, 8) == [(1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (3, 8)]
        assert submeshes(1, 6) == [(1, 1), (1, 2), (1, 4), (1, 6)]
        placed = tile_devices([StageChoice(0, 1, 0), StageChoice(1, 2, 2), StageChoice(2, 3, 1)], [1, 1, 2])
        assert placed == [range(2, 3), range(0, 2), range(3, 4)]

    def test_operators_are_clustered_where_few_bytes_cross(self) -> None:
        """Six of equal work to three runs of at most three: borders where one byte crosses."""
        crossing = np.array([0, 9, 1, 9, 9, 1], np.float64)
        assert cluster_operators(np.ones(6), crossing, 3) == [2, 5, 6]
        assert cluster_operators(np.ones(3), np.ones(3), 3) == [1, 2, 3]


def placed(model: LayerGraph, hardware: Hardware, batch: int, **knobs: object) -> ParallelPlan:
    plan = Alpa(**knobs).place(model, hardware, batch, estimate(model, hardware))  # type: ignore[arg-type]
    assert violations(plan, model, hardware) == []
    return plan


def ends_of(plan: ParallelPlan) -> list[tuple[int, int, int]]:
    """First layer, last layer and devices of each stage."""
    return [(s.begin, s.end, len(plan.workers[s.workers[0]].devices)) for s in plan.stages]


def collectives(model: LayerGraph, plan: ParallelPlan, layer: str) -> tuple[list[str], list[str]]:
    """Kinds that a layer sends for each sample, forward and backward."""
    found = plan.shardings[model.layer.index(layer)]
    passes = (found.forward, found.backward)
    return tuple([c.kind for c in one if c.per == "sample"] for one in passes)  # type: ignore[return-value]


class TestPlans:
    def test_a_gpt_on_fast_links_is_divided_as_in_megatron(self) -> None:
        """One sample, so that the batch cannot be divided: heads and the feed-forward layer are, each with
        its pair of column and row, and two all-reduces of b s h values in each direction.
        """
        model = gpt(batch=1)
        plan = placed(model, cluster(1, 2, link=Link("fast", 1e9, 0.0, True, "test")), 1, micro_batches=1)
        block = plan.shardings[model.layer.index("blocks.0")]
        assert ends_of(plan) == [(0, len(model), 2)] and block.axis == "heads feedforward"
        assert collectives(model, plan, "blocks.0") == (["all_reduce"] * 2, ["all_reduce"] * 2)
        assert {c.bytes for c in block.forward} == {32 * 64 * 4.0}
        assert block.compute == pytest.approx(2)

    def test_a_large_batch_is_divided_by_samples_and_gradients_are_reduced_once(self) -> None:
        model = gpt()
        plan = placed(model, cluster(1, 2, link=Link("fast", 1e3, 0.0, True, "test")), 64, micro_batches=8)
        assert plan.shardings[model.layer.index("blocks.1")].axis == "batch"
        assert collectives(model, plan, "blocks.1") == ([], [])

    def test_slow_links_make_a_pipeline(self) -> None:
        """A byte takes as long as 100 operations: two messages for each sample are less than eight
        all-reduces.
        """
        model = gpt(batch=1)
        slow = Link("slow", 1e-2, 0.0, True, "test")
        plan = placed(model, cluster(2, 1, network=slow), 8, micro_batches=8)
        assert [devices for _, _, devices in ends_of(plan)] == [1, 1]
        assert plan.notes["predicted_step_time"] < plan.notes["one_stage_time"]

    def test_experts_are_divided_and_rows_travel_to_them(self) -> None:
        """Gradients of all experts are more than the rows: each device has two of eight experts."""
        model = gpt("moe", 4, 16)
        plan = placed(
            model,
            cluster(1, 4, link=Link("fast", 1e7, 0.0, True, "test")),
            4,
            micro_batches=1,
            pipeline=False,
        )
        forward, backward = collectives(model, plan, "blocks.1")
        assert "all_to_all" in forward and "all_to_all" in backward
        assert plan.shardings[model.layer.index("blocks.1")].parameters > 2

    def test_memory_makes_weights_be_divided(self) -> None:
        model, link = gpt(), Link("fast", 1e3, 0.0, True, "test")

        def planned(memory: int) -> tuple[ParallelPlan, float]:
            hardware = cluster(1, 2, link=link, memory=memory)
            plan = placed(model, hardware, 64, micro_batches=8, pipeline=False)
            return plan, simulate(plan, estimate(model, hardware)).peak_memory

        plan, peak = planned(10**15)
        block = model.layer.index("blocks.0")
        assert plan.shardings[block].parameters == 1
        assert plan.notes["programs"]["programs"] > 0
        divided, less = planned(int(0.7 * peak))
        assert less <= 0.7 * peak and divided.shardings[block].parameters > 1.5
        with pytest.raises(Infeasible, match="no division into stages keeps every device within its memory"):
            placed(model, cluster(1, 4, link=link, memory=1000), 64, micro_batches=8)

    def test_one_device_takes_the_serial_time(self) -> None:
        model, alone = gpt(), cluster(1, 1)
        serial = float((model.forward_seconds + model.backward_seconds).sum())
        plan = placed(model, alone, 8, micro_batches=4)
        assert plan.notes["predicted_step_time"] == pytest.approx(serial)
        assert simulate(plan, estimate(model, alone)).step_time == pytest.approx(serial)

    def test_without_the_cost_of_messages_work_is_divided_evenly(self) -> None:
        model = chain(4, batch=8)
        plan = placed(model, cluster(2, 2), 8, micro_batches=2)
        assert plan.notes["predicted_step_time"] == pytest.approx(4 * 3 * 8 / 4)

    def test_the_simulator_carries_out_what_was_predicted(self) -> None:
        """One stage with one micro-batch: nothing overlaps but gradients."""
        model = gpt(batch=1)
        hardware = cluster(1, 4, link=Link("fast", 1.0, 0.0, True, "test"))
        plan = placed(model, hardware, 1, micro_batches=1, pipeline=False)
        found = simulate(plan, estimate(model, hardware)).step_time
        assert found == pytest.approx(plan.notes["predicted_step_time"], rel=0.01)

    def test_a_division_that_is_taken_over_costs_what_its_own_program_finds_or_little_more(self) -> None:
        model = gpt()
        hardware = cluster(1, 2, link=Link("fast", 10.0, 0.0, True, "test"))
        taken, own = (
            placed(model, hardware, 8, micro_batches=4, runs=3, shared=shared).notes
            for shared in (True, False)
        )
        assert own["programs"]["reused"] == 0 < taken["programs"]["reused"]
        assert taken["programs"]["programs"] < own["programs"]["programs"]
        assert (
            own["predicted_step_time"]
            <= taken["predicted_step_time"] * (1 + 1e-5)
            <= 1.02 * own["predicted_step_time"]
        )

    def test_the_same_spec_gives_the_same_plan(self) -> None:
        model, hardware = gpt(), cluster(1, 2, link=Link("fast", 10.0, 0.0, True, "test"))
        first, second = (placed(model, hardware, 8, micro_batches=2) for _ in range(2))
        assert first.to_json() == second.to_json()

    def test_equal_operators_that_are_not_enumerated_are_optimal(self) -> None:
        """A column and a row product on two devices against all choices of both."""
        operators = [product("bd", "df", "bf"), product("bf", "fd", "bd", source=0, parameter=1)]
        two = mesh(2)
        keys = [("first",), ("second",)]
        problem = StageProblem(
            operators, range(2), keys, [6.0, 6.0], Ways(two, lambda operator, division: 1.0), 1
        )
        found = problem.solve(1.0, math.inf, 1000)
        assert found is not None
        tables = [strategies(operator, two, {}) for operator in operators]
        best = min(total(operators, chosen, two) for chosen in itertools.product(*tables))
        assert total(operators, found.partitions, two) == pytest.approx(best)
        assert found.figures.each + found.figures.once == pytest.approx(best)


def total(operators: list[Operator], chosen: Sequence[OperatorPartition], grid: Mesh) -> float:
    """Seconds of all collectives and of 6 s of work in each operator; gradients without latency."""
    sent = traffic_by_layer(operators, list(chosen), grid)[0]
    each, once = split_seconds([*sent.forward, *sent.backward], grid)
    work = sum(6.0 / part.work_parts(p.loops, grid) for p in chosen)
    return work + each + once


def stages_of(found: Stages | None) -> tuple[StageChoice, ...]:
    assert found is not None
    return found.stages


def every(
    table: Floats, fits: np.typing.NDArray[np.bool_], sizes: list[int], devices: int, micro_batches: int
) -> list[float]:
    """Seconds of all ways to cut the layers and to give the parts submeshes that fill the devices."""
    count, found = len(table), []
    for stages in range(1, count + 1):
        for inner in itertools.combinations(range(1, count), stages - 1):
            spans = list(itertools.pairwise((0, *inner, count)))
            for chosen in itertools.product(range(len(sizes)), repeat=stages):
                if sum(sizes[m] for m in chosen) != devices:
                    continue
                rows = [(begin, end - 1, m) for (begin, end), m in zip(spans, chosen, strict=True)]
                if all(fits[(stages - 1 - place, *row)] for place, row in enumerate(rows)):
                    times = [float(table[row]) for row in rows]
                    found.append(sum(times) + (micro_batches - 1) * max(times))
    return found
