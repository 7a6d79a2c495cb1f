"""How a process keeps to its share of a slot: what it has computed too much, it waits for."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Seconds of its share that a process may make up for after it was held up, and the longest single wait.
MOST_BEHIND, NAP = 0.5, 0.02


class Pace:
    """A process' account of processor seconds: it earns ``share`` of them a second, at most a whole one."""

    def __init__(
        self,
        share: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        computed: Callable[[], float] = time.process_time,
    ) -> None:
        self.share, self.clock, self.computed = share, clock, computed
        self.at, self.used, self.credit = clock(), computed(), 0.0

    def debt(self) -> float:
        """Return the seconds to wait until what was computed is earned."""
        share, now, used = self.share, self.clock(), self.computed()
        self.credit += (now - self.at) * share - (used - self.used)
        self.credit = min(self.credit, MOST_BEHIND * share)
        self.at, self.used = now, used
        if share >= 1.0:
            self.credit = max(0.0, self.credit)
        return max(0.0, -self.credit / share)

    def wait(self, is_called: Callable[[], bool] = lambda: False) -> None:
        """Wait until nothing is owed, or until somebody calls; another share counts at once."""
        while (left := self.debt()) > 0 and not is_called():
            time.sleep(min(left, NAP))
