"""What the advisor is asked: a model with options, devices, and what is to be least."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from experiments.core.errors import BadInput
from experiments.core.spec import Workload
from experiments.hardware import Device, Hardware, resolve
from experiments.sources import model_of

#: What is to be least: the time of a step, its peak memory, or its price.
TIME, MEMORY, COST = GOALS = ("time", "memory", "cost")
#: Share of a device's memory that a plan leaves free: allocators fragment, and lengths of samples and loads
#: of experts vary from step to step.
MARGIN = 0.1


@dataclass(frozen=True)
class Ask:
    """A workload to be trained on a device or on several.

    ``hardware`` is as in a RunSpec: a sheet of a device or node, a device with ``overrides``, or a cluster.
    ``margin`` is the share of memory that plans for several devices leave free, and on one device those that
    take what there is.
    """

    workload: Workload
    hardware: str | Mapping[str, Any] | Sequence[Any]
    goal: str = TIME
    margin: float = MARGIN

    def __post_init__(self) -> None:
        if self.goal not in GOALS:
            raise BadInput(f"{self.goal!r:.80} is not a goal", "goal", "one of " + ", ".join(GOALS))
        if not 0 <= self.margin < 1:
            raise BadInput(f"{self.margin!r:.80} is no share of memory", "margin", "from 0 to below 1")
        model_of(self.workload)
        _ = self.cluster

    @cached_property
    def cluster(self) -> Hardware:
        return resolve(self.hardware)

    @property
    def has_several_devices(self) -> bool:
        return self.cluster.device_count > 1

    @property
    def device(self) -> Device:
        return self.cluster.device

    @property
    def capacity(self) -> int:
        """Bytes of the memory of one device, the smallest of several."""
        return int(min(node.device.memory_bytes for node in self.cluster.nodes))

    def with_memory(self, size: int) -> dict[str, Any]:
        """Return the hardware with ``size`` bytes of memory on its one device."""
        given = self.hardware
        plain: dict[str, Any] = {**given} if isinstance(given, Mapping) else {"device": given}
        return {**plain, "overrides": {**plain.get("overrides", {}), "memory_bytes": size}}

    def with_nodes(self, count: int) -> Any:
        """Return the hardware with ``count`` of its equal nodes."""
        given = self.hardware
        if isinstance(given, Mapping) and "cluster" in given:
            return {"cluster": {**given["cluster"], "nodes": count}}
        if isinstance(given, Mapping) and "nodes" in given:
            return {**given, "nodes": count}
        return given

    def to_json(self) -> dict[str, Any]:
        facts = {"device": self.device.name, "memory_bytes": self.capacity}
        return {**asdict(self), **facts, "devices": self.cluster.device_count}
