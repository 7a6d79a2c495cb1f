"""What a plan's simulation did when: each op's time, why compute stood still, and what lay on the device at its fullest.

Searches need none of it, so it is not kept by the simulator itself: the plan is carried out once more, watched.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

from experiments.memory.interface.plan import MemoryPlan
from experiments.memory.interface.policy import ReactiveMemoryPolicy
from experiments.memory.interface.release import Release
from experiments.memory.interface.space import Paging
from experiments.memory.simulator.copies import COMING, DEVICE
from experiments.memory.simulator.engine import ITERATIONS, Run
from experiments.memory.simulator.prepared import Prepared
from experiments.memory.simulator.recorded_pages import fullest_of_pages
from experiments.memory.simulator.report import Fullest, Simulation, Spans
from experiments.memory.simulator.space import Process


class Busy(NamedTuple):
    """Compute was busy from ``start`` to ``end`` with ``which``: an op (``op``, ``recompute``) or a tensor (``codec``)."""

    what: str
    which: int
    start: float
    end: float


@dataclass(frozen=True)
class Recording:
    """``stalls`` by cause as spans. ``fullest`` is ``None`` where the device is never in use."""

    busy: tuple[Busy, ...]
    stalls: dict[str, Spans] = field(default_factory=dict)
    fullest: Fullest | None = None


def record(
    prepared: Prepared, plan: MemoryPlan, simulation: Simulation, policy: ReactiveMemoryPolicy | None = None
) -> Recording:
    """The recording of ``simulation``, which ``Simulator.steady`` gave for ``plan``; ``prepared`` is its step."""
    if isinstance(plan.space, Paging):
        fullest = fullest_of_pages(prepared, plan, plan.space, simulation)
        return replace(laid_out(prepared.seconds, simulation), fullest=fullest)
    if isinstance(plan.space, Release):
        return replace(laid_out(prepared.seconds, simulation), fullest=simulation.fullest)
    run = RecordedRun(prepared, plan, policy).watch(simulation.peak_bytes)
    deque(run.walk(ITERATIONS if simulation.first else 1), maxlen=0)
    return run.recording


def laid_out(seconds: Sequence[float], simulation: Simulation) -> Recording:
    """Ops one after another around the times in which compute stood still: an op that faults goes on after each."""
    gaps = deque(sorted(simulation.idle))
    busy, now = [], 0.0
    for op, left in enumerate(seconds):
        start = now
        while gaps and gaps[0][0] <= now + left:
            begin, end = gaps.popleft()
            left -= max(0.0, begin - now)
            now = max(now, end)
        now += left
        busy.append(Busy("op", op, start, now))
    causes = [cause for cause, time in simulation.stalls.items() if time > 0]
    name = causes[0] if len(causes) == 1 else "several causes"
    return Recording(tuple(busy), {name: list(simulation.idle)} if simulation.idle else {})


class RecordedRun(Run):
    """A run that is watched; its peak is known from the simulation that is recorded."""

    doing = ("op", 0)

    def watch(self, peak: int) -> Self:
        self.known_peak = peak
        self._forget()
        return self

    @property
    def recording(self) -> Recording:
        return Recording(tuple(self.busy), self.spans, self.fullest)

    def _forget(self) -> None:
        self.busy: list[Busy] = []
        self.spans: dict[str, Spans] = {}
        self.fullest: Fullest | None = None

    def restart(self) -> None:
        super().restart()
        self._forget()

    def _op(self, op: int, seconds: float, workspace: int) -> Process:
        self.doing = ("op", op)
        yield from super()._op(op, seconds, workspace)

    def _rerun(self, op: int, here: set[int], keep: set[int], ending: Sequence[int]) -> Process:
        self.doing = ("recompute", op)
        yield from super()._rerun(op, here, keep, ending)

    def _recode(self, tensor: int, size: int, seconds: float) -> Process:
        self.doing = ("codec", tensor)
        yield from super()._recode(tensor, size, seconds)

    def compute(self, seconds: float) -> Process:
        self._look()
        start = self.now
        yield from super().compute(seconds)
        self.busy.append(Busy(*self.doing, start, self.now))

    def stand_still(self, time: float, cause: str) -> Process:
        self._look()
        start = self.now
        yield from super().stand_still(time, cause)
        self.spans.setdefault(cause, []).append((start, self.now))

    def make_room(self, missing: int, locked: Sequence[int]) -> Generator[float, None, bool]:
        start = self.now
        found = yield from super().make_room(missing, locked)
        if self.now > start:
            self.spans.setdefault("space", []).append((start, self.now))
        return found

    def give(self, size: int, kind: int, address: int) -> None:
        self._look()
        super().give(size, kind, address)

    def _look(self) -> None:
        """Keep what the device holds, the first time that it is as full as it gets."""
        if self.fullest is not None or self.used < self.known_peak:
            return
        held = {t: self.size[t] for t, state in enumerate(self.state) if state in (DEVICE, COMING)}
        for copy in self.leaving:
            if copy.size:
                held[copy.tensor] = held.get(copy.tensor, 0) + copy.size
        held = {tensor: size for tensor, size in held.items() if size}
        self.fullest = Fullest(self.now, self.at, held, self.used - sum(held.values()))
