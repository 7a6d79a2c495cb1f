"""How replicas sum a bucket of gradients: one collective, at once or when a cycle ends, or parts by way of
servers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from experiments.hardware.summation import from_server, to_server
from experiments.hardware.topology import Cost
from experiments.parallel.interface import ParallelPlan
from experiments.parallel.interface.exchanges import SUMMATION
from experiments.parallel.simulator.network import Message, Network
from experiments.parallel.simulator.tasks import TaskGraph

#: Pieces of a message at most.
MOST_TURNS = 64


class Exchange:
    """Adds the tasks of a plan's sums to its graph.

    Parts that servers sum are dealt out in turn, each to the server that is furthest below its share so far.
    They are small against the whole and many are in flight, so they take their shares of the channels that
    they cross instead of holding them; a part starts when the one ``in_flight`` before it is back.

    An adapter serves its queues in turn: what replicas exchange beside sends between stages goes in pieces
    that take as long as the ``longest_send``, so that such a send waits for one of them, not for all.
    """

    def __init__(
        self, plan: ParallelPlan, graph: TaskGraph, network: Network, longest_send: Callable[[], float]
    ) -> None:
        self._sync, self._graph, self._network = plan.synchronization, graph, network
        self._longest_send = longest_send
        self._devices = np.array(sorted(plan.devices))
        self._given = np.zeros(len(self._sync.servers))
        self._back: list[int] = []
        self._costs: dict[int, tuple[Cost, Cost]] = {}
        self._messages: dict[tuple[int, float], tuple[Message, Message]] = {}

    def tasks(
        self, label: object, size: float, ready: Sequence[int], collective: Callable[[], Message]
    ) -> list[int]:
        """Tasks at whose end the sum of ``size`` bytes is everywhere; ``ready`` complete the gradients."""
        if self._sync.cycle:
            ready = [self._graph.wait(label, self._sync.cycle, ready)]
        if self._sync.kind != SUMMATION:
            return self.send_in_turns(label, collective(), ready)
        count = math.ceil(size / self._sync.bucket_bytes)
        return [self._part(label, size / count, ready) for _ in range(count)]

    def send_in_turns(self, label: object, message: Message, ready: Sequence[int]) -> list[int]:
        """Tasks of ``message`` in pieces, each behind the one before it."""
        longest = self._longest_send()
        count = max(1, min(MOST_TURNS, math.ceil(message.seconds / longest))) if longest else 1
        piece, tasks = message.times(1 / count) if count > 1 else message, list(ready)
        found = []
        for _ in range(count):
            tasks = [self._graph.send(label, piece, tasks)]
            found += tasks
        return found

    def _part(self, label: object, size: float, ready: Sequence[int]) -> int:
        there, back = self._between(self._next_server(size), size)
        returned = self._back[-self._sync.in_flight :][:1] if len(self._back) >= self._sync.in_flight else []
        pushed = self._graph.send(label, there, [*ready, *returned])
        self._back.append(self._graph.send(label, back, [pushed]))
        return self._back[-1]

    def _next_server(self, size: float) -> int:
        owed = np.array(self._sync.shares) * (self._given.sum() + size) - self._given
        chosen = int(owed.argmax())
        self._given[chosen] += size
        return self._sync.servers[chosen]

    def _between(self, server: int, size: float) -> tuple[Message, Message]:
        key = server, size
        if key not in self._messages:
            there, back = self._cost(server)
            workers = tuple(self._devices.tolist())
            self._messages[key] = (
                self._network.spread(there, workers, "push", size),
                self._network.spread(back, (server,), "pull", size),
            )
        return self._messages[key]

    def _cost(self, server: int) -> tuple[Cost, Cost]:
        if server not in self._costs:
            topology = self._network.topology
            ways = (to_server(self._devices, server, topology), from_server(self._devices, server, topology))
            self._costs[server] = (topology.cost(ways[0]), topology.cost(ways[1]))
        return self._costs[server]
