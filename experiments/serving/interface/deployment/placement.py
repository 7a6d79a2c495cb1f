"""Models on a cluster: what a policy is told of both, and where it puts the models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from experiments.hardware.parts import Link
from experiments.serving.interface.deployment.costs import PassCost


@dataclass(frozen=True)
class DeployedModel:
    """A model that is served.

    ``slo``       seconds within which a request is answered; infinite where there is no objective.
    ``rate``      mean requests a second.
    ``bytes``     of all its weights.
    ``preprocess``, ``postprocess``  seconds of a request on the host, which occupy no device.
    ``parent``    place of the model whose answers ask this one ``share`` times each; -1: it is asked itself.
    """

    name: str
    cost: PassCost
    slo: float
    rate: float
    bytes: float
    preprocess: float = 0.0
    postprocess: float = 0.0
    parent: int = -1
    share: float = 1.0

    def alone(self, pipeline: int = 1, tensor: int = 1) -> float:
        """Return the seconds of a request that waits for nothing."""
        return self.preprocess + sum(self.cost.stage_times(1, pipeline, tensor)) + self.postprocess


@dataclass(frozen=True)
class ServingCluster:
    """Equal devices, some to a node, each with ``memory`` bytes for weights and a link to its host."""

    devices: int
    devices_per_node: int
    memory: float
    host_link: Link


@dataclass(frozen=True)
class Deployment:
    """Models to serve and the devices to serve them with."""

    models: tuple[DeployedModel, ...]
    cluster: ServingCluster


@dataclass(frozen=True)
class Group:
    """Devices that carry out passes together: ``pipeline`` stages of ``tensor`` devices, in their order.

    ``models`` are those whose weights lie on them, each divided into the same stages.
    """

    devices: tuple[int, ...]
    pipeline: int = 1
    tensor: int = 1
    models: tuple[int, ...] = ()

    def stage(self, place: int) -> tuple[int, ...]:
        """Return the devices of a stage."""
        return self.devices[place * self.tensor : (place + 1) * self.tensor]

    def stage_times(self, model: DeployedModel, batch: int = 1) -> tuple[float, ...]:
        """Return the seconds of each stage for a pass of ``batch`` requests."""
        return model.cost.stage_times(batch, self.pipeline, self.tensor)

    def bytes_of(self, model: DeployedModel) -> float:
        """Return the bytes of the model's largest stage on each of its devices."""
        return max(model.cost.stage_bytes(self.pipeline, self.tensor))

    def to_json(self, models: tuple[DeployedModel, ...]) -> dict[str, Any]:
        names = [models[model].name for model in self.models]
        return {
            "devices": list(self.devices),
            "pipeline": self.pipeline,
            "tensor": self.tensor,
            "models": names,
        }


@dataclass(frozen=True)
class Placement:
    """Groups with their models before the first request arrives.

    ``unplaced``  models that no group can hold, each with the reason.
    ``plan``      what else the policy decided, as JSON for the outcome's plan.
    """

    groups: tuple[Group, ...]
    unplaced: Mapping[int, str] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=dict)
