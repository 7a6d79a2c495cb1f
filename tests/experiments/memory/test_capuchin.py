"""Capuchin: free time, memory saving per second and its updates, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.memory.interface import (
    CopyRate,
    DeviceView,
    MemoryPlan,
    Offload,
    Prefetch,
    Recompute,
    violations,
)
from experiments.memory.policies.capuchin import Capuchin, Planner
from experiments.memory.policies.capuchin.lineage_costs import LineageCosts, Rerun
from experiments.memory.simulator import Simulator
from tests.experiments.memory.steps import MS, chain, machine, make_step, plan_of

F, B = "forward", "backward"


def away_and_back(idle: float = 90 * MS):
    """A tensor of 240 MB is last read at 10 ms and next at 10 ms + ``idle``."""
    rows = [
        ("a", F, 5 * MS, [], ["t"]),
        ("b", F, 5 * MS, ["t"], ["u"]),
        ("c", F, idle, ["u"], ["v"]),
        ("d", B, 5 * MS, ["v", "t"], []),
    ]
    return make_step(rows, {"t": 240 * 10**6, "u": 8, "v": 8})


def planner_of(step, on) -> Planner:
    simulator = Simulator(step, on)
    return Planner(step, DeviceView(on, simulator.estimate, np.random.default_rng(0), simulator.split), True)


def overhead_of(planner: Planner, gaps) -> float:
    link = planner.link()
    for gap in gaps:
        link.add(gap)
    return link.overhead()


def test_free_time_is_what_is_left_between_two_swaps():
    # 12 GB/s: 20 ms each way. Evicted at 10 ms, back at 100 ms: (100 - 20) - (10 + 20).
    planner = planner_of(away_and_back(), machine(bandwidth=12e9))
    (gap,) = [gap for gap in planner.gaps if gap.tensor == 0]
    assert planner.free_time(gap) == pytest.approx(50 * MS)
    assert overhead_of(planner, [gap]) == 0


def test_swaps_that_are_hidden_alone_are_not_hidden_together():
    planner = planner_of(away_and_back(), machine(bandwidth=12e9))
    (gap,) = [gap for gap in planner.gaps if gap.tensor == 0]
    second, third = replace(gap, tensor=1), replace(gap, tensor=2)
    # Out at 30, 50 and 70 ms; the ways back begin at 80, 60 and 40 ms: the third is 30 ms short.
    assert overhead_of(planner, [gap, second]) == 0
    assert overhead_of(planner, [gap, second, third]) == pytest.approx(30 * MS)
    link = planner.link()
    for each in (gap, third, second):
        link.add(each)
    link.remove(third)
    assert link.overhead() == 0


def test_saving_per_second_falls_when_a_source_is_made_again_too():
    # T1 -> T2 -> T3 (dead) -> T4, one millisecond each: T4 takes two from T2, and three once T2 is to be made
    # again.
    size = 6
    costs = LineageCosts(
        [
            Rerun(1, size, 1.0, frozenset()),
            Rerun(2, size, 1.0, frozenset({1})),
            Rerun(4, size, 2.0, frozenset({2})),
        ]
    )
    assert costs.open[4].saving == size / 2
    costs.choose(2)
    assert costs.open[4].saving == size / 3
    assert costs.open[4].sources == {1}
    # T1 would run for itself and for T2.
    assert costs.open[1].cost == 2.0
    costs.choose(4)
    assert costs.open[1].cost == 3.0


def short_of(step, missing: int, **changes):
    on = machine(step.live_peak - missing, **changes)
    plan = plan_of(Capuchin(), step, on)
    assert violations(plan, step, on) == []
    return plan, Simulator(step, on).run(plan)


def test_a_hidden_swap_is_preferred_and_costs_nothing():
    # Memory is full in c only if something big is made there.
    rows = [
        ("a", F, 10 * MS, [], ["t"]),
        ("b", F, 30 * MS, ["t"], ["u"]),
        ("s", F, 50 * MS, ["u"], ["w"]),
        ("c", F, 50 * MS, ["w"], ["big"]),
        ("e", F, 50 * MS, ["big"], ["v"]),
        ("f", F, 50 * MS, ["v"], ["x"]),
        ("d", B, 5 * MS, ["x", "t"], []),
    ]
    step = make_step(rows, {"t": 24, "u": 1, "w": 1, "big": 30, "v": 1, "x": 1})
    plan, done = short_of(step, 10, bandwidth=1000.0)
    assert [type(move) for move in plan.moves] == [Offload, Prefetch]
    assert done.step_time == done.ideal_time


def test_on_a_slow_link_what_is_quick_to_make_is_made_again():
    step = chain(12)
    plan, done = short_of(step, 4, bandwidth=0.01)
    assert any(isinstance(move, Recompute) for move in plan.moves)
    assert not any(isinstance(move, Offload) for move in plan.moves)
    assert done.recompute_time < 12


def test_swaps_alone_where_recomputation_is_switched_off():
    step = chain(12)
    on = machine(step.live_peak - 4, bandwidth=0.5)
    plan = plan_of(Capuchin(hybrid=False), step, on)
    assert {type(move) for move in plan.moves} == {Offload, Prefetch}


def test_feedback_never_makes_a_step_slower():
    step = chain(24)
    on = machine(step.live_peak - 10, bandwidth=0.7)
    times = [Simulator(step, on).run(plan_of(Capuchin(feedback=n), step, on)).step_time for n in (0, 5, 20)]
    assert times == sorted(times, reverse=True)
    notes = plan_of(Capuchin(), step, on).notes
    assert notes["step_time"] == times[-1] <= notes["first_step_time"]


def test_enough_memory_means_no_moves():
    step = chain(8)
    assert plan_of(Capuchin(), step, machine(step.live_peak)) == MemoryPlan()
    assert CopyRate(12e9).time(240e6) == 20 * MS
