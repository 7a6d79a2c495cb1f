"""Linear programs over shares of time: what Gavel's objectives and least attained service ask for.

Such programs have many optima; an interior point ends amid them, a simplex vertex at a corner, which moves
completion times by a few percent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from experiments.cluster.interface.division import Contest, Division, Sharers
from experiments.cluster.planning.interior_point import minimize
from experiments.workloads.step import Floats

#: What provenance tells of the solver.
SOLVER = "interior point on the homogeneous self-dual embedding, without crossover"


def solve(objective: Floats, upper: Any, limits: Floats, free: int = 0) -> Floats | None:
    """Return ``x`` of the smallest ``objective @ x`` with ``upper @ x <= limits``; ``None`` without one.

    All but the last ``free`` of ``x`` are at least 0.
    """
    size = len(objective)
    bounds = -sparse.identity(size).tocsr()[: size - free]
    return minimize(
        objective, sparse.vstack([upper, bounds]).tocsr(), np.concatenate((limits, np.zeros(size - free)))
    )


class TimeProgram:
    """The shares that a contest allows.

    Of devices of each type no more are given than there are, of each job's time no more than all.

    ``speed`` replaces what jobs do per second on each type, for objectives that do not look at it.
    """

    def __init__(self, contest: Contest, speed: Floats | None = None) -> None:
        self.contest = contest
        self.types = len(contest.types)
        jobs, types = len(contest), self.types
        self.sharers: list[Sharers] = [(job,) for job in contest.jobs] + list(contest.pairs)
        size = len(self.sharers) * types
        members = [[contest.row[job] for job in sharers] for sharers in self.sharers]
        gpus = np.array([contest.gpus[rows[0]] for rows in members], np.float64)
        entries = self._entries(members, contest.speed if speed is None else speed)
        rows, columns, values = (np.array(part) for part in zip(*entries, strict=True))
        self.rates = sparse.csr_matrix((values, (rows, columns)), (jobs, size))
        time = sparse.csr_matrix((np.ones(len(rows)), (rows, columns)), (jobs, size))
        place = np.tile(np.arange(types), len(self.sharers))
        devices = sparse.csr_matrix((np.repeat(gpus, types), (place, np.arange(size))), (types, size))
        self.upper = sparse.vstack([devices, time]).tocsr()
        self.limits = np.concatenate((contest.counts.astype(np.float64), np.ones(jobs)))
        self.size = size

    def _entries(self, members: Sequence[Sequence[int]], speed: Floats) -> list[tuple[int, int, float]]:
        """Job's row, variable and speed of every job in every place."""
        entries, pairs = list[tuple[int, int, float]](), list(self.contest.pairs.values())
        for number, rows in enumerate(members):
            for type_ in range(self.types):
                column = number * self.types + type_
                if len(rows) == 1:
                    entries.append((rows[0], column, float(speed[rows[0], type_])))
                    continue
                pair = pairs[number - len(self.contest)]
                entries += [(row, column, float(pair[place, type_])) for place, row in enumerate(rows)]
        return entries

    def highest_level(self, need: Floats, least: Floats | None = None) -> tuple[float, Floats] | None:
        """Return the highest ``level`` with all ``rates >= level * need + least``, and the shares."""
        least = np.zeros(len(need)) if least is None else least
        unit = np.where(need > 0, need, 1.0)
        rates = sparse.diags_array(1 / unit) @ self.rates
        above = sparse.hstack([-rates, sparse.csr_matrix((need / unit)[:, None])])
        base = sparse.hstack([self.upper, sparse.csr_matrix((self.upper.shape[0], 1))])
        objective = np.zeros(self.size + 1)
        objective[-1] = -1.0
        found = solve(
            objective, sparse.vstack([base, above]).tocsr(), np.concatenate((self.limits, -least / unit)), 1
        )
        return None if found is None else (float(found[-1]), found[:-1])

    def most(self, worth: Floats, least: Floats | None = None) -> Floats | None:
        """Return the shares of the largest ``worth @ shares``, rates no lower than ``least``."""
        if least is None:
            return solve(-worth, self.upper, self.limits)
        upper = sparse.vstack([self.upper, -self.rates]).tocsr()
        return solve(-worth, upper, np.concatenate((self.limits, -least)))

    def any_of(self, least: Floats) -> Floats | None:
        """Return some shares with rates no lower than ``least``."""
        return self.most(np.zeros(self.size), least)

    def division(self, shares: Floats) -> Division:
        """The shares by who has them."""
        table = np.clip(shares, 0.0, 1.0).reshape(-1, self.types)
        return {sharers: table[row] for row, sharers in enumerate(self.sharers)}


def max_min(contest: Contest, speed: Floats | None = None) -> Division:
    """Shares with the largest smallest normalized speed, per GPU and weight (Gavel, section 4.1).

    A speed is normalized by that of an equal split of all devices. ``speed``: as ``TimeProgram`` has it.
    """
    program = TimeProgram(contest, speed)
    found = program.highest_level(fair_need(contest, contest.speed if speed is None else speed))
    assert found is not None, "no time for anybody is a solution"
    return program.division(found[1])


def fair_need(contest: Contest, speed: Floats) -> Floats:
    """Work per second of each job at the level 1."""
    return np.asarray(contest.weight * (speed @ contest.equal_shares) / contest.gpus)


def solve_sum(program: TimeProgram, unit: Floats, level: Floats, most: Floats) -> Floats:
    """Return by how much each level can rise, at most ``most`` each, where the sum of rises is largest.

    All stay at ``level`` or above; a level is a rate over ``unit``.
    """
    jobs = len(level)
    rates = sparse.diags_array(1 / unit) @ program.rates
    above = sparse.hstack([-rates, sparse.identity(jobs)])
    limited = sparse.hstack([sparse.csr_matrix((jobs, program.size)), sparse.identity(jobs)])
    base = sparse.hstack([program.upper, sparse.csr_matrix((program.upper.shape[0], jobs))])
    upper = sparse.vstack([base, above, limited]).tocsr()
    objective = np.concatenate((np.zeros(program.size), -np.ones(jobs)))
    found = solve(objective, upper, np.concatenate((program.limits, -level, most)))
    return np.zeros(jobs) if found is None else np.asarray(found[program.size :])
