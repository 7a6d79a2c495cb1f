"""Swaps of a schedule on a pool of size classes, by Belady's rule, and how long the step then takes
(SwapAdvisor).

A pool holds so many objects of each class; every tensor is served by one class. The schedule is walked: a
tensor without a free object of its class takes that of the resident tensor of the class with the farthest
next use. What is evicted leaves right after its last use; what returns may start once the object that it will
occupy has been emptied.

A search evaluates thousands of schedules, so a walk looks only at positions where something happens: a first
use, a use of what was evicted, a last use. All else is plain lists of numbers.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from experiments.memory.interface import Lineage, MemoryMachine
from experiments.workloads.step import Step

UNBORN, HERE, HOST, DEAD = range(4)
NOTHING = -1


class Problem:
    """What is the same for every candidate: tensors by op, times, and who is persistent."""

    def __init__(self, step: Step, machine: MemoryMachine) -> None:
        self.sizes: list[int] = step.tensors.bytes.tolist()
        self.touched = [[t for t in row if self.sizes[t]] for row in step.touched.lists()]
        self.seconds: list[float] = step.ops.seconds.tolist()
        self.is_persistent: list[bool] = step.persistent.tolist()
        self.persistent = [t for t in step.persistent.nonzero()[0].tolist() if self.sizes[t]]
        self.writers = Lineage(step).writers
        self.away = [machine.out_time(size) for size in self.sizes]
        self.home = [machine.back_time(size) for size in self.sizes]
        self.using_ops, self.used_tensors = step.uses.values, step.uses.rows()
        self.first: list[int] = step.uses.offsets.tolist()


class Departure(NamedTuple):
    """``tensor`` leaves before position ``at`` of the schedule.

    A ``clean`` one has a good copy and moves nothing.
    """

    at: int
    tensor: int
    clean: bool


class Return(NamedTuple):
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


class Uses:
    """Where an order uses each tensor.

    ``at[problem.first[t] : problem.first[t + 1]]`` are the positions that use ``t``, ascending, ``of_op`` the
    position of each op. ``beginning`` and ``ending`` are the tensors used first and last at a position.
    """

    def __init__(self, problem: Problem, order: Sequence[int]) -> None:
        count = len(order)
        position = np.empty(count, np.int64)
        position[np.array(order, np.int64)] = np.arange(count)
        keys = np.sort(problem.used_tensors * count + position[problem.using_ops])
        self.order, self.of_op = order, position.tolist()
        self.at: list[int] = (keys % count).tolist() if count else []
        self.beginning: list[list[int]] = [[] for _ in order]
        self.ending: list[list[int]] = [[] for _ in order]
        for tensor, size in enumerate(problem.sizes):
            begin, end = problem.first[tensor], problem.first[tensor + 1]
            if size and begin < end:
                self.beginning[self.at[begin]].append(tensor)
                if not problem.is_persistent[tensor]:
                    self.ending[self.at[end - 1]].append(tensor)


def swaps_of(
    problem: Problem, order: Sequence[int], kinds: Sequence[int], counts: Sequence[int]
) -> Schedule | None:
    """Return the second of two passes, which starts with what the first one ended with.

    ``None`` where an op lacks objects.
    """
    uses = Uses(problem, order)
    first = _Pass(problem, uses, kinds, counts, frozenset()).run()
    return first and _Pass(problem, uses, kinds, counts, first.resident).run(restore=True)


class _Pass:
    """``free[c]`` is a heap of (position since which it is empty, departure that empties it) of the objects
    of class c.

    ``came[t]`` is the latest return of t, ``next[t]`` the latest seen of its next uses, entry ``entry[t]`` of
    all; ``due[i]`` are tensors that were evicted before their use at ``i``.
    """

    def __init__(
        self,
        problem: Problem,
        uses: Uses,
        kinds: Sequence[int],
        counts: Sequence[int],
        start: frozenset[int],
    ) -> None:
        self.p, self.kinds, self.uses, self.end = problem, kinds, uses, len(uses.order)
        count = len(problem.sizes)
        self.where = [UNBORN] * count
        self.next, self.entry = [NOTHING] * count, problem.first[:-1]
        self.own, self.came = [NOTHING] * count, [NOTHING] * count
        self.free: list[list[tuple[int, int]]] = [[(0, NOTHING)] * objects for objects in counts]
        self.residents: list[dict[int, None]] = [{} for _ in counts]
        self.due: list[list[int]] = [[] for _ in uses.order]
        self.out = Schedule(start)
        for tensor in problem.persistent:
            self.where[tensor] = HERE if tensor in start else HOST
            if tensor in start:
                self.free[kinds[tensor]].pop()
                self.residents[kinds[tensor]][tensor] = None

    def run(self, restore: bool = False) -> Schedule | None:
        """Walk the order: whatever has no object is given one, whatever is used no more gives its own back.

        Half of a search's time is spent here: the loop calls others only for what leaves and comes back.
        """
        where, residents, free, kinds = self.where, self.residents, self.free, self.kinds
        uses, touched = self.uses, self.p.touched
        for at, (first, due, ending) in enumerate(zip(uses.beginning, self.due, uses.ending, strict=True)):
            coming = first + due if due else first
            if len(coming) > 1:
                coming = [tensor for tensor in touched[uses.order[at]] if tensor in coming]
            for tensor in coming:
                if where[tensor] == HERE:
                    continue
                kind = kinds[tensor]
                if free[kind]:
                    emptied, behind = heapq.heappop(free[kind])
                elif (victim := self._farthest(kind, at)) is not None:
                    emptied, behind = self._evict(victim, at)
                else:
                    return None
                residents[kind][tensor] = None
                if where[tensor] == HOST:
                    self._return(tensor, at, emptied, behind)
                elif behind != NOTHING:
                    self.out.behind_new.setdefault(at, []).append(behind)
                where[tensor] = HERE
            for tensor in ending:
                kind = kinds[tensor]
                del residents[kind][tensor]
                where[tensor] = DEAD
                heapq.heappush(free[kind], (at + 1, NOTHING))
        if restore:
            self._restore()
        self.out.resident = frozenset(tensor for tensor in self.p.persistent if where[tensor] == HERE)
        return self.out

    def _return(self, tensor: int, at: int, emptied: int, behind: int) -> None:
        """``tensor`` comes back for its use at ``at``, into an object that is empty from ``emptied`` on."""
        own, returns = self.own[tensor], self.out.returns
        ready = 0 if own == NOTHING else self.out.departures[own].at + 1
        self.came[tensor] = len(returns)
        returns.append(Return(min(at, max(emptied, ready)), tensor, at, behind, own))

    def _farthest(self, kind: int, at: int) -> int | None:
        """The resident of ``kind`` that is used last, none that is used now."""
        upcoming = self.next
        victim, farthest = None, NOTHING
        for tensor in self.residents[kind]:
            use = upcoming[tensor]
            if use < at:
                use = self._next_use(tensor, at)
            if use > farthest and use != at:
                victim, farthest = tensor, use
        return victim

    def _next_use(self, tensor: int, at: int) -> int:
        """The first use from ``at`` on; persistent ones are used again in the next step."""
        positions, entry, end = self.uses.at, self.entry[tensor], self.p.first[tensor + 1]
        while entry < end and positions[entry] < at:
            entry += 1
        self.entry[tensor] = entry
        use = positions[entry] if entry < end else positions[self.p.first[tensor]] + self.end
        self.next[tensor] = use
        return use

    def _last_use(self, tensor: int) -> int:
        """The use before the next one that was seen last."""
        entry = self.entry[tensor]
        return self.uses.at[entry - 1] if entry > self.p.first[tensor] else NOTHING

    def _evict(self, victim: int, at: int) -> tuple[int, int]:
        """``victim`` leaves before its next use from ``at`` on, which ``next`` has."""
        del self.residents[self.kinds[victim]][victim]
        clean = self._has_good_copy(victim, at)
        if clean:
            self.out.kept.add(self.came[victim])
        departure = Departure(self._last_use(victim) + 1, victim, clean)
        self.own[victim] = len(self.out.departures)
        self.out.departures.append(departure)
        self.where[victim] = HOST
        if self.next[victim] < self.end:
            self.due[self.next[victim]].append(victim)
        return departure.at, self.own[victim]

    def _has_good_copy(self, tensor: int, at: int) -> bool:
        """Whether no op before ``at`` has written what came back."""
        if self.came[tensor] == NOTHING:
            return False
        since, of_op = self.out.returns[self.came[tensor]].needed, self.uses.of_op
        return not any(since <= of_op[op] < at for op in self.p.writers[tensor])

    def _restore(self) -> None:
        """The next step begins as this one did: what was not there leaves, what was there returns."""
        end = self.end
        for tensor in self.p.persistent:
            if self.where[tensor] == HERE and tensor not in self.out.start:
                self._next_use(tensor, end)
                heapq.heappush(self.free[self.kinds[tensor]], self._evict(tensor, end))
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
    seconds, end, done = problem.seconds, len(order), 0
    for at in sorted({*leaving, *coming, *needed, *schedule.behind_new, end}):
        for op in order[done:at]:
            now += seconds[op]
        done = at
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
        if at == end:
            break
        for index in needed.get(at, ()):
            now = max(now, arrival[index])
        for index in schedule.behind_new.get(at, ()):
            now = max(now, sent[index])
    return max(now, out_free, in_free)


def _by_position(moves: Sequence[Departure | Return]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for index, move in enumerate(moves):
        found.setdefault(move.at, []).append(index)
    return found
