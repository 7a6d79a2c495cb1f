"""How fast a host is at each moment, next to how fast it usually is: a change of clocks.

What takes so many seconds at the usual pace is over when the host has done as much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
#: Readings of so many seconds tell one factor, with those of as long before and after them.
STRETCH = 0.25


@dataclass(frozen=True)
class Pace:
    """From each moment ``since`` on (s, ascending) everything takes ``factors`` times as long as usual.

    Before the first moment it takes as long as from it on.
    """

    since: Floats
    factors: Floats

    @classmethod
    def steady(cls, factor: float) -> Pace:
        """Always the same."""
        return cls(np.zeros(1), np.array([factor]))

    @classmethod
    def of(cls, readings: Sequence[tuple[float, float]], usual: float) -> Pace:
        """By ``readings`` of a meter, each a moment and the seconds that it took; the usual one without any.

        A reading takes ``usual`` seconds at the usual pace.
        """
        if not readings:
            return cls.steady(1.0)
        moments, seconds = np.array(readings, np.float64).T
        places = np.floor((moments - moments[0]) / STRETCH).astype(np.int64)
        counts, sums = (
            np.convolve(np.bincount(places, each), np.ones(3))[1:-1]
            for each in (np.ones(len(places)), seconds)
        )
        known = np.flatnonzero(counts)
        factors = np.interp(np.arange(len(counts)), known, sums[known] / counts[known]) / usual
        return cls(moments[0] + STRETCH * np.arange(len(counts)), factors)

    @property
    def mean(self) -> float:
        """Of the stretches that it knows."""
        return float(self.factors.mean())

    @cached_property
    def _done(self) -> Floats:
        """Usual seconds done by each of ``since``, counted from the first."""
        return np.concatenate([[0.0], np.cumsum(np.diff(self.since) / self.factors[:-1])])

    def done(self, moment: float) -> float:
        """Return the usual seconds that the host has done until ``moment``."""
        place = max(0, int(np.searchsorted(self.since, moment, "right")) - 1)
        return float(self._done[place] + (moment - self.since[place]) / self.factors[place])

    def after(self, now: float, seconds: Floats) -> Floats:
        """Return the moments at which so many usual ``seconds`` are done that began ``now``."""
        done = self.done(now) + seconds
        places = np.maximum(np.searchsorted(self._done, done, "right") - 1, 0)
        moments: Floats = self.since[places] + (done - self._done[places]) * self.factors[places]
        return moments
