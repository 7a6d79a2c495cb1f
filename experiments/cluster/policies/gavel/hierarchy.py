"""Water filling: all levels rise together until somebody's cannot, then those of the others (section 4.3)."""

from __future__ import annotations

import numpy as np

from experiments.cluster.interface import Contest
from experiments.cluster.interface.division import Bools
from experiments.cluster.planning.time_programs import TimeProgram, solve_sum
from experiments.core.errors import Infeasible
from experiments.workloads.step import Floats

#: A level that can rise by no more than this part of itself is there to stay.
STUCK = 1e-4


def water_filling(program: TimeProgram, contest: Contest, speed: Floats, *, in_order: bool) -> Floats:
    """Return shares at which no job's level can rise without a lower one's falling.

    A level is the normalized speed per GPU. A tenant's weight is divided among its jobs that can still rise:
    equally, or all to the first of them.
    """
    unit = speed @ contest.equal_shares / contest.gpus
    level, frozen = np.zeros(len(contest)), np.zeros(len(contest), np.bool_)
    shares = np.zeros(program.size)
    while not frozen.all():
        weights = np.where(frozen, 0.0, _weights(contest, frozen, in_order=in_order))
        found = program.highest_level(weights * unit, level * unit)
        if found is None:
            break
        rise, shares = found
        level = level + max(rise, 0.0) * weights
        stuck = _stuck(program, unit, level, weights > 0)
        if not stuck.any():
            stuck = weights > 0
        frozen |= stuck
    if not shares.any():
        raise Infeasible("finds no division of time", f"policy gavel at t={contest.now:g}")
    return shares


def _weights(contest: Contest, frozen: Bools, *, in_order: bool) -> Floats:
    """Each job's part of its tenant's weight, the largest of its jobs'."""
    tenants = contest.tenants or ("",) * len(contest)
    weights = np.zeros(len(contest))
    for tenant in dict.fromkeys(tenants):
        rows = [row for row, name in enumerate(tenants) if name == tenant and not frozen[row]]
        if not rows:
            continue
        if in_order:
            weights[rows[0]] = contest.weight[rows[0]]
        else:
            weights[rows] = contest.weight[rows] / len(rows)
    return weights


def _stuck(program: TimeProgram, unit: Floats, level: Floats, rising: Bools) -> Bools:
    """Which of the rising levels can rise no further while none falls."""
    most = STUCK * np.maximum(level, STUCK)
    more = solve_sum(program, unit, level * (1 - STUCK / 100), np.where(rising, most, 0.0))
    return np.asarray(rising & (more < most / 2))
