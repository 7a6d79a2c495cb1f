"""Copies of tensors on the device and its tiers: what is where, what is on its way, what comes free when."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from experiments.memory.simulator.channels import TierChannels
from experiments.memory.simulator.clock import StepClock
from experiments.memory.simulator.device_memory import DeviceMemory, lacking
from experiments.memory.simulator.pools.allocator import NOWHERE, SCRATCH
from experiments.memory.simulator.prepared import Prepared
from experiments.memory.simulator.tiers import Tiers

UNBORN, DEVICE, AWAY, QUEUED, COMING, GONE = range(6)
STATES = ("not yet produced", "on the device", "on a tier", "queued", "coming", "gone")


class Ending(NamedTuple):
    """A copy ends at ``time``: ``size`` bytes at ``address`` come free, or ``stored`` bytes on ``tier``."""

    time: float
    sequence: int
    tensor: int
    size: int = 0
    address: int = NOWHERE
    tier: str = ""
    stored: float = 0.0


class TierCopies:
    """Where each tensor is resident, and the copies in flight.

    - ``state``: of each tensor, one of ``STATES``.
    - ``arrival``, ``copied``: when a tensor is on the device, and when on its tier.
    - ``away``: the tier and the bytes of a copy there.
    - ``kept``: tensors on the device whose copy on the tier is still good.
    - ``departing``: tensors that leave while an op still reads them.
    - ``host_made``: when a tensor that the host writes is complete.
    - ``held``: until when an op on the host uses a tensor.
    - ``leaving``: a heap of the copies in flight.
    - ``queue``: prefetches that have no space yet.
    """

    def __init__(
        self, prepared: Prepared, memory: DeviceMemory, channels: TierChannels, clock: StepClock
    ) -> None:
        self.s, self.memory, self.channels, self.clock = prepared, memory, channels, clock
        self.tiers = Tiers(prepared.machine)
        count = len(prepared.sizes)
        self.state = [UNBORN] * count
        self.arrival, self.copied = [0.0] * count, [0.0] * count
        self.away: dict[int, tuple[str, float]] = {}
        self.kept: set[int] = set()
        self.departing: set[int] = set()
        self.host_made: dict[int, float] = {}
        self.held: dict[int, float] = {}
        self.leaving: list[Ending] = []
        self.queue: deque[int] = deque()
        self.sequence = 0

    def restart(self, done: float) -> None:
        """Copies in flight go on in the new step; what died with the old one is not yet produced again."""
        local = [t for t, kept in enumerate(self.s.lineage.persistent) if not kept]
        self.free([t for t in local if self.state[t] not in (UNBORN, GONE)])
        for tensor in local:
            self.state[tensor], self.memory.size[tensor] = UNBORN, self.s.sizes[tensor]
        self.arrival = [time - done for time in self.arrival]
        self.copied = [time - done for time in self.copied]
        self.host_made = {tensor: time - done for tensor, time in self.host_made.items()}
        self.held = {tensor: time - done for tensor, time in self.held.items()}
        self.leaving[:] = [copy._replace(time=copy.time - done) for copy in self.leaving]
        self.channels.restart(done)
        self.tiers.restart()

    def leave(self) -> None:
        """The next copy has ended: its device bytes or its tier bytes come free."""
        copy = heapq.heappop(self.leaving)
        if copy.size:
            self.memory.give(copy.tensor, copy.size, copy.address)
        if copy.stored:
            self.tiers.unstore(copy.stored, copy.tier)

    def start_copy(self, tensor: int, tier: str, ratio: float) -> None:
        """Start the copy of ``tensor`` to ``tier``, unless a good one is there."""
        if tensor in self.kept and self.away[tensor][0] == tier:
            self.kept.discard(tensor)
            return
        self.void(tensor)
        self.store(tensor, tier, ratio)
        self.copied[tensor] = self.channels.send_out(tensor, self.away[tensor][1], tier, self.clock.now)

    def void(self, tensor: int) -> None:
        """A copy that was kept on a tier is good no more."""
        if tensor in self.kept:
            self.kept.discard(tensor)
            self.unstore(tensor)

    def free(self, tensors: Iterable[int]) -> None:
        """These tensors are needed no more, wherever they are resident."""
        states, kept = self.state, self.kept
        for tensor in tensors:
            state = states[tensor]
            if state in (DEVICE, COMING) and tensor not in self.departing:
                self.memory.clear(tensor)
                if tensor in kept:
                    self.void(tensor)
            elif state in (AWAY, QUEUED) and tensor in self.away:
                kept.discard(tensor)
                self.forget_copy(tensor)
            states[tensor] = GONE

    def forget_copy(self, tensor: int) -> None:
        """Give the bytes of a copy on its tier back, once the host has done with it."""
        until = self.held.get(tensor, 0.0)
        if until > self.clock.now:
            tier, size = self.away.pop(tensor)
            self.push(until, tensor, tier=tier, stored=size)
        else:
            self.unstore(tensor)

    def hold_until(self, time: float, size: float, tier: str) -> None:
        """Take ``size`` bytes on ``tier`` for scratch, until ``time``."""
        self.take_on(tier, size)
        self.push(time, SCRATCH, tier=tier, stored=size)

    def store(self, tensor: int, tier: str, ratio: float) -> None:
        """Take the bytes of a copy on ``tier``."""
        size = self.memory.size[tensor] / ratio
        self.away[tensor] = (tier, size)
        self.take_on(tier, size)

    def take_on(self, tier: str, size: float) -> None:
        """Take ``size`` bytes on ``tier``; ``Infeasible`` where it is full."""
        missing = self.tiers.store(size, tier)
        if missing:
            raise lacking(missing, self.clock.place(), tier, self.tiers.room[tier])

    def unstore(self, tensor: int) -> None:
        """Give the bytes of a copy on its tier back."""
        tier, size = self.away.pop(tensor)
        self.tiers.unstore(size, tier)

    def resident_on(self, tensor: int, tier: str) -> bool:
        """Whether ``tensor`` has a copy on ``tier``."""
        return tensor in self.away and self.away[tensor][0] == tier

    def release(self, tensors: Iterable[int]) -> None:
        """The last use of these device copies is over: their bytes come free when the copy has ended."""
        memory = self.memory
        for tensor in tensors:
            self.departing.discard(tensor)
            self.state[tensor] = AWAY
            if self.copied[tensor] <= self.clock.now:
                memory.clear(tensor)
            else:
                self.push(self.copied[tensor], tensor, memory.size[tensor], memory.address[tensor])

    def push(
        self,
        time: float,
        tensor: int,
        size: int = 0,
        address: int = NOWHERE,
        tier: str = "",
        stored: float = 0.0,
    ) -> None:
        """At ``time`` these bytes come free."""
        heapq.heappush(self.leaving, Ending(time, self.sequence, tensor, size, address, tier, stored))
        self.sequence += 1

    def fetch(self, tensor: int, address: int) -> None:
        """``tensor`` takes its device bytes at ``address`` and its copy back starts."""
        memory = self.memory
        tier, size = self.away[tensor]
        memory.take(tensor, memory.size[tensor])
        memory.address[tensor] = address
        ready = self.copied[tensor]
        self.arrival[tensor] = self.channels.send_back(tensor, size, tier, self.clock.now, ready)
        self.state[tensor] = COMING
        if tensor in self.kept:
            return
        del self.away[tensor]
        self.push(self.arrival[tensor], tensor, tier=tier, stored=size)

    def admit(self) -> None:
        """Start queued prefetches, first come first served, while they fit."""
        queue = self.queue
        while queue:
            tensor = queue[0]
            if self.state[tensor] == QUEUED:
                address = self.memory.find(tensor)
                if address is None:
                    return
                self.fetch(tensor, address)
            queue.popleft()

    def reschedule(self, tensor: int, out: bool, time: float, is_latest: bool) -> None:
        """A copy of ``tensor`` out of the device, or back, ends at another ``time`` than was known."""
        if is_latest:
            (self.copied if out else self.arrival)[tensor] = time
        for place, copy in enumerate(self.leaving):
            if copy.tensor == tensor and bool(copy.size) == out:
                self.leaving[place] = copy._replace(time=time)
        heapq.heapify(self.leaving)
