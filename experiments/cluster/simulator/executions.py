"""What runs at the moment: gangs with their progress and speed, and what starting and stopping them does."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from experiments.cluster.interface import (
    ClusterPolicy,
    ClusterView,
    Execution,
    ExecutionLog,
    Gang,
    Performance,
)
from experiments.cluster.interface.log import COMPLETED, LOST
from experiments.cluster.interface.policy import ALL_LOST, NOTHING_LOST
from experiments.cluster.simulator.costs import StartCosts, StartCostsOf


@dataclass(slots=True)
class RunningExecution:
    """A running job's present stay on its devices.

    - ``begins``: when it makes progress; ``settled``: up to when its progress is counted.
    - ``before``: work done when it started.
    - ``speed`` in work per second; ``busy`` and ``readying`` as ``Rate`` has them (there ``restarting``), and
      ``computed`` and ``readied`` their integrals over time.
    - ``stamp``: of the event at which it ends or its speed changes, which ``completes`` it or not.
    """

    gang: Gang
    start: float
    begins: float
    settled: float
    before: float
    speed: float = 0.0
    busy: float = 1.0
    computed: float = 0.0
    readying: float = 0.0
    readied: float = 0.0
    stamp: int = 0
    completes: bool = False


@dataclass(slots=True)
class Checkpoint:
    """A job's progress that survives: ``work`` done at the last checkpoint.

    Since then it made progress for so many ``seconds`` and ``device_seconds``.
    """

    work: float = 0.0
    seconds: float = 0.0
    device_seconds: float = 0.0


class Executions:
    """Starts, stops and slows jobs. ``schedule(time, job, stamp)`` asks to be told when one is due."""

    def __init__(
        self,
        view: ClusterView,
        policy: ClusterPolicy,
        performance: Performance,
        schedule: Callable[[float, int, int], None],
        costs: StartCostsOf = StartCosts,
    ) -> None:
        self.view, self.policy, self.performance, self.schedule = view, policy, performance, schedule
        self.log = ExecutionLog()
        self.costs = costs(policy, view.pool.machines)
        self.running: dict[int, RunningExecution] = {}
        self.sharers: dict[int, dict[int, None]] = {}
        self.keeps_all = policy.preemption_loses == NOTHING_LOST and policy.node_mtbf is None
        self.checkpoints: dict[int, Checkpoint] = {}
        self.furthest = [0.0] * len(view.works)
        self.stamps = 0

    def start(self, gang: Gang, *, moves: bool = False) -> None:
        """Let a waiting job run, or one that was stopped for it (``moves``).

        ``ValueError`` where its devices are not free.
        """
        job, view, attained = gang.job, self.view, self.view.attained
        view.pool.take(gang)
        del view.waiting[job]
        crowded = not gang.is_alone and bool(self._neighbors(gang))
        begins = view.now + self.costs.of(gang, attained.executions[job], moves=moves, crowded=crowded)
        execution = RunningExecution(gang, view.now, begins, begins, attained.done[job])
        self.running[job] = execution
        view.running[job] = gang
        attained.executions[job] += 1
        attained.started[job], attained.progress[job] = view.now, begins
        self._pace(execution)
        if not gang.is_alone:
            for device in gang.devices:
                self.sharers.setdefault(device, {})[job] = None
            self._pace_neighbors(gang)

    def stop(self, job: int, ended: str) -> None:
        """Take a job's devices away, at its end or before."""
        execution, view, attained = self.running.pop(job), self.view, self.view.attained
        gang, now = execution.gang, view.now
        self._settle(execution)
        lost = 0.0
        self.furthest[job] = max(self.furthest[job], attained.done[job])
        if ended == COMPLETED:
            attained.done[job] = view.works[job]
        elif not self.keeps_all:
            lost = self._fall_back(job, ended)
        held = now - execution.start
        attained.seconds[job] += held
        attained.service[job] += held * gang.size * gang.share
        restarting = min(held, execution.begins - execution.start + execution.readied)
        made = held - restarting
        busy = execution.computed / made if made > 0 else 1.0
        work = attained.done[job] - execution.before
        self.log.append(Execution(gang, execution.start, now, work, restarting, lost, busy, ended))
        view.pool.give_back(gang)
        del view.running[job]
        if ended != COMPLETED:
            view.waiting[job] = None
        self.costs.remember(gang, max(0.0, execution.begins - now))
        if not gang.is_alone:
            for device in gang.devices:
                del self.sharers[device][job]
            self._pace_neighbors(gang)

    def change_pace(self, job: int) -> None:
        """Count a job's progress and ask for its speed anew."""
        execution = self.running[job]
        self._settle(execution)
        self._pace(execution)

    def on_node(self, node: int) -> list[int]:
        """The running jobs with a device, processors or memory of ``node``, in the order they started."""
        devices = self.view.pool.machines.devices_of(node)
        return [
            job
            for job, gang in self.view.running.items()
            if any(device in devices for device in gang.devices)
            or any(host.node == node for host in gang.hosts)
        ]

    def furthest_now(self) -> list[float]:
        """The most work that each job has ever had done, whatever it lost since."""
        found = self.furthest.copy()
        for job in self.running:
            found[job] = max(found[job], self.view.done(job))
        return found

    def progress_made(self) -> float:
        """Seconds of progress of all that runs."""
        now = self.view.now
        return sum(max(0.0, now - execution.begins) for execution in self.running.values())

    def _settle(self, execution: RunningExecution) -> None:
        job, now = execution.gang.job, self.view.now
        seconds = now - execution.settled
        if seconds <= 0:
            return
        attained = self.view.attained
        made = seconds * execution.speed
        if not self.keeps_all:
            self._save(job, execution, seconds)
        execution.readied += seconds * execution.readying
        execution.computed += seconds * (1 - execution.readying) * execution.busy
        execution.settled = attained.progress[job] = now
        attained.done[job] += made

    def _save(self, job: int, execution: RunningExecution, seconds: float) -> None:
        """Write the checkpoints that fall into ``seconds`` of progress."""
        kept = self.checkpoints.setdefault(job, Checkpoint())
        every = None if self.policy.preemption_loses == ALL_LOST else self.policy.checkpoint_every
        size = execution.gang.size * execution.gang.share
        together = kept.seconds + seconds
        if every is None or together < every:
            kept.seconds = together
            kept.device_seconds += seconds * size
            return
        after = together - math.floor(together / every) * every
        kept.work = self.view.attained.done[job] + execution.speed * (seconds - after)
        kept.seconds, kept.device_seconds = after, after * size

    def _fall_back(self, job: int, ended: str) -> float:
        """Take back progress that is lost with the devices; the device-seconds that it took."""
        kept, attained = self.checkpoints.setdefault(job, Checkpoint()), self.view.attained
        if ended != LOST and self.policy.preemption_loses == NOTHING_LOST:
            self.checkpoints[job] = Checkpoint(attained.done[job])
            return 0.0
        attained.done[job] = kept.work
        self.checkpoints[job] = Checkpoint(kept.work)
        return kept.device_seconds

    def _pace(self, execution: RunningExecution) -> None:
        """Ask how fast a job runs now, and when that ends."""
        gang, job = execution.gang, execution.gang.job
        done, work = self.view.attained.done[job], self.view.works[job]
        neighbors = () if gang.is_alone else self._neighbors(gang)
        rate = self.performance.rate(job, gang, neighbors, done)
        execution.speed, execution.busy, execution.readying = rate.speed, rate.busy, rate.restarting
        self.view.attained.speed[job] = rate.speed
        target = min(work, rate.until)
        self.stamps += 1
        execution.stamp, execution.completes = self.stamps, target == work
        if done >= target and not execution.completes:
            name = self.performance.name
            raise RuntimeError(f"{name} says job {job} changes its speed at {target:g}, with {done:g} done")
        if rate.speed > 0:
            self.schedule(execution.settled + max(0.0, target - done) / rate.speed, job, self.stamps)

    def _neighbors(self, gang: Gang) -> list[Gang]:
        """The others on the same devices, each once."""
        jobs = dict.fromkeys(
            other for device in gang.devices for other in self.sharers.get(device, ()) if other != gang.job
        )
        return [self.running[job].gang for job in jobs]

    def _pace_neighbors(self, gang: Gang) -> None:
        for other in self._neighbors(gang):
            self.change_pace(other.job)
