"""The figures and curves of a deployment."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.core.spec import Series
from experiments.serving.interface.deployment import Deployment, DeploymentPlan
from experiments.workloads.ragged import Ints
from experiments.workloads.scenario import ScenarioRequests
from experiments.workloads.step import Floats

STRETCHES = 200
#: Seconds by which an answer may be over its objective: sums of the same terms in another order.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Queries:
    """What arrived, each with all that its answers asked: ``latency`` NaN where any of it has no answer."""

    arrival: Floats
    model: Ints
    latency: Floats
    met: Any

    @classmethod
    def of(cls, plan: DeploymentPlan, deployment: Deployment, asked: ScenarioRequests) -> Queries:
        """The last answer counts; children stand behind their parents, so they are joined from the end."""
        answered = np.array([answer.answered for answer in plan.answers])
        parent = asked.parent
        for request in np.flatnonzero(parent >= 0)[::-1]:
            above = parent[request]
            answered[above] = np.maximum(answered[above], answered[request])
        own = np.flatnonzero(parent < 0)
        slo = np.array([model.slo for model in deployment.models])[asked.model[own]]
        latency = answered[own] - asked.arrival[own]
        return cls(asked.arrival[own], asked.model[own], latency, latency <= slo * (1 + ROUNDING) + ROUNDING)


def deployment_figures(
    plan: DeploymentPlan, deployment: Deployment, asked: ScenarioRequests, duration: float
) -> dict[str, float]:
    """Return the metrics of ``plan``.

    Attainment is over all queries that arrived: rejected and unfinished ones miss. Goodput is by the
    scenario's duration, throughput by the time until the last answer. Utilization is over all devices of the
    cluster.
    """
    queries = Queries.of(plan, deployment, asked)
    rejected = sum(bool(answer.rejected) for answer in plan.answers)
    unfinished = sum(not a.rejected and math.isnan(a.answered) for a in plan.answers)
    loads = [stay.ready - stay.begin for stay in plan.residences if stay.copied]
    found = {
        "requests": float(len(asked)),
        "rejected_requests": float(rejected),
        "unfinished_requests": float(unfinished),
        "iterations": float(len(plan.passes)),
        "model_loads": float(len(loads)),
        "utilization": _busy(plan) / (max(plan.end, duration) * deployment.cluster.devices),
    }
    if loads:
        found["switch_time_mean"] = sum(loads) / len(loads)
    if len(queries.arrival):
        met = int(queries.met.sum())
        found |= {"slo_attainment": met / len(queries.arrival), "goodput": met / duration}
    latency = queries.latency[~np.isnan(queries.latency)]
    if len(latency):
        middle, tail = np.percentile(latency, (50, 99)).tolist()
        found |= {"latency_mean": float(latency.mean()), "latency_p50": middle, "latency_p99": tail}
        found["throughput"] = len(latency) / plan.end if plan.end else 0.0
    return found


def _busy(plan: DeploymentPlan) -> float:
    """Device-seconds of passes."""
    return math.fsum(
        (leave - enter) * one.group.tensor
        for one in plan.passes
        for enter, leave in zip(one.enter, one.leave, strict=True)
    )


def deployment_curves(
    plan: DeploymentPlan, deployment: Deployment, asked: ScenarioRequests, duration: float
) -> Mapping[str, Series]:
    """Return attainment over time and by model, requests waiting, and the distribution of latencies."""
    queries = Queries.of(plan, deployment, asked)
    if not len(queries.arrival):
        return {}
    edges = np.linspace(0, duration, min(STRETCHES, max(2, len(queries.arrival) // 20)) + 1)
    met = queries.met.astype(float)
    counts, sums = (np.histogram(queries.arrival, edges, weights=w)[0] for w in (np.ones(len(met)), met))
    kept = counts > 0
    by_model = attainment_by_model(queries, len(deployment.models))
    known = ~np.isnan(by_model)
    latency = np.sort(queries.latency[~np.isnan(queries.latency)])
    shares = np.linspace(0, 1, min(len(latency), STRETCHES))
    points = np.quantile(latency, shares).tolist() if len(latency) else []
    return {
        "slo_attainment": Series("fraction", edges[:-1][kept].tolist(), (sums[kept] / counts[kept]).tolist()),
        "slo_attainment_by_model": Series(
            "fraction", np.flatnonzero(known).tolist(), by_model[known].tolist(), "model"
        ),
        "queue_length": _waiting(plan, edges),
        "latency_distribution": Series("fraction", points, shares.tolist()),
    }


def attainment_by_model(queries: Queries, models: int) -> Floats:
    """Return the share of each model's queries within its objective; NaN for models that nobody asked."""
    counts = np.bincount(queries.model, minlength=models)
    met = np.bincount(queries.model, queries.met, minlength=models)
    with np.errstate(invalid="ignore"):
        shares: Floats = met / counts
    return shares


def _waiting(plan: DeploymentPlan, edges: Floats) -> Series:
    """Requests that arrived and neither entered a pass nor were rejected when they did."""
    arrived = np.sort([a.ready for a in plan.answers if not (a.rejected or math.isnan(a.ready))])
    entered = np.sort([one.enter[0] for one in plan.passes for _ in one.requests])
    waiting = np.searchsorted(arrived, edges, side="right") - np.searchsorted(entered, edges, side="right")
    return Series("requests", edges.tolist(), np.maximum(waiting, 0).astype(float).tolist())
