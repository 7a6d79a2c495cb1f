"""Best fit: the node of which least is left, processors and devices weighed equally.

Remainders are measured against the largest node of the openb cluster (128 processors, 8 devices), as the
simulator that FGD (ATC'23) was published with does; parts of devices go to the fullest one with room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from experiments.cluster.interface import ClusterPolicy, Decider, Demand, rules_of
from experiments.cluster.planning.fragments.choosers import BestScores, Chooser, OneByOne
from experiments.cluster.planning.fragments.nodes import WHOLE, FreeNodes
from experiments.workloads.ragged import Ints

#: What remainders are measured against.
MOST_CPUS, MOST_DEVICES = 128.0, 8.0


@dataclass(frozen=True)
class BestFit(ClusterPolicy):
    """Puts each job on the node that it leaves least of."""

    name: ClassVar[str] = "best_fit"
    mechanism: ClassVar[str] = "against fragments"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")

    rules: str = rules_of("fgd")

    def begin(self) -> Decider:
        return OneByOne(self)

    def chooser(self, nodes: FreeNodes, demands: Sequence[Demand], rng: np.random.Generator) -> Chooser:
        largest = np.array([MOST_CPUS, MOST_DEVICES * WHOLE])
        finite = nodes.cpus[np.isfinite(nodes.cpus)]
        largest = np.maximum(largest, [finite.max(initial=0.0), nodes.idle.sum(axis=1).max()])

        def score(demand: Demand, rows: Ints) -> Ints:
            cpus = np.where(np.isfinite(nodes.cpus[rows]), nodes.cpus[rows] - demand.cpus, 0.0)
            devices = nodes.idle[rows].sum(axis=1) - demand.gpus * demand.share * WHOLE
            left = 0.5 * cpus / largest[0] + 0.5 * devices / largest[1]
            found: Ints = ((1 - left) * 100).astype(np.int64)
            return found

        return BestScores(nodes, score, nodes.fullest)
