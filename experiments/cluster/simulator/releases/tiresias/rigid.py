"""The loop of Tiresias' simulator: jobs run on the GPUs they asked for, for as long as the trace says.

Only the jobs of the earliest end are given one; the others' ends are worked out anew at the next decision.
``Habits`` are what ElasticFlow's simulator changed of it: whatever happens within a slot happens together, a
job that starts loses some seconds (but not if it ends at the next event: its end is foretold without them),
and at each sixtieth decision all running jobs start anew, their ends put off by what that costs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf

from experiments.cluster.interface import ClusterPlan, Decider
from experiments.cluster.interface.log import COMPLETED, PREEMPTED
from experiments.cluster.simulator.releases.tiresias.events import SlotEvents
from experiments.cluster.simulator.releases.tiresias.ledger import Ledger


@dataclass(frozen=True)
class Habits:
    """What releases made of the loop.

    ``slot``          seconds from a decision within which everything happens together.
    ``larger_first``  whether jobs are looked at by size, or as they came.
    ``overhead``      seconds that a start costs, by GPUs, GPUs of the cluster, and whether all restart; none
                      where starts are free.
    """

    slot: float = 0.0
    larger_first: bool = False
    overhead: Callable[[int, int, bool], float] | None = None


class RigidRun:
    """``present`` jobs in the release's order."""

    def __init__(
        self, ledger: Ledger, decider: Decider, oversized: Mapping[int, str], habits: Habits
    ) -> None:
        self.habits = habits
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
        executed = "the trace's durations, in whole seconds"
        return self.ledger.plan({}, slot=self.habits.slot, executed=executed)

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
        view, slot = self.view, self.habits.slot
        restart = self.ledger.is_restart_pass() and self.habits.overhead is not None
        decision = self.decider.allocate(view)
        for job in decision.preempt:
            self.ledger.stop(job, PREEMPTED)
        for gang in decision.start:
            self.ledger.start(gang)
            self.checked[gang.job] = view.now
            self._charge(gang.job, restart)
        if self.habits.larger_first:
            self.present.sort(key=lambda job: -self.gpus[job])
        for job in view.running if restart else ():
            self._charge(job, restart)
        self._foretell_ends(restart)
        self.jump = inf if decision.wake_at is None else max(decision.wake_at, view.now + slot)
        self.arrivals.merge(view.now, slot)

    def _charge(self, job: int, restart: bool) -> None:
        """Let a job lose the seconds that its start costs."""
        if self.habits.overhead is not None:
            self.overhead[job] = self.habits.overhead(self.gpus[job], self.ledger.machines.devices, restart)

    def _foretell_ends(self, restart: bool) -> None:
        """The jobs that end first, each with its own end."""
        now, self.due, self.ends = self.view.now, inf, {}
        for job in (job for job in self.present if job in self.view.running):
            left = self.duration[job] - self.executed[job] + (self.overhead[job] if restart else 0)
            end = float(int(now + left))
            event = max(now + self.habits.slot, end)
            if event < self.due:
                self.due, self.ends = event, {}
            if event == self.due:
                self.ends[job] = end
