"""``oracle``: measured speeds by device type, on one node or several, alone or in pairs.

The type of a device is matched by prefix, so that the table's ``v100`` is any ``v100-16g``. A gang of several
types goes at the speed of its slowest; a gang on one node is compact, one on several is spread, for which the
table's compact speed stands in where it has no other. Two gangs share speeds only where they hold the same
devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.cluster.interface import Gang, Machines, Rate
from experiments.core.errors import BadInput
from experiments.workloads.jobs import JobTrace
from experiments.workloads.profiles.device_speeds import DeviceSpeeds, SpeedsOfType, Variant


class DeviceTypeSpeed:
    """Work in steps; speeds as a table has them."""

    name = "oracle"
    unit = "steps"

    def __init__(self, trace: JobTrace, machines: Machines, speeds: DeviceSpeeds) -> None:
        if "iterations" not in trace.traits:
            raise BadInput("tells no steps, and speeds are steps per second", trace.name, "a trace of gavel")
        self.speeds, self.machines = speeds, machines
        self._job, self._model = trace.job, trace.model
        self._gpus: list[int] = trace.gpus.tolist()
        self._steps: list[float] = trace.traits["iterations"].tolist()
        self._kind = {device: speeds.kind_of(device) for device in machines.types}

    def work(self, job: int) -> float:
        return self._steps[job]

    def largest(self, job: int) -> int:
        return self._gpus[job]

    def rate(self, job: int, gang: Gang, neighbors: Sequence[Gang] = (), done: float = 0.0) -> Rate:
        devices = sorted({self.machines.type_of(device) for device in gang.devices})
        compact = len({self.machines.node_of[device] for device in gang.devices}) == 1
        others = [(other.job, other.size) for other in neighbors if other.devices == gang.devices]
        if len(others) != len(neighbors) or len(others) > 1:
            raise self._lacks(job, "beside more than one job, or one on some of its devices")
        each = [self._speed(job, gang.size, device, compact, others) for device in devices]
        return Rate(min(each))

    def alone(self, job: int, device: str) -> float:
        """Return steps per second on as many devices of a type as the job wants, on one node."""
        return self._alone(job, self._gpus[job], device, self._table(job, device, True))

    def pair(self, job: int, other: int, device: str) -> tuple[float, float] | None:
        """Return steps per second of two jobs on the same devices; ``None`` where that was not measured."""
        table = self._table(job, device, True)
        return table.together.get(
            (self._variant(job, self._gpus[job]), self._variant(other, self._gpus[other]))
        )

    def _speed(
        self, job: int, size: int, device: str, compact: bool, others: Sequence[tuple[int, int]]
    ) -> float:
        table = self._table(job, device, compact)
        if not others:
            speed = self._alone(job, size, device, table)
        else:
            pair = table.together.get((self._variant(job, size), self._variant(*others[0])))
            if pair is None:
                raise self._lacks(job, f"on {size} devices {device} beside {self._model[others[0][0]]!r}")
            speed = pair[0]
        if speed <= 0:
            raise BadInput(
                f"{self._model[job]!r} does not run on {size} devices {device}, says {self.speeds.name}",
                f"job {self._job[job]}",
                "a policy that looks at device types, or a cluster without them",
            )
        return speed

    def _alone(self, job: int, size: int, device: str, table: SpeedsOfType) -> float:
        speed = table.alone.get(self._variant(job, size))
        if speed is None:
            raise self._lacks(job, f"on {size} devices {device}")
        return speed

    def _variant(self, job: int, size: int) -> Variant:
        return self._model[job], size

    def _table(self, job: int, device: str, compact: bool) -> SpeedsOfType:
        kind = self._kind[device]
        if kind is None:
            raise self._lacks(job, f"on devices {device or 'without a type'}")
        table = self.speeds.compact[kind]
        return table if compact else self.speeds.spread.get(kind, table)

    def _lacks(self, job: int, where: str) -> BadInput:
        known = ", ".join(self.speeds.compact)
        what = f"{self.speeds.name} has no speed of {self._model[job]!r} {where}"
        return BadInput(what, f"job {self._job[job]}", f"an entry; device types: {known}")

    def describe(self) -> Mapping[str, Any]:
        used = {device: kind for device, kind in self._kind.items() if kind is not None}
        return {
            "table": self.speeds.name,
            "types": used,
            "assumed": [
                "a gang on several nodes has the table's unconsolidated speed, where it has one",
                "a gang of several types goes at the speed of its slowest",
            ],
        }
