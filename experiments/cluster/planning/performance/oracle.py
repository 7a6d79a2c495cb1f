"""``oracle``: measured speeds by device type, on one node or several, alone or in pairs.

The type of a device is matched by prefix, so that the table's ``v100`` is any ``v100-16g``. A gang of several
types goes at the speed of its slowest; a gang on one node is compact, one on several is spread, for which the
table's compact speed stands in where it has no other. Two gangs share speeds only where they hold the same
devices; what the table lacks of pairs nobody can measure, so that schedulers are told before they try one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.cluster.interface import Gang, Machines, Rate
from experiments.core.errors import BadInput
from experiments.workloads.jobs import JobTrace
from experiments.workloads.profiles.device_speeds import DeviceSpeeds, SpeedsOfType, Variant

#: Where a speed is looked for, the first that has it.
Tables = Sequence[SpeedsOfType]


class DeviceTypeSpeed:
    """Work in steps; speeds as a table has them."""

    name = "oracle"
    unit = "steps"

    def __init__(self, trace: JobTrace, machines: Machines, speeds: DeviceSpeeds) -> None:
        if "iterations" not in trace.traits:
            raise BadInput("tells no steps, and speeds are steps per second", trace.name, "a trace of gavel")
        _refuse_parts(trace, speeds)
        self.speeds, self.machines = speeds, machines
        self._job, self._model = trace.job, trace.model
        self._gpus: list[int] = trace.gpus.tolist()
        self._steps: list[float] = trace.traits["iterations"].tolist()
        self._kind = {device: speeds.kind_of(device) for device in machines.types}
        self._unmeasured: set[tuple[str, frozenset[Variant]]] = set()

    def work(self, job: int) -> float:
        return self._steps[job]

    def largest(self, job: int) -> int:
        return self._gpus[job]

    def rate(self, job: int, gang: Gang, neighbors: Sequence[Gang] = (), done: float = 0.0) -> Rate:
        others = [(other.job, other.size) for other in neighbors if other.devices == gang.devices]
        if len(others) != len(neighbors) or len(others) > 1:
            raise self._lacks(job, "beside more than one job, or one on some of its devices")
        compact = self._is_compact(gang)
        return Rate(min(self._speed(job, gang.size, device, compact, others) for device in self._types(gang)))

    def may_share(self, gang: Gang, others: Sequence[Gang]) -> bool:
        """Whether the table has the speeds of both on all devices of ``gang``, which others have parts of."""
        if not others:
            return True
        if len(others) > 1 or others[0].devices != gang.devices:
            return False
        one, other = (self._variant(each.job, gang.size) for each in (gang, others[0]))
        compact = self._is_compact(gang)
        found = [self._together(gang.job, one, other, device, compact) for device in self._types(gang)]
        return all(pair is not None and min(pair) > 0 for pair in found)

    def alone(self, job: int, device: str) -> float:
        """Return steps per second on as many devices of a type as the job wants, on one node."""
        return self._alone(job, self._gpus[job], device, compact=True)

    def pair(self, job: int, other: int, device: str) -> tuple[float, float] | None:
        """Return steps per second of two jobs on the same devices of one node.

        ``None`` where that was not measured, or where they do not run on several nodes.
        """
        one, two = (self._variant(each, self._gpus[job]) for each in (job, other))
        compact, spread = (self._together(job, one, two, device, compact=each) for each in (True, False))
        return compact if spread is not None and min(spread) > 0 else None

    def _types(self, gang: Gang) -> Sequence[str]:
        return sorted({self.machines.type_of(device) for device in gang.devices})

    def _is_compact(self, gang: Gang) -> bool:
        return len({self.machines.node_of[device] for device in gang.devices}) == 1

    def _speed(
        self, job: int, size: int, device: str, compact: bool, others: Sequence[tuple[int, int]]
    ) -> float:
        if not others:
            speed = self._alone(job, size, device, compact)
        else:
            pair = self._together(job, self._variant(job, size), self._variant(*others[0]), device, compact)
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

    def _alone(self, job: int, size: int, device: str, compact: bool) -> float:
        variant = self._variant(job, size)
        for table in self._tables(job, device, compact):
            if variant in table.alone:
                return table.alone[variant]
        raise self._lacks(job, f"on {size} devices {device}")

    def _together(
        self, job: int, one: Variant, other: Variant, device: str, compact: bool
    ) -> tuple[float, float] | None:
        """The speeds of two on the same devices, under the name of either."""
        for table in self._tables(job, device, compact):
            if (one, other) in table.together:
                return table.together[one, other]
            if (other, one) in table.together:
                second, first = table.together[other, one]
                return first, second
        self._unmeasured.add((device, frozenset((one, other))))
        return None

    def _variant(self, job: int, size: int) -> Variant:
        return self._model[job], size

    def _tables(self, job: int, device: str, compact: bool) -> Tables:
        kind = self._kind[device]
        if kind is None:
            raise self._lacks(job, f"on devices {device or 'without a type'}")
        table = self.speeds.compact[kind]
        return (table,) if compact or kind not in self.speeds.spread else (self.speeds.spread[kind], table)

    def _lacks(self, job: int, where: str) -> BadInput:
        known = ", ".join(self.speeds.compact)
        what = f"{self.speeds.name} has no speed of {self._model[job]!r} {where}"
        return BadInput(what, f"job {self._job[job]}", f"an entry; device types: {known}")

    def describe(self) -> Mapping[str, Any]:
        used = {device: kind for device, kind in self._kind.items() if kind is not None}
        assumed = [
            "a gang on several nodes has the table's unconsolidated speed, where it has one",
            "a gang of several types goes at the speed of its slowest",
        ]
        if self._unmeasured:
            count = len(self._unmeasured)
            assumed.append(f"pairs of models that the table lacks, which share no devices: {count}")
        return {"table": self.speeds.name, "types": used, "assumed": assumed}


def _refuse_parts(trace: JobTrace, speeds: DeviceSpeeds) -> None:
    """``BadInput`` for jobs that ask for parts of devices: speeds are those of whole ones."""
    parts = int((np.asarray(trace.traits.get("gpu_share", 1.0)) < 1).sum())
    if parts:
        what = f"{parts} of {len(trace)} jobs ask for parts of devices (gpu_share)"
        expected = f"whole devices: {speeds.name} has speeds of jobs alone on theirs, and of pairs"
        raise BadInput(what, trace.name, expected)
