"""The release's loop for jobs whose GPUs change: steps by the throughput table as measured, falling or not.

All jobs are planned anew at each submission and end. A job holds what the plan gives it now until the next
event, and the plan's end of it becomes an event; what the plan gives it later comes only where something
happens then. A job that has run out of steps before its planned end gets its true end. A job without GPUs
whose planned end falls into the next slot ends there all the same, or waits on: the policy says which.

Where restarts cost, their seconds put off when an end is noticed and are lost where anything happens before;
a job whose own end comes next loses nothing. All are placed anew at each decision, larger ones first, one
after another, and GPUs that have worked together since the last restart of all cost less.
"""

from __future__ import annotations

import math

from experiments.cluster.interface import ClusterPlan, Demand
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
    """``left`` steps of each job, ``ends`` as planned, ``noticed`` then, ``overhead`` s of its last start."""

    def __init__(self, ledger: Ledger, planner: SharePlanner, table: TableSpeed) -> None:
        self.ledger, self.view, self.planner = ledger, ledger.view, planner
        trace, count = ledger.trace, len(ledger.trace)
        self.speeds = [dict(table.measured(job)) for job in range(count)]
        self.left = [table.work(job) for job in range(count)]
        self.events = SlotEvents((time, job) for job, time in enumerate(trace.submit.tolist()))
        self.ends: dict[int, float] = {}
        self.noticed: dict[int, float] = {}
        self.overhead = [0.0] * count
        self.ended_without_devices = 0
        self.placed: set[tuple[int, int]] = set()

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
        now, ending = self.view.now, self.events.next_ends
        for job, gang in self.view.running.items():
            run = seconds - max(0.0, now - self.ends[job])
            lost = 0.0 if job in ending else min(run, self.overhead[job])
            speed = self.speeds[job][gang.size]
            steps = (run - lost) * speed
            if self.left[job] <= steps and self.noticed[job] > now:
                self._notice(job, now)
                self.ends[job] = min(now, now - seconds + math.ceil(self.left[job] / speed))
            self.left[job] -= steps
            self.overhead[job] = 0.0
            self.ledger.restarting[job] += lost
            self.view.attained.done[job] = self.view.works[job] - self.left[job]

    def _happen(self) -> None:
        event, view = self.events.pop(), self.view
        ended = [job for job in event.ends if job in view.running or self.planner.ends_by_plan]
        for job in ended:
            if job in view.running:
                self.ledger.stop(job, COMPLETED, self.ends.pop(job))
            else:
                self.ended_without_devices += 1
                self.ledger.end_without_devices(job, self.ends.pop(job))
        view.waiting.update(dict.fromkeys(event.starts))
        view.arrived, view.ended = tuple(event.starts), tuple(ended)

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
        """The planned ends of jobs; where plans end them, not of those that have not run and do not start."""
        for share in plan.shares:
            if share.job not in self.ends and not share.gpus and self.planner.ends_by_plan:
                continue
            self.ends[share.job] = share.ends
            self._notice(share.job, share.ends if share.noticed is None else share.noticed)

    def _notice(self, job: int, time: float) -> None:
        """Look at a job's end at ``time``, and no longer when it was expected."""
        if self.noticed.get(job) == time:
            return
        if job in self.noticed:
            self.events.forget_end(job, self.noticed[job])
        self.noticed[job] = time
        self.events.expect_end(job, time)

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
        first = 0
        for job, gang in sorted(self.view.running.items(), key=lambda entry: -entry[1].size):
            place = (first, gang.size)
            cost = overhead(gang.size, self.ledger.machines.devices, restart, place in self.placed)
            self.placed.add(place)
            self.overhead[job] = cost
            self._notice(job, self.noticed[job] + cost)
            first += gang.size
        if restart:
            self.placed.clear()
