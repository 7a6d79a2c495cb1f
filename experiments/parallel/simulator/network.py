"""Which channels a message crosses and how long it takes, on the cluster's topology (``hardware.topology``).

A message that stays in a node holds the node-link channels that it uses for its whole time, one that leaves a
node the adapters; messages that hold the same channel follow each other, first come, first served. Of the
other channels (node links on the way to an adapter, uplinks of leaf switches), which are wider than one
message, it takes its share: each carries its messages' bytes one after the other, and a message ends no
earlier than its own bytes there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from experiments.core.errors import BadInput
from experiments.hardware import Hardware
from experiments.hardware.algorithms import AUTO, Algorithms
from experiments.hardware.patterns import PATTERNS, usual_algorithm
from experiments.hardware.topology import Cost


@dataclass(frozen=True)
class Message:
    """Channels held, seconds, and the bytes that each of ``senders`` sends on the wire.

    ``kind`` is ``send`` or a collective's; ``size`` the bytes that a sender hands over: what it sends, or the
    whole vector of a collective. ``shares`` are (channel, seconds) of channels that it shares. One that is
    several in a row has them as ``parts``.
    """

    channels: tuple[int, ...]
    seconds: float
    senders: tuple[int, ...]
    sent: float
    kind: str
    size: float
    shares: tuple[tuple[int, float], ...] = ()
    parts: tuple[Message, ...] = ()

    def times(self, count: float) -> Message:
        """``count`` such messages in a row as one; a part of one piece by piece where it is below 1."""
        shares = tuple((channel, seconds * count) for channel, seconds in self.shares)
        seconds, sent, size = (value * count for value in (self.seconds, self.sent, self.size))
        return replace(self, seconds=seconds, sent=sent, size=size, shares=shares)


def join(messages: Iterable[Message]) -> Iterator[Message]:
    """Messages one after another, those in a row that hold the same channels as one."""
    for _, row in itertools.groupby(messages, lambda message: (message.channels, message.shares)):
        parts = tuple(row)
        if len(parts) == 1 or parts[0].shares:
            yield from parts
        else:
            seconds = sum(part.seconds for part in parts)
            yield replace(parts[0], seconds=seconds, parts=parts)


class Network:
    """The channels of one cluster, and what was found out about its collectives so far."""

    def __init__(self, cluster: Hardware) -> None:
        self.algorithms = Algorithms(cluster)
        self.topology = self.algorithms.topology
        self._known: dict[tuple[str, tuple[tuple[int, ...], ...], float, str], Message] = {}

    def point_to_point(self, source: int, target: int, size: float) -> Message:
        """``size`` bytes from device to device."""
        return self.transfers((source,), (target,), size)

    def transfers(self, sources: Sequence[int], targets: Sequence[int], size: float) -> Message:
        """``size`` bytes from each source to its target, all at once."""
        cost = self.algorithms.sends(tuple(sources), tuple(targets))
        return self._message(cost, tuple(sources), "send", size)

    def collective(self, kind: str, devices: Sequence[int], size: float, algorithm: str = "ring") -> Message:
        """``size`` is the whole vector's bytes (see ``hardware.collectives``)."""
        return self.groups(kind, (tuple(devices),), size, algorithm)

    def groups(
        self, kind: str, groups: Sequence[Sequence[int]], size: float, algorithm: str = "ring"
    ) -> Message:
        """The same collective in every one of ``groups`` (of equal size) at once.

        Equal ones are one object.
        """
        key = kind, tuple(map(tuple, groups)), size, algorithm
        if key not in self._known:
            self._known[key] = self._in_groups(*key)
        return self._known[key]

    def _in_groups(
        self, kind: str, rows: tuple[tuple[int, ...], ...], size: float, algorithm: str
    ) -> Message:
        if algorithm not in PATTERNS[kind]:
            algorithm = AUTO if algorithm == AUTO or kind == "broadcast" else usual_algorithm(kind)
        if algorithm == AUTO:
            algorithm = self.algorithms.best(kind, rows, size)
        cost = self.algorithms.cost(kind, rows, algorithm)
        if cost is None:
            raise BadInput(
                f"the nodes hold unequal numbers of {len(rows[0])} replicas",
                "algorithm",
                "as many on each node",
            )
        return self._message(cost, tuple(device for row in rows for device in row), kind, size)

    def spread(self, cost: Cost, senders: tuple[int, ...], kind: str, size: float) -> Message:
        """A message that takes its share of every channel it crosses and holds none.

        It is one of many small ones.
        """
        return Message(
            (), cost.seconds(size), senders, cost.sent * size, kind, size, self._shares(cost, size)
        )

    def _message(self, cost: Cost, senders: tuple[int, ...], kind: str, size: float) -> Message:
        adapters, uplinks = self.topology.adapters, self.topology.uplinks
        crossed = sorted(cost.loads)
        network = tuple(channel for channel in crossed if adapters <= channel < uplinks)
        shares = self._shares(cost, size) if network else ()
        others = tuple((channel, own) for channel, own in shares if not adapters <= channel < uplinks)
        return Message(
            network or tuple(crossed), cost.seconds(size), senders, cost.sent * size, kind, size, others
        )

    def _shares(self, cost: Cost, size: float) -> tuple[tuple[int, float], ...]:
        rate = self.topology.rate
        return tuple((c, load * size / float(rate[c])) for c, load in sorted(cost.loads.items()))
