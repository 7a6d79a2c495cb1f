"""QSSF, SC'21 (Helios): the quasi-shortest service first, without preemption.

A job's priority is GPUs x predicted duration, the smallest first. The prediction is ``blend`` x what ended
jobs of the same user and name took, and the rest a gradient-boosted model's (``history``); only jobs that
have ended on this cluster teach it, so it begins without knowing anything. What is predicted alike waits in
one line, so that news about a line moves all of it.

Left out: names are compared as they are, not by edit distance, and the model has no calendar of submissions.
The paper's model is trained on months before the trace, which no trace here brings with it. As in the
authors' simulator nothing starts before the first in priority does.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from experiments.cluster.interface import Allocation, ClusterPolicy, ClusterView, Decider, Gang
from experiments.cluster.policies.qssf.history import History, Kind
from experiments.core.knobs import knob


@dataclass(frozen=True)
class Qssf(ClusterPolicy):
    """Starts the waiting job of the least predicted GPU time first and never preempts."""

    name: ClassVar[str] = "qssf"
    mechanism: ClassVar[str] = "predict how long jobs run"
    sees: ClassVar[frozenset[str]] = frozenset({"user", "name", "group", "tenant"})
    needs: ClassVar[frozenset[str]] = frozenset({"user"})
    quick: ClassVar[Mapping[str, Any]] = {"first_fit": 8}

    blend: float = knob(0.5, "share of the user's own history in a prediction", low=0.0, high=1.0)
    first_fit: int = knob(
        100, "ended jobs before the model is first fitted; again at each quarter more", low=4, high=10**6
    )
    blocking: bool = knob(True, "nothing starts before the first; false: skip what does not fit")

    def begin(self) -> Decider:
        return _Lines(self, History(self.blend, self.first_fit))


@dataclass
class _Lines:
    """Waiting jobs of one kind in the order of arrival; ``heads`` ranks the kinds, stale entries too."""

    policy: Qssf
    history: History
    kinds: dict[int, Kind] = field(default_factory=dict)
    lines: dict[Kind, deque[int]] = field(default_factory=dict)
    rank: dict[Kind, float] = field(default_factory=dict)
    heads: list[tuple[float, int, Kind]] = field(default_factory=list)

    def allocate(self, view: ClusterView) -> Allocation:
        self._learn(view)
        for job in view.arrived:
            self._queue(job, view)
        for job in reversed(view.stopped):
            self._queue(job, view, first=True)
        pool, started, skipped = view.pool.copy(), list[Gang](), list[Kind]()
        while pool.total > 0 and (kind := self._first()) is not None:
            job = self.lines[kind][0]
            gang = pool.place(job, view.jobs.demand(job), self.policy.placement)
            if gang is not None:
                pool.take(gang)
                started.append(gang)
                self.lines[kind].popleft()
            elif self.policy.blocking:
                skipped.append(kind)
                break
            else:
                skipped.append(kind)
                heapq.heappop(self.heads)
                continue
            heapq.heappop(self.heads)
            self._push(kind)
        for kind in skipped:
            self._push(kind)
        return Allocation(tuple(started))

    def _queue(self, job: int, view: ClusterView, *, first: bool = False) -> None:
        kind = self.kinds.setdefault(job, _kind_of(job, view))
        line = self.lines.setdefault(kind, deque())
        if first:
            line.appendleft(job)
        else:
            line.append(job)
        if kind not in self.rank:
            self.rank[kind] = kind.gpus * self.history.predict(kind)
        self._push(kind)

    def _learn(self, view: ClusterView) -> None:
        """Note how long jobs took that have ended, and rank anew the kinds that it says something about: all
        of them where nothing had been known.
        """
        news, knew_nothing = set[Kind](), not self.history.seconds
        for job in view.ended:
            kind = self.kinds.pop(job)
            self.history.add(kind, view.attained.seconds[job])
            news.add(kind)
        is_about_all = bool(news) and (self.history.refit() or knew_nothing)
        for kind in sorted(self.rank if is_about_all else news & self.rank.keys()):
            self.rank[kind] = kind.gpus * self.history.predict(kind)
            self._push(kind)

    def _push(self, kind: Kind) -> None:
        if self.lines[kind]:
            heapq.heappush(self.heads, (self.rank[kind], self.lines[kind][0], kind))

    def _first(self) -> Kind | None:
        """The kind whose first job comes first; entries that hold no longer are dropped."""
        while self.heads:
            rank, job, kind = self.heads[0]
            line = self.lines[kind]
            if line and line[0] == job and self.rank[kind] == rank:
                return kind
            heapq.heappop(self.heads)
        return None


def _kind_of(job: int, view: ClusterView) -> Kind:
    jobs = view.jobs
    user, name, group = (jobs.column(what)[job] if jobs.tells(what) else "" for what in _WORDS)
    return Kind(user, f"{name} {group}", jobs.tenant[job], jobs.gpus[job])


_WORDS = ("user", "name", "group")
