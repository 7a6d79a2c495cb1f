"""Devices that share a sequence: what a causal mask leaves each, kernels of a ring, keys and values that come
first.
"""

from __future__ import annotations

import dataclasses

import pytest

from experiments.hardware import resolve
from experiments.parallel.interface import PlanningEstimate, model_estimate
from experiments.parallel.planning.degrees.analytic import Analytic
from experiments.parallel.planning.degrees.columns import Columns
from experiments.parallel.planning.transformers.plan import Degrees, megatron_plan
from experiments.parallel.planning.transformers.shardings import BESIDE, EXCHANGES, FIRST, RING, WorkerMesh
from experiments.parallel.planning.transformers.shardings import megatron_shardings as shardings
from experiments.parallel.policies.fsdp import Fsdp
from experiments.parallel.simulator import evaluate, simulate
from experiments.workloads.kernel_times import timed_by_kernels, work_seconds
from experiments.workloads.kernels import Cut
from experiments.workloads.transformer import Transformer
from experiments.workloads.transformer_layers import OPERATORS, transformer_layers

LONG = Transformer("long", 2, 1024, 8, 128, 4096, 16384, 8, vocabulary=512, rotary=True)


def estimate_of(devices: int, batch: int) -> PlanningEstimate:
    cluster = resolve({"cluster": {"nodes": 1, "devices_per_node": devices, "device": "a100-80g"}})
    graph = transformer_layers(
        LONG, batch=batch, dtype="bfloat16", granularity=OPERATORS, fused_attention=True
    )
    return model_estimate(timed_by_kernels(graph, cluster.device), cluster, evaluate)


def core_of(estimate: PlanningEstimate, mesh: WorkerMesh) -> float:
    """How many times a device's attention goes into all of it."""
    layer = estimate.model.layer.index("blocks.0.attention")
    return next(iter(shardings(estimate.model, mesh, [layer]))).compute


def pairs(tokens: range) -> int:
    """Keys that these queries attend to under a causal mask."""
    return sum(query + 1 for query in tokens)


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_the_last_of_parts_in_their_order_attends_most_and_two_parts_each_are_equal(devices: int) -> None:
    """Counted pair by pair over 1,024 tokens."""
    tokens, part = 1024, 1024 // devices
    whole = pairs(range(tokens))
    last = pairs(range(tokens - part, tokens))
    estimate = estimate_of(devices, 1)
    unbalanced = core_of(estimate, WorkerMesh(context=devices, balanced=False))
    assert unbalanced == pytest.approx(whole / last, rel=0.002)
    half = part // 2
    both = {
        pairs(range(i * half, (i + 1) * half)) + pairs(range(tokens - (i + 1) * half, tokens - i * half))
        for i in range(devices)
    }
    assert both == {whole // devices}
    assert core_of(estimate, WorkerMesh(context=devices)) == devices


def test_each_further_step_of_a_ring_is_a_kernel_whose_result_is_merged() -> None:
    """Two devices: 8,192 tokens of 1,024 values, 10 bytes each forward, 30 backward, two launches."""
    estimate = estimate_of(2, 1)
    device, dtype = estimate.devices[0], "bfloat16"
    work = estimate.model.work[estimate.model.layer.index("blocks.0.attention")][0]
    one, ring = (work_seconds(device, work, 1, Cut(2, steps=steps), dtype) for steps in (1, 2))
    rate = device.memory_bandwidth * device.kernels.stream_efficiency
    values = 8192 * 1024
    assert ring.forward - one.forward == pytest.approx(10 * values / rate + 8e-6)
    assert ring.backward - one.backward == pytest.approx(30 * values / rate + 8e-6)
    plan = megatron_plan(estimate.model, estimate.cluster, 1, Degrees(context=2, context_exchange=RING))
    assert {s.steps for s in plan.shardings if s.axis == "heads" and s.forward} == {2}


def test_keys_and_values_that_come_first_are_waited_for() -> None:
    """Beside they are hidden by attention; first, three exchanges of half of 2 x 16,384 x 1,024 values for
    each of two blocks are not.
    """
    estimate = estimate_of(2, 1)
    beside, first = (
        simulate(
            megatron_plan(estimate.model, estimate.cluster, 1, Degrees(context=2, context_exchange=exchange)),
            estimate,
        )
        for exchange in (BESIDE, FIRST)
    )
    kernels = estimate.devices[0].kernels
    link = estimate.cluster.node.link
    message = 16384 * 2 * 1024 * 2 / 2 / (link.bandwidth * kernels.collective_efficiency)
    waited = first.step_time - beside.step_time
    assert waited == pytest.approx(2 * 3 * (message + link.latency), rel=1e-6)


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("balanced", [True, False])
def test_closed_forms_of_exchanges_agree_with_the_event_simulator(exchange: str, balanced: bool) -> None:
    estimate = estimate_of(8, 4)
    layout = Degrees(2, context=2, context_exchange=exchange, context_balanced=balanced, recompute="blocks")
    ours = Analytic(estimate, 4).figures(Columns.of([layout], 8)).step_time[0]
    found = simulate(megatron_plan(estimate.model, estimate.cluster, 4, layout), estimate).step_time
    assert ours == pytest.approx(found, rel=0.02)
    usual = dataclasses.replace(layout, context_exchange=BESIDE, context_balanced=True)
    plain = Analytic(estimate, 4).figures(Columns.of([usual], 8)).step_time[0]
    assert (ours > plain) == (layout != usual)


def test_fsdp_has_the_ring_of_pytorch_if_asked() -> None:
    estimate = estimate_of(4, 4)
    plans = (
        Fsdp(context=2, context_exchange=exchange).place(estimate.model, estimate.cluster, 4, estimate)
        for exchange in (BESIDE, RING)
    )
    beside, ring = (simulate(plan, estimate).step_time for plan in plans)
    assert ring > beside
