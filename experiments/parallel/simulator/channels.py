"""Messages that come up as a simulation goes: each starts when all its channels are idle, the longest waiting
first.

Unlike a replay of a task graph, where a message keeps its place in every queue it stands in, one that finds a
channel busy lets later ones by that do not need it: with many senders and receivers channels would otherwise
idle behind each other.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

from experiments.core.events import EventQueue
from experiments.parallel.simulator.network import Message

Happening = Callable[[float], None]


@dataclass(frozen=True)
class Delivery:
    """A message and who is called when it starts and arrives.

    ``started`` and ``arrived`` are called with the time; ``message`` is ``None`` where nothing has to
    travel.
    """

    message: Message | None
    started: Happening
    arrived: Happening


class ChannelOccupancy:
    """Who holds which channel. A delivery that waits is listed once, under a busy channel that it needs."""

    def __init__(self, queue: EventQueue[Happening]) -> None:
        self._queue = queue
        self._busy: set[int] = set()
        self._waiting: dict[int, list[tuple[int, Delivery]]] = {}
        self._carried_until: dict[int, float] = {}
        self._sent = 0

    def send(self, now: float, delivery: Delivery) -> None:
        if delivery.message is None:
            delivery.started(now)
            self._queue.push(now, delivery.arrived)
            return
        self._sent += 1
        self._start_or_wait(now, self._sent, delivery, delivery.message)

    def _start_or_wait(self, now: float, number: int, delivery: Delivery, message: Message) -> None:
        for channel in message.channels:
            if channel in self._busy:
                heapq.heappush(self._waiting.setdefault(channel, []), (number, delivery))
                return
        self._busy.update(message.channels)
        delivery.started(now)
        self._queue.push(self._arrival(now, message), lambda end: self._end(end, delivery, message))

    def _arrival(self, now: float, message: Message) -> float:
        """Channels that messages share carry their bytes one after the other."""
        end = now + message.seconds
        for channel, own in message.shares:
            self._carried_until[channel] = max(self._carried_until.get(channel, 0.0), now) + own
            end = max(end, self._carried_until[channel])
        return end

    def _end(self, now: float, delivery: Delivery, message: Message) -> None:
        """Channels are handed on, to those that wait longest, before the receiver acts on what arrived."""
        self._busy.difference_update(message.channels)
        while lists := [w for c in message.channels if c not in self._busy and (w := self._waiting.get(c))]:
            number, following = heapq.heappop(min(lists, key=lambda waiting: waiting[0][0]))
            assert following.message is not None
            self._start_or_wait(now, number, following, following.message)
        delivery.arrived(now)
