"""The one event queue of all simulators, ordered by ``(time, priority, sequence)``."""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

Event = TypeVar("Event")


class EventQueue(Generic[Event]):
    """A heap of events. Equal times run by priority (lower first), equal priorities in the order pushed."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int, Event]] = []
        self._pushed = 0
        self.now = float("-inf")

    def push(self, time: float, event: Event, priority: int = 0) -> None:
        """Schedule ``event`` at ``time`` (seconds).

        A time before ``now`` would rewrite the past and raises.
        """
        if not time >= self.now:
            raise ValueError(f"event at t={time} is before now={self.now}: {event!r}")
        heapq.heappush(self._heap, (time, priority, self._pushed, event))
        self._pushed += 1

    def pop(self) -> tuple[float, Event]:
        """Advance ``now`` to the next event and return ``(time, event)``."""
        self.now, _, _, event = heapq.heappop(self._heap)
        return self.now, event

    def peek(self) -> float | None:
        """Time of the next event, or ``None`` when nothing is left."""
        return self._heap[0][0] if self._heap else None

    def __len__(self) -> int:
        return len(self._heap)
