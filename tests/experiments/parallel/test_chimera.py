"""Chimera's ways to schedule more micro-batches than stages, and its search, against closed forms."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.core.errors import BadInput, Infeasible
from experiments.hardware import Hardware, Link
from experiments.parallel.interface import ParallelPlan, Slot, Worker, violations
from experiments.parallel.live.runner import refuse_simulated_only
from experiments.parallel.policies.chimera import Chimera
from experiments.parallel.policies.chimera.bidirectional import pass_groups
from experiments.parallel.policies.chimera.performance_model import (
    PassTimes,
    ReplayedPasses,
    all_reduce_seconds,
    exposed_seconds,
    replay_passes,
)
from experiments.parallel.simulator import StepSimulation, simulate
from experiments.workloads.layers import LayerGraph
from tests.experiments.parallel.builders import chain, cluster, estimate

NETWORK = Link("network", 1e3, 0.5, True, "test")


def carried_out(
    policy: Chimera, devices: int, batch: int, **layer: float
) -> tuple[ParallelPlan, StepSimulation]:
    model, hardware = chain(devices, **layer), cluster(1, devices)
    asked = estimate(model, hardware)
    plan = policy.place(model, hardware, batch, asked)
    assert violations(plan, model, hardware) == []
    return plan, simulate(plan, asked)


def peaks(found: StepSimulation) -> list[int]:
    return [usage.live_micro_batches for usage in found.memory]


@given(half=st.integers(1, 4), units=st.integers(1, 3))
@settings(max_examples=12, deadline=None)
def test_halving_and_doubling_leave_d_minus_2_slots_however_many_units(half: int, units: int) -> None:
    """F = 1, B = 2 a sample. Halves of two samples: F and half a B last 2. In direct concatenation every unit
    adds D-2 idle slots of F.
    """
    d = 2 * half
    n = units * d
    _, halved = carried_out(Chimera(micro_batches=n, scaling="backward_halving"), d, 2 * n)
    assert halved.step_time == pytest.approx(6 * n + 2 * (d - 2))
    _, plain = carried_out(Chimera(micro_batches=n), d, 2 * n)
    assert plain.step_time == pytest.approx(6 * n + 2 * (d - 2) * (units + 1))


@given(half=st.integers(1, 4), units=st.integers(1, 3))
@settings(max_examples=12, deadline=None)
def test_doubled_forwards_make_units_of_2d_micro_batches(half: int, units: int) -> None:
    """F = 1, B = 3 (recomputed): C_f = D + 2 (K - 1) passes of 2, C_b = (3D - 2) K of 3, K units of 2D."""
    d = 2 * half
    n = 2 * d * units
    plan, found = carried_out(Chimera(micro_batches=n, scaling="forward_doubling"), d, n, stash_bytes=8.0)
    assert plan.recompute == tuple(range(d))
    assert found.step_time == 2 * (d + 2 * (units - 1)) + 3 * (3 * d - 2) * units
    assert max(peaks(found)) <= 2 * d
    _, plain = carried_out(Chimera(micro_batches=n, recompute=True), d, n, stash_bytes=8.0)
    assert plain.step_time == d + 2 * (2 * units - 1) + 3 * (2 * d - 2) * 2 * units
    assert found.step_time <= plain.step_time


def test_an_odd_number_of_units_ends_with_a_plain_one() -> None:
    assert pass_groups(2, 6, "forward_doubling") == [(0, 1), (2, 3), (4,), (5,)]
    assert pass_groups(2, 3, "forward_doubling") == [(0,), (1,), (2,)]
    assert pass_groups(2, 4, "backward_halving") == [(0, 1), (2, 3)]
    _, found = carried_out(Chimera(micro_batches=6, scaling="forward_doubling"), 2, 6)
    assert found.step_time == 6 * 4


def test_two_micro_batches_that_go_forward_together_take_one_pass_and_one_message() -> None:
    """A pass of two takes 2 s, its message 2 x 500 bytes at 1e3 bytes/s and 0.5 s of latency once; a backward
    pass starts after both.
    """
    model, hardware = chain(2, output_bytes=500.0), cluster(1, 2, link=NETWORK)
    asked = estimate(model, hardware)
    plan = Chimera(micro_batches=4, scaling="forward_doubling").place(model, hardware, 4, asked)
    assert plan.joined == (1, 3)
    found = simulate(plan, asked)
    lane = {slot: (start, end) for start, end, slot in found.lanes[1].events}
    assert lane["F0.1"] == (3.5, 4.5)
    assert lane["F1.1"] == (4.5, 5.5)
    assert min(start for slot, (start, _) in lane.items() if slot.startswith("B")) >= 5.5


def test_replicas_of_a_doubled_pipeline_have_pairs_of_their_own() -> None:
    model, hardware = chain(2), cluster(1, 4)
    asked = estimate(model, hardware)
    plan = Chimera(stages=2, micro_batches=5, scaling="forward_doubling").place(model, hardware, 10, asked)
    assert plan.joined == (1, 3, 6, 8)
    assert violations(plan, model, hardware) == []
    assert ParallelPlan.from_json(plan.to_json()).joined == plan.joined


def test_a_joined_micro_batch_follows_its_partner() -> None:
    plan, _ = carried_out(Chimera(micro_batches=4, scaling="backward_halving"), 2, 8)
    moved = tuple(
        Worker(worker.devices, (*worker.slots[1:2], *worker.slots[:1], *worker.slots[2:]))
        for worker in plan.workers
    )
    said = violations(replace(plan, workers=moved), chain(2), cluster(1, 2))
    assert said[0] == "slot F1.0 does not follow the slot whose pass it shares, on worker 0"
    beyond = violations(replace(plan, joined=(8,)), chain(2), cluster(1, 2))
    assert "micro-batch 8 is joined to the one before, of 8" in beyond
    assert plan.workers[0].slots[:2] == (Slot("F", 0, 0), Slot("F", 1, 0))


def test_a_measured_run_of_doubled_forwards_is_refused() -> None:
    plan, _ = carried_out(Chimera(micro_batches=4, scaling="backward_halving"), 2, 8)
    with pytest.raises(BadInput, match="forward passes of several micro-batches"):
        refuse_simulated_only(plan)


# --- the model ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("depth", "forward", "backward"), [(2, 2, 2), (4, 4, 6), (6, 6, 10), (8, 8, 14)])
def test_the_longest_path_has_d_forward_and_2d_minus_2_backward_passes(
    depth: int, forward: int, backward: int
) -> None:
    """The paper's own example: C_f = 6 and C_b = 10 for D = N = 6."""
    groups = pass_groups(depth, depth, "concatenation")
    found = replay_passes(depth, groups, PassTimes((1000.0, 2000.0), 2001.0))
    assert found.span == forward * 1000 + backward * 2001


def test_rabenseifners_all_reduce() -> None:
    """Eight ranks: 2 x 3 latencies of 0.5 s, and 2 x 7/8 of 800 bytes at 1e3 bytes/s."""
    assert all_reduce_seconds(NETWORK, 8, 800.0) == pytest.approx(6 * 0.5 + 1.4)


def test_what_later_passes_hide_of_an_all_reduce_does_not_count() -> None:
    """Device 0 (stages 0 and 3) begins at 6, when stage 3 is done, and ends 2 s behind the passes; device 1
    ends before.
    """
    replayed = ReplayedPasses(10.0, (10.0, 7.0, 7.0, 6.0))
    assert exposed_seconds(replayed, [2.0, 1.0, 1.0, 2.0]) == 2.0
    assert exposed_seconds(replayed, [0.0, 1.0, 2.0, 1.0]) == 0.0


def searched(
    model: LayerGraph, hardware: Hardware, batch: int, **knobs: object
) -> tuple[ParallelPlan, StepSimulation]:
    asked = estimate(model, hardware)
    plan = Chimera(search=True, **knobs).place(model, hardware, batch, asked)  # type: ignore[arg-type]
    return plan, simulate(plan, asked)


def test_without_parameters_the_shallowest_pipeline_is_fastest() -> None:
    """Two stages have no bubble; what the model says is what the simulator finds."""
    plan, found = searched(chain(8), cluster(1, 8), 32)
    assert dict(plan.mesh) == {"pipeline": 2, "data": 4}
    assert plan.notes["configuration"] == "W=4, D=2, B=4"
    assert plan.notes["predicted_step_time"] == pytest.approx(found.step_time) == 8 * 3 * 32 / 8


def test_dear_all_reduces_make_the_pipeline_deep() -> None:
    """Eight layers of 10 kB: a pipeline of eight sums one stage's gradients between two replicas, one of two
    stages four times as many bytes among eight.
    """
    plan, _ = searched(chain(8, parameter_bytes=1e4), cluster(1, 8, link=NETWORK), 32)
    assert dict(plan.mesh)["pipeline"] == 8
    assert set(plan.notes["modeled_steps"]) == {"W=4, D=2, B=4", "W=2, D=4, B=4", "W=1, D=8, B=4"}


def test_the_largest_micro_batch_that_fits_is_taken_and_recomputation_only_where_nothing_fits() -> None:
    """A stage of four layers keeps 4 x 10 bytes a sample. Of B = 4, a device with two micro-batches keeps
    320 bytes.
    """
    model = chain(8, stash_bytes=10.0)
    plan, found = searched(model, cluster(1, 8, memory=320), 32, stages=2)
    assert (plan.notes["configuration"], found.peak_memory) == ("W=4, D=2, B=4", 320)
    plan, _ = searched(model, cluster(1, 8, memory=319), 32, stages=2)
    assert (plan.notes["configuration"], plan.recompute) == ("W=4, D=2, B=2", ())
    plan, _ = searched(model, cluster(1, 8, memory=79), 32, stages=2)
    assert plan.recompute == tuple(range(8))
    with pytest.raises(Infeasible, match="no depth has a micro-batch for every stage that fits"):
        searched(model, cluster(1, 8, memory=9), 32, stages=2)


def test_the_judge_is_the_model_unless_the_simulator_is_asked() -> None:
    model, hardware = chain(8, parameter_bytes=1e3), cluster(1, 8, link=NETWORK)
    plan, _ = searched(model, hardware, 32)
    assert plan.notes["simulated_steps"] == {}
    assert plan.notes["predicted_step_time"] == min(plan.notes["modeled_steps"].values())
    by_simulator, found = searched(model, hardware, 32, judge="simulator")
    assert found.step_time == min(by_simulator.notes["simulated_steps"].values())


def test_no_even_depth_divides_three_devices() -> None:
    with pytest.raises(BadInput, match="make no pipeline each way"):
        searched(chain(4), cluster(1, 3), 6)
