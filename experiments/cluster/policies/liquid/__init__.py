"""Liquid, TPDS'22: what jobs use is estimated, and they are placed by network cost and fit.

- *Estimation*: a random forest on ended jobs says which part of its GPUs a job will use (``forest``); with
  ``head_room`` on top of it that is all it gets, so that jobs share GPUs on which their parts add up to no
  more than one. Where nothing is known a job has its GPUs alone.
- *Immediate mode*: best fit over sets of nodes by network cost and what would stay idle (``rooms``).
- *Batch mode*: the jobs of a window are placed together by a grouping genetic algorithm (``grouping``).

Only the abstract and notes were at hand: weights, population and windows are chosen here, an estimate of
computing stands for that of a GPU's memory too, and processors and host memory are those asked for, where a
trace tells any. Loading a job's data before it starts, and reporting by events, are not modelled. The paper's
jobs ask for nothing; here the number of GPUs is the trace's. First come, first served; what does not fit is
skipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from experiments.cluster.interface import (
    NOTHING,
    Allocation,
    ClusterPolicy,
    ClusterView,
    Decider,
    Devices,
    Gang,
)
from experiments.cluster.policies.liquid.forest import Features, Forest
from experiments.cluster.policies.liquid.grouping import Search, best_fit, search
from experiments.cluster.policies.liquid.rooms import Rooms, Want
from experiments.core.knobs import knob
from experiments.core.policy import SECONDS
from experiments.core.processes import search_processes

IMMEDIATE, BATCH = "immediate", "batch"
WORDS = ("user", "name", "group")


@dataclass(frozen=True)
class Liquid(ClusterPolicy):
    """Gives jobs the part of their GPUs that they will use, near each other and where little stays idle."""

    name: ClassVar[str] = "liquid"
    mechanism: ClassVar[str] = "share devices"
    effort: ClassVar[str] = SECONDS
    sees: ClassVar[frozenset[str]] = frozenset({"model", "batch", "utilization", *WORDS})
    quick: ClassVar[Mapping[str, Any]] = {"first_fit": 4, "population": 6, "generations": 4}

    mode: str = knob(
        IMMEDIATE, "jobs are placed as they come, or those of a window together", choices=(IMMEDIATE, BATCH)
    )
    window: float = knob(60.0, "how long jobs are gathered in batch mode", low=1e-3, high=86400.0, unit="s")
    alpha: float = knob(0.5, "weight of the network cost", low=0.0, high=1.0)
    beta: float = knob(0.5, "weight of what stays idle", low=0.0, high=1.0)
    estimate: bool = knob(True, "share GPUs by what jobs are estimated to use")
    head_room: float = knob(0.1, "what a job gets beyond its estimate", low=0.0, high=10.0)
    first_fit: int = knob(20, "ended jobs before anything is estimated", low=2, high=10**6)
    population: int = knob(50, "placings that are bred", low=2, high=10_000)
    generations: int = knob(100, "how often, at most", low=1, high=100_000)
    crossover: float = knob(0.8, "how often groups of another are put in", low=0.0, high=1.0)
    mutation: float = knob(0.1, "how often a group is dissolved", low=0.0, high=1.0)
    processes: int = search_processes()

    def begin(self) -> Decider:
        return _Placer(self, Forest(self.first_fit))


@dataclass
class _Placer:
    """``waiting`` are jobs in the order of submission; ``until`` is the end of a window that has begun."""

    policy: Liquid
    forest: Forest
    waiting: dict[int, None] = field(default_factory=dict)
    until: float | None = None

    def allocate(self, view: ClusterView) -> Allocation:
        for job in view.ended:
            self._learn(job, view)
        for job in (*view.arrived, *view.stopped):
            self.waiting[job] = None
        if not self.waiting or (view.is_full and self.policy.mode == IMMEDIATE):
            return NOTHING
        if self.policy.mode == IMMEDIATE:
            return Allocation(self._place(view))
        if self.until is None:
            self.until = view.now + self.policy.window
        if self.until > view.now:
            return Allocation(wake_at=self.until)
        self.until = None
        return Allocation(self._place(view))

    def _place(self, view: ClusterView) -> tuple[Gang, ...]:
        policy, jobs = self.policy, sorted(self.waiting)
        pool, started = view.pool.copy(), list[Gang]()
        for job in [job for job in jobs if not view.jobs.gpus[job]]:
            gang = pool.place(job, view.jobs.demand(job), policy.placement)
            if gang is not None:
                pool.take(gang)
                started.append(gang)
        rooms = Rooms.of(pool, policy.alpha, policy.beta)
        wants = {job: self._want(job, view) for job in jobs if view.jobs.gpus[job]}
        if policy.mode == BATCH:
            how = Search(
                policy.population, policy.generations, policy.crossover, policy.mutation, policy.processes
            )
            placed = search(_that_fit(wants, rooms), wants, rooms, how, view.rng)
        else:
            placed = best_fit(wants, wants, rooms)
        started += [self._gang(job, devices, wants[job], view) for job, devices in placed.items()]
        for gang in started:
            del self.waiting[gang.job]
        return tuple(started)

    def _gang(self, job: int, devices: Devices, want: Want, view: ClusterView) -> Gang:
        hosts = view.pool.hosts_of(devices, view.jobs.demand(job))
        return Gang(job, devices, want.share, want.share, hosts)

    def _want(self, job: int, view: ClusterView) -> Want:
        demand = view.jobs.demand(job)
        used = self.forest.predict(_features(job, view)) if self.policy.estimate else None
        part = 1.0 if used is None else min(1.0, used * (1 + self.policy.head_room))
        gpus = demand.gpus
        return Want(gpus, demand.share * part, demand.cpus / gpus, demand.memory / gpus, demand.types)

    def _learn(self, job: int, view: ClusterView) -> None:
        """Feed back what a job used, once it has ended."""
        if self.policy.estimate and view.jobs.tells("utilization"):
            self.forest.add(_features(job, view), view.jobs.column("utilization")[job])


def _that_fit(wants: Mapping[int, Want], rooms: Rooms) -> Sequence[int]:
    """Jobs that would find a place if they came first; the others need not be searched for."""
    known: dict[Want, bool] = {}
    for want in wants.values():
        if want not in known:
            known[want] = rooms.best_fit(want) is not None
    return [job for job, want in wants.items() if known[want]]


def _features(job: int, view: ClusterView) -> Features:
    jobs = view.jobs
    words = [f"{what} {jobs.column(what)[job]}" if jobs.tells(what) else what for what in WORDS]
    batch = float(jobs.column("batch")[job]) if jobs.tells("batch") else 0.0
    return Features((f"model {jobs.model[job]}", *words), batch, jobs.gpus[job])
