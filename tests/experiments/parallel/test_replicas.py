"""Data parallelism and ZeRO: model states, volume, overlap, and what does not fit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.core.errors import ImpossiblePlan, Infeasible
from experiments.core.precision import state_bytes
from experiments.hardware import Link
from experiments.parallel.interface import (
    Collective,
    ParallelPlan,
    Sharding,
    Slot,
    Stage,
    Worker,
    violations,
)
from experiments.parallel.policies.data_parallel import DataParallel
from experiments.parallel.policies.zero import Zero
from experiments.parallel.simulator import simulate
from experiments.parallel.simulator.network import Network
from tests.experiments.parallel.builders import chain, cluster, estimate

BYTE_A_SECOND = Link("slow", 1.0, 0.0, True, "test")
ZERO_FIGURE_1 = [(0, 120.0), (1, 31.40625), (2, 16.640625), (3, 1.875)]


@pytest.mark.parametrize(("stage", "gigabytes"), ZERO_FIGURE_1)
def test_zero_divides_seven_and_a_half_billion_parameters_as_figure_1(stage: int, gigabytes: float) -> None:
    """Mixed-precision Adam is 2 + 2 + 12 bytes a parameter; 64 devices."""
    assert state_bytes("float16", "adam", "bf16-mixed").on_device(7.5e9, stage, 64) == gigabytes * 1e9
    model, hardware = chain(10, parameter_bytes=2 * 0.75e9), cluster(4, 16)
    asked = estimate(model, hardware, "float16")
    found = simulate(Zero(stage=stage).place(model, hardware, 64, asked), asked)
    assert {usage.persistent for usage in found.memory} == {gigabytes * 1e9}


@given(
    parameters=st.integers(1, 10**11),
    degree=st.integers(1, 1024),
    optimizer=st.sampled_from(["sgd", "momentum", "adam"]),
)
def test_a_higher_zero_stage_never_needs_more(parameters: int, degree: int, optimizer: str) -> None:
    states = state_bytes("bfloat16", optimizer, "bf16-mixed")
    sizes = [states.on_device(parameters, stage, degree) for stage in range(4)]
    assert sizes == sorted(sizes, reverse=True)
    if degree == 1:
        assert len(set(sizes)) == 1


@given(devices=st.integers(1, 9), stage=st.integers(0, 3), layers=st.integers(1, 5))
@settings(max_examples=40)
def test_each_device_sends_two_ring_passes_and_three_with_stage_3(
    devices: int, stage: int, layers: int
) -> None:
    model, hardware = chain(layers, parameter_bytes=100.0), cluster(1, devices)
    asked = estimate(model, hardware)
    found = simulate(Zero(stage=stage, bucket_bytes=150).place(model, hardware, devices, asked), asked)
    expected = (3 if stage == 3 else 2) * (devices - 1) / devices * 100 * layers
    assert found.communication_bytes == pytest.approx(expected)


def test_what_a_device_hands_over_is_told_by_kind() -> None:
    """Two layers of 100 bytes; stage 3 gathers them before forward and before backward of two
    micro-batches.
    """
    model, hardware = chain(2, parameter_bytes=100.0), cluster(1, 4)
    asked = estimate(model, hardware)
    expected = {
        0: {"all_reduce": 200.0},
        1: {"all_gather": 200.0, "reduce_scatter": 200.0},
        2: {"all_gather": 200.0, "reduce_scatter": 400.0},
        3: {"all_gather": 800.0, "reduce_scatter": 400.0},
    }
    for stage, by_kind in expected.items():
        found = simulate(Zero(stage=stage, micro_batches=2).place(model, hardware, 8, asked), asked)
        assert found.communication_by_kind == dict.fromkeys(range(4), by_kind)


def test_ring_all_reduce_takes_two_n_minus_one_over_n() -> None:
    message = Network(cluster(1, 4, link=BYTE_A_SECOND)).collective("all_reduce", range(4), 100.0)
    assert (message.seconds, message.sent) == (150.0, 150.0)


def test_buckets_hide_behind_the_rest_of_backward_and_the_last_one_does_not() -> None:
    """Two devices, three layers, F=1, B=2. 1-byte gradients at 1 byte/s: a bucket takes 2 * 1/2 * 1 = 1 s.

    Backward ends at 3 + 6 = 9 s; buckets are ready at 5, 7, 9 and end at 6, 8, 10: one second shows.
    """
    model = chain(3, parameter_bytes=1.0)
    hardware = cluster(1, 2, link=BYTE_A_SECOND)
    asked = estimate(model, hardware)
    found = simulate(DataParallel(bucket_bytes=1).place(model, hardware, 2, asked), asked)
    assert (found.step_time, found.exposed_communication_time, found.communication_time) == (10, 1, 3)
    whole = simulate(DataParallel(bucket_bytes=3).place(model, hardware, 2, asked), asked)
    assert (whole.step_time, whole.exposed_communication_time) == (12, 3)


def test_accumulated_micro_batches_reduce_once_but_from_stage_2_on_each_time() -> None:
    model, hardware = chain(2, parameter_bytes=8.0), cluster(1, 2)
    asked = estimate(model, hardware)

    def sent(stage: int) -> float:
        plan = Zero(stage=stage, micro_batches=3).place(model, hardware, 6, asked)
        return simulate(plan, asked).communication_bytes / 16 * 2

    assert [sent(stage) for stage in range(4)] == [2, 2, 3 + 1, 3 * 3]


def test_stage_3_computes_a_layer_only_after_its_weights_came() -> None:
    """One layer of 2 bytes on two devices at 1 byte/s: each gather takes 1 s and nothing hides the first.

    The second, for backward, is prefetched during the forward pass. 1 + 1 + 2, then 1 s to scatter gradients.
    """
    model = chain(1, parameter_bytes=2.0)
    hardware = cluster(1, 2, link=BYTE_A_SECOND)
    asked = estimate(model, hardware)
    found = simulate(Zero(stage=3).place(model, hardware, 2, asked), asked)
    assert found.step_time == 1 + 1 + 2 + 1


def test_gradients_of_two_buckets_exist_at_most_however_slow_the_network() -> None:
    """8 layers of 2 parameters (float32: 8 gradient bytes) on two devices, a bucket each; a reduction takes 4
    s.

    Adam leaves 16 bytes a parameter: weights 4, and half of 4 + 8 with stage 2, so 10 x 16 = 160 stay.
    """
    model = chain(8, parameter_bytes=8.0)
    hardware = cluster(1, 2, link=BYTE_A_SECOND)
    asked = estimate(model, hardware)
    found = simulate(Zero(stage=2, bucket_bytes=8).place(model, hardware, 2, asked), asked)
    assert found.memory[0].persistent == 160
    assert found.peak_memory == 160 + 2 * 8


def test_two_pipelines_share_a_network_link_one_after_the_other() -> None:
    """Two senders of node 0, two receivers of node 1, 5 bytes each at 1 byte/s: the second
    arrives at 1 + 10.
    """
    model = chain(2, output_bytes=5.0)
    hardware = cluster(2, 2, network=BYTE_A_SECOND)
    asked = estimate(model, hardware)
    orders = [[("F", b, s), ("B", b, s)] for s in range(2) for b in range(2)]
    plan = ParallelPlan(
        batch=2,
        micro_batches=2,
        mesh=(("pipeline", 2), ("data", 2)),
        stages=(Stage(0, 1, (0, 1)), Stage(1, 2, (2, 3))),
        workers=tuple(Worker((i,), tuple(Slot(*slot) for slot in order)) for i, order in enumerate(orders)),
    )
    found = simulate(plan, asked)
    assert found.lanes[2].events[0][:2] == (6, 7)
    assert found.lanes[3].events[0][:2] == (11, 12)


def test_a_model_that_does_not_fit_names_stage_device_and_missing_bytes() -> None:
    """10 parameters of 4 + 4 + 8 bytes need 160 of 100."""
    model, hardware = chain(1, parameter_bytes=40.0), cluster(1, 2, memory=100)
    asked = estimate(model, hardware)
    with pytest.raises(Infeasible, match=r"stage 0 on device 0 \(unit\): .*60 bytes missing") as caught:
        simulate(DataParallel().place(model, hardware, 2, asked), asked)
    assert caught.value.missing == 60
    model, hardware = chain(1, parameter_bytes=40.0), cluster(1, 2, memory=120)
    asked = estimate(model, hardware)
    fits = simulate(Zero(stage=1).place(model, hardware, 2, asked), asked)
    assert fits.memory[0].persistent == 120


def test_a_tensor_parallel_group_divides_work_and_waits_for_its_all_reduce() -> None:
    """F=1 and B=2 halved over two devices; each pass ends in an all-reduce of 4 bytes, 4 s at 1 byte/s."""
    model = chain(1, parameter_bytes=16.0)
    hardware = cluster(1, 2, link=BYTE_A_SECOND)
    asked = estimate(model, hardware)
    reduce = (Collective("all_reduce", 4.0),)
    plan = ParallelPlan(
        batch=1,
        micro_batches=1,
        mesh=(("tensor", 2),),
        stages=(Stage(0, 1, (0,)),),
        workers=(Worker((0, 1), (Slot("F", 0, 0), Slot("B", 0, 0))),),
        shardings=(Sharding(0, "column", 2, 2, 2, reduce, reduce),),
    )
    found = simulate(plan, asked)
    assert found.step_time == 0.5 + 4 + 1 + 4
    assert found.memory[0].persistent == 4 / 2 * 16
    assert ParallelPlan.from_json(plan.to_json()) == plan


def test_what_is_wrong_with_a_plan_is_said_in_words() -> None:
    model, hardware = chain(2), cluster(1, 2)
    plan = DataParallel().place(model, hardware, 2, estimate(model, hardware))
    assert violations(plan, model, hardware) == []
    assert violations(replace(plan, stages=(Stage(0, 1, (0, 1)),)), model, hardware) == [
        "the stages end at layer 1 of 2"
    ]
    assert violations(replace(plan, zero=4), model, hardware) == ["ZeRO stage 4 does not exist"]
    idle = replace(plan, workers=(plan.workers[0], Worker((1,), ())))
    assert violations(idle, model, hardware) == ["slot F1.0 is missing", "slot B1.0 is missing"]
    with pytest.raises(ImpossiblePlan, match=r"slot F1\.0 is missing"):
        simulate(idle, estimate(model, hardware))


@pytest.mark.parametrize(
    ("zero", "exchange", "rates", "seconds"),
    [
        (0, "beside", (), 2 + 4 + 1),
        (0, "between", (), 2 + 4 + 2),
        (0, "behind", (), 2 + 4 + 2),
        (0, "beside", (("all_reduce", 1.0),), 2 + 2 + 2 * 4),
        (1, "between", (("all_gather", 2.0),), 2 + 4 + 2 * 0.5 + 2 * 1.0),
        (3, "between", (), 2 + 4 + 4 * 0.5 + 2 * 0.5),
        (3, "between", (("all_gather", 2.0),), 2 + 4 + 4 * 1.0 + 2 * 0.5),
    ],
)
def test_a_runner_that_waits_computes_nothing_meanwhile(
    zero: int, exchange: str, rates: tuple[tuple[str, float], ...], seconds: float
) -> None:
    """Two layers of F=1 and B=2, each a bucket of four bytes: an all-reduce of it takes 1 s, a gather or a
    scatter half of that, unless the backend is slower at it. Overlapped with computation only the first
    layer's gradients are seen. An update that was measured takes as long as it did.
    """
    link = Link("slow", 4.0, 0.0, True, "test")
    kinds = tuple((kind, replace(link, bandwidth=rate)) for kind, rate in rates)
    hardware = replace(cluster(1, 2, link=link), collectives=kinds)
    model = chain(2, parameter_bytes=4.0)
    asked = replace(estimate(model, hardware), exchange=exchange)
    plan = Zero(stage=zero, bucket_bytes=1.0).place(model, hardware, 2, asked)
    assert simulate(plan, asked).step_time == seconds
    assert simulate(plan, replace(asked, updates=(0.25, 0.25))).step_time == seconds + 0.25
