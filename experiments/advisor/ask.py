"""What the advisor is asked: a model with options, one device, and what is to be least."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from experiments.core.errors import BadInput
from experiments.core.spec import Workload
from experiments.hardware import Device, Hardware, resolve
from experiments.sources import model_of

#: What is to be least: the time of a step, its peak memory, or its price.
TIME, MEMORY, COST = GOALS = ("time", "memory", "cost")
ONE_DEVICE = "one device: a name of `hardware`, or a device with overrides (several are not advised on yet)"


@dataclass(frozen=True)
class Ask:
    """A workload to be trained on one device.

    ``hardware`` is a device's sheet or, as in a RunSpec, an object with ``device`` and ``overrides``.
    """

    workload: Workload
    hardware: str | Mapping[str, Any]
    goal: str = TIME

    def __post_init__(self) -> None:
        if self.goal not in GOALS:
            raise BadInput(f"{self.goal!r:.80} is not a goal", "goal", "one of " + ", ".join(GOALS))
        if not isinstance(self.hardware, str) and "device" not in self.hardware:
            raise BadInput(f"{self.hardware!r:.80} is not a device", "hardware", ONE_DEVICE)
        model_of(self.workload)
        if self._hardware.device_count > 1:
            raise BadInput(f"{self._hardware.device_count} devices", "hardware", ONE_DEVICE)

    @cached_property
    def _hardware(self) -> Hardware:
        return resolve(self.hardware)

    @property
    def device(self) -> Device:
        return self._hardware.device

    @property
    def capacity(self) -> int:
        """Bytes of the device's memory."""
        return int(self.device.memory_bytes)

    def with_memory(self, size: int) -> dict[str, Any]:
        """Return the hardware with ``size`` bytes of device memory."""
        given = self.hardware
        plain: dict[str, Any] = {"device": given} if isinstance(given, str) else {**given}
        return {**plain, "overrides": {**plain.get("overrides", {}), "memory_bytes": size}}

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "device": self.device.name, "memory_bytes": self.capacity}
