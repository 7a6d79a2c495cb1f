"""Deadlines and speeds by number of GPUs, drawn from a seed: for schedulers that resize jobs.

A job's deadline is 0.5 to 1.5 times its duration after it comes, uniform, as in ElasticFlow's generator
(ASPLOS'23): half of the jobs cannot meet theirs on the GPUs that they ask for. A model runs on as many GPUs
as its speed is told for; steps on more of them are taken to be worth as much.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from experiments.workloads.jobs import JobTrace
from experiments.workloads.profiles.throughput_table import Levels, ThroughputTables

#: The least and the most of its duration after which a job must have ended.
SLACK = (0.5, 1.5)


def make_elastic(trace: JobTrace, seed: int, name: str, speeds: Mapping[tuple[str, int], float]) -> JobTrace:
    """Return ``trace`` with deadlines, batches, and the table ``name`` of steps per second by model."""
    slack = np.random.default_rng([seed, 4]).uniform(*SLACK, len(trace))
    rows = {model: {_batch(model): _levels(model, speeds)} for model in sorted(set(trace.model))}
    return replace(
        trace,
        deadline=trace.submit + slack * trace.service,
        traits={**trace.traits, "batch": np.array([_batch(model) for model in trace.model], np.float64)},
        profiles=ThroughputTables(name, rows),
    )


def _batch(model: str) -> int:
    """Return the samples that a model's name tells, as in ``LM (batch size 5)``; 0 where it tells none."""
    told = model.rpartition("batch size ")[2].rstrip(")")
    return int(told) if told.isdigit() else 0


def _levels(model: str, speeds: Mapping[tuple[str, int], float]) -> Levels:
    return tuple(sorted((gpus, speed) for (of, gpus), speed in speeds.items() if of == model and speed))
