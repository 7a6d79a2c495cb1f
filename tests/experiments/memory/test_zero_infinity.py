"""ZeRO-Infinity: the model's state off the device, layer by layer through it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.core.progress import silent
from experiments.core.spec import load_workload
from experiments.hardware import resolve
from experiments.memory.interface import CopyRate, MemoryMachine, OnHost, Recompute, machine_of, violations
from experiments.memory.planning.host_update import update_of
from experiments.memory.planning.parameter_streaming import stretches
from experiments.memory.policies.zero_infinity import ZeroInfinity
from experiments.memory.simulator import MemorySimulation, Simulator
from experiments.sources import step_of
from tests.experiments.memory.steps import machine, plan_of
from tests.experiments.memory.test_zero_offload import LAYERS, SIZE, STEP

FAST = machine(9 * SIZE, bandwidth=1e6, host_bandwidth=1e6)


def carried_out(policy: ZeroInfinity, on: MemoryMachine) -> MemorySimulation:
    plan = plan_of(policy, STEP, on)
    assert violations(plan, STEP, on) == []
    return Simulator(STEP, on).run(plan)


def test_each_pass_uses_each_parameter_once() -> None:
    update = update_of(STEP)
    assert update is not None
    found = [(STEP.tensors.name[s.tensor], s.first) for s in stretches(STEP, update)]
    assert found == [("w0", 0), ("w1", 1), ("w2", 2), ("w3", 3), ("w2", 5), ("w1", 6), ("w0", 7)]


@pytest.mark.parametrize("parameters_on", ["host", "storage"])
@pytest.mark.parametrize("optimizer_on", ["host", "storage"])
def test_parameters_come_once_a_pass_and_leave_for_nothing(parameters_on: str, optimizer_on: str) -> None:
    policy = ZeroInfinity(parameters_on=parameters_on, optimizer_on=optimizer_on, always=True)
    seen = carried_out(policy, FAST)
    # Two passes fetch four parameters, but the last layer's stays between them; only gradients cross the
    # other way.
    fetches = 2 * LAYERS - 1
    assert seen.moved_bytes["back"] == fetches * SIZE
    assert seen.moved_bytes["out"] == LAYERS * SIZE
    streamed = {"storage": 1, "host": 0}[parameters_on] + {"storage": 2, "host": 0}[optimizer_on]
    fetched = fetches * SIZE if parameters_on == "storage" else 0
    assert seen.moved_bytes["read"] == fetched + streamed * LAYERS * SIZE
    assert seen.moved_bytes["write"] == streamed * LAYERS * SIZE


def test_the_device_holds_a_few_layers_of_parameters() -> None:
    seen = carried_out(ZeroInfinity(ahead=1, always=True), replace(FAST, capacity=7 * SIZE))
    # Four activations, the parameter in use, the next one, a gradient under way.
    assert seen.peak_bytes <= 7 * SIZE


def test_slow_storage_bounds_the_update() -> None:
    slow = replace(FAST, read=CopyRate(1e3), write=CopyRate(500.0))
    policy = ZeroInfinity(optimizer_on="storage", always=True)
    notes = plan_of(policy, STEP, slow).notes
    assert notes["update_seconds"] == pytest.approx(2 * LAYERS * SIZE / 500.0)
    assert carried_out(policy, slow).step_time == pytest.approx(8 + 16, abs=0.5)


@pytest.mark.parametrize("optimizer_on", ["host", "storage"])
def test_the_update_hides_behind_no_pass(optimizer_on: str) -> None:
    slow = replace(FAST, read=CopyRate(2e3), write=CopyRate(2e3))
    plan = plan_of(ZeroInfinity(optimizer_on=optimizer_on, always=True), STEP, slow)
    seconds = sum(move.seconds for move in plan.moves if isinstance(move, OnHost))
    assert (seconds > 1) == (optimizer_on == "storage")
    for iterations in (1, 4):
        seen = Simulator(STEP, slow).run(plan, iterations=iterations)
        assert 8 + seconds <= seen.step_time <= 8 + seconds + 0.1


@pytest.mark.torch
def test_recomputation_fetches_the_parameters_that_it_needs() -> None:
    pytest.importorskip("torch")
    hardware = resolve("v100-16g")
    workload = load_workload({"source": "zoo:gpt2-tiny", "options": {"batch": 8, "optimizer": "adamw"}})
    step, _ = step_of(workload, hardware.device, silent)
    on = replace(machine_of(hardware), capacity=int(0.7 * step.live_peak))
    plan = plan_of(ZeroInfinity(checkpoint=True), step, on)
    assert any(isinstance(move, Recompute) for move in plan.moves)
    assert violations(plan, step, on) == []
    assert Simulator(step, on).run(plan).recompute_time > 0
