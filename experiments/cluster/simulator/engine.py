"""Event-driven simulation of a cluster: arrivals, completions, rounds, wake-ups, failures; the policy
decides, this carries out.

At each time all completions are applied first, then nodes that fail or are back, then all arrivals, then the
policy is asked once. Nothing depends on the order of rows in the trace: jobs are numbered by (submit, id),
and the event queue breaks ties by that number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from experiments.cluster.interface import (
    Allocation,
    ClusterPlan,
    ClusterPolicy,
    ClusterView,
    Gang,
    Machines,
    Performance,
    gang_fault,
)
from experiments.cluster.interface.log import COMPLETED, CUT, LOST, MOVED, PREEMPTED
from experiments.cluster.planning.performance import FixedSpeed
from experiments.cluster.simulator.admission import find_oversized
from experiments.cluster.simulator.costs import StartCosts, StartCostsOf
from experiments.cluster.simulator.executions import Executions
from experiments.cluster.simulator.outages import draw_outages
from experiments.core.errors import ImpossiblePlan, Infeasible
from experiments.core.events import EventQueue
from experiments.core.progress import Progress, silent
from experiments.workloads.jobs import JobTrace

#: Kinds of events, in the order in which those of one time are applied.
DUE, FAILURE, REPAIR, NOTICE, ARRIVAL, DECISION = range(6)
#: After so many decisions some work must have been done: a policy that preempts faster than its restart cost
#: never ends.
DECISIONS_TO_PROGRESS = 10_000
#: After so many times as many some job must have come further than ever before, where preemptions lose work.
LOOKS_TO_COME_FURTHER = 3


class ClusterEvent(NamedTuple):
    """``subject`` is a job or a node; ``stamp`` tells a stale event from one that still holds."""

    kind: int
    subject: int
    stamp: int = 0


def simulate(
    trace: JobTrace,
    machines: Machines,
    policy: ClusterPolicy,
    performance: Performance | None = None,
    seed: int = 0,
    progress: Progress = silent,
    costs: StartCostsOf = StartCosts,
) -> ClusterPlan:
    """Run all jobs of ``trace`` on ``machines`` and return the log of what ran where.

    Jobs are as fast as ``performance`` says, ``fixed`` where none is given, and start as ``costs`` says.
    """
    return ClusterSimulation(trace, machines, policy, performance, seed, progress, costs).run()


class ClusterSimulation:
    """The state of one run. The works of jobs are the truth that policies see only where they declare it."""

    def __init__(
        self,
        trace: JobTrace,
        machines: Machines,
        policy: ClusterPolicy,
        performance: Performance | None = None,
        seed: int = 0,
        progress: Progress = silent,
        costs: StartCostsOf = StartCosts,
    ) -> None:
        self.trace, self.policy, self.machines, self.progress = trace, policy, machines, progress
        self.performance = performance or FixedSpeed(trace)
        self.seed = seed
        self.oversized = find_oversized(trace, machines, policy)
        self.decider = policy.begin()
        self.view = ClusterView.over(trace, machines, self.performance, policy.sees, seed)
        self.events: EventQueue[ClusterEvent] = EventQueue()
        self.executions = Executions(self.view, policy, self.performance, self._expect, costs)
        begin = float(trace.submit[0])
        self.outages: list[Iterator[tuple[float, float]]] = [
            draw_outages(policy, node, seed, begin) for node in range(len(machines))
        ]
        self.down: list[tuple[int, float, float]] = []
        self.rejected: dict[int, str] = {}
        self.refused_at: dict[int, float] = {}
        self.stamps = 0
        self.decision_due = -1
        self.counted = range(*(trace.window or (0, len(trace))))
        self.unfinished = len(self.counted)
        self.decisions = 0
        self.done_before = (-1.0, -1)
        self.furthest_before: list[float] = []
        self.looks = 0

    def run(self) -> ClusterPlan:
        for job, submit in enumerate(self.view.jobs.submit):
            self.events.push(submit, ClusterEvent(ARRIVAL, job), ARRIVAL)
        for node in range(len(self.machines)):
            self._expect_failure(node)
        while self.events and self.unfinished:
            if self._advance():
                self._decide()
        view = self.view
        late = [job for job, submit in enumerate(view.jobs.submit) if submit > view.now]
        unfinished = (*sorted(view.waiting), *sorted(view.running), *late)
        for job in tuple(view.running):
            self.executions.stop(job, CUT)
        down = tuple((node, since, min(until, view.now)) for node, since, until in self.down)
        return ClusterPlan(
            self.executions.log,
            tuple(self.rejected),
            unfinished,
            self.rejected,
            down,
            self._facts(),
            refused_at=self.refused_at,
        )

    def _facts(self) -> dict[str, object]:
        return {"decisions": self.decisions, **getattr(self.decider, "facts", {})}

    def _advance(self) -> bool:
        """Apply everything that happens at the next time; false when there is nothing to decide about."""
        now, view = self.events.peek(), self.view
        assert now is not None
        ended: list[int] = []
        arrived: list[int] = []
        stopped: list[int] = []
        due = False
        view.now = now
        while self.events.peek() == now:
            _, event = self.events.pop()
            if event.kind == DUE:
                due = self._apply_due(event, ended) or due
            elif event.kind == ARRIVAL:
                self._arrive(event.subject, arrived)
            elif event.kind == DECISION:
                due = due or event.stamp == self.decision_due
            else:
                due = True
                self._apply_outage(event, stopped)
        if not (ended or arrived or due):
            return False
        view.arrived, view.ended, view.stopped = tuple(arrived), tuple(ended), tuple(stopped)
        return True

    def _apply_due(self, event: ClusterEvent, ended: list[int]) -> bool:
        """End a job, or change its speed; true where there is something to decide about."""
        job = event.subject
        execution = self.executions.running.get(job)
        if execution is None or execution.stamp != event.stamp:
            return False
        if not execution.completes:
            self.executions.change_pace(job)
            return False
        self.executions.stop(job, COMPLETED)
        ended.append(job)
        self._count_down(job)
        return True

    def _arrive(self, job: int, arrived: list[int]) -> None:
        if job in self.oversized:
            self._refuse(job, self.oversized[job])
            return
        self.view.waiting[job] = None
        arrived.append(job)

    def _apply_outage(self, event: ClusterEvent, stopped: list[int]) -> None:
        """A node fails, is back, or is known to fail soon."""
        node, view = event.subject, self.view
        if event.kind == NOTICE:
            view.leaving[node] = view.now + self.policy.failure_notice
            return
        if event.kind == REPAIR:
            view.pool.reopen(node)
            view.down -= {node}
            self._expect_failure(node)
            return
        for job in self.executions.on_node(node):
            self.executions.stop(job, LOST)
            stopped.append(job)
        view.pool.close(node)
        view.down |= {node}
        view.leaving.pop(node, None)

    def _expect_failure(self, node: int) -> None:
        """Draw when ``node`` fails next and is back."""
        drawn = next(self.outages[node], None)
        if drawn is None:
            return
        fails, back = drawn
        self.down.append((node, fails, back))
        self.events.push(fails, ClusterEvent(FAILURE, node), FAILURE)
        self.events.push(back, ClusterEvent(REPAIR, node), REPAIR)
        if self.policy.failure_notice and fails - self.policy.failure_notice > self.view.now:
            self.events.push(fails - self.policy.failure_notice, ClusterEvent(NOTICE, node), NOTICE)

    def _expect(self, time: float, job: int, stamp: int) -> None:
        self.events.push(time, ClusterEvent(DUE, job, stamp), DUE)

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
        view = self.view
        done = sum(view.attained.seconds) + self.executions.progress_made()
        restarting = sum(self.executions.log.numbers["restarting"])
        made = (done - restarting, self.unfinished + len(view.waiting) + len(view.running))
        if made[0] <= self.done_before[0] and made[1] == self.done_before[1] and not view.arrived:
            what = f"no job did any work in {DECISIONS_TO_PROGRESS} decisions: each restart costs "
            what += f"{self.policy.restart_cost:g} s, and jobs are preempted before that"
            raise Infeasible(what, f"policy {self.policy.name} at t={view.now:g}")
        self.done_before = made
        self._refuse_losing()

    def _refuse_losing(self) -> None:
        """``Infeasible`` when at several looks in a row no job has come further than ever before."""
        if self.executions.keeps_all:
            return
        furthest, before = self.executions.furthest_now(), self.furthest_before
        further = any(now > then * (1 + 1e-9) for now, then in zip(furthest, before, strict=False))
        self.looks = 0 if further or not before else self.looks + 1
        self.furthest_before = furthest
        if self.looks == LOOKS_TO_COME_FURTHER:
            decisions = LOOKS_TO_COME_FURTHER * DECISIONS_TO_PROGRESS
            what = f"no job came further in {decisions} decisions: jobs lose what they did since their last "
            what += (
                "checkpoint before they reach the next, by preemption_loses, checkpoint_every or node_mtbf"
            )
            raise Infeasible(what, f"policy {self.policy.name} at t={self.view.now:g}")

    def _on_round(self, length: float) -> bool:
        rounds = (self.view.now - self.view.jobs.submit[0]) / length
        return abs(rounds - round(rounds)) < 1e-9

    def _carry_out(self, decision: Allocation) -> None:
        for job in (*decision.preempt, *decision.suspend):
            if job not in self.executions.running:
                raise self._illegal(job, "is preempted but does not run")
            self.executions.stop(job, PREEMPTED)
        for job in decision.suspend:
            self.executions.costs.suspend(job)
        moving = [gang.job for gang in decision.start if gang.job in self.executions.running]
        for job in moving:
            self.executions.stop(job, MOVED)
        for gang in decision.start:
            self._start(gang, moves=gang.job in moving)
        for job, reason in decision.reject:
            if job not in self.view.waiting:
                raise self._illegal(job, "is rejected but does not wait")
            del self.view.waiting[job]
            self._refuse(job, reason)

    def _refuse(self, job: int, reason: str) -> None:
        self.rejected[job], self.refused_at[job] = reason, self.view.now
        self._count_down(job)

    def _illegal(self, job: int, what: str) -> ImpossiblePlan:
        name = self.trace.job[job] if 0 <= job < len(self.trace) else f"number {job}"
        return ImpossiblePlan([f"job {name} at t={self.view.now:g} s: {what}"])

    def _start(self, gang: Gang, *, moves: bool) -> None:
        """Let a waiting job run on free devices; ``ImpossiblePlan`` where it does not wait or they are not
        free.
        """
        job = gang.job
        if job not in self.view.waiting:
            raise self._illegal(job, "is started but does not wait")
        fault = gang_fault(gang, self.view.jobs.gpus[job], rigid=self.policy.keeps_sizes)
        if fault := fault or self.view.pool.lack(gang):
            raise self._illegal(job, fault)
        self.executions.start(gang, moves=moves)

    def _count_down(self, job: int) -> None:
        """A job has ended or was refused."""
        if job not in self.counted:
            return
        self.unfinished -= 1
        if self.unfinished % 512 == 0:
            all_jobs = len(self.counted)
            ended = all_jobs - self.unfinished
            self.progress(ended / all_jobs, f"{ended:,} of {all_jobs:,} jobs")

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
