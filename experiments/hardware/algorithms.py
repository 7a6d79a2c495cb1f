"""Which collective algorithm is fastest on a cluster, and from which size on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from experiments.hardware.parts import Hardware
from experiments.hardware.patterns import PATTERNS, Unfit, usual_algorithm
from experiments.hardware.topology import Cost, Flows, Round, Topology

Groups = tuple[tuple[int, ...], ...]
#: Stands for the algorithm that takes least time.
AUTO = "auto"


class Algorithms:
    """Costs of collectives on one cluster, each worked out once."""

    def __init__(self, cluster: Hardware) -> None:
        self.cluster, self.topology = cluster, Topology(cluster)
        self._seen = {kind: Topology(cluster.seen_by(kind)) for kind, _ in cluster.collectives}
        self._costs: dict[tuple[str, Groups, str], Cost | None] = {}

    def cost(self, kind: str, groups: Groups, algorithm: str) -> Cost | None:
        """In all ``groups`` (of equal size) at once. Nothing where the algorithm does not fit the groups."""
        key = kind, groups, algorithm
        if key not in self._costs:
            self._costs[key] = self._find(*key)
        return self._costs[key]

    def _find(self, kind: str, groups: Groups, algorithm: str) -> Cost | None:
        try:
            topology = self._seen.get(kind, self.topology)
            return topology.cost(PATTERNS[kind][algorithm](np.array(groups), topology))
        except Unfit:
            return None

    def usual(self, kind: str, groups: Groups) -> Cost:
        """In all ``groups`` at once by the usual algorithm, which fits any."""
        found = self.cost(kind, groups, usual_algorithm(kind))
        assert found is not None
        return found

    def sends(self, sources: tuple[int, ...], targets: tuple[int, ...]) -> Cost:
        """From each source to its target, all at once."""
        key = "send", (sources, targets), ""
        if key not in self._costs:
            flows = Flows(np.array(sources), np.array(targets), np.ones(len(sources)))
            self._costs[key] = self.topology.cost([Round(1, [flows])])
        found = self._costs[key]
        assert found is not None
        return found

    def usable(self, kind: str, groups: Groups) -> dict[str, Cost]:
        """The algorithms that fit, with their costs."""
        return {name: cost for name in PATTERNS[kind] if (cost := self.cost(kind, groups, name))}

    def best(self, kind: str, groups: Groups, size: float) -> str:
        """The algorithm that takes least time for ``size`` bytes; the first of equals."""
        usable = self.usable(kind, groups)
        return min(usable, key=lambda name: usable[name].seconds(size))


def least_size(holds: Callable[[float], bool], most: float, steps: int = 200) -> float | None:
    """The least size from 0 to ``most`` bytes at which ``holds``, by bisection.

    It holds for all larger ones. Nothing where it does not hold at ``most``.
    """
    if holds(0.0):
        return 0.0
    if not holds(most):
        return None
    low, high = 0.0, most
    for _ in range(steps):
        middle = (low + high) / 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high
