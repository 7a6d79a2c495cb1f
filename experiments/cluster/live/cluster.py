"""The live cluster: arrivals by the clock, processes instead of numbers, and the simulator's view of it all.

Times are the trace's: its first submission is the moment at which the run begins. A decision is carried out
before the next one is asked for: what it stops has saved and exited before what it starts is started.
"""

from __future__ import annotations

import math
import selectors
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.cluster.interface import (
    Allocation,
    ClusterPlan,
    ClusterPolicy,
    ClusterView,
    ExecutionLog,
    Gang,
    Performance,
    gang_fault,
)
from experiments.cluster.interface.log import COMPLETED, CUT, LOST, MOVED, PREEMPTED
from experiments.cluster.live.gang_process import GangProcess, start
from experiments.cluster.live.slots import Slots
from experiments.cluster.live.stays import PAUSE, RUN, STOP, Stay
from experiments.cluster.live.training_jobs import TrainingJobs
from experiments.core.errors import ImpossiblePlan, LabError
from experiments.core.progress import Progress, silent

#: Seconds between two looks for dead processes, and for which a process may take to stop.
POLL, PATIENCE = 0.25, 120.0
#: A job whose processes die so often without a step in between has a fault of its own.
MOST_LOSSES = 3
#: Seconds between checkpoints where the policy's knob leaves them out: what a killed process may lose.
CHECKPOINT_EVERY = 10.0


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
        self.jobs, self.slots, self.policy, self.performance = jobs, slots, policy, performance
        self.folder, self.seed, self.progress = folder, seed, progress
        self.rejected: dict[int, str] = dict(oversized or {})
        self.decider = policy.begin()
        self.view = ClusterView.over(jobs.trace, slots.machines(), performance, policy.sees, seed)
        self.log = ExecutionLog()
        self.stays: dict[int, Stay] = {}
        self.paused: dict[int, Stay] = {}
        self.losses = dict.fromkeys(range(len(jobs.trace)), 0)
        self.final_loss: dict[int, float] = {}
        self.ended: list[int] = []
        self.stopped: list[int] = []
        self.next_job, self.decisions = 0, 0
        self.wake = self.round_end = math.inf
        self.unfinished = len(jobs.trace) - len(self.rejected)
        self.origin = time.monotonic()
        self.selector = selectors.DefaultSelector()

    @property
    def now(self) -> float:
        """The trace's time."""
        return float(self.jobs.trace.submit[0]) + time.monotonic() - self.origin

    def run(self) -> ClusterPlan:
        """Run all jobs. No process outlives this call, whatever happens in it."""
        self.origin = time.monotonic()
        try:
            while self.unfinished and self._goes_on():
                self._listen()
                self._decide()
            return self._plan()
        finally:
            for process in self._processes():
                process.end()
            self.selector.close()

    def _processes(self) -> list[GangProcess]:
        return [stay.process for stay in (*self.stays.values(), *self.paused.values())]

    def _plan(self) -> ClusterPlan:
        for job in list(self.stays):
            self._end(job, CUT)
        waiting = tuple(sorted(self.view.waiting))
        facts = {"decisions": self.decisions, "losses": sum(self.losses.values())}
        told = {self.jobs.trace.job[job]: loss for job, loss in sorted(self.final_loss.items())}
        return ClusterPlan(
            self.log, tuple(self.rejected), waiting, self.rejected, facts={**facts, "training_losses": told}
        )

    # --- what happens ---------------------------------------------------------------------------------------

    def _goes_on(self) -> bool:
        """Whether anything can happen still: what waits although nothing runs may never be started."""
        return bool(self.stays or self.ended or self.stopped) or math.isfinite(self._next_time())

    def _next_time(self) -> float:
        """When something has to be decided, whatever happens until then."""
        submit = self.jobs.trace.submit
        comes = float(submit[self.next_job]) if self.next_job < len(submit) else math.inf
        return min(comes, self.wake, self.round_end)

    def _listen(self) -> None:
        """Return when there is something to decide about: a job came, ended or was lost, or it is time to."""
        while not self.ended and not self.stopped:
            left = self._next_time() - self.now
            if left <= 0:
                return
            self._hear(min(left, POLL))

    def _hear(self, seconds: float) -> None:
        """Take in what processes say within ``seconds``, and note those that have died."""
        for key, _ in self.selector.select(max(0.0, seconds)):
            job, process = key.data
            for said in process.hear():
                self._heed(job, process, said)
        for job, stay in list(self.stays.items()):
            if stay.process.has_lost_one():
                self._lose(job)
        done = sum(stay.step for stay in self.stays.values()) + self._settled_steps()
        ended = len(self.jobs.trace) - self.unfinished
        share = done / max(1, sum(self.jobs.steps))
        self.progress(min(1.0, share), f"{ended} of {len(self.jobs.trace)} jobs, {len(self.stays)} running")

    def _settled_steps(self) -> float:
        done = self.view.attained.done
        return sum(done[job] for job in range(len(done)) if job not in self.stays)

    def _heed(self, job: int, process: GangProcess, said: dict[str, object]) -> None:
        stay = self.stays.get(job)
        if stay is None or stay.process is not process:
            return
        what, step = said["said"], int(str(said.get("step", stay.step)))
        if what == "begun":
            stay.begin(self.now, step)
            if not stay.resumed:
                stay.keep(self.now, step)
        elif what == "step":
            stay.tell(self.now, step)
        elif what == "saved":
            stay.keep(self.now, step)
        elif what == "paused":
            stay.tell(self.now, step)
            self.paused[job] = stay
            self._end(job, PREEMPTED)
        elif what in ("done", "stopped"):
            stay.keep(self.now, step)
            stay.computing = float(str(said["computing"]))
            self.final_loss[job] = float(str(said["loss"]))
            stopped = MOVED if stay.moves else PREEMPTED
            self._end(job, COMPLETED if what == "done" and stay.ordered == RUN else stopped)
        elif what == "gone":
            self._lose(job)

    def _lose(self, job: int) -> None:
        """A job's process died: it waits, with the steps of its last checkpoint."""
        stay = self.stays[job]
        self.losses[job] = self.losses[job] + 1 if stay.step == stay.before else 1
        if self.losses[job] > MOST_LOSSES:
            name = self.jobs.trace.job[job]
            raise LabError(
                f"job {name} died {self.losses[job]} times without a step: {stay.process.last_words()}"
            )
        self._end(job, LOST)
        if stay.ordered == RUN:
            self.stopped.append(job)

    def _end(self, job: int, how: str) -> None:
        """Take a job's slots away and write its record."""
        stay, view, attained, now = self.stays.pop(job), self.view, self.view.attained, self.now
        self.selector.unregister(stay.process.output)
        if job not in self.paused:
            stay.process.end()
        lost = 0.0
        if how == LOST:
            lost = max(0.0, now - stay.kept_at) * stay.gang.size
            stay.step = stay.kept
        self.log.append(stay.record(now, how, lost))
        attained.done[job] = float(stay.step)
        attained.seconds[job] += now - stay.start
        attained.service[job] += (now - stay.start) * stay.gang.size * stay.gang.share
        view.pool.give_back(stay.gang)
        del view.running[job]
        if how == COMPLETED:
            self.ended.append(job)
            self.unfinished -= 1
        elif how != CUT:
            view.waiting[job] = None

    # --- what is decided ------------------------------------------------------------------------------------

    def _decide(self) -> None:
        view, submit = self.view, self.jobs.trace.submit
        view.now, arrived = self.now, []
        while self.next_job < len(submit) and submit[self.next_job] <= view.now:
            if self.next_job not in self.rejected:
                view.waiting[self.next_job] = None
                arrived.append(self.next_job)
            self.next_job += 1
        view.arrived, view.ended, view.stopped = tuple(arrived), tuple(self.ended), tuple(self.stopped)
        self.ended, self.stopped = [], []
        view.round_ended = view.now >= self.round_end
        self._settle()
        self.decisions += 1
        decision = self.decider.allocate(view)
        self._carry_out(decision)
        self.wake = math.inf if decision.wake_at is None else decision.wake_at
        self.round_end = self._end_of_round()

    def _settle(self) -> None:
        """What the scheduler has seen of running jobs is what they told."""
        attained = self.view.attained
        for job, stay in self.stays.items():
            attained.done[job], attained.started[job] = float(stay.step), stay.start
            begun = math.isfinite(stay.begun)
            attained.progress[job] = self.view.now if begun else math.inf
            expected = self.performance.rate(job, stay.gang).speed if begun else 0.0
            attained.speed[job] = stay.speed() or expected

    def _end_of_round(self) -> float:
        """When the present round ends; there are none while nothing runs."""
        length, first = self.policy.round_seconds, float(self.jobs.trace.submit[0])
        if length is None or not self.view.running:
            return math.inf
        return first + (math.floor((self.view.now - first) / length + 1e-9) + 1) * length

    def _carry_out(self, decision: Allocation) -> None:
        stopping = {*decision.preempt, *decision.suspend}
        staying = {g.job for g in decision.start if g.job not in stopping and self._stays_put(g)}
        moving = {gang.job for gang in decision.start if gang.job in self.stays} - staying
        for jobs, word in (((*decision.preempt, *moving), STOP), (decision.suspend, PAUSE)):
            for job in jobs:
                if job in self.stays:
                    self.stays[job].ordered, self.stays[job].moves = word, job in moving
                    self.stays[job].process.tell(word)
        self._await({*stopping, *moving})
        for gang in sorted(decision.start, key=lambda gang: gang.job not in staying):
            if gang.job in self.stays:
                self._call_anew(gang)
            elif gang.job not in self.ended:
                self._start(gang)
        for job, reason in decision.reject:
            del self.view.waiting[job]
            self.rejected[job] = reason
            self.unfinished -= 1

    def _stays_put(self, gang: Gang) -> bool:
        """Whether only the share of its devices changes, which stops nothing."""
        stay = self.stays.get(gang.job)
        return stay is not None and stay.gang.devices == gang.devices

    def _call_anew(self, gang: Gang) -> None:
        """Another share of the same devices: another record, the same processes."""
        old, view, now = self.stays[gang.job], self.view, self.now
        self.log.append(old.record(now, MOVED, 0.0))
        view.pool.give_back(old.gang)
        view.pool.take(gang)
        view.running[gang.job] = gang
        attained, held = view.attained, now - old.start
        attained.done[gang.job] = float(old.step)
        attained.seconds[gang.job] += held
        attained.service[gang.job] += held * old.gang.size * old.gang.share
        attained.executions[gang.job] += 1
        new = Stay(gang, old.process, now, old.step, old.step, old.kept, resumed=old.resumed)
        if math.isfinite(old.begun):
            new.begin(now, old.step)
            new.kept_at = old.kept_at
        self.stays[gang.job] = new
        self._give_share(gang, new.process)

    def _give_share(self, gang: Gang, process: GangProcess) -> None:
        if self.policy.caps_shares:
            process.give_share(gang.share)

    def _await(self, jobs: set[int]) -> None:
        until = time.monotonic() + PATIENCE
        while jobs & self.stays.keys():
            if time.monotonic() > until:
                raise LabError(f"a job did not stop within {PATIENCE:.0f} s of being told")
            self._hear(POLL)

    def _start(self, gang: Gang) -> None:
        job, view = gang.job, self.view
        fault = "" if job in view.waiting else "is started but does not wait"
        wanted = view.jobs.gpus[job]
        fault = fault or gang_fault(gang, wanted, rigid=self.policy.keeps_sizes) or view.pool.lack(gang)
        if fault:
            raise ImpossiblePlan([f"job {self.jobs.trace.job[job]} at t={view.now:g} s: {fault}"])
        stay = self._resume(gang) or self._start_anew(gang)
        view.pool.take(gang)
        del view.waiting[job]
        view.running[job] = gang
        view.attained.executions[job] += 1
        self.stays[job] = stay
        self.selector.register(stay.process.output, selectors.EVENT_READ, (job, stay.process))

    def _resume(self, gang: Gang) -> Stay | None:
        """Let the processes go on that wait in memory on a gang's slots; ``None`` where there are none."""
        old = self.paused.pop(gang.job, None)
        if old is None:
            return None
        if old.gang.devices != gang.devices:
            self._save_paused(old.process)
            return None
        self._give_share(gang, old.process)
        old.process.tell("go")
        return Stay(gang, old.process, self.now, old.step, old.step, old.kept, resumed=True)

    def _start_anew(self, gang: Gang) -> Stay:
        """New processes, from the job's last checkpoint on."""
        job = gang.job
        training: dict[str, Any] = {
            "model": self.jobs.models[job],
            "seed": self.seed + job,
            "steps": self.jobs.steps[job],
            "checkpoint_every": self.policy.checkpoint_every or CHECKPOINT_EVERY,
        }
        if self.policy.caps_shares:
            training["share"] = gang.share
        cores = [self.slots.core(device) for device in gang.devices]
        gpus = [self.slots.gpu(device) for device in gang.devices]
        number = self.view.attained.executions[job]
        process = start(self.folder / f"job-{job}", number, training, cores, gpus)
        done = int(self.view.attained.done[job])
        return Stay(gang, process, self.now, done, done, done)

    def _save_paused(self, process: GangProcess) -> None:
        """What waits in memory goes on elsewhere, through its checkpoint."""
        process.tell(STOP)
        until = time.monotonic() + PATIENCE
        while process.ranks[0].poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        process.end()
