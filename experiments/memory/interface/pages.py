"""State of a paged optimizer: it belongs to the host and crosses the link for its update, under any plan.

Where a step says from how many values on (``paged_from``; bitsandbytes: moments in memory that host and
device share), such tensors are resident on the host. Those of one parameter come to the device when its
update begins, and are back before the next one begins: the update takes at least their way there and back.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

from experiments.memory.interface.plan import (
    MemoryMove,
    MemoryPlan,
    Offload,
    PlaceTensor,
    Prefetch,
    WaitForCopy,
)
from experiments.memory.interface.space import CountedBytes, MemoryPool
from experiments.workloads.paged_states import paged_states
from experiments.workloads.step import Step


def with_pages(plan: MemoryPlan, step: Step) -> MemoryPlan:
    """Return ``plan`` with the moves of pages; ``step`` is the one whose ops and tensors its moves name.

    What the plan moves by itself is its own affair, and so is everything on a device that has pages itself.
    """
    moved = {getattr(move, "tensor", -1) for move in plan.moves}
    states = sorted((t for t in paged_states(step) if t not in moved), key=lambda t: int(step.first_use[t]))
    if not states or not isinstance(plan.space, CountedBytes | MemoryPool):
        return plan
    moves = chain.from_iterable(_crossing(step, tensor) for tensor in states)
    return replace(plan, moves=(*plan.moves, *moves))


def _crossing(step: Step, tensor: int) -> tuple[MemoryMove, ...]:
    """Onto the device for the update of its parameter, and back before the next."""
    first, last = int(step.first_use[tensor]), int(step.last_use[tensor])
    return (
        PlaceTensor(0, tensor),
        Prefetch(first, tensor),
        Offload(last + 1, tensor, last),
        WaitForCopy(last + 1, tensor),
    )
