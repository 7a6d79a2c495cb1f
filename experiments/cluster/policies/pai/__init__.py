"""PAI, NSDI'22 ("MLaaS in the wild"): reserving and packing, the shortest first by what ended jobs took.

- *Reserving and packing*: high-end GPUs are for jobs that need them, because they ask for that type or for
  ``linked`` whole GPUs or more; all others are packed, with parts of GPUs, onto the rest. After ``patience``
  a job takes either, as after the time limit of an allocation plan.
- *Order*: as they come; or by the mean duration of ended jobs of the same user (SJU), of the same group
  (SJG), or of the same group and as many GPUs (SJGG). A group is jobs of one script with the same arguments;
  without one a job is its user's. Where nothing of the kind has ended the mean of all that has stands in.
- The whole list is gone through at every arrival and completion, and what does not fit is skipped. A gang
  starts whole and may be on several nodes. Nothing is preempted.

The paper's scores of how much a job needs a type are not public; the two rules above stand in. The authors'
simulator gives the same figures for whole GPUs in the order of submission and of true durations. Elsewhere it
knows more: its estimates come with the trace, those of jobs that are yet to end among them, and parts of GPUs
are summed over a node; here only jobs that have ended on this cluster teach, and a part is of one GPU.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from experiments.cluster.interface import (
    PLACEMENTS,
    Allocation,
    ClusterPolicy,
    ClusterView,
    Decider,
    Demand,
    Gang,
    Machines,
)
from experiments.cluster.policies.pai.predictions import (
    BY_FEATURE,
    FIFO,
    EndedJobs,
    Known,
    Predictions,
    Unranked,
)
from experiments.cluster.policies.pai.queue import PredictedJobs
from experiments.core.knobs import knob

EXACT, HIGH_END_ONLY, ANY = "exact", "high-end only", "none"


@dataclass(frozen=True)
class Pai(ClusterPolicy):
    """Packs parts of GPUs, keeps high-end ones for who needs them, the shortest by prediction first."""

    name: ClassVar[str] = "pai"
    mechanism: ClassVar[str] = "predict how long jobs run"
    sees: ClassVar[frozenset[str]] = frozenset({"user", "group"})
    needs: ClassVar[frozenset[str]] = frozenset({"user"})

    placement: str = knob("pack", "which free devices a job gets", choices=tuple(PLACEMENTS))
    order: str = knob(
        "sjgg",
        "first come, or least mean duration of its user (sju), group (sjg), group by GPUs (sjgg)",
        choices=(FIFO, *BY_FEATURE),
    )
    reserve: bool = knob(True, "keep high-end GPUs for jobs that need them")
    high_end: str = knob("v100|a100|h100", "how the types of those begin, in any case, | between them")
    linked: int = knob(4, "whole GPUs from which on a job needs high-end ones", low=1, high=10**6)
    patience: float = knob(
        900.0,
        "how long a job waits for the GPUs meant for it before it takes any",
        low=0.0,
        high=1e9,
        unit="s",
    )
    matching: str = knob(
        EXACT,
        "wishes for a type that hold: all, those for high-end types, none",
        choices=(EXACT, HIGH_END_ONLY, ANY),
    )

    def begin(self) -> Decider:
        return _Packing(self, Unranked() if self.order == FIFO else EndedJobs(BY_FEATURE[self.order]))

    def is_high_end(self, kind: str) -> bool:
        return kind.lower().startswith(tuple(filter(None, self.high_end.lower().split("|"))))

    def insists_on(self, demand: Demand) -> Demand:
        """``demand`` with no wish for a type that does not hold."""
        if self.matching == EXACT or (
            self.matching == HIGH_END_ONLY and any(map(self.is_high_end, demand.types))
        ):
            return demand
        return demand._replace(types=())

    def plans(self, demand: Demand, machines: Machines) -> tuple[Demand, Demand]:
        """What a job asks for at first, and after its patience."""
        either = self.insists_on(demand)
        low, high = (
            tuple(kind for kind in machines.types if self.is_high_end(kind) == high) for high in (False, True)
        )
        if not self.reserve or either.types or not demand.gpus or not (low and high):
            return either, either
        needs = demand.share == 1 and demand.gpus >= self.linked
        return either._replace(types=high if needs else low), either


@dataclass(frozen=True)
class PaiOracle(Pai):
    """The same in the order of true durations: what a perfect prediction would give."""

    name: ClassVar[str] = "pai-sjf"
    mechanism: ClassVar[str] = "know how long jobs run"
    sees: ClassVar[frozenset[str]] = frozenset({"service"})
    needs: ClassVar[frozenset[str]] = frozenset()

    order: str = knob("sjf", "by true durations", choices=("sjf",))

    def begin(self) -> Decider:
        return _Packing(self, Known())


@dataclass
class _Packing:
    """``impatient`` has the jobs that wait for the GPUs meant for them, and until when, in order."""

    policy: Pai
    predictions: Predictions
    queue: PredictedJobs = field(init=False)
    impatient: deque[tuple[float, int]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.queue = PredictedJobs(self.predictions)

    def allocate(self, view: ClusterView) -> Allocation:
        for job in view.ended:
            self.queue.learn(self.predictions.add(job, view))
        self._queue((*view.arrived, *view.stopped), view)
        started = self._start(view)
        self._forget()
        return Allocation(tuple(started), wake_at=self.impatient[0][0] if self.impatient else None)

    def _queue(self, jobs: Iterable[int], view: ClusterView) -> None:
        """Let jobs wait for what is meant for them, and for anything once their patience is over."""
        machines, patience = view.pool.machines, self.policy.patience
        for job in jobs:
            first, later = self.policy.plans(view.jobs.demand(job), machines)
            self.queue.add(job, first if patience else later, self.predictions.feature(job, view))
            if patience and first != later:
                self.impatient.append((view.now + patience, job))
        while self.impatient and self.impatient[0][0] <= view.now:
            job = self.impatient.popleft()[1]
            if job in self.queue:
                self.queue.move(job, self.policy.plans(view.jobs.demand(job), machines)[1])

    def _forget(self) -> None:
        while self.impatient and self.impatient[0][1] not in self.queue:
            self.impatient.popleft()

    def _start(self, view: ClusterView) -> list[Gang]:
        """Start what fits, the least predicted first; what does not fit once is not asked for again."""
        if view.is_full:
            return []
        pool, started = view.pool.copy(), list[Gang]()
        ranked = [(*self.queue.first(demand), demand) for demand in self.queue.demands()]
        heapq.heapify(ranked)
        while ranked:
            _, job, demand = heapq.heappop(ranked)
            gang = pool.place(job, demand, self.policy.placement)
            if gang is None:
                continue
            pool.take(gang)
            started.append(gang)
            self.queue.remove(job)
            if self.queue.has(demand):
                heapq.heappush(ranked, (*self.queue.first(demand), demand))
        return started
