"""The question asked of a policy that divides a model between a device and a cloud."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from experiments.core.policy import Policy
from experiments.serving.interface.splitting.cost import Split
from experiments.workloads.split_task import LinkState, SplitTask


class DevicePlan(NamedTuple):
    """Seconds of each operator on the device, and how it runs there."""

    seconds: tuple[float, ...]
    chosen: Mapping[str, Any]


@dataclass(frozen=True)
class SplittingPolicy(Policy):
    """A policy that says which operators run in the cloud, anew when the link changes."""

    family: ClassVar[str] = "serving"
    mechanism: ClassVar[str] = "divide a model"
    workloads: ClassVar[Mapping[str, tuple[str, ...]]] = {"simulated": ("split",)}

    def on_device(self, task: SplitTask) -> DevicePlan:
        """Return how operators run on the device."""
        raise NotImplementedError(type(self).__name__)

    def split(self, task: SplitTask, device: DevicePlan, link: LinkState) -> Split:
        """Return the operators of the cloud on a link."""
        raise NotImplementedError(type(self).__name__)

    def replans(self, planned: LinkState, now: LinkState) -> bool:
        """Whether a link differs enough from the one that was planned for."""
        raise NotImplementedError(type(self).__name__)
