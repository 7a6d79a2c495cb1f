"""A schedule of blocks carried out.

Every unit works off its list, in order, and waits for what a block reads.

Nothing of the planner's times is used: only which blocks run where, in which order, and how long a block is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.compilation.interface.blocks import (
    BlockSchedule,
    KernelGrid,
    KernelGroup,
    VirtualDevice,
    counts_of,
)

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class OperatorRun:
    """An operator's blocks on one launch: busy from ``starts`` to ``finishes`` on each of ``units``."""

    operator: str
    kernel: KernelGrid
    units: npt.NDArray[np.int64]
    starts: Floats
    finishes: Floats


@dataclass(frozen=True)
class Played:
    """What happened; ``launched`` is when each group's kernel began."""

    machine: VirtualDevice
    pieces: tuple[OperatorRun, ...]
    launched: tuple[float, ...]
    seconds: float

    @property
    def utilization(self) -> float:
        """Busy unit-seconds over what the units had."""
        busy = sum(piece.kernel.area for piece in self.pieces)
        return busy / (self.machine.units * self.seconds) if self.seconds else 0.0


def play(schedule: BlockSchedule) -> Played:
    """Return the schedule from its first launch to its last block."""
    now = 0.0
    pieces: list[OperatorRun] = []
    launched = []
    reads = {operator.name: operator.reads for operator in schedule.operators}
    for group in schedule.groups:
        now += schedule.machine.launch
        launched.append(now)
        made = _group(group, schedule.machine, reads, now)
        pieces += made
        now = max(float(piece.finishes.max()) for piece in made)
    return Played(schedule.machine, tuple(pieces), tuple(launched), now)


def _group(
    group: KernelGroup, machine: VirtualDevice, reads: dict[str, tuple[str, ...]], now: float
) -> list[OperatorRun]:
    ready = np.full(machine.units, now)
    finished: dict[str, float] = {}
    found = []
    for placement in group.placements:
        waits = [finished[name] + machine.sync for name in reads[placement.operator] if name in finished]
        units = np.array(placement.units)
        starts = np.maximum(ready[units], max(waits, default=now))
        finishes = starts + counts_of(placement.kernel.blocks, len(units)) * placement.kernel.seconds
        ready[units] = finishes
        finished[placement.operator] = float(finishes.max())
        found.append(OperatorRun(placement.operator, placement.kernel, units, starts, finishes))
    return found


def busy_units(pieces: Sequence[OperatorRun]) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Times at which the number of busy units changes, and the number from then on."""
    starts = np.concatenate([piece.starts for piece in pieces])
    ends = np.concatenate([piece.finishes for piece in pieces])
    times, place = np.unique(np.concatenate([starts, ends]), return_inverse=True)
    change = np.zeros(len(times), np.int64)
    np.add.at(change, place, np.concatenate([np.ones(len(starts), np.int64), -np.ones(len(ends), np.int64)]))
    return times, np.cumsum(change)


def lanes(pieces: Sequence[OperatorRun], most: int) -> list[dict[str, Any]]:
    """Who runs what when, drawn: units that do the same are one lane.

    Only the first pieces, ``most`` events of them.
    """
    events: dict[int, list[tuple[float, float, str]]] = {}
    drawn = 0
    for piece in pieces:
        drawn += len(piece.units)
        if drawn > most:
            break
        for unit, start, finish in zip(piece.units, piece.starts, piece.finishes, strict=True):
            events.setdefault(int(unit), []).append((float(start), float(finish), piece.operator))
    same: dict[tuple[tuple[float, float, str], ...], list[int]] = {}
    for unit in sorted(events):
        same.setdefault(tuple(events[unit]), []).append(unit)
    return [{"devices": units, "events": [list(event) for event in row]} for row, units in same.items()]
