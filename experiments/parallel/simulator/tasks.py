"""A graph of tasks and its replay: computations in the order of their lane, messages first come, first served."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from experiments.core.errors import Infeasible
from experiments.core.events import EventQueue
from experiments.parallel.simulator.network import Message


class TaskGraph:
    """Columns over tasks. A computation has a ``lane`` (its worker), a message has channels and no lane (-1)."""

    def __init__(self) -> None:
        self.label: list[str] = []
        self.seconds: list[float] = []
        self.lane: list[int] = []
        self.message: list[Message | None] = []
        self.successors: list[list[int]] = []
        self._lane_end: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.label)

    def _add(self, label: str, seconds: float, lane: int, message: Message | None) -> int:
        self.label.append(label)
        self.seconds.append(seconds)
        self.lane.append(lane)
        self.message.append(message)
        self.successors.append([])
        return len(self) - 1

    def lane_end(self, lane: int) -> int | None:
        """The last task of ``lane`` so far."""
        return self._lane_end.get(lane)

    def compute(self, label: str, seconds: float, lane: int) -> int:
        """A computation that follows all those added to ``lane`` before."""
        task = self._add(label, seconds, lane, None)
        if lane in self._lane_end:
            self.edge(self._lane_end[lane], task)
        self._lane_end[lane] = task
        return task

    def send(self, label: str, message: Message, after: Iterable[int] = ()) -> int:
        task = self._add(label, message.seconds, -1, message)
        for before in after:
            self.edge(before, task)
        return task

    def blocking(self, label: str, message: Message, lane: int) -> int:
        """A message that the lane waits for before its next computation."""
        task = self.send(label, message, [self._lane_end[lane]])
        self._lane_end[lane] = task
        return task

    def edge(self, before: int, after: int) -> None:
        self.successors[before].append(after)


@dataclass(frozen=True)
class Times:
    """Start and end of each task, in seconds."""

    start: list[float]
    end: list[float]

    @property
    def span(self) -> float:
        return max(self.end, default=0.0)


def replay(graph: TaskGraph, free_messages: bool = False) -> Times:
    """Run every task as early as its predecessors, its lane and its channels allow.

    A message takes its channels in the order in which messages become ready, all at once, and holds them to its end.
    ``free_messages`` gives messages no time. ``Infeasible`` names the slot at which a lane waits for ever.
    """
    count = len(graph)
    waiting = [0] * count
    for successors in graph.successors:
        for task in successors:
            waiting[task] += 1
    times = Times([0.0] * count, [-1.0] * count)
    queue: EventQueue[int] = EventQueue()
    free: dict[int, float] = {}

    def start(task: int, now: float) -> None:
        message = graph.message[task]
        seconds = graph.seconds[task]
        if message is not None:
            seconds = 0.0 if free_messages else seconds
            ready, now = (
                now,
                max(now, max((free.get(channel, 0.0) for channel in message.channels), default=0.0)),
            )
            end = now + seconds
            for channel, own in () if free_messages else message.shares:
                free[channel] = max(free.get(channel, 0.0), ready) + own
                end = max(end, free[channel])
            free.update(dict.fromkeys(message.channels, end))
            seconds = end - now
        times.start[task] = now
        queue.push(now + seconds, task)

    for task in range(count):
        if not waiting[task]:
            start(task, 0.0)
    while queue:
        now, task = queue.pop()
        times.end[task] = now
        for following in graph.successors[task]:
            waiting[following] -= 1
            if not waiting[following]:
                start(following, now)
    _refuse_deadlock(graph, times)
    return times


def _refuse_deadlock(graph: TaskGraph, times: Times) -> None:
    stuck = [task for task in range(len(graph)) if times.end[task] < 0 and graph.lane[task] >= 0]
    if stuck:
        task = stuck[0]
        raise Infeasible(
            f"the schedule deadlocks: slot {graph.label[task]} waits for ever, as do {len(stuck) - 1} others",
            f"worker {graph.lane[task]}",
        )
