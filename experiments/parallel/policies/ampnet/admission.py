"""What workers do when messages alone drive them: each runs what has arrived, backward before forward, first
come first.

An instance enters while fewer than ``most`` are in flight and leaves with its backward pass through the first
stage (Gaunt et al., AMPNet, 2017, section 3; which message a worker takes first is left open there).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from experiments.core.events import EventQueue
from experiments.parallel.interface import BACKWARD, FORWARD, Slot


def admitted_orders(
    forward: Sequence[float], backward: Sequence[float], instances: int, most: int
) -> list[tuple[Slot, ...]]:
    """Return the slots of each stage in the order in which it would run them.

    A pass takes the given seconds by stage.
    """
    return _Driven(forward, backward, instances, most).run()


class _Driven:
    def __init__(
        self, forward: Sequence[float], backward: Sequence[float], instances: int, most: int
    ) -> None:
        self.seconds = {FORWARD: forward, BACKWARD: backward}
        self.left = list(range(min(most, instances), instances))
        self.first = range(min(most, instances))
        self.ready: list[list[tuple[bool, int, Slot]]] = [[] for _ in forward]
        self.orders: list[list[Slot]] = [[] for _ in forward]
        self.idle = [True] * len(forward)
        self.queue: EventQueue[Slot] = EventQueue()
        self.arrivals = 0

    def run(self) -> list[tuple[Slot, ...]]:
        for instance in self.first:
            self._arrive(Slot(FORWARD, instance, 0), 0.0)
        while self.queue:
            now, slot = self.queue.pop()
            self.idle[slot.stage] = True
            for following in self._following(slot):
                self._arrive(following, now)
            self._take(slot.stage, now)
        return [tuple(order) for order in self.orders]

    def _following(self, slot: Slot) -> list[Slot]:
        last = len(self.orders) - 1
        if slot.kind == FORWARD and slot.stage < last:
            return [slot._replace(stage=slot.stage + 1)]
        if slot.kind == FORWARD:
            return [slot._replace(kind=BACKWARD)]
        if slot.stage:
            return [slot._replace(stage=slot.stage - 1)]
        return [Slot(FORWARD, self.left.pop(0), 0)] if self.left else []

    def _arrive(self, slot: Slot, now: float) -> None:
        self.arrivals += 1
        heapq.heappush(self.ready[slot.stage], (slot.kind == FORWARD, self.arrivals, slot))
        self._take(slot.stage, now)

    def _take(self, stage: int, now: float) -> None:
        if self.idle[stage] and self.ready[stage]:
            _, _, slot = heapq.heappop(self.ready[stage])
            self.idle[stage] = False
            self.orders[stage].append(slot)
            self.queue.push(now + self.seconds[slot.kind][stage], slot)
