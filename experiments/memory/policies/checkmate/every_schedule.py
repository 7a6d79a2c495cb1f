"""The cheapest of all schedules of a step of few ops, by shortest path: nothing is coarse, and what comes out
is proved.

A state is the next op and what is resident. From it an earlier op may run again, the next op may run, or,
where one of these finds no room, something may leave. Rerunning costs an op's seconds, everything else
nothing. Ops of the backward pass may run again as well. A tensor that several ops write is not recomputed and
leaves only for good.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from experiments.memory.interface import MemoryPlan
from experiments.memory.planning.eviction.journal import Departure, Event, Journal, Rerun, Use
from experiments.memory.planning.rematerialize import Rematerializer
from experiments.workloads.step import Step

#: States that are looked at before the search gives up.
MOST_STATES = 20_000

State = tuple[int, frozenset[int]]


@dataclass(frozen=True)
class Schedule:
    """The plan and the seconds of its reruns; no plan where the step cannot run in the memory at all."""

    plan: MemoryPlan | None
    seconds: float


def cheapest_of_all(step: Step, capacity: int) -> Schedule | None:
    """The cheapest schedule of ``step`` in ``capacity`` bytes; ``None`` where there are too many to see."""
    return _Search(step, capacity).run()


class _Search:
    def __init__(self, step: Step, capacity: int) -> None:
        self.step = step
        self.remake = Rematerializer(step)
        self.lineage = self.remake.lineage
        self.room = capacity - step.persistent_bytes
        self.size: list[int] = step.tensors.bytes.tolist()
        self.workspace: list[int] = step.ops.workspace.tolist()
        self.seconds: list[float] = step.ops.seconds.tolist()
        self.first: list[int] = step.first_use.tolist()
        self.death: list[int] = step.death.tolist()
        persistent = self.lineage.persistent
        self.touched = [[t for t in row if not persistent[t]] for row in step.touched.lists()]
        self.makes = [[t for t in dict.fromkeys(row) if not persistent[t]] for row in self.lineage.writes]
        self.written = [
            sum(self.size[t] for t in dict.fromkeys(row)) + self.workspace[op]
            for op, row in enumerate(self.lineage.writes)
        ]
        self.reads = [
            [s for s in self.lineage.external((op,)) if not persistent[s]] for op in range(len(self.touched))
        ]
        self.single = [len(makers) == 1 for makers in self.lineage.writers]
        self.wanted = self._needed_later()

    def run(self) -> Schedule | None:
        start: State = (0, frozenset())
        best: dict[State, float] = {start: 0.0}
        came: dict[State, tuple[State, Event]] = {}
        ticket = itertools.count()
        queue: list[tuple[float, int, int, State]] = [(0.0, 0, 0, start)]
        done: set[State] = set()
        while queue:
            cost, _, _, state = heapq.heappop(queue)
            if state in done:
                continue
            if state[0] == len(self.touched):
                return Schedule(self._plan(state, came), cost)
            if len(done) == MOST_STATES:
                return None
            done.add(state)
            for after, price, event in self._onward(state):
                if cost + price < best.get(after, float("inf")):
                    best[after] = cost + price
                    came[after] = (state, event)
                    heapq.heappush(queue, (cost + price, -after[0], next(ticket), after))
        return Schedule(None, float("inf"))

    def _needed_later(self) -> list[frozenset[int]]:
        """For each op the tensors that it or a later one uses, with all that those can be recomputed from."""
        found: list[frozenset[int]] = [frozenset()]
        for op in reversed(range(len(self.touched))):
            now = set(found[-1])
            todo = [t for t in self.touched[op] if t not in now]
            while todo:
                tensor = todo.pop()
                if tensor not in now:
                    now.add(tensor)
                    if self.single[tensor]:
                        todo += self.reads[self.lineage.writers[tensor][0]]
            found.append(frozenset(now))
        return found[::-1]

    def _onward(self, state: State) -> Iterator[tuple[State, float, Event]]:
        op, resident = state
        used = sum(self.size[t] for t in resident)
        crowded = False
        missing = [t for t in self.touched[op] if self.first[t] < op and t not in resident]
        if not missing:
            new = [t for t in self.touched[op] if t not in resident]
            fits = used + sum(self.size[t] for t in new) + self.workspace[op] <= self.room
            crowded = not fits
            if fits:
                yield (op + 1, self._leave(op, resident | set(new))), 0.0, Use(self.step.touched[op].tolist())
        for again in range(op):
            new = [
                t for t in self.makes[again] if self.single[t] and t not in resident and t in self.wanted[op]
            ]
            if not new or not self._can_run_again(again, op, resident):
                continue
            if used + self.written[again] <= self.room:
                event = Rerun(op, (again,), self.reads[again], new)
                yield (op, resident | set(new)), self.seconds[again], event
            else:
                crowded = True
        if crowded:
            for tensor in resident:
                if self.single[tensor] or self.step.last_use[tensor] < op:
                    yield (op, resident - {tensor}), 0.0, Departure(op, tensor)

    def _can_run_again(self, again: int, op: int, resident: frozenset[int]) -> bool:
        """Everything that it reads is there, in the version that it read."""
        there = all(source in resident for source in self.reads[again])
        return there and not self.remake.is_fixed(again, resident.__contains__, op)

    def _leave(self, op: int, resident: frozenset[int]) -> frozenset[int]:
        """What is there behind ``op``: less what nobody holds and nothing can come from any more."""
        wanted = self.wanted[op + 1]
        return frozenset(t for t in resident if t in wanted or self.death[t] > op)

    def _plan(self, state: State, came: dict[State, tuple[State, Event]]) -> MemoryPlan:
        journal = Journal(self.lineage)
        while state in came:
            state, event = came[state]
            journal.events.append(event)
        journal.events.reverse()
        return MemoryPlan(journal.moves())
