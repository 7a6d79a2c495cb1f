"""The serial devices of a FlexFlow task graph besides those that compute: links, and lanes for gradients."""

from __future__ import annotations

import functools

from experiments.hardware.topology import Cost
from experiments.parallel.planning.operators.collective_costs import in_bucket
from experiments.parallel.planning.operators.operator_costs import OperatorCosts


class TaskLanes:
    """Numbers of serial devices.

    Those that compute, the ways out of devices and of nodes, lanes for synchronization.
    """

    def __init__(self, costs: OperatorCosts) -> None:
        self._algorithms, self._node_of = costs.collectives.algorithms, costs.collectives.node_of
        self._cluster, self._devices = costs.estimate.cluster, costs.devices
        self._bucket = costs.bucket
        self._reduction = functools.cache(self._reduction_cost)
        self.count = 2 * self._devices + 2 * len(self._cluster.nodes) + 1

    def transfer(self, source: int, target: int, size: float) -> tuple[float, int]:
        """Return the seconds of a transfer and its lane."""
        node = self._node_of[source]
        if node == self._node_of[target]:
            return self._cluster.nodes[node].link.time(size), self._devices + source
        return self._cluster.network.time(size), 2 * self._devices + node

    def reduction(self, size: float, group: tuple[int, ...]) -> tuple[float, int]:
        """Of gradients that travel with others."""
        cost, lane = self._reduction(group)
        return in_bucket(cost, size, self._bucket), lane

    def _reduction_cost(self, group: tuple[int, ...]) -> tuple[Cost, int]:
        cost = self._algorithms.usual("all_reduce", (group,))
        nodes = {self._node_of[device] for device in group}
        first = 2 * self._devices + len(self._cluster.nodes)
        lane = first + (min(nodes) + 1 if len(nodes) == 1 else 0)
        return cost, lane
