"""The questions asked of a policy that deploys several models: where they go, and who answers a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from experiments.core.knobs import knob
from experiments.core.policy import Policy
from experiments.serving.interface.deployment.actions import Dispatcher
from experiments.serving.interface.deployment.placement import Deployment, Placement
from experiments.workloads.scenario import ScenarioRequests


@dataclass(frozen=True)
class DeploymentPolicy(Policy):
    """A policy that places models on devices and dispatches their requests."""

    family: ClassVar[str] = "serving"
    mechanism: ClassVar[str] = "place models"
    workloads: ClassVar[Mapping[str, tuple[str, ...]]] = {"simulated": ("requests",)}

    wanted_attainment: float | None = knob(
        None,
        "search the highest load at which this share of requests is within its objective (max_rate)",
        low=0.01,
        high=1.0,
    )

    @classmethod
    def lacks(cls, told: Mapping[str, Any]) -> str:
        return "" if "models" in told else "a scenario of several models (serving-scenario)"

    @property
    def sees_trace(self) -> bool:
        """Whether the sample that it places by is the trace itself, which no system can know."""
        return False

    def place(self, deployment: Deployment, sample: ScenarioRequests) -> Placement:
        """Return where models go. ``sample`` are requests of the same load as those to come."""
        raise NotImplementedError(type(self).__name__)

    def dispatch(self, deployment: Deployment, placement: Placement, sample: ScenarioRequests) -> Dispatcher:
        """Return what dispatches requests during one run: a fresh object, which may remember."""
        raise NotImplementedError(type(self).__name__)
