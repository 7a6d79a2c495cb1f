"""The device's bytes: how many are taken, by what kinds of tensors, and at which addresses."""

from __future__ import annotations

from experiments.core.errors import Infeasible
from experiments.core.units import human
from experiments.memory.interface.plan import MemoryPlan
from experiments.memory.interface.space import Pool
from experiments.memory.simulator.allocator import NOWHERE
from experiments.memory.simulator.pools import allocator
from experiments.memory.simulator.prepared import Prepared
from experiments.memory.simulator.report import TIMELINE

WORKSPACE = TIMELINE.index("workspace")


class Device:
    """``size`` and ``address`` are those of each tensor's device copy; without a pool bytes are only counted.

    ``now`` is the clock of the compute lane, ``at`` the op that runs or comes next.
    """

    def __init__(self, prepared: Prepared, plan: MemoryPlan) -> None:
        self.s, self.plan = prepared, plan
        self.capacity = prepared.machine.capacity
        pool = plan.space
        self.pool = allocator(pool, self.capacity, prepared.sizes) if isinstance(pool, Pool) else None
        self.at, self.now = -1, 0.0
        self.used, self.peak = 0, 0
        self.size = list(prepared.sizes)
        self.address = [NOWHERE] * len(prepared.sizes)
        self.log: list[tuple[float, int, int]] = []

    def restart(self) -> None:
        """A new step begins, at time 0, with what lies here now."""
        held: dict[int, int] = {}
        for _, kind, change in self.log:
            held[kind] = held.get(kind, 0) + change
        self.log = [(0.0, kind, size) for kind, size in sorted(held.items()) if size]
        self.at, self.now, self.peak = -1, 0.0, self.used

    def take(self, size: int, kind: int) -> None:
        """``size`` more bytes on the device, of a kind of ``TIMELINE``."""
        self.used += size
        self.log.append((self.now, kind, size))
        if self.used > self.peak:
            self.peak = self.used

    def give(self, size: int, kind: int, address: int) -> None:
        """``size`` bytes less on the device, those at ``address``."""
        self.used -= size
        self.log.append((self.now, kind, -size))
        if self.pool:
            self.pool.give(address)

    def clear(self, tensor: int) -> None:
        """The device bytes of ``tensor`` come free now."""
        self.give(self.size[tensor], self.s.kinds[tensor], self.address[tensor])
        self.address[tensor] = NOWHERE

    def room(self, tensor: int) -> int | None:
        """An address for ``tensor`` at once, ``None`` when there is no space."""
        if self.pool:
            return self.pool.take(tensor, self.size[tensor])
        return NOWHERE if self.used + self.size[tensor] <= self.capacity else None

    def no_hole(self, size: int) -> Infeasible:
        assert self.pool is not None and isinstance(self.plan.space, Pool)
        free, largest = self.pool.free, self.pool.largest
        exact = f"{size} bytes find no hole: {free} bytes are free, the largest hole has {largest}"
        readable = f"{self.plan.space.kind}, {human(size, 'bytes')} in {human(largest, 'bytes')}"
        return Infeasible(f"{exact} ({readable})", self.place(), max(1, size - largest))

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
