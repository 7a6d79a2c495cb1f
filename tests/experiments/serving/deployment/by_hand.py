"""Deployments by hand: models of known times on devices without a name."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from experiments.core import registry
from experiments.hardware.parts import Link
from experiments.serving.interface.deployment import (
    DeployedModel,
    Deployment,
    DeploymentPlan,
    DeploymentPolicy,
    Dispatcher,
    Placement,
    ServingCluster,
    WholeCost,
    deployment_violations,
)
from experiments.serving.simulator.deployment import simulate_deployment
from experiments.workloads.scenario import BatchProfile, ScenarioRequests

#: 1 GB/s without latency, so that bytes in GB are seconds.
LINK = Link("by hand", 1e9, 0.0, True, "by hand")


def model(
    name: str = "a",
    seconds: float | dict[int, float] = 0.1,
    slo: float = math.inf,
    rate: float = 1.0,
    gigabytes: float = 1.0,
    **more: float | int,
) -> DeployedModel:
    """``seconds`` of one request, or by batch."""
    by_batch = seconds if isinstance(seconds, dict) else {1: seconds}
    profile = BatchProfile(tuple(by_batch), tuple(by_batch.values()))
    size = gigabytes * 1e9
    return DeployedModel(name, WholeCost(profile, size), slo, rate, size, **more)  # type: ignore[arg-type]


def on_devices(*models: DeployedModel, devices: int = 1, gigabytes: float = 100.0) -> Deployment:
    return Deployment(models, ServingCluster(devices, 8, gigabytes * 1e9, LINK))


def ask(*rows: tuple[float, int]) -> ScenarioRequests:
    """Requests from ``(arrival, model)``."""
    ordered = sorted(rows)
    arrival, asked = [row[0] for row in ordered], [row[1] for row in ordered]
    return ScenarioRequests(np.array(arrival, float), np.array(asked, np.int64), np.full(len(rows), -1))


def policy(name: str, **knobs: object) -> DeploymentPolicy:
    made = registry.create("serving", name, knobs)
    assert isinstance(made, DeploymentPolicy)
    return made


def carry_out(
    deployment: Deployment, placement: Placement, dispatcher: Dispatcher, asked: ScenarioRequests
) -> DeploymentPlan:
    """The plan of a run, in which nothing is impossible."""
    plan = simulate_deployment(deployment, placement, dispatcher, asked)
    assert deployment_violations(plan, deployment, asked) == []
    return plan


def serve(deployment: Deployment, name: str, asked: ScenarioRequests, **knobs: object) -> DeploymentPlan:
    chosen = policy(name, **knobs)
    placement = chosen.place(deployment, asked)
    return carry_out(deployment, placement, chosen.dispatch(deployment, placement, asked), asked)


def answered(plan: DeploymentPlan) -> list[float]:
    return [round(answer.answered, 9) for answer in plan.answers]


def met(plan: DeploymentPlan, deployment: Deployment, asked: ScenarioRequests) -> float:
    """Share of requests within their objective."""
    slos: Sequence[float] = [deployment.models[one].slo for one in asked.model.tolist()]
    latency = np.array([answer.answered for answer in plan.answers]) - asked.arrival
    return float(np.mean(latency <= np.array(slos) + 1e-9))
