"""Gradient tasks for jobs written by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from experiments.cluster.interface import Machines
from experiments.workloads.jobs import JobTrace
from experiments.workloads.profiles.gradient_tasks import GradientTasks, TaskTimes


def profiles_for(trace: JobTrace, machines: Machines) -> JobTrace:
    """The trace with jobs of two models in turn, a round for each four seconds that they had."""
    seconds = dict.fromkeys(machines.types, 2.0)
    models = {"whole": TaskTimes(2, 0.0, seconds), "odd": TaskTimes(3, 0.5, seconds)}
    return replace(
        trace,
        model=tuple("odd" if int(job) % 2 else "whole" for job in trace.job),
        traits={**trace.traits, "iterations": np.ceil(trace.service / 4)},
        profiles=GradientTasks("made up", models),
    )
