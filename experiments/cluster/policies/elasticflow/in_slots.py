"""ElasticFlow as its release decides: all jobs planned anew at each event, in slots.

Jobs submitted in one slot are admitted together or not at all, and none while any job would miss its
deadline, whether or not it does so because of them; best-effort jobs come in always. Free GPUs go level by
level, to jobs without any first, then to the job whose plan would reserve the most GPU time more for each
GPU added: so the release sorts them.
"""

from __future__ import annotations

import math
from typing import ClassVar

from experiments.cluster.interface import Allocation, ClusterView
from experiments.cluster.interface.shares import PlannedShare, SharePlan
from experiments.cluster.planning.performance import table_of
from experiments.cluster.policies.elasticflow.admission import MISSES, steps_left
from experiments.cluster.policies.elasticflow.reserving import JobPlan, Reserving, Steps, Wanted, give_back
from experiments.workloads.profiles.throughput_table import Levels

#: Most GPUs of a model on T4s, as the release has it: less than its table goes to.
MOST_ON_T4 = {"bert": 16}
#: Seconds by which a best-effort job is due in the release.
NEVER = float(2**62)


class InSlots:
    """``order`` of the admitted jobs, as the release's list has it, and their ``plans``."""

    restarts_cost: ClassVar[bool] = True
    ends_by_plan: ClassVar[bool] = False

    def __init__(self) -> None:
        self.order: list[int] = []
        self.plans: dict[int, JobPlan] = {}
        self.free: Steps = {}
        self.marginal: dict[int, float] = {}

    def allocate(self, view: ClusterView) -> Allocation:
        raise NotImplementedError("the release asks for a plan")

    def plan(self, view: ClusterView, slot: float) -> SharePlan:
        self.order = [job for job in self.order if job not in view.ended]
        total = len(view.pool.machines.node_of)
        refused = self._admit(view, slot, total)
        self._estimate(self.order, view, slot, total)
        gpus = {job: self.plans[job].gpus[view.now] for job in self.order}
        self._give_spare(gpus, view, slot, total)
        self.order.sort(key=lambda job: -gpus[job])
        shares = [
            PlannedShare(job, gpus[job], self.plans[job].ends, self.plans[job].noticed) for job in self.order
        ]
        changes = (time for job in self.order for time in self.plans[job].gpus if time > view.now)
        return SharePlan(shares, refused, min(changes, default=None))

    def _admit(self, view: ClusterView, slot: float, total: int) -> tuple[tuple[int, str], ...]:
        """Take in new jobs, all or only the best-effort ones; those refused, with reasons."""
        levels = {job: levels_of(job, view) for job in view.arrived}
        large = [job for job in view.arrived if levels[job][0][0] > total]
        small = [job for job in view.arrived if job not in large]
        refused = [(job, f"runs on no fewer than {levels[job][0][0]} GPUs") for job in large]
        if small and not self._estimate([*self.order, *small], view, slot, total):
            late = [job for job in small if not math.isnan(view.jobs.deadline[job])]
            refused += [(job, MISSES) for job in late]
            small = [job for job in small if job not in late]
        self.order += small
        return tuple(refused)

    def _estimate(self, jobs: list[int], view: ClusterView, slot: float, total: int) -> bool:
        """Plan jobs in order of deadline from nothing; whether all are in time."""
        self.free, self.plans = {view.now: total}, {}
        jobs.sort(key=lambda job: _deadline(job, view))
        for job in jobs:
            planned = Reserving(_wanted(job, view, total), self.free, view.now, slot, total).plan()
            self.plans[job], self.free = planned
        return all(plan.in_time for plan in self.plans.values())

    def _give_spare(self, gpus: dict[int, int], view: ClusterView, slot: float, total: int) -> None:
        """Raise ``gpus`` of jobs by a level each, as long as there is one that a job can take."""
        wanted = {job: _wanted(job, view, total) for job in self.order}
        spare = total - sum(gpus.values())
        while spare > 0:
            tried: dict[int, tuple[JobPlan, Steps]] = {}
            for job in self.order:
                more = _next_level(wanted[job].levels, gpus[job])
                if more is None:
                    self.marginal.setdefault(job, -math.inf)
                elif more - gpus[job] > spare:
                    self.marginal[job] = -math.inf
                else:
                    free = give_back(self.free, self.plans[job])
                    tried[job] = Reserving(wanted[job], free, view.now, slot, total).plan(first=more)
                    grown = tried[job][0].gpu_time() - self.plans[job].gpu_time()
                    self.marginal[job] = grown / (more - gpus[job]) if gpus[job] else math.inf
            self.order.sort(key=lambda job: -self.marginal[job])
            chosen = next((job for job in self.order if job in tried), None)
            if chosen is None:
                return
            self.plans[chosen], self.free = tried[chosen]
            spare -= self.plans[chosen].gpus[view.now] - gpus[chosen]
            gpus[chosen] = self.plans[chosen].gpus[view.now]


def levels_of(job: int, view: ClusterView) -> Levels:
    """The levels of a job up to the first that is no faster than the one before."""
    table, machines = table_of(view), view.pool.machines
    most = MOST_ON_T4.get(table.model(job), math.inf) if machines[0].device.startswith("t4") else math.inf
    measured = tuple(level for level in table.measured(job) if level[0] <= most)
    slower = (later for later in range(1, len(measured)) if measured[later][1] <= measured[later - 1][1])
    return measured[: next(slower, len(measured))]


def _wanted(job: int, view: ClusterView, total: int) -> Wanted:
    levels = tuple(level for level in levels_of(job, view) if level[0] <= total)
    return Wanted(steps_left(job, table_of(view), view), _deadline(job, view), levels)


def _deadline(job: int, view: ClusterView) -> float:
    deadline = view.jobs.deadline[job]
    return NEVER if math.isnan(deadline) else deadline


def _next_level(levels: Levels, gpus: int) -> int | None:
    return next((more for more, _ in levels if more > gpus), None)
