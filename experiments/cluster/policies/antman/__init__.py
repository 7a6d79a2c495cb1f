"""AntMan, OSDI'20: opportunistic jobs run on what guaranteed ones leave of their GPUs.

A guaranteed job gets GPUs without another one, as few nodes as can be, and as fast as alone: opportunistic
jobs that are there are squeezed. Those run on the GPUs used least, one on a GPU, at the share of computing
that is left (``coordinator``), and at full speed where no guaranteed job is. A tenant's jobs beyond its
``quotas`` run as opportunistic ones until the quota frees up.

How much of a device a job computes is the trace's ``utilization``; a job that tells none uses all of it, and
nothing runs beside it. Left out: bursts of memory within a job, for which no trace has the figures.
``host_speed`` is chosen here: the paper does not say how much slower memory on the host is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from experiments.cluster.interface import Allocation, ClusterPolicy, ClusterView, Decider, Gang, Pool
from experiments.cluster.policies.antman.coordinator import Coordinator, Limits
from experiments.core.errors import BadInput
from experiments.core.knobs import knob
from experiments.workloads.jobs import OPPORTUNISTIC


@dataclass(frozen=True)
class AntMan(ClusterPolicy):
    """Guarantees some jobs whole GPUs and lets opportunistic ones use what they leave idle."""

    name: ClassVar[str] = "antman"
    mechanism: ClassVar[str] = "share devices"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")
    caps_shares: ClassVar[bool] = True
    sees: ClassVar[frozenset[str]] = frozenset({"class", "tenant", "utilization"})
    needs: ClassVar[frozenset[str]] = frozenset({"class"})

    placement: str = knob(
        "pack", "which devices a guaranteed job gets", choices=("count", "pack", "consolidate", "spread")
    )
    quotas: str = knob("", "GPUs guaranteed to tenants, as name:GPUs; empty: no limit", words=True)
    busiest: float = knob(
        0.9, "use of a GPU above which no opportunistic job is placed on it", low=0.0, high=1.0
    )
    guaranteed_memory: float = knob(
        0.5, "share of a device's memory that a guaranteed job holds", low=0.01, high=0.95
    )
    opportunistic_memory: float = knob(
        0.5, "share of a device's memory that an opportunistic job would fill", low=0.01, high=1.0
    )
    least_memory: float = knob(
        0.05, "share of a device's memory without which it is not placed", low=0.001, high=1.0
    )
    host_speed: float = knob(
        0.5, "its speed while part of its memory is on the host, of that without", low=0.01, high=1.0
    )

    def __post_init__(self) -> None:
        self.quota_by_tenant()

    def quota_by_tenant(self) -> Mapping[str, int]:
        """The GPUs of each tenant that ``quotas`` names."""
        found = {}
        for word in filter(None, (part.strip() for part in self.quotas.split(","))):
            tenant, colon, gpus = word.rpartition(":")
            if not colon or not (gpus.isascii() and gpus.isdigit()):
                raise BadInput(f"{word!r} is not a quota", "knobs.quotas", "name:GPUs, ...")
            found[tenant] = int(gpus)
        return found

    def begin(self) -> Decider:
        limits = Limits(
            self.busiest,
            self.guaranteed_memory,
            self.opportunistic_memory,
            self.least_memory,
            self.host_speed,
        )
        return _Cluster(self, limits, self.quota_by_tenant())


@dataclass
class _Cluster:
    """``guaranteed``: the running jobs that are."""

    policy: AntMan
    limits: Limits
    quotas: Mapping[str, int]
    guaranteed: set[int] = field(default_factory=set)

    def allocate(self, view: ClusterView) -> Allocation:
        self.guaranteed &= view.running.keys()
        local = self._coordinator(view)
        self._promote(view, local)
        self._start_guaranteed(view, local)
        guests = [job for job in view.running if job not in self.guaranteed]
        homeless = [job for job in guests if not local.squeeze(view.running[job])]
        waiting = [job for job in view.waiting if job not in local.gangs]
        self._start_guests((*homeless, *waiting), view, local)
        start = [gang for job, gang in local.gangs.items() if view.running.get(job) != gang]
        return Allocation(tuple(start), suspend=tuple(job for job in homeless if job not in local.gangs))

    def _coordinator(self, view: ClusterView) -> Coordinator:
        """The devices as they are without opportunistic jobs."""
        pool = view.pool.copy()
        local = Coordinator(self.limits, pool, view.jobs, view.pairs)
        for job, gang in view.running.items():
            if job in self.guaranteed:
                local.note(gang)
            else:
                pool.give_back(gang)
        return local

    def _promote(self, view: ClusterView, local: Coordinator) -> None:
        """Opportunistic jobs become guaranteed where they are, once their tenant's quota has room."""
        for job, gang in view.running.items():
            shared = any(device in local.used for device in gang.devices)
            if job not in self.guaranteed and not shared and self._may_be_guaranteed(job, view):
                local.guarantee(gang)
                self.guaranteed.add(job)

    def _start_guaranteed(self, view: ClusterView, local: Coordinator) -> None:
        """In the order of submission; of a tenant nothing before the first that does not fit."""
        blocked = set[str]()
        idle = view.pool.copy()
        for job in view.waiting:
            tenant = view.jobs.tenant[job]
            if tenant in blocked or not self._may_be_guaranteed(job, view):
                continue
            gang = self._place(job, view, idle, local.pool)
            if gang is None:
                blocked.add(tenant)
                continue
            local.guarantee(gang)
            if not idle.lack(gang):
                idle.take(gang)
            self.guaranteed.add(job)

    def _place(self, job: int, view: ClusterView, idle: Pool, squeezed: Pool) -> Gang | None:
        """Devices on the fewest nodes; of as many nodes those where nobody has to be squeezed."""
        demand = view.jobs.demand(job)._replace(share=1.0)
        best = squeezed.place(job, demand, self.policy.placement)
        quiet = idle.place(job, demand, self.policy.placement)
        if best is None or quiet is None or squeezed.lack(quiet):
            return best
        by_node = view.pool.machines.by_node
        return quiet if len(by_node(quiet.devices)) <= len(by_node(best.devices)) else best

    def _start_guests(self, jobs: Iterable[int], view: ClusterView, local: Coordinator) -> None:
        """Place opportunistic jobs; those that only have to wait for their guarantee are not among them."""
        for job in jobs:
            if self._is_opportunistic(job, view) or self._exceeds_quota(job, view):
                local.place(job)

    def _may_be_guaranteed(self, job: int, view: ClusterView) -> bool:
        return not (self._is_opportunistic(job, view) or self._exceeds_quota(job, view))

    def _is_opportunistic(self, job: int, view: ClusterView) -> bool:
        return bool(view.jobs.column("class")[job] == OPPORTUNISTIC)

    def _exceeds_quota(self, job: int, view: ClusterView) -> bool:
        if not self.quotas:
            return False
        tenant, gpus = view.jobs.tenant, view.jobs.gpus
        held = sum(gpus[one] for one in self.guaranteed if tenant[one] == tenant[job])
        return held + gpus[job] > self.quotas.get(tenant[job], 0)
