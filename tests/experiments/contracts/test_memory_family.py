"""What must hold of every memory policy on any step and any device, whoever wrote it."""

from __future__ import annotations

import functools
from dataclasses import replace

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
    ReactiveMemoryPolicy,
    load_plan,
    machine_of,
    violations,
)
from experiments.memory.interface.check import FULL
from experiments.memory.interface.microbatch import in_microbatches
from experiments.memory.interface.plan import PLAN_LAWS
from experiments.memory.interface.transform import transformed
from experiments.memory.simulator import MemorySimulation, Simulator
from experiments.sources import step_of
from experiments.workloads.step import Step
from tests.experiments.contracts.exceptions import skip_exception

HARDWARE = resolve({"device": "v100-16g", "remote": "optane-pmem"})
STEPS: dict[str, dict[str, object]] = {
    "zoo:gpt2-tiny": {"batch": 8, "optimizer": "adamw"},
    "zoo:resnet18": {"batch": 4, "image": 64, "optimizer": "momentum"},
}
pytestmark = pytest.mark.torch
#: Capacities, in live peaks.
SHARES = (1.0, 0.6, 0.45)
NAMES = [policy.name for policy in registry.all_policies() if policy.family == "memory"]
every_policy = pytest.mark.parametrize("name", NAMES)
every_step = pytest.mark.parametrize("source", STEPS)
every_share = pytest.mark.parametrize("share", SHARES)


@functools.cache
def step_named(source: str) -> Step:
    pytest.importorskip("torch")
    workload = load_workload({"source": source, "options": STEPS[source]})
    return step_of(workload, HARDWARE.device, silent)[0]


def machine(capacity: int) -> MemoryMachine:
    """A link slow enough to be felt by steps of a millisecond."""
    whole = machine_of(HARDWARE)
    return replace(whole, capacity=capacity)


def policy_named(name: str) -> MemoryPolicy:
    policy = registry.create("memory", name, registry.policy_class("memory", name).quick)
    assert isinstance(policy, MemoryPolicy)
    return policy


@functools.cache
def planned(name: str, source: str, share: float) -> MemoryPlan | str:
    """The plan on a device of this share of the live peak, or in words why the policy says there is none."""
    step = step_named(source)
    try:
        return make_plan(step, machine(int(share * step.live_peak)), policy_named(name), 0)
    except Infeasible as why:
        return str(why)


def carried_out(name: str, step: Step, on: MemoryMachine, plan: MemoryPlan) -> MemorySimulation | str:
    """The plan carried out, or in words why it does not fit."""
    policy = policy_named(name)
    reactive = policy if isinstance(policy, ReactiveMemoryPolicy) else None
    try:
        return Simulator(step, on).run(plan, reactive)
    except Infeasible as why:
        return str(why)


@functools.cache
def simulated(name: str, source: str, share: float) -> MemorySimulation | str:
    step = step_named(source)
    return carried_out(name, step, machine(int(share * step.live_peak)), plan_of(name, source, share))


def plan_of(name: str, source: str, share: float) -> MemoryPlan:
    """The plan, to which laws apply only where there is one."""
    plan = planned(name, source, share)
    if isinstance(plan, str):
        pytest.skip(f"no plan: {plan}")
    return plan


def run_of(name: str, source: str, share: float) -> MemorySimulation:
    """What the plan does, to which laws apply only where it fits."""
    plan_of(name, source, share)
    seen = simulated(name, source, share)
    if isinstance(seen, str):
        pytest.skip(f"the plan does not fit: {seen}")
    return seen


@every_policy
@every_step
@every_share
def test_its_plan_is_legal(name: str, source: str, share: float) -> None:
    step, plan = step_named(source), plan_of(name, source, share)
    faults = violations(plan, step, machine(int(share * step.live_peak)))
    assert [fault for fault in faults if not fault.startswith(FULL)] == []


@every_policy
@every_step
@every_share
def test_no_more_memory_is_used_than_there_is(name: str, source: str, share: float) -> None:
    assert run_of(name, source, share).peak_bytes <= int(share * step_named(source).live_peak)


@every_policy
@every_step
@every_share
def test_never_better_than_the_bound(name: str, source: str, share: float) -> None:
    """A step takes its ops' times at least."""
    skip_exception(plan_of(name, source, share), "bound")
    seen = run_of(name, source, share)
    assert seen.step_time >= seen.ideal_time * (1 - 1e-12)


@every_policy
@every_step
@every_share
def test_what_a_step_takes_besides_its_ops_is_told_by_cause(name: str, source: str, share: float) -> None:
    skip_exception(plan_of(name, source, share), "causes")
    seen = run_of(name, source, share)
    spent = seen.ideal_time + seen.stall_time + seen.recompute_time + seen.codec_time
    assert seen.step_time == pytest.approx(spent, rel=1e-9)


@every_policy
@every_step
def test_its_plan_survives_json(name: str, source: str) -> None:
    plan = plan_of(name, source, 0.6)
    text = jsonio.canonical(plan.to_json())
    assert load_plan(jsonio.loads(text, "plan")) == plan


@every_policy
@every_step
def test_on_a_device_for_everything_there_is_a_plan_that_fits(name: str, source: str) -> None:
    assert isinstance(planned(name, source, 1.0), MemoryPlan)
    assert isinstance(simulated(name, source, 1.0), MemorySimulation)


@every_policy
@every_step
def test_closed_form_on_the_smallest_case(name: str, source: str) -> None:
    """Where everything fits nothing moves: a step takes its ops' times and its live peak."""
    skip_exception(plan_of(name, source, 1.0), "closed_form")
    seen = run_of(name, source, 1.0)
    assert seen.step_time == seen.ideal_time
    assert seen.peak_bytes == step_named(source).live_peak


def plan_below_the_largest_op(name: str, source: str) -> MemoryPlan:
    step = step_named(source)
    return make_plan(step, machine(int(step.op_need.max()) - 1), policy_named(name), 0)


@every_policy
@every_step
def test_below_the_largest_op_only_pages_and_parts_of_the_batch_run(name: str, source: str) -> None:
    if policy_named(name).oversubscribes:
        pytest.skip("it declares that its plans oversubscribe: see the test of what they are")
    with pytest.raises(Infeasible):
        plan_below_the_largest_op(name, source)


@every_policy
@every_step
def test_what_oversubscribes_has_pages_or_parts_of_the_batch(name: str, source: str) -> None:
    if not policy_named(name).oversubscribes:
        pytest.skip("it declares that its plans do not oversubscribe")
    try:
        plan = plan_below_the_largest_op(name, source)
    except Infeasible as why:
        pytest.skip(f"no plan: {why}")
    assert isinstance(plan.space, Paging) or plan.splits > 1


@every_policy
@every_step
def test_it_is_repeatable(name: str, source: str) -> None:
    step, plan = step_named(source), plan_of(name, source, 0.6)
    again = make_plan(step, machine(int(0.6 * step.live_peak)), policy_named(name), 0)
    assert jsonio.canonical(again.to_json()) == jsonio.canonical(plan.to_json())


@every_policy
@every_step
def test_what_leaves_is_what_the_plan_sends(name: str, source: str) -> None:
    plan = plan_of(name, source, 0.6)
    skip_exception(plan, "sent")
    tensors = transformed(step_named(source), plan).tensors
    moves = [move for move in plan.moves if isinstance(move, Offload)]
    sent = sum(float(tensors.bytes[move.tensor]) / move.ratio for move in moves)
    assert run_of(name, source, 0.6).moved_bytes["out"] == pytest.approx(sent)


@every_policy
@every_step
def test_a_faster_link_is_never_slower_for_the_same_plan(name: str, source: str) -> None:
    plan = plan_of(name, source, 0.6)
    skip_exception(plan, "links")
    times = [run_of(name, source, 0.6).step_time]
    step = step_named(source)
    for factor in (2, 8):
        seen = carried_out(name, step, with_links(machine(int(0.6 * step.live_peak)), factor), plan)
        assert isinstance(seen, MemorySimulation), seen
        times.append(seen.step_time)
    slowest_first = sorted(times, reverse=True)
    assert times == slowest_first or times == pytest.approx(slowest_first, rel=1e-9)


def with_links(on: MemoryMachine, factor: int) -> MemoryMachine:
    """The machine with channels ``factor`` times as fast."""
    ways = ("out", "back", "write", "read", "remote_write", "remote_read")
    rates = {way: getattr(on, way) for way in ways}
    return replace(
        on, **{way: replace(rate, bandwidth=rate.bandwidth * factor) for way, rate in rates.items()}
    )


@every_policy
@every_step
@every_share
def test_an_exception_of_a_plan_names_a_law_and_a_reason(name: str, source: str, share: float) -> None:
    exceptions = plan_of(name, source, share).exceptions
    assert set(exceptions) <= set(PLAN_LAWS)
    assert all(len(reason) > 15 for reason in exceptions.values())


@every_policy
@every_step
def test_without_host_memory_a_policy_plans_for_that_or_says_that_it_cannot(name: str, source: str) -> None:
    step = step_named(source)
    on = replace(machine(int(0.6 * step.live_peak)), host_bytes=0)
    try:
        plan = make_plan(step, on, policy_named(name), 0)
    except Infeasible:
        return
    step = step if plan.splits == 1 else in_microbatches(step, plan.splits)
    assert [fault for fault in violations(plan, step, on) if not fault.startswith(FULL)] == []
    seen = carried_out(name, step, on, plan)
    if not isinstance(seen, str):
        assert seen.host_peak == 0
