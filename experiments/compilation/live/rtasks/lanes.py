"""Lanes that work off the lists of a schedule: threads of this process, or streams of a GPU.

Of one group every lane has its list of blocks, in the group's order. Before an operator's blocks a lane waits
for the operators of the group that it reads, not for all lanes; behind a group all wait for all.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import torch

from experiments.compilation.live.rtasks.program import Group, ScheduledOperator

#: Computes one block of an operator.
Compute = Callable[[ScheduledOperator, int], None]


class RanBlocks(NamedTuple):
    """The blocks of an operator that one lane ran, from ``start`` to ``finish``."""

    lane: int
    start: float
    finish: float
    operator: str


class Lanes(Protocol):
    """What runs a group."""

    def run(self, group: Group, compute: Compute, ran: list[RanBlocks] | None = None) -> None:
        """Run all blocks of ``group`` and return once they are done (issued, on a GPU).

        Who ran what when goes into ``ran``.
        """
        ...


class Latch:
    """Lets those who wait go on once it was counted down to nothing."""

    def __init__(self, count: int) -> None:
        self._left, self._lock, self._open = count, threading.Lock(), threading.Event()

    def count_down(self) -> None:
        """Count one part as done."""
        with self._lock:
            self._left -= 1
            if not self._left:
                self._open.set()

    def wait(self) -> None:
        """Return once all parts are done."""
        self._open.wait()


class ThreadLanes:
    """Each lane a thread of its own on which torch computes with one core.

    The caller only waits: what it computes otherwise, eager in turn with this, keeps its own team of threads.
    """

    def __init__(self, count: int) -> None:
        with one_core():
            self._lanes = [ThreadPoolExecutor(1, f"lane{number}") for number in range(count)]
            for lane in self._lanes:
                lane.submit(keep_to_one_core).result()

    def run(self, group: Group, compute: Compute, ran: list[RanBlocks] | None = None) -> None:
        latches = {operator.name: Latch(len(operator.lanes)) for operator in group}
        busy = {lane for operator in group for lane in operator.lanes}
        work_off = functools.partial(_work_off, group=group, latches=latches, compute=compute, ran=ran)
        for future in [self._lanes[lane].submit(work_off, lane) for lane in sorted(busy)]:
            future.result()


def keep_to_one_core() -> None:
    """Let torch compute on one core in this thread from now on.

    What a thread asks first sets its number to the process's at that time, so that is asked before.
    """
    torch.get_num_threads()
    torch.set_num_threads(1)


@contextmanager
def one_core() -> Iterator[None]:
    """Let torch compute on one core in this thread; those that others start later have as many as before."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@torch.no_grad()
def _work_off(
    lane: int, group: Group, latches: dict[str, Latch], compute: Compute, ran: list[RanBlocks] | None
) -> None:
    """Run the blocks of one lane; one that fails leaves nobody waiting."""
    own = [operator for operator in group if lane in operator.lanes]
    try:
        for operator in own:
            for name in operator.waits:
                latches[name].wait()
            start = time.perf_counter()
            for block in operator.blocks_of(lane):
                compute(operator, block)
            if ran is not None:
                ran.append(RanBlocks(lane, start, time.perf_counter(), operator.name))
            latches[operator.name].count_down()
            own = own[1:]
    finally:
        for operator in own:
            latches[operator.name].count_down()


class StreamLanes:
    """Each lane a stream of a GPU; a wait is an event, and nothing waits on the host."""

    def __init__(self, count: int) -> None:
        self._streams = [torch.cuda.Stream() for _ in range(count)]  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def run(self, group: Group, compute: Compute, ran: list[RanBlocks] | None = None) -> None:
        caller = torch.cuda.current_stream()
        for stream in self._streams:
            stream.wait_stream(caller)
        done: dict[str, list[torch.cuda.Event]] = {}
        for operator in group:
            done[operator.name] = [self._issue(lane, operator, done, compute, ran) for lane in operator.lanes]
        for stream in self._streams:
            caller.wait_stream(stream)

    def _issue(
        self,
        lane: int,
        operator: ScheduledOperator,
        done: dict[str, list[torch.cuda.Event]],
        compute: Compute,
        ran: list[RanBlocks] | None,
    ) -> torch.cuda.Event:
        """Issue one lane's blocks behind what they read, and return the event of their end."""
        stream = self._streams[lane]
        with torch.cuda.stream(stream):
            for name in operator.waits:
                for event in done[name]:
                    stream.wait_event(event)
            start = time.perf_counter()
            for block in operator.blocks_of(lane):
                compute(operator, block)
            if ran is not None:
                ran.append(RanBlocks(lane, start, time.perf_counter(), operator.name))
            ended: torch.cuda.Event = stream.record_event()
        return ended


def lanes_on(device: str, count: int) -> Lanes:
    """Return ``count`` lanes of the device."""
    return StreamLanes(count) if device == "cuda" else ThreadLanes(count)


#: Times that an empty group is run, of which the least disturbed counts.
TRIES = 50


def launch_and_wait(lanes: Lanes, count: int) -> tuple[float, float]:
    """Return what a group takes that computes nothing on all lanes, and what one more wait adds to it."""
    every = tuple(range(count))
    first = ScheduledOperator(("first",), count, every)
    second = ScheduledOperator(("second",), count, every, ("first",))
    alone, both = (_least_seconds(lanes, group) for group in ((first,), (first, second)))
    return alone, max(both - alone, 0.0)


def _least_seconds(lanes: Lanes, group: Group) -> float:
    taken = []
    for _ in range(TRIES):
        start = time.perf_counter()
        lanes.run(group, lambda of, block: None)
        taken.append(time.perf_counter() - start)
    return min(taken)
