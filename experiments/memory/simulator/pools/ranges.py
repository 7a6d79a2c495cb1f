"""Allocators over one range of addresses, each with its own way to choose a hole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments.memory.simulator.pools.allocator import NOWHERE, Allocator
from experiments.memory.simulator.pools.holes import Holes


class RangeAllocator(Allocator):
    """One range of addresses; subclasses say where in it a tensor goes."""

    def __init__(self, size: int, granularity: int) -> None:
        self.granularity = granularity
        self.holes = Holes(size // granularity * granularity)
        self.taken: dict[int, int] = {}

    def where(self, tensor: int, size: int) -> int | None:
        """An address at which ``size`` bytes are free."""
        return self.holes.lowest(size)

    def take(self, tensor: int, size: int) -> int | None:
        size = -(-size // self.granularity) * self.granularity
        if not size:
            return NOWHERE
        address = self.where(tensor, size)
        if address is not None:
            self.holes.cut(address, size)
            self.taken[address] = size
            self.end = max(self.end, address + size)
        return address

    def give(self, address: int) -> None:
        if address != NOWHERE:
            self.holes.join(address, self.taken.pop(address))
            self.wasted = max(self.wasted, self.free - self.largest)

    @property
    def free(self) -> int:
        return self.holes.free

    @property
    def largest(self) -> int:
        return self.holes.largest


class BestFitAllocator(RangeAllocator):
    """The smallest hole that holds the tensor."""

    def where(self, tensor: int, size: int) -> int | None:
        return self.holes.tightest(size)


class TwoEndedAllocator(RangeAllocator):
    """Tensors of ``high`` at the top of the highest hole that holds them, all others in the lowest."""

    def __init__(self, size: int, granularity: int, high: Sequence[int]) -> None:
        super().__init__(size, granularity)
        self.high = frozenset(high)

    def where(self, tensor: int, size: int) -> int | None:
        return self.holes.highest(size) if tensor in self.high else self.holes.lowest(size)


class PlannedAllocator(RangeAllocator):
    """Every tensor of ``offsets`` has its address; what is not named goes first fit above all of these."""

    def __init__(self, size: int, granularity: int, offsets: Mapping[int, int], sizes: Sequence[int]) -> None:
        super().__init__(size, granularity)
        self.offsets = offsets
        ends = [address + sizes[tensor] for tensor, address in offsets.items()]
        self.top = -(-max(ends, default=0) // granularity) * granularity

    def where(self, tensor: int, size: int) -> int | None:
        address = self.offsets.get(tensor)
        if address is None:
            return self.holes.lowest(size, self.top)
        return address if self.holes.holds(address, size) else None
