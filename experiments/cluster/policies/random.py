"""Random placement: the least that a placement policy has to beat.

A job goes to a random node that holds it, part of a device to a random one with room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from experiments.cluster.interface import ClusterPolicy, Decider, Demand, rules_of
from experiments.cluster.planning.fragments.choosers import Chooser, OneByOne
from experiments.cluster.planning.fragments.nodes import SLACK, WHOLE, FreeNodes


@dataclass(frozen=True)
class Random(ClusterPolicy):
    """Puts each job on a random node that has room for it."""

    name: ClassVar[str] = "random"
    mechanism: ClassVar[str] = "in order"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")

    rules: str = rules_of("fgd")

    def begin(self) -> Decider:
        return OneByOne(self)

    def chooser(self, nodes: FreeNodes, demands: Sequence[Demand], rng: np.random.Generator) -> Chooser:
        return _Anywhere(nodes, rng)


@dataclass
class _Anywhere:
    nodes: FreeNodes
    rng: np.random.Generator

    def choose(self, demand: Demand) -> tuple[int, tuple[int, ...]] | None:
        rows = np.flatnonzero(self.nodes.fitting(demand))
        if not len(rows):
            return None
        row = int(self.rng.choice(rows))
        places = np.flatnonzero(self.nodes.idle[row] + SLACK >= demand.share * WHOLE)
        chosen = self.rng.choice(places, demand.gpus, replace=False) if demand.gpus else places[:0]
        return row, tuple(sorted(chosen.tolist()))
