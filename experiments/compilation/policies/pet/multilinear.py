"""Programs of several operators that are linear in each input, as expressions asked for single elements.

What ``expressions`` is to one convolution, with any number of axes and of inputs: matrix products and batches
of them, convolutions whose weights are computed too, sums, joins and layouts. An expression has a shape,
gives its elements over the integers modulo ``PRIME``, and says how each of its axes falls into ranges inside
which every element is the same sum over a sliding window (PET, OSDI 2021, section 5).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np

from experiments.compilation.policies.pet.expressions import PRIME, Indices, inside, noise, split_at, starts

Sizes = tuple[int, ...]
Ranges = tuple[range, ...]


@dataclass(frozen=True)
class Multilinear:
    """Base of the expressions below: positions outside of a shape hold nothing (0)."""

    @property
    def shape(self) -> Sizes:
        raise NotImplementedError

    def at(self, where: Indices, seed: int) -> Indices:
        """Return the elements at positions [points, axes]; 0 for those outside."""
        known = inside(where, self.shape)
        found = np.zeros(len(where), dtype=np.int64)
        if known.any():
            found[known] = self.elements(where[known], seed)
        return found

    def elements(self, where: Indices, seed: int) -> Indices:
        """Return the elements at positions inside the shape."""
        raise NotImplementedError

    def cuts(self, axis: int) -> Ranges:
        """Return the axis as disjoint ranges, in order of their first positions."""
        raise NotImplementedError

    @functools.cached_property
    def sources(self) -> tuple[Multilinear, ...]:
        """What it is computed from, in order."""
        values = (getattr(self, one.name) for one in fields(self))
        return tuple(value for value in values if isinstance(value, Multilinear))

    @functools.cached_property
    def leaves(self) -> Counter[int]:
        """How often each input is read."""
        return sum((source.leaves for source in self.sources), Counter[int]())


@dataclass(frozen=True)
class Input(Multilinear):
    """One of the program's inputs: random values by position."""

    number: int
    sizes: Sizes

    @property
    def shape(self) -> Sizes:
        return self.sizes

    @functools.cached_property
    def leaves(self) -> Counter[int]:
        return Counter({self.number: 1})

    def elements(self, where: Indices, seed: int) -> Indices:
        linear = np.asarray(np.ravel_multi_index(tuple(where.T), self.sizes), dtype=np.int64)
        return noise(linear, 64 * seed + self.number)

    def cuts(self, axis: int) -> Ranges:
        return (range(self.sizes[axis]),)

    def __str__(self) -> str:
        return "abcdefgh"[self.number]


@dataclass(frozen=True)
class Product(Multilinear):
    """``left @ right``: of matrices, of equal batches of them, or of a batch with one right operand."""

    left: Multilinear
    right: Multilinear

    @property
    def shape(self) -> Sizes:
        return (*self.left.shape[:-1], self.right.shape[-1])

    def elements(self, where: Indices, seed: int) -> Indices:
        batch = len(self.right.shape) - 2
        of_right = np.concatenate([where[:, :batch], where[:, -1:]], axis=1)
        depth = np.arange(self.left.shape[-1])
        return contract(
            where[:, :-1],
            of_right,
            lambda rows: _grid(self.left, rows, depth, -1, seed),
            lambda columns: _grid(self.right, columns, depth, -2, seed),
        )

    def cuts(self, axis: int) -> Ranges:
        last = len(self.left.shape) - 1
        if axis == last:
            return self.right.cuts(len(self.right.shape) - 1)
        if axis == last - 1 or len(self.right.shape) == 2:
            return self.left.cuts(axis)
        return refine(self.left.cuts(axis), self.right.cuts(axis))

    def __str__(self) -> str:
        return f"{shown_as_factor(self.left)} {shown_as_factor(self.right)}"


def shown_as_factor(source: Multilinear) -> str:
    """Return a program's name as it stands in a product."""
    return f"({source})" if isinstance(source, Sum | Product) else str(source)


def _grid(source: Multilinear, rows: Indices, depth: Indices, axis: int, seed: int) -> Indices:
    """Return the source at every row's position with every entry of ``depth`` put in at ``axis``."""
    place = axis % len(source.shape)
    where = np.insert(np.repeat(rows, len(depth), axis=0), place, np.tile(depth, len(rows)), axis=1)
    return source.at(where, seed).reshape(len(rows), len(depth))


def contract(
    of_left: Indices,
    of_right: Indices,
    left: Callable[[Indices], Indices],
    right: Callable[[Indices], Indices],
) -> Indices:
    """Return sums of products for pairs of positions, each row and each column asked for once.

    Float64 holds the sums exactly: of fewer than 2**53 / PRIME**2, about two million, terms.
    """
    rows, row = np.unique(of_left, axis=0, return_inverse=True)
    columns, column = np.unique(of_right, axis=0, return_inverse=True)
    table = left(rows).astype(np.float64) @ right(columns).astype(np.float64).T
    return (table[row.reshape(-1), column.reshape(-1)] % PRIME).astype(np.int64)


@dataclass(frozen=True)
class Convolved(Multilinear):
    """Two-dimensional convolution of one group of ``source`` by the filters ``weight``."""

    source: Multilinear
    weight: Multilinear
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)

    @property
    def shape(self) -> Sizes:
        batch, _, *sizes = self.source.shape
        height, width = (self._length(axis, size) for axis, size in enumerate(sizes))
        return batch, self.weight.shape[0], height, width

    def _length(self, axis: int, size: int) -> int:
        reach = self.dilation[axis] * (self.weight.shape[2 + axis] - 1) + 1
        return max(0, (size + 2 * self.padding[axis] - reach) // self.stride[axis] + 1)

    def elements(self, where: Indices, seed: int) -> Indices:
        return contract(
            where[:, [0, 2, 3]],
            where[:, 1:2],
            lambda places: self._windows(places, seed),
            lambda filters: self._filters(filters, seed),
        )

    @functools.cached_property
    def _taps(self) -> Indices:
        """Channel, row and column of every entry of a filter."""
        return np.array(list(np.ndindex(*self.weight.shape[1:])), dtype=np.int64)

    def _windows(self, places: Indices, seed: int) -> Indices:
        count, taps = len(places), self._taps
        moved = [
            (
                places[:, None, 1 + a] * self.stride[a]
                - self.padding[a]
                + taps[None, :, 1 + a] * self.dilation[a]
            )
            for a in (0, 1)
        ]
        images = np.broadcast_to(places[:, None, 0], (count, len(taps)))
        channels = np.broadcast_to(taps[None, :, 0], (count, len(taps)))
        where = np.stack([images, channels, *moved], axis=2).reshape(-1, 4)
        return self.source.at(where, seed).reshape(count, len(taps))

    def _filters(self, filters: Indices, seed: int) -> Indices:
        count, taps = len(filters), self._taps
        where = np.concatenate([np.repeat(filters, len(taps), axis=0), np.tile(taps, (count, 1))], axis=1)
        return self.weight.at(where, seed).reshape(count, len(taps))

    def cuts(self, axis: int) -> Ranges:
        if axis == 0:
            return self.source.cuts(0)
        if axis == 1:
            return self.weight.cuts(0)
        a = axis - 2
        edges = {*starts(self.source.cuts(axis)), self.source.shape[axis]}
        taps = range(self.weight.shape[axis])
        points = {
            -(-(edge + self.padding[a] - tap * self.dilation[a]) // self.stride[a])
            for edge in edges
            for tap in taps
        }
        return split_at(self.shape[axis], points)

    def __str__(self) -> str:
        return f"conv({self.source}, {self.weight})"


@dataclass(frozen=True)
class Sum(Multilinear):
    """Of two expressions of one shape."""

    left: Multilinear
    right: Multilinear

    @property
    def shape(self) -> Sizes:
        return self.left.shape

    def elements(self, where: Indices, seed: int) -> Indices:
        return (self.left.at(where, seed) + self.right.at(where, seed)) % PRIME

    def cuts(self, axis: int) -> Ranges:
        return refine(self.left.cuts(axis), self.right.cuts(axis))

    def __str__(self) -> str:
        return f"{self.left} + {self.right}"


def refine(one: Ranges, other: Ranges) -> Ranges:
    """Return ranges without steps that lie in one range of both."""
    stop = max(r.stop for r in (*one, *other))
    return split_at(stop, starts(one) | starts(other))


def operators_in(program: Multilinear) -> int:
    """Return how many operators a program has, each as often as it is written."""
    return 0 if isinstance(program, Input) else 1 + sum(map(operators_in, program.sources))


def elements_in(shape: Sizes) -> int:
    """Return the elements of a shape."""
    return math.prod(shape)


def all_positions(shape: Sizes) -> Indices:
    """Return every position of a shape, in order."""
    return np.array(list(itertools.product(*map(range, shape))), dtype=np.int64).reshape(-1, len(shape))
