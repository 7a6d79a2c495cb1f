"""The rates of the release's batches of pages, and lanes that move one block after another at them."""

from __future__ import annotations

from experiments.memory.interface.machine import MemoryMachine
from experiments.memory.interface.paged import PAGE
from experiments.memory.simulator.report import Spans

#: Pages in a batch each way, and the device's clock.
BATCH_PAGES = 50
CYCLES_PER_SECOND = 1.2e9
#: Cycles in which the device allocates a page.
ALLOCATION_CYCLES = 4
#: The release writes 15.754 where the machine has 15.754 GiB/s, and here counts it as 15.754e9 B/s.
GIB, GB = 2**30, 1e9


def decimal(bandwidth: float) -> float:
    """Bytes per second as this part of the release counts them: so many GiB/s are as many GB/s."""
    return bandwidth / GIB * GB


class BlockLane:
    """One direction of the link: all of it, and the part of it that goes to or comes from storage.

    ``free`` and ``storage_free`` are when the next block may start. A storage block holds the link for its
    share of a batch and storage for as long as it takes there.
    """

    def __init__(self, link: float, storage: float) -> None:
        link, storage = decimal(link), decimal(storage)
        batch = int(BATCH_PAGES * PAGE / (link / CYCLES_PER_SECOND)) / CYCLES_PER_SECOND
        pages = int(BATCH_PAGES / link * storage)
        self.rate = BATCH_PAGES * PAGE / batch
        self.storage_rate = pages * PAGE / batch
        self.free = self.storage_free = 0.0
        self.moved = self.storage_moved = 0
        self.spans: Spans = []
        self.storage_spans: Spans = []

    def ready(self, now: float, storage: bool) -> bool:
        return self.free <= now and (not storage or (self.storage_rate > 0 and self.storage_free <= now))

    def move(self, size: int, now: float, storage: bool) -> float:
        """Start a block; when it has passed."""
        self.free = end = now + size / self.rate
        self.moved += size
        if storage:
            self.storage_free = now + size / self.storage_rate
            end = max(end, self.storage_free)
            self.storage_moved += size
            _extend(self.storage_spans, now, end)
        _extend(self.spans, now, self.free)
        return end

    def restart(self) -> None:
        """Forget what has been moved so far."""
        self.moved = self.storage_moved = 0
        self.spans, self.storage_spans = [], []


class AllocationLane:
    """New blocks on the device, one after another: what waits here is overtaken by what comes by the link."""

    rate = PAGE * CYCLES_PER_SECOND / ALLOCATION_CYCLES

    def __init__(self) -> None:
        self.free = 0.0

    def ready(self, now: float) -> bool:
        return self.free <= now

    def take(self, size: int, now: float) -> None:
        """Start to allocate a block."""
        self.free = now + size / self.rate


def lanes_of(machine: MemoryMachine) -> tuple[BlockLane, BlockLane]:
    """Out of the device and back."""
    out = BlockLane(machine.out.bandwidth, machine.write.bandwidth)
    return out, BlockLane(machine.back.bandwidth, machine.read.bandwidth)


def _extend(spans: Spans, start: float, end: float) -> None:
    if spans and start <= spans[-1][1]:
        spans[-1] = (spans[-1][0], end)
    else:
        spans.append((start, end))
