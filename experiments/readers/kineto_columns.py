"""A trace of ``torch.profiler`` as columns (``workloads.timeline``): one event in memory at a time."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments.core.errors import BadInput
from experiments.readers.event_stream import EventStream
from experiments.readers.kineto_events import (
    CALLS,
    LAUNCHES,
    LONGEST_NAME,
    MODULE,
    MOST_BYTES,
    ON_DEVICE,
    args_of,
    id_of,
    microseconds_of,
    thread_of,
)
from experiments.readers.kineto_modules import modules_of
from experiments.workloads.timeline import (
    COMMUNICATION,
    COMPUTE,
    COPY,
    Calls,
    Launches,
    MemoryLog,
    Timeline,
    Work,
)

#: Kernels of NCCL, RCCL, HCCL and NVSHMEM, and the custom all-reduces of serving engines.
_COMMUNICATION = re.compile(
    r"^(nccl|rccl|hccl)|nccl(Dev)?Kernel|nvshmem|cross_device_reduce|mscclpp", re.IGNORECASE
)
_COPY = re.compile(r"^(hip)?Mem(cpy|set)|^dma")
_LARGEST = 2**62


def timeline(data: bytes, name: str) -> Timeline:
    """Parse the whole file. ``BadInput`` names the event."""
    stream = EventStream(data, name)
    columns = _Columns()
    count = 0
    for count, event in enumerate(stream, 1):
        if not isinstance(event, dict):
            raise BadInput(f"{event!r:.80} is not an object", f"{name}: event {count - 1}", "a trace event")
        columns.add(event, f"{name}: event {count - 1}")
    return columns.finish(name, count, stream.header)


def work_kind(name: str, category: str) -> int:
    """Which of ``WORK_KINDS`` work of this name and category is."""
    if category != "kernel" or _COPY.match(name):
        return COPY
    return COMMUNICATION if _COMMUNICATION.search(name) else COMPUTE


class _Columns:
    """Columns while they grow: numbers only, eight bytes each."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.threads: dict[str, int] = {}
        self.kinds: dict[tuple[str, str], int] = {}
        self.rows = {kind: _Rows() for kind in ("calls", "modules", "work", "launches", "memory")}

    def add(self, event: Mapping[str, Any], where: str) -> None:
        category, is_whole = event.get("cat"), event.get("ph") == "X"
        if is_whole and category in CALLS:
            told = (
                id_of(event, "External id", where),
                id_of(event, "Sequence number", where),
                category == "cpu_op",
            )
            self._span("calls", event, where, *told)
        elif is_whole and category in ON_DEVICE:
            self._work(event, str(category), where)
        elif is_whole and category in LAUNCHES:
            self._span("launches", event, where, id_of(event, "correlation", where))
        elif category == "python_function" and str(event.get("name")).startswith(MODULE):
            self._span("modules", event, where)
        elif event.get("name") == "[memory]":
            self._memory(event, where)

    def _name(self, event: Mapping[str, Any], where: str) -> int:
        name = event.get("name")
        if not isinstance(name, str):
            raise BadInput(f"name = {name!r:.80}", where, "a text")
        return self.names.setdefault(name[:LONGEST_NAME], len(self.names))

    def _span(self, rows: str, event: Mapping[str, Any], where: str, *told: int) -> None:
        name, thread = self._name(event, where), thread_of(event)
        thread_id = self.threads.setdefault(thread, len(self.threads))
        times = microseconds_of(event, "ts", where), microseconds_of(event, "dur", where)
        self.rows[rows].add(times, (name, thread_id, *told))

    def _work(self, event: Mapping[str, Any], category: str, where: str) -> None:
        name = self._name(event, where)
        kind = self.kinds.setdefault((str(event["name"]), category), work_kind(str(event["name"]), category))
        told = [
            id_of(event, key, where) for key in ("device", "stream", "correlation", "External id", "bytes")
        ]
        times = microseconds_of(event, "ts", where), microseconds_of(event, "dur", where)
        self.rows["work"].add(times, (name, kind, *told))

    def _memory(self, event: Mapping[str, Any], where: str) -> None:
        size = id_of(event, "Bytes", where)
        totals = [_count(args_of(event).get(f"Total {what}", 0)) for what in ("Allocated", "Reserved")]
        if not -MOST_BYTES <= size <= MOST_BYTES:
            raise BadInput(f"Bytes = {size}", where, "a plausible allocation")
        device = id_of(event, "Device Id", where) if args_of(event).get("Device Type") else -1
        self.rows["memory"].add((microseconds_of(event, "ts", where), 0.0), (size, *totals, device))

    def finish(self, name: str, events: int, header: Mapping[str, Any]) -> Timeline:
        origin = min((rows.first for rows in self.rows.values()), default=0.0)
        origin = origin if math.isfinite(origin) else 0.0
        numbers, spans = {}, {}
        for kind, rows in self.rows.items():
            spans[kind], numbers[kind] = rows.sorted(origin, _WIDTH[kind])
        names = tuple(self.names)
        called, running = (*numbers["calls"], *spans["calls"]), (*numbers["modules"], *spans["modules"])
        modules, names = modules_of(called, running, names)
        call, work, launch, log = (numbers[kind] for kind in ("calls", "work", "launches", "memory"))
        return Timeline(
            name,
            names,
            Calls(call[0], call[1], *spans["calls"], call[2], call[3], call[4], modules),
            Work(work[0], work[1], work[2], work[3], *spans["work"], work[4], work[5], work[6]),
            Launches(launch[0], launch[1], *spans["launches"], launch[2]),
            MemoryLog(spans["memory"][0], log[0], log[1], log[2], log[3]),
            _clock(origin, header),
            events,
            *_rank(header),
            _devices(header),
        )


#: Numbers of a row next to its two times.
_WIDTH = {"calls": 5, "modules": 2, "work": 7, "launches": 3, "memory": 4}


class _Rows:
    """Rows of two times and some whole numbers."""

    def __init__(self) -> None:
        self.times, self.numbers = array("d"), array("q")
        self.first = math.inf

    def add(self, times: tuple[float, float], numbers: tuple[int, ...]) -> None:
        self.first = min(self.first, times[0])
        self.times.extend(times)
        self.numbers.extend(max(-_LARGEST, min(number, _LARGEST)) for number in numbers)

    def sorted(self, origin: float, width: int) -> tuple[tuple[Any, Any], list[Any]]:
        """(start, end) in seconds from ``origin``, and the columns of numbers, all by start."""
        times = np.frombuffer(self.times, np.float64).reshape(-1, 2) if self.times else np.empty((0, 2))
        numbers = np.frombuffer(self.numbers, np.int64) if self.numbers else np.empty(0, np.int64)
        order = np.lexsort((-times[:, 1], times[:, 0]))
        start = (times[order, 0] - origin) / 1e6
        columns = numbers.reshape(-1, width)[order]
        end = (times[order, 0] - origin + times[order, 1]) / 1e6
        return (start, end), [columns[:, place].copy() for place in range(width)]


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _clock(origin: float, header: Mapping[str, Any]) -> float:
    """Seconds of the host's clock at which the trace begins; times may count from a base told apart."""
    return origin / 1e6 + _count(header.get("baseTimeNanoseconds")) / 1e9


def _rank(header: Mapping[str, Any]) -> tuple[int, int]:
    told = header.get("distributedInfo")
    if not isinstance(told, dict):
        return 0, 1
    rank, world = _count(told.get("rank")), _count(told.get("world_size"))
    return (rank, world) if 0 <= rank < world else (rank, 1)


def _devices(header: Mapping[str, Any]) -> dict[int, str]:
    rows = header.get("deviceProperties")
    listed = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return {_count(row.get("id")): str(row.get("name", "accelerator"))[:LONGEST_NAME] for row in listed}
