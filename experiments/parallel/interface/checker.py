"""``violations``: what makes a plan impossible to carry out, in words a user can act on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from experiments.hardware import Hardware
from experiments.parallel.interface.plan import BACKWARD, FORWARD, SLOT_KINDS, WEIGHT, ParallelPlan, Slot
from experiments.parallel.interface.slices import slice_order_violations, slice_violations
from experiments.parallel.interface.states import ZERO_STAGES
from experiments.workloads.layers import LayerGraph


def violations(plan: ParallelPlan, model: LayerGraph, cluster: Hardware) -> list[str]:
    """All that is wrong with ``plan``; empty when it can be carried out (whether it fits is the simulator's answer)."""
    shape = [*_layers(plan, model), *_devices(plan, cluster), *_hosts(plan), *_figures(plan, model)]
    shape += slice_violations(plan)
    return shape or [*_slots(plan), *slice_order_violations(plan), *_replicas(plan)]


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
    for layer in plan.recompute:
        if not 0 <= layer < len(model):
            yield f"recomputed layer {layer} is not one of {len(model)}"
    for sharding in plan.shardings:
        if not 0 <= sharding.layer < len(model):
            yield f"sharded layer {sharding.layer} is not one of {len(model)}"
        elif min(sharding.compute, sharding.parameters, sharding.activations) < 1:
            yield f"layer {sharding.layer} is divided into less than one part"


def _slots(plan: ParallelPlan) -> Iterator[str]:
    """Each micro-batch passes each stage once, on one worker that hosts it, forward first."""
    seen: dict[Slot, int] = {}
    for number, worker in enumerate(plan.workers):
        for slot in worker.slots:
            yield from _slot(plan, number, slot, seen)
            seen[slot] = number
    kinds = (FORWARD, BACKWARD, WEIGHT) if any(s.kind == WEIGHT for s in seen) else (FORWARD, BACKWARD)
    for stage in range(len(plan.stages)):
        for micro_batch in range(plan.micro_batches):
            slots = [Slot(kind, micro_batch, stage) for kind in kinds]
            yield from (f"slot {slot} is missing" for slot in slots if slot not in seen)


def _slot(plan: ParallelPlan, worker: int, slot: Slot, seen: dict[Slot, int]) -> Iterator[str]:
    if slot in seen:
        yield f"slot {slot} is executed twice"
    if slot.kind not in SLOT_KINDS or not 0 <= slot.micro_batch < plan.micro_batches:
        yield f"slot {slot} names an unknown kind or micro-batch"
    if not 0 <= slot.stage < len(plan.stages) or worker not in plan.stages[slot.stage].workers:
        yield f"slot {slot} is given to worker {worker}, which does not host its stage"
    if slot.kind in (BACKWARD, WEIGHT):
        before = slot._replace(kind=FORWARD if slot.kind == BACKWARD else BACKWARD)
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
