"""Themis, NSDI'20: finish-time fairness by auctions of leases (sections 4 and 5).

An app's ``rho`` is the time that it takes here over the time that it would take alone on an equal part of the
cluster. Devices are given out for a lease. Those that are free are offered to the apps with the worst rho
(all but the fraction ``filter``); each bids 1 / rho for every number of devices it can use, and an auction
divides them (``auction``). What the auction does not give out, and what winners do not keep, goes at random
to apps outside it, packed.

Choices where the paper leaves them open: an app is a job, which runs on any power of two of devices up to
what it asked for; bids take devices to be next to each other; each bidder is offered one device at least, so
that there are no more bidders than devices; a winner keeps all that it won with the auction's probability, or
nothing until the next auction. Those happen whenever devices are free: at arrivals, completions and the ends
of leases.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from experiments.cluster.interface import Allocation, ClusterPolicy, ClusterView, Decider, Demand, Gang, Pool
from experiments.cluster.policies.themis.auction import Bid, hold
from experiments.core.knobs import knob
from experiments.core.policy import SECONDS

#: Leases that end within so many seconds are over: sums of floating-point times are not exact.
SLACK = 1e-6


@dataclass(frozen=True)
class Themis(ClusterPolicy):
    """Auctions leases of devices among the apps that are treated worst against an equal share."""

    name: ClassVar[str] = "themis"
    mechanism: ClassVar[str] = "fair division"
    gpus_only: ClassVar[bool] = True
    effort: ClassVar[str] = SECONDS
    sees: ClassVar[frozenset[str]] = frozenset({"throughput"})
    rigid: ClassVar[bool] = False
    quick: ClassVar[Mapping[str, Any]] = {"lease": 9.0}

    lease: float = knob(1200.0, "how long devices are given out for", low=1e-3, high=1e7, unit="s")
    filter: float = knob(
        0.8,
        "f: the fraction of apps, those with the best rho, that auctions are not open to",
        low=0.0,
        high=1.0,
    )

    def insists_on(self, demand: Demand) -> Demand:
        """One device, with its part of the processors and memory."""
        return demand.of(1) if demand.gpus else demand

    def begin(self) -> Decider:
        return _Arbiter(self)


def fairness(elapsed: float, left: float, speed: float, work: float, alone: float) -> float:
    """Return rho: time here over time alone.

    ``elapsed`` seconds passed and ``left`` is still done at ``speed``; alone all ``work`` is done at the
    speed ``alone``.
    """
    return (elapsed + left / speed) / (work / alone)


@dataclass
class _App:
    """When an app came, and the integral of the number of apps over time then; speeds by devices."""

    came: float
    integral: float
    speeds: dict[int, float]


@dataclass
class _Arbiter:
    """Leases, apps and how many of them there were."""

    policy: Themis
    apps: dict[int, _App] = field(default_factory=dict)
    leases: dict[int, float] = field(default_factory=dict)
    integral: float = 0.0
    seen: float = 0.0

    def allocate(self, view: ClusterView) -> Allocation:
        self._note(view)
        over = [job for job in view.running if self.leases[job] <= view.now + SLACK]
        pool = view.pool.copy()
        for job in over:
            pool.give_back(view.running[job])
        apps = [job for job in self.apps if job in view.waiting or job in over]
        won = self._auction(apps, pool, view) if pool.total >= 1 and apps else {}
        started, kept = self._place(won, pool, view)
        preempted = [job for job in over if job not in kept and job not in {gang.job for gang in started}]
        for job in preempted:
            del self.leases[job]
        for job in won:
            if job in kept or job in {gang.job for gang in started}:
                self.leases[job] = view.now + self.policy.lease
        ends = [*self.leases.values(), *([view.now + self.policy.lease] if self.apps else [])]
        return Allocation(tuple(started), tuple(preempted), wake_at=min(ends, default=None))

    def _note(self, view: ClusterView) -> None:
        """Keep the books: who is there, for how long, among how many."""
        self.integral += len(self.apps) * (view.now - self.seen) if self.apps else 0.0
        self.seen = view.now
        for job in view.ended:
            del self.apps[job]
            self.leases.pop(job, None)
        for job in view.stopped:
            self.leases.pop(job, None)
        for job in view.arrived:
            self.apps[job] = _App(view.now, self.integral, _speeds(job, view))

    def _rho(self, job: int, size: int, view: ClusterView) -> float:
        """The app's rho, were it to have so many devices from now on."""
        app, work = self.apps[job], view.works[job]
        elapsed = view.now - app.came
        among = (self.integral - app.integral) / elapsed if elapsed > 0 else len(self.apps)
        part = view.pool.machines.devices / max(among, 1.0)
        largest = max((count for count in app.speeds if count <= part), default=1)
        alone = app.speeds[largest] * min(1.0, part) if part < 1 else app.speeds[largest]
        if work <= 0:
            return 1.0
        left = max(work - view.done(job), 0.0)
        return max(fairness(elapsed, left, app.speeds[size], work, alone), SLACK)

    def _auction(self, apps: list[int], pool: Pool, view: ClusterView) -> dict[int, int]:
        """How many devices each app gets: those treated worst by auction, of the others some at random."""
        worst = {job: self._rho(job, max(self.apps[job].speeds), view) for job in apps}
        ranked = sorted(apps, key=lambda job: (-worst[job], job))
        admitted = max(1, math.ceil((1 - self.policy.filter) * len(ranked)))
        bidders = ranked[: min(admitted, pool.total)]
        bids: list[Bid] = [
            {size: 1 / self._rho(job, size, view) for size in self.apps[job].speeds} for job in bidders
        ]
        outcome = hold(bids, pool.total)
        won, left = dict[int, int](), pool.total
        for job, size, kept in zip(bidders, outcome.devices, outcome.kept, strict=True):
            if kept >= 1 or view.rng.random() < kept:
                won[job] = size
                left -= size
        outside = ranked[len(bidders) :]
        for place in view.rng.permutation(len(outside)).tolist():
            fits = [size for size in self.apps[outside[place]].speeds if size <= left]
            if fits:
                won[outside[place]] = max(fits)
                left -= max(fits)
        return won

    def _place(self, won: dict[int, int], pool: Pool, view: ClusterView) -> tuple[list[Gang], set[int]]:
        """Gangs of those that won; who won as many as before keeps its own."""
        kept = {job for job, size in won.items() if job in view.running and view.running[job].size == size}
        for job in kept:
            pool.take(view.running[job])
        started = list[Gang]()
        for job, size in won.items():
            if job in kept:
                continue
            gang = pool.place(job, view.jobs.demand(job).of(size), self.policy.placement)
            if gang is not None:
                pool.take(gang)
                started.append(gang)
        return started, kept


def _speeds(job: int, view: ClusterView) -> dict[int, float]:
    """Work per second on one device, two, four and so on up to what the job asked for, next to each other."""
    wanted, machines = view.jobs.gpus[job], view.pool.machines
    most = min(wanted, machines.devices)
    sizes = sorted({*(2**power for power in range(most.bit_length())), most} & {*range(1, most + 1)})
    first = max(range(len(machines)), key=lambda node: machines.sizes[node])
    order = [
        *machines.devices_of(first),
        *(d for d in range(machines.devices) if machines.node_of[d] != first),
    ]
    return {size: view.performance.rate(job, Gang(job, tuple(sorted(order[:size])))).speed for size in sizes}
