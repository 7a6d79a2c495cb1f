"""The device's bytes while a step runs: what lies where, what is leaving or coming, and what waits for space."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Sequence

from experiments.core.errors import Infeasible
from experiments.core.units import human
from experiments.memory.interface.plan import MemoryPlan
from experiments.memory.interface.policy import Eviction, ReactiveMemoryPolicy, Resident
from experiments.memory.simulator.channels import Channels
from experiments.memory.simulator.prepared import Prepared
from experiments.memory.simulator.report import CAUSES, Spans

UNBORN, DEVICE, AWAY, QUEUED, COMING, GONE = range(6)
STATES = ("not yet produced", "on the device", "on a tier", "queued", "coming", "gone")


class Space:
    """The clock of the compute lane and every byte on the device and its tiers.

    ``leaving`` is a heap of (time, sequence, device bytes, tier bytes, tensor) of copies under way; ``arrival`` and
    ``copied`` are when a tensor is on the device and on its tier; ``away`` the tier and the bytes of a copy there;
    ``departing`` the tensors that leave while an op still reads them. ``at`` is the op that runs or comes next.
    """

    def __init__(self, prepared: Prepared, plan: MemoryPlan, policy: ReactiveMemoryPolicy | None) -> None:
        self.s, self.plan, self.policy = prepared, plan, policy
        self.capacity = prepared.machine.capacity
        self.channels = Channels(prepared.machine)
        count = len(prepared.sizes)
        self.at = -1
        self.size = list(prepared.sizes)
        self.state = [UNBORN] * count
        self.arrival, self.copied = [0.0] * count, [0.0] * count
        self.away: dict[int, tuple[str, float]] = {}
        self.now, self.used, self.peak = 0.0, 0, 0
        self.stored = {"host": 0.0, "storage": 0.0}
        self.host_peak = 0.0
        self.leaving: list[tuple[float, int, int, float, int]] = []
        self.sequence = 0
        self.queue: deque[int] = deque()
        self.departing: set[int] = set()
        self.stalls = dict.fromkeys(CAUSES, 0.0)
        self.idle: Spans = []
        self.log: list[tuple[float, int, int]] = []
        self.last_used, self.produced, self.cost = [0.0] * count, [0.0] * count, [0.0] * count

    def compute(self, seconds: float) -> None:
        """Compute is busy for ``seconds``; copies go on beside it."""
        end = self.now + seconds
        self.settle(end)
        self.now = end

    def stand_still(self, time: float, cause: str) -> None:
        """Compute waits until ``time``; space that comes free meanwhile goes to waiting prefetches."""
        if time == float("inf"):
            raise Infeasible("waits for a transfer that never ends (zero bandwidth)", self.place())
        self.stalls[cause] += time - self.now
        self.idle.append((self.now, time))
        self.settle(time)
        self.now = time

    def settle(self, time: float) -> None:
        """Let every copy that ends by ``time`` give its space back, in order."""
        while self.leaving and self.leaving[0][0] <= time:
            self.now = max(self.now, self.leaving[0][0])
            self.leave()
            self.admit()

    def leave(self) -> None:
        """The next copy has ended: its device bytes or its tier bytes come free."""
        _, _, device, host, tensor = heapq.heappop(self.leaving)
        if device:
            self.take(-device, self.s.kinds[tensor])
        if host:
            self.unstore(tensor)

    def take(self, size: int, kind: int) -> None:
        """``size`` more (or less) bytes on the device, of a kind of ``TIMELINE``."""
        self.used += size
        self.log.append((self.now, kind, size))
        if self.used > self.peak:
            self.peak = self.used

    def obtain(self, size: int, locked: Sequence[int]) -> None:
        """Wait until ``size`` bytes are free: for copies on their way out, then for the policy's evictions."""
        while self.used + size > self.capacity:
            if not self.leaving and not self.evicted(self.used + size - self.capacity, locked):
                raise lacking(
                    self.used + size - self.capacity, self.place(), f"{size} more bytes", self.capacity
                )
            if not self.leaving:
                continue  # what was evicted had no bytes, or was gone at once
            time = self.leaving[0][0]
            if time > self.now:
                if time == float("inf"):
                    raise Infeasible("waits for a transfer that never ends (zero bandwidth)", self.place())
                self.stalls["space"] += time - self.now
                self.idle.append((self.now, time))
                self.now = time
            self.leave()

    def evicted(self, needed: int, locked: Sequence[int]) -> bool:
        """Ask the policy what leaves; False when it sends nothing."""
        if self.policy is None:
            return False
        held = set(locked) | self.departing
        resident = [
            Resident(t, self.size[t], self.last_used[t], self.produced[t], self.cost[t])
            for t, state in enumerate(self.state)
            if state == DEVICE and t not in held
        ]
        chosen = list(self.policy.evict(needed, resident, self.now))
        allowed = {entry.tensor for entry in resident}
        for eviction in chosen:
            if eviction.tensor not in allowed:
                raise Infeasible(
                    f"the policy evicts tensor {eviction.tensor}, which cannot leave", self.place()
                )
            allowed.discard(eviction.tensor)
            self.send(eviction)
        return bool(chosen)

    def send(self, eviction: Eviction) -> None:
        """Start the copy of a tensor that a reactive policy evicts."""
        self.store(eviction.tensor, eviction.tier, 1.0)
        end = self.channels.out(self.away[eviction.tensor][1], eviction.tier, self.now)
        self.copied[eviction.tensor] = end
        self.release([(end, eviction.tensor)])

    def free(self, tensors: Iterable[int]) -> None:
        """These tensors are needed no more, wherever they lie."""
        for tensor in tensors:
            state = self.state[tensor]
            if state in (DEVICE, COMING) and tensor not in self.departing:
                self.take(-self.size[tensor], self.s.kinds[tensor])
            elif state in (AWAY, QUEUED) and tensor in self.away:
                self.unstore(tensor)
            self.state[tensor] = GONE

    def store(self, tensor: int, tier: str, ratio: float) -> None:
        """Take the bytes of a copy on ``tier``."""
        size = self.size[tensor] / ratio
        room = self.s.machine.host_bytes if tier == "host" else self.s.machine.storage_bytes
        self.away[tensor] = (tier, size)
        self.stored[tier] += size
        self.host_peak = max(self.host_peak, self.stored["host"])
        if self.stored[tier] > room:
            raise lacking(self.stored[tier] - room, self.place(), tier, room)

    def unstore(self, tensor: int) -> None:
        """Give the bytes of a copy on its tier back."""
        tier, size = self.away.pop(tensor)
        self.stored[tier] -= size

    def release(self, copies: Iterable[tuple[float, int]]) -> None:
        """The last use of these device copies is over: their bytes come free when the copy has ended."""
        for end, tensor in copies:
            self.departing.discard(tensor)
            self.state[tensor] = AWAY
            if end <= self.now:
                self.take(-self.size[tensor], self.s.kinds[tensor])
            else:
                self.push(end, self.size[tensor], 0.0, tensor)

    def push(self, time: float, device: int, host: float, tensor: int) -> None:
        """At ``time`` these bytes come free."""
        heapq.heappush(self.leaving, (time, self.sequence, device, host, tensor))
        self.sequence += 1

    def admit(self) -> None:
        """Start queued prefetches, first come first served, while they fit."""
        queue = self.queue
        while queue:
            tensor = queue[0]
            if self.state[tensor] == QUEUED:
                if self.used + self.size[tensor] > self.capacity:
                    return
                self.fetch(tensor)
            queue.popleft()

    def fetch(self, tensor: int) -> None:
        """Take the device bytes of ``tensor`` and start its copy back."""
        tier, size = self.away[tensor]
        self.take(self.size[tensor], self.s.kinds[tensor])
        end = self.channels.back(size, tier, max(self.now, self.copied[tensor]))
        self.arrival[tensor] = end
        self.state[tensor] = COMING
        self.push(end, 0, size, tensor)

    def gather(self, touched: Sequence[int]) -> float:
        """Start what ``touched`` still needs from a tier; when the last of it is there."""
        ready = self.now
        for tensor in touched:
            state = self.state[tensor]
            if state == AWAY and self.plan.reactive:
                state = self.state[tensor] = QUEUED
            if state == QUEUED:
                self.obtain(self.size[tensor], touched)
                self.fetch(tensor)
                state = COMING
            if state == COMING:
                ready = max(ready, self.arrival[tensor])
            elif state not in (UNBORN, DEVICE):
                name = self.s.step.tensors.name[tensor]
                raise Infeasible(f"needs tensor {tensor} ({name}), which is {STATES[state]}", self.place())
        return ready

    def place(self) -> str:
        """Where the step stands, for messages."""
        ops = self.s.step.ops
        if self.at < 0:
            return "start of the step"
        if self.at >= len(ops):
            return "end of the step"
        return f"op {self.at} ({ops.name[self.at]}, {self.s.step.phase_of(self.at)})"


def lacking(missing: float, where: str, what: str, room: float) -> Infeasible:
    """A complaint that ``what`` lacks ``missing`` bytes of ``room``."""
    exact = f"{missing:.0f} bytes are missing of {room:.0f}"
    readable = f"{human(missing, 'bytes')} of {human(room, 'bytes')}"
    return Infeasible(f"{what} do not fit: {exact} ({readable})", where, missing)
