"""Layouts of what programs are computed from: exchanged axes, joins, rows of batches, composed filters."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from experiments.compilation.policies.pet.expressions import Indices, split_at, starts
from experiments.compilation.policies.pet.multilinear import (
    Convolved,
    Multilinear,
    Ranges,
    Sizes,
    refine,
    shown_as_factor,
)


@dataclass(frozen=True)
class Permuted(Multilinear):
    """Axis n of the result is axis ``axes[n]`` of the source."""

    source: Multilinear
    axes: Sizes

    @property
    def shape(self) -> Sizes:
        return tuple(self.source.shape[axis] for axis in self.axes)

    def elements(self, where: Indices, seed: int) -> Indices:
        return self.source.at(where[:, np.argsort(self.axes)], seed)

    def cuts(self, axis: int) -> Ranges:
        return self.source.cuts(self.axes[axis])

    def __str__(self) -> str:
        return f"{shown_as_factor(self.source)}'"


def transpose(source: Multilinear) -> Multilinear:
    """Return the source with its last two axes exchanged; of a transposed one what it was."""
    *batch, rows, columns = range(len(source.shape))
    axes = (*batch, columns, rows)
    return source.source if isinstance(source, Permuted) and source.axes == axes else Permuted(source, axes)


@dataclass(frozen=True)
class Joined(Multilinear):
    """Two expressions next to each other along an axis."""

    left: Multilinear
    right: Multilinear
    axis: int

    @property
    def shape(self) -> Sizes:
        sizes = list(self.left.shape)
        sizes[self.axis] += self.right.shape[self.axis]
        return tuple(sizes)

    def elements(self, where: Indices, seed: int) -> Indices:
        moved = where.copy()
        moved[:, self.axis] -= self.left.shape[self.axis]
        return self.left.at(where, seed) + self.right.at(moved, seed)

    def cuts(self, axis: int) -> Ranges:
        left, right = self.left.cuts(axis), self.right.cuts(axis)
        if axis != self.axis:
            return refine(left, right)
        size = self.left.shape[axis]
        return (*left, *(range(size + r.start, size + r.stop, r.step) for r in right))

    def __str__(self) -> str:
        return f"[{self.left}, {self.right}]"


@dataclass(frozen=True)
class MergedRows(Multilinear):
    """A batch of matrices [batch, rows, columns] as one: [batch x rows, columns]."""

    source: Multilinear

    @property
    def shape(self) -> Sizes:
        batch, rows, columns = self.source.shape
        return batch * rows, columns

    def elements(self, where: Indices, seed: int) -> Indices:
        batch, row = np.divmod(where[:, 0], self.source.shape[1])
        return self.source.at(np.stack([batch, row, where[:, 1]], axis=1), seed)

    def cuts(self, axis: int) -> Ranges:
        if axis == 1:
            return self.source.cuts(2)
        batch, rows, _ = self.source.shape
        firsts = starts(self.source.cuts(1))
        return split_at(batch * rows, {one * rows + p for one in range(batch) for p in firsts})

    def __str__(self) -> str:
        return f"rows({self.source})"


@dataclass(frozen=True)
class SplitRows(Multilinear):
    """The reverse of ``MergedRows``: [batch x rows, columns] as [batch, rows, columns]."""

    source: Multilinear
    batch: int

    @property
    def shape(self) -> Sizes:
        rows, columns = self.source.shape
        return self.batch, rows // self.batch, columns

    def elements(self, where: Indices, seed: int) -> Indices:
        row = where[:, 0] * self.shape[1] + where[:, 1]
        return self.source.at(np.stack([row, where[:, 2]], axis=1), seed)

    def cuts(self, axis: int) -> Ranges:
        if axis == 2:
            return self.source.cuts(1)
        if axis == 0:
            return tuple(range(n, n + 1) for n in range(self.batch))
        rows = self.shape[1]
        return split_at(rows, {p % rows for p in starts(self.source.cuts(0))})

    def __str__(self) -> str:
        return f"matrices({self.source})"


@dataclass(frozen=True)
class Composed(Multilinear):
    """The filters that do at once what ``first`` and then ``second`` do, where nothing is cut off between."""

    first: Multilinear
    second: Multilinear

    @functools.cached_property
    def convolution(self) -> Multilinear:
        """Each filter of the first, by its channels, passed through the second turned around."""
        height, width = self.second.shape[2:]
        around = Convolved(
            Permuted(self.first, (1, 0, 2, 3)), Flipped(self.second), padding=(height - 1, width - 1)
        )
        return Permuted(around, (1, 0, 2, 3))

    @property
    def shape(self) -> Sizes:
        return self.convolution.shape

    def elements(self, where: Indices, seed: int) -> Indices:
        return self.convolution.at(where, seed)

    def cuts(self, axis: int) -> Ranges:
        return self.convolution.cuts(axis)

    def __str__(self) -> str:
        return f"compose({self.first}, {self.second})"


@dataclass(frozen=True)
class Flipped(Multilinear):
    """Rows and columns of images in the opposite order."""

    source: Multilinear

    @property
    def shape(self) -> Sizes:
        return self.source.shape

    def elements(self, where: Indices, seed: int) -> Indices:
        turned = where.copy()
        turned[:, 2:] = np.array(self.shape[2:]) - 1 - where[:, 2:]
        return self.source.at(turned, seed)

    def cuts(self, axis: int) -> Ranges:
        if axis < 2:
            return self.source.cuts(axis)
        size = self.shape[axis]
        return split_at(size, {size - p for p in starts(self.source.cuts(axis))})
