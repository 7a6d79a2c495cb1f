"""Event-driven simulation of a cluster: arrivals, completions, rounds, wake-ups; the policy decides, this
carries out.

At each time all completions are applied first, then all arrivals, then the policy is asked once. Nothing
depends on the order of rows in the trace: jobs are numbered by (submit, id), and the event queue breaks ties
by that number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from experiments.cluster.interface import (
    Allocation,
    ClusterPlan,
    ClusterPolicy,
    ClusterView,
    Execution,
    Gang,
    Pool,
    VisibleJobs,
    gang_fault,
)
from experiments.cluster.interface.view import Attained
from experiments.core.errors import ImpossiblePlan, Infeasible
from experiments.core.events import EventQueue
from experiments.core.progress import Progress, silent
from experiments.workloads.jobs import JobTrace

END, ARRIVAL, DECISION = 0, 1, 2
#: After so many decisions some work must have been done: a policy that preempts faster than its restart cost
#: never ends.
DECISIONS_TO_PROGRESS = 10_000


class ClusterEvent(NamedTuple):
    """``stamp`` tells a stale end or wake-up from one that still holds."""

    kind: int
    job: int
    stamp: int


@dataclass
class _RunningExecution:
    """A running job's present stay on its devices."""

    gang: Gang
    start: float
    progress: float
    stamp: int


def simulate(
    trace: JobTrace, capacity: Sequence[int], policy: ClusterPolicy, progress: Progress = silent
) -> ClusterPlan:
    """Run all jobs of ``trace`` on nodes with ``capacity`` devices each.

    Return the log of what ran where.
    """
    return ClusterSimulation(trace, capacity, policy, progress).run()


class ClusterSimulation:
    """The state of one run. ``service`` is the truth that policies may not see unless they declare it."""

    def __init__(
        self, trace: JobTrace, capacity: Sequence[int], policy: ClusterPolicy, progress: Progress = silent
    ) -> None:
        _refuse_oversized(trace, sum(capacity))
        self.trace, self.policy, self.progress = trace, policy, progress
        self.decider = policy.begin()
        self.service: list[float] = trace.service.tolist()
        self.attained = Attained.none_of(len(trace))
        self.view = ClusterView(VisibleJobs(trace, policy.sees), Pool(capacity), self.attained)
        self.executions: dict[int, _RunningExecution] = {}
        self.log: list[Execution] = []
        self.rejected: list[int] = []
        self.events: EventQueue[ClusterEvent] = EventQueue()
        self.stamps = 0
        self.decision_due = -1
        self.unfinished = len(trace)
        self.decisions = 0
        self.done_before = -1.0

    def run(self) -> ClusterPlan:
        for job, submit in enumerate(self.view.jobs.submit):
            self.events.push(submit, ClusterEvent(ARRIVAL, job, 0), ARRIVAL)
        while self.events:
            if self._advance():
                self._decide()
        unfinished = (*sorted(self.view.waiting), *sorted(self.view.running))
        return ClusterPlan(tuple(self.log), tuple(self.rejected), unfinished)

    def _advance(self) -> bool:
        """Apply everything that happens at the next time; false when all of it was stale."""
        now, view = self.events.peek(), self.view
        ended: list[int] = []
        arrived: list[int] = []
        due = False
        while self.events.peek() == now:
            _, event = self.events.pop()
            if event.kind == ARRIVAL:
                view.waiting[event.job] = None
                arrived.append(event.job)
            elif event.kind == DECISION:
                due = due or event.stamp == self.decision_due
            elif self._is_current(event):
                ended.append(event.job)
        if not (ended or arrived or due):
            return False
        view.now = self.events.now
        for job in ended:
            self._stop(job, completed=True)
        view.arrived, view.ended = tuple(arrived), tuple(ended)
        return True

    def _is_current(self, event: ClusterEvent) -> bool:
        execution = self.executions.get(event.job)
        return execution is not None and execution.stamp == event.stamp

    def _decide(self) -> None:
        self._refuse_thrashing()
        length = self.policy.round_seconds
        self.view.round_ended = length is not None and self._on_round(length)
        decision = self.decider.allocate(self.view)
        self._carry_out(decision)
        self._call_again(decision.wake_at, length)

    def _refuse_thrashing(self) -> None:
        """Every so often: ``Infeasible`` when no job has done any work since the last look, and none has come
        or gone.
        """
        self.decisions += 1
        if self.decisions % DECISIONS_TO_PROGRESS:
            return
        view, now = self.view, self.view.now
        running = sum(
            max(0.0, now - execution.progress) * execution.gang.share
            for execution in self.executions.values()
        )
        done = sum(self.attained.done) + running - self.unfinished
        if done <= self.done_before and not view.arrived:
            what = f"no job did any work in {DECISIONS_TO_PROGRESS} decisions: each restart costs "
            what += f"{self.policy.restart_cost:g} s, and jobs are preempted before that"
            raise Infeasible(what, f"policy {self.policy.name} at t={now:g}")
        self.done_before = done

    def _on_round(self, length: float) -> bool:
        rounds = (self.view.now - self.view.jobs.submit[0]) / length
        return abs(rounds - round(rounds)) < 1e-9

    def _carry_out(self, decision: Allocation) -> None:
        for job in decision.preempt:
            if job not in self.executions:
                raise self._illegal(job, "is preempted but does not run")
            self._stop(job, completed=False)
        for gang in decision.start:
            if gang.job in self.executions:
                self._stop(gang.job, completed=False)
            self._start(gang)
        for job in decision.reject:
            if job not in self.view.waiting:
                raise self._illegal(job, "is rejected but does not wait")
            del self.view.waiting[job]
            self.rejected.append(job)
            self.unfinished -= 1

    def _illegal(self, job: int, what: str) -> ImpossiblePlan:
        name = self.trace.job[job] if 0 <= job < len(self.trace) else f"number {job}"
        return ImpossiblePlan([f"job {name} at t={self.view.now:g} s: {what}"])

    def _start(self, gang: Gang) -> None:
        """Let a waiting job run on free devices; ``ImpossiblePlan`` where it does not wait or they are not
        free.
        """
        job, view = gang.job, self.view
        if job not in view.waiting:
            raise self._illegal(job, "is started but does not wait")
        if fault := gang_fault(gang, view.jobs.gpus[job], rigid=self.policy.rigid) or view.pool.lack(gang):
            raise self._illegal(job, fault)
        view.pool.take(gang)
        del view.waiting[job]
        resumes = self.attained.seconds[job] > 0
        begins = view.now + (self.policy.restart_cost if resumes else 0.0)
        self.stamps += 1
        self.executions[job] = _RunningExecution(gang, view.now, begins, self.stamps)
        view.running[job] = gang
        self.attained.started[job], self.attained.progress[job] = view.now, begins
        left = self.service[job] - self.attained.done[job]
        self.events.push(begins + left / gang.share, ClusterEvent(END, job, self.stamps), END)

    def _stop(self, job: int, *, completed: bool) -> None:
        execution, view, attained = self.executions.pop(job), self.view, self.attained
        gang, now = execution.gang, view.now
        useful = max(0.0, now - execution.progress) * gang.share
        attained.seconds[job] += now - execution.start
        attained.service[job] += (now - execution.start) * gang.size * gang.share
        attained.done[job] = self.service[job] if completed else attained.done[job] + useful
        self.log.append(Execution(gang, execution.start, now, useful, completed))
        view.pool.give_back(gang)
        del view.running[job]
        if not completed:
            view.waiting[job] = None
            return
        self.unfinished -= 1
        done = 1 - self.unfinished / len(self.trace)
        if self.unfinished % 512 == 0:
            self.progress(done, f"{len(self.trace) - self.unfinished} of {len(self.trace)} jobs")

    def _call_again(self, wake_at: float | None, length: float | None) -> None:
        """Schedule the next decision without an event.

        That is the policy's wake-up or the end of the round, whichever is first. There are no rounds while
        nothing runs: without an arrival the same question would never end.
        """
        view = self.view
        times = [] if wake_at is None else [wake_at]
        if wake_at is not None and not wake_at > view.now:
            what = f"asks to be woken at {wake_at:g} s, which is not after now"
            raise ImpossiblePlan([f"policy {self.policy.name} at t={view.now:g} s: {what}"])
        if length is not None and view.running:
            first = view.jobs.submit[0]
            times.append(first + (math.floor((view.now - first) / length + 1e-9) + 1) * length)
        self.decision_due = -1
        if times:
            self.stamps += 1
            self.decision_due = self.stamps
            self.events.push(min(times), ClusterEvent(DECISION, -1, self.stamps), DECISION)


def _refuse_oversized(trace: JobTrace, devices: int) -> None:
    largest = int(trace.gpus.argmax())
    wanted = int(trace.gpus[largest])
    if wanted > devices:
        missing = wanted - devices
        what = f"wants {wanted} GPUs, the cluster has {devices}: {missing} are missing"
        raise Infeasible(what, f"job {trace.job[largest]}", missing)
