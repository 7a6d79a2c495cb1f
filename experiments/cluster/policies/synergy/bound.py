"""The bound of section 4.1: for each job of a round one choice of processors and memory, as if all servers
were one.

It maximises the sum of speeds over those on equal parts; no job is slower than on an equal part. The paper's
second program spreads jobs over servers in parts of GPUs: over equal servers an even spread always does, so
that it changes no value.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.cluster.planning.performance.sensitivity import ResourceSpeed
from experiments.cluster.policies.synergy.profiling import Vector
from experiments.core.integer_programs import minimize

SOLVER = "HiGHS"


def bound(
    jobs: Sequence[int],
    gpus: Sequence[int],
    model: ResourceSpeed,
    whole: Vector,
    equal: Vector,
    *,
    integer: bool,
) -> float:
    """The largest sum of relative speeds with ``whole`` processors and bytes for all of ``jobs`` together.

    Without ``integer`` a job may have parts of several choices, which is never less.
    """
    from scipy.optimize import Bounds, LinearConstraint

    owner, choices, speeds = list[int](), list[Vector](), list[float]()
    for place, job in enumerate(jobs):
        least = model.speed(job, equal.cpus, equal.memory)
        for choice in _choices(job, model, equal):
            speed = model.speed(job, choice.cpus, choice.memory)
            if speed >= least:
                owner.append(place)
                choices.append(choice)
                speeds.append(speed / least)
    count = np.array([gpus[jobs[place]] for place in owner], float)
    one = np.equal.outer(np.arange(len(jobs)), owner).astype(float)
    limits = [LinearConstraint(one, 1, 1)]
    for name in ("cpus", "memory"):
        most = getattr(whole, name)
        if np.isfinite(most):
            amounts = np.array([getattr(choice, name) for choice in choices]) * count / most
            limits.append(LinearConstraint(amounts, -np.inf, 1 + 1e-9))
    found = minimize(
        -np.array(speeds),
        integrality=np.full(len(speeds), int(integer)),
        bounds=Bounds(0, 1),
        constraints=limits,
    )
    if found.x is None:
        raise ArithmeticError(f"{SOLVER}: {found.message}")
    return float(-found.fun)


def _choices(job: int, model: ResourceSpeed, equal: Vector) -> list[Vector]:
    """What was measured, and an equal part."""
    grid = model.grid(job)
    part = equal.least(Vector(grid.cpus[-1], grid.memory[-1]))
    return [part, *(Vector(cpus, memory) for cpus in grid.cpus for memory in grid.memory)]
