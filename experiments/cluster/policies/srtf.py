"""Shortest remaining time first, with preemption: optimal for the mean on one device when nothing is lost."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import ClassVar

from experiments.cluster.interface import (
    NOTHING,
    Allocation,
    ClusterPolicy,
    ClusterView,
    Decider,
    RankedJobs,
    RunningOrder,
)
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

    ``order`` has running jobs by when they end, which stays while each does a second's work in a second: then
    they need not be ranked anew at every decision. It is given up (``None``) once one does not.
    """

    policy: Srtf
    queue: RankedJobs = field(default_factory=RankedJobs)
    order: RunningOrder | None = field(default_factory=RunningOrder)
    preempted: tuple[int, ...] = ()
    started: tuple[int, ...] = ()

    def allocate(self, view: ClusterView) -> Allocation:
        gpus = view.jobs.gpus
        self._keep_order(view)
        for job in (*self.preempted, *view.arrived, *view.stopped):
            self.queue.add(job, gpus[job], (self.policy.left(job, view), True))
        decision = self._decide(view) if self.queue else NOTHING
        for gang in decision.start:
            self.queue.remove(gang.job)
        self.preempted, self.started = decision.preempt, tuple(gang.job for gang in decision.start)
        return decision

    def _keep_order(self, view: ClusterView) -> None:
        if self.order is None or not view.jobs.is_plain or self.policy.key == "service":
            self.order = None
            return
        attained, works, service = view.attained, view.works, view.jobs.service
        self.order.discard((*self.preempted, *view.ended, *view.stopped))
        for job in self.started:
            if job not in view.running:
                continue
            since = attained.progress[job]
            if attained.speed[job] != 1 or works[job] != service[job] or since != attained.started[job]:
                self.order = None
                return
            self.order.add(job, view.jobs.gpus[job], (since + service[job] - attained.done[job], False))

    def _decide(self, view: ClusterView) -> Allocation:
        room, order = sum(view.pool.capacity), self.order
        if order is not None:
            winners, losers = self.queue.choose(order.ranked, order.sizes, room, view.now)
            return self.policy.change(winners, losers, view)
        running = self._rank(view)
        if not view.jobs.is_plain:
            return self.policy.run_first(self.queue.merged_with(running), view)
        sizes = [view.jobs.gpus[ranked[-1]] for ranked in running]
        winners, losers = self.queue.choose(running, sizes, room)
        return self.policy.change(winners, losers, view)

    def _rank(self, view: ClusterView) -> list[tuple[float, bool, int]]:
        left = view.remaining_of_running()
        if self.policy.key == "service":
            left = [value * view.jobs.gpus[job] for value, job in zip(left, view.running, strict=True)]
        return sorted(zip(left, itertools.repeat(False), view.running))
