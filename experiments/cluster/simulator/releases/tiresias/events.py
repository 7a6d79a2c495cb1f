"""Events of releases: submissions and ends, those within one slot of a decision put together."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class SlotEvent:
    """What happens at one time: jobs that are submitted, and jobs that end."""

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)


class SlotEvents:
    """Events by time, the first one first."""

    def __init__(self, submissions: Iterable[tuple[float, int]]) -> None:
        self._times: list[float] = []
        self._events: dict[float, SlotEvent] = {}
        for time, job in submissions:
            self._at(time).starts.append(job)

    def __bool__(self) -> bool:
        return bool(self._times)

    @property
    def next_time(self) -> float:
        return self._times[0] if self._times else float("inf")

    @property
    def next_ends(self) -> tuple[int, ...]:
        """The jobs that end with the first event."""
        return tuple(self._events[self._times[0]].ends) if self._times else ()

    def pop(self) -> SlotEvent:
        """The first event, which is taken out."""
        return self._events.pop(self._times.pop(0))

    def _at(self, time: float) -> SlotEvent:
        if time not in self._events:
            insort(self._times, time)
            self._events[time] = SlotEvent()
        return self._events[time]

    def look_at(self, time: float) -> None:
        """Let something be decided at ``time``, whatever happens then."""
        self._at(time)

    def expect_end(self, job: int, time: float) -> None:
        """Let ``job`` end at ``time``."""
        ends = self._at(time).ends
        if job not in ends:
            ends.append(job)

    def forget_end(self, job: int, time: float) -> None:
        """Take back that ``job`` ends at ``time``, if that still stands."""
        event = self._events.get(time)
        if event is None:
            return
        if job in event.ends:
            event.ends.remove(job)
        if not event.starts and not event.ends:
            del self._events[time]
            self._times.remove(time)

    def merge(self, now: float, slot: float) -> None:
        """Put what happens within ``slot`` after ``now`` together at its end, unless it is all there is."""
        if len(self._times) < 2 or self._times[0] - now > slot:
            return
        merged = SlotEvent()
        while self._times and self._times[0] - now <= slot:
            event = self.pop()
            merged.starts += event.starts
            merged.ends += event.ends
        insort(self._times, now + slot)
        self._events[now + slot] = merged
