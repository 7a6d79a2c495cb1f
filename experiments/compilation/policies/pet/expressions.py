"""Programs that are linear in their input, as expressions that can be asked for single elements.

An expression has a shape [batch, channels, height, width], gives its elements at any positions over the
integers modulo a prime, and says how each of its axes falls into ranges inside which every element is the
same sum over a sliding window (PET, OSDI 2021, section 5). Nothing is computed but the elements asked for.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]
Shape = tuple[int, int, int, int]
#: Values live in this field: 65,521 is the largest prime below 2**16, so that products fit 32 bits.
PRIME = 65521
BATCH, CHANNEL, HEIGHT, WIDTH = range(4)


class Expression(Protocol):
    """A tensor expression that can be asked for single elements.

    ``at`` takes positions [points, 4], inside the shape or not (outside is 0), and gives values [points].
    """

    @property
    def shape(self) -> Shape: ...

    def at(self, where: Indices, seed: int) -> Indices: ...

    def cuts(self, axis: int) -> tuple[range, ...]:
        """Return the axis as disjoint ranges (with steps), in order of their first positions."""
        ...


def noise(linear: Indices, seed: int) -> Indices:
    """Return a value below ``PRIME`` for every linear position, pseudorandom (splitmix64's finalizer)."""
    z = linear.astype(np.uint64) + np.uint64((seed + 1) * 0x9E3779B97F4A7C15 % 2**64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((z ^ (z >> np.uint64(31))) % np.uint64(PRIME)).astype(np.int64)


def inside(where: Indices, shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    return np.asarray(((where >= 0) & (where < np.array(shape))).all(axis=1))


def split_at(size: int, points: set[int]) -> tuple[range, ...]:
    """0 .. size cut at the points that lie inside."""
    edges = [0, *sorted(p for p in points if 0 < p < size), size]
    return tuple(range(a, b) for a, b in itertools.pairwise(edges))


def starts(ranges: tuple[range, ...]) -> set[int]:
    """Return where a new range begins; every position of one with a step."""
    return {p for r in ranges for p in (r if r.step > 1 else r[:1])}


@dataclass(frozen=True)
class Image:
    """The input: random values by position."""

    shape: Shape

    def at(self, where: Indices, seed: int) -> Indices:
        linear = np.ravel_multi_index(tuple(where.T), self.shape, mode="clip")
        return np.where(inside(where, self.shape), noise(np.asarray(linear, dtype=np.int64), 2 * seed), 0)

    def cuts(self, axis: int) -> tuple[range, ...]:
        return (range(self.shape[axis]),)


@dataclass(frozen=True)
class Convolution:
    """Two-dimensional convolution of one group; ``weight`` is [outputs, inputs, height, width].

    With ``transposed`` the weight's last two axes are swapped, and so are stride, padding and dilation, which
    are given as they are used.
    """

    source: Expression
    weight: Shape
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    transposed: bool = False

    @property
    def kernel(self) -> tuple[int, int]:
        height, width = self.weight[2:]
        return (width, height) if self.transposed else (height, width)

    @property
    def shape(self) -> Shape:
        batch, _, *sizes = self.source.shape
        height, width = (self._length(axis, size) for axis, size in enumerate(sizes))
        return batch, self.weight[0], height, width

    def _length(self, axis: int, size: int) -> int:
        reach = self.dilation[axis] * (self.kernel[axis] - 1) + 1
        return max(0, (size + 2 * self.padding[axis] - reach) // self.stride[axis] + 1)

    def at(self, where: Indices, seed: int) -> Indices:
        total = np.zeros(len(where), dtype=np.int64)
        channels = np.arange(self.weight[1])
        for tap in np.ndindex(*self.kernel):
            read = self._read(where, tap, channels)
            values = self.source.at(read, seed).reshape(len(where), len(channels))
            total += (values * self._weights(where, tap, channels, seed)).sum(axis=1)
        return np.where(inside(where, self.shape), total % PRIME, 0)

    def _read(self, where: Indices, tap: tuple[int, ...], channels: Indices) -> Indices:
        """Return positions [points x channels, 4] that one tap of the kernel reads."""
        spatial = [
            where[:, 2 + a] * self.stride[a] - self.padding[a] + tap[a] * self.dilation[a] for a in (0, 1)
        ]
        columns = [where[:, BATCH], None, *spatial]
        grid = [
            np.broadcast_to(
                channels[None, :] if column is None else column[:, None], (len(where), len(channels))
            )
            for column in columns
        ]
        return np.stack([g.reshape(-1) for g in grid], axis=1)

    def _weights(self, where: Indices, tap: tuple[int, ...], channels: Indices, seed: int) -> Indices:
        place = tap[::-1] if self.transposed else tap
        filters = np.clip(where[:, CHANNEL], 0, self.weight[0] - 1)
        linear = np.ravel_multi_index((filters[:, None], channels[None, :], *place), self.weight)
        return noise(np.asarray(linear, dtype=np.int64), 2 * seed + 1)

    def cuts(self, axis: int) -> tuple[range, ...]:
        """Return the positions where taps begin to read another range of the source, or leave it.

        Along an image axis each does so at one position.
        """
        if axis in (BATCH, CHANNEL):
            return self.source.cuts(axis) if axis == BATCH else (range(self.weight[0]),)
        a = axis - HEIGHT
        edges = {*starts(self.source.cuts(axis)), self.source.shape[axis]}
        points = {
            -(-(edge + self.padding[a] - tap * self.dilation[a]) // self.stride[a])
            for edge in edges
            for tap in range(self.kernel[a])
        }
        return split_at(self.shape[axis], points)


@dataclass(frozen=True)
class Swap:
    """Height and width exchanged."""

    source: Expression

    @property
    def shape(self) -> Shape:
        batch, channels, height, width = self.source.shape
        return batch, channels, width, height

    def at(self, where: Indices, seed: int) -> Indices:
        return self.source.at(where[:, [0, 1, 3, 2]], seed)

    def cuts(self, axis: int) -> tuple[range, ...]:
        return self.source.cuts({HEIGHT: WIDTH, WIDTH: HEIGHT}.get(axis, axis))


@dataclass(frozen=True)
class WindowAxes:
    """The source from position ``first`` of an axis on, ``size`` long.

    Zeros where it reaches over the source.
    """

    source: Expression
    axis: int
    first: int
    size: int

    @property
    def shape(self) -> Shape:
        sizes = list(self.source.shape)
        sizes[self.axis] = self.size
        return sizes[0], sizes[1], sizes[2], sizes[3]

    def at(self, where: Indices, seed: int) -> Indices:
        moved = where.copy()
        moved[:, self.axis] += self.first
        return np.where(inside(where, self.shape), self.source.at(moved, seed), 0)

    def cuts(self, axis: int) -> tuple[range, ...]:
        if axis != self.axis:
            return self.source.cuts(axis)
        edges = {*starts(self.source.cuts(axis)), self.source.shape[axis]}
        return split_at(self.size, {edge - self.first for edge in edges})


@dataclass(frozen=True)
class Fold:
    """``count`` images next to each other along ``axis``: [batch / count, ..., count x size]."""

    source: Expression
    axis: int
    count: int

    @property
    def shape(self) -> Shape:
        sizes = list(self.source.shape)
        sizes[BATCH] //= self.count
        sizes[self.axis] *= self.count
        return sizes[0], sizes[1], sizes[2], sizes[3]

    def at(self, where: Indices, seed: int) -> Indices:
        size, moved = self.source.shape[self.axis], where.copy()
        moved[:, BATCH] = where[:, BATCH] * self.count + where[:, self.axis] // size
        moved[:, self.axis] = where[:, self.axis] % size
        return np.where(inside(where, self.shape), self.source.at(moved, seed), 0)

    def cuts(self, axis: int) -> tuple[range, ...]:
        if axis == BATCH:
            return tuple(range(n, n + 1) for n in range(self.shape[BATCH]))
        own = self.source.cuts(axis)
        if axis != self.axis:
            return own
        size = self.source.shape[axis]
        return split_at(size * self.count, {n * size + p for n in range(self.count) for p in starts(own)})


@dataclass(frozen=True)
class Unfold:
    """The reverse of ``Fold``: [batch x count, ..., size / count]."""

    source: Expression
    axis: int
    count: int

    @property
    def shape(self) -> Shape:
        sizes = list(self.source.shape)
        sizes[BATCH] *= self.count
        sizes[self.axis] //= self.count
        return sizes[0], sizes[1], sizes[2], sizes[3]

    def at(self, where: Indices, seed: int) -> Indices:
        size, moved = self.shape[self.axis], where.copy()
        moved[:, BATCH] = where[:, BATCH] // self.count
        moved[:, self.axis] = where[:, BATCH] % self.count * size + where[:, self.axis]
        return np.where(inside(where, self.shape), self.source.at(moved, seed), 0)

    def cuts(self, axis: int) -> tuple[range, ...]:
        if axis == BATCH:
            return tuple(range(n, n + 1) for n in range(self.shape[BATCH]))
        own = self.source.cuts(axis)
        if axis != self.axis:
            return own
        size = self.shape[axis]
        return split_at(size, {p % size for p in starts(own)})


@dataclass(frozen=True)
class Scatter:
    """Every ``step``-th row and column as an image of its own.

    [batch x step^2, channels, height / step, width / step].
    """

    source: Expression
    step: int

    @property
    def shape(self) -> Shape:
        batch, channels, height, width = self.source.shape
        return batch * self.step**2, channels, height // self.step, width // self.step

    def at(self, where: Indices, seed: int) -> Indices:
        image, place = np.divmod(where[:, BATCH], self.step**2)
        row, column = np.divmod(place, self.step)
        moved = [image, where[:, 1], where[:, 2] * self.step + row, where[:, 3] * self.step + column]
        return np.where(inside(where, self.shape), self.source.at(np.stack(moved, axis=1), seed), 0)

    def cuts(self, axis: int) -> tuple[range, ...]:
        if axis in (BATCH, CHANNEL):
            size = self.shape[axis]
            return tuple(range(n, n + 1) for n in range(size)) if axis == BATCH else self.source.cuts(axis)
        return split_at(self.shape[axis], {-(-p // self.step) for p in starts(self.source.cuts(axis))})


@dataclass(frozen=True)
class Gather:
    """The reverse of ``Scatter``."""

    source: Expression
    step: int

    @property
    def shape(self) -> Shape:
        batch, channels, height, width = self.source.shape
        return batch // self.step**2, channels, height * self.step, width * self.step

    def at(self, where: Indices, seed: int) -> Indices:
        row, column = where[:, 2] % self.step, where[:, 3] % self.step
        image = where[:, 0] * self.step**2 + row * self.step + column
        moved = [image, where[:, 1], where[:, 2] // self.step, where[:, 3] // self.step]
        return np.where(inside(where, self.shape), self.source.at(np.stack(moved, axis=1), seed), 0)

    def cuts(self, axis: int) -> tuple[range, ...]:
        if axis == CHANNEL:
            return self.source.cuts(axis)
        if axis == BATCH:
            return tuple(range(n, n + 1) for n in range(self.shape[BATCH]))
        return tuple(
            range(residue + r.start * self.step, residue + r.stop * self.step, self.step)
            for residue in range(self.step)
            for r in self.source.cuts(axis)
        )
