"""What must hold of every memory policy on any step and any device, whoever wrote it."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest

from experiments.core import jsonio, registry
from experiments.core.errors import Infeasible
from experiments.core.progress import silent
from experiments.core.spec import load_workload
from experiments.hardware import resolve
from experiments.memory.experiment import make_plan
from experiments.memory.interface import (
    MemoryMachine,
    MemoryPlan,
    MemoryPolicy,
    Offload,
    Paging,
    Prefetch,
    ReactiveMemoryPolicy,
    Release,
    load_plan,
    machine_of,
    violations,
)
from experiments.memory.interface.check import FULL
from experiments.memory.interface.policy import MemoryPolicy as Policy
from experiments.memory.simulator import MemorySimulation, Simulator
from experiments.sources import step_of
from experiments.workloads.step import Step

HARDWARE = resolve({"device": "v100-16g", "remote": "optane-pmem"})
STEPS: dict[str, dict[str, object]] = {
    "zoo:gpt2-tiny": {"batch": 8, "optimizer": "adamw"},
    "zoo:resnet18": {"batch": 4, "image": 64, "optimizer": "momentum"},
}
pytestmark = pytest.mark.torch
SHARES = (1.0, 0.8, 0.6, 0.45)
NAMES = [policy.name for policy in registry.all_policies() if policy.family == "memory"]
every_policy = pytest.mark.parametrize("name", NAMES)
every_step = pytest.mark.parametrize("source", STEPS)


@functools.cache
def step_named(source: str) -> Step:
    pytest.importorskip("torch")
    workload = load_workload({"source": source, "options": STEPS[source]})
    return step_of(workload, HARDWARE.device, silent)[0]


def machine(capacity: int) -> MemoryMachine:
    """A link slow enough to be felt by steps of a millisecond."""
    whole = machine_of(HARDWARE)
    return replace(whole, capacity=capacity)


def policy_named(name: str) -> Policy:
    policy = registry.create("memory", name, registry.policy_class("memory", name).quick)
    assert isinstance(policy, MemoryPolicy)
    return policy


@functools.cache
def planned(name: str, source: str, share: float) -> tuple[MemoryMachine, MemoryPlan | None]:
    """The plan on a device of this share of the live peak; ``None`` where the policy says there is none."""
    step = step_named(source)
    on = machine(int(share * step.live_peak))
    try:
        return on, make_plan(step, on, policy_named(name), 0)
    except Infeasible:
        return on, None


def carried_out(name: str, step: Step, on: MemoryMachine, plan: MemoryPlan) -> MemorySimulation | None:
    policy = policy_named(name)
    reactive = policy if isinstance(policy, ReactiveMemoryPolicy) else None
    try:
        return Simulator(step, on).run(plan, reactive)
    except Infeasible:
        return None


@functools.cache
def simulated(name: str, source: str, share: float) -> MemorySimulation | None:
    """The plan carried out; ``None`` where there is none, or where it does not fit."""
    on, plan = planned(name, source, share)
    return None if plan is None else carried_out(name, step_named(source), on, plan)


@every_policy
@every_step
def test_its_plan_is_legal(name: str, source: str) -> None:
    """On devices of less and less memory, and no more of it is used than there is."""
    step = step_named(source)
    for share in SHARES:
        on, plan = planned(name, source, share)
        if plan is None:
            continue
        assert [fault for fault in violations(plan, step, on) if not fault.startswith(FULL)] == [], share
        seen = simulated(name, source, share)
        assert seen is None or seen.peak_bytes <= on.capacity


@every_policy
@every_step
def test_never_better_than_the_bound(name: str, source: str) -> None:
    """A step takes its ops' times at least, and what it takes besides is told by cause."""
    for share in SHARES:
        plan, seen = planned(name, source, share)[1], simulated(name, source, share)
        if plan is None or seen is None:
            continue
        assert seen.step_time >= seen.ideal_time * (1 - 1e-12) or plan.splits > 1
        spent = seen.ideal_time + seen.stall_time + seen.recompute_time + seen.codec_time
        if not isinstance(plan.space, Release) and not seen.host_busy and plan.splits == 1:
            assert seen.step_time == pytest.approx(spent, rel=1e-9) or _other_times(plan)


@every_policy
@every_step
def test_its_plan_survives_json(name: str, source: str) -> None:
    plan = planned(name, source, 0.6)[1]
    if plan is None:
        pytest.skip("no plan on a device of this size")
    text = jsonio.canonical(plan.to_json())
    assert load_plan(jsonio.loads(text, "plan")) == plan


@every_policy
@every_step
def test_closed_form_on_the_smallest_case(name: str, source: str) -> None:
    step = step_named(source)
    on, plan = planned(name, source, 1.0)
    assert plan is not None
    seen = carried_out(name, step, on, plan)
    assert seen is not None
    if plan.moves or isinstance(plan.space, Paging):
        pytest.skip("it moves tensors, or pages them, even where everything fits")
    assert seen.step_time == seen.ideal_time
    assert seen.peak_bytes == step.live_peak


@every_policy
@every_step
def test_below_the_largest_op_only_pages_and_parts_of_the_batch_run(name: str, source: str) -> None:
    step = step_named(source)
    largest = int(step.op_need.max())
    policy = policy_named(name)
    try:
        plan = make_plan(step, machine(largest - 1), policy, 0)
    except Infeasible:
        return
    assert policy.oversubscribes
    assert isinstance(plan.space, Paging) or plan.splits > 1


@every_policy
@every_step
def test_it_is_repeatable(name: str, source: str) -> None:
    on, plan = planned(name, source, 0.6)
    if plan is None:
        pytest.skip("no plan on a device of this size")
    again = make_plan(step_named(source), on, policy_named(name), 0)
    assert jsonio.canonical(again.to_json()) == jsonio.canonical(plan.to_json())


@every_policy
@every_step
def test_what_leaves_is_what_the_plan_sends(name: str, source: str) -> None:
    step = step_named(source)
    on, plan = planned(name, source, 0.6)
    if plan is None:
        pytest.skip("no plan on a device of this size")
    if isinstance(plan.space, Paging | Release) or plan.reactive or plan.splits > 1:
        pytest.skip("what leaves is decided while it runs, or of a part of the batch")
    if any(isinstance(move, Prefetch) and move.keep for move in plan.moves):
        pytest.skip("an offload of what its tier still holds moves nothing")
    if {move.action for move in plan.moves} & {"compress", "log"}:
        pytest.skip("bytes are those of the packed tensor, or of a log")
    seen = carried_out(name, step, on, plan)
    if seen is not None:
        sent = sum(
            float(step.tensors.bytes[move.tensor]) / move.ratio
            for move in plan.moves
            if isinstance(move, Offload)
        )
        assert seen.moved["out"] == pytest.approx(sent)


@every_policy
@every_step
def test_a_faster_link_is_never_slower_for_the_same_plan(name: str, source: str) -> None:
    step = step_named(source)
    on, plan = planned(name, source, 0.6)
    if plan is None or isinstance(plan.space, Release):
        pytest.skip("no plan on a device of this size, or a release's own clock")
    times = []
    for factor in (1, 2, 8):
        rates = {
            way: replace(getattr(on, way), bandwidth=getattr(on, way).bandwidth * factor)
            for way in ("out", "back", "write", "read", "remote_write", "remote_read")
        }
        seen = carried_out(name, step, replace(on, **rates), plan)
        times.append(np.inf if seen is None else seen.step_time)
    assert times == sorted(times, reverse=True) or times == pytest.approx(
        sorted(times, reverse=True), rel=1e-9
    )


def _other_times(plan: MemoryPlan) -> bool:
    """The plan gives ops other times than the step's own."""
    return bool({move.action for move in plan.moves} & {"algorithm", "in_place", "on_host"})
