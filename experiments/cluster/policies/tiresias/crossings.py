"""When running jobs reach the limits of their queues: the earliest without a look at all of them.

Times are as near as numbers of this size are; who is near is looked at exactly by the caller.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

#: Share of the clock, and seconds at least, within which two times may be the same.
NEAR = 1e-9
LEAST = 1e-6


@dataclass
class Crossings:
    """A heap of times; ``valid`` has each job's own, and what else is in the heap is passed over."""

    heap: list[tuple[float, int]] = field(default_factory=list)
    valid: dict[int, float] = field(default_factory=dict)

    def expect(self, job: int, time: float) -> None:
        self.valid[job] = time
        heapq.heappush(self.heap, (time, job))

    def forget(self, jobs: Iterable[int]) -> None:
        """These jobs do not run any more."""
        for job in jobs:
            self.valid.pop(job, None)

    def near(self, now: float) -> list[int]:
        """The jobs whose time has come, or nearly."""
        found = self._take(now + margin(now))
        return self._put_back(found)

    def first_after(self, now: float) -> list[int]:
        """The jobs whose time is the first after ``now``, and those next to it or to now."""
        found = self._take(now + margin(now))
        if self.heap:
            found += self._take(self.heap[0][0] + margin(now))
        return self._put_back(found)

    def _take(self, until: float) -> list[tuple[float, int]]:
        """Take out valid entries up to a time; the first that is left is valid too."""
        found: list[tuple[float, int]] = []
        heap, valid = self.heap, self.valid
        while heap:
            time, job = heap[0]
            is_valid = valid.get(job) == time
            if is_valid and time > until:
                break
            heapq.heappop(heap)
            if is_valid:
                found.append((time, job))
        return found

    def _put_back(self, found: list[tuple[float, int]]) -> list[int]:
        for entry in found:
            heapq.heappush(self.heap, entry)
        return list(dict.fromkeys(job for _, job in found))


def margin(now: float) -> float:
    """How far apart two times may be that are the same."""
    return max(LEAST, NEAR * abs(now))
