"""A host link that several devices use: fair shares of its bandwidth, or one transfer at a time by tokens.

``fair`` is what a switch does: every device that has something to send in a direction gets an equal share of
the bandwidth while it has. ``turns`` is TMOF's rule (HPCA 2023): a device sends only while it holds the
direction's token, which it gives back after each tensor; who has waited longest is next. Each device's own
transfers follow one another in the order issued. A link that is not duplex has one bandwidth, and one token,
for both directions.

What is queued now says when each transfer ends, as long as nothing is added. The moments at which transfers
end are kept: one that is added behind others changes nothing before they have ended, so that the future is
played anew from there only.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from experiments.core.errors import BadInput
from experiments.memory.interface.machine import MemoryMachine

DISCIPLINES = ("fair", "turns")
NEVER = float("inf")
OUT, BACK = range(2)
NOBODY = -1


@dataclass(eq=False, slots=True)
class LinkTransfer:
    """``size`` bytes after ``latency`` seconds, not before ``ready`` nor before ``after`` has ended.

    ``beyond`` is when the slower part of the way, behind the host, has passed it. As foreseen with what was
    queued last: ``end`` when all is there; ``began`` and ``gone`` when it is on the link. ``queue`` and
    ``index``: its place.
    """

    device: int
    way: str
    latency: float
    size: float
    ready: float
    beyond: float = 0.0
    after: LinkTransfer | None = None
    end: float = NEVER
    began: float = NEVER
    gone: float = NEVER
    queue: int = NOBODY
    index: int = 0


@dataclass(slots=True)
class Moment:
    """The link at ``now``: of each queue the index of its first transfer and how far that one is.

    ``wait`` and ``left``: its seconds of latency and its bytes that are still to pass. ``since`` is when it
    could have been on the link, ``began`` when it was (``NEVER``: not yet). ``holder``: queues that have the
    tokens of the directions.
    """

    now: float
    first: list[int]
    wait: list[float]
    left: list[float]
    since: list[float]
    began: list[float]
    holder: list[int]

    def copy(self) -> Moment:
        lists = (self.first, self.wait, self.left, self.since, self.began, self.holder)
        return Moment(self.now, *(list(one) for one in lists))  # type: ignore[arg-type]

    def put_first(self, transfer: LinkTransfer) -> None:
        """``transfer`` is the first of its queue from now on."""
        queue = transfer.queue
        self.wait[queue], self.left[queue] = transfer.latency, transfer.size
        self.since[queue] = self.began[queue] = NEVER


class SharedLink:
    """Transfers of all devices.

    ``queues``: what each device sends, by way (one queue where not duplex). ``present`` is the last moment
    that is sure, ``future`` those at which transfers will end.
    """

    def __init__(self, machine: MemoryMachine, devices: int, discipline: str) -> None:
        if discipline not in DISCIPLINES:
            raise BadInput(f"{discipline!r} is no discipline of a link", "link", " or ".join(DISCIPLINES))
        self.rates = {"out": machine.out, "back": machine.back}
        self.duplex, self.turns = machine.duplex, discipline == "turns"
        count = devices * (2 if machine.duplex else 1)
        self.queues: list[list[LinkTransfer]] = [[] for _ in range(count)]
        self.lanes = [queue % 2 if machine.duplex else OUT for queue in range(count)]
        never = [NEVER] * count
        self.present = Moment(
            0.0, [0] * count, [0.0] * count, [0.0] * count, never, list(never), [NOBODY, NOBODY]
        )
        self.future: list[Moment] = []

    def send(self, transfer: LinkTransfer, now: float) -> list[LinkTransfer]:
        """Queue ``transfer`` at ``now``; all transfers whose ``end`` is another than was known before."""
        queue = self._queue(transfer)
        transfer.queue, transfer.index = queue, len(self.queues[queue])
        self.queues[queue].append(transfer)
        self._pass(now)
        if transfer.index > self.present.first[queue]:
            turn = bisect_left(self.future, transfer.index, key=lambda moment: moment.first[queue])
            begin = self.future[turn]
            del self.future[turn + 1 :]
        else:
            self._play(self.present, now)
            begin = self.present
            self.future.clear()
        begin.put_first(transfer)
        return self._foresee(begin.copy())

    def _queue(self, transfer: LinkTransfer) -> int:
        if not self.duplex:
            return transfer.device
        return 2 * transfer.device + (BACK if transfer.way == "back" else OUT)

    def _pass(self, now: float) -> None:
        """What was foreseen up to ``now`` has happened."""
        passed = bisect_right(self.future, now, key=lambda moment: moment.now)
        if passed:
            self.present = self.future[passed - 1]
            del self.future[:passed]

    def _foresee(self, moment: Moment) -> list[LinkTransfer]:
        """Play from ``moment`` to the end and note when each transfer ends; those for which that is news."""
        changed = []
        while ended := self._play(moment, NEVER):
            for transfer in ended:
                transfer.gone, before = moment.now, transfer.end
                transfer.end = max(moment.now, transfer.beyond)
                if transfer.end != before:
                    changed.append(transfer)
            self.future.append(moment.copy())
        return changed

    def _play(self, moment: Moment, until: float) -> list[LinkTransfer]:
        """Let time pass to ``until``, or to the next end of transfers, which are returned."""
        while moment.now < until:
            active, starts = self._active(moment)
            shares = self._shares(moment, active)
            changes = [
                moment.wait[queue] or (moment.left[queue] / share if share > 0 else NEVER)
                for queue, share in zip(active, shares, strict=True)
            ]
            step = min(until - moment.now, starts, *changes)
            if step == NEVER:
                return []
            moment.now = until if step == until - moment.now else moment.now + step
            ended = []
            for queue, share, change in zip(active, shares, changes, strict=True):
                # When a phase is over, what rounding would leave of it is nothing.
                if moment.wait[queue]:
                    moment.wait[queue] = 0.0 if step >= change else moment.wait[queue] - step
                else:
                    moment.left[queue] = 0.0 if step >= change else moment.left[queue] - step * share
                if not moment.wait[queue] and not moment.left[queue]:
                    ended.append(self._take_off(moment, queue))
            if ended:
                return ended
        return []

    def _active(self, moment: Moment) -> tuple[list[int], float]:
        """The queues whose first transfer moves now, of these the holders where there are tokens; and how
        long until the next one may begin.
        """
        ready, starts = [], NEVER
        for queue, transfers in enumerate(self.queues):
            if moment.first[queue] == len(transfers):
                continue
            left = self._earliest(moment, transfers[moment.first[queue]]) - moment.now
            if left <= 0:
                ready.append(queue)
                moment.since[queue] = min(moment.since[queue], moment.now)
            else:
                starts = min(starts, left)
        if self.turns:
            ready = self._holders(moment, ready)
        for queue in ready:
            if moment.began[queue] == NEVER:
                self.queues[queue][moment.first[queue]].began = moment.began[queue] = moment.now
        return ready, starts

    def _earliest(self, moment: Moment, transfer: LinkTransfer) -> float:
        """When it may begin, as far as what precedes it has ended; ``NEVER`` before that."""
        after = transfer.after
        if after is None:
            return transfer.ready
        return max(transfer.ready, after.end) if moment.first[after.queue] > after.index else NEVER

    def _holders(self, moment: Moment, ready: list[int]) -> list[int]:
        for queue in sorted(ready, key=lambda queue: (moment.since[queue], queue)):
            lane = self.lanes[queue]
            if moment.holder[lane] == NOBODY:
                moment.holder[lane] = queue
        return [queue for queue in moment.holder if queue != NOBODY]

    def _shares(self, moment: Moment, active: list[int]) -> list[float]:
        """Each one's part of the bandwidth: those that still wait out their latency need none."""
        sending = [self.lanes[queue] for queue in active if not moment.wait[queue]]
        return [
            self.rates[self.queues[queue][moment.first[queue]].way].bandwidth
            / max(1, sending.count(self.lanes[queue]))
            for queue in active
        ]

    def _take_off(self, moment: Moment, queue: int) -> LinkTransfer:
        """Its first transfer leaves the queue, the next one is its first."""
        transfers, first = self.queues[queue], moment.first[queue]
        moment.first[queue] += 1
        if moment.holder[self.lanes[queue]] == queue:
            moment.holder[self.lanes[queue]] = NOBODY
        if first + 1 < len(transfers):
            moment.put_first(transfers[first + 1])
        return transfers[first]
