"""Which channels a message crosses and how long it takes: alpha-beta costs on a node's links and the network.

Channels: each device has a way out of it and a way into it on its node's link, each node the same on the network; on
a link that is not duplex the two are one. A message holds every channel it crosses for its whole time, so messages
that share one follow each other. Inside a node devices are joined all to all (a switch); the network has no
bottleneck but the nodes' own links.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from experiments.core.errors import BadInput
from experiments.hardware import Hardware, Link, collectives
from experiments.hardware.collectives import Traffic

ALL_REDUCE: dict[str, Callable[[int, float], Traffic]] = {
    "ring": collectives.ring_all_reduce_traffic,
    "tree": collectives.tree_all_reduce_traffic,
    "doubling": collectives.doubling_all_reduce_traffic,
    "halving_doubling": collectives.halving_doubling_all_reduce_traffic,
}
OTHER: dict[str, Callable[[int, float], Traffic]] = {
    "reduce_scatter": collectives.ring_reduce_scatter_traffic,
    "all_gather": collectives.ring_all_gather_traffic,
    "all_to_all": collectives.all_to_all_traffic,
    "permute": collectives.permute_traffic,
}


@dataclass(frozen=True)
class Message:
    """Channels held, seconds, and the bytes that each of ``senders`` sends on the wire.

    ``kind`` is ``send`` or a collective's; ``size`` the bytes that a sender hands over: what it sends, or the whole
    vector of a collective.
    """

    channels: tuple[int, ...]
    seconds: float
    senders: tuple[int, ...]
    sent: float
    kind: str
    size: float


class Network:
    """The channels of one cluster."""

    def __init__(self, cluster: Hardware) -> None:
        self._nodes = cluster.nodes
        self._network = cluster.network
        self.node_of = [n for n, node in enumerate(self._nodes) for _ in range(node.device_count)]

    def point_to_point(self, source: int, target: int, size: float) -> Message:
        """``size`` bytes from device to device."""
        link, nodes = self._between((source, target))
        ends = (2 * source, 2 * target) if len(nodes) == 1 else tuple(map(self._nic, nodes))
        channels = {ends[0], _channel(ends[1] + 1, link)}
        seconds = collectives.point_to_point(link, size)
        return Message(tuple(sorted(channels)), seconds, (source,), size, "send", size)

    def collective(
        self, kind: str, devices: Sequence[int], size: float, algorithm: str = "ring", shared: int = 1
    ) -> Message:
        """``size`` is the whole vector's bytes (see ``hardware.collectives``); ``shared`` groups use a node's network."""
        link, nodes = self._between(devices)
        seconds, sent = self._cost(kind, devices, size, algorithm, shared)
        channels = {_channel(2 * d + way, self._node_link(d)) for d in devices for way in (0, 1)}
        if len(nodes) > 1:
            channels |= {_channel(self._nic(n) + way, link) for n in nodes for way in (0, 1)}
        return Message(tuple(sorted(channels)), seconds, tuple(devices), sent, kind, size)

    def groups(self, kind: str, groups: Sequence[Sequence[int]], size: float) -> Message:
        """The same collective in every one of ``groups`` at once; those that leave a node share its network link."""
        devices = [device for group in groups for device in group]
        crossing = Counter(n for group in groups for n in self._crossed(group))
        found = [
            self.collective(
                kind, group, size, shared=max((crossing[n] for n in self._crossed(group)), default=1)
            )
            for group in groups
        ]
        channels = sorted({channel for message in found for channel in message.channels})
        seconds = max(message.seconds for message in found)
        sent = max(message.sent for message in found)
        return Message(tuple(channels), seconds, tuple(devices), sent, kind, size)

    def _crossed(self, devices: Sequence[int]) -> list[int]:
        """The nodes of a group that is on more than one."""
        _, nodes = self._between(devices)
        return nodes if len(nodes) > 1 else []

    def _cost(
        self, kind: str, devices: Sequence[int], size: float, algorithm: str, shared: int
    ) -> tuple[float, float]:
        link, nodes = self._between(devices)
        if len(nodes) > 1 and shared > 1:
            link = replace(link, bandwidth=link.bandwidth / shared)
        ranks = len(devices)
        if kind == "all_reduce" and algorithm == "hierarchical" and len(nodes) > 1:
            if ranks % len(nodes):
                raise BadInput(f"{ranks} replicas on {len(nodes)} nodes", "algorithm", "as many on each node")
            local = self._node_link(devices[0])
            seconds = collectives.hierarchical_all_reduce(local, link, len(nodes), ranks // len(nodes), size)
            return seconds, collectives.ring_all_reduce_traffic(ranks, size).sent
        algorithm = "ring" if algorithm == "hierarchical" else algorithm
        if kind == "broadcast":
            traffic = collectives.best_broadcast_traffic(link, ranks, size)
        else:
            traffic = (ALL_REDUCE[algorithm] if kind == "all_reduce" else OTHER[kind])(ranks, size)
        return collectives.seconds(link, traffic), traffic.sent

    def _between(self, devices: Sequence[int]) -> tuple[Link, list[int]]:
        """The link that sets the pace among ``devices``, and the nodes they are on."""
        nodes = list(dict.fromkeys(self.node_of[device] for device in devices))
        if len(nodes) > 1:
            return self._network, nodes
        return self._nodes[nodes[0]].link, nodes

    def _node_link(self, device: int) -> Link:
        return self._nodes[self.node_of[device]].link

    def _nic(self, node: int) -> int:
        return 2 * (len(self.node_of) + node)


def _channel(number: int, link: Link) -> int:
    """Even numbers lead out, odd ones in; on a link that is not duplex the way in is the way out."""
    return number if link.duplex else number - number % 2
