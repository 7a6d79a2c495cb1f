"""Swaps of a schedule on a pool of size classes, by Belady's rule, and how long the step then takes
(SwapAdvisor).

A pool holds so many objects of each class; every tensor is served by one class. The schedule is walked: a
tensor without a free object of its class takes that of the resident tensor of the class with the farthest
next use. What is evicted leaves right after its last use; what returns may start once the object that it will
occupy has been emptied. Everything is lists of plain numbers: a search evaluates thousands of schedules.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from experiments.memory.interface import Lineage, MemoryMachine
from experiments.workloads.step import Step

UNBORN, HERE, HOST, DEAD = range(4)
NEVER = 2**60
NOTHING = -1


class Problem:
    """What is the same for every candidate: tensors by op, times, and who is persistent."""

    def __init__(self, step: Step, machine: MemoryMachine) -> None:
        self.sizes: list[int] = step.tensors.bytes.tolist()
        self.touched = [[t for t in row.tolist() if self.sizes[t]] for row in step.touched]
        self.seconds: list[float] = step.ops.seconds.tolist()
        self.persistent = [t for t in step.persistent.nonzero()[0].tolist() if self.sizes[t]]
        self.writes = [frozenset(row) for row in Lineage(step).writes]
        self.away = [machine.out_time(size) for size in self.sizes]
        self.home = [machine.back_time(size) for size in self.sizes]


@dataclass(frozen=True)
class Departure:
    """``tensor`` leaves before position ``at`` of the schedule.

    A ``clean`` one has a good copy and moves nothing.
    """

    at: int
    tensor: int
    clean: bool


@dataclass(frozen=True)
class Return:
    """``tensor`` may come back from position ``at`` on and is needed at ``needed``.

    ``behind`` is the departure that empties its object, ``own`` the one that took it away (or
    ``NOTHING``).
    """

    at: int
    tensor: int
    needed: int
    behind: int
    own: int


@dataclass
class Schedule:
    """All moves of one pass over the step.

    ``behind_new[i]``: departures whose objects results of the op at ``i`` take over.

    ``kept``: returns after which the copy left behind serves a later departure. ``start`` and ``resident``:
    persistent tensors on the device at the beginning and at the end.
    """

    start: frozenset[int]
    departures: list[Departure] = field(default_factory=list)
    returns: list[Return] = field(default_factory=list)
    behind_new: dict[int, list[int]] = field(default_factory=dict)
    kept: set[int] = field(default_factory=set)
    resident: frozenset[int] = frozenset()


def swaps_of(
    problem: Problem, order: Sequence[int], kinds: Sequence[int], counts: Sequence[int]
) -> Schedule | None:
    """Return the second of two passes, which starts with what the first one ended with.

    ``None`` where an op lacks objects.
    """
    first = _Pass(problem, order, kinds, counts, frozenset()).run()
    return first and _Pass(problem, order, kinds, counts, first.resident).run(restore=True)


class _Pass:
    """``free[c]`` is a heap of (position since which it is empty, departure that empties it) of the objects
    of class c.

    ``came[t]`` is the return of t whose copy on the host is still good.
    """

    def __init__(
        self,
        problem: Problem,
        order: Sequence[int],
        kinds: Sequence[int],
        counts: Sequence[int],
        start: frozenset[int],
    ) -> None:
        self.p, self.kinds, self.order = problem, kinds, order
        count = len(problem.sizes)
        self.where = [UNBORN] * count
        self.last, self.next = [NOTHING] * count, [NEVER] * count
        self.own, self.came = [NOTHING] * count, [NOTHING] * count
        self.free: list[list[tuple[int, int]]] = [[(0, NOTHING)] * objects for objects in counts]
        self.residents: list[dict[int, None]] = [{} for _ in counts]
        self.out = Schedule(start)
        self.following = self._following()
        for tensor in problem.persistent:
            self.where[tensor] = HERE if tensor in start else HOST
            if tensor in start:
                self.free[kinds[tensor]].pop()
                self.residents[kinds[tensor]][tensor] = None

    def _following(self) -> list[list[int]]:
        """For every position the next use of each tensor used there; persistent ones are used again in the
        next step.
        """
        touched = [self.p.touched[op] for op in self.order]
        upcoming = self.next
        for at in range(len(touched) - 1, -1, -1):
            for tensor in touched[at]:
                upcoming[tensor] = at
        later = [NEVER] * len(upcoming)
        for tensor in self.p.persistent:
            if upcoming[tensor] < NEVER:
                later[tensor] = upcoming[tensor] + len(touched)
        found: list[list[int]] = [[]] * len(touched)
        for at in range(len(touched) - 1, -1, -1):
            found[at] = [later[tensor] for tensor in touched[at]]
            for tensor in touched[at]:
                later[tensor] = at
        return found

    def run(self, restore: bool = False) -> Schedule | None:
        where, last, following = self.where, self.last, self.next
        for at, op in enumerate(self.order):
            row = self.p.touched[op]
            for tensor in row:
                last[tensor] = at
            for tensor in row:
                if where[tensor] != HERE and not self._bring(tensor, at):
                    return None
            for tensor in self.p.writes[op]:
                self.came[tensor] = NOTHING
            for tensor, use in zip(row, self.following[at], strict=True):
                following[tensor] = use
                if use == NEVER:
                    self._die(tensor, at)
        if restore:
            self._restore()
        self.out.resident = frozenset(tensor for tensor in self.p.persistent if where[tensor] == HERE)
        return self.out

    def _bring(self, tensor: int, at: int) -> bool:
        """Give ``tensor`` an object for its use at ``at``."""
        kind = self.kinds[tensor]
        if self.free[kind]:
            emptied, behind = heapq.heappop(self.free[kind])
        else:
            victim = self._farthest(kind, at)
            if victim is None:
                return False
            emptied, behind = self._evict(victim)
        self.residents[kind][tensor] = None
        if self.where[tensor] == HOST:
            own = self.own[tensor]
            ready = 0 if own == NOTHING else self.out.departures[own].at + 1
            self.came[tensor] = len(self.out.returns)
            self.out.returns.append(Return(min(at, max(emptied, ready)), tensor, at, behind, own))
        elif behind != NOTHING:
            self.out.behind_new.setdefault(at, []).append(behind)
        self.where[tensor] = HERE
        return True

    def _farthest(self, kind: int, at: int) -> int | None:
        """The resident of ``kind`` that is used last, none that is used now."""
        following, last = self.next, self.last
        victim, farthest = None, -1
        for tensor in self.residents[kind]:
            if following[tensor] > farthest and last[tensor] != at:
                victim, farthest = tensor, following[tensor]
        return victim

    def _evict(self, victim: int) -> tuple[int, int]:
        del self.residents[self.kinds[victim]][victim]
        clean = self.came[victim] != NOTHING
        if clean:
            self.out.kept.add(self.came[victim])
        departure = Departure(self.last[victim] + 1, victim, clean)
        self.own[victim] = len(self.out.departures)
        self.out.departures.append(departure)
        self.where[victim] = HOST
        return departure.at, self.own[victim]

    def _die(self, tensor: int, at: int) -> None:
        kind = self.kinds[tensor]
        del self.residents[kind][tensor]
        self.where[tensor] = DEAD
        heapq.heappush(self.free[kind], (at + 1, NOTHING))

    def _restore(self) -> None:
        """The next step begins as this one did: what was not there leaves, what was there returns."""
        end = len(self.order)
        for tensor in self.p.persistent:
            if self.where[tensor] == HERE and tensor not in self.out.start:
                heapq.heappush(self.free[self.kinds[tensor]], self._evict(tensor))
        for tensor in sorted(self.out.start):
            if self.where[tensor] == HOST:
                behind = heapq.heappop(self.free[self.kinds[tensor]])[1]
                self.out.returns.append(Return(end, tensor, end, behind, self.own[tensor]))
                self.where[tensor] = HERE


def step_time(problem: Problem, order: Sequence[int], schedule: Schedule) -> float:
    """Return the seconds of the step with three streams: computation, copies out, copies in.

    Each serves first come first served.
    """
    sent = [0.0] * len(schedule.departures)
    leaving, coming = _by_position(schedule.departures), _by_position(schedule.returns)
    needed: dict[int, list[int]] = {}
    for index, back in enumerate(schedule.returns):
        needed.setdefault(back.needed, []).append(index)
    now = out_free = in_free = 0.0
    arrival = [0.0] * len(schedule.returns)
    for at in range(len(order) + 1):
        for index in leaving.get(at, ()):
            departure = schedule.departures[index]
            if departure.clean:
                sent[index] = now
            else:
                sent[index] = out_free = max(now, out_free) + problem.away[departure.tensor]
        for index in coming.get(at, ()):
            entry = schedule.returns[index]
            start = max(now, in_free, *(sent[dep] for dep in (entry.behind, entry.own) if dep != NOTHING))
            arrival[index] = in_free = start + problem.home[entry.tensor]
        if at == len(order):
            break
        for index in needed.get(at, ()):
            now = max(now, arrival[index])
        for index in schedule.behind_new.get(at, ()):
            now = max(now, sent[index])
        now += problem.seconds[order[at]]
    return max(now, out_free, in_free)


def _by_position(moves: Sequence[Departure | Return]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for index, move in enumerate(moves):
        found.setdefault(move.at, []).append(index)
    return found
