"""Nexus: sessions fill devices with batches, what is left of them shares devices that take turns.

``packing`` has the squishy bin packing, ``turns`` how a device works and what it drops, ``query_split`` how
the objective of a query is divided among its models. A packing that needs more devices than there are keeps
the first of them: whole devices of sessions, then the fullest shared ones; the rest is rejected and said.

Open in the paper, chosen here: residual loads by occupancy, as the paper has it (``order``: the code sorts by
rate); a device that is free waits for no fuller batch. Rates are those that the scenario tells, or with
``epoch`` those that were seen in the last one, by which sessions are packed anew and moved (``epochs``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.serving.interface.deployment import (
    Deployment,
    DeploymentPolicy,
    Dispatcher,
    Group,
    Placement,
)
from experiments.serving.policies.nexus.epochs import Epochs
from experiments.serving.policies.nexus.packing import Packing, Session, pack, saturated_batch
from experiments.serving.policies.nexus.query_split import split_query
from experiments.serving.policies.nexus.turns import Turns
from experiments.workloads.scenario import ScenarioRequests


@dataclass(frozen=True)
class Nexus(DeploymentPolicy):
    """Sessions take turns on devices, with the largest batches that are within their objectives."""

    name: ClassVar[str] = "nexus"

    epoch: float = knob(
        0.0,
        "time after which rates are estimated and sessions packed anew; 0: rates are those told",
        low=0.0,
        high=86400.0,
        unit="s",
    )
    order: str = knob("occupancy", "residual loads are packed by", choices=("occupancy", "rate"))

    def place(self, deployment: Deployment, sample: ScenarioRequests) -> Placement:
        packing = self.pack(deployment)
        used = packing.gpus[: deployment.cluster.devices]
        groups = tuple(
            Group((device,), models=tuple(turn.session.place for turn in gpu.turns))
            for device, gpu in enumerate(used)
        )
        held = {model for group in groups for model in group.models}
        short = {
            turn.session.place: f"{len(packing.gpus)} devices are needed, {len(used)} are there"
            for gpu in packing.gpus[len(used) :]
            for turn in gpu.turns
            if turn.session.place not in held
        }
        plan = {"gpus": [gpu.to_json() for gpu in used], "gpus_needed": len(packing.gpus)}
        return Placement(groups, {**packing.infeasible, **short}, plan)

    def dispatch(self, deployment: Deployment, placement: Placement, sample: ScenarioRequests) -> Dispatcher:
        packing, devices = self.pack(deployment), deployment.cluster.devices
        if not self.epoch:
            return Turns(packing, devices)
        return Epochs(packing, devices, self.epoch, lambda rates: self.pack(with_rates(deployment, rates)))

    def pack(self, deployment: Deployment) -> Packing:
        """Return the devices for all sessions, however many that takes."""
        return pack(_sessions(deployment), deployment.cluster.memory, self.order)


def with_rates(deployment: Deployment, rates: Sequence[float]) -> Deployment:
    """Return the deployment with other rates of its models."""
    models = (replace(model, rate=rate) for model, rate in zip(deployment.models, rates, strict=True))
    return replace(deployment, models=tuple(models))


def _sessions(deployment: Deployment) -> list[Session]:
    """Every model with its own objective, or with its part of its query's."""
    models, memory = deployment.models, deployment.cluster.memory
    children: list[list[int]] = [[] for _ in models]
    for place, model in enumerate(models):
        if model.parent >= 0:
            children[model.parent].append(place)

    def devices(place: int, seconds: float) -> float:
        session = _session(deployment, place, seconds)
        batch = saturated_batch(session, memory)
        return session.rate * session.latency(batch) / batch if batch else math.inf

    budgets: dict[int, float] = {}
    for place, model in enumerate(models):
        if model.parent < 0 and children[place] and math.isfinite(model.slo):
            budgets |= split_query(place, children, model.slo, devices)
    return [_session(deployment, place, budgets.get(place, model.slo)) for place, model in enumerate(models)]


def _session(deployment: Deployment, place: int, seconds: float) -> Session:
    model = deployment.models[place]
    return Session(place, model, model.rate, seconds - model.preprocess - model.postprocess)
