"""Step functions of time: how much there was of something, from when to when."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from experiments.workloads.step import Floats

Bools = npt.NDArray[np.bool_]


def step_function(start: Floats, end: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """The sum of ``weight`` over intervals, as a step function: level ``y[i]`` from ``x[i]`` on.

    What ends at NaN never ends.
    """
    closed = ~np.isnan(end)
    return cumulate(np.concatenate((start, end[closed])), np.concatenate((weight, -weight[closed])))


def cumulate(times: Floats, change: Floats) -> tuple[Floats, Floats]:
    """The step function that changes by ``change`` at ``times``."""
    moments, where = np.unique(times, return_inverse=True)
    return moments, np.cumsum(np.bincount(where, weights=change))


def means(times: Floats, levels: Floats, edges: Floats) -> Floats:
    """Means of a step function between ``edges``; before its first and after its last time it is 0."""
    integral = np.concatenate(([0.0], np.cumsum(levels[:-1] * np.diff(times))))
    found: Floats = np.diff(np.interp(edges, times, integral)) / np.diff(edges)
    return found
