"""Interleaved, zero-bubble and bidirectional pipelines against the closed forms and peaks of their papers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.core.errors import BadInput
from experiments.parallel.interface import BACKWARD, FORWARD, WEIGHT, PipelineSchedule, Slot, violations
from experiments.parallel.policies.chimera import Chimera
from experiments.parallel.policies.gpipe import GPipe
from experiments.parallel.policies.interleaved import Interleaved
from experiments.parallel.policies.one_f_one_b import OneForwardOneBackward
from experiments.parallel.policies.zero_bubble import ZeroBubble
from experiments.parallel.simulator import StepSimulation, simulate
from tests.experiments.parallel.builders import chain, cluster, estimate


def carried_out(
    policy: PipelineSchedule,
    devices: int,
    backward: float = 2.0,
    stash_bytes: float = 0.0,
    output_bytes: float = 0.0,
) -> StepSimulation:
    """One layer for each stage; a chunk takes F=1 and B=2 (I=W=1) unless said otherwise."""
    layers = len(policy.hosts(devices))
    model = chain(layers, backward=backward, stash_bytes=stash_bytes, output_bytes=output_bytes)
    hardware = cluster(1, devices)
    asked = estimate(model, hardware)
    plan = policy.place(model, hardware, policy.micro_batches, asked)
    assert violations(plan, model, hardware) == []
    return simulate(plan, asked)


def peaks(found: StepSimulation) -> list[int]:
    return [usage.live_micro_batches for usage in found.memory]


@pytest.mark.parametrize(
    ("policy", "span", "bubble", "live"),
    [
        (GPipe(micro_batches=8), 33, 3 / 11, [8, 8, 8, 8]),
        (OneForwardOneBackward(micro_batches=8), 33, 3 / 11, [4, 3, 2, 1]),
        (Interleaved(micro_batches=8), 57, 3 / 19, [11, 9, 7, 5]),
        (ZeroBubble(micro_batches=8, variant="h1"), 27, 1 / 9, [4, 4, 4, 4]),
        (ZeroBubble(micro_batches=8, variant="interleaved"), 51, 1 / 17, [8, 8, 8, 8]),
        (ZeroBubble(micro_batches=8, variant="v"), 51, 1 / 17, [8, 8, 8, 8]),
    ],
    ids=["gpipe", "1f1b", "interleaved", "zb-h1", "interleaved-zb", "zb-v"],
)
def test_four_devices_and_eight_micro_batches(
    policy: PipelineSchedule, span: float, bubble: float, live: list[int]
) -> None:
    """Spans of schedules with two chunks are in half-slots: a chunk is half of a stage, so 57 and 51 compare
    with 66.
    """
    found = carried_out(policy, 4, stash_bytes=10.0)
    assert found.step_time == span
    assert found.bubble_fraction == pytest.approx(bubble, abs=1e-15)
    assert peaks(found) == live
    assert [usage.peak for usage in found.memory] == [10 * most for most in live]


@pytest.mark.parametrize(
    ("devices", "equal", "twice", "live"),
    [(2, 4, 6, [2, 2]), (4, 10, 16, [3, 4, 4, 3]), (6, 16, 26, [4, 5, 6, 6, 5, 4])],
)
def test_a_unit_of_chimera(devices: int, equal: float, twice: float, live: list[int]) -> None:
    """N = D; ``equal`` with backward as long as forward, ``twice`` with backward twice as long."""
    policy = Chimera(micro_batches=devices)
    found = carried_out(policy, devices, backward=1.0)
    assert found.step_time == equal
    assert peaks(found) == live
    assert carried_out(policy, devices).step_time == twice


@given(half=st.integers(1, 4), units=st.integers(1, 4))
@settings(max_examples=16)
def test_chimeras_bubble_is_d_minus_2_over_2n_plus_d_minus_2(half: int, units: int) -> None:
    devices = 2 * half
    total = units * devices
    found = carried_out(Chimera(micro_batches=total), devices, backward=1.0)
    assert found.step_time == 2 * total + devices - 2
    assert found.bubble_fraction == pytest.approx((devices - 2) / (2 * total + devices - 2))
    assert all(half + 1 <= most <= devices for most in peaks(found))


def test_chimera_keeps_every_stage_twice_and_sums_their_gradients() -> None:
    """Two bytes a parameter of weights, as many of gradients, twelve of optimizer state; 4 parameters a
    stage.
    """
    model, hardware = chain(4, parameter_bytes=8.0), cluster(1, 4)
    asked = estimate(model, hardware, dtype="float16")
    plan = Chimera(micro_batches=4).place(model, hardware, 4, asked)
    assert [stage.workers for stage in plan.stages] == [(0, 3), (1, 2), (2, 1), (3, 0)]
    found = simulate(plan, asked)
    assert [usage.persistent for usage in found.memory] == [2 * 4 * 16] * 4
    assert found.communication_bytes == 2 * 8.0  # of two ranks each sends a vector once in a ring: two stages


@given(p=st.integers(1, 5), rounds=st.integers(1, 3), v=st.integers(2, 4))
@settings(max_examples=30)
def test_interleaving_divides_the_bubble_by_the_chunks(p: int, rounds: int, v: int) -> None:
    m = rounds * p
    found = carried_out(Interleaved(micro_batches=m, chunks=v), p)
    assert found.step_time == 3 * (v * m + p - 1)
    assert found.bubble_fraction == pytest.approx((p - 1) / (v * m + p - 1))
    assert peaks(found) == [min(2 * (p - 1 - d) + (v - 1) * p + 1, v * m) for d in range(p)]


def test_one_chunk_is_plain_1f1b() -> None:
    found = carried_out(Interleaved(micro_batches=8, chunks=1), 4)
    assert (found.step_time, peaks(found)) == (33, [4, 3, 2, 1])


@given(p=st.integers(1, 5), m=st.integers(1, 12))
@settings(max_examples=40)
def test_zb_h1_has_a_third_of_the_bubble_in_1f1bs_memory(p: int, m: int) -> None:
    found = carried_out(ZeroBubble(micro_batches=m), p)
    assert max(peaks(found)) <= min(p, m)
    if m >= p:
        assert found.step_time == 3 * m + p - 1
    assert found.step_time <= 3 * (m + p - 1)


@given(p=st.integers(1, 5), rounds=st.integers(1, 3), v=st.integers(1, 4))
@settings(max_examples=30)
def test_interleaved_zero_bubble_is_late_by_its_filling_alone(p: int, rounds: int, v: int) -> None:
    m = rounds * p
    found = carried_out(ZeroBubble(variant="interleaved", micro_batches=m, chunks=v), p)
    assert found.step_time == 3 * v * m + p - 1
    assert peaks(found) == [v * p] * p


@given(p=st.integers(1, 5), m=st.integers(1, 14))
@settings(max_examples=40)
def test_zb_v_has_no_gap_in_1f1bs_memory(p: int, m: int) -> None:
    """Two chunks, so p whole micro-batches are 2p passes. Fewer micro-batches than 2p-1 leave
    gaps but run.
    """
    found = carried_out(ZeroBubble(variant="v", micro_batches=m), p)
    assert max(peaks(found)) <= 2 * p
    assert found.step_time >= 6 * m
    if m >= 2 * p - 1:
        assert found.step_time == 6 * m + p - 1


@given(p=st.integers(1, 6), more=st.integers(0, 5))
@settings(max_examples=12, deadline=None)
def test_zb_h2_has_no_gap_across_steps_in_twice_the_memory(p: int, more: int) -> None:
    """(p-1)(F+B-2W) is nothing for equal passes; 2p-1 micro-batches are live on every device."""
    m = 2 * p - 1 + more
    found = carried_out(ZeroBubble(variant="h2", micro_batches=m), p)
    assert (found.step_time, found.bubble_fraction) == (3 * m, 0.0)
    assert peaks(found) == [2 * p - 1] * p


@given(
    forward=st.lists(st.integers(1, 4), min_size=2, max_size=2),
    backward=st.lists(st.integers(1, 8), min_size=2, max_size=2),
    live=st.integers(2, 3),
)
@settings(max_examples=10, deadline=None)
def test_the_automatic_order_is_as_fast_as_the_best_of_all(
    forward: list[int], backward: list[int], live: int
) -> None:
    """Two devices, three micro-batches, unequal stages: all pairs of orders that keep within the memory are
    tried.
    """
    columns = {"forward_seconds": np.array(forward, float), "backward_seconds": np.array(backward, float)}
    model, hardware = replace(chain(2), **columns), cluster(1, 2)
    asked = estimate(model, hardware)
    plan = ZeroBubble(variant="automatic", micro_batches=3, memory=live / 2).place(model, hardware, 3, asked)
    assert violations(plan, model, hardware) == []
    found = simulate(plan, asked)
    assert max(peaks(found)) <= live
    seconds = {
        (kind, stage): share * (forward if kind == FORWARD else backward)[stage]
        for kind, share in ((FORWARD, 1.0), (BACKWARD, 0.5), (WEIGHT, 0.5))
        for stage in range(2)
    }
    every = itertools.product(*(all_orders(stage, 3, live) for stage in range(2)))
    assert found.step_time == min(longest_device(pair, seconds) for pair in every)


def all_orders(stage: int, micro_batches: int, live: int) -> list[tuple[Slot, ...]]:
    """Each kind in the order of micro-batches, F before B before W of each, at most ``live``
    between F and W.
    """
    kinds = (FORWARD, BACKWARD, WEIGHT)

    def longer(done: tuple[int, ...], so_far: tuple[Slot, ...]) -> Iterator[tuple[Slot, ...]]:
        if done[-1] == micro_batches:
            yield so_far
        for place, kind in enumerate(kinds):
            due = done[place] < (done[place - 1] if place else min(micro_batches, done[-1] + live))
            if due:
                after = (*done[:place], done[place] + 1, *done[place + 1 :])
                yield from longer(after, (*so_far, Slot(kind, done[place], stage)))

    return list(longer((0, 0, 0), ()))


def longest_device(orders: tuple[tuple[Slot, ...], ...], seconds: dict[tuple[str, int], float]) -> float:
    """From the first slot to the last of the device that is longest at it; infinite where they wait for each
    other.
    """
    ended: dict[Slot, float] = {}
    spans: list[tuple[float, float]] = [(math.inf, 0.0), (math.inf, 0.0)]
    waiting = [list(order) for order in orders]
    while any(waiting):
        ready = [rest for rest in waiting if rest and all(before in ended for before in needed(rest[0]))]
        if not ready:
            return math.inf
        slot = ready[0].pop(0)
        begin = max([spans[slot.stage][1], *(ended[before] for before in needed(slot))])
        ended[slot] = begin + seconds[slot.kind, slot.stage]
        spans[slot.stage] = (min(spans[slot.stage][0], begin), ended[slot])
    return max(end - begin for begin, end in spans)


def needed(slot: Slot) -> list[Slot]:
    """What two stages hand to each other."""
    if slot.kind == FORWARD:
        return [slot._replace(stage=0)] if slot.stage else []
    if slot.kind == BACKWARD:
        return [slot._replace(kind=FORWARD) if slot.stage else slot._replace(stage=1)]
    return []


def test_a_weight_gradient_that_walks_the_graph_again_takes_the_input_gradients_time_once_more() -> None:
    """F, B and W of one second each, four micro-batches on one device."""
    model, hardware = chain(1), cluster(1, 1)
    asked = estimate(model, hardware)
    plan = ZeroBubble(micro_batches=4).place(model, hardware, 4, asked)
    assert simulate(plan, asked).step_time == 4 * (1 + 1 + 1)
    assert simulate(plan, replace(asked, walks_again=True)).step_time == 4 * (1 + 1 + 2)


def test_the_loss_of_zb_v_turns_round_on_one_device() -> None:
    model, hardware = chain(8, output_bytes=1.0), cluster(1, 4)
    asked = estimate(model, hardware)
    plan = ZeroBubble(micro_batches=8, variant="v").place(model, hardware, 8, asked)
    assert [stage.workers for stage in plan.stages] == [(0,), (1,), (2,), (3,), (3,), (2,), (1,), (0,)]
    assert simulate(plan, asked).communication_bytes == 8 * 4  # both ways on both chunks of a middle device


def test_live_micro_batches_are_told_by_chunk() -> None:
    """All 8 are in the first chunk before the first gradient is back there; in the second never more than a
    round.
    """
    found = carried_out(Interleaved(micro_batches=8), 4)
    assert found.memory[0].live_by_stage == {0: 8, 4: 4}


def test_what_was_recomputed_for_a_split_backward_is_kept_until_its_weight_gradient() -> None:
    """One stage, F=1, I=1+1 recomputed, W=1; two micro-batches keep 1 byte of input only where there is one
    before.
    """
    whole = carried_out(ZeroBubble(micro_batches=1, recompute=True), 2, stash_bytes=10.0, output_bytes=1.0)
    assert [usage.peak for usage in whole.memory] == [10, 11]
    last = whole.memory[1]
    assert [at for at, held in zip(last.times, last.bytes, strict=True) if held == 11] == [2]


@pytest.mark.parametrize(
    ("policy", "devices", "reason"),
    [
        (Interleaved(micro_batches=6), 4, "6 micro-batches do not make whole rounds over 4 devices"),
        (ZeroBubble(variant="interleaved", micro_batches=6), 4, "6 micro-batches do not make whole rounds"),
        (Chimera(micro_batches=8), 3, "3 devices cannot hold a pipeline each way"),
    ],
)
def test_what_a_schedule_cannot_order_is_refused(policy: PipelineSchedule, devices: int, reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        carried_out(policy, devices)


def test_left_over_devices_replicate_a_pipeline_of_chunks() -> None:
    model, hardware = chain(4), cluster(1, 4)
    asked = estimate(model, hardware)
    plan = Interleaved(stages=2, micro_batches=2).place(model, hardware, 4, asked)
    assert [stage.workers for stage in plan.stages] == [(0, 1), (2, 3), (0, 1), (2, 3)]
    assert violations(plan, model, hardware) == []
    assert simulate(plan, asked).step_time == 15  # (p, m, v) = (2, 2, 2)
