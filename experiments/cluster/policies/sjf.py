"""Shortest job first, without preemption.

Published tables mix two keys (run time, or run time x GPUs) and two ways to treat a job that does not fit
(wait for it, or go on to the next); all four are here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from experiments.cluster.interface import Allocation, ClusterPolicy, ClusterView, Decider, Gang, WaitingJobs
from experiments.core.knobs import knob


@dataclass(frozen=True)
class Sjf(ClusterPolicy):
    """Starts the shortest waiting job first and never preempts; knows how long jobs run."""

    name: ClassVar[str] = "sjf"
    mechanism: ClassVar[str] = "know how long jobs run"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")
    sees: ClassVar[frozenset[str]] = frozenset({"service"})

    key: str = knob("duration", "what is short: seconds, or seconds x GPUs", choices=("duration", "service"))
    blocking: bool = knob(True, "nothing starts before the shortest; false: skip what does not fit")

    def begin(self) -> Decider:
        return _ShortestFirst(self)


@dataclass
class _ShortestFirst:
    policy: Sjf
    queue: WaitingJobs = field(default_factory=WaitingJobs)

    def allocate(self, view: ClusterView) -> Allocation:
        for job in (*view.arrived, *view.stopped):
            gpus = view.jobs.gpus[job]
            weight = gpus if self.policy.key == "service" else 1
            self.queue.add(job, gpus, (view.jobs.service[job] * weight,))
        pool, started = view.pool.copy(), list[Gang]()
        while found := self.queue.first(lambda gpus: self.policy.blocking or gpus <= pool.total):
            job = found[1]
            gang = pool.place(job, view.jobs.demand(job), self.policy.placement)
            if gang is None:
                break
            self.queue.remove_first(view.jobs.gpus[job])
            pool.take(gang)
            started.append(gang)
        return Allocation(start=tuple(started))
