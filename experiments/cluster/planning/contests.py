"""From jobs, machines and a performance model to the question that a divider of time is asked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.cluster.interface import Gang, Machines, Performance, VisibleJobs
from experiments.cluster.interface.division import Contest, Sharers
from experiments.cluster.planning.performance.oracle import DeviceTypeSpeed
from experiments.core.errors import Infeasible
from experiments.workloads.step import Floats


class Contests:
    """Makes contests during one run; what does not change is asked once for each job."""

    def __init__(
        self,
        jobs: VisibleJobs,
        machines: Machines,
        performance: Performance,
        sees: frozenset[str],
    ) -> None:
        self.jobs, self.performance, self.sees = jobs, performance, sees
        self.types = machines.types
        self.counts = np.array([machines.count_by_type[kind] for kind in self.types], np.int64)
        self.prices = np.array([_price(machines, kind) for kind in self.types])
        self._gangs = [_first_devices(machines, kind) for kind in self.types]
        self._speed: dict[int, list[float]] = {}
        self._pairs: dict[Sharers, Floats | None] = {}

    def speed(self, job: int) -> list[float]:
        """Work per second of a job on each type; 0 where it does not run or there are too few devices."""
        if job not in self._speed:
            wanted = self.jobs.gpus[job]
            found = [self._speed_on(job, wanted, place) for place in range(len(self.types))]
            if not any(found):
                most = int(self.counts.max())
                what = f"wants {wanted} GPUs of one type, and no type on which it runs has more than {most}"
                raise Infeasible(what, f"job number {job}", max(wanted - most, 0) or None)
            self._speed[job] = found
        return self._speed[job]

    def _speed_on(self, job: int, wanted: int, place: int) -> float:
        if wanted > self.counts[place]:
            return 0.0
        if isinstance(self.performance, DeviceTypeSpeed):
            return self.performance.alone(job, self.types[place])
        return self.performance.rate(job, Gang(job, self._gangs[place][:wanted])).speed

    def pair(self, sharers: Sharers) -> Floats | None:
        """Speeds of two jobs on the same devices: a row for each, a column for each type.

        ``None`` where they never share.
        """
        if sharers not in self._pairs:
            self._pairs[sharers] = self._pair(*sharers)
        return self._pairs[sharers]

    def _pair(self, job: int, other: int) -> Floats | None:
        model = self.performance
        if not isinstance(model, DeviceTypeSpeed) or self.jobs.gpus[job] != self.jobs.gpus[other]:
            return None
        both = [model.pair(job, other, kind) or (0.0, 0.0) for kind in self.types]
        speeds = np.array([pair if min(pair) > 0 else (0.0, 0.0) for pair in both]).T
        return speeds if speeds.any() else None

    def runs(self, sharers: Sharers, place: int) -> bool:
        """Whether one job, or both of a pair, run on the type at ``place``."""
        if len(sharers) == 1:
            return self.speed(sharers[0])[place] > 0
        pair = self.pair(sharers)
        return pair is not None and bool(pair[:, place].min() > 0)

    def of(self, now: float, jobs: Sequence[int], left: Sequence[float], *, packs: bool) -> Contest:
        """The contest of ``jobs``, of which so much work is left."""
        columns = self.jobs
        speeds = np.array([self.speed(job) for job in jobs]).reshape(len(jobs), len(self.types))
        knows = "throughput" in self.sees
        return Contest(
            now=now,
            jobs=tuple(jobs),
            types=self.types,
            counts=self.counts,
            gpus=np.array([columns.gpus[job] for job in jobs], np.int64),
            runs=speeds > 0,
            elapsed=np.array([now - columns.submit[job] for job in jobs]),
            prices=self.prices,
            speeds=speeds if knows else None,
            work=np.array(left, np.float64) if knows else None,
            weights=self._column("weight", jobs),
            deadline=self._column("deadline", jobs),
            tenants=tuple(columns.column("tenant")[job] for job in jobs) if "tenant" in self.sees else None,
            pairs=self._pairs_of(jobs) if packs else {},
        )

    def _column(self, name: str, jobs: Sequence[int]) -> Floats | None:
        if name not in self.sees or not self.jobs.has(name):
            return None
        column = self.jobs.column(name)
        return np.array([column[job] for job in jobs], np.float64)

    def _pairs_of(self, jobs: Sequence[int]) -> dict[Sharers, Floats]:
        found = dict[Sharers, Floats]()
        for place, job in enumerate(jobs):
            for other in jobs[place + 1 :]:
                speeds = self.pair((job, other))
                if speeds is not None:
                    found[job, other] = speeds
        return found


def _price(machines: Machines, kind: str) -> float:
    return max(node.price for node in machines if node.gpus and node.device == kind)


def _first_devices(machines: Machines, kind: str) -> tuple[int, ...]:
    return tuple(device for device in range(machines.devices) if machines.type_of(device) == kind)
