"""Choosing the node for one job at a time, the same way for the lab's engine and for published ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from experiments.cluster.interface import Allocation, ClusterView, Demand, Gang
from experiments.cluster.planning.fragments.nodes import FreeNodes
from experiments.workloads.ragged import Ints

#: A node that cannot hold the job.
UNFIT = -1


class Chooser(Protocol):
    """Says where a job goes: the row of its node and places of devices there; nothing where it fits none."""

    def choose(self, demand: Demand) -> tuple[int, tuple[int, ...]] | None: ...


class PlacesOneByOne(Protocol):
    """A policy that chooses nodes for jobs one at a time."""

    def chooser(self, nodes: FreeNodes, demands: Sequence[Demand], rng: np.random.Generator) -> Chooser: ...


@dataclass
class BestScores:
    """The node with the highest score, among equals the first row.

    ``score(demand, rows)`` is asked for whole numbers from 0 on, only of nodes that changed since the same
    demand came last; ``places(demand, row)`` for the devices.
    """

    nodes: FreeNodes
    score: Callable[[Demand, Ints], Ints]
    places: Callable[[Demand, int], tuple[int, ...]]
    scores: dict[Demand, Ints] = field(default_factory=dict)
    seen: dict[Demand, int] = field(default_factory=dict)

    def choose(self, demand: Demand) -> tuple[int, tuple[int, ...]] | None:
        scores = self._scores(demand)
        row = int(scores.argmax())
        return None if scores[row] == UNFIT else (row, self.places(demand, row))

    def _scores(self, demand: Demand) -> Ints:
        changes = self.nodes.changes
        if demand not in self.scores:
            self.scores[demand] = np.empty(len(self.nodes.cpus), np.int64)
            rows = np.arange(len(self.nodes.cpus))
        else:
            rows = np.array(sorted(set(changes[self.seen[demand] :])), np.int64)
        self.seen[demand] = len(changes)
        scores = self.scores[demand]
        scores[rows] = UNFIT
        fitting = rows[self.nodes.fitting(demand, rows)]
        if len(fitting):
            scores[fitting] = self.score(demand, fitting)
        return scores


@dataclass
class OneByOne:
    """Starts waiting jobs in the order they came, each where the policy chooses; those that fit nowhere wait.

    A job larger than any node gets whole devices of the nodes with the fewest that it fills.
    """

    policy: PlacesOneByOne
    nodes: FreeNodes | None = None
    chosen: Chooser | None = None
    larger: dict[Demand, bool] = field(default_factory=dict)
    held: dict[int, Gang] = field(default_factory=dict)

    def allocate(self, view: ClusterView) -> Allocation:
        nodes, chooser = self._state(view)
        for job in (*view.ended, *view.stopped):
            nodes.give_back(self.held.pop(job))
        nodes.close(view.down)
        started, tried = [], set[Demand]()
        for job in view.waiting:
            demand = view.jobs.demand(job)
            if demand in tried:
                continue
            gang = self._place(job, demand, view, chooser)
            if gang is None:
                tried.add(demand)
                continue
            nodes.take(gang)
            self.held[job] = gang
            started.append(gang)
        return Allocation(tuple(started))

    def _state(self, view: ClusterView) -> tuple[FreeNodes, Chooser]:
        if self.nodes is None or self.chosen is None:
            self.nodes = FreeNodes(view.pool.machines)
            demands = [view.jobs.demand(job) for job in range(len(view.jobs))]
            self.larger = {demand: not self.nodes.fitting(demand).any() for demand in demands}
            self.chosen = self.policy.chooser(self.nodes, demands, view.rng)
        return self.nodes, self.chosen

    def _place(self, job: int, demand: Demand, view: ClusterView, chooser: Chooser) -> Gang | None:
        assert self.nodes is not None
        if not self.larger[demand]:
            found = chooser.choose(demand)
            return None if found is None else self.nodes.gang(job, demand, *found)
        pool = view.pool.copy()
        for other, gang in self.held.items():
            if other not in view.running:
                pool.take(gang)
        return pool.place(job, demand, "pack")
