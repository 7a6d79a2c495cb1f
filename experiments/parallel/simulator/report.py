"""What a replay says: times, shares, bytes, lanes.

Of each device's time in a step, ``busy`` is spent computing, ``bubble`` is idle time that the schedule has
even if messages took no time, and the rest is exposed communication: step_time = busy + bubble + exposed.
``bubble_fraction`` is the mean bubble of the devices over the step time, so that for equal stages and no
communication it is (p-1)/(m+p-1). Of the busy time ``recompute_time`` computes dropped activations again and
``update_time`` is the optimizer's; both are means over devices, as the others.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from experiments.core.progress import accompany
from experiments.parallel.interface import BACKWARD, Evaluation, Slot
from experiments.parallel.interface.exchanges import SUMMATION
from experiments.parallel.simulator.asynchrony import Asynchrony
from experiments.parallel.simulator.build import Builder
from experiments.parallel.simulator.memory import Usage
from experiments.parallel.simulator.network import Message
from experiments.parallel.simulator.tasks import TaskTimes


@dataclass(frozen=True)
class WorkerLane:
    """What a worker's devices do: ``(start, end, slot)``, with ``U.stage`` for an update of weights."""

    devices: tuple[int, ...]
    events: tuple[tuple[float, float, str], ...]

    def to_json(self) -> dict[str, Any]:
        return {"devices": list(self.devices), "events": [list(event) for event in self.events]}


@dataclass(frozen=True)
class StepSimulation:
    """One step. Times in seconds, sizes in bytes; lists have one entry for each worker unless said otherwise.

    ``communication_bytes`` is what the device that sends most sends, ``communication_time`` the time its
    messages take, hidden or not. ``communication_by_kind`` has for each of the plan's devices the bytes that
    it hands over in a step by kind (``send`` or a collective's, of which the whole vector counts).
    ``model_flops`` counts the step's FLOPs once, ``hardware_flops`` recomputed ones again.
    """

    step_time: float
    bubble_fraction: float
    bubble_by_worker: tuple[float, ...]
    exposed_communication_time: float
    communication_bytes: float
    communication_time: float
    communication_by_kind: Mapping[int, Mapping[str, float]]
    model_flops: float
    hardware_flops: float
    mfu: float
    hfu: float
    samples_per_second: float
    memory: tuple[Usage, ...]
    lanes: tuple[WorkerLane, ...]
    recompute_time: float = 0.0
    update_time: float = 0.0
    asynchrony: Asynchrony = field(default_factory=Asynchrony)

    @property
    def peak_memory(self) -> float:
        return max(usage.peak for usage in self.memory)

    @property
    def mean_peak_memory(self) -> float:
        """The mean over devices of their peak memory, in bytes."""
        counts = [len(lane.devices) for lane in self.lanes]
        peaks = (usage.peak * count for usage, count in zip(self.memory, counts, strict=True))
        return sum(peaks) / sum(counts)

    @property
    def evaluation(self) -> Evaluation:
        return Evaluation(
            self.step_time, self.peak_memory, self.bubble_fraction, self.exposed_communication_time
        )


def report(built: Builder, times: TaskTimes, free: TaskTimes, memory: list[Usage]) -> StepSimulation:
    """``free`` is the replay in which messages take no time."""
    span = _pace(built, times)
    lanes = accompany(range(len(built.plan.workers)), built.estimate.progress, 1)
    busy, without = _busy(built), _pace(built, free)
    bubbles = tuple((without - seconds) / span if span else 0.0 for seconds in busy)
    sent, seconds = _busiest_sender(built)
    model_flops, hardware_flops = _flops(built)
    peak = sum(built.estimate.devices[d].peak(built.estimate.dtype) for d in built.plan.devices) * span
    return StepSimulation(
        step_time=span,
        bubble_fraction=_mean_over_devices(built, bubbles),
        bubble_by_worker=bubbles,
        exposed_communication_time=max(0.0, span - without),
        communication_bytes=sent,
        communication_time=seconds,
        communication_by_kind=_by_kind(built),
        model_flops=model_flops,
        hardware_flops=hardware_flops,
        mfu=model_flops / peak if peak else 0.0,
        hfu=hardware_flops / peak if peak else 0.0,
        samples_per_second=built.plan.batch / span if span else 0.0,
        memory=tuple(memory),
        lanes=tuple(_lane(built, times, worker) for worker in lanes),
        recompute_time=_mean_over_devices(built, _recomputing(built)),
        update_time=_mean_over_devices(built, _updating(built)),
    )


def _mean_over_devices(built: Builder, by_worker: Sequence[float]) -> float:
    weights = [len(worker.devices) for worker in built.plan.workers]
    return sum(value * weight for value, weight in zip(by_worker, weights, strict=True)) / sum(weights)


def _pace(built: Builder, times: TaskTimes) -> float:
    """Seconds from step to step: those of all of it, or, where steps overlap, of the worker that is longest
    at it.
    """
    if not built.plan.overlapped:
        return times.span
    begun: dict[int, float] = {}
    ended: dict[int, float] = {}
    for owner, start, end in zip(built.graph.owner, times.start, times.end, strict=True):
        begun[owner] = min(start, begun.get(owner, start))
        ended[owner] = max(end, ended.get(owner, end))
    return max(ended[worker] - begun[worker] for worker in ended if worker >= 0)


def _busy(built: Builder) -> list[float]:
    busy = [0.0] * len(built.plan.workers)
    for lane, seconds in zip(built.graph.lane, built.graph.seconds, strict=True):
        if lane >= 0:
            busy[lane] += seconds
    return [busy[worker] for worker in built.stands_for]


def _recomputing(built: Builder) -> list[float]:
    """Seconds for which each worker computes again what its forward passes dropped."""
    seconds = [0.0] * len(built.plan.workers)
    for worker in set(built.stands_for) if built.figures.again.any() else ():
        for slot in built.plan.workers[worker].slots:
            if slot.kind == BACKWARD:
                stage = built.plan.stages[slot.stage]
                again = built.figures.recomputed_seconds(slot, range(stage.begin, stage.end))
                seconds[worker] += again * built.passes.slowdown[worker]
    return [seconds[worker] for worker in built.stands_for]


def _updating(built: Builder) -> list[float]:
    """Seconds of each worker's optimizer."""
    seconds = [0.0] * len(built.plan.workers)
    graph = built.graph
    for lane, label, taken in zip(graph.lane, graph.label, graph.seconds, strict=True):
        if lane >= 0 and isinstance(label, str) and label.startswith("U."):
            seconds[lane] += taken
    return [seconds[worker] for worker in built.stands_for]


def _sent_messages(built: Builder) -> list[tuple[Message, int]]:
    """Every message that was sent and how often."""
    times = Counter(id(message) for message in built.graph.message)
    distinct = {id(message): message for message in built.graph.message if message}
    return [(part, times[key]) for key, message in distinct.items() for part in message.parts or (message,)]


def _taking_part(built: Builder) -> tuple[int, ...]:
    """Devices that compute, and those that only serve."""
    return tuple(dict.fromkeys((*built.plan.devices, *built.plan.synchronization.servers)))


def _busiest_sender(built: Builder) -> tuple[float, float]:
    """Bytes and seconds of the messages of the device that sends most (the first of equals)."""
    sent = dict.fromkeys(_taking_part(built), 0.0)
    seconds = dict.fromkeys(sent, 0.0)
    for message, times in _sent_messages(built):
        for device in message.senders:
            sent[device] += message.sent * times
            seconds[device] += message.seconds * times
    _stand_in(built, sent)
    _stand_in(built, seconds)
    busiest = max(sent, key=lambda device: (sent[device], -device))
    return sent[busiest], seconds[busiest]


def _by_kind(built: Builder) -> dict[int, dict[str, float]]:
    found: dict[int, dict[str, float]] = {device: defaultdict(float) for device in _taking_part(built)}
    for message, times in _sent_messages(built):
        for device in message.senders:
            found[device][message.kind] += message.size * times
    _stand_in(built, found)
    return {device: dict(sorted(counts.items())) for device, counts in sorted(found.items())}


def _stand_in(built: Builder, by_device: dict[int, Any]) -> None:
    """Devices of a worker for which another stands have what those of the other have; what servers are sent
    and send is known for each device.
    """
    if built.plan.synchronization.kind == SUMMATION:
        return
    for worker, standing in enumerate(built.stands_for):
        if worker != standing:
            pairs = zip(built.plan.workers[worker].devices, built.plan.workers[standing].devices, strict=True)
            by_device.update({own: by_device[other] for own, other in pairs})


def _flops(built: Builder) -> tuple[float, float]:
    model, scale = built.estimate.model, built.plan.batch / built.estimate.model.batch
    again = float((model.forward_flops * built.figures.again).sum())
    return model.flops * scale, (model.flops + again) * scale


def _lane(built: Builder, times: TaskTimes, worker: int) -> WorkerLane:
    """What the worker that stands for this one did, by this one's slots."""
    acting = built.stands_for[worker]
    pairs = zip(built.plan.workers[worker].slots, built.plan.workers[acting].slots, strict=True)
    events = [(*_interval(built, times, slot), str(own)) for own, slot in pairs]
    updates = [
        (times.start[task], times.end[task], f"U.{stage}")
        for (stage, owner), task in sorted(built.updates.items())
        if owner == acting
    ]
    return WorkerLane(built.plan.workers[worker].devices, (*events, *updates))


def _interval(built: Builder, times: TaskTimes, slot: Slot) -> tuple[float, float]:
    """Start and end of a slot; micro-batches that share a forward pass are drawn with equal parts of it."""
    start, end = times.start[built.first[slot]], times.end[built.last[slot]]
    first = built.joint.first(slot)
    count = built.joint.count(first)
    if count == 1:
        return start, end
    part, number = (end - start) / count, slot.micro_batch - first.micro_batch
    return start + number * part, start + (number + 1) * part
