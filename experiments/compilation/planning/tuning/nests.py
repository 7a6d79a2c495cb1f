"""Loop nests of many schedules at once, as columns: what a cost model's features are computed from.

The loops stand in the order S0 S1 R0 S2 R1 S3, each group over its axes in their order, those of extent 1
too, so that a column means the same in every schedule of a task.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from experiments.compilation.interface.tuning import BufferAccess, Contraction, Digits, Floats, ScheduleSpace
from experiments.compilation.planning.tuning.schedules import LANES, STRUCTURE

FLOAT_BYTES, LINE_BYTES = 4, 64


@dataclass(frozen=True)
class Nests:
    """The loops of many schedules of one operator, as columns.

    ``extent`` (schedules, loops).

    ``axis`` and ``level`` (loops), ``reduce`` (loops) whether a sum runs over it.

    ``stride`` (buffers, schedules, loops): elements that one step of the loop moves. ``touched`` (buffers,
    schedules, loops): different elements read by this loop and all inside it. ``inside`` (schedules, loops):
    how often the innermost statement runs in one run of the loop. ``lanes``, ``unroll``, ``parallel`` and
    ``local`` (the fusion level, 0 for none; schedules). The first buffer is the output.
    """

    extent: Floats
    axis: npt.NDArray[np.int64]
    level: npt.NDArray[np.int64]
    reduce: npt.NDArray[np.bool_]
    stride: Floats
    touched: Floats
    inside: Floats
    lanes: Floats
    unroll: Floats
    parallel: Floats
    local: Floats
    rfactor: Floats

    def __len__(self) -> int:
        return len(self.extent)

    @property
    def outside(self) -> Floats:
        """How often each loop is begun."""
        whole: Floats = self.inside[:, :1] / self.inside
        return whole

    @property
    def parallel_loops(self) -> npt.NDArray[np.bool_]:
        """(schedules, loops): the outermost ``parallel`` loops."""
        return np.arange(self.extent.shape[1])[None] < self.parallel[:, None]


def nests_of(nest: Contraction, space: ScheduleSpace, digits: Digits) -> Nests:
    """Return the loop nests of rows of digits."""
    loops = _loops(nest)
    columns = {knob.name: place for place, knob in enumerate(space.knobs)}
    names = [name for name, _ in nest.axes]
    lengths = [_values(space, columns, f"tile_{name}", digits) for name in names]
    extent = np.stack([lengths[axis][:, level] for axis, level, _ in loops], axis=1)
    axis_of = np.array([axis for axis, _, _ in loops])
    tile = np.stack(
        [_inner_product(np.where(axis_of == axis, extent, 1.0)) for axis in range(len(nest.axes))]
    )
    buffers = (nest.output, *nest.inputs)
    keeps = _keeps(space, columns, digits)
    widest = extent[:, _vector_loop(nest, loops)]
    return Nests(
        extent=extent,
        axis=axis_of,
        level=np.array([level for _, level, _ in loops]),
        reduce=np.array([is_reduction for _, _, is_reduction in loops]),
        stride=np.stack([_strides(access, names, axis_of, tile, extent) for access in buffers]),
        touched=np.stack([_footprint(access, names, tile) for access in buffers]),
        inside=_inner_product(extent),
        lanes=_lanes(_values(space, columns, "vectorize", digits), widest),
        unroll=_values(space, columns, "unroll", digits),
        parallel=_values(space, columns, "parallel", digits),
        local=keeps[0],
        rfactor=keeps[1],
    )


def _loops(nest: Contraction) -> list[tuple[int, int, bool]]:
    """Return the axis and level of every loop, and whether a sum runs over it."""
    spatial = len(nest.spatial)
    return [
        (axis, level, kind == "R")
        for kind, level in STRUCTURE
        for axis in (range(spatial) if kind == "S" else range(spatial, len(nest.axes)))
    ]


def _values(space: ScheduleSpace, columns: dict[str, int], name: str, digits: Digits) -> Floats:
    """Return a knob's value in every schedule; 0 where the space does not have the knob."""
    if name not in columns:
        return np.zeros(len(digits))
    column = columns[name]
    found: Floats = np.array(space.knobs[column].values, dtype=np.float64)[digits[:, column]]
    return found


def _inner_product(extent: Floats) -> Floats:
    """Along the loops: the product of this one and all inside it."""
    return np.asarray(np.cumprod(extent[:, ::-1], axis=1)[:, ::-1], dtype=np.float64)


def _vector_loop(nest: Contraction, loops: list[tuple[int, int, bool]]) -> int:
    return loops.index((len(nest.spatial) - 1, 3, False))


def _lanes(wanted: Floats, widest: Floats) -> Floats:
    found = np.ones(len(wanted))
    for width in LANES:
        found = np.where((width <= wanted) & (widest % width == 0), width, found)
    return found


def _keeps(space: ScheduleSpace, columns: dict[str, int], digits: Digits) -> tuple[Floats, Floats]:
    """Return the fusion level and the kind of rfactor (1 outer, 2 inner).

    A space without sketches fuses at level 2.
    """
    if "sketch" not in columns:
        return np.full(len(digits), 2.0), np.zeros(len(digits))
    values = [str(value) for value in space.knobs[columns["sketch"]].values]
    level = np.array([{"fused-1": 1.0, "fused-2": 2.0}.get(value, 0.0) for value in values])
    factor = np.array([{"rfactor-outer": 1.0, "rfactor-inner": 2.0}.get(value, 0.0) for value in values])
    chosen = digits[:, columns["sketch"]]
    return level[chosen], factor[chosen]


def _strides(
    access: BufferAccess, names: list[str], axis_of: npt.NDArray[np.int64], tile: Floats, extent: Floats
) -> Floats:
    """Return a step of a loop moves its axis by the product of the axis's loops inside it."""
    coefficient = np.array([access.coefficient(name) for name in names], dtype=np.float64)
    step = np.stack([tile[axis, :, loop] for loop, axis in enumerate(axis_of)], axis=1) / extent
    found: Floats = coefficient[axis_of][None] * step
    return found


def _footprint(access: BufferAccess, names: list[str], tile: Floats) -> Floats:
    """Different elements: in each dimension the reach of its linear form over the axes' tiles."""
    found = np.ones(tile.shape[1:])
    for form in access.forms:
        reach = np.ones(tile.shape[1:])
        for name, coefficient in form.items():
            reach = reach + coefficient * (tile[names.index(name)] - 1.0)
        found = found * reach
    return found
