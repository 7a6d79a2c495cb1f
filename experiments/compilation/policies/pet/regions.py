"""Which boxes of a program of several operators are right, and the wrong ones as disjoint regions.

The test is that of ``boxes``, with any number of axes: both programs' cuts are refined to one grid, and a box
is right if its first corner and one step along each axis are.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.compilation.policies.pet.boxes import DRAWS, Positions, refine
from experiments.compilation.policies.pet.multilinear import Multilinear, elements_in

#: For every axis a half-open range.
Region = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class RegionVerdict:
    """How many boxes were tested, the wrong regions (disjoint), and the share of elements that are right."""

    boxes: int
    wrong: tuple[Region, ...]
    right_share: float


def compare_programs(original: Multilinear, mutant: Multilinear) -> RegionVerdict:
    """Test ``mutant`` against ``original``, which has the same shape, on every box."""
    axes = range(len(original.shape))
    grid = [refine(original.cuts(axis), mutant.cuts(axis)) for axis in axes]
    boxes = list(itertools.product(*grid))
    points = [corners(box) for box in boxes]
    where = np.array([point for box in points for point in box], dtype=np.int64)
    differs = np.zeros(len(where), dtype=bool)
    for seed in range(DRAWS):
        differs |= original.at(where, seed) != mutant.at(where, seed)
    wrong, first = [], 0
    for box, own in zip(boxes, points, strict=True):
        if differs[first : first + len(own)].any():
            wrong += list(regions_of(box))
        first += len(own)
    missed = sum(elements_in(tuple(stop - start for start, stop in region)) for region in wrong)
    return RegionVerdict(len(boxes), merge_regions(wrong), 1.0 - missed / elements_in(original.shape))


def corners(box: Sequence[Positions]) -> list[tuple[int, ...]]:
    """Return the first position of the box and the next along each axis that has one."""
    corner = tuple(axis[0] for axis in box)
    steps = [(*corner[:n], axis[1], *corner[n + 1 :]) for n, axis in enumerate(box) if len(axis) > 1]
    return [corner, *steps]


def regions_of(box: Sequence[Positions]) -> Iterator[Region]:
    """Yield a box, whose positions may have gaps, as regions without any."""
    yield from itertools.product(*(_runs(axis) for axis in box))


def _runs(positions: Positions) -> list[tuple[int, int]]:
    groups = itertools.groupby(enumerate(positions), key=lambda pair: pair[1] - pair[0])
    runs = [[position for _, position in group] for _, group in groups]
    return [(run[0], run[-1] + 1) for run in runs]


def merge_regions(regions: Iterable[Region]) -> tuple[Region, ...]:
    """Return the regions with those joined that follow each other along one axis and are equal in others."""
    found = sorted(regions)
    for axis in reversed(range(len(found[0]) if found else 0)):
        found = sorted(_merged_along(found, axis))
    return tuple(found)


def _merged_along(regions: Sequence[Region], axis: int) -> Iterator[Region]:
    def others(region: Region) -> Region:
        return region[:axis] + region[axis + 1 :]

    ordered = sorted(regions, key=lambda region: (others(region), region[axis]))
    for _, group in itertools.groupby(ordered, key=others):
        current: Region | None = None
        for region in group:
            if current is not None and current[axis][1] == region[axis][0]:
                current = (*current[:axis], (current[axis][0], region[axis][1]), *current[axis + 1 :])
                continue
            if current is not None:
                yield current
            current = region
        assert current is not None
        yield current
