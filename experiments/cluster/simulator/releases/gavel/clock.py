"""The release's clock: rounds, arrivals at their ends, divisions now and then."""

from __future__ import annotations

import random
from typing import Any

from experiments.cluster.interface import ClusterPlan, ClusterPolicy, Machines, Performance, VisibleJobs
from experiments.cluster.interface.division import Divider, Division, Sharers
from experiments.cluster.planning.contests import Contests
from experiments.cluster.planning.turns import Turns
from experiments.cluster.simulator.admission import find_oversized
from experiments.cluster.simulator.releases.gavel.stays import Stays
from experiments.core.errors import Infeasible
from experiments.core.progress import Progress, silent
from experiments.workloads.jobs import JobTrace

#: Seconds of a round where the policy says nothing else.
ROUND = 360.0
#: What is added to the seed of a run for drawing the order of types.
ORDER_SEED = 5
#: Failures in a row after which a job is dropped.
FAILURES = 5


def simulate(
    trace: JobTrace,
    machines: Machines,
    policy: ClusterPolicy,
    performance: Performance,
    seed: int = 0,
    progress: Progress = silent,
) -> ClusterPlan:
    """Run ``trace`` as Gavel's simulator does; ``policy`` is asked for shares of time (``divider``)."""
    return GavelSimulation(trace, machines, policy, performance, seed, progress).run()


class GavelSimulation:
    """The state of one run."""

    def __init__(
        self,
        trace: JobTrace,
        machines: Machines,
        policy: ClusterPolicy,
        performance: Performance,
        seed: int,
        progress: Progress,
    ) -> None:
        self.trace, self.progress, self.policy_name = trace, progress, policy.name
        self.jobs = VisibleJobs(trace, policy.sees)
        self.contests = Contests(self.jobs, machines, performance, policy.sees)
        self.divider: Divider = policy.divider(seed)
        self.round = policy.round_seconds or ROUND
        self.turns = Turns(len(machines.types), self.round)
        self.stays = Stays(machines)
        self.order = random.Random(seed + ORDER_SEED)
        self.room = self.contests.counts.tolist()
        self.dropped = find_oversized(trace, machines, policy)
        self.left = [performance.work(job) for job in range(len(trace))]
        self.present: dict[int, None] = {}
        self.running: list[tuple[float, Sharers, int, list[float], list[float]]] = []
        self.failures = [0] * len(trace)
        self.counted = set(range(*(trace.window or (0, len(trace)))))
        self.arrived = 0
        self.now = float(trace.submit[0])
        self.began = 0.0
        self.ended: float | None = None
        self.changed = False
        self.busy_seconds = 0.0
        self.rounds = self.leases = self.kept = self.divisions = 0

    def run(self) -> ClusterPlan:
        submit, jobs = self.jobs.submit, len(self.trace)
        while self.counted:
            self._advance(submit[self.arrived] if self.arrived < jobs else None)
            while self.arrived < jobs and submit[self.arrived] <= self.now:
                self._enter(self.arrived)
                self.arrived += 1
            self._begin_round()
            self._refuse_standstill()
        self.stays.cut()
        unfinished = (*self.present, *range(self.arrived, jobs))
        return ClusterPlan(
            self.stays.log,
            tuple(self.dropped),
            tuple(job for job in unfinished if job not in self.dropped),
            self.dropped,
            facts=self._facts(),
            figures={"worker_busy_fraction": self.busy_seconds / (sum(self.room) * self.now)}
            if self.now
            else {},
        )

    def _refuse_standstill(self) -> None:
        if self.counted and not self.running and not self.changed and self.arrived == len(self.trace):
            what = f"gives no time to any of the {len(self.present)} jobs that are left"
            raise Infeasible(what, f"policy {self.policy_name} at t={self.now:g}")

    def _facts(self) -> dict[str, Any]:
        return {
            "rounds": self.rounds,
            "round_seconds": self.round,
            "divisions": self.divisions,
            "reset_seconds": self.divider.reset_seconds,
            "leases_extended": self.kept / self.leases if self.leases else 0.0,
            **self.divider.facts,
        }

    def _advance(self, next_arrival: float | None) -> None:
        """Let the running round end, or wait for an arrival."""
        if not self.running:
            if next_arrival is None:
                self.turns.divided_at = 0.0
            else:
                self.now = max(self.now, next_arrival)
            return
        self.now = max(end for end, *_ in self.running)
        if self.ended is not None:
            self.began = self.ended
        self.ended = self.now
        running, self.running = self.running, []
        for end, sharers, place, steps, computing in running:
            self._finish(end, sharers, place, steps, computing)

    def _finish(
        self, end: float, sharers: Sharers, place: int, steps: list[float], computing: list[float]
    ) -> None:
        seconds, size = end - self.began, self.jobs.gpus[sharers[0]]
        if min(steps) <= 0 or seconds <= 0 or (size > 1 and min(steps) < size):
            self._fail(sharers)
            return
        self.stays.add(sharers, end, steps, computing)
        for job, done in zip(sharers, steps, strict=True):
            self.failures[job] = 0
            self.left[job] -= done
        self.turns.receive(sharers, place, seconds)
        self.busy_seconds += seconds * size
        completed = {job for job in sharers if self.left[job] <= 0}
        if completed:
            self.stays.complete(sharers, completed)
        for job in sorted(completed):
            self._leave(job)

    def _fail(self, sharers: Sharers) -> None:
        """A round in which some GPU had no step to do counts for nothing."""
        self.changed = True
        if len(sharers) > 1:
            return
        (job,) = sharers
        self.failures[job] += 1
        if self.failures[job] >= FAILURES:
            self.dropped[job] = f"failed {FAILURES} times: fewer steps in a round than it has GPUs"
            self.stays.complete(sharers, set())
            self._leave(job)

    def _enter(self, job: int) -> None:
        if job in self.dropped:
            self.counted.discard(job)
            return
        gpus = self.jobs.gpus
        same = [other for other in self.present if gpus[other] == gpus[job]] if self.divider.packs else ()
        self.turns.enter(job, (other for other in same if self.contests.pair((other, job)) is not None))
        self.present[job] = None
        self.changed = True

    def _leave(self, job: int) -> None:
        del self.present[job]
        self.turns.leave(job, packs=self.divider.packs)
        self.changed = True
        self.counted.discard(job)
        if len(self.counted) % 256 == 0:
            self.progress(self.arrived / len(self.trace), f"{len(self.counted)} jobs to go")

    def _begin_round(self) -> None:
        old = self.now - self.turns.divided_at >= self.divider.reset_seconds
        if self.changed and (old or self.turns.divided_at == 0):
            self._divide()
        order = list(reversed(range(len(self.room))))
        if self.divider.shuffles:
            self.order.shuffle(order)
        chosen = self.turns.choose(
            order, self.room, self.jobs.gpus, self.contests.runs, fills=self.divider.fills
        )
        chosen = [(sharers, place) for sharers, place in chosen if sharers in self.turns.shares]
        types, gpus = self.contests.types, self.jobs.gpus
        self.leases += len(self.stays.open)
        self.kept += self.stays.keep(
            [(sharers, types[place], gpus[sharers[0]]) for sharers, place in chosen], self.now
        )
        self.rounds += bool(chosen)
        for sharers, place in chosen:
            self._start(sharers, place)

    def _divide(self) -> None:
        present = tuple(self.present)
        division: Division = {}
        left = [self.left[job] for job in present]
        if present:
            contest = self.contests.of(self.now, present, left, packs=self.divider.packs)
            division = self.divider.divide(contest)
            self.divisions += 1
        self.turns.divide(division, self.now)
        self.changed = False

    def _start(self, sharers: Sharers, place: int) -> None:
        """Do as many whole steps as fit into a round."""
        if len(sharers) == 1:
            (job,) = sharers
            speed = self.contests.speed(job)[place]
            step = min(float(int(speed * self.round)), self.left[job])
            self.running.append((self.now + step / speed, sharers, place, [step], [step / speed]))
            return
        pair = self.contests.pair(sharers)
        assert pair is not None
        speeds = pair[:, place].tolist()
        steps = [
            min(float(int(speed * self.round)), self.left[job])
            for job, speed in zip(sharers, speeds, strict=True)
        ]
        seconds = [step / speed for step, speed in zip(steps, speeds, strict=True)]
        self.running.append((self.now + max(seconds), sharers, place, steps, seconds))
