"""Finish-time fairness of jobs."""

from __future__ import annotations

import numpy as np

from experiments.cluster.simulator.steps import step_function
from experiments.workloads.jobs import JobTrace
from experiments.workloads.step import Floats


def finish_time_unfairness(ended: Floats, left: Floats, trace: JobTrace, devices: int) -> Floats:
    """Finish-time fairness of each job, rho = JCT / isolated JCT (Themis, NSDI'20, section 3.1).

    NaN for jobs that never complete or have nothing to do. Isolated: alone on a 1/n share of the devices, n
    the mean number of jobs in the system while this one was (each until it ``left``, refused ones too), and
    progress in proportion to the devices when the share is smaller than the gang.
    """
    unfairness = np.full(len(trace), np.nan)
    rows = np.flatnonzero(~np.isnan(ended) & (trace.service > 0) & (ended > trace.submit))
    if not len(rows):
        return unfairness
    times, levels = step_function(trace.submit, left, np.ones(len(trace)))
    integral = np.concatenate(([0.0], np.cumsum(levels[:-1] * np.diff(times))))
    jct = (ended - trace.submit)[rows]
    jobs_present = np.interp(ended[rows], times, integral) - np.interp(trace.submit[rows], times, integral)
    share = devices / np.maximum(1.0, jobs_present / jct)
    isolated = trace.service[rows] * np.maximum(1.0, trace.gpus[rows] / share)
    unfairness[rows] = jct / isolated
    return unfairness
