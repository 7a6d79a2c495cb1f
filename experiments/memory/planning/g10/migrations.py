"""G10's planner: which tensors leave in which gaps, to storage or to the host, and when they come back.

Times are microseconds, bandwidths bytes per microsecond, sizes bytes. The procedure is that of the G10
release, with its oddities where ``MigrationRules.odd`` says so: the planning that gave the published numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from experiments.memory.interface.paged import PagedStep
from experiments.memory.planning.g10.benefit import benefits
from experiments.memory.planning.g10.gaps import Gaps, paged_gaps
from experiments.memory.planning.g10.link_time import BACK, OUT, LinkTime
from experiments.memory.planning.g10.load import slot_at
from experiments.memory.planning.g10.priority import Priority
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats


class Hint(NamedTuple):
    """Before ``op``: ``write`` a tensor to ``tier``, ``read`` it back, ``allocate`` or ``free`` it."""

    op: int
    tensor: int
    kind: str
    tier: str = ""


class Taken(NamedTuple):
    """A gap that was taken: its tensor is away on the ops between ``gone`` and ``back``.

    In a looped gap ``back`` counts on into the next step, so it may be as much as twice the number of ops.
    """

    gap: int
    gone: int
    back: int
    host: bool


@dataclass(frozen=True)
class MigrationRules:
    """What the planner plans for.

    ``line``    the capacity above which memory counts as short.
    ``target``  the load it tries to get down to.
    ``margin``  the share of a move that is added to two of them.

    Rates are (out, back).
    """

    line: int
    target: int
    host_bytes: int
    storage: tuple[float, float]
    link: tuple[float, float]
    storage_latency: float
    link_latency: float
    margin: float = 0.5
    tie_order: str = "stable"
    odd: bool = False


class MigrationPlanner:
    """One planning pass over the bytes by op ``load``, which it lowers.

    ``hints`` grow in the release's order.
    """

    def __init__(self, paged: PagedStep, rules: MigrationRules, load: Ints) -> None:
        self.paged, self.rules = paged, rules
        self.lengths: Floats = np.diff(paged.clock)
        self.links = LinkTime(self.lengths, rules.storage, rules.link)
        self.gaps: Gaps = paged_gaps(paged)
        self.load = load.copy()
        self.highest = int(self.load.argmax())
        self.host = np.zeros(paged.ops, np.int64)
        self.priority = Priority(self.gaps, rules.tie_order)
        self.done = np.zeros(len(self.gaps), np.bool_)
        self._worth: Floats | None = None  # of every gap, until a move changes it
        self.hints: list[Hint] = []
        self.moved: list[Taken] = []
        self.looped: list[Taken] = []

    def select(self) -> None:
        """Take gaps, the most beneficial first, until the load fits or none is worth or able to be taken."""
        for _ in range(len(self.gaps)):
            if self.load.max() <= self.rules.target:
                return
            gap = self.priority.top(self._benefits())
            if gap is None or self.done[gap]:
                return
            if self._take(gap) or not self.rules.odd:
                self.done[gap] = True
            elif self.priority.settled:
                return

    def _benefits(self) -> Floats:
        if self._worth is None:
            over = self.load > self.rules.line
            odd, host = self.rules.odd, self.rules.host_bytes > 0
            self._worth = benefits(self.gaps, over, self.lengths, self.links, odd, host and not odd)
        return np.where(self.done, 0.0, self._worth)

    def _take(self, gap: int) -> bool:
        """Move the gap's tensor if that pays; False when it is too short for any tier.

        The release does not mark such a gap: it stays on top until sorting the list once more brings up an
        equal one.
        """
        slots = self._slots(gap)
        if not self.rules.odd and self._too_small(gap):
            return True
        if len(slots) == 1 or self.load[slots].max(initial=0) <= self.rules.target:
            return True
        size, duration = int(self.gaps.bytes[gap]), float(self.gaps.duration[gap])
        storage = self.rules.storage_latency + self.rules.link_latency + _time(size, self.rules.storage[OUT])
        host = self.rules.link_latency + _time(size, self.rules.link[OUT])
        patience = 2 + self.rules.margin
        if duration > patience * storage:
            to_host = (
                not self.gaps.looped[gap] and self._is_congested(gap, storage) and self._host_has_room(gap)
            )
            if self._move(gap, to_host, host if to_host else storage) and to_host:
                self.host[slots] += size
            return True
        if duration > patience * host:
            if self._host_has_room(gap) and (self._move(gap, True, host) or self.rules.odd):
                self.host[slots] += size
            return True
        return False

    def _too_small(self, gap: int) -> bool:
        """The copy would take longer to begin than to pass."""
        rules, size = self.rules, int(self.gaps.bytes[gap])
        latency, rates = rules.link_latency, rules.link
        if rules.host_bytes == 0:
            latency, rates = latency + rules.storage_latency, rules.storage
        return size < latency * rates[OUT]

    def _slots(self, gap: int) -> Ints:
        start, end = int(self.gaps.start[gap]), int(self.gaps.end[gap])
        if self.gaps.looped[gap]:
            return np.concatenate((np.arange(start, self.paged.ops), np.arange(end)))
        return np.arange(start, end)

    def _is_congested(self, gap: int, time: float) -> bool:
        """Storage would take the tensor later than if nothing else were written, or have it back too late.

        The release asks whether every slot of the write lane in which it should leave is full.
        """
        start, size = int(self.gaps.start[gap]), int(self.gaps.bytes[gap])
        end = slot_at(self.paged, float(self.paged.clock[start]) + time)
        if self.rules.odd:
            return bool(self.links.storage[OUT].full[start:end].all())
        out, back = self.links.lanes(host=False)
        gone = out.forward(size, start)
        return gone > end or back.backward(size, int(self.gaps.end[gap])) <= gone

    def _host_has_room(self, gap: int) -> bool:
        """During the gap; the release asks for the whole step."""
        held = self.host if self.rules.odd else self.host[self._slots(gap)]
        most = int(held.max(initial=0))
        return most + int(self.gaps.bytes[gap]) <= self.rules.host_bytes

    def _move(self, gap: int, host: bool, time: float) -> bool:
        if self.gaps.looped[gap]:
            return self._move_around(gap, host, time)
        size, start, end = int(self.gaps.bytes[gap]), int(self.gaps.start[gap]), int(self.gaps.end[gap])
        out, back = self.links.lanes(host)
        come, gone = back.backward(size, end), out.forward(size, start)
        if come <= gone:
            return False
        self._worth = None
        self._emit(start, gap, "write", host)
        self.moved.append(Taken(gap, gone, come, host))
        self.links.book(host, BACK, size, come)
        self.links.book(host, OUT, size, start)
        self.load[gone + 1 : come] -= size
        return True

    def _move_around(self, gap: int, host: bool, time: float) -> bool:
        """A global tensor around the end of the step; no lane is booked."""
        paged, start, end = self.paged, int(self.gaps.start[gap]), int(self.gaps.end[gap])
        twice = np.concatenate((paged.clock, paged.clock[-1] + paged.clock[1:]))
        gone = _slot(twice, float(twice[start]) + time)
        come = _slot(twice, float(twice[paged.ops + end]) - (1 + self.rules.margin) * time)
        self._worth = None
        if come != start:
            self._emit(start, gap, "write", host)
            self._emit(come % paged.ops, gap, "read", host)
            self.looped.append(Taken(gap, gone, come, host))
        self.load[np.arange(gone + 1, come) % paged.ops] -= int(self.gaps.bytes[gap])
        return come != start

    def _emit(self, op: int, gap: int, kind: str, host: bool) -> None:
        self.hints.append(Hint(op, int(self.gaps.tensor[gap]), kind, "host" if host else "storage"))

    def prefetch(self) -> list[Taken]:
        """Bring each tensor that left back as early as the load allows.

        Returns the gaps taken, ``back`` moved forward.
        """
        found = []
        for move in self.priority.sort(self.moved, [move.back for move in self.moved]):
            size, at = int(self.gaps.bytes[move.gap]), move.back
            # The release asks whether the load is below the target without the tensor.
            room = self.rules.target if self.rules.odd else self.rules.target - size + 1
            while at > move.gone + 1 and self.load[at - 1] < room:
                at -= 1
            self._emit(at, move.gap, "read", move.host)
            self.load[at : move.back] += size
            found.append(move._replace(back=at))
        return found


def _time(size: int, rate: float) -> float:
    return size / rate if rate > 0 else float("inf")


def _slot(clock: Floats, time: float) -> int:
    return int(np.clip(np.searchsorted(clock, time, side="right") - 1, 0, len(clock) - 2))
