"""The clock of the compute lane, and the device's space: who waits for it, who gets it.

Everything that may take time is a process: a generator that yields the time it wants to go on at. One device runs
its process straight through; devices that share a link are advanced in the order of those times (``shared``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Sequence

from experiments.core.errors import ImpossiblePlan, Infeasible
from experiments.memory.interface.eviction_check import eviction_faults
from experiments.memory.interface.plan import MemoryPlan
from experiments.memory.interface.policy import Eviction, ReactiveMemoryPolicy, Resident
from experiments.memory.simulator.allocator import NOWHERE, SCRATCH
from experiments.memory.simulator.copies import AWAY, COMING, DEVICE, QUEUED, STATES, UNBORN, Copies
from experiments.memory.simulator.device import WORKSPACE, lacking
from experiments.memory.simulator.prepared import Prepared
from experiments.memory.simulator.report import CAUSES, Spans

Process = Generator[float, None, None]


class Space(Copies):
    """``queue`` are the prefetches that have no space yet; ``stalls`` and ``idle`` say why and when compute stood still,
    ``late`` how long it waited for each tensor.
    """

    def __init__(self, prepared: Prepared, plan: MemoryPlan, policy: ReactiveMemoryPolicy | None) -> None:
        super().__init__(prepared, plan)
        self.policy = policy if plan.reactive else None
        self.queue: deque[int] = deque()
        self.stalls = dict.fromkeys(CAUSES, 0.0)
        self.late: dict[int, float] = {}
        self.idle: Spans = []
        count = len(prepared.sizes)
        self.last_used, self.produced, self.cost = [0.0] * count, [0.0] * count, [0.0] * count

    def restart(self) -> None:
        done = self.now
        self.stalls = dict.fromkeys(CAUSES, 0.0)
        self.late, self.idle = {}, []
        self.last_used = [time - done for time in self.last_used]
        self.produced = [time - done for time in self.produced]
        super().restart()

    def compute(self, seconds: float) -> Process:
        """Compute is busy for ``seconds``; copies go on beside it."""
        end = self.now + seconds
        if self.leaving and self.leaving[0].time <= end:
            yield from self.settle(end)
        else:
            yield end
        self.now = end

    def stand_still(self, time: float, cause: str) -> Process:
        """Compute waits until ``time``; space that comes free meanwhile goes to waiting prefetches."""
        if time == float("inf"):
            raise Infeasible("waits for a transfer that never ends (zero bandwidth)", self.place())
        self.stalls[cause] = self.stalls.get(cause, 0.0) + time - self.now
        self.idle.append((self.now, time))
        yield from self.settle(time)
        self.now = time

    def arrive(self, tensors: Iterable[int]) -> Process:
        """Compute waits until ``tensors``, all of which are coming, are on the device."""
        began, late = self.now, [t for t in tensors if self.arrival[t] > self.now]
        while late:
            last = max(late, key=self.arrival.__getitem__)
            if self.arrival[last] <= self.now:
                break
            made = self.host_made.get(last, 0.0)
            if self.now < made <= self.arrival[last]:
                yield from self.stand_still(made, "host")
            yield from self.stand_still(self.arrival[last], "transfer")
        for tensor in late:
            self.late[tensor] = self.late.get(tensor, 0.0) + self.arrival[tensor] - began

    def settle(self, time: float) -> Process:
        """Let every copy that ends by ``time`` give its space back, in order; then it is ``time``."""
        leaving = self.leaving
        while leaving and leaving[0].time <= time:
            ends = leaving[0].time
            if ends > self.now:
                yield ends
                if leaving[0].time > ends:
                    continue
                self.now = ends
            self.leave()
            self.admit()
        yield time

    def claim(
        self, tensors: Sequence[int], scratch: int, locked: Sequence[int]
    ) -> Generator[float, None, int]:
        """Device bytes for new ``tensors`` and for ``scratch``, waited for where they must; the address of the latter."""
        if self.pool is None:
            size = sum([self.size[tensor] for tensor in tensors]) + scratch
            if self.used + size > self.capacity:
                yield from self.obtain(size, locked)
        for tensor in tensors:
            if self.pool:
                self.address[tensor] = yield from self.find(tensor, self.size[tensor], locked)
            self.take(self.size[tensor], self.s.kinds[tensor])
            self.state[tensor] = DEVICE
        address = NOWHERE
        if scratch:
            if self.pool:
                address = yield from self.find(SCRATCH, scratch, locked)
            self.take(scratch, WORKSPACE)
        return address

    def obtain(self, size: int, locked: Sequence[int]) -> Process:
        """Wait until ``size`` bytes are free: for copies on their way out, then for the policy's evictions."""
        while self.used + size > self.capacity:
            missing = self.used + size - self.capacity
            if not (yield from self.make_room(missing, locked)):
                raise lacking(missing, self.place(), f"{size} more bytes", self.capacity)

    def find(self, tensor: int, size: int, locked: Sequence[int]) -> Generator[float, None, int]:
        """Wait until the pool has an address for ``size`` bytes of ``tensor``; it is taken."""
        assert self.pool is not None
        while (address := self.pool.take(tensor, size)) is None:
            missing = max(1, size - self.pool.largest)
            if not (yield from self.make_room(missing, locked)):
                raise self.no_hole(size)
        return address

    def make_room(self, missing: int, locked: Sequence[int]) -> Generator[float, None, bool]:
        """Wait for the next copy to end, or have the policy evict; False when nothing is left to wait for."""
        if not self.leaving and not self.evicted(missing, locked):
            return False
        if not self.leaving:
            return True  # what was evicted had no bytes, or was gone at once
        time = self.leaving[0].time
        if time > self.now:
            if time == float("inf"):
                raise Infeasible("waits for a transfer that never ends (zero bandwidth)", self.place())
            yield time
            self.stalls["space"] += time - self.now
            self.idle.append((self.now, time))
            self.now = time
            if self.leaving[0].time > time:
                return True
        self.leave()
        return True

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
        faults = eviction_faults(chosen, resident, self.s.machine)
        if faults:
            raise ImpossiblePlan([f"{self.place()}: {fault}" for fault in faults])
        for eviction in chosen:
            self.send(eviction)
        return bool(chosen)

    def send(self, eviction: Eviction) -> None:
        """Start the copy of a tensor that a reactive policy evicts."""
        self.start_copy(eviction.tensor, eviction.tier, 1.0)
        self.release([eviction.tensor])

    def admit(self) -> None:
        """Start queued prefetches, first come first served, while they fit."""
        queue = self.queue
        while queue:
            tensor = queue[0]
            if self.state[tensor] == QUEUED:
                address = self.room(tensor)
                if address is None:
                    return
                self.fetch(tensor, address)
            queue.popleft()

    def fetch_now(self, tensor: int, locked: Sequence[int]) -> Process:
        """Make room for ``tensor``, which compute needs, and start its copy back."""
        address = NOWHERE
        if self.pool:
            address = yield from self.find(tensor, self.size[tensor], locked)
        else:
            yield from self.obtain(self.size[tensor], locked)
        self.fetch(tensor, address)

    def gather(self, touched: Sequence[int]) -> Generator[float, None, list[int]]:
        """Start what ``touched`` still needs from a tier; the tensors that are coming."""
        coming = []
        for tensor in touched:
            state = self.state[tensor]
            if state in (DEVICE, UNBORN):
                continue
            if state == AWAY and self.plan.reactive:
                state = self.state[tensor] = QUEUED
            if state == QUEUED:
                yield from self.fetch_now(tensor, touched)
            elif state != COMING:
                name = self.s.step.tensors.name[tensor]
                raise Infeasible(f"needs tensor {tensor} ({name}), which is {STATES[state]}", self.place())
            coming.append(tensor)
        return coming
