"""A framework's caching allocator: blocks of segments, kept in two bins, split and merged.

The rules and constants are those of torch's CUDA allocator (``c10/cuda/CUDACachingAllocator.cpp``, 2.x,
default settings, one stream): requests are rounded to 512 bytes; up to 1 MiB they are served from segments of
2 MiB, below 10 MiB from segments of 20 MiB, above that from segments of their own rounded to 2 MiB. The
smallest cached block that holds the request is taken and split where the rest is worth keeping. Freed blocks
merge with free neighbors of their segment. When the device has no free bytes for a new segment, all segments
without a block in use are given back first.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

from experiments.memory.simulator.pools.allocator import NOWHERE, Allocator

SMALL_REQUEST = 1 << 20
SMALL_SEGMENT = 2 << 20
LARGE_SEGMENT = 20 << 20
OWN_SEGMENT = 10 << 20
SEGMENT_ROUNDING = 2 << 20


@dataclass(slots=True, eq=False)
class SegmentBlock:
    """A stretch of a segment, linked to its neighbors there."""

    address: int
    size: int
    small: bool
    before: SegmentBlock | None = None
    after: SegmentBlock | None = None
    used: bool = False

    @property
    def whole(self) -> bool:
        """The block is all of its segment."""
        return self.before is None and self.after is None


class CachingAllocator(Allocator):
    """Segments lie side by side in an endless address space; what they take of the device is ``reserved``."""

    def __init__(self, capacity: int, granularity: int) -> None:
        self.capacity, self.granularity = capacity, granularity
        self.reserved = self.allocated = self.idle = self.next = 0
        self.blocks: dict[int, SegmentBlock] = {}
        # Free blocks as (size, address), small requests' and large ones' apart.
        self.bins: dict[bool, list[tuple[int, int]]] = {True: [], False: []}

    def take(self, tensor: int, size: int) -> int | None:
        if not size:
            return NOWHERE
        size = -(-size // self.granularity) * self.granularity
        block = self._find_cached(size) or self._segment(size)
        if block is None:
            return None
        self._split(block, size)
        block.used = True
        self.allocated += block.size
        self.wasted = max(self.wasted, self.free - self.largest)
        return block.address

    def give(self, address: int) -> None:
        if address == NOWHERE:
            return
        block = self.blocks[address]
        block.used = False
        self.allocated -= block.size
        for neighbor in (block.before, block.after):
            if neighbor is not None and not neighbor.used:
                self._forget(neighbor)
                block = self._merge(block, neighbor)
        self._keep(block)
        self.wasted = max(self.wasted, self.free - self.largest)

    @property
    def free(self) -> int:
        return self.capacity - self.allocated

    @property
    def largest(self) -> int:
        cached = self.bins[False][-1][0] if self.bins[False] else 0
        return max(cached, self.capacity - self.reserved + self.idle)

    def _find_cached(self, size: int) -> SegmentBlock | None:
        """The smallest free block that holds ``size`` bytes, the lowest of equal ones."""
        found = self.bins[size <= SMALL_REQUEST]
        place = bisect_left(found, (size, 0))
        if place == len(found):
            return None
        block = self.blocks[found[place][1]]
        self._forget(block)
        return block

    def _segment(self, size: int) -> SegmentBlock | None:
        """A new segment for ``size`` bytes; cached ones are given back where the device lacks the bytes."""
        need = segment_bytes(size)
        if self.reserved + need > self.capacity:
            self._release()
        if self.reserved + need > self.capacity:
            return None
        block = SegmentBlock(self.next, need, size <= SMALL_REQUEST)
        self.blocks[block.address] = block
        self.next += need
        self.reserved += need
        self.end = max(self.end, self.reserved)
        return block

    def _release(self) -> None:
        for found in self.bins.values():
            for _, address in list(found):
                block = self.blocks[address]
                if block.whole:
                    self._forget(block)
                    del self.blocks[address]
                    self.reserved -= block.size

    def _split(self, block: SegmentBlock, size: int) -> None:
        """Keep what ``block`` has beyond ``size`` if that is enough: 512 B if small, 1 MiB if large."""
        rest = block.size - size
        if not rest or (rest < self.granularity if block.small else rest <= SMALL_REQUEST):
            return
        tail = SegmentBlock(block.address + size, rest, block.small, block, block.after)
        if block.after is not None:
            block.after.before = tail
        block.after, block.size = tail, size
        self.blocks[tail.address] = tail
        self._keep(tail)

    def _merge(self, one: SegmentBlock, other: SegmentBlock) -> SegmentBlock:
        first, second = (one, other) if one.address < other.address else (other, one)
        first.size += second.size
        first.after = second.after
        if second.after is not None:
            second.after.before = first
        first.used = False
        del self.blocks[second.address]
        return first

    def _keep(self, block: SegmentBlock) -> None:
        insort(self.bins[block.small], (block.size, block.address))
        self.idle += block.size if block.whole else 0

    def _forget(self, block: SegmentBlock) -> None:
        """Take a free block out of its bin."""
        found = self.bins[block.small]
        del found[bisect_left(found, (block.size, block.address))]
        self.idle -= block.size if block.whole else 0


def segment_bytes(size: int) -> int:
    """What is asked of the device for a request of ``size`` bytes."""
    if size <= SMALL_REQUEST:
        return SMALL_SEGMENT
    if size < OWN_SEGMENT:
        return LARGE_SEGMENT
    return -(-size // SEGMENT_ROUNDING) * SEGMENT_ROUNDING
