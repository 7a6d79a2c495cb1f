"""Shares of time as gangs in the lab's own engine: at the end of each round whose turn it is, between rounds
what is free.

A job keeps its devices as long as it is
its turn on their type, beside the same job or none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.cluster.interface import Allocation, ClusterPolicy, ClusterView, Gang, Pool, Sharers
from experiments.cluster.planning.contests import Contests
from experiments.cluster.planning.turns import Turns

#: Seconds of a round where the policy says nothing else.
ROUND = 360.0


class TimeSharing:
    """One run of a policy that divides time."""

    def __init__(self, policy: ClusterPolicy) -> None:
        self.policy = policy
        self.contests: Contests | None = None
        self.changed = True
        self.counted_until = 0.0

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the divider tells of itself."""
        return self.divider.facts if self.contests is not None else {}

    def allocate(self, view: ClusterView) -> Allocation:
        if self.contests is None:
            self._begin(view)
        self._count(view)
        for job in view.ended:
            self._leave(job)
        for job in view.arrived:
            self._enter(job, view)
        if not self.present:
            self.turns.divided_at = view.now - self.divider.reset_seconds
            return Allocation()
        old = view.now - self.turns.divided_at >= self.divider.reset_seconds
        if self.changed and (old or not self.turns.shares or not view.running):
            self._divide(view)
        return self._next_round(view) if view.round_ended else self._fill(view)

    def _begin(self, view: ClusterView) -> None:
        model = view.performance
        self.contests = Contests(view.jobs, view.pool.machines, model, self.policy.sees)
        self.divider = self.policy.divider(int(view.rng.integers(2**31)))
        self.turns = Turns(len(self.contests.types), self.policy.round_seconds or ROUND)
        self.present: dict[int, None] = {}
        self.mates: dict[int, tuple[Sharers, int]] = {}
        self.turns.divided_at = view.now - self.divider.reset_seconds

    def _enter(self, job: int, view: ClusterView) -> None:
        assert self.contests is not None
        gpus, others = view.jobs.gpus, [*self.present] if self.divider.packs else []
        pairs = [
            other
            for other in others
            if gpus[other] == gpus[job] and self.contests.pair((min(other, job), max(other, job))) is not None
        ]
        self.turns.enter(job, pairs)
        self.present[job] = None
        self.changed = True

    def _leave(self, job: int) -> None:
        del self.present[job]
        self.turns.leave(job, packs=self.divider.packs)
        self.mates.pop(job, None)
        self.changed = True

    def _count(self, view: ClusterView) -> None:
        """Count the time since the last decision for those who had devices, a pair once."""
        seconds, self.counted_until = view.now - self.counted_until, view.now
        for sharers, place in dict.fromkeys(self.mates.values()):
            self.turns.receive(sharers, place, seconds)

    def _divide(self, view: ClusterView) -> None:
        assert self.contests is not None
        present = sorted(self.present)
        left = [max(view.works[job] - view.done(job), 0.0) for job in present]
        contest = self.contests.of(view.now, present, left, packs=self.divider.packs)
        self.turns.divide(self.divider.divide(contest), view.now)
        self.changed = False

    def _order(self, view: ClusterView) -> list[int]:
        """Types in the order in which they are given out: by falling alphabet, or drawn."""
        assert self.contests is not None
        order = list(reversed(range(len(self.contests.types))))
        if self.divider.shuffles and len(order) > 1:
            view.rng.shuffle(order)
        return order

    def _next_round(self, view: ClusterView) -> Allocation:
        """Those whose turn it is; the others lose their devices."""
        assert self.contests is not None
        room = _by_type(view.pool.capacity, view.pool)
        chosen = self._choose(room, view)
        keep = {job: sharers for sharers, place in chosen for job in sharers if self._stays(sharers, place)}
        losers = [job for job in view.running if job not in keep]
        pool = view.pool.copy()
        for job in losers:
            pool.give_back(view.running[job])
        started = self._start([each for each in chosen if each[0][0] not in keep], pool, view)
        preempted = [job for job in losers if job not in {gang.job for gang in started}]
        for job in preempted:
            self.mates.pop(job, None)
        return Allocation(tuple(started), tuple(preempted))

    def _stays(self, sharers: Sharers, place: int) -> bool:
        """Whether all of ``sharers`` have devices of the type already, and nobody else beside them."""
        return all(self.mates.get(job) == (sharers, place) for job in sharers)

    def _fill(self, view: ClusterView) -> Allocation:
        """Between rounds, give what is free to jobs that wait."""
        for job in view.stopped:
            self.mates.pop(job, None)
        if view.pool.total < 1 or not view.waiting:
            return Allocation()
        chosen = self._choose(_by_type(view.pool.free, view.pool), view)
        alone = [each for each in chosen if all(job in view.waiting for job in each[0])]
        return Allocation(tuple(self._start(alone, view.pool.copy(), view)))

    def _choose(self, room: list[int], view: ClusterView) -> list[tuple[Sharers, int]]:
        assert self.contests is not None
        waiting_only = not view.round_ended
        contests = self.contests

        def runs(sharers: Sharers, place: int) -> bool:
            if waiting_only and any(job not in view.waiting for job in sharers):
                return False
            return contests.runs(sharers, place)

        return self.turns.choose(self._order(view), room, view.jobs.gpus, runs, fills=self.divider.fills)

    def _start(self, chosen: list[tuple[Sharers, int]], pool: Pool, view: ClusterView) -> list[Gang]:
        assert self.contests is not None
        started = list[Gang]()
        for sharers, place in chosen:
            for job in sharers:
                self.mates.pop(job, None)
            demand = view.jobs.demand(sharers[0])._replace(types=(self.contests.types[place],))
            found = pool.place(sharers[0], demand, self.policy.placement)
            if found is None:
                continue
            part = 1 / len(sharers)
            gangs = [
                Gang(job, found.devices, part, part, found.hosts if part == 1 else ()) for job in sharers
            ]
            for gang in gangs:
                pool.take(gang)
                self.mates[gang.job] = (sharers, place)
            started += gangs
        return started


def _by_type(count_by_node: list[int], pool: Pool) -> list[int]:
    """Devices of each type, in alphabetical order of types."""
    machines = pool.machines
    found = dict.fromkeys(machines.types, 0)
    for node, count in enumerate(count_by_node):
        if machines.sizes[node]:
            found[machines[node].device] += count
    return list(found.values())
