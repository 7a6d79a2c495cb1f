"""From ``[memory]`` events to allocations with lifetimes in ops, and the scratch that each op used inside
itself.

An allocation is born at the op that was running (between ops: at the next one) and dies after the last op
that had started when it was freed. What is born and dies at the same op is that op's workspace: the most of
it at once counts.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from experiments.readers.kineto_events import MemoryEvent, Trace
from experiments.readers.kineto_ops import Op, Window
from experiments.workloads.ragged import Ints

#: CUDA's allocator hands out multiples of this many bytes, and reports those.
GRANULE = 512
CPU = 0


@dataclass(eq=False)
class Storage:
    """One allocation.

    ``born`` -1: before the step; ``died`` ``None``: never freed in it. ``uses``: ops known to touch it;
    ``shape`` is empty until an op shows it.
    """

    bytes: int
    born: int
    died: int | None
    kind: str = "temporary"
    name: str = ""
    shape: tuple[int, ...] = ()
    dtype: str = ""
    uses: list[int] = field(default_factory=list)
    inferred: bool = False

    @property
    def last(self) -> int:
        return self.uses[-1] if self.uses else self.born

    def touch(self, op: int, shape: tuple[int, ...] = (), dtype: str = "") -> None:
        self.uses.append(op)
        self.shape = self.shape or shape
        self.dtype = self.dtype or dtype

    def lives_at(self, op: int) -> bool:
        return self.born <= op and (self.died is None or op <= self.died)


@dataclass(frozen=True)
class Memory:
    """The allocations of a step.

    ``before`` and ``peak`` are the allocator's own count at the start of the step and at its highest;
    ``frees`` how many frees had no allocation in the trace. ``granule``: sizes are rounded up to it.
    """

    storages: tuple[Storage, ...]
    workspace: Ints
    device: tuple[int, int]
    before: int
    peak: int
    frees: int
    granule: int

    def size_of(self, size: int) -> int:
        """``size`` bytes as the allocator reports them."""
        return -(-size // self.granule) * self.granule


def device_of(trace: Trace) -> tuple[int, int] | None:
    """The device on which the step's tensors are resident.

    It is the accelerator with the most bytes allocated, if there are kernels; else the CPU.
    """
    totals: dict[tuple[int, int], int] = {}
    for event in trace.memory:
        totals[event.device] = totals.get(event.device, 0) + max(event.bytes, 0)
    off_host = {device: total for device, total in totals.items() if device[0] != CPU}
    choices = off_host if off_host and trace.kernels else totals
    return max(sorted(choices), key=lambda device: choices[device]) if choices else None


def remember(trace: Trace, ops: Sequence[Op], part: Window) -> Memory | None:
    """The allocations of the step on its device; ``None`` where the trace has no memory events."""
    device = device_of(trace)
    if device is None:
        return None
    events = [event for event in trace.memory if event.device == device and event.time <= part.end]
    places = _Places(ops)
    storages: list[Storage] = []
    times: dict[int, tuple[float, float]] = {}
    live: dict[int, tuple[Storage, float]] = {}
    frees = 0
    for event in events:
        if event.bytes > 0:
            storage = Storage(event.bytes, places.birth(event, part), None)
            storages.append(storage)
            live[event.address] = (storage, event.time)
            continue
        op = places.find_last_started(event) if event.time >= part.start else -2
        if event.address in live:
            storage, start = live.pop(event.address)
            storage.died = op
            times[id(storage)] = (start, event.time)
        elif event.bytes < 0 and op >= 0:
            frees += 1
            storages.append(Storage(-event.bytes, -1, op))
    lasting, brief = _split(storages)
    inside = [event for event in events if event.time >= part.start]
    before = inside[0].total - inside[0].bytes if inside else 0
    peak = max((event.total for event in inside), default=0)
    workspace = _workspace(brief, times, len(ops))
    return Memory(tuple(lasting), workspace, device, before, peak, frees, 1 if device[0] == CPU else GRANULE)


def _split(storages: Iterable[Storage]) -> tuple[list[Storage], list[Storage]]:
    """Those that are there for more than one op, and those of one; what was freed before the first op is left
    out.
    """
    kept = [storage for storage in storages if storage.died is None or storage.died >= 0]
    return [s for s in kept if s.born != s.died], [s for s in kept if s.born == s.died]


def _workspace(brief: Sequence[Storage], times: dict[int, tuple[float, float]], count: int) -> Ints:
    """For each op the most bytes of its ``brief`` allocations that were there at the same time."""
    changes: dict[int, list[tuple[float, int]]] = {}
    for storage in brief:
        start, end = times[id(storage)]
        changes.setdefault(storage.born, []).extend([(start, storage.bytes), (end, -storage.bytes)])
    most = np.zeros(count, np.int64)
    for op, rows in changes.items():
        most[op] = np.cumsum([change for _, change in sorted(rows)]).max()
    return most


class _Places:
    """Which op a moment belongs to."""

    def __init__(self, ops: Sequence[Op]) -> None:
        self.ops = ops
        self.by_thread: dict[str, list[int]] = {}
        for index, op in enumerate(ops):
            self.by_thread.setdefault(op.call.thread, []).append(index)

    def birth(self, event: MemoryEvent, part: Window) -> int:
        if event.time < part.start:
            return -1
        inside = self._inside(event)
        return inside if inside is not None else min(self._last(event) + 1, len(self.ops) - 1)

    def find_last_started(self, event: MemoryEvent) -> int:
        inside = self._inside(event)
        return inside if inside is not None else self._last(event)

    def _inside(self, event: MemoryEvent) -> int | None:
        here = self.by_thread.get(event.thread, [])
        position = bisect.bisect_right(here, event.time, key=lambda index: self.ops[index].start) - 1
        found = position >= 0 and event.time <= self.ops[here[position]].end
        return here[position] if found else None

    def _last(self, event: MemoryEvent) -> int:
        return bisect.bisect_right(self.ops, event.time, key=lambda op: op.start) - 1
