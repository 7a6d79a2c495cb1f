"""Welder's search for the tile of a group.

What to begin with, how far to reduce at once, and best first from there.

OSDI'23, section 4.3 and its release: the base tile is the smallest whose operators compute nothing twice that
a larger one would not; sizes along an axis are its divisors and small powers of two; the queue is ordered by
traffic and waves.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from experiments.compilation.interface.architecture import Architecture
from experiments.compilation.interface.expressions import Expression, Sizes, TensorAccess
from experiments.compilation.planning.tiles.group_tile import GroupTile, Steps, evaluate
from experiments.compilation.planning.tiles.propagation import FusedGroup, points, propagate
from experiments.compilation.planning.tiles.traffic import contiguous

SMALL = (2, 4, 8, 16, 32)
#: A prime reduced axis longer than this is stepped through in powers of two.
LONG_PRIME = 64


@dataclass(frozen=True)
class FoundTiles:
    """The best tiles of a group, best first, how many were looked at, and whether the bound left others."""

    tiles: tuple[GroupTile, ...]
    examined: int
    ended_early: bool = False


@functools.cache
def divisors(number: int) -> tuple[int, ...]:
    low = [value for value in range(1, math.isqrt(number) + 1) if number % value == 0]
    return tuple(sorted({*low, *(number // value for value in low)}))


def axis_sizes(extent: int, base: int) -> tuple[int, ...]:
    """Divisors from ``base`` on, and the small powers of two between them."""
    whole = [size for size in divisors(extent) if size >= base] or [extent]
    return tuple(sorted({*whole, *(size for size in SMALL if whole[0] < size < whole[-1])}))


def base_tile(group: FusedGroup) -> Sizes | None:
    """One point of the output, with those axes whole that spare its producers repeated work."""
    tile = (1,) * len(group.domain)
    best = _work_per_point(group, tile)
    if best is None:
        return None
    for axis, extent in enumerate(group.domain):
        wider = (*tile[:axis], extent, *tile[axis + 1 :])
        cost = _work_per_point(group, wider)
        if cost is not None and cost < best:
            tile, best = wider, cost
    return tile


def _work_per_point(group: FusedGroup, tile: Sizes) -> float | None:
    """Return points computed in all operators for a point of the output."""
    found = propagate(group, tile)
    return None if found is None else points(group, found) / math.prod(tile)


def similarity(run: float, transaction: float) -> float:
    """2ab / (a^2 + b^2): 1 where a contiguous run is exactly a transaction."""
    return 2 * run * transaction / (run * run + transaction * transaction)


def step_choices(extent: int) -> tuple[int, ...]:
    """Steps along a reduced axis: its divisors, or powers of two below a long prime."""
    choices = divisors(extent)
    if len(choices) == 2 and extent > LONG_PRIME:
        return tuple(2**power for power in range(extent.bit_length()) if 2**power < extent)
    return choices


def first_steps(group: FusedGroup, architecture: Architecture) -> Steps:
    """For every operator the step whose reads from memory are most like one transaction.

    Rows are taken whole where half of a block's shared memory holds one.
    """
    half = architecture.units.shared_bytes_per_block // 2
    found = []
    for node, external in zip(group.nodes, group.external, strict=True):
        expression = node.expression
        row = math.prod(expression.reduction) * sum(access.element_bytes for access in external)
        whole = expression.rowwise and row <= half
        found.append(expression.reduction if whole else _coalesced_step(expression, external, architecture))
    return tuple(found)


def _coalesced_step(
    expression: Expression, external: Sequence[TensorAccess], architecture: Architecture
) -> Sizes:
    ones = (1,) * len(expression.spatial)
    choices = [step_choices(extent) for extent in expression.reduction]

    def likeness(step: Sizes) -> float:
        return sum(
            similarity(
                contiguous(expression.extents_touched(access, (*ones, *step)), access.shape),
                architecture.units.read_transaction_bytes / access.element_bytes,
            )
            for access in external
        )

    step = tuple(options[0] for options in choices)
    while True:
        best = max(_larger(step, choices), key=likeness, default=step)
        if likeness(best) <= likeness(step):
            return step
        step = best


def _larger(step: Sizes, choices: Sequence[Sequence[int]]) -> list[Sizes]:
    """Steps that are the next choice along one axis."""
    found = []
    for axis, options in enumerate(choices):
        place = options.index(step[axis])
        if place + 1 < len(options):
            found.append((*step[:axis], options[place + 1], *step[axis + 1 :]))
    return found


def search(
    group: FusedGroup,
    architecture: Architecture,
    wanted: int = 10,
    budget: int = 2000,
    in_registers: bool = False,
    show_life: Callable[[], None] = lambda: None,
) -> FoundTiles:
    """Return the ``wanted`` best tiles of ``group``; none where no tile fits.

    ``show_life`` is called for each tile.
    """
    start = base_tile(group)
    if start is None:
        return FoundTiles((), 0)
    steps = first_steps(group, architecture)
    choices = [axis_sizes(extent, size) for extent, size in zip(group.domain, start, strict=True)]
    order = itertools.count()
    first = tuple(options[0] for options in choices)
    seen: dict[Sizes, GroupTile | None] = {}
    queue: list[tuple[float, int, Sizes]] = []

    def look(tile: Sizes) -> None:
        if tile not in seen:
            show_life()
            made = seen[tile] = evaluate(group, tile, steps, architecture, in_registers)
            if made is not None:
                heapq.heappush(queue, (made.priority, next(order), tile))

    look(first)
    while queue and len(seen) <= budget:
        _, _, tile = heapq.heappop(queue)
        for larger in reversed(_larger(tile, choices)):
            look(larger)
    valid = sorted(
        (made for made in seen.values() if made is not None), key=lambda made: (made.priority, made.tile)
    )
    kept = tuple(longer_steps(group, made, architecture, in_registers) for made in valid[:wanted])
    return FoundTiles(kept, len(seen), bool(queue))


def longer_steps(
    group: FusedGroup, made: GroupTile, architecture: Architecture, in_registers: bool = False
) -> GroupTile:
    """Return ``made`` with every reduction's step grown while as many blocks still fit a unit."""
    units = architecture.units
    allowed = min(units.shared_bytes // made.resident, units.shared_bytes_per_block)
    for index, node in enumerate(group.nodes):
        if node.expression.rowwise:
            continue
        choices = [
            tuple(size for size in step_choices(extent) if size % own == 0)
            for extent, own in zip(node.expression.reduction, made.steps[index], strict=True)
        ]
        while grown := _larger(made.steps[index], choices):
            longest = max(grown, key=lambda step: _runs(group, index, made.tiles[index], step))
            steps = (*made.steps[:index], longest, *made.steps[index + 1 :])
            tried = evaluate(group, made.tile, steps, architecture, in_registers)
            if tried is None or tried.shared_bytes > allowed:
                break
            made = tried
    return made


def _runs(group: FusedGroup, index: int, tile: Sizes, step: Sizes) -> int:
    """Contiguous elements of an operator's reads from memory, added up."""
    touched = group.nodes[index].expression.extents_touched
    return sum(contiguous(touched(access, (*tile, *step)), access.shape) for access in group.external[index])


def block_size(group: FusedGroup, made: GroupTile, architecture: Architecture) -> int:
    """Threads of a block.

    A divisor of every operator's tile, closest to a warp for each scheduler, then least idle.

    Where tiles are smaller than that, threads share reductions: reduced steps count as points too.
    """
    units = architecture.units
    spaces = [math.prod(tile) for tile in made.tiles]
    common = math.gcd(*spaces)
    most = 2 * units.threads_per_block
    sizes = [size for size in divisors(common) if size <= most]
    if common < units.warp * units.partitions and common == min(spaces):
        deep = [space * math.prod(step) for space, step in zip(spaces, made.steps, strict=True)]
        sizes = [
            size
            for size in divisors(math.gcd(*deep))
            if size <= most
            and size % common == 0
            and all(size % own == 0 or own % size == 0 for own in spaces)
        ] or sizes
    return min(sizes, key=lambda size: _idle(size, architecture))


def _idle(threads: int, architecture: Architecture) -> tuple[float, float]:
    units = architecture.units
    warps = -(-threads // units.warp)
    ratio = max(warps / units.partitions, units.partitions / warps)
    return ratio, (warps * units.warp - threads) / threads
