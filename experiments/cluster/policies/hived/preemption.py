"""Preemption that takes time: who leaves until when, and who has reserved the devices meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from experiments.cluster.interface import Devices, Gang


class Leaver(NamedTuple):
    """A running job that is asked to leave by ``due`` (s).

    ``tenant`` and ``parts`` are whose cells it had and what in each; none for an opportunistic job.
    """

    due: float
    tenant: str = ""
    parts: tuple[Devices, ...] = ()


@dataclass
class Preemptions:
    """``reserving`` are jobs that have cells and wait for their devices; ``leaving`` are their victims."""

    reserving: dict[int, Devices] = field(default_factory=dict)
    leaving: dict[int, Leaver] = field(default_factory=dict)

    @property
    def next_due(self) -> float | None:
        """When the next victim has to be gone."""
        return min((one.due for one in self.leaving.values()), default=None)

    def dues(self, now: float) -> list[int]:
        """Victims whose time is over."""
        return [job for job, one in self.leaving.items() if one.due <= now]

    def claims(self) -> set[int]:
        """The devices that are reserved."""
        return {device for devices in self.reserving.values() for device in devices}

    def ready(self, running: Mapping[int, Gang]) -> Iterator[tuple[int, Devices]]:
        """Jobs whose devices nobody has any more."""
        used = {device for gang in running.values() for device in gang.devices}
        return ((job, devices) for job, devices in list(self.reserving.items()) if used.isdisjoint(devices))

    def list_spared(self, running: Mapping[int, Gang]) -> list[int]:
        """Victims whose devices nobody has reserved, the last first: their preemptors were canceled."""
        claims = self.claims()
        return [job for job in reversed(self.leaving) if claims.isdisjoint(running[job].devices)]
