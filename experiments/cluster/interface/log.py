"""The record of a whole run in columns: who had which devices, from when to when, and what came of it."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from experiments.cluster.interface.allocation import Gang
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats

#: How an execution ended.
COMPLETED, PREEMPTED, MOVED, LOST, CUT = "completed", "preempted", "moved", "lost", "cut"
ENDINGS: Mapping[str, str] = MappingProxyType(
    {
        COMPLETED: "the job's work was done",
        PREEMPTED: "the job was taken from its devices",
        MOVED: "the job went on at once as another gang",
        LOST: "a node failed",
        CUT: "the run ended before it",
    }
)
_NAMES = tuple(ENDINGS)


class Execution(NamedTuple):
    """One uninterrupted run of a job on one gang, from ``start`` to ``end`` (s).

    ``work``        what it added to the job's work, in the unit of the performance model; less than nothing
                    where older progress was lost with it.
    ``restarting``  seconds before it made progress, in the mean of its devices.
    ``lost``        device-seconds of progress that were lost at its end, of it and of older executions.
    ``busy``        share of the devices' time given to it, apart from restarting, in which they computed.
    """

    gang: Gang
    start: float
    end: float
    work: float
    restarting: float = 0.0
    lost: float = 0.0
    busy: float = 1.0
    ended: str = COMPLETED

    @property
    def completed(self) -> bool:
        return self.ended == COMPLETED


class ExecutionLog(Sequence[Execution]):
    """Executions in the order they ended, stored in columns: a million of them are a few dozen megabytes.

    Gangs that differ in nothing but their job share one entry of ``shapes``.
    """

    def __init__(self, executions: Sequence[Execution] = ()) -> None:
        self.shapes: list[Gang] = []
        self._shape_of: dict[tuple[Any, ...], int] = {}
        self._job, self._shape, self._ended = array("q"), array("q"), array("b")
        self._numbers = array("d")
        for execution in executions:
            self.append(execution)

    def append(self, execution: Execution) -> None:
        gang, start, end, work, restarting, lost, busy, ended = execution
        self._job.append(gang.job)
        key = (gang.devices, gang.share, gang.memory, gang.hosts, gang.batch, gang.readying)
        shape = self._shape_of.get(key)
        if shape is None:
            shape = self._shape_of[key] = len(self.shapes)
            self.shapes.append(gang)
        self._shape.append(shape)
        self._numbers.extend((start, end, work, restarting, lost, busy))
        self._ended.append(_NAMES.index(ended))

    def __len__(self) -> int:
        return len(self._job)

    @overload
    def __getitem__(self, place: int) -> Execution: ...
    @overload
    def __getitem__(self, place: slice) -> list[Execution]: ...
    def __getitem__(self, place: int | slice) -> Execution | list[Execution]:
        if isinstance(place, slice):
            return [self._at(row) for row in range(*place.indices(len(self)))]
        return self._at(range(len(self))[place])

    def _at(self, row: int) -> Execution:
        like, job = self.shapes[self._shape[row]], self._job[row]
        gang = Gang(job, like.devices, like.share, like.memory, like.hosts, like.batch, like.readying)
        start, end, work, restarting, lost, busy = self._numbers[6 * row : 6 * row + 6]
        return Execution(gang, start, end, work, restarting, lost, busy, _NAMES[self._ended[row]])

    def __iter__(self) -> Iterator[Execution]:
        return map(self._at, range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExecutionLog) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ExecutionLog({list(self[:3])}{', ...' if len(self) > 3 else ''})"

    @property
    def job(self) -> Ints:
        return np.array(self._job, np.int64)

    @property
    def shape(self) -> Ints:
        """Of each execution, the place of its gang's like in ``shapes``."""
        return np.array(self._shape, np.int64)

    @property
    def endings(self) -> npt.NDArray[np.str_]:
        """How each execution ended, a word of ``ENDINGS``."""
        return np.array(_NAMES)[np.array(self._ended, np.int64)]

    @property
    def numbers(self) -> Mapping[str, Floats]:
        """Columns ``start end work restarting lost busy`` by name."""
        names = ("start", "end", "work", "restarting", "lost", "busy")
        table = np.array(self._numbers, np.float64).reshape(-1, len(names))
        return dict(zip(names, table.T, strict=True))

    @property
    def size(self) -> Ints:
        """Devices of each execution."""
        return self._of_shapes([gang.size for gang in self.shapes]).astype(np.int64)

    @property
    def share(self) -> Floats:
        """Share of its devices' computing that each execution had."""
        return self._of_shapes([gang.share for gang in self.shapes])

    def _of_shapes(self, values: Sequence[float]) -> Floats:
        column: Floats = np.array(values, np.float64)[self.shape] if len(self) else np.empty(0)
        return column


@dataclass(frozen=True)
class ClusterPlan:
    """The allocation log of a run: every execution, and the jobs refused or never ended.

    ``reasons``  why each refused job was refused.
    ``refused_at``  when it was (s); where that is not told, when it last had devices or was submitted.
    ``down``     times at which a node could not be used: ``(node, from, until)``.
    ``facts``    what else the engine tells of the run, for provenance.
    ``figures``  metrics that the engine counts in a way of its own.
    ``quirks``   what only a published simulator allows, in words, by the check that it does not stand up to
                 (``interface.check``).
    """

    executions: ExecutionLog
    rejected: tuple[int, ...] = ()
    unfinished: tuple[int, ...] = ()
    reasons: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))
    down: tuple[tuple[int, float, float], ...] = ()
    facts: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    figures: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    quirks: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    refused_at: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
