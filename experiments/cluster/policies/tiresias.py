"""Tiresias, NSDI'19: discretized two-dimensional least attained service (section 3.3).

A job's service is GPUs x executed time. It enters the first queue and is demoted when its service reaches the
queue's limit; queues are strict, inside a queue jobs keep their order and running ones stay before pending
ones. All queues are walked at each arrival, completion and demotion; a job that does not fit is skipped, one
not reached is preempted. PROMOTEKNOB puts a job that has waited ``promote`` times as long as it ran back into
the first queue.

The paper gives no universal limits; the defaults are those of the authors' simulator. Left out: the Gittins
index and the profile of tensor skew for placement (``placement`` is set by the user instead).

``tiresias-artifact`` keeps two habits of that simulator that decide its figures: the next demotion is awaited
at ``ceil((limit - executed) / GPUs)`` from now (the whole difference divided, too late for a job that ran
before), and a job falls by one queue at a time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

from experiments.cluster.interface import Allocation, ClusterPolicy, ClusterView, Decider
from experiments.cluster.interface.policy import OWN, rules_of
from experiments.core.errors import BadInput
from experiments.core.knobs import knob

ELASTICFLOW = "elasticflow"
#: Queues and the first one's limit where nobody names them: those of the authors' simulator.
USUAL: Mapping[str, tuple[int, float]] = {OWN: (3, 3250.0), ELASTICFLOW: (3, 3250.0)}
#: Service within this of a limit has reached it: sums of floating-point times are not exact.
SLACK = 1e-6


@dataclass(frozen=True)
class Tiresias(ClusterPolicy):
    """Runs the jobs that had least GPU time so far, in a few queues so that equals do not take turns."""

    name: ClassVar[str] = "tiresias"
    mechanism: ClassVar[str] = "least service first"
    late_demotion: ClassVar[bool] = False
    quick: ClassVar[Mapping[str, Any]] = {"limit_1": 30.0, "limit_2": 60.0, "promote": 3.0}

    rules: str = rules_of(ELASTICFLOW)
    queues: int | None = knob(
        None, "number of queues, the last without a limit; empty: as the rules have it", low=1, high=4
    )
    limit_1: float | None = knob(
        None,
        "service that leaves the first queue; empty: as the rules have it",
        low=1e-3,
        high=1e12,
        unit="GPU s",
    )
    limit_2: float = knob(7200.0, "service that leaves the second queue", low=1e-3, high=1e12, unit="GPU s")
    limit_3: float = knob(
        18000.0, "service that leaves the third of four queues", low=1e-3, high=1e12, unit="GPU s"
    )
    promote: float | None = knob(
        None, "PROMOTEKNOB: waiting / executed time that promotes", low=1e-6, high=1e9
    )

    def __post_init__(self) -> None:
        for number, (lower, upper) in enumerate(pairwise(self.limits[:-1]), 2):
            if upper <= lower:
                raise BadInput(
                    f"{upper:g} is not above {lower:g}", f"knobs.limit_{number}", "ascending limits"
                )

    @property
    def demotes_late(self) -> bool:
        """Whether demotions are awaited, and made one queue at a time, as in the authors' simulator."""
        return self.late_demotion or self.rules == ELASTICFLOW

    @property
    def limits(self) -> tuple[float, ...]:
        """The limits of all queues; that of the last is infinite."""
        queues, first = USUAL.get(self.rules, USUAL[OWN])
        queues, first = self.queues or queues, self.limit_1 or first
        return (*(first, self.limit_2, self.limit_3)[: queues - 1], math.inf)

    def begin(self) -> Decider:
        return _Queues(self)


@dataclass(frozen=True)
class TiresiasArtifact(Tiresias):
    """Tiresias with the late demotions of the authors' simulator, to repeat its figures exactly."""

    name: ClassVar[str] = "tiresias-artifact"
    mechanism: ClassVar[str] = "least service first"
    late_demotion: ClassVar[bool] = True


@dataclass
class _Counters:
    """Of one job: its queue, and attained time, attained service and clock when it last entered the first
    queue.
    """

    queue: int
    seconds: float
    service: float
    entered: float


@dataclass
class _Queues:
    """The jobs of each queue in order, running before pending."""

    policy: Tiresias
    limits: tuple[float, ...] = field(init=False)
    queues: list[list[int]] = field(init=False)
    counters: dict[int, _Counters] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.limits = self.policy.limits
        self.queues = [[] for _ in self.limits]

    def allocate(self, view: ClusterView) -> Allocation:
        for job in view.ended:
            self.queues[self.counters.pop(job).queue].remove(job)
        for job in view.arrived:
            self._enter(job, view)
        for job in sorted(view.running) if self.policy.rules == OWN else list(view.running):
            self._demote(job, view)
        if self.policy.promote is not None:
            self._promote(view)
        decision = self.policy.run_first((job for queue in self.queues for job in queue), view)
        running = (set(view.running) - set(decision.preempt)) | {gang.job for gang in decision.start}
        for queue in self.queues:
            queue.sort(key=lambda job: job not in running)
        return Allocation(decision.start, decision.preempt, wake_at=self._wake_at(running, view))

    def _enter(self, job: int, view: ClusterView) -> None:
        self.counters[job] = _Counters(0, view.attained_time(job), view.attained_service(job), view.now)
        self.queues[0].append(job)

    def _service(self, job: int, view: ClusterView) -> float:
        """Service since the job last entered the first queue."""
        return view.attained_service(job) - self.counters[job].service

    def _demote(self, job: int, view: ClusterView) -> None:
        counters, before = self.counters[job], self.counters[job].queue
        if self.limits[before] == math.inf:
            return
        service = self._service(job, view) + SLACK
        while service >= self.limits[counters.queue]:
            counters.queue += 1
            if self.policy.demotes_late:
                break
        if counters.queue != before:
            self.queues[before].remove(job)
            self.queues[counters.queue].append(job)

    def _promote(self, view: ClusterView) -> None:
        for job in [job for queue in self.queues[1:] for job in queue if job in view.waiting]:
            if view.now + SLACK >= self._promotion(job, view):
                self.queues[self.counters[job].queue].remove(job)
                self._enter(job, view)

    def _promotion(self, job: int, view: ClusterView) -> float:
        """When a waiting job has waited ``promote`` times as long as it ran, both since it entered the first
        queue.
        """
        assert self.policy.promote is not None
        counters = self.counters[job]
        executed = view.attained_time(job) - counters.seconds
        return counters.entered + executed * (1 + self.policy.promote)

    def _wake_at(self, running: set[int], view: ClusterView) -> float | None:
        """The next demotion or promotion."""
        last = len(self.limits) - 1
        limited = (job for job in running if self.counters[job].queue != last)
        times = [view.now + self._until_demotion(job, view) for job in limited]
        if self.policy.promote is not None:
            lower = [job for queue in self.queues[1:] for job in queue if job not in running]
            times += [self._promotion(job, view) for job in lower]
        if self.policy.rules == OWN:
            times = [time for time in times if time > view.now]
        return min(times, default=None)

    def _until_demotion(self, job: int, view: ClusterView) -> float:
        limit, gpus = self.limits[self.counters[job].queue], view.jobs.gpus[job]
        service = self._service(job, view)
        if not self.policy.demotes_late:
            return (limit - service) / gpus
        return math.ceil((limit - service / gpus) / gpus)
