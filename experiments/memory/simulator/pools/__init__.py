"""Allocators that give out device addresses, and the blocks of an address space."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.core.errors import Infeasible
from experiments.core.units import human
from experiments.memory.interface.space import MemoryPool
from experiments.memory.simulator.pools.allocator import Allocator
from experiments.memory.simulator.pools.caching import CachingAllocator
from experiments.memory.simulator.pools.classes import SizeClassAllocator
from experiments.memory.simulator.pools.ranges import (
    BestFitAllocator,
    PlannedAllocator,
    RangeAllocator,
    TwoEndedAllocator,
)

__all__ = ["allocator"]


def allocator(pool: MemoryPool, capacity: int, sizes: Sequence[int]) -> Allocator:
    """The allocator that ``pool`` describes for tensors of ``sizes``; ``Infeasible``: it does not fit."""
    grain = pool.granularity
    if pool.kind == "first_fit":
        return RangeAllocator(capacity, grain)
    if pool.kind == "best_fit":
        return BestFitAllocator(capacity, grain)
    if pool.kind == "two_ended":
        return TwoEndedAllocator(capacity, grain, pool.high)
    if pool.kind == "planned":
        return PlannedAllocator(capacity, grain, dict(pool.offsets), sizes)
    if pool.kind == "caching":
        return CachingAllocator(capacity, grain)
    if pool.kind != "classes":
        raise Infeasible(f"there is no pool {pool.kind!r}", "plan.space")
    need = sum(size * count for size, count in pool.classes)
    if need > capacity:
        exact = f"{need} bytes of objects, {need - capacity} more than the device has"
        raise Infeasible(f"{exact} ({human(need - capacity, 'bytes')})", "plan.space", need - capacity)
    return SizeClassAllocator(pool.classes, dict(pool.serves))
