"""One kernel of connected tiles.

What a block moves and holds, how many waves its grid takes, and its modeled time.

Welder, section 4.3: tiles are ranked by what they move, weighed by waves; what does not fit is no candidate.
Traffic is in elements of one block, not bytes and not times the grid; it ranks tiles of one group, it is no
time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.compilation.interface.architecture import Architecture
from experiments.compilation.interface.expressions import Sizes, TensorAccess
from experiments.compilation.planning.tiles.best_fit import BestFitMemory
from experiments.compilation.planning.tiles.program import REGISTER_BYTES, tiles
from experiments.compilation.planning.tiles.propagation import FusedGroup, Tiles, block_flops, propagate
from experiments.compilation.planning.tiles.traffic import coalesced_elements

#: How far each operator of a group reduces at once, in its order; () where it reduces nothing.
Steps = tuple[Sizes, ...]


@dataclass(frozen=True)
class GroupTile:
    """``tile`` of the first output with the tiles of all operators.

    ``traffic`` in elements, ``moved`` in bytes, of a block.

    ``resident`` blocks fit a unit. ``flops`` are a block's, halos included.
    """

    tile: Sizes
    tiles: Tiles
    steps: Steps
    traffic: float
    moved: float
    shared_bytes: int
    registers: int
    resident: int
    grid: int
    waves: int
    flops: float

    @property
    def priority(self) -> float:
        """What the search is ordered by; the smallest is best."""
        return (self.traffic + 1) * self.waves


def evaluate(
    group: FusedGroup, tile: Sizes, steps: Steps, architecture: Architecture, in_registers: bool = False
) -> GroupTile | None:
    """Return the kernel for ``tile``, or ``None`` where there is none.

    That is where it does not fit a unit or outputs cannot share a grid. ``in_registers``: a result read only
    inside the group stays in registers and takes no shared memory.
    """
    found = propagate(group, tile)
    if found is None:
        return None
    units = architecture.units
    held = footprint(group, found, steps, in_registers)
    pairs = zip(group.nodes, found, strict=True)
    words = max(math.prod(own) * node.expression.output.element_bytes / REGISTER_BYTES for node, own in pairs)
    registers = int(2 * words)
    if held > units.shared_bytes_per_block or registers > units.registers:
        return None
    resident = max(
        1, min(units.shared_bytes // max(held, 1), units.registers // max(registers, 1), units.partitions)
    )
    grid = tiles(group.domain, tile)
    elements, moved = traffic(group, found, architecture, steps)
    return GroupTile(
        tile=tile,
        tiles=found,
        steps=steps,
        traffic=elements,
        moved=moved,
        shared_bytes=held,
        registers=registers,
        resident=resident,
        grid=grid,
        waves=-(-grid // (resident * units.count)),
        flops=block_flops(group, found),
    )


def traffic(
    group: FusedGroup, found: Tiles, architecture: Architecture, steps: Steps | None = None
) -> tuple[float, float]:
    """Return elements and bytes that a block reads in read transactions and writes in write transactions.

    Rows that are not taken in one step are read twice (``steps`` left out: they are).
    """
    elements = moved = 0.0
    units = architecture.units
    for index, (node, tile) in enumerate(zip(group.nodes, found, strict=True)):
        expression, whole = node.expression, node.expression.whole(tile)
        twice = expression.rowwise and steps is not None and steps[index] != expression.reduction
        accesses = [(access, units.read_transaction_bytes, 1 + twice) for access in group.external[index]]
        if index in group.written:
            accesses.append((expression.output, units.write_transaction_bytes, 1))
        for access, size, passes in accesses:
            count = passes * _transactions(access, expression.extents_touched(access, whole), size)
            elements, moved = elements + count, moved + count * access.element_bytes
    return elements, moved


def least_bytes(group: FusedGroup) -> float:
    """Return bytes of what the group reads from memory and writes there, each element once."""
    total = 0.0
    for index, node in enumerate(group.nodes):
        expression = node.expression
        written = (expression.output,) if index in group.written else ()
        for access in (*group.external[index], *written):
            elements = expression.elements(access, expression.extents) / access.repeats
            total += elements * access.element_bytes
    return total


def least_seconds(group: FusedGroup, architecture: Architecture) -> float:
    """No tiles make the group faster: each element moved once, each result computed once, every unit busy."""
    computing = sum(
        node.expression.work(node.expression.extents) / architecture.flops(node.expression.dtype)
        for node in group.nodes
    )
    moving = least_bytes(group) / architecture.dram_bandwidth
    return architecture.launch + max(computing, moving)


def _transactions(access: TensorAccess, box: Sequence[int], size: int) -> float:
    return coalesced_elements(box, access.shape, max(1, size // access.element_bytes))


def footprint(group: FusedGroup, found: Tiles, steps: Steps, in_registers: bool = False) -> int:
    """Return bytes of shared memory.

    Inputs of the running operator over one step, and results until their last reader.
    """
    memory, blocks = BestFitMemory(), dict[int, tuple[int, int]]()
    last = {source: index for index, own in enumerate(group.producers) for source in own if source >= 0}
    for index, (node, tile) in enumerate(zip(group.nodes, found, strict=True)):
        expression, sizes = node.expression, (*tile, *steps[index])
        if expression.reduced:
            staged = group.external[index]
            size = sum(expression.elements(access, sizes) * access.element_bytes for access in staged)
            memory.give(memory.take(size))
        for source in set(group.producers[index]):
            if source in blocks and last[source] == index:
                memory.give(blocks.pop(source))
        if index in last and not in_registers:
            elements = expression.elements(expression.output, expression.whole(tile))
            blocks[index] = memory.take(elements * expression.output.element_bytes)
    return memory.limit


def seconds(group: FusedGroup, of: GroupTile, architecture: Architecture) -> float:
    """Modeled time of a launched kernel.

    The longer of moving its blocks' bytes and computing, after the launch.
    """
    return architecture.launch + max(_levels(group, of, architecture).values())


def bound(group: FusedGroup, of: GroupTile, architecture: Architecture) -> str:
    """Return what the kernel waits for."""
    levels = _levels(group, of, architecture)
    return max(levels, key=lambda level: levels[level])


def _levels(group: FusedGroup, of: GroupTile, architecture: Architecture) -> dict[str, float]:
    """Return seconds of computing, at the rate that the last wave leaves busy, and of moving."""
    busy = of.grid / (of.waves * of.resident * architecture.units.count)
    pairs = zip(group.nodes, of.tiles, strict=True)
    heaviest = max(pairs, key=lambda pair: pair[0].expression.work(pair[0].expression.whole(pair[1])))
    rate = architecture.flops(heaviest[0].expression.dtype) * busy
    return {"compute": of.flops * of.grid / rate, "DRAM": of.moved * of.grid / architecture.dram_bandwidth}
