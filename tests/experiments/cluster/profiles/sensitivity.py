"""Speeds by processors and memory for jobs written by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from experiments.cluster.interface import Machines
from experiments.workloads.jobs import JobTrace
from experiments.workloads.profiles.resource_speeds import ResourceSpeeds, SpeedGrid

GB = 1e9
#: One wants processors and memory, one is as fast on one of them.
GRIDS = {
    "hungry": SpeedGrid((1.0, 3.0, 6.0), (10 * GB, 40 * GB), np.array([[0.2, 0.4], [0.5, 1.0], [0.5, 1.5]])),
    "modest": SpeedGrid((1.0,), (5 * GB,), np.array([[1.0]])),
}


def profiles_for(trace: JobTrace, machines: Machines) -> JobTrace:
    """The trace with jobs of two models in turn, as many steps as they had seconds."""
    return replace(
        trace,
        model=tuple("modest" if int(job) % 2 else "hungry" for job in trace.job),
        traits={**trace.traits, "iterations": trace.service.copy()},
        profiles=ResourceSpeeds("made up", GRIDS),
    )
