"""The release's loop for jobs that run on the GPUs they asked for, for as long as the trace says.

A job that starts loses some seconds, but not if it ends at the next event: its end is foretold without them.
At each sixtieth decision all running jobs start anew, and their ends are put off by what that costs. Only the
jobs of the earliest end are given one; the others' ends are worked out anew at the next decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from experiments.cluster.interface import ClusterPlan, Decider
from experiments.cluster.interface.log import COMPLETED, PREEMPTED
from experiments.cluster.simulator.releases.elasticflow.events import SlotEvents
from experiments.cluster.simulator.releases.elasticflow.ledger import SLOT, Ledger
from experiments.cluster.simulator.releases.elasticflow.overheads import overhead


class RigidRun:
    """``present`` jobs in the release's order: as they came, and the larger first after each decision."""

    def __init__(self, ledger: Ledger, decider: Decider, oversized: Mapping[int, str]) -> None:
        self.ledger, self.view, self.decider = ledger, ledger.view, decider
        trace = ledger.trace
        self.duration: list[int] = [int(service) for service in trace.service]
        self.gpus: list[int] = trace.gpus.tolist()
        for job, reason in oversized.items():
            ledger.reject(job, reason)
        submissions = ((time, job) for job, time in enumerate(trace.submit.tolist()) if job not in oversized)
        self.arrivals = SlotEvents(submissions)
        count = len(trace)
        self.present: list[int] = []
        self.executed = [0] * count
        self.checked = [0.0] * count
        self.overhead = [0.0] * count
        self.ends: dict[int, float] = {}
        self.due = inf
        self.jump = inf

    def run(self) -> ClusterPlan:
        while self.arrivals or self.due < inf:
            self._advance()
            self._decide()
        return self.ledger.plan({}, executed="the trace's durations, in whole seconds")

    def _advance(self) -> None:
        """Go to the next end or submission, or to the jump if that is sooner."""
        view, submit = self.view, self.arrivals.next_time
        now = min(submit, self.due)
        jumps = self.jump < now
        view.now = min(now, self.jump)
        ended = () if jumps or self.due > submit else tuple(self.ends.items())
        arrived = () if jumps or submit > self.due else tuple(self.arrivals.pop().starts)
        for job, end in ended:
            self.ledger.stop(job, COMPLETED, end)
            self.present.remove(job)
        for job in arrived:
            view.waiting[job] = None
            self.present.append(job)
        view.arrived, view.ended = arrived, tuple(job for job, _ in ended)
        self._count_time()

    def _count_time(self) -> None:
        """Add what running jobs executed, less what their starts cost."""
        view, attained, works = self.view, self.view.attained, self.view.works
        view.running = {job: view.running[job] for job in self.present if job in view.running}
        for job in view.running:
            held = int(view.now - self.checked[job])
            before = self.executed[job]
            self.executed[job] = int(before + max(held - self.overhead[job], 0))
            self.ledger.restarting[job] += held - (self.executed[job] - before)
            self.overhead[job], self.checked[job] = 0.0, view.now
            attained.seconds[job] = executed = float(self.executed[job])
            attained.service[job] = executed * self.gpus[job]
            attained.started[job] = view.now
            duration = self.duration[job]
            attained.done[job] = works[job] * executed / duration if duration else 0.0

    def _decide(self) -> None:
        view, cluster = self.view, self.ledger.machines.devices
        restart = self.ledger.is_restart_pass()
        decision = self.decider.allocate(view)
        for job in decision.preempt:
            self.ledger.stop(job, PREEMPTED)
        for gang in decision.start:
            self.ledger.start(gang)
            self.checked[gang.job] = view.now
            self.overhead[gang.job] = overhead(gang.size, cluster, restart=restart)
        self.present.sort(key=lambda job: -self.gpus[job])
        if restart:
            for job in view.running:
                self.overhead[job] = overhead(self.gpus[job], cluster, restart=True)
        self._foretell_ends(restart)
        self.jump = inf if decision.wake_at is None else max(decision.wake_at, view.now + SLOT)
        self.arrivals.merge(view.now, SLOT)

    def _foretell_ends(self, restart: bool) -> None:
        """The jobs that end first, each with its own end."""
        now, self.due, self.ends = self.view.now, inf, {}
        for job in (job for job in self.present if job in self.view.running):
            left = self.duration[job] - self.executed[job] + (self.overhead[job] if restart else 0)
            end = float(int(now + left))
            event = max(now + SLOT, end)
            if event < self.due:
                self.due, self.ends = event, {}
            if event == self.due:
                self.ends[job] = end
