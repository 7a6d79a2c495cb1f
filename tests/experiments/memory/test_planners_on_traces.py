"""Offline planners on a published trace: what must hold of every plan, whoever made it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.core import registry
from experiments.core.errors import Infeasible
from experiments.core.spec import Workload
from experiments.hardware import resolve
from experiments.memory.experiment import make_plan
from experiments.memory.interface import CopyRate, MemoryPlan, machine_of, violations
from experiments.memory.simulator import Simulator
from experiments.sources import step_of

GIB = 2**30
#: Knobs that keep planning short; all others are the defaults.
POLICIES = {
    "chen_meng": {},
    "tflms": {},
    "tflms-v1": {},
    "autotm": {},
    "sentinel": {},
    "swapadvisor": {"evaluations": 10},
    "autoswap": {},
    "tmof": {},
    "deeptm": {"episodes": 5},
}


@pytest.fixture(scope="module")
def bert(shared_data):
    """BERT base with batch 256: live peak 47.8 GiB, of which 16.6 GiB are persistent; the largest op needs
    2.25 GiB.
    """
    trace = shared_data / "memory" / "g10" / "BERT_Base_256.json.gz"
    return step_of(Workload(str(trace)), None)[0]


def device(capacity: int, bandwidth: float = 16e9):
    rate = CopyRate(bandwidth, 1e-5)
    return replace(machine_of(resolve("a100-40g")), capacity=capacity, out=rate, back=rate, host_bytes=2**41)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize(("capacity", "bandwidth"), [(40 * GIB, 16e9), (28 * GIB, 64e9)])
def test_a_plan_is_legal_fits_and_never_beats_the_ideal(bert, name, capacity, bandwidth):
    policy, on = registry.create("memory", name, POLICIES[name]), device(capacity, bandwidth)
    plan = make_plan(bert, on, policy, 0)
    assert violations(plan, bert, on) == []
    done = Simulator(bert, on).run(plan)
    assert done.peak_bytes <= capacity
    assert done.step_time >= bert.seconds * (1 - 1e-9)
    parts = done.stall_time + sum(bert.ops.seconds.tolist())
    assert done.step_time == pytest.approx(parts)


@pytest.mark.parametrize("name", POLICIES)
def test_nothing_is_planned_where_all_fits_and_below_the_largest_op_nothing_can_be(bert, name):
    policy = registry.create("memory", name, POLICIES[name])
    assert make_plan(bert, device(bert.live_peak), policy, 0) == MemoryPlan()
    with pytest.raises(Infeasible, match="op 1331"):
        make_plan(bert, device(int(bert.op_need.max()) - 1), policy, 0)


@pytest.mark.parametrize("name", POLICIES)
def test_one_seed_gives_one_plan(bert, name):
    policy, on = registry.create("memory", name, POLICIES[name]), device(40 * GIB)
    assert make_plan(bert, on, policy, 7).to_json() == make_plan(bert, on, policy, 7).to_json()


@pytest.mark.parametrize("name", ["chen_meng", "tflms", "autotm", "autoswap", "tmof"])
def test_no_bandwidth_where_something_must_leave_is_infeasible_and_no_hang(bert, name):
    policy = registry.create("memory", name, POLICIES[name])
    plan = make_plan(bert, device(40 * GIB), policy, 0)
    with pytest.raises(Infeasible):
        Simulator(bert, device(40 * GIB, bandwidth=0.0)).run(plan)


def test_more_bandwidth_is_never_slower_for_the_same_plan(bert):
    for name in ("chen_meng", "tflms", "autotm", "autoswap"):
        plan = make_plan(bert, device(40 * GIB), registry.create("memory", name, POLICIES[name]), 0)
        times = [Simulator(bert, device(40 * GIB, b)).run(plan).step_time for b in (8e9, 16e9, 32e9, 64e9)]
        assert (np.diff(times) <= 1e-9).all(), name
