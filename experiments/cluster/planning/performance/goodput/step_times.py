"""The time of a step on any placement, from the placements that were measured.

A placement is the number of devices on each node, in the order of the ring along which gradients travel;
where the ring begins changes nothing. One that was measured is interpolated between its batches. Of others,
measurements are averaged by (nodes, GPUs, batch on each) and interpolated between those, on a Delaunay
triangulation as Pollux' simulator does. Outside all that was measured the nearest measurement stands in.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import numpy as np

from experiments.workloads.profiles.training_runs import StepTimes, TrainingRun
from experiments.workloads.step import Floats

Placement = tuple[int, ...]
#: A tetrahedron of less than this part of the largest one's volume has none.
FLAT = 1e-12


class MeasuredSteps:
    """The steps of one application."""

    def __init__(self, run: TrainingRun) -> None:
        self._run = run
        self._known: dict[tuple[Placement, int], tuple[float, float]] = {}

    @property
    def batches(self) -> tuple[int, int]:
        """The fewest and the most samples on a device that were measured on some placement."""
        measured = self._run.placed.values()
        fewest = min(float(times.batch[0]) for times in measured)
        return int(fewest), int(max(float(times.batch[-1]) for times in measured))

    def time(self, placement: Placement, each: int) -> tuple[float, float]:
        """Seconds of a step with ``each`` samples on every device, and those of it spent on gradients."""
        key = (_from_smallest(placement), each)
        if key not in self._known:
            self._known[key] = self._look_up(*key)
        return self._known[key]

    def _look_up(self, placement: Placement, each: int) -> tuple[float, float]:
        times = self._run.placed.get(placement)
        if times is not None:
            return _between(times, each)
        nodes = min(len(placement), self._most_nodes)
        where = np.array([nodes, sum(placement), each], np.float64)
        points, values = self._points
        found = np.full(2, np.nan) if self._interpolator is None else self._interpolator(where)[0]
        if np.isnan(found).any():
            found = values[_nearest(points, where)]
        return float(found[0]), float(found[1])

    @property
    def _most_nodes(self) -> int:
        return int(self._points[0][:, 0].max())

    @cached_property
    def _points(self) -> tuple[Floats, Floats]:
        """Rows of (nodes, GPUs, batch on each), and of (step, sync) there."""
        sums: dict[tuple[float, float, float], list[tuple[float, float]]] = defaultdict(list)
        for placement, times in self._run.placed.items():
            for batch, step, sync in _rows(times):
                sums[len(placement), sum(placement), batch].append((step, sync))
        rows = [(*key, *np.mean(found, axis=0).tolist()) for key, found in sorted(sums.items())]
        for (nodes, gpus), times in self._run.scattered.items():
            rows += [(nodes, gpus, *row) for row in _rows(times)]
        table = np.array(rows, np.float64)
        return table[:, :3], table[:, 3:]

    @cached_property
    def _interpolator(self) -> Callable[[Floats], Floats] | None:
        """``None`` where measurements lie in one plane."""
        from scipy.interpolate import LinearNDInterpolator  # scipy takes a while
        from scipy.spatial import Delaunay, QhullError

        points, values = self._points
        try:
            triangulation = Delaunay(points)
        except (QhullError, ValueError):
            return None
        # Else scipy computes it by LAPACK, whose threads take seconds for it where cores are shared.
        triangulation._transform = _barycentric(points[triangulation.simplices])  # type: ignore[attr-defined]
        found: Callable[[Floats], Floats] = LinearNDInterpolator(triangulation, values)
        return found


def _barycentric(corners: Floats) -> Floats:
    """From places to weights of each tetrahedron's corners, as ``Delaunay.transform``; NaN of flat ones."""
    first, second, third = (corners[:, place] - corners[:, 3] for place in range(3))
    normals = np.stack((np.cross(second, third), np.cross(third, first), np.cross(first, second)), axis=1)
    volume = (first * normals[:, 0]).sum(axis=1)
    volume[np.abs(volume) <= FLAT * np.abs(volume).max()] = np.nan
    return np.concatenate((normals / volume[:, None, None], corners[:, 3:]), axis=1)


def _from_smallest(placement: Placement) -> Placement:
    """The rotation that comes first in lexicographical order."""
    return min(placement[place:] + placement[:place] for place in range(len(placement)))


def _rows(times: StepTimes) -> Iterator[tuple[float, float, float]]:
    return zip(times.batch.tolist(), times.step.tolist(), times.sync.tolist(), strict=True)


def _between(times: StepTimes, each: float) -> tuple[float, float]:
    """Step and sync on the line between the two neighboring batches."""
    batch = times.batch.tolist()
    each = min(max(each, batch[0]), batch[-1])
    upper = min(max(bisect_left(batch, each), 1), len(batch) - 1)
    if not upper:
        return float(times.step[0]), float(times.sync[0])
    lower = upper - 1
    span, over = batch[upper] - batch[lower], each - batch[lower]
    step, sync = (_line(column, lower, upper, span, over) for column in (times.step, times.sync))
    return step, sync


def _line(column: Sequence[float] | Floats, lower: int, upper: int, span: float, over: float) -> float:
    slope = (column[upper] - column[lower]) / span
    return float(slope * over + column[lower])


def _nearest(points: Floats, where: Floats) -> int:
    """The row of the measurement nearest in ratios of nodes, GPUs and batch."""
    return int(np.argmin(((np.log(points) - np.log(where)) ** 2).sum(axis=1)))
