"""Roller's micro-performance model.

Seconds of a program from the work of each level over what the device reaches.

OSDI'22, section 3.4: a kernel takes as long as the slowest of computing, moving data through shared memory
and moving it from DRAM; each rate is the device's share that the grid's last wave leaves busy. DRAM is
saturated by enough warps in flight, whatever block they belong to. Caches beyond shared memory are not
modeled, nor latencies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from experiments.compilation.interface.architecture import Architecture
from experiments.compilation.interface.expressions import Expression, TensorAccess
from experiments.compilation.planning.tiles.program import TileProgram, grid, resident, staged_inputs, tiles
from experiments.compilation.planning.tiles.traffic import coalesced_elements
from experiments.compilation.policies.roller.alignment import padded
from experiments.hardware.parts import ComputeUnits


@dataclass(frozen=True)
class TileEstimate:
    """Seconds that a tile takes at each level of memory and in the units.

    ``dram_bytes`` move with DRAM; ``utilization`` is the share of the schedulers that work.
    """

    compute: float
    shared: float
    dram: float
    dram_bytes: float
    utilization: float

    @property
    def seconds(self) -> float:
        return max(self.compute, self.shared, self.dram)

    @property
    def bound(self) -> str:
        levels = {"compute": self.compute, "shared memory": self.shared, "DRAM": self.dram}
        return max(levels, key=lambda level: levels[level])


def utilization(blocks: int, warps: int, active: int, units: ComputeUnits) -> float:
    """Share of the device at work: filled places over places of all waves.

    While all blocks are resident at once a place is a scheduler and a block fills as many as it has warps (at
    most a unit's); beyond that a place is a resident block. ``active`` blocks of ``warps`` warps fit a unit.
    """
    if blocks <= active * units.count:
        filled, places = blocks * min(warps, units.partitions), units.count * units.partitions
    else:
        filled, places = blocks, units.count * active
    return filled / (math.ceil(filled / places) * places)


def bandwidth_share(blocks: int, warps: int, active: int, units: ComputeUnits) -> float:
    """Share of DRAM's bandwidth that the warps in flight ask for: few ask in proportion, many saturate it."""
    in_flight = min(blocks, active * units.count) * warps
    return 1 - math.exp(-in_flight / (units.bandwidth_warps * units.count))


def estimate(expression: Expression, program: TileProgram, architecture: Architecture) -> TileEstimate:
    """Return seconds of ``program``, tiles at the border counted as whole ones where they compute."""
    units, blocks = architecture.units, grid(expression, program)
    warps, active = -(-program.threads // units.warp), resident(expression, program, architecture)
    busy = utilization(blocks, warps, active, units)
    depth = [padded(extent, step) for extent, step in zip(expression.reduction, program.step, strict=True)]
    points = blocks * math.prod(program.shared) * math.prod(depth)
    lanes = program.threads / (warps * units.warp)
    moved = dram_bytes(expression, program, architecture)
    return TileEstimate(
        compute=expression.flops * points / (architecture.flops(expression.dtype) * busy * lanes),
        shared=_shared_traffic(expression, program) * blocks / (architecture.shared_bandwidth * busy * lanes),
        dram=moved / (architecture.dram_bandwidth * bandwidth_share(blocks, warps, active, units)),
        dram_bytes=moved,
        utilization=busy,
    )


def _shared_traffic(expression: Expression, program: TileProgram) -> float:
    """Return bytes that a block's threads read from shared memory.

    Each its operands over the whole reduction.
    """
    sizes = expression.whole(program.register)
    return program.threads * sum(
        expression.elements(access, sizes) * access.element_bytes for access in staged_inputs(expression)
    )


def dram_bytes(expression: Expression, program: TileProgram, architecture: Architecture) -> float:
    """Return bytes between DRAM and all blocks in whole transactions.

    What lies outside a tensor is not moved.

    A row-wise expression whose rows do not stay in shared memory reads its inputs twice.
    """
    whole = program.step == expression.reduction
    passes = 2 if expression.rowwise and not whole else 1
    return sum(
        _moved_bytes(expression, program, architecture, access) * passes for access in expression.inputs
    ) + (_moved_bytes(expression, program, architecture, expression.output))


def _moved_bytes(
    expression: Expression, program: TileProgram, architecture: Architecture, access: TensorAccess
) -> float:
    clipped = tuple(min(size, extent) for size, extent in zip(program.shared, expression.domain, strict=True))
    step = (*clipped, *program.step)
    whole = expression.whole(clipped)
    elements = expression.elements(access, whole) * expression.gaps(access, whole) / access.repeats
    transaction = max(1, architecture.units.write_transaction_bytes // access.element_bytes)
    box = expression.extents_touched(access, step)
    wasted = coalesced_elements(box, access.shape, transaction) / math.prod(box)
    return elements * _copies(expression, clipped, access) * wasted * access.element_bytes


def _copies(expression: Expression, spatial: tuple[int, ...], access: TensorAccess) -> float:
    """Return how many whole tiles' worth of ``access`` all blocks move.

    Along its own axes only what the tensor has.
    """
    own, count = expression.axes_of(access), 1.0
    for axis, (extent, size) in enumerate(zip(expression.domain, spatial, strict=True)):
        count *= extent / size if axis in own else tiles((extent,), (size,))
    return count
