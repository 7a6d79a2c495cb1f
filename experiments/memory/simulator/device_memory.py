"""The device's bytes: how many are taken, by what kinds of tensors, and at which addresses."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.core.errors import Infeasible
from experiments.core.units import human
from experiments.memory.interface.space import MemoryPool
from experiments.memory.simulator.clock import StepClock
from experiments.memory.simulator.pools import allocator
from experiments.memory.simulator.pools.allocator import NOWHERE, SCRATCH
from experiments.memory.simulator.prepared import Prepared
from experiments.memory.simulator.recorder import RunRecorder
from experiments.memory.simulator.report import TIMELINE

WORKSPACE = TIMELINE.index("workspace")


class DeviceMemory:
    """Bytes with a capacity; without a pool they are only counted.

    ``size`` and ``address`` are those of each tensor's device copy, ``kinds`` its kind (index in
    ``TIMELINE``; scratch of ops comes last, where ``SCRATCH`` finds it). ``log`` has a row (time, kind,
    change) for each change.
    """

    def __init__(
        self, prepared: Prepared, pool: MemoryPool | None, clock: StepClock, recorder: RunRecorder
    ) -> None:
        self.clock, self.recorder = clock, recorder
        self.capacity = prepared.machine.capacity
        self.pool = allocator(pool, self.capacity, prepared.sizes) if pool else None
        self.pool_kind = pool.kind if pool else ""
        self.used, self.peak = 0, 0
        self.size = list(prepared.sizes)
        self.address = [NOWHERE] * len(prepared.sizes)
        self.kinds = [*prepared.kinds, WORKSPACE]
        self.log: list[tuple[float, int, int]] = []

    def restart(self) -> None:
        """A new step begins, at time 0, with what is resident here now."""
        held: dict[int, int] = {}
        for _, kind, change in self.log:
            held[kind] = held.get(kind, 0) + change
        self.log = [(0.0, kind, size) for kind, size in sorted(held.items()) if size]
        self.peak = self.used

    def take(self, tensor: int, size: int) -> None:
        """``size`` more bytes on the device, for ``tensor`` or ``SCRATCH``."""
        self.used += size
        self.log.append((self.clock.now, self.kinds[tensor], size))
        if self.used > self.peak:
            self.peak = self.used
        if self.recorder.watches:
            self.recorder.changes.append((tensor, size))

    def give(self, tensor: int, size: int, address: int) -> None:
        """``size`` bytes less on the device, those at ``address``."""
        recorder = self.recorder
        if recorder.watches:
            if self.used > recorder.most:
                recorder.look(self.used, self.clock.now, self.clock.at)
            recorder.changes.append((tensor, -size))
        self.used -= size
        self.log.append((self.clock.now, self.kinds[tensor], -size))
        if self.pool:
            self.pool.give(address)

    def occupy(self, tensors: Sequence[int], scratch: int) -> bool:
        """Take the bytes of ``tensors`` and ``scratch`` at once; False, and none is taken, if not all fit."""
        if (
            self.pool is not None
            or self.used + sum([self.size[t] for t in tensors]) + scratch > self.capacity
        ):
            return False
        for tensor in tensors:
            self.take(tensor, self.size[tensor])
        if scratch:
            self.take(SCRATCH, scratch)
        return True

    def clear(self, tensor: int) -> None:
        """The device bytes of ``tensor`` come free now."""
        self.give(tensor, self.size[tensor], self.address[tensor])
        self.address[tensor] = NOWHERE

    def find(self, tensor: int) -> int | None:
        """An address for ``tensor`` at once, ``None`` when there is no space."""
        if self.pool:
            return self.pool.take(tensor, self.size[tensor])
        return NOWHERE if self.used + self.size[tensor] <= self.capacity else None

    def no_hole(self, size: int) -> Infeasible:
        """A complaint that the pool has no address for ``size`` bytes."""
        assert self.pool is not None
        free, largest = self.pool.free, self.pool.largest
        exact = f"{size} bytes find no hole: {free} bytes are free, the largest hole has {largest}"
        readable = f"{self.pool_kind}, {human(size, 'bytes')} in {human(largest, 'bytes')}"
        return Infeasible(f"{exact} ({readable})", self.clock.place(), max(1, size - largest))


def lacking(missing: float, where: str, what: str, room: float) -> Infeasible:
    """A complaint that ``what`` lacks ``missing`` bytes of ``room``."""
    exact = f"{missing:.0f} bytes are missing of {room:.0f}"
    readable = f"{human(missing, 'bytes')} of {human(room, 'bytes')}"
    return Infeasible(f"{what} do not fit: {exact} ({readable})", where, missing)
