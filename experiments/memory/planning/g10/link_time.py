"""Room on the links, slot by slot: a slot is the time of one op, a lane one direction of storage or of the
host link.

Storage traffic passes the host link too, so what is booked on a storage lane is booked on the link, and what
fills the link leaves nothing to storage.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from experiments.workloads.step import Floats

OUT, BACK = 0, 1


class LinkTime:
    """The time of the links that is still free, by slots.

    ``storage`` and ``link``: bytes per microsecond out and back; ``lengths``: microseconds of every slot.
    """

    def __init__(self, lengths: Floats, storage: tuple[float, float], link: tuple[float, float]) -> None:
        self.storage = tuple(BookedLane(lengths * rate) for rate in storage)
        self.link = tuple(BookedLane(lengths * rate) for rate in link)

    def lanes(self, host: bool) -> tuple[BookedLane, ...]:
        return self.link if host else self.storage

    def book(self, host: bool, direction: int, size: int, start: int) -> None:
        """Fill free room from slot ``start`` forward with ``size`` bytes."""
        lane = self.lanes(host)[direction]
        slots, amounts = lane.fill(size, start)
        if host:
            self._crowd_out(direction, slots)
        else:
            self.link[direction].add(slots, amounts)

    def _crowd_out(self, direction: int, slots: npt.NDArray[np.intp]) -> None:
        """A slot of the link that is full leaves storage nothing, a fuller one the rest."""
        link, storage = self.link[direction], self.storage[direction]
        full = link.full[slots]
        storage.full[slots[full]] = True
        partly = slots[~full]
        excess = link.used[partly] - (link.capacity[partly] - storage.capacity[partly])
        storage.add(partly[excess >= 0], excess[excess >= 0])


class BookedLane:
    """``used`` bytes of ``capacity`` in every slot of a lane.

    A slot that is ``full`` has no free bytes whatever it has used.
    """

    def __init__(self, capacity: Floats) -> None:
        self.capacity = capacity
        self.used = np.zeros_like(capacity)
        self.full = np.zeros(len(capacity), np.bool_)

    @property
    def free(self) -> Floats:
        return np.where(self.full, 0.0, self.capacity - self.used)

    def forward(self, size: float, start: int) -> int:
        """The first slot by whose end ``size`` bytes have passed from ``start`` on.

        The last slot where none is.
        """
        passed = np.cumsum(self.free[start:])
        slot = start + int(np.searchsorted(passed, size))
        return min(slot, len(self.capacity) - 1)

    def backward(self, size: float, end: int) -> int:
        """The last slot from whose start ``size`` bytes pass before slot ``end`` begins; 0 where none is."""
        passed = np.cumsum(self.free[:end][::-1])
        return max(end - 1 - int(np.searchsorted(passed, size)), 0)

    def fill(self, size: int, start: int) -> tuple[npt.NDArray[np.intp], Floats]:
        """Book ``size`` bytes from ``start`` on; the slots and the bytes booked in each."""
        room = self.free[start:]
        before = np.cumsum(room) - room
        amounts = np.clip(size - before, 0.0, room)
        slots = np.nonzero(amounts > 0)[0] + start
        self.add(slots, amounts[slots - start])
        return slots, amounts[slots - start]

    def add(self, slots: npt.NDArray[np.intp], amounts: Floats) -> None:
        """``amounts`` more bytes in ``slots``, at most what they hold."""
        self.used[slots] = np.minimum(self.used[slots] + amounts, self.capacity[slots])
        self.full[slots] |= self.used[slots] >= self.capacity[slots]
