"""The local coordinator of each GPU: what its guaranteed job has, and what is left for a guest.

The guaranteed job's share of computing is what it uses alone, so the kernels of a guest never slow it. What a
guest lacks of memory lies on the host.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from experiments.cluster.interface import Demand, Gang, Pool, VisibleJobs
from experiments.cluster.interface.performance import MeasuredPairs
from experiments.cluster.interface.pool import SLACK

#: A guest that would get less of a GPU than this is moved or suspended.
LEAST_SHARE = 0.01


@dataclass(frozen=True)
class Limits:
    """``busiest`` use of a GPU that takes a guest; shares of memory; speed with memory on the host."""

    busiest: float
    guaranteed_memory: float
    guest_memory: float
    least_memory: float
    host_speed: float


@dataclass
class Coordinator:
    """Plans one decision on ``pool``. ``used`` is how much its guaranteed job computes of each device.

    ``holders`` are the guaranteed jobs' gangs by device, ``pairs`` the speeds next to them where a table
    has them.
    ``gangs`` are those that the decision gives, ``guests`` the devices that have one.
    """

    limits: Limits
    pool: Pool
    jobs: VisibleJobs
    pairs: MeasuredPairs | None = None
    used: dict[int, float] = field(default_factory=dict)
    holders: dict[int, Gang] = field(default_factory=dict)
    gangs: dict[int, Gang] = field(default_factory=dict)
    guests: set[int] = field(default_factory=set)
    failed: set[Demand] = field(default_factory=set)

    def note(self, gang: Gang) -> None:
        """A guaranteed job holds ``gang`` already."""
        self.used.update(dict.fromkeys(gang.devices, gang.share))
        self.holders.update(dict.fromkeys(gang.devices, gang))

    def guarantee(self, gang: Gang) -> None:
        """Give a guaranteed job the devices of ``gang``, which have no other."""
        uses = self._uses(gang.job)
        memory = 1.0 if uses == 1 else self.limits.guaranteed_memory
        given = Gang(gang.job, gang.devices, uses, memory, gang.hosts)
        self.pool.take(given)
        self.note(given)
        self.gangs[gang.job] = given

    def squeeze(self, gang: Gang) -> bool:
        """Leave a guest where it is, with what is left there; false where that is next to nothing."""
        return self._give(gang)

    def place(self, job: int) -> bool:
        """Put a guest on the GPUs used least; false where too few take one.

        Guests come after all others: a demand that fails once fails for the rest of the decision, but for
        other pairs.
        """
        demand = self.jobs.demand(job)
        if demand in self.failed:
            return False
        if self._put(job, demand):
            return True
        if self.pairs is None:
            self.failed.add(demand)
        return False

    def _put(self, job: int, demand: Demand) -> bool:
        cpus, memory = self.pool.cpus.copy(), self.pool.memory.copy()
        taken = list[int]()
        for device in sorted(self._open(demand), key=lambda one: (self.used.get(one, 0.0), one)):
            node = self.pool.machines.node_of[device]
            if demand.gpus == 1 and not self._may_share(Gang(job, (device,))):
                continue
            each = max(1, demand.gpus)
            if cpus[node] + SLACK < demand.cpus / each or memory[node] < demand.memory / each:
                continue
            cpus[node] -= demand.cpus / each
            memory[node] -= demand.memory / each
            taken.append(device)
            if len(taken) == demand.gpus:
                devices = tuple(sorted(taken))
                return self._give(Gang(job, devices, hosts=self.pool.hosts_of(devices, demand)))
        return False

    def _open(self, demand: Demand) -> Iterator[int]:
        """The devices in working order, of a type that will do, that take a guest."""
        machines, limits = self.pool.machines, self.limits
        for device, node in enumerate(machines.node_of):
            used = self.used.get(device, 0.0)
            will_do = not demand.types or machines[node].device in demand.types
            has_memory = not used or 1 - limits.guaranteed_memory >= limits.least_memory
            if not self.pool.capacity[node] or device in self.guests or not will_do:
                continue
            if used <= limits.busiest and used < 1 and has_memory:
                yield device

    def _give(self, gang: Gang) -> bool:
        given = self._left(gang)
        if given is None or self.pool.lack(given) or not self._may_share(given):
            return False
        self.pool.take(given)
        self.guests.update(gang.devices)
        self.gangs[gang.job] = given
        return True

    def _may_share(self, gang: Gang) -> bool:
        """Whether a guest runs next to the guaranteed jobs of its devices, as far as that was measured."""
        if self.pairs is None:
            return True
        others = dict.fromkeys(self.holders[device] for device in gang.devices if device in self.holders)
        return self.pairs.may_share(gang, tuple(others))

    def _left(self, gang: Gang) -> Gang | None:
        """What a guest has of its devices: as much of each as is left of the busiest."""
        limits, uses = self.limits, self._uses(gang.job)
        idle = 1 - max((self.used.get(device, 0.0) for device in gang.devices), default=0.0)
        if idle == uses == 1:
            return Gang(gang.job, gang.devices, hosts=gang.hosts)
        memory = 1.0 if idle == 1 else 1 - limits.guaranteed_memory
        speed = limits.host_speed if memory + SLACK < limits.guest_memory else 1.0
        share = min(uses, idle) * speed
        if share < LEAST_SHARE:
            return None
        return Gang(gang.job, gang.devices, share, min(memory, limits.guest_memory), gang.hosts)

    def _uses(self, job: int) -> float:
        """The share of a whole device that a job computes when it has one alone."""
        share = self.jobs.demand(job).share
        told = self.jobs.column("utilization")[job] if self.jobs.tells("utilization") else 1.0
        return float(share * told)
