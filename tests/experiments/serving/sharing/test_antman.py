"""AntMan by hand: a guaranteed step of 60 ms every 100 ms, opportunistic operators of 15 ms."""

from __future__ import annotations

import pytest

from experiments.core import registry
from experiments.serving.interface.sharing import Operator, SharedDevice, SharedModel
from experiments.serving.simulator.sharing import SharingPlan, share

DEVICE = SharedDevice(units=80, memory=16e9, bandwidth=16e9)
MODELS = [
    SharedModel("guaranteed", "real_time", (Operator(0.06),)),
    SharedModel("rest", "best_effort", (Operator(0.015),) * 1000),
]


def run(gate: bool) -> SharingPlan:
    policy = registry.create("serving", "antman_inference", {"gate": gate})
    asked = [(0.1 * step, 0) for step in range(20)]
    return share(DEVICE, MODELS, [True, True], policy.begin(DEVICE, MODELS), asked, 1.95)


def per_step(plan: SharingPlan, step: int) -> int:
    return sum(span.model == 1 and 0.1 * step <= span.start < 0.1 * (step + 1) for span in plan.spans)


def test_two_operators_fit_each_gap_and_nobody_waits() -> None:
    plan = run(gate=True)
    settled = plan.requests[3:]
    assert [per_step(plan, step) for step in range(3, 19)] == [2] * 16
    assert [one.answered - one.arrival for one in settled] == pytest.approx([0.06] * len(settled))


def test_without_the_gate_a_third_makes_the_step_last_105_ms() -> None:
    plan = run(gate=False)
    second = plan.requests[1]
    assert second.answered - plan.requests[0].answered == pytest.approx(0.105, abs=1e-9)
