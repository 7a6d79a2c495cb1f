"""The messages of a replay, one by one and added up: what a run's page and trace draw next to the slots."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.core.progress import accompany
from experiments.parallel.interface import Slot
from experiments.parallel.simulator.build import Builder
from experiments.parallel.simulator.network import Message
from experiments.parallel.simulator.tasks import LOOKS, TaskTimes


@dataclass(frozen=True)
class NetworkTransfer:
    """A message on its way from ``start`` to ``end`` (seconds).

    ``workers`` send (all that take part in a collective), ``target`` receives (-1 for a collective).
    ``bytes`` is what each of ``senders`` devices hands over; ``about`` the slot, or the stage and bucket,
    that it belongs to. ``times`` is how many there are like it: those of workers for which others stand are
    not listed.
    """

    kind: str
    about: str
    start: float
    end: float
    workers: tuple[int, ...]
    target: int
    bytes: float
    senders: int
    between_nodes: bool
    times: int = 1

    @property
    def everybody(self) -> tuple[int, ...]:
        return self.workers if self.target < 0 else (*self.workers, self.target)


@dataclass(frozen=True)
class _Way:
    """What all transfers of one message have in common; see ``NetworkTransfer``."""

    workers: tuple[int, ...]
    bytes: float
    senders: int
    between_nodes: bool
    times: int


def transfers(built: Builder, times: TaskTimes) -> list[NetworkTransfer]:
    """Every message, in the order of their starts; several in a row as one, as they were replayed."""
    ways = _ways(built)
    rows = zip(built.graph.label, built.graph.message, times.start, times.end, strict=True)
    found = [
        _transfer(built, ways[id(message)], label, message.kind, start, end)
        for label, message, start, end in accompany(rows, built.estimate.progress, LOOKS)
        if message is not None
    ]
    return sorted(found, key=lambda one: (one.start, one.end, one.about))


def _ways(built: Builder) -> dict[int, _Way]:
    """Of each message; one that is sent many times is looked at once."""
    worker_of = {device: w for w, worker in enumerate(built.plan.workers) for device in worker.devices}
    times_of = Counter(built.stands_for)
    distinct = {id(message): message for message in built.graph.message if message is not None}
    return {key: _way(built, worker_of, times_of, message) for key, message in distinct.items()}


def _way(built: Builder, worker_of: Mapping[int, int], times_of: Mapping[int, int], message: Message) -> _Way:
    workers = tuple(dict.fromkeys(worker_of[device] for device in message.senders if device in worker_of))
    crossed = (*message.channels, *(channel for channel, _ in message.shares))
    far = max(crossed, default=0) >= built.network.topology.adapters
    size = sum(part.size for part in message.parts or (message,))
    times = min((times_of[worker] for worker in workers), default=1) or 1
    return _Way(workers, size, len(message.senders), far, times)


def _transfer(
    built: Builder, way: _Way, label: object, kind: str, start: float, end: float
) -> NetworkTransfer:
    target, about = -1, _spell(label)
    if isinstance(label, tuple) and isinstance(label[0], Slot):  # from a stage to the next
        before, stage = label
        about, target = f"{before} to stage {stage}", built.worker_of[before._replace(stage=stage)]
    return NetworkTransfer(
        kind, about, start, end, way.workers, target, way.bytes, way.senders, way.between_nodes, way.times
    )


def _spell(label: object) -> str:
    """``F3.0`` for a slot; ``stage 2, bucket 0`` for gradients or weights of replicas."""
    if isinstance(label, tuple) and not isinstance(label, Slot):
        return ", ".join(f"{name} {number}" for name, number in zip(("stage", "bucket"), label, strict=False))
    return str(label)


def totals(found: Iterable[NetworkTransfer]) -> list[dict[str, Any]]:
    """Messages, bytes (those of all senders) and seconds by kind and way, most seconds first."""
    sums: dict[tuple[str, bool], list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    for one in found:
        row = sums[one.kind, one.between_nodes]
        row[0] += one.times
        row[1] += one.times * one.bytes * one.senders
        row[2] += one.times * (one.end - one.start)
    ordered = sorted(sums.items(), key=lambda item: (-item[1][2], item[0]))
    return [
        {
            "kind": kind,
            "way": "between nodes" if far else "inside nodes",
            "messages": int(count),
            "bytes": size,
            "seconds": seconds,
        }
        for (kind, far), (count, size, seconds) in ordered
    ]


def columns(found: Sequence[NetworkTransfer], lanes: Iterable[int], most: int) -> dict[str, Any]:
    """Return the messages of the workers whose ``lanes`` are kept, as columns.

    The longest where there are more than ``most``.
    """
    kept = set(lanes)
    own = [one for one in found if kept.intersection(one.everybody)]
    longest = sorted(own, key=lambda one: one.start - one.end)[:most]
    shown = sorted(longest, key=lambda one: (one.start, one.end, one.about))
    return {
        "of": sum(one.times for one in found),
        "kind": [one.kind for one in shown],
        "about": [one.about for one in shown],
        "start": [one.start for one in shown],
        "end": [one.end for one in shown],
        "workers": [[w for w in one.workers if w in kept] for one in shown],
        "target": [one.target for one in shown],
        "bytes": [one.bytes for one in shown],
        "between_nodes": [one.between_nodes for one in shown],
    }
