"""Bytes on each device over a step: model states for the whole step, activations and gathered weights while
they live.

Where layers are known by their work, the device's allowances are added: what context and communicators hold,
and the share of activations that allocators lose. Not counted: workspace inside an op, communication buffers
beyond the buckets.
"""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from experiments.core.errors import Infeasible
from experiments.core.progress import accompany
from experiments.core.units import human
from experiments.parallel.interface import BACKWARD, FORWARD, ParallelPlan, Slot
from experiments.parallel.interface.engines import PLAIN, given_back
from experiments.parallel.simulator.buffers import absent_sums, buffer_bytes
from experiments.parallel.simulator.build import Builder
from experiments.parallel.simulator.tasks import TaskTimes


@dataclass(frozen=True)
class Usage:
    """The memory of a device of one worker over the step.

    ``persistent`` bytes of model states, total bytes from each of ``times`` on, and the most
    micro-batches whose activations were held at once, each counted for every stage that holds it.

    ``live_by_stage`` has the most that each single stage of the worker held.
    """

    persistent: float
    times: list[float]
    bytes: list[float]
    live_micro_batches: int
    live_by_stage: Mapping[int, int]

    @functools.cached_property
    def peak(self) -> float:
        return max(self.bytes)


#: Start and end of a slot.
Spans = Callable[[Slot], tuple[float, float]]


def refuse_too_large(builder: Builder) -> None:
    """``Infeasible`` as ``check_fits`` has it, before any task is made, where time does not matter.

    What ZeRO gathers for a while depends on it, and forward passes of several micro-batches are one.
    """
    plan = builder.plan
    if not plan.joined and (plan.zero < 2 or plan.engine != PLAIN):
        check_fits(builder, usages_by_order(builder))


def usages_by_order(builder: Builder) -> list[Usage]:
    """One for each worker, without ZeRO's gathered buckets.

    A worker's slots follow each other whatever they take, so what they hold is known from their order.
    """
    acting = accompany(sorted(set(builder.stands_for)), builder.estimate.progress, 1)
    found = {worker: _usage(builder, _in_order(builder.plan, worker), worker, []) for worker in acting}
    return [found[worker] for worker in builder.stands_for]


def _in_order(plan: ParallelPlan, worker: int) -> Spans:
    """Every slot as long as the others."""
    places = {slot: place for place, slot in enumerate(plan.workers[worker].slots)}
    return lambda slot: (places[slot], places[slot] + 1.0)


def usages(built: Builder, times: TaskTimes) -> list[Usage]:
    """One for each worker; its devices are alike."""
    held: list[list[tuple[float, float]]] = [[] for _ in built.plan.workers]
    for holding in built.holdings:
        held[holding.worker].append((times.start[holding.first], holding.bytes))
        held[holding.worker].append((times.end[holding.last], -holding.bytes))

    def spans(slot: Slot) -> tuple[float, float]:
        return times.start[built.first[slot]], times.end[built.last[slot]]

    acting = accompany(sorted(set(built.stands_for)), built.estimate.progress, 1)
    found = {worker: _usage(built, spans, worker, held[worker]) for worker in acting}
    return [found[worker] for worker in built.stands_for]


def _usage(built: Builder, spans: Spans, worker: int, changes: list[tuple[float, float]]) -> Usage:
    """What a micro-batch keeps is held from its F to the slot that completes its gradient, so to its W if it
    has one.
    """
    live: dict[int, list[tuple[float, float]]] = defaultdict(list)
    kept, recomputed = built.figures.kept_bytes, built.figures.recomputed_bytes
    for slot in built.plan.workers[worker].slots:
        start, end = spans(slot)
        portion = built.figures.portion(slot.micro_batch)
        stays, again = kept[slot.stage] * portion, recomputed[slot.stage] * portion
        if slot.kind == FORWARD:
            live[slot.stage].append((start, 1.0))
            scratch = built.figures.loss_scratch if slot.stage == len(built.plan.stages) - 1 else 0.0
            changes += [(start, stays), *([(start, scratch), (end, -scratch)] if scratch else [])]
        if slot.kind == BACKWARD and again:
            changes.append((start, again))
        if slot.kind == built.figures.gradient_kind:
            live[slot.stage].append((end, -1.0))
            changes += [(end, -stays), *([(end, -again)] if again else [])]
    persistent = persistent_bytes(built, worker)
    moments, totals = _running(changes)
    by_stage = {stage: _most(counts) for stage, counts in sorted(live.items())}
    together = _most(itertools.chain.from_iterable(live.values()))
    base, lost = persistent + built.estimate.reserved_bytes, 1 + built.estimate.fragmentation
    base -= absent_sums(built, worker)
    base += _buffer_bytes(built, worker, by_stage, base, max(totals) * lost)
    return Usage(persistent, moments, [base + total * lost for total in totals], together, by_stage)


def _most(counts: Iterable[tuple[float, float]]) -> int:
    return round(max(_running(counts)[1]))


def persistent_bytes(built: Builder, worker: int) -> float:
    """Weights, gradients and optimizer state of every stage that the worker hosts.

    The ZeRO stage divides them.
    """
    states, total = built.estimate.states, 0.0
    if built.plan.host_optimizer:
        states = states.with_optimizer_on_host(built.plan.zero)
    for number, stage in enumerate(built.plan.stages):
        if worker in stage.workers:
            for experts in (False, True):
                held = built.figures.stage_parameters(number, experts)
                total += states.on_device(held, built.plan.zero, built.plan.sharing(stage, experts))
            parameters = float(built.figures.parameters[number].sum())
            total += (stage.weight_versions - 1) * states.weight * parameters
    return total


def _buffer_bytes(
    built: Builder, worker: int, live: Mapping[int, int], others: float, activations: float
) -> float:
    """Of the engine, on top of ``others`` and ``activations``, less what an allocator gives back."""
    found = buffer_bytes(built, worker, live)
    capacity = min(built.estimate.devices[d].memory_bytes for d in built.plan.workers[worker].devices)
    return found - float(given_back(others + found + activations, capacity, found, activations))


def _running(changes: Iterable[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Running totals from time 0 on. At equal times what ends is freed before what starts is added."""
    ordered = sorted(changes)
    moments = [0.0, *(moment for moment, _ in ordered)]
    totals = np.cumsum([0.0, *(change for _, change in ordered)])
    return moments, totals.tolist()


def check_fits(built: Builder, found: list[Usage]) -> None:
    """``Infeasible`` for the device that lacks most: names its stages and the bytes that are missing."""
    lacking = []
    for worker, usage in enumerate(found):
        for device in built.plan.workers[worker].devices:
            capacity = built.estimate.devices[device].memory_bytes
            lacking.append((usage.peak - capacity, -worker, device, usage, capacity))
    missing, negative, device, usage, capacity = max(lacking, key=lambda row: row[:3])
    if missing > 0:
        hosted = [str(n) for n, stage in enumerate(built.plan.stages) if -negative in stage.workers]
        name = built.estimate.devices[device].name
        raise Infeasible(
            f"needs {human(usage.peak, 'bytes')} of {human(capacity, 'bytes')}, "
            f"{human(usage.persistent, 'bytes')} of it for model states: {missing:.0f} bytes missing",
            f"stage {', '.join(hosted)} on device {device} ({name})",
            missing,
        )
