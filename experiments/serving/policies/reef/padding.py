"""Dynamic kernel padding: blocks of best-effort kernels on the units that a real-time kernel leaves (REEF,
section 5).
"""

from __future__ import annotations

from typing import NamedTuple

from experiments.serving.interface.sharing import Operator


class Padding(NamedTuple):
    """``real_time_units`` for the real-time kernel; ``blocks`` of the other on the rest."""

    real_time_units: int
    blocks: int


def pad(real_time: Operator, best_effort: Operator, left: int, units: int, merged: int) -> Padding | None:
    """Return how a kernel is padded; ``None`` where no block ends within the real-time kernel.

    ``left`` are blocks of the best-effort kernel to do, ``merged`` the blocks of the merged kernel that a
    unit holds. The largest occupancy whose wave is no longer than the real-time kernel is taken.
    """
    taken = real_time.demand(units)
    waves = best_effort.waves[:merged]
    fitting = [held for held, seconds in enumerate(waves, 1) if seconds <= real_time.seconds]
    if not fitting or taken == units:
        return None
    occupancy = fitting[-1]
    rounds = int(real_time.seconds / waves[occupancy - 1] * (1 + 1e-12))
    return Padding(taken, min(left, (units - taken) * rounds * occupancy))


def restart_point(before: int, launched: int, cleared: int, queue: int) -> int:
    """Return the kernel at which a preempted task goes on: the first that may not have finished.

    ``launched`` kernels were put in the host queue, ``cleared`` found there; up to ``queue`` more were
    in the device queue. All from there are computed again, which idempotent kernels allow.
    """
    return max(before, launched - cleared - queue)
