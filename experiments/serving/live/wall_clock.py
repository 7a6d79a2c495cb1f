"""The wall clock of a run, in seconds of its trace."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from experiments.serving.interface.executor import AWAKE
from experiments.serving.live.pace_meter import PaceMeter

Clock = Callable[[], float]


class WallClock:
    """``clock`` counts seconds, and ``wait`` lets some pass; it starts when it is first asked.

    ``meter`` reads the host's pace between steps, where there is one.
    """

    def __init__(
        self,
        clock: Clock = time.perf_counter,
        wait: Callable[[float], None] = time.sleep,
        meter: PaceMeter | None = None,
    ) -> None:
        self._clock, self._wait, self._meter = clock, wait, meter
        self._began: float | None = None
        self._woken = self._ended = 0.0

    @property
    def now(self) -> float:
        assert self._began is not None, "reach comes first"
        return self._clock() - self._began

    def reach(self, moment: float) -> float:
        """Return the time, which is ``moment`` at the earliest: until then nothing happens."""
        if self._began is None:
            self._began, self._woken = self._clock() - moment, moment
        left = moment - self.now
        if left > 0:
            self._woken = moment
        if left > AWAKE:
            self._wait(left - AWAKE)
        while self.now < moment:
            pass
        return max(moment, self.now)

    def end_step(self) -> tuple[float, float]:
        """Return when the step that ends now began, as the one before it ended or after a wait, and now."""
        began, self._ended = max(self._ended, self._woken), self.now
        if self._meter is not None:
            self._meter.tick()
        return began, self._ended

    @property
    def readings(self) -> Sequence[tuple[float, float]]:
        """Moments of this clock at which the meter read the pace, and the seconds that each reading took."""
        if self._meter is None or self._began is None:
            return []
        found = [(moment - self._began, seconds) for moment, seconds in self._meter.readings]
        return [reading for reading in found if reading[0] >= 0]
