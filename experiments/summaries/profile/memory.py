"""The allocator's count over time, for each device that it was recorded on."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.summaries.drawing import plot, points, sample
from experiments.workloads.timeline import MemoryLog, Timeline


def memory_of(timeline: Timeline) -> list[dict[str, Any]]:
    """A plot for each device, the peak always among its points."""
    return [_plot(timeline, device) for device in np.unique(timeline.memory.device).tolist()]


def peaks_of(timeline: Timeline) -> list[dict[str, Any]]:
    """The most bytes allocated and reserved, for each device."""
    log = timeline.memory
    found = []
    for device in np.unique(log.device).tolist():
        mine = log.device == device
        allocated, reserved = int(log.allocated[mine].max()), int(log.reserved[mine].max())
        found.append({"device": device, "allocated": allocated, "reserved": reserved})
    return found


def _plot(timeline: Timeline, device: int) -> dict[str, Any]:
    log = timeline.memory
    mine = np.flatnonzero(log.device == device)
    shown, total = sample(len(mine))
    chosen = mine[np.unique(np.append(shown, np.argmax(log.allocated[mine])))]
    where = "the host" if device < 0 else timeline.devices.get(device, f"device {device}")
    rows = [_line(log, chosen, "allocated")]
    if log.reserved[mine].any():
        rows.append(_line(log, chosen, "reserved"))
    return plot(f"Memory on {where}", "line", "time (s)", "memory (bytes)", rows, sampled=total)


def _line(log: MemoryLog, chosen: Any, what: str) -> dict[str, Any]:
    return {**points(what, log.time[chosen], getattr(log, what)[chosen]), "shape": "hv"}
