"""Plans for another step than the given one: checked, simulated and estimated in the plan's order of ops."""

from __future__ import annotations

import pytest

from experiments.core.errors import BadInput
from experiments.memory.interface import MemoryPlan, Offload, Prefetch, violations
from experiments.memory.simulator import Simulator
from tests.experiments.memory.steps import machine, make_step


def two_branches():
    """Two branches from ``x``, each with a large intermediate: one after the other they need less than
    interleaved.
    """
    rows = [
        ("start", "forward", 1.0, [], ["x"]),
        ("left", "forward", 1.0, ["x"], ["l"]),
        ("right", "forward", 2.0, ["x"], ["r"]),
        ("left_end", "forward", 1.0, ["l"], ["a"]),
        ("right_end", "forward", 1.0, ["r"], ["b"]),
        ("join", "forward", 1.0, ["a", "b"], []),
    ]
    return make_step(rows, {"x": 1, "l": 10, "r": 10, "a": 1, "b": 1})


def test_moves_name_the_ops_of_the_reordered_step():
    step, on = two_branches(), machine(bandwidth=10.0)
    assert Simulator(step, on).run(MemoryPlan()).peak_bytes == 1 + 10 + 10
    order = (0, 1, 3, 2, 4, 5)
    done = Simulator(step, on).run(MemoryPlan(order=order))
    assert (done.peak_bytes, done.step_time) == (1 + 1 + 10, 7)
    # In this order the third op is left_end: a leaves after it, while right runs, and comes back for join.
    plan = MemoryPlan((Offload(3, 3, 2), Prefetch(5, 3)), order=order)
    assert violations(plan, step, on) == []
    assert Simulator(step, on).run(plan).transfers["out"] == [(3, 3.1)]
    assert violations(MemoryPlan(plan.moves), step, on) == [
        "offload before op 3: tensor 3 (a) is not yet produced",
        "prefetch before op 5: tensor 3 (a) is device, not on a tier",
    ]


def test_an_order_that_breaks_a_dependency_is_a_violation_and_never_simulated():
    step, on = two_branches(), machine()
    plan = MemoryPlan(order=(0, 3, 1, 2, 4, 5))
    assert "passes a write" in violations(plan, step, on)[0]
    with pytest.raises(BadInput, match="passes a write"):
        Simulator(step, on).run(plan)


def test_one_simulator_tries_plans_for_several_steps():
    step, on = two_branches(), machine()
    simulator = Simulator(step, on)
    orders = ((), (0, 1, 3, 2, 4, 5), (0, 2, 4, 1, 3, 5), ())
    assert [simulator.estimate(MemoryPlan(order=order)).peak_memory for order in orders] == [21, 12, 12, 21]


def test_a_split_step_is_cut_once():
    step, on = two_branches(), machine()
    split = Simulator(step, on).run(MemoryPlan(splits=2))
    assert split.peak_bytes < 21 and split.ideal_time > 0
