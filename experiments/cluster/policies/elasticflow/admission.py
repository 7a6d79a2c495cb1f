"""Which jobs are admitted, and what each of them reserves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from experiments.cluster.interface import ClusterView
from experiments.cluster.planning.performance import TableSpeed, table_of
from experiments.cluster.policies.elasticflow.shares import (
    SLACK,
    FreeTime,
    Share,
    minimum_share,
    steps_by,
)

#: A job's reason to be refused.
MISSES = "its deadline, or one of a job admitted before, would be missed"


@dataclass
class Guarantees:
    """``shares`` of the admitted jobs that meet their deadlines; ``others`` run when there is something left.

    ``others`` are best-effort jobs and those that fell behind.
    """

    slot: float
    shares: dict[int, Share] = field(default_factory=dict)
    others: dict[int, None] = field(default_factory=dict)

    def forget(self, jobs: Iterable[int]) -> None:
        """Jobs have ended."""
        for job in jobs:
            self.shares.pop(job, None)
            self.others.pop(job, None)

    def admit(self, jobs: Iterable[int], view: ClusterView) -> bool:
        """Take new jobs in, all or none."""
        asking = [job for job in jobs if not math.isnan(view.jobs.deadline[job])]
        planned = self._plan([*self.shares, *asking], view)
        if len(planned) < len(self.shares) + len(asking):
            return False
        self.shares = planned
        return True

    def replan(self, view: ClusterView) -> None:
        """Reserve anew for what is left; keep what was reserved if only that meets all deadlines."""
        planned = self._plan(self.shares, view)
        missing = [job for job in self.shares if job not in planned]
        if missing and self._still_holds(view):
            return
        self.others |= dict.fromkeys(missing)
        self.shares = planned

    def _plan(self, jobs: Iterable[int], view: ClusterView) -> dict[int, Share]:
        """Shares in order of deadline; a job that would miss its own has none."""
        table, deadline = table_of(view), view.jobs.deadline
        free = FreeTime(view.now, view.jobs.submit[0], self.slot, capacity(view))
        planned: dict[int, Share] = {}
        for job in sorted(jobs, key=lambda job: (deadline[job], job)):
            share = minimum_share(steps_left(job, table, view), deadline[job], table.levels(job), free)
            if share is not None:
                free.reserve(share)
                planned[job] = share
        return planned

    def _still_holds(self, view: ClusterView) -> bool:
        """Whether what is reserved is enough for every job, and is there."""
        table, deadline = table_of(view), view.jobs.deadline
        for job, share in self.shares.items():
            left = steps_left(job, table, view)
            if steps_by(share, view.now, deadline[job]) < left * (1 - SLACK):
                return False
        return most_at_once(self.shares, view.now) <= capacity(view)


def capacity(view: ClusterView) -> int:
    """Devices in working order."""
    return sum(view.pool.capacity)


def steps_left(job: int, table: TableSpeed, view: ClusterView) -> float:
    """Work of a job that is not done."""
    return max(0.0, table.work(job) - view.done(job))


def gpus_at(share: Share, now: float) -> int:
    """What a job has reserved at a time."""
    return next((part.gpus for part in share if part.start <= now < part.end), 0)


def most_at_once(shares: Mapping[int, Share], now: float) -> int:
    """The most that is reserved at any time from now on."""
    starts = {now, *(part.start for share in shares.values() for part in share if part.start > now)}
    return max(sum(gpus_at(share, time) for share in shares.values()) for time in starts)


def next_change(shares: Mapping[int, Share], now: float) -> float | None:
    """When some job's reservation begins or ends next."""
    times = (time for share in shares.values() for part in share for time in (part.start, part.end))
    return min((time for time in times if time > now * (1 + SLACK)), default=None)
