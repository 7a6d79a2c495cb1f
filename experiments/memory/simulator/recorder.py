"""What a run reports to its watcher: when ops ran, why compute stalled, and the device at its fullest.

Searches need none of it: a run's recorder is ``UNWATCHED`` unless one is passed in.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from experiments.memory.simulator.pools.allocator import SCRATCH
from experiments.memory.simulator.report import Fullest, MemorySimulation, Spans

#: Compute was busy with a kind of work (``op``, ``recompute`` or ``codec``) on an op or a tensor, from a
#: start to an end. Plain tuples: a step has many thousand.
Busy = tuple[str, int, float, float]


@dataclass(frozen=True)
class StepRecording:
    """What compute did (``stalls``: spans by cause), and the fullest moment (``None``: never in use)."""

    busy: tuple[Busy, ...]
    stalls: dict[str, Spans] = field(default_factory=dict)
    fullest: Fullest | None = None


class Moment(NamedTuple):
    """The device held ``used`` bytes when ``op`` ran or came next, after so many ``changes``."""

    time: float
    op: int
    used: int
    changes: int


#: The fullest moment from the bytes of each item (tensor, page or scratch) that was there.
Describe = Callable[[Moment, Mapping[int, int]], Fullest]


class RunRecorder:
    """Keeps nothing.

    - ``watches``: whether anybody does. Where a call for each change would cost too much, a run asks this and
      appends its own rows to ``changes`` (item, bytes) and ``busy``.
    - ``most``: the most bytes that were looked at so far; a look at no more is in vain.
    """

    watches = False
    most: float = math.inf
    changes: list[tuple[int, int]]
    busy: list[Busy]

    def begin(self) -> None:
        """A run begins, and nothing is on the device."""

    def restart(self) -> None:
        """A new step begins with what is resident on the device now.

        What was seen of the last one is forgotten.
        """

    def change(self, item: int, size: int) -> None:
        """``size`` bytes of ``item`` came to the device (below 0: left it)."""

    def look(self, used: int, time: float, op: int) -> None:
        """The device holds ``used`` bytes at ``time``, when ``op`` runs or comes next."""

    def stall(self, cause: str, start: float, end: float) -> None:
        """Compute stalls."""

    def keep(self, describe: Describe) -> None:
        """The step seen since ``restart`` is the one to draw."""

    def lay_out(self, seconds: Sequence[float], simulation: MemorySimulation) -> None:
        """The ops of ``simulation`` took ``seconds`` each and were held up by its stalls."""


UNWATCHED = RunRecorder()


class StepRecorder(RunRecorder):
    """Keeps what one step did; ``recording`` is what it came to."""

    watches = True

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.changes = []
        self.fullest: Fullest | None = None
        self._forget()

    def _forget(self) -> None:
        self.busy = []
        self.stalls: dict[str, Spans] = {}
        self.most = -1.0
        self.moment = (0.0, -1, 0, 0)

    def restart(self) -> None:
        self.changes = list(self._items(len(self.changes)).items())
        self._forget()

    def change(self, item: int, size: int) -> None:
        self.changes.append((item, size))

    def look(self, used: int, time: float, op: int) -> None:
        if used > self.most:
            self.most, self.moment = used, (time, op, used, len(self.changes))

    def stall(self, cause: str, start: float, end: float) -> None:
        self.stalls.setdefault(cause, []).append((start, end))

    def keep(self, describe: Describe) -> None:
        if self.most >= 0:
            moment = Moment(*self.moment)
            self.fullest = describe(moment, self._items(moment.changes))

    def _items(self, rows: int) -> dict[int, int]:
        """Bytes of each item that are there after so many changes."""
        held: dict[int, int] = {}
        for item, size in self.changes[:rows]:
            held[item] = held.get(item, 0) + size
        return {item: size for item, size in held.items() if size}

    def lay_out(self, seconds: Sequence[float], simulation: MemorySimulation) -> None:
        self.busy = one_after_another(seconds, simulation.idle)
        causes = [cause for cause, time in simulation.stalls.items() if time > 0]
        name = causes[0] if len(causes) == 1 else "several causes"
        self.stalls = {name: list(simulation.idle)} if simulation.idle else {}

    @property
    def recording(self) -> StepRecording:
        """What was kept."""
        return StepRecording(tuple(self.busy), self.stalls, self.fullest)


def one_after_another(seconds: Sequence[float], idle: Spans) -> list[Busy]:
    """Ops around the times in which compute stalled: an op that faults goes on after each."""
    gaps = deque(sorted(idle))
    busy, now = [], 0.0
    for op, left in enumerate(seconds):
        start = now
        while gaps and gaps[0][0] <= now + left:
            begin, end = gaps.popleft()
            left -= max(0.0, begin - now)
            now = max(now, end)
        now += left
        busy.append(("op", op, start, now))
    return busy


def fullest_of_tensors(moment: Moment, held: Mapping[int, int]) -> Fullest:
    """The moment of a device that holds tensors, and scratch of ops."""
    tensors = {item: size for item, size in held.items() if item != SCRATCH}
    return Fullest(moment.time, moment.op, tensors, held.get(SCRATCH, 0))
