"""The cluster at the moment of a decision, as far as the policy may see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from experiments.cluster.interface.allocation import Gang
from experiments.cluster.interface.jobs import VisibleJobs
from experiments.cluster.interface.machines import Machines
from experiments.cluster.interface.measurements import Measurable, Measurement
from experiments.cluster.interface.performance import MeasuredPairs, Performance
from experiments.cluster.interface.pool import Pool
from experiments.core.policy import HiddenColumn
from experiments.workloads.jobs import JobTrace


@dataclass
class Attained:
    """What the scheduler has itself seen of each job, up to the last change of its devices.

    - ``seconds`` with devices.
    - ``service``: device-seconds held.
    - ``done``: work, in the unit of the performance model.
    - ``executions`` so far, the present one included.
    - ``started``: when its present execution began, and ``progress`` from when on it makes progress (later by
      what the start cost) at ``speed``, in work per second.
    """

    seconds: list[float]
    service: list[float]
    done: list[float]
    executions: list[int]
    started: list[float]
    progress: list[float]
    speed: list[float]

    @classmethod
    def none_of(cls, jobs: int) -> Attained:
        zero = [0.0] * jobs
        return cls(zero.copy(), zero.copy(), zero.copy(), [0] * jobs, zero.copy(), zero.copy(), zero.copy())


@dataclass
class ClusterView:
    """Read only. Jobs are numbered in the order of the trace.

    - ``waiting``: submitted jobs without devices in the order they began to wait.
    - ``running``: the gangs by job in the order they started.
    - ``arrived`` and ``ended``: the jobs since the last decision; ``stopped``: those that lost their devices
      since then with a node.
    - ``down``: nodes out of use; ``leaving``: those that will be at the time said (s).
    - ``round_ended`` is true at the round ends of a policy with a round length.
    - ``rng``: random numbers of the run's seed, the same for every run of the spec.
    """

    jobs: VisibleJobs
    pool: Pool
    attained: Attained
    works: list[float]
    now: float = float("-inf")
    waiting: dict[int, None] = field(default_factory=dict)
    running: dict[int, Gang] = field(default_factory=dict)
    arrived: tuple[int, ...] = ()
    ended: tuple[int, ...] = ()
    stopped: tuple[int, ...] = ()
    down: frozenset[int] = frozenset()
    leaving: dict[int, float] = field(default_factory=dict)
    round_ended: bool = False
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    model: Performance | None = None
    agents: Measurable | None = None
    pairs: MeasuredPairs | None = None

    @classmethod
    def over(
        cls, trace: JobTrace, machines: Machines, performance: Performance, sees: frozenset[str], seed: int
    ) -> Self:
        """The view before anything has happened, for a policy that ``sees`` so much."""
        return cls(
            jobs=VisibleJobs(trace, sees),
            pool=Pool(machines),
            attained=Attained.none_of(len(trace)),
            works=[performance.work(job) for job in range(len(trace))],
            rng=np.random.default_rng(seed),
            model=performance if "throughput" in sees else None,
            agents=performance if "gradients" in sees and isinstance(performance, Measurable) else None,
            pairs=performance if isinstance(performance, MeasuredPairs) else None,
        )

    @property
    def performance(self) -> Performance:
        """How fast jobs run on what they are given, for a policy that sees ``throughput``."""
        if self.model is None:
            raise HiddenColumn("throughput is hidden: the policy does not declare it in sees")
        return self.model

    def may_share(self, gang: Gang, others: Sequence[Gang]) -> bool:
        """Whether ``gang`` may run while ``others`` have parts of its devices.

        A pair that was never measured, or is known not to fit, cannot be tried.
        """
        return self.pairs is None or self.pairs.may_share(gang, others)

    def measured(self, job: int) -> Measurement | None:
        """What the agent of a running job measures of its steps, for a policy that sees ``gradients``.

        ``None`` before it has made one on its present devices.
        """
        if self.now <= self.attained.progress[job]:
            return None
        return self._agents().measure(job, self.running[job], self.done(job))

    def batch_limits(self, job: int) -> Any:
        """Between which batches the user of a job lets it train, for a policy that sees ``gradients``."""
        return self._agents().limits(job)

    def _agents(self) -> Measurable:
        if self.agents is None:
            raise HiddenColumn("gradients are not told: by the policy's sees, or by the performance model")
        return self.agents

    @property
    def is_full(self) -> bool:
        """Whether nothing can be started without stopping something."""
        return self.pool.total < 1 and self.jobs.is_plain

    def attained_time(self, job: int) -> float:
        """Seconds that ``job`` has held devices, restarts included."""
        running = self.now - self.attained.started[job] if job in self.running else 0.0
        return self.attained.seconds[job] + running

    def attained_service(self, job: int) -> float:
        """Device-seconds that ``job`` has held."""
        if job not in self.running:
            return self.attained.service[job]
        gang = self.running[job]
        return self.attained.service[job] + (self.now - self.attained.started[job]) * gang.size * gang.share

    def done(self, job: int) -> float:
        """Work that ``job`` has done, in the unit of the performance model."""
        attained = self.attained
        if job not in self.running:
            return attained.done[job]
        return attained.done[job] + max(0.0, self.now - attained.progress[job]) * attained.speed[job]

    def remaining_of_running(self) -> list[float]:
        """What ``remaining`` is of each running job, in the order they started."""
        now, service, works = self.now, self.jobs.service, self.works
        done, since, speed = self.attained.done, self.attained.progress, self.attained.speed
        return [
            service[job] - work if works[job] == service[job] else service[job] * (1 - work / works[job])
            for job in self.running
            for work in (done[job] + (now - since[job]) * speed[job] if now > since[job] else done[job],)
        ]

    def attained_of_running(self, by_service: bool) -> list[float]:
        """What ``attained_service``, or ``attained_time``, is of each running job."""
        now, started = self.now, self.attained.started
        if not by_service:
            before = self.attained.seconds
            return [before[job] + (now - started[job]) for job in self.running]
        held = self.attained.service
        return [
            held[job] + (now - started[job]) * gang.size * gang.share for job, gang in self.running.items()
        ]

    def remaining(self, job: int) -> float:
        """Seconds of service left on the devices it asked for, for a policy that sees ``service``."""
        service, work = self.jobs.service[job], self.works[job]
        if work == service:
            return service - self.done(job)
        return service * (1 - self.done(job) / work)
