"""How many bytes a step holds during each op, as a planner believes it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from experiments.memory.interface.paged import PagedStep
from experiments.workloads.ragged import Ints

#: Microseconds per byte by which an allocation precedes a tensor's birth (G10 release).
ALLOCATION = 8.14e-7


@dataclass(frozen=True)
class PlannedLoad:
    """``bytes`` by op, and when each local tensor looked at is allocated and freed, as (op, tensor)."""

    bytes: Ints
    allocations: tuple[tuple[int, int], ...]
    frees: tuple[tuple[int, int], ...]


def load_until_fits(paged: PagedStep, target: int) -> PlannedLoad:
    """Return bytes by op, lifetimes taken into account until the peak is within ``target``.

    Tensor by tensor.

    As in the release: every tensor counts for the whole step at first (the first one twice), tensors that are
    not reached because it fits already keep doing so, and one that is born within its allocation time of the
    step's start keeps the slots before its birth.
    """
    load = np.full(paged.ops, sum(paged.bytes) + paged.bytes[0], np.int64)
    allocations, frees = [], []
    for tensor in range(1, paged.tensors):
        if load.max() <= target:
            break
        if paged.is_global[tensor]:
            continue
        size, birth, death = paged.bytes[tensor], paged.birth[tensor], paged.death[tensor]
        start = slot_at(paged, float(paged.clock[birth]) - size * ALLOCATION)
        load[:start] -= size
        load[death:] -= size
        allocations.append((start, tensor))
        frees.append((death, tensor))
    return PlannedLoad(load, tuple(allocations), tuple(frees))


def slot_at(paged: PagedStep, time: float) -> int:
    """The op that runs at ``time`` microseconds; 0 before the step."""
    return max(int(np.searchsorted(paged.clock, time, side="right")) - 1, 0)
