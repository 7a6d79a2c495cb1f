"""What users ask of a cluster besides GPUs, drawn from a seed: deadline, tenant, class and utilization.

For schedulers that a trace of sizes and durations alone tells nothing. Each law, with its source:

- *class*: every second job is guaranteed, the others opportunistic; *tenant*: one of four, equally likely.
  No source: the plainest that there is.
- *deadline*, of guaranteed jobs alone: 1.2, 2 or 10 times their duration after they come, with chances of 33,
  34 and 33 %, as Gavel's generator draws objectives.
- *utilization*: of a model, between 0 and 1, uniform; that of Philly's jobs had a mean of 52 % (ATC'19).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from experiments.workloads.jobs import GUARANTEED, OPPORTUNISTIC, JobTrace
from experiments.workloads.step import Floats

TENANTS = ("a", "b", "c", "d")
#: Times of a job's duration after which it must have ended, and how many of the jobs have each.
SLACKS, SLACK_CHANCES = (1.2, 2.0, 10.0), (0.33, 0.34, 0.33)
#: No model uses less of a device.
LEAST_UTILIZATION = 1e-3


def annotate(trace: JobTrace, seed: int, models: Sequence[str]) -> JobTrace:
    """Return ``trace`` with deadlines, tenants, classes and utilizations instead of speeds and steps.

    ``models`` are all that its jobs may train. Each column has a generator of its own, so that none depends
    on another.
    """
    classes, tenants, slacks = (np.random.default_rng([seed, part]) for part in range(3))
    guaranteed = classes.random(len(trace)) < 0.5
    slack = slacks.choice(SLACKS, len(trace), p=SLACK_CHANCES) * trace.service
    return replace(
        trace,
        deadline=np.where(guaranteed, trace.submit + slack, np.nan),
        tenant=tuple(TENANTS[number] for number in tenants.integers(len(TENANTS), size=len(trace))),
        traits={
            "class": tuple(GUARANTEED if sure else OPPORTUNISTIC for sure in guaranteed.tolist()),
            "utilization": _utilization(trace, seed, models),
        },
        profiles=None,
    )


def _utilization(trace: JobTrace, seed: int, models: Sequence[str]) -> Floats:
    """Return what each job uses of a device: the same for all jobs of a model."""
    drawn = np.random.default_rng([seed, 3]).uniform(LEAST_UTILIZATION, 1.0, len(models))
    of_model = dict(zip(models, drawn.tolist(), strict=True))
    return np.array([of_model[model] for model in trace.model])
