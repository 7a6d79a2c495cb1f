"""Job traces written by hand."""

from __future__ import annotations

import numpy as np

from experiments.cluster.interface import ClusterPlan, Machines, violations
from experiments.cluster.planning.performance import FixedSpeed
from experiments.workloads.jobs import JobTrace


def jobs(*rows: tuple[float, int, float]) -> JobTrace:
    """Jobs named 0, 1, ... from ``(submit, gpus, service)`` rows."""
    submit, gpus, service = zip(*rows, strict=True)
    count = len(rows)
    return JobTrace.from_columns(
        name="by hand",
        job=tuple(map(str, range(count))),
        submit=np.array(submit, np.float64),
        gpus=np.array(gpus, np.int64),
        service=np.array(service, np.float64),
        deadline=np.full(count, np.nan),
        model=("",) * count,
        tenant=("",) * count,
    )


def faults(plan: ClusterPlan, trace: JobTrace, machines: Machines, *, rigid: bool = True) -> list[str]:
    """What is impossible about a plan of jobs that run as long as the trace says."""
    return violations(plan, trace, machines, FixedSpeed(trace), rigid=rigid)
