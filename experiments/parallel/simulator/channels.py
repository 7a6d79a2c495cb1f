"""Messages that come up as a simulation goes: each starts when all its channels are idle, the longest waiting first.

Unlike a replay of a task graph, where a message keeps its place in every queue it stands in, one that finds a channel busy
lets later ones by that do not need it: with many senders and receivers channels would otherwise idle behind each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from experiments.core.events import EventQueue
from experiments.parallel.simulator.network import Message

Happening = Callable[[float], None]


@dataclass(frozen=True)
class Delivery:
    """``started`` and ``arrived`` are told the time; ``message`` is ``None`` where nothing has to travel."""

    message: Message | None
    started: Happening
    arrived: Happening


class Channels:
    """Who holds which channel, and who waits for it."""

    def __init__(self, queue: EventQueue[Happening]) -> None:
        self._queue = queue
        self._busy: set[int] = set()
        self._waiting: dict[int, dict[int, Delivery]] = {}
        self._carried_until: dict[int, float] = {}
        self._sent = 0

    def send(self, now: float, delivery: Delivery) -> None:
        if delivery.message is None:
            delivery.started(now)
            self._queue.push(now, delivery.arrived)
            return
        self._sent += 1
        for channel in delivery.message.channels:
            self._waiting.setdefault(channel, {})[self._sent] = delivery
        self._start_if_idle(now, self._sent, delivery)

    def _start_if_idle(self, now: float, number: int, delivery: Delivery) -> None:
        message = delivery.message
        assert message is not None
        if not self._busy.isdisjoint(message.channels):
            return
        self._busy.update(message.channels)
        for channel in message.channels:
            del self._waiting[channel][number]
        delivery.started(now)
        self._queue.push(self._arrival(now, message), lambda end: self._end(end, delivery))

    def _arrival(self, now: float, message: Message) -> float:
        """Channels that messages share carry their bytes one after the other."""
        end = now + message.seconds
        for channel, own in message.shares:
            self._carried_until[channel] = max(self._carried_until.get(channel, 0.0), now) + own
            end = max(end, self._carried_until[channel])
        return end

    def _end(self, now: float, delivery: Delivery) -> None:
        """Channels are handed on before the receiver acts on what arrived."""
        assert delivery.message is not None
        released = delivery.message.channels
        self._busy.difference_update(released)
        waiting = {n: t for channel in released for n, t in self._waiting[channel].items()}
        for number in sorted(waiting):
            self._start_if_idle(now, number, waiting[number])
            if self._busy.issuperset(released):
                break
        delivery.arrived(now)
