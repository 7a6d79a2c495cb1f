"""A host link that several devices use: fair shares of its bandwidth, or one transfer at a time by tokens.

``fair`` is what a switch does: every device that has something to send in a direction gets an equal share of
the bandwidth while it has. ``turns`` is TMOF's rule (HPCA 2023): a device sends only while it holds the
direction's token, which it gives back after each tensor; who has waited longest is next. Each device's own
transfers follow one another in the order issued. A link that is not duplex has one bandwidth, and one token,
for both directions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.core.errors import BadInput
from experiments.memory.interface.machine import MemoryMachine

DISCIPLINES = ("fair", "turns")
NEVER = float("inf")


@dataclass(eq=False, slots=True)
class LinkTransfer:
    """``left`` bytes after ``wait`` seconds of latency, not before ``ready`` nor before ``after`` has ended.

    ``beyond`` is when the slower part of the way, behind the host, has passed it; ``end`` when all is there,
    as known so far; ``began`` and ``gone`` when it was on the link, ``since`` when it could have been.
    """

    device: int
    way: str
    wait: float
    left: float
    ready: float
    beyond: float = 0.0
    after: LinkTransfer | None = None
    end: float = NEVER
    began: float = -1.0
    gone: float = NEVER
    since: float = -1.0
    passed: bool = False

    def earliest(self) -> float:
        """When it may begin, as far as what precedes it has ended; ``NEVER`` before that."""
        if self.after is None:
            return self.ready
        return max(self.ready, self.after.end) if self.after.passed else NEVER

    def state(self) -> tuple[float, float, float, float, float, float, bool]:
        return self.wait, self.left, self.end, self.began, self.gone, self.since, self.passed

    def restore(self, state: tuple[float, float, float, float, float, float, bool]) -> None:
        self.wait, self.left, self.end, self.began, self.gone, self.since, self.passed = state


class SharedLink:
    """Transfers of all devices. ``queues``: what each has to send, by way (one queue where not duplex)."""

    def __init__(self, machine: MemoryMachine, devices: int, discipline: str) -> None:
        if discipline not in DISCIPLINES:
            raise BadInput(f"{discipline!r} is no discipline of a link", "link", " or ".join(DISCIPLINES))
        self.rates = {"out": machine.out, "back": machine.back}
        self.duplex, self.turns = machine.duplex, discipline == "turns"
        self.queues: list[list[LinkTransfer]] = [[] for _ in range(2 * devices)]
        self.holder: dict[str, LinkTransfer | None] = {"out": None, "back": None}
        self.now = 0.0

    def send(self, transfer: LinkTransfer, now: float) -> list[LinkTransfer]:
        """Queue ``transfer`` at ``now``; all transfers whose ``end`` is another than was known before."""
        self.play(now)
        self._queue(transfer).append(transfer)
        return self._foresee()

    def play(self, until: float) -> None:
        """Let time pass to ``until``."""
        while self.now < until:
            active = self._active()
            shares = self._shares(active)
            changes = [_time_to_change(*pair) for pair in zip(active, shares, strict=True)]
            step = min([until - self.now, *changes, *self._starts()])
            if step == NEVER:
                return
            self.now = until if step == until - self.now else self.now + step
            for transfer, share, change in zip(active, shares, changes, strict=True):
                _move(transfer, step, share, step >= change)
                if not transfer.wait and not transfer.left:
                    self._finish(transfer)

    def _queue(self, transfer: LinkTransfer) -> list[LinkTransfer]:
        way = 1 if transfer.way == "back" and self.duplex else 0
        return self.queues[2 * transfer.device + way]

    def _lane(self, transfer: LinkTransfer) -> str:
        """The direction whose bandwidth (and token) ``transfer`` uses."""
        return transfer.way if self.duplex else "out"

    def _active(self) -> list[LinkTransfer]:
        """What moves now: the first of each queue that may, of these the holders where there are tokens."""
        ready = []
        for queue in self.queues:
            if queue and queue[0].earliest() <= self.now:
                ready.append(queue[0])
                if queue[0].since < 0:
                    queue[0].since = self.now
        if self.turns:
            ready = self._holders(ready)
        for transfer in ready:
            if transfer.began < 0:
                transfer.began = self.now
        return ready

    def _holders(self, ready: Sequence[LinkTransfer]) -> list[LinkTransfer]:
        for transfer in sorted(ready, key=lambda transfer: (transfer.since, transfer.device)):
            lane = self._lane(transfer)
            if self.holder[lane] is None:
                self.holder[lane] = transfer
        return [transfer for transfer in self.holder.values() if transfer is not None]

    def _shares(self, active: Sequence[LinkTransfer]) -> list[float]:
        """Each one's part of the bandwidth: those that still wait out their latency need none."""
        lanes = [self._lane(transfer) for transfer in active]
        sending = [lane for lane, transfer in zip(lanes, active, strict=True) if not transfer.wait]
        return [
            self.rates[transfer.way].bandwidth / max(1, sending.count(lane))
            for lane, transfer in zip(lanes, active, strict=True)
        ]

    def _starts(self) -> list[float]:
        """How long until the first of each queue that may not begin yet may."""
        first = [queue[0].earliest() - self.now for queue in self.queues if queue]
        return [time for time in first if time > 0]

    def _finish(self, transfer: LinkTransfer) -> None:
        transfer.gone, transfer.passed = self.now, True
        transfer.end = max(self.now, transfer.beyond)
        self._queue(transfer).remove(transfer)
        lane = self._lane(transfer)
        if self.holder[lane] is transfer:
            self.holder[lane] = None

    def _foresee(self) -> list[LinkTransfer]:
        """Play on to the end with what is queued now, note when each ends, and go back."""
        pending = [transfer for queue in self.queues for transfer in queue]
        before = [transfer.state() for transfer in pending]
        queues, holder, now = [list(queue) for queue in self.queues], dict(self.holder), self.now
        self.play(NEVER)
        ends = [transfer.end if transfer.passed else NEVER for transfer in pending]
        self.queues, self.holder, self.now = queues, holder, now
        changed = []
        for transfer, state, end in zip(pending, before, ends, strict=True):
            if end != state[2]:
                changed.append(transfer)
            transfer.restore(state)
            transfer.end = end
        return changed


def _time_to_change(transfer: LinkTransfer, share: float) -> float:
    """How long until its latency is over, or its bytes are, at ``share`` bytes/s."""
    if transfer.wait:
        return transfer.wait
    return transfer.left / share if share > 0 else NEVER


def _move(transfer: LinkTransfer, step: float, share: float, over: bool) -> None:
    """``step`` seconds pass; when a phase is ``over``, what rounding would leave of it is nothing."""
    if transfer.wait:
        transfer.wait = 0.0 if over else transfer.wait - step
    else:
        transfer.left = 0.0 if over else transfer.left - step * share
