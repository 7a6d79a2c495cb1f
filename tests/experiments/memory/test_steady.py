"""Several steps in a row: copies of one step's end overlap the next one's beginning."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.core.errors import Infeasible
from experiments.memory.interface import MemoryPlan, Offload, OnHost, PlaceTensor, Prefetch, violations
from experiments.memory.policies.swap_all import SwapAll
from experiments.memory.simulator import Simulator
from tests.experiments.memory.steps import machine, make_step, plan_of
from tests.experiments.memory.test_simulator import steps


def moments():
    """The optimizer's ``m`` (4 bytes) is used by the last op only; three ops before it need 1 s each."""
    rows = [(name, "forward", 1.0, [], []) for name in ("one", "two", "three")]
    return make_step([*rows, ("adam", "optimizer", 1.0, ["m"], ["m"])], {"m": 4}, ["m"])


def test_what_leaves_at_the_end_of_a_step_leaves_beside_the_next_one():
    step, on = moments(), machine(bandwidth=2.0)
    plan = MemoryPlan((PlaceTensor(0, 0), Prefetch(1, 0), Offload(4, 0, 3)))
    assert violations(plan, step, on) == []
    once = Simulator(step, on).run(plan)
    # Back 1-3, used 3-4, out 4-6: the single step waits for its copy.
    assert (once.step_time, once.stalls["drain"], once.first) == (6, 2, None)
    # Later steps: out 0-2, so back 2-4, adam from 4 instead of 3: a second of stall, no drain.
    steady = Simulator(step, on).run(plan, iterations=3)
    assert steady.first is not None and steady.first.step_time == 4
    assert (steady.step_time, steady.stalls["transfer"], steady.stalls["drain"]) == (5, 1, 0)
    assert steady.transfers == {"out": [(0, 2)], "back": [(2, 4)], "write": [], "read": []}
    assert steady.moved_bytes["out"] == steady.moved_bytes["back"] == 4
    assert steady.late == {0: 1}
    # The copy that leaves at the end of the third step has its whole time in the fourth.
    assert [(time, change) for time, _, change in steady.log] == [(0, 4), (1, 4), (2, -4)]
    assert Simulator(step, on).steady(plan) == Simulator(step, on).run(plan, iterations=4)


def test_without_copies_at_the_end_one_step_is_enough():
    step, on = moments(), machine()
    done = Simulator(step, on).steady(MemoryPlan())
    assert done.first is None and done.step_time == done.ideal_time == 4


def test_the_host_goes_on_with_an_update_beside_the_next_step():
    rows = [
        ("forward", "forward", 2.0, ["w"], ["g"]),
        ("adam", "optimizer", 1.0, ["g", "m"], ["m"]),
        ("rest", "forward", 1.0, [], []),
    ]
    step = make_step(rows, {"w": 1, "g": 1, "m": 1}, ["w", "m"])
    plan = MemoryPlan((PlaceTensor(0, 2), Offload(1, 1, 0), OnHost(1, 1.5)))
    on = machine(bandwidth=2.0)
    assert violations(plan, step, on) == []
    single = Simulator(step, on).run(plan)
    assert (single.step_time, single.host_busy) == (4, [(2.5, 4)])
    steady = Simulator(step, on).run(plan, iterations=3)
    assert steady.step_time == 3 and steady.host_busy == [(0, 1), (2.5, 3)]


def test_a_step_says_by_how_much_each_tensor_came_late():
    rows = [
        ("make", "forward", 1.0, [], ["t"]),
        ("work", "forward", 1.0, [], []),
        ("read", "backward", 1.0, ["t"], []),
    ]
    step = make_step(rows, {"t": 3})
    estimate = Simulator(step, machine(bandwidth=3.0)).estimate(
        MemoryPlan((Offload(1, 0, 0), Prefetch(2, 0)))
    )
    assert estimate.fits and estimate.late == {0: 1} and estimate.stalls["transfer"] == 1


@settings(max_examples=150)
@given(steps(), st.sampled_from([0, 1, 3]), st.integers(1, 200), st.sampled_from([0.5, 8.0, 1e6]))
def test_a_step_that_leaves_nothing_under_way_is_repeated_exactly(step, ahead, capacity, bandwidth):
    on = machine(capacity, bandwidth)
    plan = plan_of(SwapAll(ahead=ahead), step, on)
    try:
        once, thrice = Simulator(step, on).run(plan), Simulator(step, on).run(plan, iterations=3)
    except Infeasible:
        with pytest.raises(Infeasible):
            Simulator(step, on).run(plan, iterations=3)
        return
    if not once.stalls["drain"]:
        assert thrice.step_time == once.step_time and thrice.stalls == once.stalls
        assert thrice.peak_bytes == once.peak_bytes and thrice.moved_bytes == once.moved_bytes
    assert thrice.peak_bytes <= capacity
    assert thrice.step_time == pytest.approx(thrice.ideal_time + thrice.stall_time)
