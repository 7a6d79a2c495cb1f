"""ElasticFlow's policy: minimum shares, admission, spare GPUs, buddies, and the guarantee."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.cluster.interface import ClusterPlan, ClusterPolicy, Machines, violations
from experiments.cluster.planning.performance import performance_of
from experiments.cluster.policies.elasticflow.shares import FreeTime, Reservation, minimum_share
from experiments.cluster.policies.elasticflow.spare import give_spare
from experiments.cluster.simulator import figures, simulate
from experiments.core import registry
from experiments.workloads.jobs import JobTrace
from experiments.workloads.profiles.throughput_table import Levels, ThroughputTables
from tests.experiments.cluster.traces import jobs

LEVELS: Levels = ((1, 1.0), (2, 1.5), (4, 2.0))
FOUR = Machines.of_sizes([4])


def policy(**knobs: Any) -> ClusterPolicy:
    made = registry.create("cluster", "elasticflow", {"slot": 1.0, **knobs})
    assert isinstance(made, ClusterPolicy)
    return made


def elastic(*rows: tuple[float, float, float], levels: Levels = LEVELS) -> JobTrace:
    """Jobs from submission, steps and deadline (none: infinity)."""
    submit, steps, deadline = (np.array(column, np.float64) for column in zip(*rows, strict=True))
    trace = jobs(*[(time, 1, 1) for time, _, _ in rows])
    return replace(
        trace,
        model=("m",) * len(rows),
        deadline=np.where(np.isinf(deadline), np.nan, deadline),
        submit=submit,
        traits={"batch": np.full(len(rows), 8.0), "iterations": steps},
        profiles=ThroughputTables("t", {"m": {8: levels}}),
    )


def planned(trace: JobTrace, machines: Machines, **knobs: Any) -> ClusterPlan:
    performance = performance_of(trace, machines)
    plan = simulate(trace, machines, policy(**knobs), performance)
    assert violations(plan, trace, machines, performance, rigid=False) == []
    return plan


def ends(plan: ClusterPlan) -> dict[int, float]:
    return {one.gang.job: one.end for one in plan.executions if one.completed}


class TestMinimumShare:
    """Card 21: four GPUs, slots of 1 s, 6 steps by 4 s: one GPU does 4 of them, two GPUs all 6."""

    def test_it_is_two_gpus_all_the_time(self) -> None:
        assert minimum_share(6.0, 4.0, LEVELS, FreeTime(0.0, 0.0, 1.0, 4)) == (Reservation(0, 4, 2, 1.5),)

    def test_two_such_jobs_fit_and_a_third_is_refused(self) -> None:
        plan = planned(elastic((0, 6, 4), (0, 6, 4), (0, 6, 4)), FOUR)
        assert plan.rejected == (2,)
        assert plan.reasons[2] == "its deadline, or one of a job admitted before, would be missed"
        assert ends(plan) == {0: 4, 1: 4}

    def test_intervals_before_the_last_that_is_needed_have_the_quota_before(self) -> None:
        """One GPU does 4 of 4.5 steps by 4 s; two do all from 1 s on, and before that it has one."""
        free = FreeTime(0.0, 0.0, 1.0, 4)
        for second in (1.0, 2.0, 3.0):
            free.cut(second)
        share = minimum_share(4.5, 4.0, LEVELS, free)
        assert share is not None
        assert [part.gpus for part in share] == [1, 2]
        assert share[-1].end == pytest.approx(3 + 0.5 / 1.5)

    def test_what_earlier_deadlines_reserve_is_not_there(self) -> None:
        free = FreeTime(0.0, 0.0, 1.0, 4)
        free.reserve((Reservation(0, 2, 3, 1.0),))
        share = minimum_share(4.0, 4.0, LEVELS, free)
        assert share == (Reservation(0, 4, 1, 1.0),)
        assert minimum_share(7.0, 4.0, LEVELS, free) is None

    def test_a_deadline_within_a_slot_counts_no_work_after_it(self) -> None:
        free = FreeTime(0.0, 0.0, 1.0, 1)
        assert minimum_share(2.5, 2.5, LEVELS, free) == (Reservation(0, 2.5, 1, 1.0),)
        assert minimum_share(2.6, 2.5, LEVELS, free) is None


class TestSpare:
    def test_jobs_without_gpus_come_first_and_the_rest_goes_where_it_costs_least(self) -> None:
        """With 1 to 2 GPUs A's 12 steps cost 4 GPU s more, B's 3 steps 1 GPU s more."""
        left = {0: 12.0, 1: 3.0, 2: 5.0}
        given = give_spare({0: 1, 1: 1, 2: 0}, dict.fromkeys(left, LEVELS), left, 4)
        assert given == {0: 1, 1: 2, 2: 1}

    def test_nothing_goes_beyond_the_level_at_which_a_job_is_fastest(self) -> None:
        assert give_spare({0: 1}, {0: LEVELS[:2]}, {0: 9.0}, 64) == {0: 2}

    def test_a_job_alone_has_all_that_makes_it_faster(self) -> None:
        assert ends(planned(elastic((0, 12, 100)), FOUR)) == {0: 6}


class TestPlacement:
    def test_holes_are_merged_for_a_job_that_would_be_scattered(self) -> None:
        """Two jobs of one GPU, each on a node of two, until one that takes a whole node comes."""
        one: Levels = ((1, 1.0),)
        trace = elastic((0, 30, 100), (0, 30, 100), (0, 5, 100), (0, 30, 100), (7, 10, 20))
        tables = ThroughputTables("t", {"m": {8: one}, "two": {8: ((2, 1.0),)}})
        trace = replace(trace, model=("m",) * 4 + ("two",), profiles=tables)
        machines = Machines.of_sizes([2, 2, 2])
        plan = planned(trace, machines)
        (gang,) = [one.gang for one in plan.executions if one.gang.job == 4]
        assert len(machines.by_node(gang.devices)) == 1

    def test_a_large_job_takes_whole_nodes_and_small_ones_share_the_fullest(self) -> None:
        machines = Machines.of_sizes([4, 4, 4])
        made = registry.create("cluster", "fifo", {"placement": "buddy"})
        plan = simulate(jobs((0, 1, 9), (0, 8, 9), (0, 2, 9), (0, 1, 9)), machines, made)  # type: ignore[arg-type]
        nodes = {one.gang.job: machines.by_node(one.gang.devices) for one in plan.executions}
        assert nodes == {0: ((0, 1),), 1: ((1, 4), (2, 4)), 2: ((0, 2),), 3: ((0, 1),)}


def test_best_effort_jobs_are_never_refused_and_get_what_is_left() -> None:
    plan = planned(elastic((0, 6, 4), (0, 6, 4), (0, 6, math.inf)), FOUR)
    assert plan.rejected == ()
    assert ends(plan)[2] == 4 + 6 / 2.0


rows = st.lists(
    st.tuples(st.integers(0, 40), st.floats(0.1, 40.0), st.floats(0.5, 60.0)), min_size=1, max_size=14
)


@settings(max_examples=60, deadline=None)
@given(rows=rows, sizes=st.sampled_from([[4], [2, 2], [3, 2, 3], [8]]), slot=st.sampled_from([0.5, 1.0, 7.0]))
def test_no_admitted_job_misses_its_deadline(
    rows: list[tuple[float, float, float]], sizes: list[int], slot: float
) -> None:
    trace = elastic(*[(submit, steps, submit + slack) for submit, steps, slack in sorted(rows)])
    machines = Machines.of_sizes(sizes)
    plan = planned(trace, machines, slot=slot)
    assert sorted([*ends(plan), *plan.rejected]) == list(range(len(trace)))
    for job, end in ends(plan).items():
        assert end <= trace.deadline[job] + 1e-6
    if len(plan.rejected) < len(trace):
        assert figures(plan, trace, machines)["deadline_admitted_satisfaction"] == pytest.approx(1.0)
