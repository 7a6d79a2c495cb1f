"""AlloX, EuroSys'20: jobs of one GPU are matched with places in the queues of devices (section 4).

The job that is k-th from the end of a device's queue delays k jobs by its time there, so the mean completion
time is smallest where the sum of ``k * time`` over all jobs is: a matching of least cost of jobs with pairs
of device and k. A job keeps its device to its end; of a matching only the first job of each device is held
to, the others are matched anew when something has changed.

Left out: the fairness of the paper (only the share ``alpha`` of users with least progress takes part; here
``alpha`` is of waiting jobs, oldest first, as in Gavel's release) and the estimate of times from samples
(they are known).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from experiments.cluster.interface import (
    NOTHING,
    Allocation,
    ClusterPolicy,
    ClusterView,
    Contest,
    Decider,
    Divider,
    Division,
    Gang,
    rules_of,
)
from experiments.cluster.planning.contests import Contests
from experiments.core.knobs import knob
from experiments.workloads.step import Floats

#: Work per second where a job does not run: nobody is matched so who can be otherwise.
NEVER = 1e-10
FACTS: Mapping[str, Any] = {"solver": "Hungarian method (scipy linear_sum_assignment)"}


@dataclass(frozen=True)
class Allox(ClusterPolicy):
    """Matches jobs with places in the queues of devices so that their mean completion time is smallest."""

    name: ClassVar[str] = "allox"
    mechanism: ClassVar[str] = "know how long jobs run"
    gpus_only: ClassVar[bool] = True
    sees: ClassVar[frozenset[str]] = frozenset({"throughput"})
    single_gpu: ClassVar[bool] = True

    rules: str = rules_of("gavel")
    alpha: float = knob(
        1.0, "share of the waiting jobs, oldest first, that take part in a matching", low=0.01, high=1.0
    )

    def divider(self, seed: int) -> Divider:
        return _Matched(self.alpha)

    def begin(self) -> Decider:
        return _Matching(self.alpha)


def firsts(times: Floats, ages: Floats, free: Sequence[int]) -> dict[int, int]:
    """Return who runs first on devices of which ``free`` are of each type, with the type, by least cost.

    ``times`` is what each job takes on each type, ``ages`` how long it has been there. Devices of a type are
    alike and later places cost more, so that a type needs no more places than there are jobs: those nearest
    to the ends of its devices' queues. On one type alone the shortest jobs come first.
    """
    open_types = [place for place, count in enumerate(free) if count]
    jobs = len(times)
    if not jobs or not open_types:
        return {}
    if len(open_types) == 1:
        (only,) = open_types
        return dict.fromkeys(np.argsort(times[:, only], kind="stable")[: free[only]].tolist(), only)
    from scipy.optimize import linear_sum_assignment  # scipy takes a while

    slots = [(slot // free[kind] + 1, kind, slot % free[kind]) for kind in open_types for slot in range(jobs)]
    slots.sort()
    rank, kinds = np.array([slot[0] for slot in slots]), [slot[1] for slot in slots]
    rows, columns = linear_sum_assignment(times[:, kinds] * rank + ages[:, None])
    last = dict[tuple[int, int], tuple[int, int]]()
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        from_end, kind, device = slots[column]
        last[kind, device] = max(last.get((kind, device), (0, 0)), (from_end, row))
    return {row: kind for (kind, _), (_, row) in sorted(last.items())}


def taking_part(waiting: int, free: int, alpha: float) -> int:
    """How many of the waiting jobs take part in a matching with ``free`` devices."""
    return max(math.floor(alpha * waiting), free)


class _Matched(Divider):
    """Matchings as shares of time: all of a device's, to the job's end."""

    shuffles = False

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha
        self.place: dict[int, int] = {}
        self.facts = FACTS

    def divide(self, contest: Contest) -> Division:
        self.place = {job: place for job, place in self.place.items() if job in contest.row}
        free = contest.counts.copy()
        for place in self.place.values():
            free[place] -= 1
        waiting = [row for row, job in enumerate(contest.jobs) if job not in self.place]
        waiting.sort(key=lambda row: -contest.elapsed[row])
        rows = waiting[: taking_part(len(waiting), int(free.sum()), self.alpha)]
        times = contest.left[rows, None] / np.where(contest.runs, contest.speed, NEVER)[rows]
        for row, place in firsts(times, contest.elapsed[rows], free.tolist()).items():
            self.place[contest.jobs[rows[row]]] = place
        shares = np.zeros((len(contest), len(contest.types)))
        for job, place in self.place.items():
            shares[contest.row[job], place] = 1.0
        return {(job,): shares[row] for row, job in enumerate(contest.jobs)}


@dataclass
class _Matching:
    """Matchings in the lab's own engine: whenever a job waits and a device is free."""

    alpha: float
    contests: Contests | None = None
    facts: Mapping[str, Any] = field(default_factory=lambda: FACTS)

    def allocate(self, view: ClusterView) -> Allocation:
        if not view.waiting or view.is_full:
            return NOTHING
        if self.contests is None:
            machines = view.pool.machines
            self.contests = Contests(view.jobs, machines, view.performance, frozenset({"throughput"}))
        pool = view.pool.copy()
        free = [0] * len(self.contests.types)
        for node, count in enumerate(pool.free):
            if pool.machines.sizes[node]:
                free[self.contests.types.index(pool.machines[node].device)] += count
        waiting = sorted(view.waiting, key=lambda job: (view.jobs.submit[job], job))
        jobs = waiting[: taking_part(len(waiting), sum(free), self.alpha)]
        left = np.array([max(view.works[job] - view.done(job), 0.0) for job in jobs])
        speed = np.array([self.contests.speed(job) for job in jobs])
        ages = np.array([view.now - view.jobs.submit[job] for job in jobs])
        found = firsts(left[:, None] / np.where(speed > 0, speed, NEVER), ages, free)
        started = list[Gang]()
        for row, place in found.items():
            demand = view.jobs.demand(jobs[row])._replace(types=(self.contests.types[place],))
            gang = pool.place(jobs[row], demand, "count") if speed[row, place] > 0 else None
            if gang is not None:
                pool.take(gang)
                started.append(gang)
        return Allocation(tuple(started))
