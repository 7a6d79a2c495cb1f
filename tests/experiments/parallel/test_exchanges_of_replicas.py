"""Hybrid sharding, weights handed out by owner, and exchanges that take turns with sends between stages."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from experiments.core.options import WorkloadOptions
from experiments.core.precision import state_bytes
from experiments.core.spec import Workload
from experiments.hardware import resolve
from experiments.parallel.interface import ParallelPlan, PlanningEstimate, model_estimate, violations
from experiments.parallel.planning.transformers.plan import BEHIND, BY_OWNER, BY_SLICE, Degrees, megatron_plan
from experiments.parallel.simulator import evaluate, exchange, simulate
from experiments.parallel.simulator.network import Network
from experiments.parallel.simulator.tensor_lists import SLICE
from experiments.sources import layers_of
from experiments.workloads.transformer_layers import OPERATORS

DEVICES = BATCH = 32


def estimate_on(nodes: int) -> PlanningEstimate:
    """A GPT of 1.7 billion parameters on nodes of 8."""
    cluster = resolve({"nodes": nodes, "node": "dgx-a100"})
    workload = Workload("zoo:megatron-1.7b", options=WorkloadOptions(batch=BATCH))
    model, _ = layers_of(workload, cluster.device, lambda *_: None, OPERATORS)
    return model_estimate(model, cluster, evaluate)


ESTIMATE = estimate_on(DEVICES // 8)


def plan_of(**degrees: Any) -> ParallelPlan:
    layout = dataclasses.replace(Degrees(), **degrees)
    return megatron_plan(ESTIMATE.model, ESTIMATE.cluster, BATCH, layout)


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_states_are_divided_inside_a_group_and_its_parts_summed_over_the_groups(zero: int) -> None:
    plan = plan_of(zero=zero, shard=8)
    assert violations(plan, ESTIMATE.model, ESTIMATE.cluster) == []
    stage = plan.stages[0]
    assert plan.sharing_groups(stage)[1] == tuple(range(8, 16))
    assert plan.copy_groups(stage)[3] == (3, 11, 19, 27)
    hybrid, whole = simulate(plan, ESTIMATE), simulate(plan_of(zero=zero), ESTIMATE)
    parameters = float(ESTIMATE.layer_parameters.sum())
    states = state_bytes("float16", "adam", "bf16-mixed")
    for found, degree in ((hybrid, 8), (whole, DEVICES)):
        assert found.memory[0].persistent == pytest.approx(states.on_device(parameters, zero, degree))
    summed = hybrid.communication_by_kind[0]
    assert summed["reduce_scatter"] == pytest.approx(parameters * states.gradient)
    assert summed["all_reduce"] == pytest.approx(parameters * states.gradient / 8)
    assert "all_reduce" not in whole.communication_by_kind[0]


def test_a_group_divides_all_that_hold_the_weights() -> None:
    plan = dataclasses.replace(plan_of(zero=1), zero_group=5)
    assert "states are divided among 5 devices" in " ".join(
        violations(plan, ESTIMATE.model, ESTIMATE.cluster)
    )


def test_each_owner_starts_a_ring_of_its_own() -> None:
    """As many bytes as one gather of all, and 32 broadcasts, of which every hop starts as the slowest."""
    together, by_owner = (
        simulate(plan_of(zero=1, gather=way, overlap_gradients=True), ESTIMATE).step_time
        for way in (BEHIND, BY_OWNER)
    )
    latency = Network(ESTIMATE.cluster).collective("all_gather", range(DEVICES), 0.0).seconds
    assert latency == pytest.approx(3 * 14e-6 + 28 * 6e-6)
    assert by_owner - together == pytest.approx(DEVICES * 31 * 14e-6 - latency)


def test_slices_of_every_tensor_sum_whole_gradients_and_keep_the_device_for_each_slice() -> None:
    """nanotron's ZeRO-1: twice the bytes for gradients, then 24 blocks of 6 tensors, table and norm, cut into
    32 slices each.
    """
    together, sliced = (simulate(plan_of(zero=1, gather=way), ESTIMATE) for way in (BEHIND, BY_SLICE))
    parameters = float(ESTIMATE.layer_parameters.sum())
    gradients = parameters * ESTIMATE.states.gradient
    assert together.communication_by_kind[0]["reduce_scatter"] == pytest.approx(gradients)
    assert sliced.communication_by_kind[0]["all_reduce"] == pytest.approx(gradients)
    assert "reduce_scatter" not in sliced.communication_by_kind[0]
    network = Network(ESTIMATE.cluster)
    summed, scattered = (
        network.collective(kind, range(DEVICES), gradients).seconds
        for kind in ("all_reduce", "reduce_scatter")
    )
    weights = parameters * ESTIMATE.states.weight
    handled = SLICE.seconds(ESTIMATE.devices[0], (24 * 6 + 2) * DEVICES, weights)
    assert handled > (24 * 6 + 2) * DEVICES * 6e-6
    longer = sliced.step_time - together.step_time
    assert longer == pytest.approx(summed - scattered + handled, rel=1e-6)


def test_a_send_between_stages_does_not_wait_for_all_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an exchange holds its adapters to its end, sends behind it stall the pipeline."""
    plan = plan_of(tensor=8, pipeline=2, interleaved=6, overlap_gradients=True)
    turns = simulate(plan, ESTIMATE)
    monkeypatch.setattr(exchange, "MOST_TURNS", 1)
    held = simulate(plan, ESTIMATE)
    assert turns.step_time < held.step_time
    assert turns.communication_bytes == pytest.approx(held.communication_bytes)
