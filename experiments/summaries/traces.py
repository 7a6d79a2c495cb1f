"""Traces of cluster jobs and of serving requests."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.summaries.arrivals import arrivals_of, plots_of
from experiments.summaries.demand import demand_of
from experiments.summaries.drawing import card
from experiments.summaries.job_figures import plots_of_jobs
from experiments.summaries.job_groups import groups_of, wanted_gpus
from experiments.summaries.summary import summary
from experiments.workloads.jobs import JobTrace
from experiments.workloads.requests import RequestTrace


@summary.register
def _jobs(value: JobTrace) -> dict[str, Any]:
    span = float(value.submit[-1] - value.submit[0]) if len(value) else 0.0
    timed = value.timed()
    work = float((wanted_gpus(timed) * timed.service).sum())
    cards = [
        card("jobs", len(value)),
        card("span of submissions", span, "s"),
        card("GPUs of the largest job", int(value.gpus.max(initial=0))),
        card("mean service time", float(timed.service.mean()) if len(timed) else 0.0, "s"),
        card("work", work / 3600, "GPU hours"),
        card("mean demand", work / span if span else 0.0, "GPUs"),
    ]
    deadlines = int(np.isfinite(value.deadline).sum())
    if deadlines:
        cards.append(card("jobs with a deadline", deadlines))
    groups = groups_of(value)
    return {
        "cards": cards,
        "estimates": [],
        "plots": plots_of_jobs(value, groups),
        "demand": demand_of(value),
        "groups": groups,
        "told": value.told(),
    }


@summary.register
def _requests(value: RequestTrace) -> dict[str, Any]:
    span = float(value.arrival[-1] - value.arrival[0]) if len(value) else 0.0
    cards = [
        card("requests", len(value)),
        card("span", span, "s"),
        card("mean rate", len(value) / span if span else 0.0, "requests/s"),
        card("mean prompt", float(value.prompt.mean()) if len(value) else 0.0, "tokens"),
        card("mean output", float(value.output.mean()) if len(value) else 0.0, "tokens"),
        card("longest request", int((value.prompt + value.output).max(initial=0)), "tokens"),
    ]
    return {
        "cards": cards,
        "estimates": [],
        "plots": plots_of(value),
        "told": {"requests": len(value)},
        "arrivals": arrivals_of(value),
    }
