"""What collectives among neighbouring devices of a whole cluster take: the simulator's own costs, looked up once."""

from __future__ import annotations

import functools

import numpy as np

from experiments.hardware import Hardware
from experiments.hardware.patterns import PATTERNS
from experiments.hardware.topology import Cost, Topology
from experiments.parallel.interface import Collective


def in_bucket(cost: Cost, size: float, bucket: float) -> float:
    """Seconds of ``size`` bytes that travel with others: of a ``bucket``'s latency they have their share."""
    return cost.latency * min(1.0, size / bucket) + cost.slope * size


class Wires:
    """Seconds of collectives among all devices of ``cluster``, numbered node by node."""

    def __init__(self, cluster: Hardware) -> None:
        self.cluster = cluster
        self.topology = Topology(cluster)
        self.node_of = [n for n, node in enumerate(cluster.nodes) for _ in range(node.device_count)]
        self._costs: dict[tuple[str, int, int], Cost] = {}

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

    def seconds(self, collective: Collective) -> float:
        """``bytes`` are taken as they are, whatever they count for."""
        ranks = collective.ranks or self.devices
        if ranks == 1 or collective.bytes == 0:
            return 0.0
        return self.cost(collective.kind, ranks, collective.stride).seconds(collective.bytes)

    def cost(self, kind: str, ranks: int, stride: int = 1) -> Cost:
        """In every group of ``ranks`` devices ``stride`` apart at once: rings where there are any."""
        key = kind, ranks, stride
        if key not in self._costs:
            groups = np.array(Collective(kind, 0.0, ranks, stride).groups(range(self.devices)))
            patterns = PATTERNS[kind]
            pattern = patterns["ring"] if "ring" in patterns else next(iter(patterns.values()))
            self._costs[key] = self.topology.cost(pattern(groups, self.topology))
        return self._costs[key]
