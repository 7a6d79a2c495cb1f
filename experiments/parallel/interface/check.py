"""``violations``: what makes a plan impossible to carry out, in words a user can act on."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from experiments.hardware import Hardware
from experiments.parallel.interface.exchanges import exchange_violations
from experiments.parallel.interface.joint_forwards import joint_order_violations, joint_violations
from experiments.parallel.interface.parameter_servers import server_violations
from experiments.parallel.interface.plan import (
    ALGORITHMS,
    BACKWARD,
    COLLECTIVE_KINDS,
    FORWARD,
    PER_STEP,
    PERIODS,
    SLOT_KINDS,
    WEIGHT,
    Collective,
    ParallelPlan,
    Sharding,
    Slot,
    Worker,
)
from experiments.parallel.interface.rewritten import rewritten_violations
from experiments.parallel.interface.slices import slice_order_violations, slice_violations
from experiments.parallel.interface.versions import version_violations
from experiments.workloads.layers import LayerGraph

ZERO_STAGES = (0, 1, 2, 3)


def violations(plan: ParallelPlan, model: LayerGraph, cluster: Hardware) -> list[str]:
    """Return all that is wrong with ``plan``; empty when it can be carried out.

    Whether it fits is the simulator's answer.
    """
    shape = [*_layers(plan, model), *_devices(plan, cluster), *_hosts(plan), *_figures(plan, model)]
    shape += [
        *rewritten_violations(plan.rewritten, model),
        *slice_violations(plan),
        *joint_violations(plan),
        *exchange_violations(plan, cluster),
        *server_violations(plan, cluster),
        *version_violations(plan),
        *_overlap(plan),
    ]
    orders = (*slice_order_violations(plan), *joint_order_violations(plan))
    return shape or [*_slots(plan), *orders, *_replicas(plan), *_collectives(plan)]


def _overlap(plan: ParallelPlan) -> Iterator[str]:
    if plan.overlapped and (plan.steps > 1 or plan.zero or plan.training is not None):
        yield (
            "steps overlap, but weights are gathered, or updated by a rule of their own, at the end of a step"
        )


def _layers(plan: ParallelPlan, model: LayerGraph) -> Iterator[str]:
    expected = 0
    for number, stage in enumerate(plan.stages):
        if stage.begin != expected or stage.end <= stage.begin:
            yield f"stage {number} holds layers {stage.begin} to {stage.end}, expected to begin at {expected}"
        expected = stage.end
    if expected != len(model):
        yield f"the stages end at layer {expected} of {len(model)}"


def _devices(plan: ParallelPlan, cluster: Hardware) -> Iterator[str]:
    for device, times in sorted(Counter(plan.devices).items()):
        if not 0 <= device < cluster.device_count:
            yield f"device {device} is not one of the cluster's {cluster.device_count}"
        if times > 1:
            yield f"device {device} belongs to {times} workers"
    for number, worker in enumerate(plan.workers):
        if not worker.devices:
            yield f"worker {number} has no device"


def _hosts(plan: ParallelPlan) -> Iterator[str]:
    for number, stage in enumerate(plan.stages):
        if not stage.workers:
            yield f"stage {number} has no worker"
        for worker in stage.workers:
            if not 0 <= worker < len(plan.workers):
                yield f"stage {number} names worker {worker} of {len(plan.workers)}"


def _figures(plan: ParallelPlan, model: LayerGraph) -> Iterator[str]:
    if plan.micro_batches < 1 or (not plan.slices and plan.batch % plan.micro_batches):
        yield f"{plan.batch} samples do not divide into {plan.micro_batches} micro-batches"
    if plan.steps < 1 or plan.batch % plan.steps:
        yield f"{plan.batch} samples do not divide into {plan.steps} steps"
    if plan.zero not in ZERO_STAGES:
        yield f"ZeRO stage {plan.zero} does not exist"
    kinds = ((stage, experts) for stage in plan.stages for experts in (False, True))
    if plan.zero_group and any(plan.degree(*kind) % plan.sharing(*kind) for kind in kinds):
        yield f"states are divided among {plan.zero_group} devices, which do not divide all that hold them"
    if plan.synchronization.algorithm not in ALGORITHMS:
        yield f"no all-reduce is called {plan.synchronization.algorithm!r}"
    yield from _recomputation_faults(plan, model)
    for sharding in plan.shardings:
        if not 0 <= sharding.layer < len(model):
            yield f"sharded layer {sharding.layer} is not one of {len(model)}"
        elif min(sharding.compute, sharding.parameters, sharding.activations) < 1:
            yield f"layer {sharding.layer} is divided into less than one part"
    for layer, times in Counter(sharding.layer for sharding in plan.shardings).items():
        if times > 1:
            yield f"layer {layer} is sharded {times} times"


def _recomputation_faults(plan: ParallelPlan, model: LayerGraph) -> Iterator[str]:
    for layer in plan.recompute:
        if not 0 <= layer < len(model):
            yield f"recomputed layer {layer} is not one of {len(model)}"
    for layer in sorted({*plan.checkpoints, *plan.saved} - set(plan.recompute)):
        yield f"layer {layer} is a checkpoint or saved but is not recomputed"


def _slots(plan: ParallelPlan) -> Iterator[str]:
    """Each micro-batch passes each stage once, on one worker that hosts it, forward first."""
    seen: dict[Slot, int] = {}
    hosts = [frozenset(stage.workers) for stage in plan.stages]
    for number, worker in enumerate(plan.workers):
        for slot in worker.slots:
            yield from _slot(plan, hosts, number, slot, seen)
            seen[slot] = number
    kinds = (FORWARD, BACKWARD, WEIGHT) if any(s.kind == WEIGHT for s in seen) else (FORWARD, BACKWARD)
    for stage in range(len(plan.stages)):
        for micro_batch in range(plan.micro_batches):
            slots = [Slot(kind, micro_batch, stage) for kind in kinds]
            yield from (f"slot {slot} is missing" for slot in slots if slot not in seen)


def _slot(
    plan: ParallelPlan, hosts: Sequence[frozenset[int]], worker: int, slot: Slot, seen: Mapping[Slot, int]
) -> Iterator[str]:
    if slot in seen:
        yield f"slot {slot} is executed twice"
    if slot.kind not in SLOT_KINDS or not 0 <= slot.micro_batch < plan.micro_batches:
        yield f"slot {slot} names an unknown kind or micro-batch"
    if not 0 <= slot.stage < len(hosts) or worker not in hosts[slot.stage]:
        yield f"slot {slot} is given to worker {worker}, which does not host its stage"
    if slot.kind in (BACKWARD, WEIGHT):
        before = Slot(FORWARD if slot.kind == BACKWARD else BACKWARD, slot.micro_batch, slot.stage)
        if seen.get(before) != worker:
            yield f"slot {slot} comes before {before} on worker {worker}"


def _replicas(plan: ParallelPlan) -> Iterator[str]:
    """Replicas exchange shards slot by slot from stage 2 on, so each must run as many slots as the others."""
    if plan.zero < 2:
        return
    for number, stage in enumerate(plan.stages):
        counts = {sum(s.stage == number for s in plan.workers[w].slots) for w in stage.workers}
        if len(counts) > 1:
            yield f"ZeRO stage {plan.zero} needs equally many slots on every replica of stage {number}"


def _collectives(plan: ParallelPlan) -> Iterator[str]:
    """Collectives of shardings that no worker of their stage could carry out."""
    hosts = {
        layer: [plan.workers[worker] for worker in stage.workers]
        for stage in plan.stages
        for layer in range(stage.begin, stage.end)
    }
    for sharding in plan.shardings:
        yield from _of_sharding(sharding, hosts[sharding.layer])


def _of_sharding(sharding: Sharding, hosts: list[Worker]) -> Iterator[str]:
    where = f"layer {sharding.layer}"
    for collective in dict.fromkeys((*sharding.forward, *sharding.backward)):
        yield from (f"{where}: {what}" for what in _of_collective(collective, hosts))
    if any(collective.per == PER_STEP for collective in sharding.forward):
        yield f"{where}: a collective once a step belongs to the backward pass, which completes gradients"


def _of_collective(collective: Collective, hosts: list[Worker]) -> Iterator[str]:
    name = f"the {collective.kind} of {collective.bytes:g} bytes"
    if collective.kind not in COLLECTIVE_KINDS:
        yield f"{name} is none of {', '.join(COLLECTIVE_KINDS)}"
    if collective.per not in PERIODS:
        yield f"{name} is per {collective.per!r}, not per {', '.join(PERIODS)}"
    if not 0 <= collective.bytes < math.inf:
        yield f"{name} has no finite size"
    if collective.parts < 1 or (collective.parts > 1 and not collective.overlap):
        yield (
            f"{name} is in {collective.parts} parts: a loop has at least one, next to its layer's computation"
        )
    if not 0 < collective.slowdown < math.inf:
        yield f"{name} lasts {collective.slowdown:g} times as long"
    if collective.ranks < 0 or collective.stride < 1:
        yield f"{name} is among {collective.ranks} ranks {collective.stride} apart"
        return
    for count in sorted({len(worker.devices) for worker in hosts}):
        block = (collective.ranks or count) * collective.stride
        if count % block:
            yield (
                f"{name} among {collective.ranks or count} ranks {collective.stride} apart "
                f"does not divide a worker of {count} devices"
            )
