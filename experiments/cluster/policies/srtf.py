"""Shortest remaining time first, with preemption: optimal for the mean on one device when nothing is lost."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import ClassVar

from experiments.cluster.interface import NOTHING, Allocation, ClusterPolicy, ClusterView, Decider, RankedJobs
from experiments.core.knobs import knob


@dataclass(frozen=True)
class Srtf(ClusterPolicy):
    """Runs the jobs with the least time left, preempting others; knows how long jobs run."""

    name: ClassVar[str] = "srtf"
    mechanism: ClassVar[str] = "know how long jobs run"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")
    sees: ClassVar[frozenset[str]] = frozenset({"service"})

    key: str = knob(
        "remaining", "what is short: seconds left, or seconds left x GPUs", choices=("remaining", "service")
    )

    def begin(self) -> Decider:
        return _LeastLeftFirst(self)

    def left(self, job: int, view: ClusterView) -> float:
        """What the policy calls short of ``job``."""
        weight = view.jobs.gpus[job] if self.key == "service" else 1
        return view.remaining(job) * weight


@dataclass
class _LeastLeftFirst:
    """What is left of a waiting job does not change; a running job wins ties, so that equals do not take
    turns.
    """

    policy: Srtf
    queue: RankedJobs = field(default_factory=RankedJobs)
    preempted: tuple[int, ...] = ()

    def allocate(self, view: ClusterView) -> Allocation:
        gpus = view.jobs.gpus
        for job in (*self.preempted, *view.arrived, *view.stopped):
            self.queue.add(job, gpus[job], (self.policy.left(job, view), True))
        if not self.queue:
            self.preempted = ()
            return NOTHING
        running = self._rank(view)
        if view.jobs.is_plain:
            decision = self.policy.run_only(self.queue.choose(running, gpus, sum(view.pool.capacity)), view)
        else:
            decision = self.policy.run_first(self.queue.merged_with(running), view)
        for gang in decision.start:
            self.queue.remove(gang.job)
        self.preempted = decision.preempt
        return decision

    def _rank(self, view: ClusterView) -> list[tuple[float, bool, int]]:
        left = view.remaining_of_running()
        if self.policy.key == "service":
            left = [value * view.jobs.gpus[job] for value, job in zip(left, view.running, strict=True)]
        return sorted(zip(left, itertools.repeat(False), view.running))
