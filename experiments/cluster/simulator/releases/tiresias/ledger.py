"""Who holds which devices in a run of a release, what policies see of it, and the log.

Shared by Tiresias' simulator and by ElasticFlow's, which was made from it.
"""

from __future__ import annotations

from experiments.cluster.interface import (
    ClusterPlan,
    ClusterPolicy,
    ClusterView,
    Execution,
    ExecutionLog,
    Gang,
    Machines,
    Performance,
)
from experiments.cluster.interface.log import COMPLETED, CUT
from experiments.core.progress import Progress
from experiments.workloads.jobs import JobTrace

#: After so many decisions of ElasticFlow's release all running jobs restart.
PASSES = 60


class Ledger:
    """Starts and stops jobs on devices; ``done`` and ``attained`` are what the release's loops count."""

    def __init__(
        self,
        trace: JobTrace,
        machines: Machines,
        policy: ClusterPolicy,
        performance: Performance,
        seed: int,
        progress: Progress,
    ) -> None:
        self.trace, self.policy, self.machines = trace, policy, machines
        self.performance, self.progress = performance, progress
        count = len(trace)
        self.log = ExecutionLog()
        self.view = ClusterView.over(trace, machines, performance, policy.sees, seed)
        self.started: dict[int, float] = {}
        self.before: dict[int, float] = {}
        self.restarting = [0.0] * count
        self.rejected: dict[int, str] = {}
        self.refused_at: dict[int, float] = {}
        self.ended = 0
        self.passes = 0

    def is_restart_pass(self) -> bool:
        """Count a decision; whether it is one of those, each sixtieth, at which all running jobs restart."""
        restarts = self.passes > 0 and self.passes % PASSES == 0
        self.passes += 1
        return restarts

    def start(self, gang: Gang) -> None:
        """Give a waiting job its devices."""
        view, job = self.view, gang.job
        view.pool.take(gang)
        del view.waiting[job]
        view.running[job] = gang
        self.started[job], self.before[job] = view.now, view.attained.done[job]
        view.attained.executions[job] += 1

    def stop(self, job: int, ended: str, end: float | None = None) -> None:
        """Take a job's devices, and let it wait again unless it has ended (at ``end``, which may be past)."""
        view = self.view
        gang = view.running.pop(job)
        view.pool.give_back(gang)
        start = self.started.pop(job)
        end = max(start, view.now if end is None else end)
        if ended == COMPLETED:
            view.attained.done[job] = view.works[job]
            self._count(job)
        else:
            view.waiting[job] = None
        work = view.attained.done[job] - self.before.pop(job)
        restarting = min(self.restarting[job], end - start)
        self.restarting[job] = 0.0
        self.log.append(Execution(gang, start, end, work, restarting, ended=ended))

    def end_without_devices(self, job: int, end: float) -> None:
        """Let a job that waits be done, whatever is left of its work."""
        del self.view.waiting[job]
        self.log.append(Execution(Gang(job, (0,)), end, end, 0.0))
        self._count(job)

    def reject(self, job: int, reason: str) -> None:
        self.view.waiting.pop(job, None)
        self.rejected[job], self.refused_at[job] = reason, self.view.now
        self._count(job)

    def _count(self, job: int) -> None:
        self.ended += 1
        if self.ended % 64 == 0:
            count = len(self.trace)
            self.progress(self.ended / count, f"{self.ended:,} of {count:,} jobs")

    def plan(self, quirks: dict[str, str], **facts: object) -> ClusterPlan:
        """The whole run; what still runs is cut off."""
        view = self.view
        unfinished = (*sorted(view.waiting), *sorted(view.running))
        for job in tuple(view.running):
            self.stop(job, CUT)
        facts = {"decisions": self.passes, **facts}
        return ClusterPlan(
            self.log,
            tuple(self.rejected),
            unfinished,
            self.rejected,
            facts=facts,
            quirks=quirks,
            refused_at=self.refused_at,
        )
