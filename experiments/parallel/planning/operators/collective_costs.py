"""What collectives among neighboring devices of a whole cluster take: the simulator's own costs, looked up
once.
"""

from __future__ import annotations

import functools

from experiments.hardware import Hardware
from experiments.hardware.algorithms import Algorithms
from experiments.hardware.topology import Cost
from experiments.parallel.interface import Collective


def in_bucket(cost: Cost, size: float, bucket: float) -> float:
    """Seconds of ``size`` bytes that travel with others: of a ``bucket``'s latency they have their share."""
    return cost.latency * min(1.0, size / bucket) + cost.slope * size


class CollectiveCosts:
    """Seconds of collectives among all devices of ``cluster``, numbered node by node."""

    def __init__(self, cluster: Hardware) -> None:
        self.cluster = cluster
        self.algorithms = Algorithms(cluster)
        self.node_of = [n for n, node in enumerate(cluster.nodes) for _ in range(node.device_count)]
        self._costs: dict[tuple[str, int, int], Cost] = {}

    @property
    def devices(self) -> int:
        return len(self.node_of)

    @functools.cached_property
    def per_node(self) -> int:
        """The number of devices of the smallest node.

        Groups of so many neighbors stay inside where all nodes are equal.
        """
        return min(node.device_count for node in self.cluster.nodes)

    @property
    def uneven(self) -> bool:
        return any(node.device_count != self.per_node for node in self.cluster.nodes)

    def seconds(self, collective: Collective) -> float:
        """``bytes`` are taken as they are, whatever they count for."""
        ranks = collective.ranks or self.devices
        if ranks == 1 or collective.bytes == 0:
            return 0.0
        return self.cost(collective.kind, ranks, collective.stride).seconds(collective.bytes)

    def cost(self, kind: str, ranks: int, stride: int = 1) -> Cost:
        """In every group of ``ranks`` devices ``stride`` apart at once."""
        key = kind, ranks, stride
        if key not in self._costs:
            groups = Collective(kind, 0.0, ranks, stride).groups(range(self.devices))
            self._costs[key] = self.algorithms.usual(kind, tuple(map(tuple, groups)))
        return self._costs[key]
