"""What no plan that only swaps can beat."""

from __future__ import annotations

import pytest

from experiments.core import registry
from experiments.memory.experiment.bound import swapping_bound
from experiments.memory.simulator import Simulator
from tests.experiments.memory.steps import machine, make_step, plan_of


def step():
    """x (6 bytes) is made in the first second and used in the last; big (8) lives in between,
    beside w (2).
    """
    return make_step(
        [
            ("make", "forward", 1.0, [], ["x"]),
            ("big", "forward", 1.0, ["w"], ["big"]),
            ("use", "backward", 1.0, ["x", "w"], []),
        ],
        {"x": 6, "big": 8, "w": 2},
        persistent=["w"],
    )


def test_the_excess_must_pass_the_link_before_and_after_the_fullest_op():
    # 16 bytes of 12: 4 of x are away while big runs. At 1 byte/s they need 4 s out, where 1 s is there, and 4
    # s back.
    found = swapping_bound(step(), machine(12, bandwidth=1.0))["swapping_bound"]
    assert (found["excess_bytes"], found["op"], found["step_time"]) == (4, 1, 8.0)
    assert found["ideal_share"] == 3.0 / 8.0
    assert swapping_bound(step(), machine(12, bandwidth=100.0))["swapping_bound"]["step_time"] == 3.0
    assert swapping_bound(step(), machine(16)) == {}


@pytest.mark.parametrize("name", ["swap_all", "g10", "capuchin", "vdnn-all"])
@pytest.mark.parametrize("bandwidth", [1.0, 3.0])
def test_no_swapping_plan_is_faster(name, bandwidth):
    on = machine(12, bandwidth=bandwidth)
    plan = plan_of(registry.create("memory", name, {}), step(), on)
    if all(move.action in ("offload", "prefetch", "wait") for move in plan.moves):
        found = Simulator(step(), on).steady(plan)
        assert found.step_time >= swapping_bound(step(), on)["swapping_bound"]["step_time"]
