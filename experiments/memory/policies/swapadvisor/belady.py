"""Swaps of a schedule on a pool of size classes, by Belady's rule, and how long the step then takes
(SwapAdvisor). The loops themselves stand in ``loops``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.core.machine_code import compile_loop
from experiments.memory.interface import Lineage, MemoryMachine
from experiments.memory.policies.swapadvisor import loops
from experiments.workloads.ragged import Ints, Ragged
from experiments.workloads.step import Step

#: Candidates times ops from which on a search is compiled: below, the compiler takes longer than the search.
MANY = 100_000
INNER = (
    loops.fetch,
    loops.arrive,
    loops.leave,
    loops.give,
    loops.take,
    loops.farthest,
    loops.look_ahead,
    loops.evict,
    loops.bring_back,
    loops.begin_again,
)


class Problem:
    """What is the same for every one of so many candidates: tensors by op, times, and who is persistent."""

    def __init__(self, step: Step, machine: MemoryMachine, candidates: int = 1) -> None:
        sizes = step.tensors.bytes
        touched = Ragged.of([[t for t in row if sizes[t]] for row in step.touched.lists()])
        writers = Ragged.of(Lineage(step).writers)
        persistent = step.persistent & (sizes > 0)
        self.persistent: list[int] = persistent.nonzero()[0].tolist()
        self.lists = loops.Lists(
            touched.offsets, touched.values, step.uses.offsets, writers.offsets, writers.values, persistent
        )
        self.seconds = step.ops.seconds
        self.away = np.array([machine.out_time(size) for size in sizes.tolist()])
        self.home = np.array([machine.back_time(size) for size in sizes.tolist()])
        self.use_positions, self.walk, self.seconds_of = loops.use_positions, loops.walk, loops.seconds_of
        if candidates * len(step.ops) >= MANY:
            self.use_positions = compile_loop(loops.use_positions)
            self.walk = compile_loop(loops.walk, *INNER)
            self.seconds_of = compile_loop(loops.seconds_of, loops.rows_at)


@dataclass(frozen=True)
class Schedule:
    """All moves of one pass over the step, as ``loops`` has their columns.

    ``start`` and ``resident``: whether each tensor is persistent and on the device at the beginning, and at
    the end.
    """

    start: loops.Flags
    departures: Ints
    returns: Ints
    takeovers: Ints
    resident: loops.Flags


def swaps_of(
    problem: Problem, order: Sequence[int], kinds: Sequence[int], counts: Sequence[int]
) -> Schedule | None:
    """Return the second of two passes, which starts with what the first one ended with.

    ``None`` where an op lacks objects.
    """
    ops = np.array(order, np.int64)
    uses = problem.use_positions(problem.lists, ops)
    schedule, start = None, np.zeros(len(kinds), np.bool_)
    for restore in (False, True):
        now = _beginning(problem.lists, ops, uses, kinds, counts)
        if not problem.walk(problem.lists, now, start, restore):
            return None
        schedule = _schedule(problem, now, start)
        start = schedule.resident
    return schedule


def _beginning(
    lists: loops.Lists, order: Ints, uses: Ints, kinds: Sequence[int], counts: Sequence[int]
) -> loops.Pass:
    """A pass before its first op: every object is free."""
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    tensors = np.full((len(kinds), 8), loops.NOTHING, np.int64)
    tensors[:, loops.KIND], tensors[:, loops.WHERE], tensors[:, loops.ENTRY] = (
        kinds,
        loops.UNBORN,
        lists.first[:-1],
    )
    classes = np.zeros((len(counts), 3), np.int64)
    classes[:, loops.FREE], classes[1:, loops.FIRST] = counts, np.cumsum(counts)[:-1]
    objects = np.tile(np.array([0, loops.NOTHING, loops.NOTHING]), (sum(counts), 1))
    # Whatever comes has been touched or was here before, and whatever leaves has come or was here before.
    moves = len(lists.touched) + 2 * len(kinds)
    departures, returns, takeovers = (np.empty((moves, columns), np.int64) for columns in (3, 6, 4))
    return loops.Pass(
        order,
        position,
        uses,
        tensors,
        classes,
        objects,
        departures,
        returns,
        takeovers,
        np.zeros(4, np.int64),
    )


def _schedule(problem: Problem, now: loops.Pass, start: loops.Flags) -> Schedule:
    """What a pass that has ended has found, without the room that it had for more."""
    departures, returns, takeovers, _ = now.counts.tolist()
    return Schedule(
        start,
        now.departures[:departures].copy(),
        now.returns[:returns].copy(),
        now.takeovers[:takeovers].copy(),
        problem.lists.persistent & (now.tensors[:, loops.WHERE] == loops.HERE),
    )


def step_time(problem: Problem, order: Sequence[int], schedule: Schedule) -> float:
    """Return the seconds of the step with three streams: computation, copies out, copies in."""
    moves = schedule.departures, schedule.returns, schedule.takeovers
    return problem.seconds_of(np.array(order, np.int64), *moves, problem.seconds, problem.away, problem.home)
