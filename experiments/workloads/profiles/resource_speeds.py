"""Speeds by processors and host memory: what each model does per second on so much of both for each GPU."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

from experiments.workloads.step import Floats


@dataclass(frozen=True, eq=False)
class SpeedGrid:
    """One model's measurements.

    ``cpus``        processors for each GPU, ascending.
    ``memory``      bytes of host memory for each GPU, ascending.
    ``speed``       steps per second, a row for each of ``cpus``, a column for each of ``memory``; more is
                    never slower.
    ``dataset``     bytes of its data set (NaN: not told).
    ``step_bytes``  of it that a step reads (NaN: not told).
    ``capped``      whether measurements that fell were raised to what less gave.
    """

    cpus: tuple[float, ...]
    memory: tuple[float, ...]
    speed: Floats
    dataset: float = math.nan
    step_bytes: float = math.nan
    capped: bool = False

    def at(self, cpus: float, memory: float) -> float:
        """Return steps per second: those of the largest measurement that is no more.

        Below the least measurement they are in proportion.
        """
        row, column = bisect_right(self.cpus, cpus) - 1, bisect_right(self.memory, memory) - 1
        part = min(1.0, cpus / self.cpus[0]) * min(1.0, memory / self.memory[0])
        return float(self.speed[max(row, 0), max(column, 0)]) * part


@dataclass(frozen=True)
class ResourceSpeeds:
    """The measurements of each model of a side file."""

    name: str
    models: Mapping[str, SpeedGrid]
