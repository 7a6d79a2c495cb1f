"""When each channel, the host's processor and compute were busy or stalled, as curves of 0 and 1."""

from __future__ import annotations

import numpy as np

from experiments.core.spec import Series
from experiments.memory.simulator.report import MemorySimulation, Spans, union
from experiments.workloads.step import Floats

#: Spans of one lane that are kept; where there are more, the narrowest gaps between them are closed.
MOST_SPANS = 1000


def lanes(simulation: MemorySimulation) -> dict[str, Series]:
    """``channel.NAME`` is 1 while that channel is busy (``cpu``: ops on the host; ``stall``: no compute)."""
    spans = {**simulation.transfers, "cpu": simulation.host_busy, "stall": simulation.idle}
    return {f"channel.{name}": _busy(busy, simulation.step_time) for name, busy in spans.items() if busy}


def _busy(spans: Spans, end: float) -> Series:
    rows = close_gaps(union([(start, stop) for start, stop in spans if stop > start]), MOST_SPANS)
    x = [0.0, *rows.ravel().tolist(), end]
    return Series("busy", tuple(x), (0.0, *[1.0, 0.0] * len(rows), 0.0))


def close_gaps(rows: Floats, most: int) -> Floats:
    """Disjoint ascending spans, at most ``most`` of them: the narrowest gaps are closed first."""
    if len(rows) <= most:
        return rows
    gaps = rows[1:, 0] - rows[:-1, 1]
    kept = np.sort(np.argsort(-gaps, kind="stable")[: most - 1])
    starts = np.concatenate((rows[:1, 0], rows[kept + 1, 0]))
    ends = np.concatenate((rows[kept, 1], rows[-1:, 1]))
    return np.stack((starts, ends), axis=1)
