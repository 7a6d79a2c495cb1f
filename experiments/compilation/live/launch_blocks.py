"""Constructed tiles as blocks that Triton can launch.

Powers of two, of at least 16 where a product runs on them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from experiments.compilation.interface.tiles import PlannedKernel

#: Two operands of 128 x 32 in float32, two loads in flight: 64 KiB, less than every GPU with a sheet has.
SMALLEST, LARGEST, DEEPEST = 16, 128, 32
WARP, MOST_WARPS = 32, 8


@dataclass(frozen=True)
class LaunchBlocks:
    """Rows, columns and depth of a block of a product, and the warps that compute it."""

    rows: int
    columns: int
    depth: int
    warps: int

    def arguments(self) -> tuple[int, int, int, int]:
        return (self.rows, self.columns, self.depth, self.warps)


def launch_blocks(planned: PlannedKernel) -> LaunchBlocks:
    """Return the nearest blocks of a planned product whose tile is ``rows.. x columns``.

    Rows of several axes are one.
    """
    *rows, columns = planned.tile
    depth = planned.levels["reduction step"][-1]
    return LaunchBlocks(
        _power(math.prod(rows), LARGEST),
        _power(columns, LARGEST),
        _power(depth, DEEPEST),
        _power(planned.launch.threads / WARP, MOST_WARPS, 1),
    )


def _power(size: float, largest: int, smallest: int = SMALLEST) -> int:
    """Return the power of two nearest to ``size`` by ratio, within bounds."""
    nearest = 2 ** round(math.log2(max(size, 1)))
    return int(min(max(nearest, smallest), largest))
