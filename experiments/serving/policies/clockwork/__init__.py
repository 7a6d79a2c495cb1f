"""Clockwork: which models are on which device at a time, and which request runs when.

``controller`` is the system itself (OSDI'20, section 5): one controller orders every pass and every copy of
weights, since both take as long as they always did. ``windows`` is Clockwork++, the idealized exchange of
placements that AlpaServe compares with (section 6.1): the trace is cut into windows, and for each models are
replicated on single devices by the requests of that very window, exchanged at its start at no cost. ``lag``
plans by an earlier window instead, and ``swap`` copies what a device lacks over its host's link, while
requests for it wait. Requests that a device was given before an exchange end on it first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.core.policy import SECONDS
from experiments.serving.interface.deployment import (
    Deployment,
    DeploymentPolicy,
    Dispatcher,
    Group,
    Placement,
)
from experiments.serving.policies.clockwork.controller import Controller
from experiments.serving.policies.clockwork.windows import Windows, plan_windows
from experiments.workloads.scenario import ScenarioRequests


@dataclass(frozen=True)
class Clockwork(DeploymentPolicy):
    """Weights come and go on single devices: ordered one by one, or exchanged window by window."""

    name: ClassVar[str] = "clockwork"
    effort: ClassVar[str] = SECONDS

    control: str = knob("windows", "who says what is where", choices=("windows", "controller"))
    window: float = knob(60.0, "windows: length of one", low=1e-3, high=1e8, unit="s")
    lag: int = knob(0, "windows before, by whose requests one is planned", low=0, high=1000)
    swap: bool = knob(False, "windows: exchanged weights are copied from the host")

    @property
    def sees_trace(self) -> bool:
        return self.control == "windows"

    def place(self, deployment: Deployment, sample: ScenarioRequests) -> Placement:
        """Where models are at first: those of the first window; under the controller all are on the host."""
        if self.control == "controller":
            return Placement(empty_devices(deployment), list_too_large(deployment))
        first, *_ = self._windows(deployment, sample)
        return Placement(first, list_too_large(deployment), {"window": self.window})

    def dispatch(self, deployment: Deployment, placement: Placement, sample: ScenarioRequests) -> Dispatcher:
        if self.control == "controller":
            return Controller(placement)
        windows = self._windows(deployment, sample)
        return Windows(placement, windows, self.window, is_free=not self.swap)

    def _windows(self, deployment: Deployment, sample: ScenarioRequests) -> list[tuple[Group, ...]]:
        empty = empty_devices(deployment)
        return plan_windows(deployment, sample, empty, self.window, self.lag)


def empty_devices(deployment: Deployment) -> tuple[Group, ...]:
    """Return each device as a group that holds nothing."""
    return tuple(Group((device,)) for device in range(deployment.cluster.devices))


def list_too_large(deployment: Deployment) -> dict[int, str]:
    """Return the models that no single device can hold, each with the reason."""
    memory = deployment.cluster.memory
    return {
        place: f"its {model.bytes:g} bytes are larger than a device's {memory:g}"
        for place, model in enumerate(deployment.models)
        if model.bytes > memory
    }
