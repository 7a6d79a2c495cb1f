"""Why a stream stood idle between two kernels, as Holistic Trace Analysis has it.

- host wait: the kernel was launched only after the one before had ended
- kernel wait: else, and the gap is shorter than launches of back-to-back kernels take
- other: else; it waited for an event of another stream, for instance
"""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.summaries.profile.intervals import TIE
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats
from experiments.workloads.timeline import Timeline

#: Gaps below this are the price of launching one kernel after another (seconds).
KERNEL_DELAY = 30e-6
CAUSES = ("host wait", "kernel wait", "other")


def idle_of(timeline: Timeline) -> list[dict[str, Any]]:
    """A row for each stream of each device: seconds idle by cause, and seconds and number of its kernels."""
    work, launched = timeline.work, launch_times(timeline)
    keys = np.unique(np.stack([work.device, work.stream], axis=1), axis=0) if len(work) else np.empty((0, 2))
    return [_stream(timeline, int(device), int(stream), launched) for device, stream in keys.tolist()]


def launch_times(timeline: Timeline) -> Floats:
    """When the host asked for each piece of work; NaN where that is not told."""
    place = launch_of(timeline)
    times: Floats = np.append(timeline.launches.start, np.nan)[place]
    return times


def launch_of(timeline: Timeline) -> Ints:
    """For each piece of work the place of its launch; -1: none."""
    asked, work = timeline.launches.correlation, timeline.work.correlation
    if not len(asked):
        return np.full(len(work), -1, np.int64)
    order = np.argsort(asked, kind="stable")
    place = np.clip(np.searchsorted(asked[order], work), 0, len(asked) - 1)
    found: Ints = np.where((asked[order][place] == work) & (work >= 0), order[place], -1)
    return found


def _stream(timeline: Timeline, device: int, stream: int, launched: Floats) -> dict[str, Any]:
    work = timeline.work
    mine = np.flatnonzero((work.device == device) & (work.stream == stream))
    before, gap = work.end[mine[:-1]], work.start[mine[1:]] - work.end[mine[:-1]]
    waits_for_host = launched[mine[1:]] > before + TIE
    is_brief = ~waits_for_host & (gap < KERNEL_DELAY - TIE)
    chosen = (waits_for_host, is_brief, ~waits_for_host & ~is_brief)
    seconds = [max(0.0, float(gap[rows].sum())) for rows in chosen]
    busy = float((work.end[mine] - work.start[mine]).sum())
    row = {"device": device, "stream": stream, "kernels": len(mine), "busy": busy}
    return {**row, **dict(zip(CAUSES, seconds, strict=True))}
