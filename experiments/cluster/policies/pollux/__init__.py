"""Pollux, OSDI'21: devices and batch of every job together, for the most goodput.

The agent of each job measures its steps and the noise of its gradients, fits a model of them and expects from
it the goodput of any allocation with its best batch (``planning.agents``). Every minute a genetic search
(``genetic``, ``generations``) looks for the allocation whose power mean of speed-ups is largest
(``scheduler``); each job then trains at the batch that is best on what it has. Nobody is told how long jobs
are. A job starts on one device and is given at most twice as many as it was measured on.

Chosen here: a matrix of the search is ranked by how many others are better in both objectives, not by
crowded fronts, and the search ends early where its fittest stays the same for ``patience`` generations. An
agent fits anew when its model was more than 1 % off. Between rounds a job that comes gets one device if one
is free. With ``autoscale`` only so many nodes are used that the utility of all their devices stays between
two thresholds (section 4.2.3).

Under ``rules: pollux`` a restart costs 30 s, also to the search, and ncf trains at its largest batch on one
device. Not reproduced there: batches change at ticks alone, not also at the ends of epochs between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from experiments.cluster.interface import Allocation, ClusterPolicy, ClusterView, Decider, Gang
from experiments.cluster.interface.policy import OWN, rules_of
from experiments.cluster.policies.pollux.autoscale import Autoscaler
from experiments.cluster.policies.pollux.placing import gang_on, gangs_for
from experiments.cluster.policies.pollux.scheduler import Scheduler, SearchSettings
from experiments.core.knobs import knob
from experiments.core.policy import MINUTES
from experiments.core.processes import search_processes

POLLUX = "pollux"
#: What a restart costs in the release.
RELEASE_DELAY = 30.0


@dataclass(frozen=True)
class Pollux(ClusterPolicy):
    """Searches for the devices and batches of all jobs with the largest mean goodput."""

    name: ClassVar[str] = "pollux"
    mechanism: ClassVar[str] = "resize to the best use"
    effort: ClassVar[str] = MINUTES
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")
    sees: ClassVar[frozenset[str]] = frozenset({"gradients"})
    models: ClassVar[tuple[str, ...]] = ("goodput",)
    rigid: ClassVar[bool] = False
    quick: ClassVar[Mapping[str, Any]] = {"interval": 6.0, "population": 10, "generations": 6}
    exceptions: ClassVar[Mapping[str, str]] = {
        "closed_form": "a job starts on one device and gets more as it measures itself"
    }

    rules: str = rules_of(POLLUX)
    interval: float = knob(60.0, "time from one search to the next", low=1.0, high=86400.0, unit="s")
    power: float = knob(
        -1.0, "of the mean of speed-ups: 1 for the most in all, below -1 fairer", low=-10.0, high=1.0
    )
    population: int = knob(100, "matrices of a generation", low=2, high=10000)
    generations: int = knob(100, "generations of a search", low=1, high=10000)
    patience: int = knob(30, "generations without a better one after which a search ends", low=1, high=10000)
    processes: int = search_processes()
    autoscale: bool = knob(False, "use only as many nodes as are used well")
    low_utility: float = knob(0.35, "utility below which nodes are given up", low=0.0, high=1.0)
    high_utility: float = knob(0.65, "utility above which nodes are added", low=0.0, high=1.0)

    @property
    def round_seconds(self) -> float | None:
        return self.interval

    @property
    def not_live(self) -> Mapping[str, str]:
        if self.autoscale:
            return {"autoscale": "false: this host is one node, of which none can be given up"}
        return super().not_live

    def begin(self) -> Decider:
        return _Rounds(self)


class _Rounds:
    """Keeps agents, the last population and the nodes in use."""

    def __init__(self, policy: Pollux) -> None:
        self.policy = policy
        delay = policy.restart_cost if policy.rules == OWN else RELEASE_DELAY
        self.scheduler = Scheduler(
            SearchSettings(
                policy.power,
                delay,
                policy.population,
                policy.generations,
                policy.patience,
                policy.processes,
            )
        )
        scales = policy.autoscale
        self.autoscaler = Autoscaler(policy.low_utility, policy.high_utility) if scales else None

    @property
    def facts(self) -> Mapping[str, Any]:
        return {} if self.autoscaler is None else self.autoscaler.facts

    def allocate(self, view: ClusterView) -> Allocation:
        self.scheduler.agents.follow(view)
        if not view.running and not view.waiting:
            return Allocation()
        if view.running and not view.round_ended:
            return self._start_waiting(view)
        capacity = view.pool.capacity
        if self.autoscaler is not None:
            capacity = self.autoscaler.capacity(view, self.scheduler)
        rows = self.scheduler.allocate(view, capacity)
        batches = {
            job: self.scheduler.agents[job].best_batch(sum(count > 0 for count in row) > 1, sum(row))
            for job, row in rows.items()
            if any(row)
        }
        start, moved = gangs_for(rows, batches, view)
        for job in moved:
            self.scheduler.agents[job].restarts += 1
        return Allocation(
            start=tuple(start), preempt=tuple(job for job in view.running if not any(rows[job]))
        )

    def _start_waiting(self, view: ClusterView) -> Allocation:
        """Let who comes between rounds have a first device."""
        pool, started = view.pool.copy(), list[Gang]()
        for job in view.waiting:
            gang = gang_on(job, pool, self.scheduler.agents[job].best_batch(False, 1), self.policy.placement)
            if gang is None:
                break
            pool.take(gang)
            started.append(gang)
            self.scheduler.agents[job].restarts += 1
        return Allocation(start=tuple(started))
