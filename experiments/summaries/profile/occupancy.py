"""A device's time: compute, communication that no compute hides, copies that neither hides, and idle.

The four add up to the span from the first kernel's start to the last one's end.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from experiments.summaries.profile.intervals import Union
from experiments.workloads.timeline import COMMUNICATION, COMPUTE, COPY, Timeline, Work

#: More steps than this are not drawn one by one.
MOST_STEPS = 200


@dataclass(frozen=True)
class Occupancy:
    """Seconds of a device, by what it did.

    ``communication`` and ``copies`` are exposed; their ``_total`` is all of them, and ``overlapped``
    communication next to compute.
    """

    span: float
    compute: float
    communication: float
    copies: float
    idle: float
    communication_total: float
    copies_total: float
    overlapped: float


@dataclass(frozen=True)
class Busy:
    """When a device computed, communicated and copied."""

    compute: Union
    communication: Union
    copies: Union

    @classmethod
    def of(cls, work: Work, device: int) -> Busy:
        rows = [(work.device == device) & (work.kind == kind) for kind in (COMPUTE, COMMUNICATION, COPY)]
        return cls(*(Union.of(work.start[row], work.end[row]) for row in rows))

    def within(self, start: float, end: float) -> Busy:
        return Busy(*(one.within(start, end) for one in (self.compute, self.communication, self.copies)))

    def occupancy(self, span: float) -> Occupancy:
        """Shares of ``span`` seconds."""
        either = self.compute | self.communication
        all_ = (either | self.copies).seconds
        return Occupancy(
            span,
            self.compute.seconds,
            either.seconds - self.compute.seconds,
            all_ - either.seconds,
            span - all_,
            self.communication.seconds,
            self.copies.seconds,
            self.compute.overlap(self.communication),
        )


def devices_of(timeline: Timeline) -> list[dict[str, Any]]:
    """A row for each device that worked: its number, name, occupancy, and the same by profiler step."""
    work = timeline.work
    return [_device(timeline, device) for device in np.unique(work.device).tolist()]


def _device(timeline: Timeline, device: int) -> dict[str, Any]:
    work = timeline.work
    mine = work.device == device
    first, last = float(work.start[mine].min()), float(work.end[mine].max())
    busy = Busy.of(work, device)
    name = timeline.devices.get(device, f"device {device}")
    whole = {"device": device, "name": name, "first": first, **asdict(busy.occupancy(last - first))}
    return {**whole, "steps": _steps(timeline, busy, first, last)}


def _steps(timeline: Timeline, busy: Busy, first: float, last: float) -> list[dict[str, Any]]:
    """Each ``ProfilerStep``, from its start to the next one's: a device works on behind the host."""
    calls = timeline.calls
    found = [place for place, name in enumerate(timeline.names) if name.startswith("ProfilerStep#")]
    rows = np.flatnonzero(np.isin(calls.name, found))[:MOST_STEPS]
    starts = [float(calls.start[row]) for row in rows]
    ends = [*starts, last][1:]
    parts = []
    for row, start, end in zip(rows.tolist(), starts, ends, strict=True):
        begin, until = max(start, first), min(end, last)
        if begin < until:
            occupied = busy.within(begin, until).occupancy(until - begin)
            parts.append({"step": timeline.names[calls.name[row]].partition("#")[2], **asdict(occupied)})
    return parts


def host_of(timeline: Timeline) -> dict[str, Any]:
    """Without a device: the span of all calls, and the part of it in which an operator ran."""
    calls = timeline.calls
    if not len(calls):
        return {}
    ops = calls.is_op == 1
    span = float(calls.end.max() - calls.start.min())
    busy = Union.of(calls.start[ops], calls.end[ops]).seconds
    return {"span": span, "operators": busy, "between": span - busy}
