"""What holds of every policy that recomputes, on random steps and on real ones."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from experiments.core import registry
from experiments.core.errors import Infeasible
from experiments.core.options import WorkloadOptions
from experiments.memory.interface import MemoryPlan, violations
from experiments.memory.simulator import Simulator
from experiments.readers import g10
from tests.experiments.memory.steps import machine, plan_of
from tests.experiments.memory.test_simulator import steps

POLICIES = [
    ("capuchin", {}),
    ("checkmate", {"groups": 4}),
    ("checkmate", {"groups": 4, "variant": "rounding"}),
    ("checkpoint", {"variant": "optimal"}),
    ("checkpoint", {"variant": "recursive"}),
    ("checkpoint", {"variant": "search", "candidates": 3}),
    ("dtr", {"limit": 20.0}),
    ("dtr", {"heuristic": "full", "limit": 20.0}),
    ("dtr", {"unreferenced": "leave", "limit": 20.0}),
    ("selective_recompute", {"select": "ratio"}),
    ("superneurons", {}),
    ("torch_knapsack", {}),
]
#: Those that do nothing where the step fits; the other variants are the same on every device.
LOOKS_AT_CAPACITY = [row for row in POLICIES if row[0] != "checkpoint" or row[1] == {"variant": "optimal"}]


def planned(name, knobs, step, on) -> MemoryPlan | None:
    try:
        return plan_of(registry.create("memory", name, knobs), step, on)
    except Infeasible as told:
        assert told.missing is None or told.missing > 0
        return None


@pytest.mark.parametrize(("name", "knobs"), POLICIES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(step=steps(), share=st.sampled_from([0.4, 0.7, 0.9, 1.0]), bandwidth=st.sampled_from([8.0, 1e6]))
def test_plans_are_legal_repeatable_and_stay_within_the_device(name, knobs, step, share, bandwidth):
    on = machine(max(int(step.live_peak * share), int(step.op_need.max())), bandwidth)
    plan = planned(name, knobs, step, on)
    if plan is None:
        return
    assert planned(name, knobs, step, on) == plan
    assert violations(plan, step, on) == []
    try:
        done = Simulator(step, on).run(plan)
    except Infeasible:
        return
    assert int(step.op_need.max()) <= done.peak_bytes <= on.capacity
    assert done.step_time >= done.ideal_time
    assert done.step_time == pytest.approx(done.ideal_time + done.stall_time + done.recompute_time, rel=1e-9)
    assert sum(change for _, _, change in done.log) == step.persistent_bytes


@pytest.mark.parametrize(("name", "knobs"), LOOKS_AT_CAPACITY)
@settings(max_examples=10)
@given(step=steps())
def test_nothing_is_done_where_everything_fits(name, knobs, step):
    assert planned(name, knobs, step, machine(step.live_peak)) == MemoryPlan()


@pytest.mark.parametrize(("name", "knobs"), [row for row in POLICIES if row[0] != "checkmate"])
def test_a_real_step_is_trained_in_three_quarters_of_its_activations(shared_data, name, knobs):
    data = gzip.decompress((shared_data / "memory" / "g10" / "VIT_256.json.gz").read_bytes())
    step = g10.READER.read(data, "VIT_256", WorkloadOptions()).value
    room = step.persistent_bytes + (step.live_peak - step.persistent_bytes) * 3 // 4
    on = machine(room, 16e9)
    plan = planned(name, knobs, step, on)
    assert plan is not None and plan.moves
    assert violations(plan, step, on) == []
    done = Simulator(step, on).run(plan)
    assert done.peak_bytes <= room and done.step_time < 1.5 * done.ideal_time
