"""What a cluster policy answers: gangs of devices, and what changes among them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

#: Numbers of devices (``Machines``), ascending.
Devices = tuple[int, ...]


class OnHost(NamedTuple):
    """Processors and bytes of host memory that a gang takes on one node."""

    node: int
    cpus: float
    memory: float


@dataclass(frozen=True, slots=True)
class Gang:
    """``job`` runs on ``devices`` all at once.

    ``share``   (0 to 1] of each device's computing.
    ``memory``  (0 to 1] of each device's memory; a gang with both at 1 has its devices alone.
    ``hosts``   what it takes of the nodes beside devices, nodes ascending.
    ``batch``   samples of a step over all devices; 0: as the job was submitted.
    ``readying``  those of its devices that are made ready for it and compute nothing yet.
    """

    job: int
    devices: Devices
    share: float = 1.0
    memory: float = 1.0
    hosts: tuple[OnHost, ...] = ()
    batch: int = 0
    readying: Devices = ()

    @property
    def size(self) -> int:
        return len(self.devices)

    @property
    def is_alone(self) -> bool:
        """Whether nobody else may have a part of its devices."""
        return self.share == 1.0 == self.memory


@dataclass(frozen=True)
class Allocation:
    """A decision, as changes: a job not named keeps what it has.

    - ``preempt``: these jobs lose their devices, before all else.
    - ``suspend``: these lose them too and stay in the memory of their hosts: starting on the same nodes again
      costs ``suspend_cost`` alone.
    - ``start``: these gangs get theirs; a running job named here is moved or resized to that gang.
    - ``reject``: these jobs never run.
    - ``wake_at``: asks for another decision at that time (s) if nothing happens before; it replaces the last
      one asked for.
    """

    start: tuple[Gang, ...] = ()
    preempt: tuple[int, ...] = ()
    suspend: tuple[int, ...] = ()
    reject: tuple[tuple[int, str], ...] = ()
    wake_at: float | None = None


NOTHING = Allocation()
