"""ElasticFlow's simulator: its published ratios, and its habits on jobs that can be followed by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from experiments.cluster.interface import ClusterPlan, ClusterPolicy, Machines, Performance, violations
from experiments.cluster.planning.performance import performance_of
from experiments.cluster.policies.elasticflow.reserving import Reserving, Wanted, give_back
from experiments.cluster.simulator import figures
from experiments.cluster.simulator.releases.elasticflow import simulate
from experiments.cluster.simulator.releases.elasticflow.overheads import overhead
from experiments.cluster.simulator.releases.tiresias.events import SlotEvents
from experiments.core import registry
from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers.base import open_file
from experiments.workloads.jobs import JobTrace
from experiments.workloads.profiles.throughput_table import Levels, ThroughputTables
from tests.experiments.cluster.open_cases import open_cases
from tests.experiments.cluster.traces import jobs

FOUR = Machines.of_sizes([4])


def policy_named(name: str, **knobs: Any) -> ClusterPolicy:
    policy = registry.create("cluster", name, {"rules": "elasticflow", **knobs})
    assert isinstance(policy, ClusterPolicy)
    return policy


def planned(trace: JobTrace, machines: Machines, name: str) -> tuple[ClusterPlan, Performance]:
    performance, policy = performance_of(trace, machines), policy_named(name)
    plan = simulate(trace, machines, policy, performance)
    assert violations(plan, trace, machines, performance, rigid=policy.rigid) == []
    return plan, performance


def ends(plan: ClusterPlan) -> Mapping[int, float]:
    return {one.gang.job: one.end for one in plan.executions if one.completed}


def with_table(trace: JobTrace, levels: Levels, *slack: float) -> JobTrace:
    """The trace with a model of these levels, as many steps as seconds, and deadlines after submission."""
    count = len(trace)
    return replace(
        trace,
        model=("m",) * count,
        deadline=trace.submit + np.array(slack),
        traits={"batch": np.full(count, 8.0), "iterations": trace.service.copy()},
        profiles=ThroughputTables("t", {"m": {8: levels}}),
    )


@pytest.mark.parametrize("case", ["ef8a-edf", "ef8a-tiresias"])
def test_the_share_of_195_jobs_that_meet_their_deadlines_on_64_t4(shared_data: Path, case: str) -> None:
    (row,) = open_cases(shared_data, case)
    folder = shared_data / "cluster"
    options = WorkloadOptions(extra=str(folder / "elasticflow/throughputs_T4"))
    trace: JobTrace = open_file(folder / row["trace"], "auto", options).reading.value
    machines = Machines.of_sizes([4] * 16, "t4-16g")
    plan, _ = planned(trace, machines, row["policy"].split()[0])
    found = figures(plan, trace, machines)
    assert found["deadline_satisfaction"] == pytest.approx(float(row["value"]), abs=5e-6)
    assert found["unfinished_jobs"] == 0


@pytest.mark.parametrize(("nodes", "printed"), [(8, 125), (16, 142)])
def test_elasticflow_itself_gives_what_its_release_gives(shared_data: Path, nodes: int, printed: int) -> None:
    """The release, run on this trace and cluster, prints 125 of 195 jobs on 32 GPUs and 142 on 64."""
    folder = shared_data / "cluster/elasticflow"
    options = WorkloadOptions(extra=str(folder / "throughputs_T4"))
    trace: JobTrace = open_file(folder / "elasticVpollux_e.csv", "auto", options).reading.value
    machines = Machines.of_sizes([4] * nodes, "t4-16g")
    plan, _ = planned(trace, machines, "elasticflow")
    assert figures(plan, trace, machines)["deadline_satisfaction"] == pytest.approx(printed / 195, abs=5e-6)


@settings(max_examples=30)
@given(
    name=st.sampled_from(["edf", "elasticflow", "tiresias"]),
    rows=st.lists(
        st.tuples(st.floats(0, 400), st.sampled_from([1, 2, 4]), st.floats(5, 300), st.floats(10, 900)),
        min_size=2,
        max_size=10,
    ),
)
@example(name="edf", rows=[(0.0, 1, 299.0, 900.0), (149.5, 1, 5.0, 10.0)])
def test_jobs_that_come_at_any_time_never_share_a_device(name: str, rows: list[tuple[Any, ...]]) -> None:
    """The authors' traces have whole seconds only. ``planned`` finds no violation."""
    rows.sort()
    trace = jobs(*((submit - rows[0][0], gpus, service) for submit, gpus, service, _ in rows))
    planned(with_table(trace, TestReserving.levels, *(slack for *_, slack in rows)), FOUR, name)


class TestReserving:
    """Four GPUs free from 0 s on, slots of 60 s; a job does 1, 1.5 and 2 steps a second on 1, 2 and 4."""

    levels: Levels = ((1, 1.0), (2, 1.5), (4, 2.0))

    def reserve(
        self, steps: float, deadline: float, free: dict[float, int], first: int | None = None
    ) -> tuple[dict[float, int], float, bool, dict[float, int]]:
        plan, left = Reserving(Wanted(steps, deadline, self.levels), free, 0.0, 60.0, 4).plan(first)
        return dict(plan.gpus), plan.ends, plan.in_time, left

    def test_one_gpu_is_enough_until_the_slot_in_which_the_job_ends(self) -> None:
        assert self.reserve(100, 300, {0: 4}) == ({0: 1}, 100, True, {0: 3, 120: 4})

    def test_with_more_gpus_only_since_the_latest_change_that_is_enough(self) -> None:
        """One GPU does 300 of 330 steps by 300 s, two do 360 since 60 s: before that one is enough.

        170 steps by 120 s take two GPUs all the time: one does 120, two since 60 s do 90.
        """
        gpus, ends, in_time, _ = self.reserve(330, 300, {0: 4, 60: 3})
        assert (gpus, ends, in_time) == ({0: 1, 60: 2}, 60 + 180, True)
        gpus, ends, in_time, _ = self.reserve(170, 120, {0: 4, 60: 3})
        assert (gpus, ends, in_time) == ({0: 2}, 60 + 54, True)

    def test_a_job_that_cannot_be_in_time_takes_all_there_is_and_goes_on(self) -> None:
        """Four GPUs do 240 of 300 steps by 120 s, and the rest takes 30 s more."""
        assert self.reserve(300, 120, {0: 4}) == ({0: 4}, 150, False, {0: 0, 180: 4})

    def test_a_larger_level_is_held_until_something_changes(self) -> None:
        """Two GPUs do 90 of 150 steps by 60 s, when one is left for the other 60."""
        gpus, ends, in_time, left = self.reserve(150, 600, {0: 4, 60: 1}, first=2)
        assert (gpus[0], gpus[60], ends, in_time) == (2, 1, 120, True)
        assert (left[0], left[60], left[120]) == (2, 0, 1)

    def test_what_is_given_back_is_as_it_was(self) -> None:
        plan, left = Reserving(Wanted(170, 120, self.levels), {0: 4, 60: 3}, 0.0, 60.0, 4).plan()
        assert give_back(left, plan) == {0: 4, 60: 3}


class TestEdf:
    """Four GPUs; a job does 1, 1.5 and 2 steps a second on 1, 2 and 4 of them."""

    levels: Levels = ((1, 1.0), (2, 1.5), (4, 2.0))

    def test_the_nearest_deadline_takes_all_that_its_table_goes_to(self) -> None:
        trace = with_table(jobs((0, 1, 240), (0, 1, 240)), self.levels, 1000, 500)
        plan, _ = planned(trace, FOUR, "edf")
        assert ends(plan) == {1: 120, 0: 240}

    def test_a_later_deadline_takes_the_level_that_is_left(self) -> None:
        trace = with_table(jobs((0, 1, 150), (0, 1, 200)), self.levels[:2], 500, 1000)
        plan, _ = planned(trace, Machines.of_sizes([3]), "edf")
        sizes = {one.gang.job: one.gang.size for one in plan.executions if one.start == 0}
        assert sizes == {0: 2, 1: 1}
        assert ends(plan) == {0: 100, 1: 100 + round(100 / 1.5 + 0.5)}

    def test_what_happens_within_a_minute_happens_together(self) -> None:
        """B and C come 10 and 30 s after A: both are looked at 60 s after it, when A has done 120 steps.

        B ends at 80 s, which is noticed at 120 s, C at 140 s, noticed at 180 s; A does its other 280 steps
        then.
        """
        trace = with_table(jobs((0, 1, 400), (10, 1, 40), (30, 1, 40)), self.levels, 900, 50, 60)
        plan, _ = planned(trace, FOUR, "edf")
        assert ends(plan) == {1: 80, 2: 140, 0: 320}

    def test_a_job_uses_no_more_gpus_than_samples_in_a_step(self) -> None:
        trace = with_table(jobs((0, 1, 100)), self.levels, 500)
        trace = replace(trace, traits={**trace.traits, "batch": np.array([2.0])})
        trace = replace(trace, profiles=ThroughputTables("t", {"m": {2: self.levels}}))
        plan, _ = planned(trace, FOUR, "edf")
        assert [one.gang.size for one in plan.executions] == [2]

    def test_without_a_table_it_says_what_is_missing(self) -> None:
        trace = replace(jobs((0, 1, 10)), deadline=np.array([20.0]))
        with pytest.raises(BadInput, match="edf under the rules of elasticflow asks how fast jobs run"):
            simulate(trace, FOUR, policy_named("edf"), performance_of(trace, FOUR))


class TestTiresias:
    def test_a_start_costs_nothing_to_a_job_that_ends_next(self) -> None:
        plan, _ = planned(jobs((0, 2, 100)), FOUR, "tiresias")
        assert ends(plan) == {0: 100}

    def test_a_start_costs_some_seconds_where_something_else_happens_first(self) -> None:
        """On 2 GPUs 2 + 2 x (1 + 1) = 6 s, once B has come."""
        plan, _ = planned(jobs((0, 2, 100), (70, 1, 10)), FOUR, "tiresias")
        assert ends(plan) == {0: 106, 1: 80}

    def test_an_end_is_noticed_a_minute_after_the_last_decision_at_the_soonest(self) -> None:
        """A has done nothing when B comes at 1 s, ends at 21 s, and B starts at 61 s."""
        plan, _ = planned(jobs((0, 4, 20), (1, 4, 30)), FOUR, "tiresias")
        assert [(one.start, one.end) for one in plan.executions] == [(0, 21), (61, 91)]


def test_what_a_restart_costs() -> None:
    assert overhead(1, 64, restart=False) == 4
    assert overhead(8, 64, restart=False) == 10
    assert overhead(8, 64, restart=True) == 37
    assert overhead(8, 256, restart=True) == 62
    assert overhead(8, 256, restart=True, cached=True) == 7


def test_events_within_a_slot_are_put_together_at_its_end() -> None:
    events = SlotEvents([(100, 0), (130, 1), (161, 2)])
    events.merge(90, 60)
    assert (events.next_time, events.pop().starts) == (150, [0, 1])
    events.merge(150, 60)
    assert events.next_time == 161  # all that is left stays where it is
