"""How many nodes are worth their price: as many as keep the utility of their devices between two thresholds.

Utility is the speed-up of all jobs over one device each, for each device (section 4.2.3). When its mean over
some rounds leaves the range, the number of nodes whose best allocation is nearest to the middle is searched
for by bisection.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from experiments.cluster.interface import ClusterView
from experiments.cluster.policies.pollux.scheduler import Scheduler, row_of, utility

#: Rounds whose mean utility decides.
ROUNDS = 15


class Autoscaler:
    """``nodes`` in use, the first of the cluster."""

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high
        self.nodes: int | None = None
        self.recent: list[float] = []
        self.rounds = self.node_rounds = 0

    @property
    def facts(self) -> Mapping[str, Any]:
        """What provenance tells of the nodes in use."""
        return {"mean nodes in use": self.node_rounds / max(1, self.rounds)}

    def capacity(self, view: ClusterView, scheduler: Scheduler) -> list[int]:
        """Devices of each node that may be used now, none of those not in use."""
        total = len(view.pool.capacity)
        self.nodes = self.nodes or total
        present = {job: row_of(job, view) for job in view.running}
        self.recent.append(utility(present, scheduler.agents, max(1, sum(view.pool.capacity[: self.nodes]))))
        mean = sum(self.recent) / len(self.recent)
        outside = (mean < self.low and self.nodes > 1) or (mean > self.high and self.nodes < total)
        if len(self.recent) >= ROUNDS and outside:
            self.nodes = self._bisect(view, scheduler, total)
            self.recent.clear()
        self.recent = self.recent[-ROUNDS:]
        self.rounds += 1
        self.node_rounds += self.nodes
        return self._first(view, self.nodes)

    def _first(self, view: ClusterView, nodes: int) -> list[int]:
        return [size if node < nodes else 0 for node, size in enumerate(view.pool.capacity)]

    def _bisect(self, view: ClusterView, scheduler: Scheduler, total: int) -> int:
        """The number of nodes whose utility, which falls with more, is nearest to the middle of the range."""
        middle, fewest, most = (self.low + self.high) / 2, 1, total
        while fewest + 1 < most:
            nodes = (fewest + most) // 2
            if self._utility(view, scheduler, nodes) < middle:
                most = nodes
            else:
                fewest = nodes
        return min((fewest, most), key=lambda nodes: abs(self._utility(view, scheduler, nodes) - middle))

    def _utility(self, view: ClusterView, scheduler: Scheduler, nodes: int) -> float:
        """That of the best allocation on so many nodes."""
        capacity = self._first(view, nodes)
        if not sum(capacity):
            return float("inf")
        trial = Scheduler(scheduler.settings, scheduler.agents, scheduler.jobs, copy.copy(scheduler.states))
        return utility(trial.allocate(view, capacity), scheduler.agents, sum(capacity))
