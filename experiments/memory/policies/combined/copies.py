"""What is away from the device and when: which activations leave, and when the ways back begin.

The activations that have longest until their next use leave first, while the device lacks bytes; each copy
out begins when the tensor has been written for the last time. All ways back share one link: each begins so
early that all arrive in time one after another, though no earlier than the device has bytes for it until it
is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from experiments.memory.interface import MemoryMachine
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats

#: Ways back that are asked for before their time, so that the link never waits for compute to ask.
AHEAD = 4


@dataclass(frozen=True)
class Absence:
    """Ops ``[gone, back)`` run without ``tensor`` on the device; op ``back`` needs it."""

    tensor: int
    bytes: int
    gone: int
    back: int


def lightened(load: Ints, absences: Sequence[Absence]) -> Ints:
    """Return ``load`` (bytes by op) without what is absent."""
    lighter = load.copy()
    for absence in absences:
        lighter[absence.gone : absence.back] -= absence.bytes
    return lighter


def longest_idle(candidates: Iterable[Absence], load: Ints, limit: int, start: Floats) -> list[Absence]:
    """Return the absences that keep ``load`` within ``limit`` bytes, the longest chosen first."""
    rest, chosen = load.copy(), []
    for absence in sorted(candidates, key=lambda a: (start[a.gone] - start[a.back], a.tensor)):
        if rest[absence.gone : absence.back].max(initial=0) > limit:
            rest[absence.gone : absence.back] -= absence.bytes
            chosen.append(absence)
    return chosen


def begin_returns(
    absences: Sequence[Absence], free: Ints, start: Floats, machine: MemoryMachine
) -> list[Absence]:
    """Return the absences in the order of their needs, each ended where its way back begins.

    ``free`` is what is free by op with all of them away; ``start`` when each op begins.
    """
    order = sorted(absences, key=lambda absence: (absence.back, absence.tensor))
    latest = latest_starts(order, start, machine)
    free, found = free.copy(), []
    for place, absence in enumerate(order):
        wanted = latest[max(0, place - AHEAD)]
        at = max(absence.gone + 1, int(np.searchsorted(start, wanted, side="right")) - 1)
        at = min(at, absence.back)
        full = np.nonzero(free[at : absence.back] < absence.bytes)[0]
        at += int(full[-1]) + 1 if len(full) else 0
        free[at : absence.back] -= absence.bytes
        found.append(replace(absence, back=at))
    return found


def latest_starts(order: Sequence[Absence], start: Floats, machine: MemoryMachine) -> list[float]:
    """Return when each way back must begin so that all arrive in time one after another."""
    latest: list[float] = []
    end = float("inf")
    for absence in reversed(order):
        end = min(end, float(start[absence.back])) - machine.back_time(absence.bytes)
        latest.append(end)
    return latest[::-1]
