"""What collectives among groups of a cluster's devices take, by the alpha-beta costs of its links.

The same rules as the simulator's: a ring inside a node runs at the node's link, one across nodes at the network's, which
groups that leave the same node share.
"""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import replace

from experiments.hardware import Hardware, Link, collectives
from experiments.parallel.interface import Collective

TRAFFIC = {
    "all_reduce": collectives.ring_all_reduce_traffic,
    "all_gather": collectives.ring_all_gather_traffic,
    "reduce_scatter": collectives.ring_reduce_scatter_traffic,
    "all_to_all": collectives.all_to_all_traffic,
}


class Wires:
    """Seconds of collectives among all devices of ``cluster``, numbered node by node."""

    def __init__(self, cluster: Hardware) -> None:
        self.cluster = cluster
        self.node_of = [n for n, node in enumerate(cluster.nodes) for _ in range(node.device_count)]

    @property
    def devices(self) -> int:
        return len(self.node_of)

    @functools.cached_property
    def per_node(self) -> int:
        """Devices of the smallest node: groups of so many neighbours stay inside where all nodes are equal."""
        return min(node.device_count for node in self.cluster.nodes)

    @property
    def uneven(self) -> bool:
        return any(node.device_count != self.per_node for node in self.cluster.nodes)

    def seconds(self, kind: str, size: float, ranks: int, stride: int = 1) -> float:
        """Of the slowest group; ``size`` is the bytes of the whole vector (see ``hardware.collectives``)."""
        if ranks == 1 or size == 0:
            return 0.0
        link, shared = self._pace(ranks, stride)
        paced = replace(link, bandwidth=link.bandwidth / shared)
        return collectives.seconds(paced, TRAFFIC[kind](ranks, size))

    @functools.lru_cache(maxsize=1024)  # noqa: B019 - one object for each search
    def _pace(self, ranks: int, stride: int) -> tuple[Link, int]:
        """The slowest link of all groups and how many of them share it."""
        groups = Collective("all_reduce", 0.0, ranks, stride).groups(range(self.devices))
        crossed = [sorted({self.node_of[device] for device in group}) for group in groups]
        counts = Counter(node for nodes in crossed if len(nodes) > 1 for node in nodes)
        if counts:
            return self.cluster.network, max(counts.values())
        links = [self.cluster.nodes[nodes[0]].link for nodes in crossed]
        return min(links, key=lambda link: link.bandwidth), 1
