"""Ways to divide an operator's loops among devices, and which part of a tensor each device then has or reads.

A *division* says into how many parts loops are cut. There are two ways to write one: a *configuration* here,
and the loops along the named axes of a mesh (``planning.meshes.partition``), whose parts lie by axis. What
parts of a tensor devices then have is counted here box by box, as any device may have any part; there it is a
*layout*, an entry for each axis, which the collectives of the mesh change.

A *configuration* is a degree for each axis of an operator. Parts are numbered row-major over the axes, those
of parameters last, so that the parts of one parameter are neighbors; part ``p`` is on device ``p``, devices
beyond the parts are idle. What a device has of a tensor is a box, one half-open interval on each axis; few
intervals are distinct, so they are listed once for each axis, an empty one first, then the whole, both
halves, and so on.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from experiments.core.integers import divisors
from experiments.workloads.einsum import Operand, Operator
from experiments.workloads.layers import LayerGraph
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats

#: Loops and the parts into which each is cut; others are whole.
Division = Mapping[str, int]
#: Degrees along the axes of an operator.
Configuration = tuple[int, ...]
BATCH = "batch"
#: Numbers of intervals: of an idle device, and of one that has the whole axis.
NO_PART, WHOLE_AXIS = 0, 1


def parts_of(division: Division, dims: Collection[str]) -> int:
    """Parts into which a tensor with these dimensions is cut."""
    return math.prod(parts for name, parts in division.items() if name in dims)


def is_even(operator: Operator, division: Division) -> bool:
    """Whether every loop that is cut may be, into equal parts."""
    return all(
        name in operator.divisible and operator.size[name] % parts == 0 for name, parts in division.items()
    )


@dataclass(frozen=True)
class Axes:
    """The loops of an operator that may be divided: names and sizes in the order in which parts are numbered.

    The last ``contracted`` of them leave partial sums. The size of a batch that nobody counted is 0: any
    number of parts divides it.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    contracted: int = 0

    def parts_of(self, configuration: Configuration, dims: Collection[str]) -> int:
        """Parts into which a tensor with these dimensions is divided."""
        return parts_of(dict(zip(self.names, configuration, strict=True)), dims)

    def partial_sums(self, configuration: Configuration) -> int:
        """Devices that hold partial sums of the same output."""
        return math.prod(configuration[len(configuration) - self.contracted :])

    def text(self, configuration: Configuration) -> str:
        parts = zip(self.names, configuration, strict=True)
        return ", ".join(f"{name} {degree}" for name, degree in parts if degree > 1) or "whole"


def counts_batch(model: LayerGraph) -> bool:
    """Whether the model says how many samples its figures are of."""
    return "batch" not in model.facts or model.facts["batch"] is not None


def divided_loops(operator: Operator, counted: bool = True) -> list[str]:
    """The loops that planners of whole operators divide, a batch that nobody counted too.

    Dimensions of a statistic are left whole: these planners' papers know no such exchange.
    """
    found = [name for name in operator.divisible if name not in operator.statistics]
    if not counted and BATCH in operator.size and BATCH not in (*found, *operator.whole):
        found.append(BATCH)
    return found


def axes_of(operator: Operator, counted: bool = True, partial_sums: bool = False) -> Axes:
    """Return axes of the output (of a result without any: of all loops).

    With ``partial_sums`` those summed over too.
    """
    kept = divided_loops(operator, counted)
    if not counted:
        kept.sort(key=lambda name: name != BATCH)
    held = {name for operand in operator.parameters for name in operand.dims}
    outputs = [name for name in kept if name in operator.output]
    outputs = sorted(outputs, key=lambda name: name in held)
    sums = [n for n in kept if n in operator.contracted] if partial_sums or not operator.output else []
    names = (*outputs, *sums)
    sizes = tuple(0 if name == BATCH and not counted else operator.size[name] for name in names)
    return Axes(names, sizes, len(sums))


@functools.lru_cache(maxsize=1024)
def configurations(axes: Axes, devices: int, most: int | None = None) -> tuple[Configuration, ...]:
    """Return all configurations that divide their axes evenly, fewer parts first.

    Their parts divide ``devices`` (at most ``most`` axes at once).
    """
    choices = [[d for d in divisors(devices) if size % d == 0] for size in axes.sizes]
    found = [c for c in itertools.product(*choices) if devices % math.prod(c) == 0]
    if most is not None:
        found = [c for c in found if sum(degree > 1 for degree in c) <= most]
    return tuple(sorted(found, key=lambda c: (math.prod(c), c)))


@functools.cache
def places(choices: tuple[Configuration, ...], devices: int) -> Ints:
    """Return which interval each device has along each axis, ``NO_PART`` if it is idle.

    Shape: (choices, devices, axes).
    """
    degrees = divisors(devices)
    firsts = dict(zip(degrees, itertools.accumulate([WHOLE_AXIS, *degrees]), strict=False))
    found = np.zeros((len(choices), devices, len(choices[0])), np.int64)
    if not choices[0]:
        return found
    for row, choice in enumerate(choices):
        grid = np.indices(choice).reshape(len(choice), -1).T
        found[row, : len(grid)] = grid + np.array([firsts[d] for d in choice], np.int64)
    return found


@functools.lru_cache(maxsize=1024)
def intervals(size: float, devices: int) -> Floats:
    """Every interval of an axis of ``size`` (0: not counted, from 0 to 1). Shape: (intervals, 2)."""
    cuts = [np.linspace(0, size or 1, degree + 1) for degree in divisors(devices)]
    return np.concatenate([np.zeros((1, 2)), *(np.stack([cut[:-1], cut[1:]], axis=-1) for cut in cuts)])


@dataclass(frozen=True)
class Boxes:
    """What devices have or read of a tensor.

    On each axis of the tensor the intervals, and which of them for each configuration and device.
    ``index[a]`` has shape (configurations, devices).
    """

    intervals: tuple[Floats, ...]
    index: tuple[Ints, ...]

    @functools.cached_property
    def volumes(self) -> Floats:
        """Elements of each box. Shape: (configurations, devices)."""
        columns = (i[:, 1] - i[:, 0] for i in self.intervals)
        return _product(column[index] for column, index in zip(columns, self.index, strict=True))


def boxes_made(producer: Operator, axes: Axes, choices: tuple[Configuration, ...], devices: int) -> Boxes:
    """What devices have of ``producer``'s output; partial sums are summed up on all devices that have one."""
    sizes = tuple(_size(axes, producer, name) for name in producer.output)
    return _boxes(axes, choices, devices, producer.output, sizes, ())


def boxes_read(
    reader: Operator,
    operand: Operand,
    axes: Axes,
    choices: tuple[Configuration, ...],
    devices: int,
    sizes: tuple[int, ...],
) -> Boxes:
    """What devices read of ``operand``, a tensor of ``sizes``, to compute their part of ``reader``."""
    return _boxes(axes, choices, devices, operand.dims, sizes, reader.halo)


def _size(axes: Axes, operator: Operator, name: str) -> int:
    return axes.sizes[axes.names.index(name)] if name in axes.names else operator.size[name]


@functools.lru_cache(maxsize=512)
def _boxes(
    axes: Axes,
    choices: tuple[Configuration, ...],
    devices: int,
    dims: tuple[str, ...],
    sizes: tuple[int, ...],
    halo: tuple[tuple[str, int], ...],
) -> Boxes:
    """A dimension that an axis walks is divided as the axis is, with half of its halo on either
    inner side.
    """
    index = places(choices, devices)
    working = np.minimum(index.max(axis=-1), WHOLE_AXIS) if index.shape[-1] else _first_works(index)
    reach = dict(halo)
    rows, columns = [], []
    for name, size in zip(dims, sizes, strict=True):
        length = float(size or 1)
        if name in axes.names:
            own = intervals(length, devices)
            side = reach.get(name, 0) / 2
            begin = np.where(own[:, 0] <= 0, 0.0, own[:, 0] - side)
            end = np.where(own[:, 1] >= length, length, own[:, 1] + side)
            rows.append(
                np.concatenate([np.zeros((1, 2)), np.stack([begin, end], axis=-1)[1:].clip(0, length)])
            )
            columns.append(index[:, :, axes.names.index(name)])
        else:
            rows.append(np.array([[0.0, 0.0], [0.0, length]]))
            columns.append(working)
    if not rows:
        return Boxes((np.array([[0.0, 0.0], [0.0, 1.0]]),), (working,))
    return Boxes(tuple(rows), tuple(columns))


def _first_works(index: Ints) -> Ints:
    """An operator without axes is on the first device."""
    found = np.zeros(index.shape[:2], np.int64)
    found[:, 0] = WHOLE_AXIS
    return found


def overlap(there: Boxes, wanted: Boxes, shift: Ints | None = None) -> Floats:
    """Elements that each device reads and has already (with ``shift``: that the device of that number has).

    Shape: (configurations of the producer, of the reader, devices).
    """
    factors = []
    for a, b, i, j in zip(there.intervals, wanted.intervals, there.index, wanted.index, strict=True):
        own = i if shift is None else i[:, shift]
        factors.append(_common(a, b)[own[:, None, :], j[None, :, :]])
    return _product(factors)


def part_overlaps(there: Boxes, wanted: Boxes) -> Floats:
    """Return the elements that each device's box shares with every device's of another.

    Of ``wanted`` with ``there``, for the first configuration of both. Shape: (devices of there, devices
    of wanted).
    """
    return _product(
        _common(a, b)[np.ix_(i[0], j[0])]
        for a, b, i, j in zip(there.intervals, wanted.intervals, there.index, wanted.index, strict=True)
    )


def _common(first: Floats, second: Floats) -> Floats:
    """What each interval of ``first`` (rows) shares with each of ``second`` (columns)."""
    begin = np.maximum(first[:, None, 0], second[None, :, 0])
    end = np.minimum(first[:, None, 1], second[None, :, 1])
    found: Floats = np.clip(end - begin, 0, None)
    return found


def _product(columns: Iterable[Floats]) -> Floats:
    found: Floats = functools.reduce(np.multiply, columns)
    return found
