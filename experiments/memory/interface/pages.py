"""State of a paged optimizer: it belongs to the host and crosses the link for its update, under any plan.

Where a step says from how many values on (``paged_from``; bitsandbytes: moments in memory that host and
device share), such tensors are resident on the host. Those of one parameter come to the device when its
update begins, and are back before the next one begins: the update takes at least their way there and back.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import numpy as np

from experiments.memory.interface.plan import (
    MemoryMove,
    MemoryPlan,
    Offload,
    PlaceTensor,
    Prefetch,
    WaitForCopy,
)
from experiments.memory.interface.space import CountedBytes, MemoryPool
from experiments.workloads.step import KINDS, Step


def paged_states(step: Step) -> list[int]:
    """Return the tensors of the optimizer's state that are resident on the host."""
    fewest = step.facts.get("paged_from")
    if not isinstance(fewest, int):
        return []
    states = np.nonzero(step.tensors.kind == KINDS.index("optimizer_state"))[0].tolist()
    large = [t for t in states if np.prod(step.tensors.shape[t], dtype=np.int64) >= fewest]
    return [t for t in large if len(step.uses[t]) and not step.tensors.name[t].endswith(".master")]


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
