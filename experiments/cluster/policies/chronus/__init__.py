"""Chronus-like: deadlines in leases, after Chronus (SoCC'21).

Time is cut into leases; who runs is decided at their ends alone, in between only what falls free is filled.
How long a job runs on its GPUs is known (Chronus profiles a few iterations). At the end of a lease an integer
program (``leases.py``) accepts as many jobs with deadlines as can be given their leases in time; jobs
accepted before come first. A job that is not accepted becomes a best-effort job, as one without a deadline
is: these take what is left, the shortest remaining first.

"Like", because the paper's program, its objectives and its weights are not told well enough to be repeated
figure by figure. Chosen here: leases of 600 s; earliest deadline first where that meets all of them, so that
no program is solved; beyond the near leases several are put together, which lets the program believe that
gangs pack without waste. Left out: profiling, rounding sizes up to topology units, and the local search that
swaps jobs between nodes (``placement`` packs).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from experiments.cluster.interface import Allocation, ClusterPolicy, ClusterView, Decider
from experiments.cluster.interface.placement import PLACEMENTS
from experiments.cluster.policies.chronus.leases import LeasedJob, lease_out
from experiments.core.knobs import knob
from experiments.core.policy import SECONDS


@dataclass(frozen=True)
class Chronus(ClusterPolicy):
    """Chronus-like: gives out leases by an integer program so that most deadlines are met."""

    name: ClassVar[str] = "chronus"
    mechanism: ClassVar[str] = "deadlines"
    sees: ClassVar[frozenset[str]] = frozenset({"deadline", "service"})
    needs: ClassVar[frozenset[str]] = frozenset({"deadline"})
    effort: ClassVar[str] = SECONDS
    quick: ClassVar[Mapping[str, Any]] = {"lease": 7.0}

    lease: float = knob(600.0, "time for which a job gets its GPUs", low=1e-3, high=86400.0, unit="s")
    placement: str = knob("pack", "which free devices a job gets", choices=tuple(PLACEMENTS))

    @property
    def round_seconds(self) -> float:
        return self.lease

    def begin(self) -> Decider:
        return _Leases(self)


@dataclass
class _Leases:
    """``asking`` jobs came within this lease; ``accepted`` ones are to meet their deadlines."""

    policy: Chronus
    asking: dict[int, None] = field(default_factory=dict)
    accepted: dict[int, None] = field(default_factory=dict)

    def allocate(self, view: ClusterView) -> Allocation:
        for job in view.ended:
            self.asking.pop(job, None)
            self.accepted.pop(job, None)
        self.asking |= dict.fromkeys(job for job in view.arrived if view.jobs.deadline[job] > view.now)
        if view.round_ended:
            return self._give_leases(view)
        if view.is_full:
            return Allocation()
        waiting = self._ranked(view.waiting, {**self.accepted, **self.asking}, view)
        return Allocation(tuple(self.policy.fill(view.pool.copy(), waiting, view)))

    def _give_leases(self, view: ClusterView) -> Allocation:
        """Accept jobs, and run those that have this lease, then the other accepted ones, then the rest."""
        jobs = [self._leased(job, view) for job in (*self.accepted, *self.asking)]
        leases = lease_out([job for job in jobs if job is not None], sum(view.pool.capacity))
        self.accepted, self.asking = dict.fromkeys(leases.accepted), {}
        rest = [job for job in (*view.running, *view.waiting) if job not in leases.now]
        return self.policy.run_first([*leases.now, *self._ranked(rest, self.accepted, view)], view)

    def _leased(self, job: int, view: ClusterView) -> LeasedJob | None:
        """A job in leases from now on; ``None`` where its deadline cannot be met any more."""
        length, left = self.policy.lease, view.remaining(job)
        slack = view.jobs.deadline[job] - view.now
        found = LeasedJob.of(job, view.jobs.gpus[job], left, slack, length, sure=job in self.accepted)
        return found if found.needs <= found.until else None

    def _ranked(
        self, jobs: Mapping[int, object] | list[int], first: Mapping[int, None], view: ClusterView
    ) -> list[int]:
        """Those with a deadline to meet by deadline; then the shortest remaining."""

        def rank(job: int) -> tuple[bool, float, int]:
            return job not in first, view.jobs.deadline[job] if job in first else view.remaining(job), job

        return sorted(jobs, key=rank)
