"""Optimistic profiling (section 3.1): what a job needs of processors and memory for its best speed.

Speed is measured along the axis of processors alone, with all memory, at points found by halving intervals,
as long as an interval gains a tenth or more. How memory matters follows from a model of the cache: what it
does not hold of the data set comes from storage. Where the size of the data set is not told the axis of
memory is measured in the same way, with as many processors as are needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from experiments.cluster.planning.performance.sensitivity import ResourceSpeed

#: What an interval has to gain to be halved, and what of the best speed is the best speed.
GAIN, BEST = 1.1, 0.999


@dataclass(frozen=True)
class Vector:
    """Processors and bytes of memory for each GPU."""

    cpus: float
    memory: float

    def exceeds(self, other: Vector) -> bool:
        return self.cpus > other.cpus or self.memory > other.memory

    def least(self, other: Vector) -> Vector:
        return Vector(min(self.cpus, other.cpus), min(self.memory, other.memory))

    def most(self, other: Vector) -> Vector:
        return Vector(max(self.cpus, other.cpus), max(self.memory, other.memory))


@dataclass(frozen=True)
class Profile:
    """What a job wants for its best speed, and what it can be ``cut`` to.

    A cut has no more than an ``equal`` part (of what was ever measured), and leaves the job as fast as that
    would. ``points`` counts measurements.
    """

    best: Vector
    cut: Vector
    equal: Vector
    points: int


def profile(job: int, model: ResourceSpeed, whole: Vector, equal: Vector, storage: float) -> Profile:
    """Measure ``job``, of which one GPU could have ``whole``; ``storage`` is in bytes/s."""
    cpus_axis, most_memory = _axes(job, model, whole)
    by_cpus = _halve(cpus_axis, lambda cpus: model.speed(job, cpus, most_memory))
    cpus = _enough(by_cpus)
    needed, points = _memory(job, model, cpus, most_memory, storage)
    best, equal = Vector(cpus, needed), _measured(job, model, equal)
    points += len(by_cpus)
    fast = model.speed(job, equal.cpus, equal.memory) * BEST
    if model.speed(job, best.cpus, best.memory) < fast:
        best = best.most(equal)
    cut = best.least(equal)
    if model.speed(job, cut.cpus, cut.memory) < fast:
        best, cut = best.most(equal), equal
    return Profile(best, cut, equal, points)


def _axes(job: int, model: ResourceSpeed, whole: Vector) -> tuple[Sequence[float], float]:
    """Whole processors from one to all of a node, and all its memory; no more than was ever measured."""
    grid = model.grid(job)
    most = min(whole.cpus, grid.cpus[-1])
    axis = [float(count) for count in range(1, math.floor(most) + 1)]
    return axis or [most], min(whole.memory, grid.memory[-1])


def _measured(job: int, model: ResourceSpeed, equal: Vector) -> Vector:
    """An equal part, no more than was ever measured."""
    grid = model.grid(job)
    return equal.least(Vector(grid.cpus[-1], grid.memory[-1]))


def _halve(axis: Sequence[float], speed: Callable[[float], float]) -> dict[float, float]:
    """Speeds at the ends of an axis, and in the middle of every interval that gains."""
    found = {axis[0]: speed(axis[0]), axis[-1]: speed(axis[-1])}
    intervals = [(0, len(axis) - 1)]
    while intervals:
        first, last = intervals.pop()
        if last - first < 2 or found[axis[last]] < GAIN * found[axis[first]]:
            continue
        middle = (first + last) // 2
        found[axis[middle]] = speed(axis[middle])
        intervals += [(first, middle), (middle, last)]
    return found


def _enough(found: dict[float, float]) -> float:
    """The least measured amount that keeps the best speed."""
    best = max(found.values())
    return min(amount for amount, speed in found.items() if speed >= BEST * best)


def _memory(job: int, model: ResourceSpeed, cpus: float, most: float, storage: float) -> tuple[float, int]:
    """Bytes that keep the speed that ``cpus`` allow, and how many measurements that took."""
    grid = model.grid(job)
    if not math.isnan(grid.dataset) and not math.isnan(grid.step_bytes) and math.isfinite(storage):
        read = model.speed(job, cpus, most) * grid.step_bytes
        cached = max(0.0, 1 - storage / read) * grid.dataset
        return min(most, max(cached, grid.memory[0])), 0
    steps = [size for size in grid.memory if size < most] + [most]
    found = _halve(steps, lambda size: model.speed(job, cpus, size))
    return _enough(found), len(found)
