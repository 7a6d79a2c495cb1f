"""Synergy, OSDI'22: processors and memory by what makes jobs fast, GPUs by any other rule.

In rounds: jobs in ``order`` are chosen while GPUs last. Each then gets, next to its GPUs, the processors and
the memory that its profile asks for (``profiling``), by one of three rules (``allocation``):

- ``tune``: whoever wants more than its GPUs' equal part gives way where others could not run at it otherwise.
- ``greedy``: all that a job wants, or it waits.
- ``equal``: the equal part, as schedulers of GPUs alone do.

Between rounds jobs that fit into what is free start. Choices where the paper leaves them open: of what a
profile asks for less than an equal part is kept too; an equal part is that of the node with least for its
GPUs; jobs stay on their nodes and devices where these are as good as others. A release of the authors'
simulator cuts a job in all resources alike and counts every cut job as fast as on an equal part; here the
speed is that of what it is left with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from experiments.cluster.interface import (
    NOTHING,
    Allocation,
    ClusterPolicy,
    ClusterView,
    Decider,
    Gang,
    OnHost,
    Pool,
)
from experiments.cluster.planning.performance.sensitivity import ResourceSpeed, sensitivity_of
from experiments.cluster.policies.synergy.allocation import greedy, tune
from experiments.cluster.policies.synergy.bound import SOLVER, bound
from experiments.cluster.policies.synergy.profiling import Profile, Vector, profile
from experiments.cluster.policies.synergy.servers import Servers, equal_part
from experiments.core.knobs import knob

TUNE, GREEDY, EQUAL = "tune", "greedy", "equal"


@dataclass(frozen=True)
class Synergy(ClusterPolicy):
    """Gives jobs the processors and memory that they can use, at no one's cost against an equal part."""

    name: ClassVar[str] = "synergy"
    mechanism: ClassVar[str] = "share devices"
    sees: ClassVar[frozenset[str]] = frozenset({"throughput"})
    models: ClassVar[tuple[str, ...]] = ("sensitivity",)
    quick: ClassVar[Mapping[str, Any]] = {"round_length": 7.0}

    round_length: float = knob(300.0, "time between decisions about all", low=1e-3, high=86400.0, unit="s")
    order: str = knob(
        "las",
        "who has GPUs in a round: first come, least time left, least GPU time so far, worst off",
        choices=("fifo", "srtf", "las", "ftf"),
    )
    allocation: str = knob(
        TUNE,
        "processors and memory: tuned, all that is wanted or none, equal parts",
        choices=(TUNE, GREEDY, EQUAL),
    )
    bounded: bool = knob(False, "work out in each round how much faster any division could be")

    @property
    def round_seconds(self) -> float:
        return self.round_length

    def begin(self) -> Decider:
        return _Rounds(self)


#: The rank of a job, the least first, by the order.
RANKS: Mapping[str, Callable[[int, ClusterView, float], float]] = {
    "fifo": lambda job, view, speed: view.jobs.submit[job],
    "srtf": lambda job, view, speed: _left(job, view) / speed,
    "las": lambda job, view, speed: view.attained_service(job),
    "ftf": lambda job, view, speed: (
        -(view.now - view.jobs.submit[job] + _left(job, view) / speed) / (view.works[job] / speed or 1.0)
    ),
}


def _left(job: int, view: ClusterView) -> float:
    return view.works[job] - view.done(job)


@dataclass
class _Rounds:
    """``gaps`` are those between the sum of relative speeds and the bound, one of each round."""

    policy: Synergy
    profiles: dict[int, Profile] = field(default_factory=dict)
    measurements: int = 0
    gaps: list[float] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def allocate(self, view: ClusterView) -> Allocation:
        model, machines = sensitivity_of(view), view.pool.machines
        equal = equal_part(machines)
        for job in view.ended:
            del self.profiles[job]
        for job in view.arrived:
            self._profile(job, view, model, equal)
        if view.round_ended:
            return self._begin_round(view, model, equal)
        if view.waiting and view.pool.total:
            return Allocation(tuple(self._fill(view, model, equal)))
        return NOTHING

    def _profile(self, job: int, view: ClusterView, model: ResourceSpeed, equal: Vector) -> None:
        gpus, nodes = view.jobs.gpus[job], [node for node in view.pool.machines if node.gpus]
        cpus = max(node.cpus / min(gpus, node.gpus) for node in nodes)
        whole = Vector(cpus, max(node.memory / min(gpus, node.gpus) for node in nodes))
        found = profile(job, model, whole, equal, min(node.storage for node in nodes))
        self.measurements += found.points
        if self.policy.allocation == EQUAL:
            found = replace(found, best=found.equal, cut=found.equal)
        self.profiles[job] = found
        self.facts["measurements"] = self.measurements

    def _ranked(
        self, jobs: Iterable[int], view: ClusterView, model: ResourceSpeed, equal: Vector
    ) -> list[int]:
        rank = RANKS[self.policy.order]
        return sorted(
            jobs, key=lambda job: (rank(job, view, model.speed(job, equal.cpus, equal.memory)), job)
        )

    def _begin_round(self, view: ClusterView, model: ResourceSpeed, equal: Vector) -> Allocation:
        """Choose who runs, and give everybody a place anew."""
        pool, gpus, chosen = view.pool.copy(), view.jobs.gpus, list[int]()
        for gang in view.running.values():
            pool.give_back(gang)
        left = pool.total
        for job in self._ranked((*view.running, *view.waiting), view, model, equal):
            if gpus[job] <= left:
                left -= gpus[job]
                chosen.append(job)
        servers = Servers.of(pool)
        before = {job: dict(view.pool.machines.by_node(gang.devices)) for job, gang in view.running.items()}
        rule = tune if self.policy.allocation == TUNE else greedy
        rule(chosen, gpus, self.profiles, servers, before)
        if self.policy.bounded and chosen:
            self._note_gap(chosen, servers, view, model, equal)
        gangs = _gangs(servers, pool, view.running)
        started = tuple(gang for gang in gangs if view.running.get(gang.job) != gang)
        return Allocation(started, tuple(job for job in view.running if job not in servers.spread))

    def _fill(self, view: ClusterView, model: ResourceSpeed, equal: Vector) -> list[Gang]:
        """Start waiting jobs on what is free, and leave those alone that run."""
        servers, gpus = Servers.of(view.pool), view.jobs.gpus
        for job in self._ranked(view.waiting, view, model, equal):
            wanted = self.profiles[job]
            for each in (wanted.best, wanted.cut) if self.policy.allocation == TUNE else (wanted.best,):
                spread = servers.find(gpus[job], each)
                if spread is not None:
                    servers.give(job, spread, each)
                    break
        return _gangs(servers, view.pool, {})

    def _note_gap(
        self, chosen: list[int], servers: Servers, view: ClusterView, model: ResourceSpeed, equal: Vector
    ) -> None:
        nodes = [node for node in view.pool.machines if node.gpus]
        whole = Vector(sum(node.cpus for node in nodes), sum(node.memory for node in nodes))
        most = bound(chosen, view.jobs.gpus, model, whole, equal, integer=False)
        self.gaps.append(1 - relative_speed(servers, model, equal) / most)
        self.facts |= {
            "solver": SOLVER,
            "gap_mean": sum(self.gaps) / len(self.gaps),
            "gap_max": max(self.gaps),
        }


def relative_speed(servers: Servers, model: ResourceSpeed, equal: Vector) -> float:
    """The sum of the speeds of all who run, each over that on an equal part."""
    return sum(
        model.speed(job, each.cpus, each.memory) / model.speed(job, equal.cpus, equal.memory)
        for job, each in servers.given.items()
    )


def _gangs(servers: Servers, pool: Pool, running: Mapping[int, Gang]) -> list[Gang]:
    """Devices for all, out of those free in ``pool``; jobs keep those that they have on a node."""
    free = {node: dict.fromkeys(pool.free_devices(node)) for node in servers.servers}
    devices: dict[int, list[int]] = {job: [] for job in servers.spread}
    for job, spread in servers.spread.items():
        held = running[job].devices if job in running else ()
        for node, count in spread.items():
            kept = [device for device in held if device in free[node]][:count]
            devices[job] += kept
            for device in kept:
                del free[node][device]
    gangs = list[Gang]()
    for job, spread in servers.spread.items():
        hosts = list[OnHost]()
        for node, count in sorted(spread.items()):
            have = sum(pool.machines.node_of[device] == node for device in devices[job])
            taken = [*free[node]][: count - have]
            devices[job] += taken
            for device in taken:
                del free[node][device]
            each = servers.given[job]
            hosts.append(OnHost(node, each.cpus * count, each.memory * count))
        gangs.append(Gang(job, tuple(sorted(devices[job])), hosts=tuple(hosts)))
    return gangs
