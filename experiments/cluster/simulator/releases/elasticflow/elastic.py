"""The release's loop for jobs whose GPUs change: steps by the throughput table as measured, falling or not.

All jobs are planned anew at each submission and end. A job holds what the plan gives it now until the next
event, and the plan's end of it becomes an event; what the plan gives it later comes only where something
happens then. A job that has run out of steps before its planned end gets its true end. A job without GPUs
whose planned end falls into the next slot ends there all the same.
"""

from __future__ import annotations

import math

from experiments.cluster.interface import ClusterPlan, Demand, Gang
from experiments.cluster.interface.check import SIZES, WORK
from experiments.cluster.interface.log import COMPLETED, MOVED, PREEMPTED
from experiments.cluster.interface.shares import SharePlan, SharePlanner
from experiments.cluster.planning.performance import TableSpeed
from experiments.cluster.simulator.releases.elasticflow.overheads import overhead
from experiments.cluster.simulator.releases.tiresias.events import SlotEvents
from experiments.cluster.simulator.releases.tiresias.ledger import Ledger

#: Seconds from a decision within which everything happens together.
SLOT = 60.0


class ElasticRun:
    """``left`` steps of each job, ``ends`` as planned, ``overhead`` s of its last start."""

    def __init__(self, ledger: Ledger, planner: SharePlanner, table: TableSpeed) -> None:
        self.ledger, self.view, self.planner = ledger, ledger.view, planner
        trace, count = ledger.trace, len(ledger.trace)
        self.speeds = [dict(table.measured(job)) for job in range(count)]
        self.left = [table.work(job) for job in range(count)]
        self.events = SlotEvents((time, job) for job, time in enumerate(trace.submit.tolist()))
        self.ends: dict[int, float] = {}
        self.overhead = [0.0] * count
        self.ended_without_devices = 0
        self.placed: set[tuple[int, ...]] = set()

    def run(self) -> ClusterPlan:
        before = self.events.next_time
        while self.events:
            self.view.now = self.events.next_time
            self._make_progress(self.view.now - before)
            before = self.view.now
            self._happen()
            self._decide()
        quirks = {SIZES: "elastic policies of this release resize jobs"}
        if self.ended_without_devices:
            quirks[WORK] = f"{self.ended_without_devices} jobs end by their plan while they have no GPUs"
        return self.ledger.plan(quirks, slot=SLOT, ended_without_devices=self.ended_without_devices)

    def _make_progress(self, seconds: float) -> None:
        """Count the steps of the last ``seconds``, up to each job's planned end."""
        now = self.view.now
        for job, gang in self.view.running.items():
            run = seconds - max(0.0, now - self.ends[job])
            lost = min(run, self.overhead[job])
            speed = self.speeds[job][gang.size]
            steps = (run - lost) * speed
            if self.left[job] <= steps and self.ends[job] > now:
                self.events.forget_end(job, self.ends[job])
                self.events.expect_end(job, now)
                self.ends[job] = now - seconds + math.ceil(self.left[job] / speed)
            self.left[job] -= steps
            self.overhead[job] = 0.0
            self.ledger.restarting[job] += lost
            self.view.attained.done[job] = self.view.works[job] - self.left[job]

    def _happen(self) -> None:
        event, view = self.events.pop(), self.view
        for job in event.ends:
            if job in view.running:
                self.ledger.stop(job, COMPLETED, self.ends.pop(job))
            else:
                self.ended_without_devices += 1
                self.ledger.end_without_devices(job, self.ends.pop(job))
        view.waiting.update(dict.fromkeys(event.starts))
        view.arrived, view.ended = tuple(event.starts), tuple(event.ends)

    def _decide(self) -> None:
        plan = self.planner.plan(self.view, SLOT)
        for job, reason in plan.reject:
            self.ledger.reject(job, reason)
        self._expect_ends(plan)
        self._give_devices(plan)
        if plan.change_at is not None and plan.change_at < self.events.next_time:
            self.events.look_at(plan.change_at)
        restart = bool(self.events) and self.ledger.is_restart_pass()
        if self.planner.restarts_cost and self.events:
            self._charge(restart)
        self.events.merge(self.view.now, SLOT)

    def _expect_ends(self, plan: SharePlan) -> None:
        """The planned ends of all jobs that have run; of the others, of those that start."""
        for share in plan.shares:
            planned = self.ends.get(share.job)
            if planned is None and not share.gpus:
                continue
            self._move_end(share.job, share.ends)

    def _move_end(self, job: int, end: float) -> None:
        if self.ends.get(job) == end:
            return
        if job in self.ends:
            self.events.forget_end(job, self.ends[job])
        self.ends[job] = end
        if end < math.inf:
            self.events.expect_end(job, end)

    def _give_devices(self, plan: SharePlan) -> None:
        """Stop the jobs whose GPUs change and place them anew, larger ones first."""
        view, pool = self.view, self.view.pool
        wanted = {share.job: share.gpus for share in plan.shares}
        changed = [job for job, gang in view.running.items() if gang.size != wanted[job]]
        for job in changed:
            self.ledger.stop(job, MOVED if wanted[job] else PREEMPTED)
        starting = [job for job in wanted if wanted[job] and job not in view.running]
        for job in sorted(starting, key=lambda job: -wanted[job]):
            demand = Demand(wanted[job])
            gang = pool.place(job, demand, self.ledger.policy.placement) or pool.place(job, demand, "count")
            assert gang is not None, f"the planner gives out more than there is: job {job}"
            self.ledger.start(gang)

    def _charge(self, restart: bool) -> None:
        """Put off the ends of running jobs by what starting costs on GPUs that did not work together yet."""
        if restart:
            self.placed.clear()
        for job, gang in self.view.running.items():
            cached = self._remember(gang)
            self.overhead[job] = overhead(gang.size, self.ledger.machines.devices, restart, cached)
            self._move_end(job, self.ends[job] + self.overhead[job])

    def _remember(self, gang: Gang) -> bool:
        """Whether a gang's GPUs have worked together since the last restart of all."""
        known = gang.devices in self.placed
        self.placed.add(gang.devices)
        return known
