"""The schedules of a contraction on a CPU.

Tiles in the order SSRSRS, and what else is decided; as spaces of knobs.

Every spatial axis is cut into four loops and every reduction into two, in the order S S R S R S from the
outside. The last S is a tile of registers; around it the two inner reductions run; what is summed up goes to
the output directly or through a local tile ("fused": written back once, when all of the reduction is done).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.compilation.interface.tuning import Contraction, ScheduleKnob, ScheduleSpace
from experiments.compilation.planning.tuning.sketches import Sketch
from experiments.workloads.tuning_log import Value

#: Which level of its axis each group of loops is, outermost group first: S0 S1 R0 S2 R1 S3.
STRUCTURE = (("S", 0), ("S", 1), ("R", 0), ("S", 2), ("R", 1), ("S", 3))
INNERMOST = 64
UNROLL = (0, 16, 64, 512)
LANES = (1, 4, 8, 16)
#: More ways to cut one axis than this are thinned out evenly.
MOST_SPLITS = 2000


@dataclass(frozen=True)
class LoopSchedule:
    """One point of a space, spelled out.

    - ``tiles``: the lengths of each axis's loops, outermost first.
    - ``sketch``: where the sums are kept ("tile", "fused-1", "fused-2", "rfactor-outer", "rfactor-inner").
    - ``order``: the axis whose outermost loop comes first.
    - ``lanes``: numbers that are computed at once.
    - ``unroll``: statements of the register tile are written out where they are no more than that.
    - ``parallel``: outermost loops that run on all cores.
    """

    tiles: Mapping[str, tuple[int, ...]]
    sketch: str
    order: str
    lanes: int
    unroll: int
    parallel: int

    def to_json(self) -> dict[str, object]:
        return {**vars(self), "tiles": {axis: list(lengths) for axis, lengths in self.tiles.items()}}


@functools.cache
def factorizations(extent: int, parts: int, innermost: int = INNERMOST) -> tuple[tuple[int, ...], ...]:
    """Return all ordered ways to write ``extent`` as ``parts`` factors, the last at most ``innermost``."""
    if parts == 1:
        return ((extent,),) if extent <= innermost else ()
    found = [
        (first, *rest)
        for first in divisors(extent)
        for rest in factorizations(extent // first, parts - 1, innermost)
    ]
    return tuple(found)


def divisors(number: int) -> list[int]:
    """Return the divisors of ``number``, ascending."""
    low = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return low + [number // d for d in reversed(low) if d * d != number]


def _splits(extent: int, parts: int) -> tuple[tuple[int, ...], ...]:
    """Return the cuts that a space offers; thinned out where there are very many."""
    found = factorizations(extent, parts)
    step = -(-len(found) // MOST_SPLITS)
    return found[::step]


def sketch_space(nest: Contraction, sketches: Sequence[Sketch]) -> ScheduleSpace:
    """Ansor's: every sketch with every cut.

    The innermost loop is vectorized as far as it goes (16 at most).
    """
    knobs = [ScheduleKnob("sketch", tuple(sketch.keeps for sketch in sketches), "sketch")]
    knobs += [_tile(axis, _splits(extent, 4)) for axis, extent in nest.spatial]
    knobs += [_tile(axis, _splits(extent, 2)) for axis, extent in nest.reduce]
    return ScheduleSpace((*knobs, *_annotations(nest, (16,))))


def template_space(nest: Contraction) -> ScheduleSpace:
    """AutoTVM's: a template written by hand.

    One sketch, three levels of tiles, and the order of the outer loops.
    """
    outer = tuple(axis for axis, extent in nest.spatial if extent > 1) or (nest.spatial[0][0],)
    knobs = [
        _tile(axis, tuple((a, 1, b, c) for a, b, c in _splits(extent, 3))) for axis, extent in nest.spatial
    ]
    knobs += [_tile(axis, _splits(extent, 2)) for axis, extent in nest.reduce]
    return ScheduleSpace((*knobs, ScheduleKnob("order", outer), *_annotations(nest, LANES)))


def _tile(axis: str, values: tuple[Value, ...]) -> ScheduleKnob:
    return ScheduleKnob(f"tile_{axis}", values, "tile")


def _annotations(nest: Contraction, lanes: tuple[int, ...]) -> list[ScheduleKnob]:
    return [
        ScheduleKnob("vectorize", lanes),
        ScheduleKnob("unroll", UNROLL, "unroll"),
        ScheduleKnob("parallel", tuple(range(len(nest.spatial) + 1)), "parallel"),
    ]


def schedule_of(nest: Contraction, config: Mapping[str, Value]) -> LoopSchedule:
    """Return what the knobs of either space stand for."""
    tiles = {axis: _lengths(config[f"tile_{axis}"]) for axis, _ in nest.axes}
    first = config.get("order", nest.spatial[0][0])
    lanes, unroll, parallel = (_number(config[name]) for name in ("vectorize", "unroll", "parallel"))
    widest = tiles[nest.spatial[-1][0]][-1]
    lanes = max(width for width in LANES if width <= lanes and widest % width == 0)
    return LoopSchedule(tiles, str(config.get("sketch", "fused-2")), str(first), lanes, unroll, parallel)


def _lengths(value: Value) -> tuple[int, ...]:
    assert isinstance(value, tuple)
    return tuple(int(part) for part in value)


def _number(value: Value) -> int:
    assert isinstance(value, int)
    return value
