"""The release's loop: all jobs make a tick's progress, then one decision."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from experiments.cluster.interface import Allocation, ClusterPlan, Decider, Gang
from experiments.cluster.interface.log import COMPLETED, MOVED, PREEMPTED
from experiments.cluster.simulator.releases.tiresias.ledger import Ledger

#: Seconds from one decision to the next, and those without progress on new devices.
TICK, RESTART = 60.0, 30.0
#: Ticks in which nothing runs although jobs wait, after which nothing ever will.
PATIENCE = 1000


class TickRun:
    """``countdown`` seconds of each job until it makes progress."""

    def __init__(self, ledger: Ledger, decider: Decider, oversized: Mapping[int, str]) -> None:
        self.ledger, self.view, self.decider = ledger, ledger.view, decider
        self.countdown = [0.0] * len(ledger.trace)
        for job, reason in oversized.items():
            ledger.reject(job, reason)
        submissions = enumerate(ledger.trace.submit.tolist())
        self.coming = [(time, job) for job, time in submissions if job not in oversized][::-1]
        self.view.now = 0.0

    def run(self) -> ClusterPlan:
        view, idle = self.view, 0
        while (self.coming or view.waiting or view.running) and idle < PATIENCE:
            if not view.waiting and not view.running:
                view.now = max(0.0, math.ceil(self.coming[-1][0] / TICK) * TICK - TICK)
            ended = self._make_progress()
            view.now += TICK
            self._take_in(ended)
            if ended or view.waiting or view.running:
                self._carry_out(self.decider.allocate(view))
            idle = 0 if view.running or not view.waiting else idle + 1
        plan = self.ledger.plan({}, tick=TICK, restart=RESTART)
        ends = [execution.end for execution in plan.executions if execution.completed]
        return replace(plan, figures={"makespan": max(ends)} if ends else {})

    def _make_progress(self) -> dict[int, float]:
        """Let all running jobs make a tick's progress; those that end, with their ends."""
        attained, ended = self.view.attained, dict[int, float]()
        for job, gang in self.view.running.items():
            held = min(self.countdown[job], TICK)
            self.countdown[job] -= held
            self.ledger.restarting[job] += held
            attained.seconds[job] += TICK
            attained.service[job] += TICK * gang.size
            attained.started[job] = self.view.now + TICK
            end = self._train(job, gang, self.view.now + held, TICK - held)
            if end is not None:
                ended[job] = end
        return ended

    def _train(self, job: int, gang: Gang, now: float, seconds: float) -> float | None:
        """Train for so long from ``now`` on; when it ends, if it does."""
        performance, done = self.ledger.performance, self.view.attained.done
        while seconds > 0:
            rate = performance.rate(job, gang, (), done[job])
            if done[job] + rate.speed * seconds < rate.until:
                done[job] += rate.speed * seconds
                return None
            needed = float(round((rate.until - done[job]) / rate.speed))
            done[job] = rate.until
            now, seconds = now + needed, seconds - needed
            if rate.until >= self.view.works[job]:
                return now
        return None

    def _take_in(self, ended: Mapping[int, float]) -> None:
        view, arrived = self.view, list[int]()
        for job, end in ended.items():
            self.ledger.stop(job, COMPLETED, end)
        while self.coming and self.coming[-1][0] <= view.now:
            arrived.append(self.coming.pop()[1])
        view.waiting.update(dict.fromkeys(arrived))
        view.arrived, view.ended, view.round_ended = tuple(arrived), tuple(ended), True
        self.ledger.passes += 1

    def _carry_out(self, decision: Allocation) -> None:
        for job, reason in decision.reject:
            self.ledger.reject(job, reason)
        for job in (*decision.preempt, *decision.suspend):
            self.ledger.stop(job, PREEMPTED)
        moved = {gang.job: self.view.running[gang.job] for gang in decision.start if self._runs(gang)}
        for job in moved:
            self.ledger.stop(job, MOVED)
        for gang in decision.start:
            before = moved.get(gang.job)
            self.ledger.start(gang)
            if before is None or self._nodes(before) != self._nodes(gang):
                self.countdown[gang.job] = RESTART
            attained = self.view.attained
            attained.started[gang.job] = self.view.now
            attained.progress[gang.job] = self.view.now + self.countdown[gang.job]

    def _runs(self, gang: Gang) -> bool:
        return gang.job in self.view.running

    def _nodes(self, gang: Gang) -> tuple[tuple[int, int], ...]:
        return self.ledger.machines.by_node(gang.devices)
