"""Least attained service: whoever had least comes first (foreground-background scheduling in rounds).

Without a quantum the policy would switch infinitely often between equals, so it decides in rounds; between
rounds it only fills devices that fall free. Default round: 300 s, as in Synergy (OSDI'22); Gavel (OSDI'20)
takes 360 s.

Under ``rules: gavel`` least attained service is a division of time: the smallest share of devices, per GPU
and weight, is as large as possible, whatever their type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from experiments.cluster.interface import (
    NOTHING,
    Allocation,
    ClusterPolicy,
    ClusterView,
    Contest,
    Decider,
    Divider,
    Division,
    RankedJobs,
    RunningOrder,
    rules_of,
)
from experiments.cluster.interface.policy import OWN
from experiments.core.knobs import knob

#: Seconds of a round where nobody names them, by the rules.
USUAL: Mapping[str, float] = {OWN: 300.0, "gavel": 360.0}


@dataclass(frozen=True)
class Las(ClusterPolicy):
    """Runs the jobs that had least service so far, in rounds; knows nothing about how long jobs run."""

    name: ClassVar[str] = "las"
    mechanism: ClassVar[str] = "least service first"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")
    sees: ClassVar[frozenset[str]] = frozenset({"weight"})
    quick: ClassVar[Mapping[str, Any]] = {"round_length": 7.0}

    rules: str = rules_of("gavel")
    round_length: float | None = knob(
        None, "time between preemptions; empty: as the rules have it", low=1e-3, high=86400.0, unit="s"
    )
    key: str = knob("time", "service attained: seconds, or seconds x GPUs", choices=("time", "service"))

    @property
    def round_seconds(self) -> float:
        return USUAL[self.rules] if self.round_length is None else self.round_length

    def divider(self, seed: int) -> Divider:
        return _EqualShares()

    def begin(self) -> Decider:
        return _LeastServedFirst(self)

    def attained(self, job: int, view: ClusterView) -> float:
        return view.attained_service(job) if self.key == "service" else view.attained_time(job)


@dataclass
class _LeastServedFirst:
    """What a waiting job has attained does not change.

    ``order`` has running jobs by the time that they had attained when they started, less that of the clock:
    all attain a second in a second.
    """

    policy: Las
    queue: RankedJobs = field(default_factory=RankedJobs)
    order: RunningOrder = field(default_factory=RunningOrder)
    preempted: tuple[int, ...] = ()
    started: tuple[int, ...] = ()

    def allocate(self, view: ClusterView) -> Allocation:
        policy, gpus, attained = self.policy, view.jobs.gpus, view.attained
        self.order.discard((*self.preempted, *view.ended, *view.stopped))
        for job in self.started:
            if job in view.running:
                self.order.add(job, gpus[job], (attained.seconds[job] - attained.started[job],))
        for job in (*self.preempted, *view.arrived, *view.stopped):
            self.queue.add(job, gpus[job], (policy.attained(job, view),))
        decision = self._at_round_end(view) if view.round_ended else self._between(view)
        for gang in decision.start:
            self.queue.remove(gang.job)
        self.preempted, self.started = decision.preempt, tuple(gang.job for gang in decision.start)
        return decision

    def _at_round_end(self, view: ClusterView) -> Allocation:
        if not self.queue:
            return NOTHING
        if not view.jobs.is_plain:
            return self.policy.run_first(self.queue.merged_with(self._rank(view)), view)
        room, order = sum(view.pool.capacity), self.order
        if self._keeps_order:
            winners, losers = self.queue.choose(order.ranked, order.sizes, room, -view.now)
        else:
            running = self._rank(view)
            sizes = [view.jobs.gpus[job] for _, job in running]
            winners, losers = self.queue.choose(running, sizes, room)
        return self.policy.change(winners, losers, view)

    @property
    def _keeps_order(self) -> bool:
        return self.policy.key == "time"

    def _rank(self, view: ClusterView) -> list[tuple[float, int]]:
        attained = view.attained_of_running(self.policy.key == "service")
        return sorted(zip(attained, view.running, strict=True))

    def _between(self, view: ClusterView) -> Allocation:
        """Fill devices that fell free."""
        if view.is_full or not view.waiting:
            return NOTHING
        if view.jobs.is_plain:
            fitting, _ = self.queue.choose((), (), view.pool.total)
            started = self.policy.fill(view.pool.copy(), fitting, view)
            if len(started) == len(fitting):
                return Allocation(tuple(started))
        return Allocation(tuple(self.policy.fill(view.pool.copy(), self.queue.merged_with(()), view)))


class _EqualShares(Divider):
    """The largest smallest share of time, as if all types of devices were one."""

    def __init__(self) -> None:
        from experiments.cluster.planning.time_programs import SOLVER, max_min  # scipy takes a while

        self.facts, self.max_min = {"solver": SOLVER}, max_min

    def divide(self, contest: Contest) -> Division:
        return self.max_min(contest, np.ones((len(contest), len(contest.types))))
