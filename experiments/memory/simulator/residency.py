"""How tensors come to be resident on the device: who waits for space, and who gets it."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from experiments.core.errors import ImpossiblePlan, Infeasible
from experiments.memory.interface.eviction_check import eviction_faults
from experiments.memory.interface.policy import ReactiveMemoryPolicy, Resident
from experiments.memory.simulator.compute_lane import ComputeLane, Process
from experiments.memory.simulator.device_memory import lacking
from experiments.memory.simulator.pools.allocator import NOWHERE, SCRATCH
from experiments.memory.simulator.tier_copies import AWAY, COMING, DEVICE, QUEUED, STATES, UNBORN


class Residency:
    """Claims device bytes for compute: what is free, then what copies on their way out leave, then evictions.

    ``reactive``: what an op lacks is fetched without a prefetch, and a ``policy`` evicts, which sees of each
    tensor when it was ``last_used`` and ``produced``, and its ``cost``.
    """

    def __init__(self, lane: ComputeLane, policy: ReactiveMemoryPolicy | None, reactive: bool) -> None:
        self.lane, self.reactive = lane, reactive
        self.policy = policy if reactive else None
        self.copies, self.memory, self.clock = lane.copies, lane.memory, lane.clock
        count = len(self.memory.size)
        self.last_used, self.produced, self.cost = [0.0] * count, [0.0] * count, [0.0] * count

    def restart(self, done: float) -> None:
        """A new step begins where the old one was ``done``."""
        self.last_used = [time - done for time in self.last_used]
        self.produced = [time - done for time in self.produced]

    def claim(
        self, tensors: Sequence[int], scratch: int, locked: Sequence[int]
    ) -> Generator[float, None, int]:
        """Take, and wait for, bytes for new ``tensors`` and for ``scratch``; the address of the latter."""
        memory = self.memory
        if memory.pool is None:
            size = sum([memory.size[tensor] for tensor in tensors]) + scratch
            if memory.used + size > memory.capacity:
                yield from self.obtain(size, locked)
        for tensor in tensors:
            if memory.pool:
                memory.address[tensor] = yield from self.find(tensor, memory.size[tensor], locked)
            memory.take(tensor, memory.size[tensor])
            self.copies.state[tensor] = DEVICE
        address = NOWHERE
        if scratch:
            if memory.pool:
                address = yield from self.find(SCRATCH, scratch, locked)
            memory.take(SCRATCH, scratch)
        return address

    def obtain(self, size: int, locked: Sequence[int]) -> Process:
        """Wait until ``size`` bytes are free: copies on their way out, then the policy's evictions."""
        memory = self.memory
        while memory.used + size > memory.capacity:
            missing = memory.used + size - memory.capacity
            if not (yield from self.make_room(missing, locked)):
                raise lacking(missing, self.clock.place(), f"{size} more bytes", memory.capacity)

    def find(self, tensor: int, size: int, locked: Sequence[int]) -> Generator[float, None, int]:
        """Wait until the pool has an address for ``size`` bytes of ``tensor``; it is taken."""
        pool = self.memory.pool
        assert pool is not None
        while (address := pool.take(tensor, size)) is None:
            missing = max(1, size - pool.largest)
            if not (yield from self.make_room(missing, locked)):
                raise self.memory.no_hole(size)
        return address

    def make_room(self, missing: int, locked: Sequence[int]) -> Generator[float, None, bool]:
        """Wait for the next copy to end, or have the policy evict; False when nothing is left to wait for."""
        leaving = self.copies.leaving
        if not leaving and not self.evict(missing, locked):
            return False
        if not leaving:
            return True  # what was evicted had no bytes, or was gone at once
        time = leaving[0].time
        if time > self.clock.now:
            yield from self.lane.wait_for_space(time)
            if leaving[0].time > time:
                return True
        self.copies.leave()
        return True

    def evict(self, needed: int, locked: Sequence[int]) -> bool:
        """Ask the policy what leaves, and start its copies; False when it sends nothing."""
        if self.policy is None:
            return False
        resident = self._evictable(locked)
        chosen = list(self.policy.evict(needed, resident, self.clock.now))
        faults = eviction_faults(chosen, resident)
        if faults:
            raise ImpossiblePlan([f"{self.clock.place()}: {fault}" for fault in faults])
        for eviction in chosen:
            self.copies.start_copy(eviction.tensor, eviction.tier, 1.0)
            self.copies.release([eviction.tensor])
        return bool(chosen)

    def _evictable(self, locked: Sequence[int]) -> list[Resident]:
        """What is on the device and may leave."""
        held = set(locked) | self.copies.departing
        return [
            Resident(t, self.memory.size[t], self.last_used[t], self.produced[t], self.cost[t])
            for t, state in enumerate(self.copies.state)
            if state == DEVICE and t not in held
        ]

    def remember(self, touched: Sequence[int], new: Sequence[int], seconds: float) -> None:
        """An op of ``seconds`` has used ``touched`` and made ``new``."""
        now = self.clock.now
        for tensor in touched:
            self.last_used[tensor] = now
        for tensor in new:
            self.produced[tensor], self.cost[tensor] = now, seconds

    def fetch_now(self, tensor: int, locked: Sequence[int]) -> Process:
        """Free bytes for ``tensor``, which compute needs, and start its copy back."""
        address, size = NOWHERE, self.memory.size[tensor]
        if self.memory.pool:
            address = yield from self.find(tensor, size, locked)
        else:
            yield from self.obtain(size, locked)
        self.copies.fetch(tensor, address)

    def gather(self, touched: Sequence[int]) -> Generator[float, None, list[int]]:
        """Start what ``touched`` still needs from a tier; the tensors that are coming."""
        states, coming = self.copies.state, []
        for tensor in touched:
            state = states[tensor]
            if state in (DEVICE, UNBORN):
                continue
            if state == AWAY and self.reactive:
                state = states[tensor] = QUEUED
            if state == QUEUED:
                yield from self.fetch_now(tensor, touched)
            elif state != COMING:
                name = self.clock.step.tensors.name[tensor]
                what = f"needs tensor {tensor} ({name}), which is {STATES[state]}"
                raise Infeasible(what, self.clock.place())
            coming.append(tensor)
        return coming
