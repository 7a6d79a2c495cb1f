"""What runs at the moment for real: each job's processes, what they say, and their records.

As the simulator's ``executions``, with processes instead of numbers: a start is a process for each device of
the gang, a preemption a checkpoint and an exit, a suspension a process that waits.
"""

from __future__ import annotations

import math
import selectors
import time
from collections.abc import Callable, Collection, Iterable
from typing import Any

from experiments.cluster.interface import ClusterView, ExecutionLog, Gang, Performance
from experiments.cluster.interface.log import COMPLETED, CUT, LOST, MOVED, PREEMPTED
from experiments.cluster.live.gang_process import GangProcess
from experiments.cluster.live.launch import Launcher
from experiments.cluster.live.stays import PAUSE, RUN, STOP, Stay
from experiments.core.errors import LabError

#: Seconds between two looks for dead processes, and for which a process may take to stop.
POLL, PATIENCE = 0.25, 120.0
#: A job whose processes die so often without a step in between has a fault of its own.
MOST_LOSSES = 3


class LiveExecutions:
    """Starts and stops processes, and keeps ``view`` true to them.

    - ``stays`` of running jobs, and those ``paused`` in memory.
    - ``final_loss`` of each job, and what it ``trained`` really where steps are not all of one batch.
    - ``ended`` and ``stopped``: the jobs that completed, or lost a process, since the last decision.
    - ``heard`` is called whenever processes have been listened to; ``clock`` is the trace's time.
    """

    def __init__(
        self,
        view: ClusterView,
        launcher: Launcher,
        performance: Performance,
        clock: Callable[[], float],
        heard: Callable[[], None],
    ) -> None:
        self.view, self.launcher, self.performance = view, launcher, performance
        self.clock, self.heard = clock, heard
        self.log = ExecutionLog()
        self.stays: dict[int, Stay] = {}
        self.paused: dict[int, Stay] = {}
        self.losses = dict.fromkeys(range(len(view.works)), 0)
        self.final_loss: dict[int, float] = {}
        self.trained: dict[int, dict[str, int]] = {}
        self.ended: list[int] = []
        self.stopped: list[int] = []
        self.completed = 0
        self.selector = selectors.DefaultSelector()

    @property
    def steps(self) -> float:
        """Steps that all jobs have done."""
        done = self.view.attained.done
        settled = sum(done[job] for job in range(len(done)) if job not in self.stays)
        return settled + sum(stay.step for stay in self.stays.values())

    def close(self) -> None:
        """No process is left."""
        for stay in (*self.stays.values(), *self.paused.values()):
            stay.process.end()
        self.selector.close()

    def cut(self) -> None:
        """End what still runs when the run ends."""
        for job in list(self.stays):
            self._end(job, CUT)

    # --- what happens ---------------------------------------------------------------------------------------

    def hear(self, seconds: float) -> None:
        """Take in what processes say within ``seconds``, and note those that have died."""
        for key, _ in self.selector.select(max(0.0, seconds)):
            job, process = key.data
            for said in process.hear():
                self._heed(job, process, said)
        for job, stay in list(self.stays.items()):
            if stay.process.has_lost_one():
                self._lose(job)
        self.heard()

    def _heed(self, job: int, process: GangProcess, said: dict[str, Any]) -> None:
        stay = self.stays.get(job)
        if stay is None or stay.process is not process:
            return
        now, what, step = self.clock(), said["said"], said.get("step", stay.step)
        stay.observe(said)
        if what == "begun":
            stay.begin(now, step)
            if not stay.resumed:
                stay.keep(now, step)
        elif what == "step":
            stay.tell(now, step)
        elif what == "saved":
            stay.keep(now, step)
        elif what == "paused":
            stay.tell(now, step)
            self.paused[job] = stay
            self._end(job, PREEMPTED)
        elif what in ("done", "stopped"):
            stay.keep(now, step)
            stay.computing = said["computing"]
            self.final_loss[job] = said["loss"]
            if "made" in said:
                self.trained[job] = {"steps": said["made"], "samples": said["samples"]}
            stopped = MOVED if stay.moves else PREEMPTED
            self._end(job, COMPLETED if what == "done" and stay.ordered == RUN else stopped)
        elif what == "gone":
            self._lose(job)

    def _lose(self, job: int) -> None:
        """A job's process died: it waits, with the steps of its last checkpoint."""
        stay = self.stays[job]
        self.losses[job] = self.losses[job] + 1 if stay.step == stay.before else 1
        if self.losses[job] > MOST_LOSSES:
            name = self.launcher.jobs.trace.job[job]
            raise LabError(
                f"job {name} died {self.losses[job]} times without a step: {stay.process.last_words()}"
            )
        self._end(job, LOST)
        if stay.ordered == RUN:
            self.stopped.append(job)

    def _end(self, job: int, how: str) -> None:
        """Take a job's slots away and write its record."""
        stay, view, now = self.stays.pop(job), self.view, self.clock()
        self.selector.unregister(stay.process.output)
        if job not in self.paused:
            stay.process.end()
        lost = 0.0
        if how == LOST:
            lost = max(0.0, now - stay.kept_at) * stay.gang.size
            stay.step = stay.kept
        self._record(stay, now, how, lost)
        view.pool.give_back(stay.gang)
        del view.running[job]
        if how == COMPLETED:
            self.ended.append(job)
            self.completed += 1
        elif how != CUT:
            view.waiting[job] = None

    def _record(self, stay: Stay, now: float, how: str, lost: float = 0.0) -> None:
        """Write a stay's record, and what its job has attained with it."""
        attained, job, held = self.view.attained, stay.gang.job, now - stay.start
        self.log.append(stay.record(now, how, lost))
        attained.done[job] = float(stay.step)
        attained.seconds[job] += held
        attained.service[job] += held * stay.gang.size * stay.gang.share

    def settle(self) -> None:
        """What the scheduler has seen of running jobs is what they told."""
        attained, now = self.view.attained, self.view.now
        for job, stay in self.stays.items():
            attained.done[job], attained.started[job] = float(stay.step), stay.start
            begun = math.isfinite(stay.begun)
            attained.progress[job] = now if begun else math.inf
            expected = self.performance.rate(job, stay.gang).speed if begun else 0.0
            attained.speed[job] = stay.speed() or expected

    # --- what is carried out --------------------------------------------------------------------------------

    def stop(self, jobs: Iterable[int], word: str, moving: Collection[int]) -> None:
        """Tell running jobs to save and exit, or to wait in memory; those ``moving`` go on as other gangs.

        One that is only starting has nothing to save: it is ended, or frozen where it is, and its slots are
        free.
        """
        for job in jobs:
            if (stay := self.stays.get(job)) is None:
                continue
            stay.ordered, stay.moves = word, job in moving
            if stay.is_starting and not stay.resumed:
                if word == PAUSE:
                    stay.frozen = True
                    stay.process.freeze()
                    self.paused[job] = stay
                self._end(job, MOVED if stay.moves else PREEMPTED)
            else:
                stay.process.tell(word)

    def wait_for(self, jobs: set[int]) -> None:
        """Return when none of ``jobs`` has its slots any more."""
        until = time.monotonic() + PATIENCE
        while jobs & self.stays.keys():
            if time.monotonic() > until:
                raise LabError(f"a job did not stop within {PATIENCE:.0f} s of being told")
            self.hear(POLL)

    def stays_put(self, gang: Gang) -> bool:
        """Whether a gang's job has its devices already, so that nothing has to stop."""
        stay = self.stays.get(gang.job)
        return stay is not None and stay.gang.devices == gang.devices

    def change(self, gang: Gang) -> None:
        """Another gang on the same devices: another record, the same processes."""
        job, view, now = gang.job, self.view, self.clock()
        old = self.stays[job]
        self._record(old, now, MOVED)
        view.pool.give_back(old.gang)
        view.pool.take(gang)
        view.running[job] = gang
        view.attained.executions[job] += 1
        new = Stay(gang, old.process, now, old.step, old.step, old.kept, resumed=old.resumed)
        if math.isfinite(old.begun):
            new.begin(now, old.step)
            new.kept_at = old.kept_at
        self.stays[job] = new
        self.launcher.adapt(new.process, gang)

    def start(self, gang: Gang) -> None:
        """Let a waiting job run on free slots."""
        job, view = gang.job, self.view
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
            self._leave(old)
            return None
        self.launcher.adapt(old.process, gang)
        if old.frozen:
            old.process.thaw()
            return Stay(gang, old.process, self.clock(), old.step, old.step, old.kept)
        old.process.tell("go")
        return Stay(gang, old.process, self.clock(), old.step, old.step, old.kept, resumed=True)

    def _start_anew(self, gang: Gang) -> Stay:
        """New processes, from the job's last checkpoint on."""
        attained = self.view.attained
        process = self.launcher.start(gang, attained.executions[gang.job])
        done = attained.done[gang.job]
        return Stay(gang, process, self.clock(), done, done, done)

    def _leave(self, stay: Stay) -> None:
        """What waits in memory goes on elsewhere, through its checkpoint; what only started has none."""
        process = stay.process
        if stay.frozen:
            process.end()
            return
        process.tell(STOP)
        until = time.monotonic() + PATIENCE
        while process.ranks[0].poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        process.end()
