"""Pairs of jobs on the same devices, kept while their measured rates say that it pays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count

from experiments.cluster.interface import ClusterView, Devices, Gang

#: A pair is kept when its rates, each as a share of the job's own alone, sum to more than this.
ALONE = 1.0 + 1e-9


@dataclass
class Packing:
    """Which jobs share their devices at once.

    ``partner`` is that of each packed job, ``alone`` the rate (work/s) measured of each when it had its
    devices alone, ``refused`` are the pairs that did not pay.
    """

    partner: dict[int, int] = field(default_factory=dict)
    alone: dict[int, float] = field(default_factory=dict)
    refused: set[frozenset[int]] = field(default_factory=set)

    def unit(self, job: int) -> tuple[int, ...]:
        """The jobs that run when ``job`` does."""
        return (job, self.partner[job]) if job in self.partner else (job,)

    def part(self, job: int) -> None:
        """Take ``job`` out of its pair."""
        other = self.partner.pop(job, None)
        if other is not None:
            del self.partner[other]

    def measure(self, view: ClusterView) -> None:
        """Look at the rates of what runs, and undo the pairs that do not pay."""
        speed = view.attained.speed
        for job, gang in view.running.items():
            if gang.is_alone and gang.size == view.jobs.gpus[job]:
                self.alone[job] = speed[job]
        for job, other in list(self.partner.items()):
            together = [one for one in (job, other) if one in view.running and not view.running[one].is_alone]
            rates = sum(speed[one] / self.alone[one] for one in together)
            if job < other and len(together) == 2 and rates <= ALONE:
                self.refused.add(frozenset(together))
                self.part(job)

    def try_pairs(
        self, gangs: dict[int, Gang], waiting: list[int], homes: Mapping[int, Devices], view: ClusterView
    ) -> None:
        """Put waiting jobs beside those of ``gangs`` that have the same home, the least busy first."""
        use = view.jobs.column("utilization") if view.jobs.tells("utilization") else None
        rank = dict(zip(waiting, count(), strict=False))
        free = {
            gang.devices: job for job, gang in gangs.items() if job not in self.partner and job in self.alone
        }
        for job in sorted(waiting, key=lambda one: (1.0 if use is None else use[one], rank[one])):
            other = free.get(homes[job])
            pair = None if other is None else frozenset((job, other))
            if other is None or job in self.partner or job not in self.alone or pair in self.refused:
                continue
            if not (self.alone[job] and self.alone[other]) or gangs[other].hosts:
                continue
            if not view.may_share(Gang(job, homes[job], 0.5, 0.5), [gangs[other]]):
                continue
            self.partner[job], self.partner[other] = other, job
            del free[homes[job]]
            for one in (job, other):
                gangs[one] = Gang(one, homes[one], 0.5, 0.5)
