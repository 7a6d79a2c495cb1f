"""Typical demands of a workload, and the share of what is idle that they cannot use (FGD, ATC 2023)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from experiments.cluster.interface import Demand
from experiments.cluster.planning.fragments.nodes import SLACK, WHOLE, FreeNodes
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats

#: Share of all demands that typical ones cover.
COVERED = 0.95


class TypicalDemands:
    """The most frequent demands, until they cover most of all, with how frequent each is among them.

    Host memory plays no part. What is idle on a node is a fragment to a demand in so far as it cannot be used
    for it: all of it where the node cannot hold the demand (one without GPUs never uses any), otherwise the
    devices on which less is left than it wants.
    """

    def __init__(self, demands: Iterable[Demand], nodes: FreeNodes) -> None:
        counts = Counter(demand._replace(memory=0.0) for demand in demands)
        ranked = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
        before = np.cumsum([0, *(count for _, count in ranked)])
        chosen = [
            entry
            for entry, earlier in zip(ranked, before.tolist(), strict=False)
            if earlier < COVERED * before[-1]
        ]
        self.demands = tuple(demand for demand, _ in chosen)
        self.frequency = np.array([count for _, count in chosen], np.float64)
        self.frequency /= self.frequency.sum()
        self._cpus = np.array([demand.cpus for demand in self.demands])
        self._gpus = np.array([demand.gpus for demand in self.demands])
        self._shares, self._share_of = np.unique(
            [demand.share * WHOLE for demand in self.demands], return_inverse=True
        )
        allowed = [nodes.allowed(demand.types) for demand in self.demands]
        self._usable = np.array(allowed).T & (self._gpus > 0)

    def fragments(self, rows: Ints, idle: Floats, cpus: Floats) -> Floats:
        """Expected fragments, in thousandths of devices, of ``rows`` in these states."""
        total = idle.sum(axis=1)
        enough = idle[:, :, None] + SLACK >= self._shares
        used = (idle[:, :, None] * enough).sum(axis=1)[:, self._share_of]
        holds = enough.sum(axis=1)[:, self._share_of] >= self._gpus
        holds &= self._usable[rows] & (cpus[:, None] + SLACK >= self._cpus)
        found: Floats = total - np.where(holds, used, 0.0) @ self.frequency
        return found

    def of_cluster(self, nodes: FreeNodes) -> float:
        """The fragments of all nodes."""
        return float(self.fragments(np.arange(len(nodes.cpus)), nodes.idle, nodes.cpus).sum())
