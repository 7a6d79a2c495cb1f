"""What DeepSpeed and PyTorch hold on top of states and activations: by hand, in closed form, as published."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest

from experiments.core.options import WorkloadOptions
from experiments.core.precision import StateBytes, state_bytes
from experiments.core.spec import Workload
from experiments.hardware import resolve
from experiments.parallel.interface import PlanningEstimate, model_estimate
from experiments.parallel.interface.engines import (
    DEEPSPEED,
    PLAIN,
    PYTORCH,
    deepspeed_bytes,
    fsdp2_bytes,
    given_back,
    pipelining_bytes,
)
from experiments.parallel.interface.losses import loss_scratch
from experiments.parallel.interface.plan import ParallelPlan
from experiments.parallel.planning.degrees.analytic import Analytic
from experiments.parallel.planning.degrees.columns import Columns
from experiments.parallel.planning.transformers.plan import Degrees, megatron_plan
from experiments.parallel.policies.zero import Zero
from experiments.parallel.simulator import evaluate, simulate
from experiments.sources import layers_of
from experiments.workloads.transformer_layers import BLOCKS, OPERATORS
from tests.experiments.parallel.builders import chain, cluster, estimate

#: Weights of 2 bytes, float32 gradients.
SUMS = state_bytes("bfloat16", "adam", "bf16-mixed-fp32-grads")
HALF = state_bytes("float16", "adam", "bf16-mixed")
BOTH = state_bytes("bfloat16", "adam", "bf16-mixed-both-grads")


@pytest.mark.parametrize(
    ("states", "zero", "parameters", "largest", "sharers", "gigabytes"),
    [
        # A second gradient 0.8, a bucket 1.0, the largest in float32 1.6, a quarter of all in float32 2.0.
        (HALF, 1, 2e9, 4e8, 4, 5.4),
        # A second gradient 0.8, every gradient in float32 twice.
        (HALF, 0, 2e9, 4e8, 1, 16.8),
        # All gradients in 16 bits 4.0, the largest in float32 1.6.
        (BOTH, 1, 2e9, 4e8, 4, 5.6),
        # 1e9 parameters and the largest 3.0, a bucket twice 2.0, the largest gradient twice 2.0.
        (HALF, 3, 8e9, 5e8, 8, 7.0),
    ],
)
def test_deepspeeds_buffers_by_hand(
    states: StateBytes, zero: int, parameters: float, largest: float, sharers: int, gigabytes: float
) -> None:
    found = deepspeed_bytes(states, zero, parameters, largest, sharers)
    assert float(found) / 1e9 == pytest.approx(gigabytes)


@pytest.mark.parametrize(
    ("zero", "parameters", "block", "others", "sharers", "gigabytes"),
    [
        # Gathered 0.6 and two blocks of 0.8, gradients of a block and the table 1.4, the block's in float32
        # 1.6, an eighth of all gradients 3.2.
        (1, 6.4e9, 4e8, 3e8, 8, 8.4),
        # Gathered 2.0 and 0.4, whole as much, gradients 0.4 and 2.0, the block's in float32 0.8.
        (3, 8e9, 2e8, 1e9, 8, 8.0),
        # Alone a device divides nothing, and without ZeRO there is nothing to gather.
        (3, 8e9, 2e8, 1e9, 1, 0.0),
        (0, 8e9, 2e8, 1e9, 8, 0.0),
    ],
)
def test_fsdp2s_buffers_by_hand(
    zero: int, parameters: float, block: float, others: float, sharers: int, gigabytes: float
) -> None:
    found = fsdp2_bytes(SUMS, zero, parameters, block, others, others, sharers)
    assert float(found) / 1e9 == pytest.approx(gigabytes)


def test_a_pipelines_buffers_by_hand() -> None:
    """Eight micro-batches, three between their passes: inputs and their gradients 16, of which 3 count as
    kept; gradients that come back 8, outputs 3.
    """
    assert float(pipelining_bytes(8, 3, received=1.0, sent=0.0)) == 13
    assert float(pipelining_bytes(8, 3, received=0.0, sent=1.0)) == 11


def test_an_allocator_that_lacks_memory_gives_free_blocks_back() -> None:
    """Of 10, 4 for the update and 6 of activations, 3 that 17 lack; never more than the lesser of both."""
    assert float(given_back(20.0, 17.0, 4.0, 6.0)) == 3.0
    assert float(given_back(20.0, 12.0, 4.0, 6.0)) == 4.0
    assert float(given_back(20.0, 32.0, 4.0, 6.0)) == 0.0


@functools.cache
def bloom(name: str, batch: int, dtype: str, precision: str | None) -> PlanningEstimate:
    row = {"nodes": 48, "devices_per_node": 8, "device": "a100-80g", "rails": 4, "network": "ib-100g"}
    hardware = resolve({"cluster": row})
    options = WorkloadOptions(
        batch=batch, sequence=2048, kernels="fused", attention="math", dtype=dtype, precision=precision
    )
    workload = Workload(f"zoo:{name}", options=options)
    model, _ = layers_of(workload, hardware.device, lambda *_: None, OPERATORS)
    return model_estimate(model, hardware, evaluate, dtype, "adamw", precision=precision)


#: Shape, type and precision, degrees, GiB as printed by nvidia-smi.
BLOOM = [
    ("bloom-181b-l72-a64", "float16", None, Degrees(8, 12), 29),
    ("bloom-181b-l72-a64", "float16", None, Degrees(8, 12, micro_batch=4), 49),
    ("bloom-181b-l72-a64", "float16", None, Degrees(2, 24, micro_batch=2), 53),
    (
        *("bloom-176b", "bfloat16", "bf16-mixed-both-grads"),
        Degrees(4, 12, micro_batch=2, embedding_blocks=1, head_blocks=1),
        59,
    ),
]


@pytest.mark.parametrize(("name", "dtype", "precision", "degrees", "published"), BLOOM)
def test_blooms_peaks_follow_from_deepspeeds_buffers_and_default_dropout(
    name: str, dtype: str, precision: str | None, degrees: Degrees, published: int
) -> None:
    """Within a tenth, no constant of ours; without the buffers each is a seventh too low at least."""
    asked, errors = bloom(name, 2048, dtype, precision), {}
    for engine in (PLAIN, DEEPSPEED):
        layout = replace(degrees, recompute="blocks", zero=1, overlap_gradients=False, engine=engine)
        (peak,) = Analytic(asked, 2048).figures(Columns.of([layout], 384)).peak_memory
        errors[engine] = peak / 2**30 / published - 1
    assert abs(errors[DEEPSPEED]) < 0.1
    assert errors[PLAIN] < -0.1


@pytest.mark.parametrize("degrees", [Degrees(8, 12), Degrees(8, 6, micro_batch=2), Degrees(8, 1)])
@pytest.mark.parametrize("zero", [0, 1])
def test_the_closed_form_of_the_buffers_is_the_simulators(degrees: Degrees, zero: int) -> None:
    asked = bloom("bloom-181b-l72-a64", 768, "float16", None)
    layout = replace(degrees, recompute="blocks", zero=zero, overlap_gradients=False, engine=DEEPSPEED)
    roomy = replace(asked, cluster=resolve({"cluster": ROOMY}))
    plan = megatron_plan(asked.model, asked.cluster, 768, layout)
    (peak,) = Analytic(roomy, 768).figures(Columns.of([layout], 384)).peak_memory
    assert peak == pytest.approx(simulate(plan, roomy).peak_memory, rel=0.02)


def test_short_of_memory_the_closed_form_gives_back_what_the_simulator_does() -> None:
    """ZeRO 0 in a pipeline of 12 lacks a gigabyte."""
    asked = bloom("bloom-181b-l72-a64", 768, "float16", None)
    layout = Degrees(8, 12, micro_batch=2, recompute="blocks", overlap_gradients=False, engine=DEEPSPEED)
    plan = megatron_plan(asked.model, asked.cluster, 768, layout)
    (most,) = Analytic(asked, 768).figures(Columns.of([layout], 384)).peak_memory
    tight = replace(asked, cluster=resolve({"cluster": {**ROOMY, "overrides": {"memory_bytes": most - 1e9}}}))
    (peak,) = Analytic(tight, 768).figures(Columns.of([layout], 384)).peak_memory
    assert peak == pytest.approx(most - 1e9, rel=1e-9)
    assert simulate(plan, tight).peak_memory == pytest.approx(peak, rel=1e-6)


#: Degrees, ZeRO stage; the third has one chunk's sums of gradients at a time.
PYTORCHS = [
    (Degrees(8, 12), 1),
    (Degrees(8, 12, 2, sequence=True), 0),
    (Degrees(8, 6, 2, micro_batch=16, sequence=True), 1),
    (Degrees(8, 1, sequence=True, micro_batch=16), 3),
]


@pytest.mark.parametrize(("degrees", "zero"), PYTORCHS)
def test_the_closed_form_of_pytorchs_buffers_is_the_simulators(degrees: Degrees, zero: int) -> None:
    asked = bloom("bloom-181b-l72-a64", 768, "bfloat16", "bf16-mixed-fp32-grads")
    layout = replace(degrees, recompute="blocks", zero=zero, engine=PYTORCH)
    roomy = replace(asked, cluster=resolve({"cluster": ROOMY}))
    plan = megatron_plan(asked.model, asked.cluster, 768, layout)
    (peak,) = Analytic(roomy, 768).figures(Columns.of([layout], 384)).peak_memory
    assert peak == pytest.approx(simulate(plan, roomy).peak_memory, rel=0.005)


def llama_405b(nodes: int, device: str, batch: int, sequence: int, kernels: str) -> PlanningEstimate:
    hardware = resolve({"cluster": {"nodes": nodes, "devices_per_node": 8, "device": device, "rails": 8}})
    options = WorkloadOptions(
        batch=batch, sequence=sequence, kernels=kernels, dtype="bfloat16", loss="divided"
    )
    workload = Workload("zoo:llama3.1-405b", options=options)
    model, _ = layers_of(workload, hardware.device, lambda *_: None, OPERATORS)
    return model_estimate(model, hardware, evaluate, precision="bf16-mixed-fp32-grads")


#: torchtitan's 405B (December 2024, tables 5 and 6): chunks, sequence, micro-batch and GiB reserved.
TORCHTITAN = [(1, 8192, 4, 82.5), (2, 8192, 4, 72.7), (1, 32768, 1, 75.3)]


@pytest.mark.parametrize(("chunks", "sequence", "samples", "published"), TORCHTITAN)
def test_torchtitans_405b_follows_from_pytorchs_buffers(
    chunks: int, sequence: int, samples: int, published: float
) -> None:
    """Within an eighth; without them more than 5 % too low. Interleaved, one chunk's gradients are divided
    before the other's are made.
    """
    asked, errors = llama_405b(64, "h100-96g", 64 * samples, sequence, "float8"), {}
    layout = Degrees(8, 8, chunks, samples, sequence=True, recompute="blocks", zero=1)
    for engine in (PLAIN, PYTORCH):
        own = replace(layout, embedding_blocks=1, head_blocks=1, engine=engine)
        (peak,) = Analytic(asked, 64 * samples).figures(Columns.of([own], 512)).peak_memory
        errors[engine] = (peak - asked.reserved_bytes) / 2**30 / published - 1
    assert abs(errors[PYTORCH]) < 0.125
    assert errors[PLAIN] < -0.05


@pytest.mark.parametrize(("samples", "sequence", "context"), [(2048, 8192, 1), (128, 131072, 16)])
def test_llama_3s_405b_on_16384_devices_fits_because_chunks_add_up_one_after_the_other(
    samples: int, sequence: int, context: int
) -> None:
    """It ran on 80 GB without recomputation (Dubey et al., 2024, table 4). Sums of all eight chunks at once
    would be 10 GiB more.
    """
    asked = llama_405b(2048, "h100-80g", samples, sequence, "fused")
    layout = Degrees(8, 16, 8, 1, context, sequence=True, zero=1, embedding_blocks=1, head_blocks=1)
    layouts = [replace(layout, engine=engine) for engine in (PLAIN, PYTORCH)]
    plain, pytorch = Analytic(asked, samples).figures(Columns.of(layouts, 16384)).peak_memory
    assert pytorch <= 80 * 2**30 < plain


def test_a_fused_loss_takes_its_weights_gradient_twice_more_while_it_adds_it_up() -> None:
    """Six bytes for each of 128,256 x 4,096 weights, of which each of 8 devices has its part; 8 samples of 64
    tokens keep less than that.
    """
    options = WorkloadOptions(batch=8, sequence=64, loss="fused", dtype="bfloat16")
    model, _ = layers_of(Workload("zoo:llama3.1-8b", options=options), None, lambda *_: None, OPERATORS)
    without = replace(model, facts={**model.facts, "keeps_logits": True})
    layout, peaks = Degrees(8, 1, micro_batch=8), []
    for graph in (model, without):
        asked = model_estimate(graph, cluster(1, 8), evaluate, "bfloat16", "adamw")
        plan = megatron_plan(graph, asked.cluster, 8, layout)
        (closed,) = Analytic(asked, 8).figures(Columns.of([layout], 8)).peak_memory
        peaks.append(simulate(plan, asked).peak_memory)
        assert closed == pytest.approx(peaks[-1], rel=0.001)
    assert peaks[0] - peaks[1] == pytest.approx(6 * 128256 * 4096 / 8, rel=0.1)
    assert (loss_scratch(model, 2.0), loss_scratch(without, 2.0)) == (6 * 128256 * 4096, 0)


ROOMY = {
    **{"nodes": 48, "devices_per_node": 8, "device": "a100-80g", "rails": 4, "network": "ib-100g"},
    "overrides": {"memory_bytes": 1e13},
}


def test_an_engine_that_moves_everything_through_its_buffers_holds_no_gathered_blocks() -> None:
    """SC'21's 530B under ZeRO-3 on 640 devices of 80 GB ran; blocks of 5 billion parameters gathered whole,
    and their gradients, would take 14 GB more than there are.
    """
    row = {"nodes": 80, "devices_per_node": 8, "device": "a100-80g", "rails": 8}
    hardware = resolve({"cluster": row})
    workload = Workload("zoo:megatron-530b", options=WorkloadOptions(batch=2560, attention="math"))
    model, _ = layers_of(workload, hardware.device, lambda *_: None, BLOCKS)
    asked = model_estimate(model, hardware, evaluate)
    plan = Zero(stage=3, recompute=True, engine=DEEPSPEED).place(model, hardware, 2560, asked)
    assert simulate(plan, asked).peak_memory < 80 * 2**30


def test_with_the_optimizer_on_the_host_only_weights_stay_and_its_processors_update() -> None:
    """Two devices, two layers of 2e9 parameters: each updates half, at 2.57e-10 s for each of both halves."""
    model, hardware = chain(2, parameter_bytes=8e9), cluster(1, 2)
    asked = estimate(model, hardware)
    policy = Zero(stage=3, host_optimizer=True)
    plan = policy.place(model, hardware, 2, asked)
    found = simulate(plan, asked)
    assert found.memory[0].persistent == 2 * 8e9 / 2
    link = asked.devices[0].host_link
    events = {what: end - start for start, end, what in found.lanes[0].events}
    assert events["U.0"] == pytest.approx(4e9 * 2.57e-10 + 8e9 / link.bandwidth)
    again = ParallelPlan.from_json(plan.to_json())
    assert (again.engine, again.host_optimizer) == (PLAIN, True)


def test_zero_computes_blocks_again_and_not_the_ends_of_a_transformer_in_closed_form() -> None:
    """The input of a fused loss would be all logits, which it never has."""
    model, _ = layers_of(
        Workload("zoo:llama2-7b", options=WorkloadOptions(batch=8)), None, lambda *_: None, BLOCKS
    )
    hardware = cluster(1, 8)
    plan = Zero(stage=3, recompute=True).place(model, hardware, 8, model_estimate(model, hardware, evaluate))
    again = {model.layer[layer].split(".")[0] for layer in plan.recompute}
    assert again == {"blocks"} and len(plan.recompute) == 32
