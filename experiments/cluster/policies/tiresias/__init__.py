"""Tiresias, NSDI'19: discretized two-dimensional least attained service (section 3.3).

A job's service is GPUs x executed time. It enters the first queue and is demoted when its service reaches the
queue's limit; queues are strict, inside a queue jobs keep their order and running ones stay before pending
ones. All queues are walked at each arrival, completion and demotion; a job that does not fit is skipped, one
not reached is preempted. PROMOTEKNOB puts a job that has waited ``promote`` times as long as it ran back into
the first queue.

With ``index: gittins`` the order inside a queue is that of the Gittins index by the services of jobs that
have ended, looking as far ahead as the queue is wide; the last queue stays first in, first out. The paper
gives no universal limits; the defaults are those of the authors' simulator, and each limit after the
third is ``growth`` times the one before. ``placement: skew`` consolidates only models with one large tensor.

``rules: tiresias`` and ``tiresias-artifact`` keep two habits of the authors' simulator that decide its
figures: the next demotion is awaited at ``ceil((limit - executed) / GPUs)`` from now (the whole difference
divided, too late for a job that ran before), and a job falls by one queue at a time. Under the former
its Gittins index too is as it computes it, from jobs that have ended instead of its file of samples.
ElasticFlow's simulator has both habits; there jobs are demoted in its own order. Pollux' simulator has
neither, one limit of 16 GPU hours, and queues that keep their order whoever runs; a job is placed on the
nodes with most free devices.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

from experiments.cluster.interface import NOTHING, Allocation, ClusterPolicy, ClusterView, Decider
from experiments.cluster.interface.placement import PLACEMENTS
from experiments.cluster.interface.policy import OWN, rules_of
from experiments.cluster.policies.tiresias.crossings import Crossings
from experiments.cluster.policies.tiresias.gittins import Gittins
from experiments.cluster.policies.tiresias.running_first import RunningFirst
from experiments.cluster.policies.tiresias.skew import placement_for
from experiments.core.errors import BadInput
from experiments.core.knobs import knob

RELEASE, ELASTICFLOW, POLLUX = "tiresias", "elasticflow", "pollux"
#: Releases with the authors' habits.
LATE = (RELEASE, ELASTICFLOW)
LAS, GITTINS, SKEW = "las", "gittins", "skew"
#: Queues and the first one's limit where nobody names them: those of the authors' simulator.
USUAL: Mapping[str, tuple[int, float]] = {
    OWN: (3, 3250.0),
    RELEASE: (3, 3250.0),
    ELASTICFLOW: (3, 3250.0),
    POLLUX: (2, 57600.0),
}
#: Service within this of a limit has reached it: sums of floating-point times are not exact.
SLACK = 1e-6


@dataclass(frozen=True)
class Tiresias(ClusterPolicy):
    """Runs the jobs that had least GPU time so far, in a few queues so that equals do not take turns."""

    name: ClassVar[str] = "tiresias"
    mechanism: ClassVar[str] = "least service first"
    gpus_only: ClassVar[bool] = True
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")
    sees: ClassVar[frozenset[str]] = frozenset({"model"})
    late_demotion: ClassVar[bool] = False
    quick: ClassVar[Mapping[str, Any]] = {"limit_1": 30.0, "limit_2": 60.0, "promote": 3.0}

    rules: str = rules_of(*LATE, POLLUX)
    index: str = knob(LAS, "order inside a queue: as jobs came, or by Gittins index", choices=(LAS, GITTINS))
    queues: int | None = knob(
        None, "number of queues, the last without a limit; empty: as the rules have it", low=1, high=16
    )
    limit_1: float | None = knob(
        None,
        "service that leaves the first queue; empty: as the rules have it",
        low=1e-3,
        high=1e12,
        unit="GPU s",
    )
    limit_2: float = knob(7200.0, "service that leaves the second queue", low=1e-3, high=1e12, unit="GPU s")
    limit_3: float = knob(18000.0, "service that leaves the third queue", low=1e-3, high=1e12, unit="GPU s")
    growth: float = knob(2.5, "every further limit over the one before it", low=1.001, high=1e3)
    placement: str = knob("count", "which free devices a job gets", choices=(*PLACEMENTS, SKEW))
    skew: float = knob(
        0.5, "largest tensor / model above which a job is consolidated (placement skew)", low=0.0, high=1.0
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
        return self.late_demotion or self.rules in LATE

    @property
    def limits(self) -> tuple[float, ...]:
        """The limits of all queues; that of the last is infinite."""
        queues, first = USUAL.get(self.rules, USUAL[OWN])
        queues, first = self.queues or queues, self.limit_1 or first
        further = (self.limit_3 * self.growth**power for power in range(1, queues - 3))
        return (*(first, self.limit_2, self.limit_3, *further)[: queues - 1], math.inf)

    def placement_of(self, job: int, view: ClusterView) -> str:
        if self.rules == POLLUX:
            return "spread"
        return placement_for(view.jobs.model[job], self.skew) if self.placement == SKEW else self.placement

    def begin(self) -> Decider:
        return _Queues(self)


@dataclass(frozen=True)
class TiresiasArtifact(Tiresias):
    """Tiresias with the late demotions of the authors' simulator, to repeat its figures exactly."""

    name: ClassVar[str] = "tiresias-artifact"
    mechanism: ClassVar[str] = "least service first"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")
    late_demotion: ClassVar[bool] = True


@dataclass(frozen=True)
class _Counters:
    """Of one job: attained time and clock when it last entered the first queue."""

    seconds: float
    entered: float


@dataclass
class _Queues:
    """The jobs of each queue in order.

    By job: ``limit`` of its queue, and ``before``, the service that it had attained when it last entered the
    first queue. ``served``: what running jobs had attained at the decision.
    """

    policy: Tiresias
    limits: tuple[float, ...] = field(init=False)
    queues: RunningFirst = field(init=False)
    counters: dict[int, _Counters] = field(default_factory=dict)
    limit: dict[int, float] = field(default_factory=dict)
    before: dict[int, float] = field(default_factory=dict)
    served: dict[int, float] = field(default_factory=dict)
    crossings: Crossings = field(default_factory=Crossings)
    gittins: Gittins = field(default_factory=Gittins)

    def __post_init__(self) -> None:
        self.limits = self.policy.limits
        self.queues = RunningFirst(len(self.limits))

    def allocate(self, view: ClusterView) -> Allocation:
        for job in view.ended:
            self.queues.remove(job)
            del self.counters[job]
        self.crossings.forget((*view.ended, *view.stopped))
        for job in view.arrived:
            self._enter(job, view)
        demoted = self._demote_served(view)
        if self.policy.promote is not None:
            self._promote(view)
        if self.policy.index == GITTINS:
            self.gittins.learn(view.attained_service(job) for job in view.ended)
            self._order_by_index(view)
        decision = self._choose(view, demoted)
        started = [gang.job for gang in decision.start]
        self.crossings.forget(decision.preempt)
        for job in started if self._is_steady(view) else ():
            self._expect_crossing(job, view.attained.service[job], view)
        self._put_in_order(decision, started, demoted, view)
        return Allocation(decision.start, decision.preempt, wake_at=self._wake_at(decision, started, view))

    def _is_steady(self, view: ClusterView) -> bool:
        """Whether a running job has its GPUs each second, and demotions come when they are due."""
        return view.jobs.is_plain and not self.policy.demotes_late

    def _is_kept(self, view: ClusterView) -> bool:
        """Whether all stand where the decision before left them, but for those told to have come or moved."""
        as_they_came = self.policy.index == LAS and self.policy.rules != POLLUX
        return as_they_came and view.jobs.is_plain and not view.stopped

    def _running_after(self, decision: Allocation, started: list[int], view: ClusterView) -> Set[int]:
        if not (decision.preempt or started):
            return view.running.keys()
        return (view.running.keys() - decision.preempt) | set(started)

    def _choose(self, view: ClusterView, demoted: Sequence[int]) -> Allocation:
        """As ``run_first`` over all queues, which has nothing to do while no job waits."""
        if not view.waiting:
            return NOTHING
        if not view.jobs.is_plain:
            return self.policy.run_first((job for queue in self.queues for job in queue), view)
        left = sum(view.pool.capacity)
        if self._is_kept(view):
            return self.policy.change(*self.queues.fit(left, demoted), view)
        chosen: dict[int, None] = {}
        gpus = view.jobs.gpus
        for job in (job for queue in self.queues for job in queue):
            if gpus[job] <= left:
                left -= gpus[job]
                chosen[job] = None
        return self.policy.run_only(chosen, view)

    def _put_in_order(
        self, decision: Allocation, started: list[int], demoted: Sequence[int], view: ClusterView
    ) -> None:
        """Inside a queue running jobs stand before pending ones."""
        if self._is_kept(view):
            self.queues.put_right(started, set(decision.preempt), demoted)
        elif self.policy.rules != POLLUX and (
            decision is not NOTHING or demoted or view.stopped or self.policy.index == GITTINS
        ):
            self.queues.put_in_order(self._running_after(decision, started, view))

    def _order_by_index(self, view: ClusterView) -> None:
        """The highest index first in every queue but the last; equal ones as they are."""
        index = self.gittins.release_index if self.policy.rules == RELEASE else self.gittins.index
        lower = (0.0, *self.limits)
        for number, queue in enumerate([*self.queues][:-1]):
            width = self.limits[number] - lower[number]
            rank = {job: -index(self._service(job, view), width) for job in queue}
            self.queues.sort(number, rank.__getitem__)

    def _enter(self, job: int, view: ClusterView) -> None:
        self.counters[job] = _Counters(view.attained_time(job), view.now)
        self.limit[job], self.before[job] = self.limits[0], view.attained_service(job)
        self.queues.append(job, 0, view.jobs.gpus[job])

    def _service(self, job: int, view: ClusterView) -> float:
        """Service since the job last entered the first queue."""
        return view.attained_service(job) - self.before[job]

    def _demote_served(self, view: ClusterView) -> list[int]:
        """Move running jobs to the queues of their services; those that go to another one."""
        if self._is_steady(view):
            return self._demote_crossed(view)
        self.served = dict(zip(view.running, view.attained_of_running(True), strict=True))
        limit, before = self.limit, self.before
        due = [job for job, held in self.served.items() if held - before[job] + SLACK >= limit[job]]
        due = due if self.policy.rules in LATE else sorted(due)
        for job in due:
            self._demote(job, self.served[job], view)
        return due

    def _demote_crossed(self, view: ClusterView) -> list[int]:
        """The same from the times at which limits are crossed."""
        held = {job: view.attained_service(job) for job in self.crossings.near(view.now)}
        due = sorted(job for job in held if held[job] - self.before[job] + SLACK >= self.limit[job])
        for job in due:
            self._demote(job, held[job], view)
            self._expect_crossing(job, held[job], view)
        return due

    def _expect_crossing(self, job: int, held: float, view: ClusterView) -> None:
        self.crossings.forget((job,))
        if self.limit[job] < math.inf:
            self.crossings.expect(job, view.now + self._until_crossed(job, held, view))

    def _until_crossed(self, job: int, held: float, view: ClusterView) -> float:
        return (self.limit[job] - (held - self.before[job])) / view.jobs.gpus[job]

    def _demote(self, job: int, held: float, view: ClusterView) -> None:
        queue, service = self.queues.queue[job], held - self.before[job] + SLACK
        self.queues.remove(job)
        while service >= self.limits[queue]:
            queue += 1
            if self.policy.demotes_late:
                break
        self.queues.append(job, queue, view.jobs.gpus[job])
        self.limit[job] = self.limits[queue]

    def _promote(self, view: ClusterView) -> None:
        for job in [job for queue in [*self.queues][1:] for job in queue if job in view.waiting]:
            if view.now + SLACK >= self._promotion(job, view):
                self.queues.remove(job)
                self._enter(job, view)

    def _promotion(self, job: int, view: ClusterView) -> float:
        """When a waiting job has waited ``promote`` times as long as it ran, both since it entered the first
        queue.
        """
        assert self.policy.promote is not None
        counters = self.counters[job]
        executed = view.attained_time(job) - counters.seconds
        return counters.entered + executed * (1 + self.policy.promote)

    def _wake_at(self, decision: Allocation, started: list[int], view: ClusterView) -> float | None:
        """The next demotion or promotion."""
        if self._is_steady(view):
            times = self._next_crossings(view)
        else:
            times = self._demotions(self._running_after(decision, started, view), view)
        if self.policy.promote is not None:
            running = self._running_after(decision, started, view)
            lower = [job for queue in [*self.queues][1:] for job in queue if job not in running]
            times += [self._promotion(job, view) for job in lower]
        if self.policy.rules == OWN:
            times = [time for time in times if time > view.now]
        return min(times, default=None)

    def _next_crossings(self, view: ClusterView) -> list[float]:
        """When those jobs reach their limits that do so first after now."""
        found = []
        for job in self.crossings.first_after(view.now):
            held = view.attained_service(job) if job in view.running else view.attained.service[job]
            found.append(view.now + self._until_crossed(job, held, view))
        return found

    def _demotions(self, running: Set[int], view: ClusterView) -> list[float]:
        """When each running job reaches its queue's limit; none for the last queue."""
        now, gpus, limit, before = view.now, view.jobs.gpus, self.limit, self.before
        held = self.served | {job: view.attained.service[job] for job in running - self.served.keys()}
        limited = [job for job in running if limit[job] < math.inf]
        if not self.policy.demotes_late:
            return [now + self._until_crossed(job, held[job], view) for job in limited]
        return [
            now + math.ceil((limit[job] - (held[job] - before[job]) / gpus[job]) / gpus[job])
            for job in limited
        ]
