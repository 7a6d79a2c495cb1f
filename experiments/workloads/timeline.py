"""Timeline: all that a profiler recorded of one process, as columns; what a Step has no place for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats

#: What work on a device is; ``Work.kind`` indexes this.
COMPUTE, COMMUNICATION, COPY = range(3)
WORK_KINDS = ("compute", "communication", "memory copies")


@dataclass(frozen=True)
class Calls:
    """Calls on the host, by start: ``name`` and ``thread`` index the timeline's tables, times in seconds.

    ``external`` and ``sequence`` are the profiler's and autograd's numbers (-1: none); ``is_op`` tells an
    operator from an annotation. ``module`` is the innermost module that ran, by name (-1: not told).
    """

    name: Ints
    thread: Ints
    start: Floats
    end: Floats
    external: Ints
    sequence: Ints
    is_op: Ints
    module: Ints

    def __len__(self) -> int:
        return len(self.name)


@dataclass(frozen=True)
class Work:
    """Kernels, copies and fills on devices, by start; ``kind`` indexes ``WORK_KINDS``.

    ``correlation`` leads to its launch, ``external`` to its operator (-1: not told); ``bytes`` are those of a
    copy.
    """

    name: Ints
    kind: Ints
    device: Ints
    stream: Ints
    start: Floats
    end: Floats
    correlation: Ints
    external: Ints
    bytes: Ints

    def __len__(self) -> int:
        return len(self.name)


@dataclass(frozen=True)
class Launches:
    """Calls of the device's runtime, by start."""

    name: Ints
    thread: Ints
    start: Floats
    end: Floats
    correlation: Ints

    def __len__(self) -> int:
        return len(self.name)


@dataclass(frozen=True)
class MemoryLog:
    """Allocations (> 0) and frees (< 0) by time.

    ``allocated`` and ``reserved`` are the allocator's counts after each; ``device`` is -1 for the host.
    """

    time: Floats
    bytes: Ints
    allocated: Ints
    reserved: Ints
    device: Ints

    def __len__(self) -> int:
        return len(self.time)


@dataclass(frozen=True)
class Timeline:
    """One process. Times count from ``began`` (seconds on the clock of the host, 0: not told).

    ``names`` is the table of texts; ``rank`` and ``world`` say which process of how many it was (0 and 1:
    alone); ``devices`` names the host's accelerators by number; ``events`` counts all that the file has.
    """

    name: str
    names: tuple[str, ...]
    calls: Calls
    work: Work
    launches: Launches
    memory: MemoryLog
    began: float
    events: int
    rank: int = 0
    world: int = 1
    devices: Mapping[int, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
