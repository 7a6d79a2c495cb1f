"""Throughput tables for jobs written by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from experiments.cluster.interface import Machines
from experiments.workloads.jobs import JobTrace
from experiments.workloads.profiles.throughput_table import ThroughputTables

#: Steps per second by GPUs; the second falls beyond four of them.
ROWS = {
    "steady": {64: ((1, 1.0), (2, 1.5), (4, 2.0), (8, 2.5))},
    "falling": {64: ((1, 0.5), (2, 0.9), (4, 1.2), (8, 0.7))},
}


def profiles_for(trace: JobTrace, machines: Machines) -> JobTrace:
    """The trace with jobs of two models in turn, as many steps as they had seconds."""
    count = len(trace)
    traits = {"batch": np.full(count, 64.0), "iterations": trace.service.copy()}
    models = tuple("falling" if int(job) % 2 else "steady" for job in trace.job)
    return replace(
        trace,
        model=models,
        traits={**trace.traits, **traits},
        profiles=ThroughputTables("made up", ROWS),
    )
