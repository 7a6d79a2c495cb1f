"""Which jobs get which leases: earliest deadline first where that meets all, else an integer program.

The program has, for each job, whether it is accepted and how many leases it has in each interval. An accepted
job has all it needs by its last lease; an interval gives out no more than GPUs x leases. It accepts the most
jobs, those accepted before above all, and among such plans the one that runs them soonest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from experiments.core.integer_programs import minimize
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats

if TYPE_CHECKING:
    from scipy.optimize import LinearConstraint

#: So many of the next leases are planned one by one, where the jobs are few enough.
NEAR = 40
MOST_VARIABLES = 4000
#: Branch and bound ends after so many nodes, whatever the clock says: the same answer each time.
NODES = 2000
#: Sums of seconds are not exact.
SLACK = 1e-9


@dataclass(frozen=True)
class LeasedJob:
    """A job that ``needs`` so many leases, all among the first ``until``; ``sure``: it was promised them."""

    job: int
    gpus: int
    needs: int
    until: int
    sure: bool = False

    @classmethod
    def of(
        cls, job: int, gpus: int, left: float, slack: float, length: float, *, sure: bool = False
    ) -> LeasedJob:
        """A job with ``left`` s to run and ``slack`` s to its deadline; its last lease may end early."""
        needs = max(1, math.ceil(left / length - SLACK))
        last = left - (needs - 1) * length
        return cls(job, gpus, needs, math.floor((slack - last) / length + SLACK) + 1, sure)


@dataclass(frozen=True)
class Leases:
    """The jobs accepted, and of those the ones that have the lease that begins now."""

    accepted: tuple[int, ...]
    now: tuple[int, ...]


def lease_out(jobs: Sequence[LeasedJob], gpus: int) -> Leases:
    """Accept as many jobs as can have their leases in time."""
    if not jobs:
        return Leases((), ())
    ordered = sorted(jobs, key=lambda job: (job.until, job.job))
    by_deadline = earliest_first(ordered, gpus)
    if len(by_deadline.accepted) == len(jobs):
        return by_deadline
    return solve(ordered, gpus) or by_deadline


def earliest_first(jobs: Sequence[LeasedJob], gpus: int) -> Leases:
    """Each job in turn takes the first leases that it needs; one that finds too few is not accepted."""
    free = np.full(max(job.until for job in jobs), gpus)
    accepted, now = [], []
    for job in sorted(jobs, key=lambda job: not job.sure):
        places = np.flatnonzero(free[: job.until] >= job.gpus)[: job.needs]
        if len(places) < job.needs:
            continue
        free[places] -= job.gpus
        accepted.append(job.job)
        if places[0] == 0:
            now.append(job.job)
    return Leases(tuple(accepted), tuple(now))


def solve(jobs: Sequence[LeasedJob], gpus: int) -> Leases | None:
    """The integer program by HiGHS; ``None`` where it finds nothing within its nodes."""
    from scipy.optimize import Bounds

    begins = _intervals(jobs)
    lengths = np.diff(begins)
    count, width = len(jobs), len(lengths)
    leases = np.arange(count * width).reshape(count, width) + count
    upper = np.concatenate((np.ones(count), *(_most(job, begins) for job in jobs)))
    found = minimize(
        _costs(jobs, begins),
        integrality=np.ones(count + count * width, np.int64),
        bounds=Bounds(0, upper),
        constraints=[_enough(jobs, leases), _room(jobs, leases, gpus * lengths)],
        options={"node_limit": NODES},
    )
    if found.x is None:
        return None
    values = np.round(found.x)
    accepted = [job.job for place, job in enumerate(jobs) if values[place]]
    now = [job.job for place, job in enumerate(jobs) if values[place] and values[leases[place, 0]]]
    return Leases(tuple(accepted), tuple(now))


def _intervals(jobs: Sequence[LeasedJob]) -> Ints:
    """Where intervals of leases begin and the last ends: each near lease, then up to each job's last."""
    last = max(job.until for job in jobs)
    near = min(NEAR, last, max(1, MOST_VARIABLES // len(jobs)))
    return np.unique([*range(near + 1), *(job.until for job in jobs if job.until > near)])


def _most(job: LeasedJob, begins: Ints) -> Floats:
    """How many leases a job can have in each interval: none after its last one."""
    return np.where(begins[:-1] < job.until, np.diff(begins), 0).astype(np.float64)


def _costs(jobs: Sequence[LeasedJob], begins: Ints) -> Floats:
    """Minus the jobs accepted, those promised above all others, and a little for each lease that is late."""
    count = len(jobs)
    worth = np.array([count + 1.0 if job.sure else 1.0 for job in jobs])
    late = np.tile(begins[:-1] / max(1, begins[-1]), (count, 1))
    needs = sum(job.needs for job in jobs)
    return np.concatenate((-worth, late.ravel() / (2 * needs)))


def _enough(jobs: Sequence[LeasedJob], leases: Ints) -> LinearConstraint:
    """An accepted job has the leases that it needs."""
    from scipy.optimize import LinearConstraint
    from scipy.sparse import coo_array

    count, width = leases.shape
    rows = np.concatenate((np.arange(count), np.repeat(np.arange(count), width)))
    columns = np.concatenate((np.arange(count), leases.ravel()))
    values = np.concatenate((-np.array([float(job.needs) for job in jobs]), np.ones(count * width)))
    matrix = coo_array((values, (rows, columns)), shape=(count, count + count * width))
    return LinearConstraint(matrix.tocsr(), 0.0, 0.0)


def _room(jobs: Sequence[LeasedJob], leases: Ints, room: Ints) -> LinearConstraint:
    """An interval gives out no more GPUs than there are."""
    from scipy.optimize import LinearConstraint
    from scipy.sparse import coo_array

    count, width = leases.shape
    rows = np.tile(np.arange(width), count)
    values = np.repeat([float(job.gpus) for job in jobs], width)
    matrix = coo_array((values, (rows, leases.ravel())), shape=(width, count + count * width))
    return LinearConstraint(matrix.tocsr(), -np.inf, room)
