"""First in, first out as shares of time: each job a whole device type's devices to its end, in order.

Gavel's release has two forms. The one that keeps its choices draws a type for each job; as released it draws
and then takes the last type that has any device free, whatever was drawn and though the job may not fit
there. Types thus get more jobs than they hold, which take turns: ``mended`` takes what was drawn.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np

from experiments.cluster.interface.division import Contest, Divider, Division, Sharers
from experiments.workloads.step import Floats


class QueueShares(Divider):
    """Keeps what it chose for a job until the job ends."""

    shuffles = True
    fills = False

    def __init__(self, seed: int, *, mended: bool) -> None:
        self.rng = random.Random(seed)
        self.mended = mended
        self.chosen: dict[int, int] = {}
        self.sizes: dict[int, int] = {}
        self.facts: Mapping[str, object] = {"mended": mended}

    def divide(self, contest: Contest) -> Division:
        self.sizes |= dict(zip(contest.jobs, contest.gpus.tolist(), strict=True))
        queue = [job for job in contest.jobs if job not in self.chosen]
        room = self._replace_ended(queue, contest)
        self._choose(queue, room, contest)
        division = no_shares(contest)
        for job, place in self.chosen.items():
            division[job,][place] = 1.0
        return division

    def _replace_ended(self, queue: list[int], contest: Contest) -> list[int]:
        """Give the place of each job that ended to the head of the queue, if it fits; what is left."""
        room: list[int] = contest.counts.tolist()
        for job in sorted(self.chosen):
            place = self.chosen[job]
            if job in contest.row:
                room[place] -= self.sizes[job]
                continue
            head = contest.row[queue[0]] if queue else -1
            if queue and contest.gpus[head] <= room[place] and contest.runs[head, place]:
                self.chosen[queue[0]] = place
                room[place] -= int(contest.gpus[head])
                del queue[0]
            del self.chosen[job], self.sizes[job]
        return room

    def _choose(self, queue: list[int], room: list[int], contest: Contest) -> None:
        """Draw a type for each job in order, until one fits nowhere."""
        open_types = [place for place, left in enumerate(room) if left > 0]
        for job in queue:
            row = contest.row[job]
            size = int(contest.gpus[row])
            fits = [number for number, place in enumerate(open_types) if room[place] >= size]
            if not fits:
                return
            drawn = fits[self.rng.randrange(len(fits))]
            place = open_types[drawn if self.mended else -1]
            if not contest.runs[row, place]:
                continue
            self.chosen[job] = place
            room[place] -= size
            if room[place] == 0:
                del open_types[drawn]


class FastestQueueShares(Divider):
    """Gives each job the type on which it is fastest of those with room, anew each time.

    What does not fit may share devices with a job where that is worth more than ``threshold`` of them.
    """

    shuffles = False
    fills = False

    def __init__(self, *, packs: bool, threshold: float) -> None:
        self.packs, self.threshold = packs, threshold

    def divide(self, contest: Contest) -> Division:
        room = contest.counts.tolist()
        chosen, queue = dict[int, int](), list(contest.jobs)
        while queue and any(room):
            row = contest.row[queue[0]]
            fits = [place for place, left in enumerate(room) if left >= contest.gpus[row]]
            if not fits:
                break
            place = max(fits, key=lambda place: (contest.speed[row, place], -place))
            job = queue.pop(0)
            if contest.runs[row, place]:
                chosen[job] = place
                room[place] -= int(contest.gpus[row])
        division = no_shares(contest)
        pairs = self._pack(queue, chosen, contest) if self.packs else {}
        for job, place in chosen.items():
            division[job,][place] = 1.0
        for sharers, place in pairs.items():
            division[sharers][place] = 1.0
        return division

    def _pack(self, queue: list[int], chosen: dict[int, int], contest: Contest) -> dict[tuple[int, int], int]:
        """Let jobs of the queue in order share the devices of the job with which they do best."""
        pairs = dict[tuple[int, int], int]()
        for job in queue:
            best, partner = self.threshold, -1
            for other, place in chosen.items():
                worth = _worth(contest, min(job, other), max(job, other), place)
                if worth > best:
                    best, partner = worth, other
            if partner < 0:
                break
            pairs[min(job, partner), max(job, partner)] = chosen.pop(partner)
        return pairs


def no_shares(contest: Contest) -> dict[Sharers, Floats]:
    """Nothing for anybody, to be filled in."""
    everybody: list[Sharers] = [(job,) for job in contest.jobs] + list(contest.pairs)
    return {sharers: np.zeros(len(contest.types)) for sharers in everybody}


def _worth(contest: Contest, job: int, other: int, place: int) -> float:
    """The speeds of two jobs that share devices, each over its speed alone, added up."""
    speeds = contest.pairs.get((job, other))
    if speeds is None:
        return 0.0
    alone = [contest.speed[contest.row[each], place] for each in (job, other)]
    return float(sum(pair[place] / one for pair, one in zip(speeds, alone, strict=True) if one > 0))
