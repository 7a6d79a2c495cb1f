"""GPipe and 1F1B against their closed forms."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.core.errors import BadInput
from experiments.parallel.interface import ParallelPlan, PipelineSchedule, Slot, Worker, violations
from experiments.parallel.policies.gpipe import GPipe
from experiments.parallel.policies.one_f_one_b import OneForwardOneBackward
from experiments.parallel.simulator import Deadlock, StepSimulation, simulate
from experiments.workloads.layers import Handed
from tests.experiments.parallel.builders import chain, cluster, estimate

SCHEDULES = (GPipe, OneForwardOneBackward)


def carried_out(policy: PipelineSchedule, devices: int, batch: int, **layer: float) -> StepSimulation:
    model, hardware = chain(devices, **layer), cluster(1, devices)
    asked = estimate(model, hardware)
    return simulate(policy.place(model, hardware, batch, asked), asked)


@pytest.mark.parametrize(
    ("schedule", "peaks"), [(GPipe, [8, 8, 8, 8]), (OneForwardOneBackward, [4, 3, 2, 1])]
)
def test_four_stages_and_eight_micro_batches_span_33(
    schedule: type[PipelineSchedule], peaks: list[int]
) -> None:
    found = carried_out(schedule(), 4, 8, stash_bytes=10.0)
    assert found.step_time == 33
    assert found.bubble_fraction == pytest.approx(3 / 11, abs=1e-15)
    assert [usage.live_micro_batches for usage in found.memory] == peaks
    assert [usage.peak for usage in found.memory] == [10 * peak for peak in peaks]


@given(p=st.integers(1, 7), m=st.integers(1, 12), schedule=st.sampled_from(SCHEDULES))
@settings(max_examples=60)
def test_the_bubble_is_p_minus_1_over_m_plus_p_minus_1(
    p: int, m: int, schedule: type[PipelineSchedule]
) -> None:
    found = carried_out(schedule(micro_batches=m), p, m)
    assert found.bubble_fraction == pytest.approx((p - 1) / (m + p - 1))
    assert found.step_time == (m + p - 1) * 3
    deepest = [m] * p if schedule is GPipe else [min(p - stage, m) for stage in range(p)]
    assert [usage.live_micro_batches for usage in found.memory] == deepest


@given(
    costs=st.lists(st.integers(1, 9), min_size=2, max_size=5),
    m=st.integers(1, 6),
    schedule=st.sampled_from(SCHEDULES),
)
@settings(max_examples=40)
def test_no_step_is_shorter_than_its_busiest_device_or_its_longest_chain(
    costs: list[int], m: int, schedule: type[PipelineSchedule]
) -> None:
    model, hardware = chain(len(costs)), cluster(1, len(costs))
    for layer, cost in enumerate(costs):
        model.forward_seconds[layer] = model.backward_seconds[layer] = cost
    asked = estimate(model, hardware)
    found = simulate(schedule(micro_batches=m).place(model, hardware, m, asked), asked)
    assert found.step_time >= max(2 * m * max(costs), 2 * sum(costs))


def test_each_hop_of_a_filling_and_draining_pipeline_waits_for_its_message() -> None:
    """4 stages, 1 s per hop: the first micro-batch crosses 3 hops forward, the last one 3 back."""
    from experiments.hardware import Link

    model, hardware = (
        chain(4, output_bytes=1.0),
        cluster(1, 4, link=Link("slow", 1e30, 1.0, True, "test")),
    )
    asked = estimate(model, hardware)
    found = simulate(GPipe(micro_batches=1).place(model, hardware, 1, asked), asked)
    assert found.step_time == 12 + 6
    assert found.exposed_communication_time == 6
    assert found.communication_bytes == 2  # a middle stage sends its output forward and a gradient back


def test_recomputing_keeps_only_the_input_and_computes_forward_again() -> None:
    found = carried_out(GPipe(recompute=True), 4, 8, stash_bytes=10.0, output_bytes=1.0)
    assert found.step_time == (8 + 3) * (1 + 3)
    assert [usage.peak for usage in found.memory] == [10, 18, 18, 18]
    assert found.hfu / found.mfu == pytest.approx(4 / 3)


def test_what_only_later_stages_read_again_is_kept_there() -> None:
    """Of each layer's 10 bytes the next one alone reads 4 again, both of them 3, itself 3: 6 stay with their
    maker, and 7 come from the layer before. 1F1B on three devices holds 3, 2 and 1 micro-batches; the last
    layer's 4 are read by nobody else, so they stay.
    """
    handed = [
        Handed(layer, *rest) for layer in (0, 1) for rest in ((4.0, (layer + 1,)), (3.0, (layer, layer + 1)))
    ]
    model, hardware = replace(chain(3, stash_bytes=10.0), handed=tuple(handed)), cluster(1, 3)
    asked = estimate(model, hardware)
    plan = OneForwardOneBackward().place(model, hardware, 8, asked)
    assert [usage.peak for usage in simulate(plan, asked).memory] == [3 * 6, 2 * (6 + 7), 10 + 7]
    again = replace(plan, recompute=(1,))
    kept = [usage.peak for usage in simulate(again, asked).memory]
    assert kept == [
        3 * 6,
        6,
        10 + 7,
    ]  # a middle layer that is computed again keeps no input here: outputs move no bytes


def test_left_over_devices_replicate_the_pipeline() -> None:
    model, hardware = chain(4), cluster(1, 8)
    asked = estimate(model, hardware)
    plan = OneForwardOneBackward(stages=4).place(model, hardware, 16, asked)
    assert dict(plan.mesh) == {"pipeline": 4, "data": 2}
    assert plan.stages[1].workers == (2, 3)
    assert plan.workers[3].slots[0] == Slot("F", 8, 1)
    assert simulate(plan, asked).step_time == 33


def test_layers_are_cut_so_that_the_slowest_stage_is_fast() -> None:
    model, hardware = chain(5), cluster(1, 2)
    model.forward_seconds[:] = [4, 1, 1, 1, 1]
    model.backward_seconds[:] = 0
    plan = GPipe(micro_batches=1).place(model, hardware, 1, estimate(model, hardware))
    assert [(stage.begin, stage.end) for stage in plan.stages] == [(0, 1), (1, 5)]


def test_a_batch_that_does_not_divide_is_refused_with_the_figures() -> None:
    with pytest.raises(BadInput, match="9 samples do not divide into 8"):
        carried_out(GPipe(micro_batches=8), 4, 9)


def swapped(plan: ParallelPlan) -> ParallelPlan:
    """The first worker wants its first gradient before it sends the second forward that the last worker
    awaits.
    """
    from dataclasses import replace

    first = [Slot("F", 0, 0), Slot("B", 0, 0), Slot("F", 1, 0), Slot("B", 1, 0)]
    last = [Slot("F", 1, 1), Slot("B", 1, 1), Slot("F", 0, 1), Slot("B", 0, 1)]
    return replace(plan, workers=(Worker((0,), tuple(first)), Worker((1,), tuple(last))))


def test_a_deadlock_names_the_slot() -> None:
    model, hardware = chain(2), cluster(1, 2)
    asked = estimate(model, hardware)
    plan = swapped(GPipe(micro_batches=2).place(model, hardware, 2, asked))
    assert violations(plan, model, hardware) == []
    with pytest.raises(Deadlock, match=r"worker 0: .*slot B0.0 never starts"):
        simulate(plan, asked)


def test_a_plan_survives_json() -> None:
    model, hardware = chain(4), cluster(1, 8)
    plan = OneForwardOneBackward(stages=4, recompute=True).place(
        model, hardware, 16, estimate(model, hardware)
    )
    assert ParallelPlan.from_json(plan.to_json()) == plan


def test_weight_gradients_of_their_own_fill_the_drain() -> None:
    """Zero bubble's H1 rule on two stages: F=1, B=1, W=1, m=2 spans 3m + p - 1 = 7 (Qi et al. 2024, section
    2).
    """
    model, hardware = chain(2), cluster(1, 2)
    asked = estimate(model, hardware)
    orders = (["F0", "F1", "B0", "W0", "B1", "W1"], ["F0", "B0", "F1", "B1", "W0", "W1"])
    workers = tuple(
        Worker((stage,), tuple(Slot(text[0], int(text[1]), stage) for text in order))
        for stage, order in enumerate(orders)
    )
    from dataclasses import replace

    plan = replace(GPipe(micro_batches=2).place(model, hardware, 2, asked), workers=workers)
    assert violations(plan, model, hardware) == []
    assert simulate(plan, asked).step_time == 7
