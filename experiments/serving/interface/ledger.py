"""What became of every request of a run over KV blocks: its times, its waits, the gaps between its tokens."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence

import numpy as np

from experiments.core.progress import Progress
from experiments.serving.interface.paged import PagedView
from experiments.serving.interface.plan import Served
from experiments.workloads.requests import RequestTrace
from experiments.workloads.step import Floats

#: Ends of requests between two reports of progress.
REPORTED = 256


class RequestLedger:
    """Columns over the requests of ``trace``; ``total`` tokens of each are the truth that no policy sees."""

    def __init__(self, trace: RequestTrace, progress: Progress) -> None:
        count = len(trace)
        self.arrival: list[float] = trace.arrival.tolist()
        self.prompt: list[int] = trace.prompt.tolist()
        self.total: list[int] = [p + o for p, o in zip(self.prompt, trace.output.tolist(), strict=True)]
        self.admitted, self.first, self.last, self.answered = ([math.nan] * count for _ in range(4))
        #: Most blocks that each had.
        self.most = [0] * count
        self.reasons: dict[int, str] = {}
        self.gaps = array("d")
        self._out: dict[int, float] = {}
        self._spells: dict[int, list[tuple[float, float]]] = {}
        self._left, self._progress = count, progress

    def note(self, view: PagedView) -> None:
        """Book what the policy did in ``view`` besides the tokens."""
        for request, why in view.rejected:
            self.refuse(request, why)
        for request in view.preempted:
            self._out[request] = view.now
            self.most[request] = max(self.most[request], view.pool.blocks_for(view.known[request] - 1))
        for entry in view.entries if self._out else ():
            since = self._out.pop(entry.request, None)
            if since is not None:
                self._spells.setdefault(entry.request, []).append((since, view.now))
        for request in view.admitted:
            if math.isnan(self.admitted[request]):
                self.admitted[request] = view.now

    def refuse(self, request: int, why: str) -> None:
        """It is never answered, for that reason."""
        self.reasons[request] = why
        self.end_one()

    def give_tokens(self, requests: Sequence[int], first: float, last: float) -> None:
        """Tokens of each of ``requests`` come out, the first of them at ``first``."""
        firsts, lasts, gaps = self.first, self.last, self.gaps
        for request in requests:
            before = lasts[request]
            if before == before:  # a number, not NaN
                gaps.append(first - before)
            else:
                firsts[request] = first
            lasts[request] = last

    def repeat_gaps(self, ends: Floats, requests: int) -> None:
        """Each of so many requests got a token at every end."""
        if len(ends) > 1:
            self.gaps.frombytes(np.tile(np.diff(ends), requests).tobytes())

    def answer(self, request: int, time: float, blocks: int) -> None:
        """Its last token is out; it held so many blocks."""
        self.answered[request] = time
        self.most[request] = max(self.most[request], blocks)
        self.end_one()

    def end_one(self) -> None:
        self._left -= 1
        if self._left % REPORTED == 0:
            count = len(self.arrival)
            self._progress(1 - self._left / count, f"{count - self._left:,} of {count:,} requests")

    @property
    def preempted(self) -> int:
        """Requests that were out of memory at least once."""
        return sum(map(bool, self._spells.values())) + len(self._out.keys() - self._spells.keys())

    def served(self, size: int, computed: Callable[[int], int]) -> tuple[Served, ...]:
        """What became of all requests, in blocks of ``size`` tokens."""
        return tuple(
            Served(
                request,
                self.admitted[request],
                self.first[request],
                self.last[request],
                self.answered[request],
                self.most[request] * size,
                computed(request),
                request in self.reasons,
                self.reasons.get(request, ""),
                tuple(self._spells.get(request, ())),
            )
            for request in range(len(self.arrival))
        )
