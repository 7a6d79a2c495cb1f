"""First in, first out: the baseline of every cluster scheduler.

Jobs start in the order of submission and run to their end. Strict order means head-of-line blocking: nothing
starts before the first waiting job does. Backfilling lets later jobs use what the head leaves idle; EASY
(Lifka, JSSPP'95) does so only as far as the head's reserved start is not delayed, for which it must know how
long jobs run.

Under ``rules: gavel`` a job gets a type of device that is drawn for it, and keeps it to its end.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

from experiments.cluster.interface import (
    NOTHING,
    Allocation,
    ClusterPolicy,
    ClusterView,
    Decider,
    Divider,
    Gang,
    Pool,
    rules_of,
)
from experiments.cluster.interface.policy import OWN
from experiments.cluster.planning.queue_shares import QueueShares
from experiments.core.knobs import knob


@dataclass(frozen=True)
class Fifo(ClusterPolicy):
    """Starts jobs in the order of submission and never preempts."""

    name: ClassVar[str] = "fifo"
    mechanism: ClassVar[str] = "in order"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")

    rules: str = rules_of("gavel")
    backfill: str = knob(
        "none",
        "jobs behind a head that does not fit: wait, or start if they fit",
        choices=("none", "first-fit"),
    )
    mended: bool | None = knob(
        None,
        "under gavel: without the release's slip of giving jobs the last type that has any device free; "
        "empty: with it under gavel",
    )

    def divider(self, seed: int) -> Divider:
        return QueueShares(seed, mended=self.rules == OWN if self.mended is None else self.mended)

    def begin(self) -> Decider:
        return self

    def allocate(self, view: ClusterView) -> Allocation:
        if not view.waiting or view.is_full:
            return NOTHING
        started = self.fill(view.pool.copy(), view.waiting, view, block=self.backfill == "none")
        return Allocation(start=tuple(started)) if started else NOTHING


@dataclass(frozen=True)
class FifoEasy(ClusterPolicy):
    """Backfills only what does not delay the start reserved for the first waiting job (EASY)."""

    name: ClassVar[str] = "fifo-easy"
    mechanism: ClassVar[str] = "in order"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")
    sees: ClassVar[frozenset[str]] = frozenset({"service"})

    def begin(self) -> Decider:
        return self

    def allocate(self, view: ClusterView) -> Allocation:
        if not view.waiting or view.is_full:
            return NOTHING
        pool = view.pool.copy()
        started = self.fill(pool, view.waiting, view, block=True)
        head = next(islice(view.waiting, len(started), None), None)
        if head is not None and pool.total >= 1:
            started += self._backfill(head, pool, started, view)
        return Allocation(start=tuple(started))

    def _backfill(self, head: int, pool: Pool, started: list[Gang], view: ClusterView) -> list[Gang]:
        """Jobs behind ``head`` that end before its reserved start, or use what it leaves free then."""
        start, spare = self._reservation(head, pool.total, started, view)
        now, free = view.now, pool.total
        wanted, service, backfilled = view.jobs.gpus, view.jobs.service, list[Gang]()
        for job in islice(view.waiting, len(started) + 1, None):
            if wanted[job] > free:
                continue
            in_time = now + service[job] <= start
            if in_time or wanted[job] <= spare:
                gangs = self.fill(pool, [job], view)
                spare -= wanted[job] if gangs and not in_time else 0
                backfilled += gangs
                free = pool.total
                if free < 1:
                    break
        return backfilled

    def _reservation(
        self, head: int, free: float, started: list[Gang], view: ClusterView
    ) -> tuple[float, float]:
        """When the head can start at the latest, and the devices that it then leaves free."""
        left = view.remaining_of_running()
        sizes = (gang.size for gang in view.running.values())
        ends = [(view.now + seconds, size) for seconds, size in zip(left, sizes, strict=True)]
        ends += [(view.now + view.jobs.service[gang.job], gang.size) for gang in started]
        heapq.heapify(ends)
        while ends:
            end, size = heapq.heappop(ends)
            free += size
            if free >= view.jobs.gpus[head]:
                return end, free - view.jobs.gpus[head]
        return float("inf"), 0.0
