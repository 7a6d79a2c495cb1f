"""Unions of time intervals and what they have in common."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from experiments.workloads.step import Floats

#: Profilers tell whole nanoseconds: what differs by less than half of one is equal (seconds).
TIE = 0.5e-9


@dataclass(frozen=True)
class Union:
    """Intervals that do not touch, in order; times in seconds."""

    start: Floats
    end: Floats

    @classmethod
    def of(cls, start: Floats, end: Floats) -> Union:
        """All moments that lie in at least one of the given intervals."""
        if not len(start):
            return cls(np.empty(0), np.empty(0))
        order = np.argsort(start, kind="stable")
        begin, until = start[order], np.maximum.accumulate(end[order])
        fresh: npt.NDArray[np.bool_] = np.append(True, begin[1:] > until[:-1])
        last = np.append(np.flatnonzero(fresh)[1:] - 1, len(begin) - 1)
        return cls(begin[fresh], until[last])

    @property
    def seconds(self) -> float:
        return float((self.end - self.start).sum())

    def __or__(self, other: Union) -> Union:
        return Union.of(np.append(self.start, other.start), np.append(self.end, other.end))

    def overlap(self, other: Union) -> float:
        """Seconds in which both are."""
        return max(0.0, self.seconds + other.seconds - (self | other).seconds)

    def within(self, start: float, end: float) -> Union:
        """The part between two moments."""
        begin, until = np.maximum(self.start, start), np.minimum(self.end, end)
        kept = begin < until
        return Union(begin[kept], until[kept])
