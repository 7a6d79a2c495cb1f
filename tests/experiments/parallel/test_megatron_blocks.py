"""Blocks that do not divide by stages: who gets one more, what ends count, and closed forms of such plans."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.core.spec import Workload
from experiments.hardware import resolve
from experiments.parallel.interface import FORWARD, PlanningEstimate, Slot, model_estimate, violations
from experiments.parallel.planning.degrees.analytic import Analytic
from experiments.parallel.planning.degrees.chunks import held_blocks
from experiments.parallel.planning.degrees.columns import Columns
from experiments.parallel.planning.degrees.search import REASONS, search
from experiments.parallel.planning.transformers.blocks import blocks_by_chunk
from experiments.parallel.planning.transformers.plan import Degrees, block_bounds, megatron_plan
from experiments.parallel.policies.megatron import Megatron
from experiments.parallel.simulator import evaluate, simulate
from experiments.parallel.simulator.build import Builder
from experiments.parallel.simulator.tasks import replay
from experiments.sources import layers_of
from experiments.workloads.kernel_times import timed_by_kernels
from experiments.workloads.transformer import Transformer
from experiments.workloads.transformer_layers import OPERATORS, transformer_layers

FIVE = Transformer("five", 5, 256, 8, 32, 1024, 128, 8, vocabulary=512, positions=128)


def estimate_of(sizes: Transformer, devices: int, batch: int) -> PlanningEstimate:
    per_node = min(devices, 8)
    roomy = {"overrides": {"memory_bytes": 1e13}}
    row = {"nodes": devices // per_node, "devices_per_node": per_node, "device": "a100-80g", **roomy}
    cluster = resolve({"cluster": {**row, "rails": per_node}})
    graph = transformer_layers(sizes, batch=batch, dtype="float16", granularity=OPERATORS)
    return model_estimate(timed_by_kernels(graph, cluster.device), cluster, evaluate)


def published(name: str, devices: int, batch: int) -> PlanningEstimate:
    graph, _ = layers_of(
        Workload(f"zoo:{name}", options=WorkloadOptions(batch=batch)), None, lambda *_: None, OPERATORS
    )
    assert graph.transformer is not None
    return estimate_of(graph.transformer, devices, batch)


# --- who gets one more
# ------------------------------------------------------------------------------------------


def test_126_blocks_on_16_devices_of_7_chunks_are_7_or_8_a_device() -> None:
    found = blocks_by_chunk(126, 16, 7)
    assert sorted(set(found.sum(1))) == [7, 8] and found.sum() == 126
    assert sorted(set(found.ravel())) == [1, 2] and (found == 2).sum() == 14


def test_ends_that_count_as_a_block_leave_the_first_and_the_last_chunk_of_llama_3_without() -> None:
    """Dubey et al., 2024, section 3.3.2: 126 blocks and both ends are 128 chunks of one."""
    found = blocks_by_chunk(126, 16, 8, embedding=1, head=1)
    assert found[0, 0] == found[-1, -1] == 0
    assert found.sum() == 126 and (found == 1).sum() == 126


@given(
    st.integers(1, 200),
    st.integers(1, 40),
    st.integers(1, 12),
    st.integers(0, 3),
    st.integers(0, 5),
)
def test_devices_and_chunks_differ_by_a_block_at_most(
    blocks: int, pipeline: int, chunks: int, embedding: int, head: int
) -> None:
    assume(blocks + embedding + head >= pipeline * chunks)
    found = blocks_by_chunk(blocks, pipeline, chunks, embedding, head)
    assert found.sum() == blocks
    found[0, 0] += embedding
    found[-1, -1] += head
    assert np.ptp(found.sum(1)) <= 1 and np.ptp(found) <= 1


@given(st.integers(1, 200), st.integers(1, 40))
def test_stages_of_one_chunk_are_cut_where_an_equal_share_ends(blocks: int, pipeline: int) -> None:
    assume(blocks >= pipeline)
    cuts = [blocks * number // pipeline for number in range(pipeline + 1)]
    assert blocks_by_chunk(blocks, pipeline, 1).ravel().tolist() == np.diff(cuts).tolist()


def test_a_first_stage_may_be_the_embedding_alone_and_the_last_the_head() -> None:
    estimate = estimate_of(dataclasses.replace(FIVE, layers=6), 8, 8)
    layout = Degrees(pipeline=4, interleaved=2, embedding_blocks=1, head_blocks=1)
    bounds = block_bounds(estimate.model, layout)
    names = [estimate.model.layer[begin:end] for begin, end in bounds]
    assert names[0] == ("embedding",) and names[-1] == ("norm", "logits", "loss")
    assert all(row[0].endswith(".norm1") and row[-1].endswith(".residual2") for row in names[1:-1])
    plan = megatron_plan(estimate.model, estimate.cluster, 8, layout)
    assert violations(plan, estimate.model, estimate.cluster) == []
    assert simulate(plan, estimate).step_time > 0


@pytest.mark.parametrize(
    ("knobs", "what"),
    [
        ({"pipeline": 4, "interleaved": 2}, "5 blocks cannot make 4 x 2 stages"),
        ({"pipeline": 4, "embedding_blocks": 3, "head_blocks": 1}, "the embedding counts as 3 blocks"),
        ({"pipeline": 4, "head_blocks": 4}, "the head counts as 4 blocks, its chunk has 3"),
    ],
)
def test_too_few_blocks_are_refused(knobs: dict[str, int], what: str) -> None:
    estimate = estimate_of(FIVE, 4, 8)
    with pytest.raises(BadInput, match=what):
        Megatron(tensor=1, **knobs).place(estimate.model, estimate.cluster, 8, estimate)


def test_a_model_without_embedding_has_none_that_counts() -> None:
    estimate = estimate_of(dataclasses.replace(FIVE, vocabulary=0, positions=0), 4, 8)
    with pytest.raises(BadInput, match="neither embedding nor head"):
        Megatron(tensor=1, pipeline=2, head_blocks=1).place(estimate.model, estimate.cluster, 8, estimate)


def test_activations_held_at_once_are_those_of_the_schedule() -> None:
    """Two devices of two chunks, one block and two. The first warms up with three passes, F0.0 F1.0 F0.2, and
    holds most after F1.2 (1 + 1 + 2 + 2), before a backward pass of the second chunk frees two.
    """
    assert held_blocks([1, 2], 0, 2, 4) == 8 - 1
    assert held_blocks([3], 0, 4, 8) == 4 * 3
    assert held_blocks([3], 3, 4, 8) == 3


# --- closed forms
# -----------------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(
    st.sampled_from(["megatron-1.7b", "megatron-3.6b"]),
    st.sampled_from([1, 2]),
    st.sampled_from([2, 4, 8]),
    st.sampled_from([1, 2, 3, 4, 5]),
    st.sampled_from(["none", "selective", "blocks"]),
    st.sampled_from([0, 1]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([(0, 0), (1, 0), (1, 1), (0, 2)]),
)
def test_closed_forms_of_uneven_stages_agree_with_the_event_simulator(
    name: str,
    t: int,
    p: int,
    v: int,
    recompute: str,
    zero: int,
    gradients: bool,
    messages: bool,
    ends: tuple[int, int],
) -> None:
    """24 and 30 blocks, within three per cent for time, two for memory."""
    batch = 64
    assume(v * p <= 24 and (ends[1] < 2 or (2 < p * v <= 8 and p > 2)))
    layout = Degrees(t, p, v, 1, recompute=recompute, zero=zero, overlap_gradients=gradients)
    layout = dataclasses.replace(
        layout, overlap_messages=messages, embedding_blocks=ends[0], head_blocks=ends[1]
    )
    estimate = published(name, 16, batch)
    ours = Analytic(estimate, batch).figures(Columns.of([layout], 16))
    found = simulate(megatron_plan(estimate.model, estimate.cluster, batch, layout), estimate)
    assert ours.step_time[0] == pytest.approx(found.step_time, rel=0.03)
    assert ours.peak_memory[0] == pytest.approx(found.peak_memory, rel=0.02)


def test_the_search_takes_layers_that_do_not_divide() -> None:
    """Five blocks on eight devices: pipelines of 2 and 4, and two chunks of 1 and 2 blocks a device."""
    estimate, batch = estimate_of(FIVE, 8, 8), 8
    found = search(estimate, batch)
    shapes = set(zip(found.plans.pipeline.tolist(), found.plans.interleaved.tolist(), strict=True))
    assert shapes == {(1, 1), (2, 1), (2, 2), (4, 1)}
    best = float("inf")
    for index in range(len(found.plans)):
        if REASONS[int(found.reason[index])] in ("chosen", "slower than the incumbent"):
            plan = megatron_plan(estimate.model, estimate.cluster, batch, found.plans.layout(index))
            best = min(best, simulate(plan, estimate).step_time)
    chosen = megatron_plan(estimate.model, estimate.cluster, batch, found.best)
    assert simulate(chosen, estimate).step_time == pytest.approx(best, rel=0.02)


def test_the_rule_divides_layers_unevenly_where_no_equal_stages_fit() -> None:
    """405B on 1,024 devices: 126 blocks make one or two equal stages of those; four uneven ones fit."""
    roomy = published("llama3.1-405b", 1024, 512)
    cluster = {"nodes": 128, "devices_per_node": 8, "device": "a100-80g", "rails": 8}
    estimate = dataclasses.replace(roomy, cluster=resolve({"cluster": cluster}))
    policy = Megatron(recompute="blocks", sequence_parallel=True, zero=1)
    layout = policy.place(estimate.model, estimate.cluster, 512, estimate).notes["layout"]
    assert (layout["tensor"], layout["pipeline"]) == (8, 4)


@pytest.mark.parametrize("chunks", [2, 3, 5, 7])
def test_the_only_round_of_a_pipeline_hides_no_message_between_chunks(chunks: int) -> None:
    """30 blocks on four nodes of eight, as many micro-batches as devices: passes wait for messages."""
    estimate = published("megatron-3.6b", 32, 4)
    layout = Degrees(8, 4, chunks, 1)
    ours = Analytic(estimate, 4).figures(Columns.of([layout], 32))
    found = simulate(megatron_plan(estimate.model, estimate.cluster, 4, layout), estimate)
    assert ours.step_time[0] == pytest.approx(found.step_time, rel=0.015)


def test_a_device_that_waits_for_what_it_sends_loses_a_message_in_every_slot_that_sends() -> None:
    """175B on 64 A100, p=8 and v=12: one block a chunk. Messages that overlap cost almost nothing, those that
    do not 12 MiB a device each way in 24 slots of every micro-batch.
    """
    estimate = published("megatron-175b", 64, 64)
    beside, waiting = (
        simulate(
            megatron_plan(
                estimate.model,
                estimate.cluster,
                64,
                Degrees(8, 8, 12, 1, recompute="blocks", overlap_messages=overlap),
            ),
            estimate,
        ).step_time
        for overlap in (True, False)
    )
    message = 2048 * 12288 * 2 / 8 / (25e9 * 0.85)
    assert waiting - beside == pytest.approx(64 * 24 * message, rel=0.2)


def test_weights_of_a_devices_chunks_come_in_the_order_in_which_they_are_needed() -> None:
    """Gathers in pieces let sends between stages pass, not each other: the first chunk waits for its own."""
    short = Transformer("short", 8, 1024, 8, 128, 4096, 16, 8, vocabulary=512)
    estimate = estimate_of(short, 16, 16)
    layout = Degrees(4, 2, 4, 1, zero=1, overlap_gradients=True)
    built = Builder(megatron_plan(estimate.model, estimate.cluster, 16, layout), estimate).build()
    times = replay(built.graph)
    labels = zip(built.graph.label, built.graph.message, built.graph.seconds, strict=True)
    pieces = [s for label, m, s in labels if label == (0, 0) and m is not None and m.kind == "all_gather"]
    assert len(pieces) > 1
    assert times.start[built.first[Slot(FORWARD, 0, 0)]] == pytest.approx(sum(pieces))


@pytest.mark.parametrize(
    ("blocks", "pipeline", "head", "first"), [(80, 16, 1, 6), (80, 32, 1, 3), (32, 4, 2, 9), (16, 2, 4, 11)]
)
def test_a_block_that_crosses_a_stages_share_may_be_its_own(
    blocks: int, pipeline: int, head: int, first: int
) -> None:
    """As nanotron cuts (models/base.py): a stage ends behind the block whose cumulative cost is beyond it."""
    cost = (blocks + head) / pipeline
    ends = [int(cost * (stage + 1)) + 1 for stage in range(pipeline - 1)]
    expected = np.diff([0, *ends, blocks]).tolist()
    found = blocks_by_chunk(blocks, pipeline, 1, head=head, extra=1).ravel().tolist()
    assert found == expected and found[0] == first
