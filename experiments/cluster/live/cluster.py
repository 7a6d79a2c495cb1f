"""The live cluster: arrivals by the clock, processes instead of numbers, and the simulator's view of it all.

Times are the trace's: its first submission is the moment at which the run begins. A decision is carried out
before the next one is asked for: what it stops has saved and exited before what it starts is started.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.cluster.interface import (
    Allocation,
    ClusterPlan,
    ClusterPolicy,
    Gang,
    Performance,
    gang_fault,
)
from experiments.cluster.live.executions import POLL, LiveExecutions
from experiments.cluster.live.gang_process import load_libraries
from experiments.cluster.live.launch import Launcher
from experiments.cluster.live.observed import LiveView, ObservedJobs
from experiments.cluster.live.slots import Slots
from experiments.cluster.live.stays import PAUSE, STOP
from experiments.cluster.live.training_jobs import TrainingJobs
from experiments.core.errors import ImpossiblePlan
from experiments.core.progress import Progress, silent


class LiveCluster:
    """One run. ``oversized`` are the jobs that never fit, with the reasons."""

    def __init__(
        self,
        jobs: TrainingJobs,
        slots: Slots,
        policy: ClusterPolicy,
        performance: Performance,
        folder: Path,
        seed: int = 0,
        oversized: Mapping[int, str] | None = None,
        progress: Progress = silent,
    ) -> None:
        self.jobs, self.slots, self.policy, self.progress = jobs, slots, policy, progress
        self.rejected: dict[int, str] = dict(oversized or {})
        self.decider = policy.begin()
        self.view = LiveView.over(jobs.trace, slots.machines(), performance, policy.sees, seed)
        launcher = Launcher(jobs, slots, policy, folder, seed, self.view.agents)
        self.executions = LiveExecutions(self.view, launcher, performance, lambda: self.now, self._report)
        if self.view.agents is not None:
            self.view.agents = ObservedJobs(self.view.agents, self.executions.stays)
        self.next_job, self.decisions = 0, 0
        self.wake = self.round_end = math.inf
        self.origin = time.monotonic()

    @property
    def now(self) -> float:
        """The trace's time."""
        return float(self.jobs.trace.submit[0]) + time.monotonic() - self.origin

    @property
    def over(self) -> int:
        """Jobs that completed or were refused."""
        return self.executions.completed + len(self.rejected)

    def run(self) -> ClusterPlan:
        """Run all jobs. None of their processes outlives this call, whatever happens in it."""
        load_libraries()
        self.origin = time.monotonic()
        try:
            while self.over < len(self.jobs.trace) and self._goes_on():
                self._listen()
                self._decide()
            self.executions.cut()
            return self._plan()
        finally:
            self.executions.close()

    def _plan(self) -> ClusterPlan:
        live = self.executions
        waiting = tuple(sorted(self.view.waiting))
        facts = {"decisions": self.decisions, "losses": sum(live.losses.values())}
        told = {"training_losses": self._by_name(live.final_loss)}
        if live.trained:
            told["trained"] = self._by_name(live.trained)
        return ClusterPlan(live.log, tuple(self.rejected), waiting, self.rejected, facts={**facts, **told})

    def _by_name(self, found: Mapping[int, Any]) -> dict[str, Any]:
        return {self.jobs.trace.job[job]: value for job, value in sorted(found.items())}

    def _goes_on(self) -> bool:
        """Whether anything can happen still: what waits although nothing runs may never be started."""
        live = self.executions
        return bool(live.stays or live.ended or live.stopped) or math.isfinite(self._next_time())

    def _next_time(self) -> float:
        """When something has to be decided, whatever happens until then."""
        submit = self.jobs.trace.submit
        comes = float(submit[self.next_job]) if self.next_job < len(submit) else math.inf
        return min(comes, self.wake, self.round_end)

    def _listen(self) -> None:
        """Return when there is something to decide about: a job came, ended or was lost, or it is time to."""
        live = self.executions
        while not live.ended and not live.stopped:
            left = self._next_time() - self.now
            if left <= 0:
                return
            live.hear(min(left, POLL))

    def _report(self) -> None:
        share = self.executions.steps / max(1, sum(self.jobs.steps))
        running = f"{len(self.executions.stays)} running"
        self.progress(min(1.0, share), f"{self.over} of {len(self.jobs.trace)} jobs, {running}")

    def _decide(self) -> None:
        view, live = self.view, self.executions
        view.now = self.now
        view.arrived = tuple(self._arrive())
        view.ended, view.stopped = tuple(live.ended), tuple(live.stopped)
        live.ended, live.stopped = [], []
        view.round_ended = view.now >= self.round_end
        live.settle()
        self.decisions += 1
        decision = self.decider.allocate(view)
        self._carry_out(decision)
        self.wake = math.inf if decision.wake_at is None else decision.wake_at
        self.round_end = self._end_of_round()

    def _arrive(self) -> list[int]:
        """Let the jobs wait that have been submitted since the last decision."""
        submit, first = self.jobs.trace.submit, self.next_job
        while self.next_job < len(submit) and submit[self.next_job] <= self.view.now:
            self.next_job += 1
        arrived = [job for job in range(first, self.next_job) if job not in self.rejected]
        self.view.waiting.update(dict.fromkeys(arrived))
        return arrived

    def _end_of_round(self) -> float:
        """When the present round ends; there are none while nothing runs."""
        length, first = self.policy.round_seconds, float(self.jobs.trace.submit[0])
        if length is None or not self.view.running:
            return math.inf
        return first + (math.floor((self.view.now - first) / length + 1e-9) + 1) * length

    def _carry_out(self, decision: Allocation) -> None:
        live = self.executions
        stopping = {*decision.preempt, *decision.suspend}
        staying = {g.job for g in decision.start if g.job not in stopping and live.stays_put(g)}
        moving = {gang.job for gang in decision.start if gang.job in live.stays} - staying
        live.stop((*decision.preempt, *moving), STOP, moving)
        live.stop(decision.suspend, PAUSE, moving)
        live.wait_for({*stopping, *moving})
        for gang in sorted(decision.start, key=lambda gang: gang.job not in staying):
            if gang.job in live.stays:
                live.change(gang)
            elif gang.job not in live.ended:
                self._start(gang)
        for job, reason in decision.reject:
            del self.view.waiting[job]
            self.rejected[job] = reason

    def _start(self, gang: Gang) -> None:
        """Start a gang; ``ImpossiblePlan`` where its job does not wait or its slots are not free."""
        job, view = gang.job, self.view
        fault = "" if job in view.waiting else "is started but does not wait"
        wanted = view.jobs.gpus[job]
        fault = fault or gang_fault(gang, wanted, rigid=self.policy.keeps_sizes) or view.pool.lack(gang)
        if fault:
            raise ImpossiblePlan([f"job {self.jobs.trace.job[job]} at t={view.now:g} s: {fault}"])
        self.executions.start(gang)
