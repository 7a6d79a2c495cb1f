"""Which elements of a mutant are right.

Tested box by box, never guessed from samples (PET, OSDI 2021, section 5).

Both programs' cuts along every axis are refined to one grid of boxes. Inside a box every element of either
program is the same sum over a sliding window, so their difference is linear in the position along each axis:
it vanishes in the whole box if it does at the box's first corner and one step from it along each axis
(theorem 1). Two different linear programs of n random inputs agree at a position modulo the prime by chance
with a probability of at most n / PRIME, which several draws make negligible (theorem 2).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from experiments.compilation.policies.pet.expressions import BATCH, HEIGHT, WIDTH, Expression

DRAWS = 3
Positions = tuple[int, ...]


@dataclass(frozen=True)
class Rectangle:
    """Images, rows and columns (every channel) of an output, as half-open ranges."""

    images: tuple[int, int]
    rows: tuple[int, int]
    columns: tuple[int, int]

    @property
    def positions(self) -> int:
        return int(np.prod([stop - start for start, stop in (self.images, self.rows, self.columns)]))


@dataclass(frozen=True)
class MutantVerdict:
    """``wrong`` [batch, height, width] marks the positions that a mutant gets wrong in some channel."""

    boxes: int
    wrong: npt.NDArray[np.bool_]

    @property
    def right_share(self) -> float:
        return 1.0 - float(self.wrong.mean())

    def rectangles(self) -> list[Rectangle]:
        """Return the wrong positions as disjoint rectangles, equal ones of consecutive images together."""
        by_image = [sorted(_rectangles(image)) for image in self.wrong]
        found = []
        for rows, columns in sorted({r for image in by_image for r in image}):
            holders = [n for n, image in enumerate(by_image) if (rows, columns) in image]
            found += [Rectangle(images, rows, columns) for images in _runs(holders)]
        return found


def compare(original: Expression, mutant: Expression) -> MutantVerdict:
    """Test ``mutant`` against ``original``, which has the same shape, on every box."""
    grid = [refine(original.cuts(axis), mutant.cuts(axis)) for axis in range(4)]
    boxes = list(itertools.product(*grid))
    corners = [_corners(box) for box in boxes]
    where = np.array([point for box in corners for point in box], dtype=np.int64)
    differs = np.zeros(len(where), dtype=bool)
    for seed in range(DRAWS):
        differs |= original.at(where, seed) != mutant.at(where, seed)
    wrong = np.zeros((original.shape[BATCH], original.shape[HEIGHT], original.shape[WIDTH]), dtype=bool)
    first = 0
    for box, points in zip(boxes, corners, strict=True):
        if differs[first : first + len(points)].any():
            wrong[np.ix_(box[BATCH], box[HEIGHT], box[WIDTH])] = True
        first += len(points)
    return MutantVerdict(len(boxes), wrong)


def refine(one: Sequence[range], other: Sequence[range]) -> list[Positions]:
    """Return the axis' positions grouped by the ranges of both in which they lie.

    Each group has equal steps.
    """
    pairs = ((a, set(b)) for a in one for b in other)
    return [group for a, b in pairs if (group := tuple(p for p in a if p in b))]


def _corners(box: Sequence[Positions]) -> list[tuple[int, ...]]:
    """Return the first position of the box and the next along each axis that has one."""
    corner = [axis[0] for axis in box]
    found = [tuple(corner)]
    for number, axis in enumerate(box):
        if len(axis) > 1:
            found.append((*corner[:number], axis[1], *corner[number + 1 :]))
    return found


def _rectangles(wrong: npt.NDArray[np.bool_]) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Disjoint (rows, columns) that cover the marks of one image.

    Runs of equal columns, then of what is left.
    """
    left = wrong.copy()
    for columns in _runs(np.flatnonzero(left.all(axis=0)).tolist()):
        yield (0, left.shape[0]), columns
        left[:, columns[0] : columns[1]] = False
    while left.any():
        row = int(np.flatnonzero(left.any(axis=1))[0])
        columns = next(iter(_runs(np.flatnonzero(left[row]).tolist())))
        broken = np.flatnonzero(~left[row:, columns[0] : columns[1]].all(axis=1))
        rows = (row, row + int(broken[0]) if broken.size else left.shape[0])
        yield rows, columns
        left[rows[0] : rows[1], columns[0] : columns[1]] = False


def _runs(positions: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Runs of consecutive positions as half-open ranges."""
    for _, group in itertools.groupby(enumerate(positions), key=lambda pair: pair[1] - pair[0]):
        members = [position for _, position in group]
        yield members[0], members[-1] + 1
