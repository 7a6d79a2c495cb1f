"""Whose turn it is on which type of device, so that over time each gets its share (Gavel, OSDI'20, section
5).

Time received since the last division is compared with the share: who had least of it comes first. What
somebody did not get before a new division is kept as a deficit and decides among equals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter

from experiments.cluster.interface.division import Division, Sharers

#: Priority of a share of which nothing was received yet, per share.
FIRST = 1e9


class Turns:
    """Shares, time received and deficits of jobs and pairs.

    A job counts as having had half a round on each type when it enters, so that its first priorities are
    finite. Jobs enter in ascending number.
    """

    def __init__(self, types: int, round_seconds: float) -> None:
        self.types = types
        self.half = round_seconds / 2
        self.shares: dict[Sharers, list[float]] = {}
        self.received: dict[Sharers, list[float]] = {}
        self.deficits: dict[Sharers, list[float]] = {}
        self.given = [0.0] * types
        self.divided_at = 0.0

    def enter(self, job: int, partners: Iterable[int] = ()) -> None:
        """Let a job take part, alone and with ``partners`` that are there already."""
        self._enter((job,), self.half)
        for other in partners:
            self._enter((min(job, other), max(job, other)), 0.0)

    def _enter(self, sharers: Sharers, received: float) -> None:
        self.received[sharers] = [received] * self.types
        self.deficits[sharers] = [0.0] * self.types

    def leave(self, job: int, *, packs: bool) -> None:
        """Forget a job and, where there are any, its pairs."""
        gone = [sharers for sharers in self.received if job in sharers] if packs else [(job,)]
        for sharers in gone:
            del self.received[sharers], self.deficits[sharers]

    def divide(self, division: Division, now: float) -> None:
        """Begin to give time by ``division``; what the last one left undone becomes deficits."""
        elapsed, none = now - self.divided_at, [0.0] * self.types
        for sharers, received in self.received.items():
            shares, deficits = self.shares.get(sharers, none), self.deficits[sharers]
            for place in range(self.types):
                deficits[place] += shares[place] * elapsed - (received[place] - self.half)
            self.received[sharers] = [self.half] * self.types
        self.given = [self.half * len(self.received)] * self.types
        self.divided_at = now
        self.shares = {sharers: list(map(float, shares)) for sharers, shares in division.items()}

    def receive(self, sharers: Sharers, place: int, seconds: float) -> None:
        """Count time on the type at ``place``."""
        if sharers in self.received:
            self.received[sharers][place] += seconds
            self.given[place] += seconds

    def ranked(self, place: int) -> list[tuple[float, float, float, Sharers]]:
        """All sharers with priority, deficit and share on the type at ``place``, the first first.

        Equals keep the order in which they came.
        """
        given, entries, none = self.given[place], [], [0.0] * self.types
        for sharers, received in self.received.items():
            priority = share = self.shares.get(sharers, none)[place]
            if share:
                had = received[place]
                priority = share / (had / given) if given and had > 0 else share * FIRST
            entries.append((priority, self.deficits[sharers][place], share, sharers))
        entries.sort(key=itemgetter(0, 1, 2), reverse=True)
        return entries

    def choose(
        self,
        order: Iterable[int],
        room: Sequence[int],
        wants: Sequence[int],
        runs: Callable[[Sharers, int], bool],
        *,
        fills: bool,
    ) -> list[tuple[Sharers, int]]:
        """Return who runs in the next round and the place of the type, best first, types in ``order``.

        ``room`` counts devices by type, ``wants`` those of each job. Those without a share take what is left
        where ``fills``.
        """
        chosen, busy = list[tuple[Sharers, int]](), set[int]()
        for place in order:
            left = room[place]
            for priority, _, _, sharers in self.ranked(place):
                if not left:
                    break
                if priority <= 0 and not fills:
                    break
                wanted = wants[sharers[0]]
                if wanted > left or not busy.isdisjoint(sharers) or not runs(sharers, place):
                    continue
                left -= wanted
                busy.update(sharers)
                chosen.append((sharers, place))
        return chosen
