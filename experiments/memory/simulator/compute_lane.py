"""The compute lane: what it is busy with, and what it stalls for.

Everything that may take time is a process: a generator that yields the time it wants to go on at. One device
runs its process straight through; devices that share a link are advanced in the order of those times
(``shared``).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable

from experiments.core.errors import Infeasible
from experiments.memory.simulator.clock import StepClock
from experiments.memory.simulator.recorder import RunRecorder
from experiments.memory.simulator.report import CAUSES, Spans
from experiments.memory.simulator.tier_copies import TierCopies

Process = Generator[float, None, None]


class ComputeLane:
    """Why (``stalls``) and when (``idle``) compute stalled, and how long for each tensor (``late``)."""

    def __init__(self, copies: TierCopies, clock: StepClock, recorder: RunRecorder) -> None:
        self.copies, self.clock, self.recorder = copies, clock, recorder
        self.leaving, self.memory = copies.leaving, copies.memory
        self.restart()

    def restart(self) -> None:
        """A new step begins; what stalled the one before is forgotten."""
        self.stalls = dict.fromkeys(CAUSES, 0.0)
        self.late: dict[int, float] = {}
        self.idle: Spans = []

    def compute(self, seconds: float, what: str, which: int) -> Process:
        """Compute is busy for ``seconds`` with ``which`` op or tensor; copies overlap with it."""
        clock = self.clock
        end = clock.now + seconds
        recorder = self.recorder
        if recorder.watches:
            if self.memory.used > recorder.most:
                recorder.look(self.memory.used, clock.now, clock.at)
            recorder.busy.append((what, which, clock.now, end))
        if self.leaving and self.leaving[0].time <= end:
            yield from self.settle(end)
        else:
            yield end
        clock.now = end

    def stall_until(self, time: float, cause: str) -> Process:
        """Compute waits until ``time``; space that comes free meanwhile goes to waiting prefetches."""
        clock = self.clock
        self.recorder.look(self.memory.used, clock.now, clock.at)
        self._note_stall(time, cause)
        self.stalls[cause] = self.stalls.get(cause, 0.0) + time - clock.now
        yield from self.settle(time)
        clock.now = time

    def wait_for_space(self, time: float) -> Process:
        """Compute waits until ``time``, when the next copy ends; its space is for who waits."""
        self._note_stall(time, "space")
        self.stalls["space"] += time - self.clock.now
        yield time
        self.clock.now = time

    def _note_stall(self, time: float, cause: str) -> None:
        now = self.clock.now
        if time == float("inf"):
            raise Infeasible("waits for a transfer that never ends (zero bandwidth)", self.clock.place())
        self.idle.append((now, time))
        self.recorder.stall(cause, now, time)

    def arrive(self, tensors: Iterable[int]) -> Process:
        """Compute waits until ``tensors``, all of which are coming, are on the device."""
        clock, copies = self.clock, self.copies
        began, late = clock.now, [t for t in tensors if copies.arrival[t] > clock.now]
        while late:
            last = max(late, key=copies.arrival.__getitem__)
            if copies.arrival[last] <= clock.now:
                break
            made = copies.host_made.get(last, 0.0)
            if clock.now < made <= copies.arrival[last]:
                yield from self.stall_until(made, "host")
            yield from self.stall_until(copies.arrival[last], "transfer")
        for tensor in late:
            self.late[tensor] = self.late.get(tensor, 0.0) + copies.arrival[tensor] - began

    def settle(self, time: float) -> Process:
        """Let every copy that ends by ``time`` give its space back, in order; then it is ``time``."""
        leaving, clock, copies = self.leaving, self.clock, self.copies
        while leaving and leaving[0].time <= time:
            ends = leaving[0].time
            if ends > clock.now:
                yield ends
                if leaving[0].time > ends:
                    continue
                clock.now = ends
            copies.leave()
            if copies.queue:
                copies.admit()
        yield time
