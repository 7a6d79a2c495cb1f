"""Traces of cluster jobs and of serving requests."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.summaries.drawing import card, histogram, plot, points
from experiments.summaries.summary import summary
from experiments.workloads.jobs import JobTrace
from experiments.workloads.requests import RequestTrace


@summary.register
def _jobs(value: JobTrace) -> dict[str, Any]:
    span = float(value.submit[-1] - value.submit[0]) if len(value) else 0.0
    work = float((value.gpus * value.service).sum())
    cards = [
        card("jobs", len(value)),
        card("span of submissions", span, "s"),
        card("GPUs wanted at most", int(value.gpus.max(initial=0))),
        card("mean service time", float(value.service.mean()) if len(value) else 0.0, "s"),
        card("work", work / 3600, "GPU hours"),
        card("mean demand", work / span if span else 0.0, "GPUs"),
    ]
    deadlines = int(np.isfinite(value.deadline).sum())
    if deadlines:
        cards.append(card("jobs with a deadline", deadlines))
    plots = [
        histogram("Service times", "service (s)", value.service, "jobs", log=True),
        histogram("Submissions over time", "submitted (s)", value.submit, "jobs"),
        plot(
            "GPUs wanted",
            "bar",
            "GPUs",
            "jobs",
            [points("jobs", *np.unique(value.gpus, return_counts=True))],
        ),
    ]
    return {"cards": cards, "estimates": [], "plots": plots}


@summary.register
def _requests(value: RequestTrace) -> dict[str, Any]:
    span = float(value.arrival[-1] - value.arrival[0]) if len(value) else 0.0
    cards = [
        card("requests", len(value)),
        card("span", span, "s"),
        card("mean rate", len(value) / span if span else 0.0, "1/s"),
        card("mean prompt", float(value.prompt.mean()) if len(value) else 0.0, "tokens"),
        card("mean output", float(value.output.mean()) if len(value) else 0.0, "tokens"),
        card("longest request", int((value.prompt + value.output).max(initial=0)), "tokens"),
    ]
    plots = [
        histogram("Prompt lengths", "prompt (tokens)", value.prompt.astype(float), "requests", log=True),
        histogram("Output lengths", "output (tokens)", value.output.astype(float), "requests", log=True),
        histogram("Arrivals over time", "arrival (s)", value.arrival, "requests"),
    ]
    return {"cards": cards, "estimates": [], "plots": plots}
