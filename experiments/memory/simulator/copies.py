"""Copies of tensors between the device and its tiers: what lies where, what is on its way, what comes free when."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import NamedTuple

from experiments.memory.interface.plan import MemoryPlan
from experiments.memory.simulator.allocator import NOWHERE, SCRATCH
from experiments.memory.simulator.channels import Channels
from experiments.memory.simulator.device import Device, lacking
from experiments.memory.simulator.prepared import Prepared
from experiments.memory.simulator.tiers import Tiers

UNBORN, DEVICE, AWAY, QUEUED, COMING, GONE = range(6)
STATES = ("not yet produced", "on the device", "on a tier", "queued", "coming", "gone")


class Ending(NamedTuple):
    """At ``time`` a copy ends: ``size`` device bytes at ``address`` come free, or ``stored`` bytes on ``tier``."""

    time: float
    sequence: int
    tensor: int
    size: int = 0
    address: int = NOWHERE
    tier: str = ""
    stored: float = 0.0


class Copies(Device):
    """What lies where, on the device and its tiers.

    ``leaving`` is a heap of copies under way; ``arrival`` and ``copied`` are when a tensor is on the device and on its
    tier; ``away`` the tier and the bytes of a copy there; ``kept`` the tensors on the device whose copy there is still
    good; ``departing`` those that leave while an op still reads them. ``host_made`` is when a tensor that the host
    writes is complete, ``held`` until when an op there uses one.
    """

    def __init__(self, prepared: Prepared, plan: MemoryPlan) -> None:
        super().__init__(prepared, plan)
        self.channels = Channels(prepared.machine)
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
        self.sequence = 0

    def restart(self) -> None:
        """Copies under way go on in the new step; what died with the old one is not yet produced again."""
        done = self.now
        local = [t for t, kept in enumerate(self.s.lineage.persistent) if not kept]
        self.free([t for t in local if self.state[t] not in (UNBORN, GONE)])
        for tensor in local:
            self.state[tensor], self.size[tensor] = UNBORN, self.s.sizes[tensor]
        self.arrival = [time - done for time in self.arrival]
        self.copied = [time - done for time in self.copied]
        self.host_made = {tensor: time - done for tensor, time in self.host_made.items()}
        self.held = {tensor: time - done for tensor, time in self.held.items()}
        self.leaving = [copy._replace(time=copy.time - done) for copy in self.leaving]
        self.channels.restart(done)
        self.tiers.restart()
        super().restart()

    def leave(self) -> None:
        """The next copy has ended: its device bytes or its tier bytes come free."""
        copy = heapq.heappop(self.leaving)
        if copy.size:
            self.give(copy.size, self.s.kinds[copy.tensor], copy.address)
        if copy.stored:
            self.tiers.unstore(copy.stored, copy.tier)

    def start_copy(self, tensor: int, tier: str, ratio: float) -> None:
        """Start the copy of ``tensor`` to ``tier``, unless a good one lies there."""
        if tensor in self.kept and self.away[tensor][0] == tier:
            self.kept.discard(tensor)
            return
        self.void(tensor)
        self.store(tensor, tier, ratio)
        self.copied[tensor] = self.send_out(tensor, self.away[tensor][1], tier)

    def send_out(self, tensor: int, size: float, tier: str) -> float:
        """Queue the copy of ``tensor``; when it will be on ``tier``."""
        return self.channels.out(size, tier, self.now)

    def send_back(self, tensor: int, size: float, tier: str) -> float:
        """Queue the copy of ``tensor``, not before it is on ``tier``; when it will be on the device."""
        return self.channels.back(size, tier, max(self.now, self.copied[tensor]))

    def void(self, tensor: int) -> None:
        """A copy that was kept on a tier is good no more."""
        if tensor in self.kept:
            self.kept.discard(tensor)
            self.unstore(tensor)

    def free(self, tensors: Iterable[int]) -> None:
        """These tensors are needed no more, wherever they lie."""
        for tensor in tensors:
            state = self.state[tensor]
            if state in (DEVICE, COMING) and tensor not in self.departing:
                self.clear(tensor)
                self.void(tensor)
            elif state in (AWAY, QUEUED) and tensor in self.away:
                self.kept.discard(tensor)
                self.forget_copy(tensor)
            self.state[tensor] = GONE

    def forget_copy(self, tensor: int) -> None:
        """Give the bytes of a copy on its tier back, once the host has done with it."""
        until = self.held.get(tensor, 0.0)
        if until > self.now:
            tier, size = self.away.pop(tensor)
            self.push(until, tensor, tier=tier, stored=size)
        else:
            self.unstore(tensor)

    def hold_until(self, time: float, size: float, tier: str) -> None:
        """Take ``size`` bytes on ``tier`` for scratch, until ``time``."""
        missing = self.tiers.store(size, tier)
        if missing:
            raise lacking(missing, self.place(), tier, self.tiers.room[tier])
        self.push(time, SCRATCH, tier=tier, stored=size)

    def store(self, tensor: int, tier: str, ratio: float) -> None:
        """Take the bytes of a copy on ``tier``."""
        size = self.size[tensor] / ratio
        self.away[tensor] = (tier, size)
        missing = self.tiers.store(size, tier)
        if missing:
            raise lacking(missing, self.place(), tier, self.tiers.room[tier])

    def unstore(self, tensor: int) -> None:
        """Give the bytes of a copy on its tier back."""
        tier, size = self.away.pop(tensor)
        self.tiers.unstore(size, tier)

    def release(self, tensors: Iterable[int]) -> None:
        """The last use of these device copies is over: their bytes come free when the copy has ended."""
        for tensor in tensors:
            self.departing.discard(tensor)
            self.state[tensor] = AWAY
            if self.copied[tensor] <= self.now:
                self.clear(tensor)
            else:
                self.push(self.copied[tensor], tensor, size=self.size[tensor], address=self.address[tensor])

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
        tier, size = self.away[tensor]
        self.take(self.size[tensor], self.s.kinds[tensor])
        self.address[tensor] = address
        self.arrival[tensor] = self.send_back(tensor, size, tier)
        self.state[tensor] = COMING
        if tensor in self.kept:
            return
        del self.away[tensor]
        self.push(self.arrival[tensor], tensor, tier=tier, stored=size)
