"""Collectives among a worker's devices: groups, what their bytes count for, and what they overlap with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.hardware import Hardware, Link
from experiments.parallel.interface import Collective, ParallelPlan, Sharding, Slot, Stage, Worker, violations
from experiments.parallel.simulator import StepSimulation, simulate
from tests.experiments.parallel.builders import chain, cluster, estimate

BYTE_A_SECOND = Link("slow", 1.0, 0.0, True, "test")


def one_worker(
    devices: int, layers: int, shardings: tuple[Sharding, ...], micro_batches: int = 1
) -> ParallelPlan:
    """Micro-batches of two samples, forward and backward in turn, on one worker."""
    slots = tuple(Slot(kind, number, 0) for number in range(micro_batches) for kind in "FB")
    return ParallelPlan(
        batch=2 * micro_batches,
        micro_batches=micro_batches,
        mesh=(("tensor", devices),),
        stages=(Stage(0, layers, (0,)),),
        workers=(Worker(tuple(range(devices)), slots),),
        shardings=shardings,
    )


def run(plan: ParallelPlan, hardware: Hardware, layers: int) -> StepSimulation:
    """Layers of F=1 and B=2 a sample, 4 bytes of parameters each."""
    model = chain(layers, parameter_bytes=4.0)
    return simulate(plan, estimate(model, hardware))


def sharded(
    layer: int, forward: tuple[Collective, ...] = (), backward: tuple[Collective, ...] = ()
) -> Sharding:
    return Sharding(layer, "column", 1, 1, 1, forward, backward)


def test_groups_are_rows_or_columns_of_the_workers_mesh() -> None:
    devices = range(10, 18)
    assert Collective("permute", 1.0, ranks=4).groups(devices) == ((10, 11, 12, 13), (14, 15, 16, 17))
    assert Collective("permute", 1.0, ranks=2, stride=4).groups(devices) == (
        (10, 14),
        (11, 15),
        (12, 16),
        (13, 17),
    )
    assert Collective("permute", 1.0, ranks=2, stride=2).groups(devices)[:3] == (
        (10, 12),
        (11, 13),
        (14, 16),
    )
    assert Collective("permute", 1.0).groups(devices) == (tuple(devices),)


@pytest.mark.parametrize(
    ("collective", "seconds"),
    [
        (Collective("all_reduce", 4.0), 2 * 3 / 4 * 8),
        (Collective("all_reduce", 4.0, ranks=2), 2 * 1 / 2 * 8),
        (Collective("all_gather", 4.0, ranks=2, stride=2), 1 / 2 * 8),
        (Collective("permute", 4.0), 8),
        (Collective("permute", 4.0, per="pass"), 4),
        (Collective("broadcast", 4.0, ranks=2), 8),
        (Collective("broadcast", 4.0), 2 * 3 / 4 * 8),
        (Collective("all_to_all", 4.0, ranks=1), 0),
    ],
)
def test_a_pass_waits_for_its_collectives(collective: Collective, seconds: float) -> None:
    """Two samples: F=2, B=4; four devices at 1 byte/s. Groups inside a node do not disturb each other."""
    plan = one_worker(4, 1, (sharded(0, forward=(collective,)),))
    found = run(plan, cluster(1, 4, link=BYTE_A_SECOND), 1)
    assert found.step_time == 2 + seconds + 4
    assert ParallelPlan.from_json(plan.to_json()) == plan


def test_groups_across_nodes_share_each_nodes_network() -> None:
    """(0, 2) and (1, 3) on two nodes of two: both leave their node through one link, so each has
    half of it.
    """
    across = one_worker(4, 1, (sharded(0, (Collective("permute", 4.0, ranks=2, stride=2),)),))
    inside = one_worker(4, 1, (sharded(0, (Collective("permute", 4.0, ranks=2),)),))
    hardware = cluster(2, 2, network=BYTE_A_SECOND)
    assert run(across, hardware, 1).step_time == 2 + 2 * 8 + 4
    assert run(inside, hardware, 1).step_time == 2 + 4


def test_an_overlapping_collective_holds_up_what_comes_after_its_layer_only() -> None:
    """Three layers of F=2 (two samples). The middle one gathers 8 bytes while it computes: 4 s on two
    devices.

    Forward: 2 + max(2, 4) + 2; a blocking one would give 2 + 2 + 4 + 2. Backward 3 x 4.
    """
    hardware = cluster(1, 2, link=BYTE_A_SECOND)
    gather = Collective("all_gather", 4.0, overlap=True)
    assert run(one_worker(2, 3, (sharded(1, (gather,)),)), hardware, 3).step_time == 2 + 4 + 2 + 12
    blocking = replace(gather, overlap=False)
    assert run(one_worker(2, 3, (sharded(1, (blocking,)),)), hardware, 3).step_time == 2 + 2 + 4 + 2 + 12


def test_gradients_replicated_inside_a_worker_are_summed_once_a_step_beside_backward() -> None:
    """Two micro-batches, two layers a bucket each: B=4 a layer. 6 bytes take 6 s from the last gradient on.

    The last layer's sum starts at (4 + 8) + 4 + 4 = 20 and ends at 26, two seconds after backward at 24.
    """
    total = Collective("all_reduce", 6.0, per="step")
    plan = one_worker(2, 2, (sharded(1, backward=(total,)),), micro_batches=2)
    plan = replace(plan, synchronization=replace(plan.synchronization, bucket_bytes=1))
    found = run(plan, cluster(1, 2, link=BYTE_A_SECOND), 2)
    assert (found.step_time, found.communication_bytes) == (26, 6)


def test_gradients_of_a_bucket_travel_as_one_message() -> None:
    """Rings of two ranks: two messages of 10 s each, and a byte a second. Layers of 2 and 4 bytes together:
    20 + 6.
    """
    late = replace(BYTE_A_SECOND, latency=10.0)
    each = [Collective("all_reduce", size, per="step") for size in (2.0, 4.0)]
    plan = one_worker(2, 2, tuple(sharded(layer, backward=(one,)) for layer, one in enumerate(each)))
    found = run(plan, cluster(1, 2, link=late), 2)
    assert found.step_time == 4 + 8 + 20 + 6
    apart = replace(plan, synchronization=replace(plan.synchronization, bucket_bytes=1))
    assert run(apart, cluster(1, 2, link=late), 2).step_time > found.step_time


@pytest.mark.parametrize(
    ("collective", "complaint"),
    [
        (Collective("gossip", 1.0), "none of all_reduce, all_gather"),
        (Collective("all_reduce", 1.0, ranks=3), "3 ranks 1 apart does not divide a worker of 4 devices"),
        (Collective("all_reduce", 1.0, ranks=2, stride=4), "2 ranks 4 apart does not divide"),
        (Collective("all_reduce", 1.0, stride=0), "among 0 ranks 0 apart"),
        (Collective("all_reduce", 1.0, per="epoch"), "per 'epoch'"),
        (Collective("all_reduce", float("nan")), "no finite size"),
        (Collective("all_reduce", 1.0, per="step"), "once a step belongs to the backward pass"),
    ],
)
def test_what_no_worker_could_carry_out_is_named(collective: Collective, complaint: str) -> None:
    plan = one_worker(4, 1, (sharded(0, forward=(collective,)),))
    found = violations(plan, chain(1), cluster(1, 4))
    assert len(found) == 1 and complaint in found[0] and found[0].startswith("layer 0: ")
