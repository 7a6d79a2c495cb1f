"""Four lanes, each a queue that moves one tensor after another: no latency, nothing shared between lanes."""

from __future__ import annotations

from collections import deque

from experiments.memory.interface.machine import MemoryMachine
from experiments.memory.simulator.report import Spans

WRITE, READ, OUT, BACK = range(4)
#: Storage write and read, host write and read: the names of ``MemorySimulation.transfers``.
NAMES = ("write", "read", "out", "back")
NEVER = float("inf")


class TransferLanes:
    """``ends[lane]`` is when the transfer in flight on a lane ends, ``NEVER`` when it is empty."""

    def __init__(self, machine: MemoryMachine) -> None:
        # The host's lanes have what storage traffic leaves of the link, whether there is any or not.
        self.rates = (
            machine.write.bandwidth,
            machine.read.bandwidth,
            machine.out.bandwidth - machine.write.bandwidth,
            machine.back.bandwidth - machine.read.bandwidth,
        )
        self.queues: tuple[deque[tuple[int, int]], ...] = tuple(deque() for _ in NAMES)
        self.ends = [NEVER] * len(NAMES)
        self.began = [0.0] * len(NAMES)
        self.queued = [0] * len(NAMES)
        self.spans: dict[str, Spans] = {name: [] for name in NAMES}

    def queue(self, lane: int, tensor: int, size: int, now: float) -> None:
        """``size`` bytes of ``tensor`` join the queue of ``lane``."""
        self.queued[lane] += size
        self.queues[lane].append((tensor, size))
        if len(self.queues[lane]) == 1:
            self._start(lane, now)

    def _start(self, lane: int, now: float) -> None:
        size, rate = self.queues[lane][0][1], self.rates[lane]
        self.began[lane] = now
        self.ends[lane] = now + size / rate if rate > 0 else NEVER

    @property
    def next(self) -> int:
        """The lane whose transfer ends first."""
        return self.ends.index(min(self.ends))

    def finish(self, lane: int) -> int:
        """The transfer in flight on ``lane`` ends; its tensor."""
        end = self.ends[lane]
        self.spans[NAMES[lane]].append((self.began[lane], end))
        tensor, _ = self.queues[lane].popleft()
        self.ends[lane] = NEVER
        if self.queues[lane]:
            self._start(lane, end)
        return tensor

    def spans_until(self, now: float) -> dict[str, Spans]:
        """The spans in which each lane was busy until ``now``."""
        for lane, queue in enumerate(self.queues):
            if queue and self.began[lane] < now:
                self.spans[NAMES[lane]].append((self.began[lane], now))
        return self.spans

    @property
    def moved_bytes(self) -> dict[str, float]:
        """Bytes queued by channel; ``out`` and ``back`` count what goes to storage, as everywhere."""
        write, read, out, back = (float(size) for size in self.queued)
        return {"out": out + write, "back": back + read, "write": write, "read": read}
