"""A graph of tasks and its replay: computations in the order of their lane, messages first come, first
served.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from experiments.core.errors import Infeasible
from experiments.core.events import EventQueue
from experiments.core.progress import Progress, accompany, silent
from experiments.parallel.simulator.contention import NOTHING, ContendedChannels, find_contention, take
from experiments.parallel.simulator.network import Message

#: Tasks, messages or events between two signs of life of a replay: less than some tenths of a second.
LOOKS = 10_000


class Deadlock(Infeasible):
    """Slots of a plan that wait for each other: no hardware carries it out."""

    @property
    def violations(self) -> tuple[str, ...]:
        """The one thing that is wrong, as ``ImpossiblePlan`` has it."""
        return (str(self),)


class TaskGraph:
    """Columns over tasks. A computation has a ``lane`` (its worker), a message has channels and no lane (-1).

    ``periods`` are those of waits. ``owner`` is the lane that does nothing else meanwhile: of a computation
    its own, of a blocking message the one that waits for it, -1 otherwise. ``previous`` and ``next`` are a
    task's neighbors in its lane.
    """

    def __init__(self) -> None:
        self.label: list[object] = []
        self.seconds: list[float] = []
        self.lane: list[int] = []
        self.owner: list[int] = []
        self.message: list[Message | None] = []
        self.successors: list[list[int]] = []
        self.periods: dict[int, float] = {}
        self.previous: dict[int, int] = {}
        self.next: dict[int, int] = {}
        self._lane_end: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.label)

    def _add(self, label: object, seconds: float, lane: int, owner: int, message: Message | None) -> int:
        self.label.append(label)
        self.seconds.append(seconds)
        self.lane.append(lane)
        self.owner.append(owner)
        self.message.append(message)
        self.successors.append([])
        return len(self.label) - 1

    def lane_end(self, lane: int) -> int | None:
        """The last task of ``lane`` so far."""
        return self._lane_end.get(lane)

    def last(self, lane: int) -> int:
        """``lane_end`` of a lane that has tasks."""
        return self._lane_end[lane]

    def compute(self, label: object, seconds: float, lane: int) -> int:
        """A computation that follows all those added to ``lane`` before."""
        return self._follow(self._add(label, seconds, lane, lane, None), lane)

    def send(self, label: object, message: Message, after: Iterable[int] = ()) -> int:
        task = self._add(label, message.seconds, -1, -1, message)
        for before in after:
            self.successors[before].append(task)
        return task

    def blocking(self, label: object, message: Message, lane: int) -> int:
        """A message that the lane waits for before its next computation."""
        return self._follow(self._add(label, message.seconds, -1, lane, message), lane)

    def wait(self, label: object, period: float, after: Iterable[int]) -> int:
        """The next multiple of ``period`` seconds."""
        task = self._add(label, 0.0, -1, -1, None)
        self.periods[task] = period
        for before in after:
            self.successors[before].append(task)
        return task

    def _follow(self, task: int, lane: int) -> int:
        before = self._lane_end.get(lane)
        if before is not None:
            self.successors[before].append(task)
            self.previous[task], self.next[before] = before, task
        self._lane_end[lane] = task
        return task

    def prolong(self, task: int, seconds: float) -> None:
        """``task`` takes so much longer; nothing for a message."""
        if self.lane[task] >= 0:
            self.seconds[task] += seconds

    def edge(self, before: int, after: int) -> None:
        self.successors[before].append(after)


@dataclass(frozen=True)
class TaskTimes:
    """Start and end of each task, in seconds."""

    start: list[float]
    end: list[float]

    @property
    def span(self) -> float:
        return max(self.end, default=0.0)


def replay(graph: TaskGraph, free_messages: bool = False, progress: Progress = silent) -> TaskTimes:
    """Run every task as early as its predecessors, its lane and its channels allow.

    A message takes its channels in the order in which messages become ready (of those ready at once, in the
    order added), all at once, and holds them to its end. ``free_messages`` gives messages no time.
    ``Infeasible`` names the slot at which a lane never continues.

    What meets nothing on its way ends as soon as its predecessors' ends allow, whatever happens elsewhere; so
    only messages that could meet others are taken in order of time: none that is ready earlier can follow
    from one that is ready later. ``progress`` gets a sign of life every ``LOOKS`` tasks and may raise to
    cancel.
    """
    count = len(graph)
    start, end, ready = [0.0] * count, [-1.0] * count, [0.0] * count
    waiting, seconds = _predecessors(graph), _durations(graph, free_messages)
    held = [None] * count if free_messages else _contention(graph)
    queue: EventQueue[int] = EventQueue()
    free: dict[int, float] = {}
    known = [task for task in reversed(range(count)) if not waiting[task]]
    looks = accompany(itertools.count(), progress, LOOKS)
    while known or queue:
        next(looks)
        if known:
            task = known.pop()
            if held[task]:
                queue.push(ready[task], task, priority=task)
                continue
            start[task] = ready[task]
            done = ready[task] + seconds[task]
        else:
            now, task = queue.pop()
            start[task], done = take(held[task] or NOTHING, now, seconds[task], free)
        end[task] = done
        for following in graph.successors[task]:
            if done > ready[following]:
                ready[following] = done
            waiting[following] -= 1
            if not waiting[following]:
                known.append(following)
    times = TaskTimes(start, end)
    _refuse_deadlock(graph, times)
    return times


def _contention(graph: TaskGraph) -> list[ContendedChannels | None]:
    held = find_contention(graph.message, graph.owner)
    for task, period in graph.periods.items():
        held[task] = ContendedChannels((), (), period)
    return held


def _predecessors(graph: TaskGraph) -> list[int]:
    """How many tasks each waits for."""
    counts = [0] * len(graph)
    for successors in graph.successors:
        for task in successors:
            counts[task] += 1
    return counts


def _durations(graph: TaskGraph, free_messages: bool) -> list[float]:
    if not free_messages:
        return graph.seconds
    return [0.0 if m else s for s, m in zip(graph.seconds, graph.message, strict=True)]


def _refuse_deadlock(graph: TaskGraph, times: TaskTimes) -> None:
    stuck = [task for task in range(len(graph)) if times.end[task] < 0 and graph.lane[task] >= 0]
    if stuck:
        task = stuck[0]
        raise Deadlock(
            f"the schedule deadlocks: slot {graph.label[task]} never starts, as do {len(stuck) - 1} others",
            f"worker {graph.lane[task]}",
        )
