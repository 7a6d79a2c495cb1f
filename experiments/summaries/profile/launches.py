"""Statistics of launches: how long the call took, how long the work waited, and what was too short to pay."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.summaries.drawing import histogram
from experiments.summaries.profile.idle import launch_of
from experiments.summaries.profile.intervals import TIE
from experiments.workloads.timeline import Timeline

#: Runtime calls that launch one piece of work; a graph launches many, whose delays are no delays.
LAUNCHING = ("LaunchKernel", "MemcpyAsync", "MemsetAsync")
#: As Holistic Trace Analysis has them (seconds).
LONG_CALL, LONG_DELAY = 50e-6, 100e-6


def launches_of(timeline: Timeline) -> dict[str, Any]:
    """Empty where nothing tells which call launched what."""
    names = [place for place, name in enumerate(timeline.names) if any(word in name for word in LAUNCHING)]
    place = launch_of(timeline)
    known = np.flatnonzero(place >= 0)
    known = known[np.isin(timeline.launches.name[place[known]], names)]
    if not len(known):
        return {}
    launch, work = place[known], timeline.work
    call = timeline.launches.end[launch] - timeline.launches.start[launch]
    delay = np.maximum(0.0, work.start[known] - timeline.launches.end[launch])
    seconds = work.end[known] - work.start[known]
    return {
        "count": len(known),
        "call_seconds": float(call.sum()),
        "work_seconds": float(seconds.sum()),
        "delay_seconds": float(delay.sum()),
        "delay_median": float(np.median(delay)),
        "short": int((seconds < call - TIE).sum()),
        "long_calls": int((call > LONG_CALL + TIE).sum()),
        "long_delays": int((delay > LONG_DELAY + TIE).sum()),
        "plot": histogram("From launch to start", "delay (s)", delay, "launches", log=True),
    }
