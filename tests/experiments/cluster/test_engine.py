"""The lab's own engine where more than gangs on whole devices happens: each case worked out on paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from experiments.cluster.interface import (
    Allocation,
    ClusterPlan,
    ClusterPolicy,
    ClusterView,
    Gang,
    Machine,
    Machines,
    Rate,
)
from experiments.cluster.simulator import ClusterSimulation, PartStartCosts, StartCosts, figures
from experiments.cluster.simulator.costs import StartCostsOf
from experiments.core.errors import Infeasible
from experiments.workloads.jobs import JobTrace
from tests.experiments.cluster.traces import faults, jobs

TWO_NODES = Machines.of_sizes([2, 2])


@dataclass
class Script:
    """A policy that answers the questions of a run from a list, then with nothing."""

    answers: list[Allocation] = field(default_factory=list)
    asked: list[float] = field(default_factory=list)

    def allocate(self, view: ClusterView) -> Allocation:
        self.asked.append(view.now)
        return self.answers.pop(0) if self.answers else Allocation()


@dataclass(frozen=True)
class Loose(ClusterPolicy):
    """Any gangs are allowed."""

    rigid = False

    def begin(self) -> Script:
        return Script()


@dataclass
class Curve:
    """Work in steps: ``speeds`` by place, each up to its part of the work; half as fast with neighbors."""

    total: float
    speeds: Sequence[tuple[float, float]]
    name: str = "curve"
    unit: str = "steps"

    def work(self, job: int) -> float:
        return self.total

    def rate(self, job: int, gang: Gang, neighbors: Sequence[Gang] = (), done: float = 0.0) -> Rate:
        until, speed = next(pair for pair in self.speeds if done < pair[0])
        return Rate(speed / (1 + len(neighbors)), until)

    def largest(self, job: int) -> int:
        return 4

    def describe(self) -> Mapping[str, Any]:
        return {}


def carry_out(
    trace: JobTrace,
    *answers: Allocation,
    machines: Machines = TWO_NODES,
    model: Any = None,
    costs: StartCostsOf = StartCosts,
    **knobs: Any,
) -> tuple[ClusterPlan, ClusterSimulation]:
    simulation = ClusterSimulation(trace, machines, Loose(**knobs), model, costs=costs)
    simulation.decider = Script([*answers])
    return simulation.run(), simulation


def starts(*gangs: Gang, **more: Any) -> Allocation:
    return Allocation(start=gangs, **more)


def ends(plan: ClusterPlan) -> list[tuple[int, float, float]]:
    return [(one.gang.job, one.start, one.end) for one in plan.executions]


def test_a_speed_that_changes_on_the_way_is_asked_for_again() -> None:
    """Ten steps, five of them at 1 a second and five at 2: 5 + 2.5 s."""
    plan, simulation = carry_out(
        jobs((0, 1, 99)), starts(Gang(0, (0,))), model=Curve(10, [(5, 1.0), (np.inf, 2.0)])
    )
    assert ends(plan) == [(0, 0, 7.5)]
    assert plan.executions[0].work == 10
    decider = simulation.decider
    assert isinstance(decider, Script) and decider.asked == [0, 7.5]


def test_neighbors_slow_one_another_while_they_are_there() -> None:
    """Alone 1 a second, with a neighbor half: job 0 does 4 by t=4, then 6 at 1/2 until 1 is done (t=24)."""
    trace = jobs((0, 1, 99), (4, 1, 99))
    half = [Gang(job, (0,), 0.5, 0.5) for job in (0, 1)]
    plan, _ = carry_out(trace, starts(half[0]), starts(half[1]), model=Curve(10, [(np.inf, 1.0)]))
    assert ends(plan) == [(0, 0, 16), (1, 4, 20)]


def test_a_larger_gang_is_faster_in_proportion_and_costs_its_resize() -> None:
    """Job 0 does 4 s of its 12 on one device, restarts for 3 s, and does the 8 left on two in 4."""
    plan, _ = carry_out(
        jobs((0, 1, 12), (4, 1, 1)), starts(Gang(0, (0,))), starts(Gang(0, (0, 1))), resize_cost=3.0
    )
    found = [row for row in ends(plan) if row[0] == 0]
    assert found == [(0, 0, 4), (0, 4, 11)]
    assert [one.ended for one in plan.executions] == ["moved", "completed"]


@pytest.mark.parametrize(
    ("devices", "suspend", "cost"),
    [((0,), False, 1.0), ((2,), False, 5.0), ((0, 1), False, 3.0), ((0,), True, 3.25), ((2,), True, 5.0)],
    ids=["same node", "another node", "another size", "suspended", "suspended, elsewhere"],
)
def test_what_a_resumption_costs_depends_on_what_happened(
    devices: tuple[int, ...], suspend: bool, cost: float
) -> None:
    """It is stopped 4 s into a start of 7 s: in memory it has the other 3 s left."""
    trace = jobs((0, 1, 12), (4, 1, 1), (6, 1, 1))
    stop = Allocation(suspend=(0,)) if suspend else Allocation(preempt=(0,))
    knobs = {"start_cost": 7.0, "restart_cost": 1.0, "resize_cost": 3.0, "migration_cost": 5.0}
    plan, _ = carry_out(
        trace, starts(Gang(0, (0,))), stop, starts(Gang(0, devices)), **knobs, suspend_cost=0.25
    )
    mine = [one for one in plan.executions if one.gang.job == 0]
    assert [one.restarting for one in mine] == [4.0, cost]


@pytest.mark.parametrize(
    ("costs", "share", "restarting"),
    [(StartCosts, 1.0, [3.0, 4.0]), (StartCosts, 0.5, [3.0, 4.0]), (PartStartCosts, 0.5, [3.0, 5.5])],
    ids=["another batch", "another share", "paced by another share"],
)
def test_a_job_that_is_changed_while_it_starts_goes_on_starting(
    costs: StartCostsOf, share: float, restarting: list[float]
) -> None:
    """After 3 s of 7 there are 4 left. At half a device, 3 s have done 1.5 s of it, and the whole one does
    the 5.5 s that are left in as long.
    """
    trace = jobs((0, 1, 12), (3, 1, 1))
    first, second = Gang(0, (0,), share), Gang(0, (0,), batch=8)
    plan, _ = carry_out(trace, starts(first), starts(second), costs=costs, start_cost=7.0)
    mine = [one for one in plan.executions if one.gang.job == 0]
    assert [one.restarting for one in mine] == restarting
    assert mine[-1].end == sum(restarting) + 12
    assert figures(plan, trace, TWO_NODES)["restarts"] == 0, "it has started once"


def test_a_start_takes_longer_on_a_part_and_next_to_another_job() -> None:
    """Starting takes 1 s of a device: 2 s on half of one, and 2.5 s where the other half computes."""
    trace = jobs((0, 1, 9), (4, 1, 9))
    costs = partial(PartStartCosts, crowding=1.25)
    answers = starts(Gang(0, (0,), 0.5, 0.5)), starts(Gang(1, (0,), 0.5, 0.5))
    plan, _ = carry_out(trace, *answers, costs=costs, start_cost=1.0)
    assert {one.gang.job: one.restarting for one in plan.executions} == {0: 2.0, 1: 2.5}


def test_a_crowded_start_that_gets_the_whole_device_has_the_rest_of_its_second_left() -> None:
    """Job 1 has done 0.2 of its second on a crowded half in 0.5 s, when it gets a device of its own."""
    trace = jobs((0, 1, 9), (4, 1, 9), (4.5, 1, 1))
    costs = partial(PartStartCosts, crowding=1.25)
    machines = Machines([Machine("a", 1)])
    halves = starts(Gang(0, (0,), 0.5, 0.5)), starts(Gang(1, (0,), 0.5, 0.5))
    alone = Allocation(preempt=(0,), start=(Gang(1, (0,)),))
    plan, _ = carry_out(trace, *halves, alone, machines=machines, costs=costs, start_cost=1.0)
    mine = [one for one in plan.executions if one.gang.job == 1]
    assert [one.restarting for one in mine[:2]] == pytest.approx([0.5, 0.8])


def test_a_checkpoint_travels_at_the_speed_of_the_slowest_node() -> None:
    """1 GB written to and read from storage at 0.5 GB/s: 4 s on top of the restart."""
    machines = Machines([Machine("a", 1, storage=0.5e9, network=9e9), Machine("b", 1, storage=2e9)])
    trace = jobs((0, 1, 12), (4, 1, 1))
    plan, _ = carry_out(
        trace, starts(Gang(0, (0,))), starts(Gang(0, (1,))), machines=machines, checkpoint_bytes=1e9
    )
    assert [one.restarting for one in plan.executions if one.gang.job == 0] == [0.0, 4.0]


@pytest.mark.parametrize(
    ("loses", "every", "end", "lost"),
    [("nothing", None, 16, 0), ("since checkpoint", 3.0, 17, 2), ("all", 3.0, 20, 8)],
)
def test_a_preemption_loses_what_the_knob_says(
    loses: str, every: float | None, end: float, lost: float
) -> None:
    """Two devices; preempted after 4 s of 12, resumed at 8: with checkpoints every 3 s one is done again."""
    trace = jobs((0, 2, 12), (4, 1, 1), (8, 1, 1))
    mine = starts(Gang(0, (0, 1)))
    plan, simulation = carry_out(
        trace, mine, Allocation(preempt=(0,)), mine, preemption_loses=loses, checkpoint_every=every
    )
    assert [row for row in ends(plan) if row[0] == 0] == [(0, 0, 4), (0, 8, end)]
    found = figures(plan, trace, TWO_NODES)
    assert (found["lost_gpu_seconds"], simulation.view.attained.done[0]) == (lost, 12)


def test_a_failed_node_takes_progress_since_the_checkpoint_with_it() -> None:
    """Node 0 fails at 7 s and is back at 9: of 7 s of progress 6 are saved; job 0 goes on on node 1."""
    trace = jobs((0, 1, 12))
    simulation = ClusterSimulation(trace, TWO_NODES, Loose(checkpoint_every=3.0, node_mtbf=1e9))
    simulation.outages = [iter([(7.0, 9.0)]), iter([])]
    simulation.decider = Script([starts(Gang(0, (0,))), starts(Gang(0, (2,)))])
    plan = simulation.run()
    assert ends(plan) == [(0, 0, 7), (0, 7, 13)]
    assert [one.ended for one in plan.executions] == ["lost", "completed"]
    assert plan.down == ((0, 7.0, 9.0),)
    found = figures(plan, trace, TWO_NODES)
    assert (found["node_failures"], found["lost_gpu_seconds"], found["migrations"]) == (1, 1, 1)
    assert faults(plan, trace, TWO_NODES, rigid=False) == []


def test_a_node_that_will_be_taken_says_so_ahead() -> None:
    simulation = ClusterSimulation(jobs((0, 1, 12)), TWO_NODES, Loose(node_mtbf=1e9, failure_notice=2.0))
    simulation.outages = [iter([(7.0, 9.0)]), iter([])]
    seen: list[tuple[float, dict[int, float], frozenset[int]]] = []

    class Leaves(Script):
        def allocate(self, view: ClusterView) -> Allocation:
            seen.append((view.now, dict(view.leaving), view.down))
            return super().allocate(view)

    simulation.decider = Leaves([starts(Gang(0, (0,))), starts(Gang(0, (2,)))])
    assert ends(simulation.run()) == [(0, 0, 5), (0, 5, 12)]
    assert seen[1:3] == [(5.0, {0: 7.0}, frozenset()), (7.0, {}, frozenset({0}))]


def test_nothing_is_given_out_on_a_node_that_is_down() -> None:
    simulation = ClusterSimulation(jobs((0, 1, 12), (8, 1, 1)), TWO_NODES, Loose(node_mtbf=1e9))
    simulation.outages = [iter([(7.0, 9.0)]), iter([])]
    plan = simulation.run()
    assert plan.unfinished == (0, 1)


def test_seconds_held_are_useful_lost_restarting_or_idle() -> None:
    trace = replace(jobs((0, 2, 12), (4, 1, 1), (8, 1, 1)), traits={"utilization": np.array([0.5, 1.0, 1.0])})
    mine = starts(Gang(0, (0, 1)))
    plan, _ = carry_out(trace, mine, Allocation(preempt=(0,)), mine, restart_cost=2.0, preemption_loses="all")
    found = figures(plan, trace, TWO_NODES)
    held = 2 * (4 + 2 + 12)
    assert (found["restart_gpu_seconds"], found["lost_gpu_seconds"]) == (4, 8)
    assert found["idle_gpu_seconds"] == 0.5 * (held - 4)
    used = held - 4 - 8 - found["idle_gpu_seconds"]
    assert found["utilization"] == pytest.approx(used / (4 * found["makespan"]))


def test_jobs_that_never_fit_end_the_run_or_are_dropped_and_counted() -> None:
    trace = jobs((0, 1, 12), (1, 5, 3))
    with pytest.raises(Infeasible, match="job 1: wants 5 GPUs, the cluster has 4: 1 are missing"):
        ClusterSimulation(trace, TWO_NODES, rigid())
    simulation = ClusterSimulation(trace, TWO_NODES, rigid(oversized="drop"))
    simulation.decider = Script([starts(Gang(0, (0,)))])
    plan = simulation.run()
    assert plan.rejected == (1,)
    assert plan.reasons[1] == "wants 5 GPUs, the cluster has 4: 1 are missing"
    found = figures(plan, trace, TWO_NODES)
    assert (found["rejected_jobs"], found["admitted_fraction"], found["unfinished_jobs"]) == (1, 0.5, 1)


def rigid(**knobs: Any) -> ClusterPolicy:
    @dataclass(frozen=True)
    class Rigid(Loose):
        rigid = True

    return Rigid(**knobs)


def test_a_window_counts_its_own_jobs_and_ends_with_them() -> None:
    trace = replace(jobs((0, 1, 50), (1, 1, 3), (2, 1, 4), (30, 1, 1)), window=(1, 3))
    plan, _ = carry_out(trace, *[starts(Gang(job, (job,))) for job in range(3)])
    found = figures(plan, trace, TWO_NODES)
    assert (found["jobs"], found["avg_jct"], found["unfinished_jobs"]) == (2, 3.5, 0)
    assert plan.unfinished == (0, 3)
