"""What a cluster policy answers, and the record of a whole run: who had which devices, from when to when."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

#: Devices by node: ``((node, count), ...)``, nodes ascending, counts positive.
Devices = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Gang:
    """``job`` runs on ``devices`` all at once, with ``share`` (0 to 1] of each device's time."""

    job: int
    devices: Devices
    share: float = 1.0

    @cached_property
    def size(self) -> int:
        return sum(count for _, count in self.devices)


@dataclass(frozen=True)
class Allocation:
    """A decision, as changes: a job not named keeps what it has.

    ``preempt`` jobs lose their devices, then ``start`` gangs get theirs (a running job named in ``start`` is
    moved or resized to that gang), ``reject`` jobs never run. ``wake_at`` asks for another decision at that
    time (s) if nothing happens before; it replaces the last one asked for.
    """

    start: tuple[Gang, ...] = ()
    preempt: tuple[int, ...] = ()
    reject: tuple[int, ...] = ()
    wake_at: float | None = None


NOTHING = Allocation()


@dataclass(frozen=True)
class Execution:
    """One uninterrupted run of a job on one gang, from ``start`` to ``end`` (s).

    ``useful`` seconds of it were progress of its work.
    """

    gang: Gang
    start: float
    end: float
    useful: float
    completed: bool


@dataclass(frozen=True)
class ClusterPlan:
    """The allocation log of a run: every execution, and the jobs refused or never ended.

    Executions stand in the order they ended.
    """

    executions: tuple[Execution, ...]
    rejected: tuple[int, ...] = ()
    unfinished: tuple[int, ...] = ()
