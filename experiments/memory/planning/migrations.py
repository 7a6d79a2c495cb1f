"""G10's planner: which tensors leave in which gaps, to storage or to the host, and when they come back.

Times are microseconds, bandwidths bytes per microsecond, sizes bytes. The procedure is the artifact's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from experiments.memory.interface.paged import PagedStep
from experiments.memory.planning.benefit import benefits
from experiments.memory.planning.gaps import Gaps, gaps_of
from experiments.memory.planning.link_time import BACK, OUT, LinkTime
from experiments.memory.planning.load import Load, load_until_fits, slot_at
from experiments.memory.planning.priority import Priority


class Hint(NamedTuple):
    """Before ``op``: ``write`` a tensor to ``tier``, ``read`` it back, ``allocate`` or ``free`` it."""

    op: int
    tensor: int
    kind: str
    tier: str = ""


class Moved(NamedTuple):
    """An ordinary gap that was taken: its tensor is away on the ops between ``gone`` and ``back``."""

    gap: int
    gone: int
    back: int
    host: bool


@dataclass(frozen=True)
class Room:
    """What the planner plans for. Rates are (out, back); ``line`` is the capacity above which memory counts as short,
    ``target`` the load it tries to get down to."""

    line: int
    target: int
    host_bytes: int
    storage: tuple[float, float]
    link: tuple[float, float]
    storage_latency: float
    link_latency: float
    margin: float = 0.5


class Planner:
    """One planning pass. ``hints`` grow in the artifact's order of emission; ``load`` is the bytes by op as planned."""

    def __init__(self, paged: PagedStep, room: Room, tie_order: str) -> None:
        self.paged, self.room = paged, room
        self.lengths = np.diff(paged.clock)
        self.links = LinkTime(self.lengths, room.storage, room.link)
        self.gaps: Gaps = gaps_of(paged)
        self.start: Load = load_until_fits(paged, room.target)
        self.load = self.start.bytes.copy()
        self.highest = int(self.load.argmax()) if len(self.load) else 0
        self.host = np.zeros(paged.ops, np.int64)
        self.priority = Priority(self.gaps, tie_order)
        self.done = np.zeros(len(self.gaps), np.bool_)
        self.hints: list[Hint] = []
        self.moved: list[Moved] = []
        self.taken: set[int] = set()

    def select(self) -> None:
        """Take gaps, the most beneficial first, until the load fits or no gap is worth or able to be taken."""
        for _ in range(len(self.gaps)):
            if self.load.max() <= self.room.target:
                return
            gap = self.priority.top(self._benefits())
            if gap is None or self.done[gap] or not self._take(gap):
                return
            self.done[gap] = True

    def _benefits(self) -> np.ndarray:
        found = benefits(self.gaps, self.load > self.room.line, self.lengths, self.links)
        return np.where(self.done, 0.0, found)

    def _take(self, gap: int) -> bool:
        """Move the gap's tensor if that pays; False when it is too short for any tier, which ends the selection."""
        slots = self._slots(gap)
        if len(slots) == 1 or self.load[slots].max(initial=0) <= self.room.target:
            return True
        size, duration = int(self.gaps.bytes[gap]), float(self.gaps.duration[gap])
        storage = self.room.storage_latency + self.room.link_latency + size / self.room.storage[OUT]
        host = self.room.link_latency + size / self.room.link[OUT]
        patience = 2 + self.room.margin
        if duration > patience * storage:
            to_host = not self.gaps.looped[gap] and self._congested(gap, storage) and self._host_has_room(gap)
            emitted = self._move(gap, to_host, host if to_host else storage)
            if to_host and emitted:
                self.host[slots] += size
            return True
        if duration > patience * host:
            if self._host_has_room(gap):
                self._move(gap, True, host)
                self.host[slots] += size
            return True
        return False

    def _slots(self, gap: int) -> np.ndarray:
        start, end = int(self.gaps.start[gap]), int(self.gaps.end[gap])
        if self.gaps.looped[gap]:
            return np.concatenate((np.arange(start, self.paged.ops), np.arange(end)))
        return np.arange(start, end)

    def _congested(self, gap: int, time: float) -> bool:
        """No slot of the storage's write lane in which the tensor should leave has room."""
        start = int(self.gaps.start[gap])
        end = slot_at(self.paged, float(self.paged.clock[start]) + time)
        return bool(self.links.storage[OUT].full[start:end].all())

    def _host_has_room(self, gap: int) -> bool:
        most = int(self.host[self._slots(gap)].max(initial=0))
        return most + int(self.gaps.bytes[gap]) <= self.room.host_bytes

    def _move(self, gap: int, host: bool, time: float) -> bool:
        if self.gaps.looped[gap]:
            return self._move_around(gap, host, time)
        size, start, end = int(self.gaps.bytes[gap]), int(self.gaps.start[gap]), int(self.gaps.end[gap])
        out, back = self.links.lanes(host)
        come, gone = back.backward(size, end), out.forward(size, start)
        if come <= gone:
            return False
        self._emit(start, gap, True, host)
        self.moved.append(Moved(gap, gone, come, host))
        self.links.book(host, BACK, size, come)
        self.links.book(host, OUT, size, start)
        self.load[gone + 1 : come] -= size
        return True

    def _move_around(self, gap: int, host: bool, time: float) -> bool:
        """A global tensor around the end of the step; no lane is booked."""
        paged, start, end = self.paged, int(self.gaps.start[gap]), int(self.gaps.end[gap])
        twice = np.concatenate((paged.clock, paged.clock[-1] + paged.clock[1:]))
        gone = _slot(twice, float(twice[start]) + time)
        come = _slot(twice, float(twice[paged.ops + end]) - (1 + self.room.margin) * time)
        if come != start:
            self._emit(start, gap, True, host)
            self._emit(come % paged.ops, gap, False, host)
        self.load[np.arange(gone + 1, come) % paged.ops] -= int(self.gaps.bytes[gap])
        return come != start

    def _emit(self, op: int, gap: int, write: bool, host: bool) -> None:
        kind, tier = "write" if write else "read", "host" if host else "storage"
        self.hints.append(Hint(op, int(self.gaps.tensor[gap]), kind, tier))
        self.taken.add(gap)

    def prefetch(self) -> None:
        """Bring each tensor that left back as early as the load allows."""
        order = self.priority.sort(self.moved, [move.back for move in self.moved])
        for move in order:
            at = move.back
            while at > move.gone + 1 and self.load[at - 1] < self.room.target:
                at -= 1
            self._emit(at, move.gap, False, move.host)
            self.load[at : move.back] += int(self.gaps.bytes[move.gap])

    def shed(self) -> None:
        """Write out more tensors around the op of the highest load, without a plan for their return."""
        height = int(self.load[self.highest])
        for gap in self.priority.by_area():
            if height < 0.9 * self.room.target:
                return
            start, end = int(self.gaps.start[gap]), int(self.gaps.end[gap])
            if gap not in self.taken and not self.gaps.looped[gap] and start <= self.highest < end:
                self._emit(start, gap, True, False)
                height -= int(self.gaps.bytes[gap])

    def announce(self) -> None:
        """Say when the local tensors that were looked at are allocated and freed; comes before all else."""
        for birth, death in zip(self.start.allocations, self.start.frees, strict=True):
            self.hints += [Hint(*birth, "allocate"), Hint(*death, "free")]

    def sorted_hints(self) -> list[Hint]:
        return self.priority.sort(self.hints, [hint.op for hint in self.hints])


def _slot(clock: np.ndarray, time: float) -> int:
    return int(np.clip(np.searchsorted(clock, time, side="right") - 1, 0, len(clock) - 2))
