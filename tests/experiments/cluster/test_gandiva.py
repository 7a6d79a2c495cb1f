"""Gandiva: turns, pairs, moves and searches, each on a handful of jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.cluster.interface import ClusterPlan, Gang, Machines, Performance, Rate, violations
from experiments.cluster.planning.performance import FixedSpeed
from experiments.cluster.simulator import simulate
from experiments.core import registry
from experiments.workloads.jobs import JobTrace
from tests.experiments.cluster.traces import jobs

ONE_GPU = Machines.of_sizes([1])


class Packed(FixedSpeed):
    """Jobs as fast as told when they share their devices."""

    def __init__(self, trace: JobTrace, rates: Mapping[int, float]) -> None:
        super().__init__(trace)
        self.rates = rates

    def rate(self, job: int, gang: Gang, neighbors: Sequence[Gang] = (), done: float = 0.0) -> Rate:
        return Rate(self.rates[job] if neighbors else 1.0)


def run(
    trace: JobTrace, machines: Machines = ONE_GPU, performance: Performance | None = None, **knobs: Any
) -> ClusterPlan:
    performance = performance or FixedSpeed(trace)
    plan = simulate(trace, machines, registry.create("cluster", "gandiva", knobs), performance)
    rigid = not knobs.get("grow")
    assert violations(plan, trace, machines, performance, rigid=rigid) == []
    return plan


def stays(plan: ClusterPlan) -> list[tuple[int, float, float]]:
    return [(one.gang.job, one.start, one.end) for one in plan.executions]


def test_two_jobs_take_turns_on_one_gpu() -> None:
    found = stays(run(jobs((0, 1, 120), (0, 1, 120)), packing=False))
    assert found == [(0, 0, 60), (1, 61, 121), (0, 122, 182), (1, 183, 243)]


def test_rates_that_sum_to_less_than_one_undo_a_pair() -> None:
    trace = jobs((0, 1, 600), (0, 1, 600))
    together = {}
    for name, rates in (("kept", {0: 0.6, 1: 0.5}), ("undone", {0: 0.5, 1: 0.4})):
        plan = run(trace, performance=Packed(trace, rates))
        together[name] = sum(one.end - one.start for one in plan.executions if one.gang.share < 1)
    assert together["kept"] > 1000
    assert together["undone"] == pytest.approx(121), "a slice of both, and a second in which one is resumed"


def test_every_sibling_reports_a_loss_within_34_slices() -> None:
    losses = tuple((step, 1 / step) for step in range(1, 101))
    trace = jobs(*[(0, 1, 600)] * 32)
    trace = replace(trace, traits={"group": ("search",) * 32, "losses": (losses,) * 32})
    plan = run(trace, packing=False)
    first = {one.gang.job: one.end for one in reversed(list(plan.executions))}
    assert len(first) == 32
    assert max(first.values()) <= 34 * 60
    assert plan.rejected == (), "equals do not lose"


def test_a_job_of_a_search_ends_once_a_sibling_is_ahead() -> None:
    good, bad = (tuple((step, start / step) for step in range(1, 11)) for start in (1.0, 2.0))
    trace = jobs((0, 1, 600), (0, 1, 600), (0, 1, 600))
    trace = replace(trace, traits={"group": ("a", "a", "b"), "losses": (bad, good, bad)})
    plan = run(trace, packing=False)
    assert plan.rejected == (0,)
    assert "a sibling had" in plan.reasons[0]
    assert run(trace, packing=False, early_stopping=False).rejected == ()


def test_jobs_go_where_jobs_of_their_size_are() -> None:
    """The one-GPU jobs share a node, so that the four-GPU job finds one whole."""
    plan = run(jobs((0, 1, 500), (1, 2, 500), (2, 1, 500), (3, 4, 500)), Machines.of_sizes([4, 4, 4]))
    node_of = {one.gang.job: {device // 4 for device in one.gang.devices} for one in plan.executions}
    assert node_of == {0: {0}, 1: {1}, 2: {0}, 3: {2}}


def test_a_waiting_job_moves_to_devices_that_fall_free() -> None:
    """Two GPUs, three jobs: the one that shares moves to the GPU of the job that ends at 30 s."""
    plan = run(jobs((0, 1, 30), (0, 1, 300), (0, 1, 100)), Machines.of_sizes([1, 1]), packing=False)
    assert (2, 30, 130) in stays(plan)


def test_a_scattered_job_is_brought_together_when_jobs_leave() -> None:
    """Three GPUs on two nodes until the two beside them fall free; moving costs 5 s."""
    plan = run(jobs((0, 2, 100), (1, 3, 1000), (2, 3, 1000)), Machines.of_sizes([4, 4]))
    nodes = [{d // 4 for d in one.gang.devices} for one in plan.executions if one.gang.job == 2]
    assert nodes == [{0, 1}, {0}]
    assert (2, 100, 1007) in stays(plan)


class Growing(FixedSpeed):
    """Jobs that are in proportion faster on up to four devices."""

    def largest(self, job: int) -> int:
        return 4


def test_idle_devices_are_lent_and_taken_back_when_somebody_comes() -> None:
    """A job of 1,000 s has all four until one of two comes at 100 s for 50 s, then two, then four again.

    100 s are 400 of its work; 5 s are lost at each change; two devices do 90 in the 45 s left of 50, and what
    is left, 510, takes four of them 127.5 s behind 5 more.
    """
    trace = jobs((0, 1, 1000), (100, 2, 50))
    plan = run(trace, Machines.of_sizes([4]), Growing(trace), grow=True)
    assert [(one.gang.job, one.gang.size, one.start, one.end) for one in plan.executions] == [
        (0, 4, 0, 100),
        (1, 2, 100, 150),
        (0, 2, 100, 150),
        (0, 4, 150, pytest.approx(282.5)),
    ]


def test_who_cannot_grow_keeps_what_it_asked_for() -> None:
    trace = jobs((0, 1, 1000), (100, 2, 50))
    plan = run(trace, Machines.of_sizes([4]), grow=True)
    assert {(one.gang.job, one.gang.size) for one in plan.executions} == {(0, 1), (1, 2)}


def test_a_job_that_is_lent_devices_ends_no_later_than_without() -> None:
    rows = [(10 * place, 1 + place % 2, 400 + 50 * place) for place in range(12)]
    trace = jobs(*rows)
    machines, ends = Machines.of_sizes([4, 4]), {}
    for grow in (False, True):
        plan = run(trace, machines, Growing(trace), grow=grow, resize_cost=0.0, packing=False)
        ends[grow] = max(one.end for one in plan.executions)
    assert ends[True] < ends[False]


@settings(max_examples=40)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 400), st.integers(1, 4), st.integers(1, 400)), min_size=1, max_size=12
    ),
    packing=st.booleans(),
)
def test_lending_breaks_no_rule_and_every_job_ends(rows: list[tuple[int, int, int]], packing: bool) -> None:
    """``run`` asks the checker: devices, work and order."""
    trace = jobs(*sorted(rows))
    plan = run(trace, Machines.of_sizes([4, 2]), Growing(trace), grow=True, packing=packing)
    assert {one.gang.job for one in plan.executions} == set(range(len(rows)))


class TestEmptying:
    """Two nodes of four: A (2 GPUs) lies on one, B and C (1 GPU each) on the other; C leaves at 10 s."""

    trace = jobs((0, 2, 100), (0, 1, 100), (0, 1, 10), (20, 4, 10))
    machines = Machines.of_sizes([4, 4])

    def nodes_of(self, plan: ClusterPlan, job: int) -> list[int]:
        return [
            len(self.machines.by_node(one.gang.devices)) for one in plan.executions if one.gang.job == job
        ]

    def test_the_least_loaded_node_is_emptied_and_a_large_job_has_it_whole(self) -> None:
        """B moves to A's node at 10 s, for 5 s of its progress."""
        plan = run(self.trace, self.machines, empty_nodes=True)
        assert [one for one in stays(plan) if one[0] == 1] == [(1, 0, 10), (1, 10, 105)]
        assert self.nodes_of(plan, 3) == [1]
        assert (3, 20, 30) in stays(plan)

    def test_without_it_the_large_job_is_scattered(self) -> None:
        assert self.nodes_of(run(self.trace, self.machines), 3)[0] == 2

    def test_nobody_moves_where_not_all_can(self) -> None:
        """Three of four GPUs are taken on the other node, and two jobs would have to move."""
        trace = jobs((0, 3, 100), (0, 1, 100), (0, 1, 100), (0, 1, 10))
        plan = run(trace, self.machines, empty_nodes=True)
        assert plan.facts.get("migrations", 0) == 0
        assert len(plan.executions) == 4

    @settings(max_examples=60, deadline=None)
    @given(
        rows=st.lists(
            st.tuples(st.integers(0, 300), st.integers(1, 4), st.integers(1, 200)), min_size=1, max_size=12
        ),
        sizes=st.sampled_from([[4, 4], [4, 4, 4], [2, 4, 1], [8]]),
        grow=st.booleans(),
    )
    def test_plans_are_legal_and_every_job_ends(
        self, rows: list[tuple[int, int, int]], sizes: list[int], grow: bool
    ) -> None:
        plan = run(jobs(*sorted(rows)), Machines.of_sizes(sizes), empty_nodes=True, grow=grow)
        assert plan.unfinished == () == plan.rejected
