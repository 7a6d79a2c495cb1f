"""Forward passes of several micro-batches at once: who shares one, and when their plan is wrong.

A backward pass takes about twice as long as a forward pass, so a forward pass of two micro-batches is as long
as a backward pass of one (Li and Hoefler, Chimera, SC'21, section 3.5).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from experiments.parallel.interface.plan import FORWARD, ParallelPlan, Slot


class JointForwards:
    """The micro-batches of each forward pass of a plan."""

    def __init__(self, plan: ParallelPlan) -> None:
        self._first: dict[int, int] = {}
        self._count: dict[int, int] = {}
        for micro_batch in sorted(plan.joined):
            first = self._first.get(micro_batch - 1, micro_batch - 1)
            self._first[micro_batch] = first
            self._count[first] = micro_batch - first + 1

    def first(self, slot: Slot) -> Slot:
        """Return the slot that stands for the pass of which ``slot`` is a part; itself where it is alone."""
        if slot.kind != FORWARD or slot.micro_batch not in self._first:
            return slot
        return slot._replace(micro_batch=self._first[slot.micro_batch])

    def count(self, slot: Slot) -> int:
        """Return how many micro-batches the pass takes that begins with ``slot``."""
        return self._count.get(slot.micro_batch, 1) if slot.kind == FORWARD else 1


def joint_violations(plan: ParallelPlan) -> Iterator[str]:
    """Yield what is wrong with forward passes of several micro-batches."""
    if plan.joined and (plan.slices or plan.steps > 1 or plan.synchronization.servers):
        yield "forward passes take several micro-batches: these are equal, of one step, without servers"
    for micro_batch in plan.joined:
        if not 0 < micro_batch < plan.micro_batches:
            yield f"micro-batch {micro_batch} is joined to the one before, of {plan.micro_batches}"


def joint_order_violations(plan: ParallelPlan) -> Iterator[str]:
    """Yield the forward slots that do not come right behind the slot whose pass they share."""
    joined = set(plan.joined)
    for number, worker in enumerate(plan.workers if joined else ()):
        for before, slot in pairwise((None, *worker.slots)):
            if slot is None or slot.kind != FORWARD or slot.micro_batch not in joined:
                continue
            if before != slot._replace(micro_batch=slot.micro_batch - 1):
                yield f"slot {slot} does not follow the slot whose pass it shares, on worker {number}"
