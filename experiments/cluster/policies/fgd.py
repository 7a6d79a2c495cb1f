"""FGD, ATC'23: fragmentation gradient descent.

What is idle on a node is a fragment to a job in so far as the job cannot use it; its expectation over the
typical jobs of the workload is how fragmented the node is. Each job goes where this grows least (falls most),
part of a device to the device where it does. Scores are ``100 sigmoid(fall / 1000)`` cut to whole numbers, as
in the authors' scheduler, and among equals the first node wins: by name, or under ``rules: fgd`` in an order
that the seed says. With ties broken at random at each decision their figures do not come out.

Typical jobs are counted over the requests of the whole trace, which stand for the history that the paper
takes. Left open by the paper: ties, and jobs larger than a node, which get whole devices of the fullest
nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from experiments.cluster.interface import ClusterPolicy, Decider, Demand, rules_of
from experiments.cluster.planning.fragments.choosers import BestScores, Chooser, OneByOne
from experiments.cluster.planning.fragments.nodes import SLACK, WHOLE, FreeNodes, after
from experiments.cluster.planning.fragments.typical import TypicalDemands
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats


@dataclass(frozen=True)
class Fgd(ClusterPolicy):
    """Puts each job where it leaves the fewest devices that typical jobs cannot use."""

    name: ClassVar[str] = "fgd"
    mechanism: ClassVar[str] = "against fragments"

    rules: str = rules_of("fgd")

    def begin(self) -> Decider:
        return OneByOne(self)

    def chooser(self, nodes: FreeNodes, demands: Sequence[Demand], rng: np.random.Generator) -> Chooser:
        gradient = Gradient(nodes, TypicalDemands(demands, nodes))
        return BestScores(nodes, gradient.score, gradient.places)


@dataclass
class Gradient:
    """Scores nodes, and devices of a node, by how far a job makes its expected fragments fall."""

    nodes: FreeNodes
    typical: TypicalDemands

    def score(self, demand: Demand, rows: Ints) -> Ints:
        if _is_part(demand):
            found = np.zeros(len(rows), np.int64)
            of, _, scores = self._parts(demand, rows)
            np.maximum.at(found, of, scores)
            return found
        return self._scores(rows, after(self.nodes, demand, rows), demand)

    def places(self, demand: Demand, row: int) -> tuple[int, ...]:
        if not _is_part(demand):
            return self.nodes.fullest(demand, row)
        _, places, scores = self._parts(demand, np.array([row]))
        return (int(places[scores.argmax()]),)

    def _parts(self, demand: Demand, rows: Ints) -> tuple[Ints, Ints, Ints]:
        """Each device of ``rows`` with room: the place of its row, its own, and its score."""
        want = demand.share * WHOLE
        of, places = np.nonzero(self.nodes.idle[rows] + SLACK >= want)
        idle = self.nodes.idle[rows][of]
        idle[np.arange(len(of)), places] -= want
        return of, places, self._scores(rows[of], idle, demand)

    def _scores(self, rows: Ints, idle: Floats, demand: Demand) -> Ints:
        fragments, cpus = self.typical.fragments, self.nodes.cpus[rows]
        before = fragments(rows, self.nodes.idle[rows], cpus)
        fall = before - fragments(rows, idle, cpus - demand.cpus)
        found: Ints = (100 / (1 + np.exp(-fall / WHOLE))).astype(np.int64)
        return found


def _is_part(demand: Demand) -> bool:
    return demand.gpus == 1 and demand.share < 1
