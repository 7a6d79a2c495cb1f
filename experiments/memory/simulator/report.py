"""What a simulated step reports, and the curves drawn from it."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from experiments.core.spec import Series
from experiments.memory.interface.machine import PlanEstimate
from experiments.workloads.step import KINDS, Floats

Spans = list[tuple[float, float]]
#: Kinds of the device timeline: those of tensors, scratch of running ops, and encoded tensors.
TIMELINE = (*KINDS, "workspace")
#: Why compute stalls: an input is still coming, an allocation waits for a copy to leave, a policy asked
#: for synchronization, the last copies of the step are in flight, or a missing block is being fetched
#: (paging). A step whose ops run on the host as well may list ``host``: what is waited for is still being
#: computed there.
CAUSES = ("transfer", "space", "synchronization", "drain", "fault")


@dataclass(frozen=True)
class Fullest:
    """The first moment at which the device held its peak: bytes of each tensor, and ``scratch`` bytes of ops.

    ``unused`` are bytes of pages there in which no tensor lies that is needed.
    """

    time: float
    op: int
    held: dict[int, int]
    scratch: int
    unused: int = 0


@dataclass(frozen=True)
class MemorySimulation:
    """One simulated step. Times are seconds, sizes bytes.

    ``stalls`` by cause, ``moved`` bytes by channel (``out``, ``back``, ``write``, ``read``), ``transfers``
    the spans in which each channel was busy, ``idle`` the spans in which compute stalled, ``log`` of
    device bytes as (time, index in ``TIMELINE``, change). ``late`` is how long compute stalled until each
    tensor was there; ``host_busy`` the spans in which the host's processor ran ops; ``peaks`` the most bytes
    on each tier; ``pool_bytes`` how far an allocator reached over the device and ``wasted_bytes`` the most
    that were free there outside the largest hole (no pool: ``None``). ``first`` is the first of several steps
    in a row, of which this is the last.
    """

    peak_bytes: int
    host_peak: int
    step_time: float
    ideal_time: float
    recompute_time: float
    recompute_flops: float
    codec_time: float
    stalls: dict[str, float]
    moved_bytes: dict[str, float]
    transfers: dict[str, Spans]
    idle: Spans
    log: list[tuple[float, int, int]]
    page_faults: int = 0
    late: dict[int, float] = field(default_factory=dict)
    host_busy: Spans = field(default_factory=list)
    peaks: dict[str, int] = field(default_factory=dict)
    pool_bytes: int | None = None
    wasted_bytes: int | None = None
    first: MemorySimulation | None = None

    @property
    def stall_time(self) -> float:
        return sum(self.stalls.values())

    @functools.cached_property
    def overlap_time(self) -> float:
        """Time in which some channel is busy while compute runs."""
        busy = union([span for spans in self.transfers.values() for span in spans])
        return max(0.0, length(busy) - length(intersection(busy, union(self.idle))))

    @property
    def execution_time(self) -> float:
        """Time in which compute runs and no channel is busy; stalls and overlap are the rest of the step."""
        return max(0.0, self.step_time - self.stall_time - self.overlap_time)

    @property
    def host_time(self) -> float:
        """Time in which ops run on the host's processor."""
        return length(union(self.host_busy))

    @property
    def average_bytes(self) -> float:
        """Device bytes averaged over the step's time."""
        if self.step_time == 0:
            return float(self.peak_bytes)
        times = np.array([time for time, _, _ in self.log] + [self.step_time])
        heights = np.cumsum([change for _, _, change in self.log])
        return float((heights * np.diff(times)).sum()) / self.step_time

    @property
    def estimate(self) -> PlanEstimate:
        return PlanEstimate(True, self.peak_bytes, self.step_time, stalls=self.stalls, late=self.late)


def clip(time: float, spans: Spans) -> Spans:
    """What of ``spans`` lies before ``time``."""
    return [(start, min(end, time)) for start, end in spans if start < time or end <= time]


def union(spans: Spans) -> npt.NDArray[np.float64]:
    """The union of ``spans`` as rows (start, end), disjoint and ascending."""
    rows = np.array(spans, np.float64).reshape(-1, 2)
    if not len(rows):
        return rows
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    ends = np.maximum.accumulate(rows[:, 1])
    begins = np.append(True, rows[1:, 0] > ends[:-1])
    return np.stack((rows[begins, 0], ends[np.append(begins[1:], True)]), axis=1)


def length(spans: npt.NDArray[np.float64]) -> float:
    return float((spans[:, 1] - spans[:, 0]).sum())


def intersection(first: npt.NDArray[np.float64], second: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The intersection of two unions as ``union`` gives them."""
    low = np.searchsorted(second[:, 1], first[:, 0], side="right")
    met = np.maximum(np.searchsorted(second[:, 0], first[:, 1], side="left") - low, 0)
    mine = np.repeat(np.arange(len(first)), met)
    other = np.repeat(low - np.cumsum(met) + met, met) + np.arange(len(mine))
    starts = np.maximum(first[mine, 0], second[other, 0])
    return np.stack((starts, np.minimum(first[mine, 1], second[other, 1])), axis=1)


def curves(simulation: MemorySimulation, capacity: int) -> dict[str, Series]:
    """Device bytes over time: the whole, each kind that occurs, and the capacity.

    An instant at which several things happen gives its last value, and its highest where that is more.
    """
    times = np.array([time for time, _, _ in simulation.log])
    kinds = np.array([kind for _, kind, _ in simulation.log], np.int64)
    changes = np.array([change for _, _, change in simulation.log], np.int64)
    shown = _rows_to_draw(times, np.cumsum(changes))
    series = {"device_bytes": _curve(times, changes, shown)}
    for kind in np.unique(kinds).tolist():
        series[f"device_bytes.{TIMELINE[kind]}"] = _curve(times, np.where(kinds == kind, changes, 0), shown)
    series["capacity"] = Series("bytes", (0.0, simulation.step_time), (float(capacity), float(capacity)))
    return series


def _rows_to_draw(times: Floats, heights: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Rows to draw: the last of each instant, and the highest where it tops the heights before and after."""
    if not len(times):
        return np.zeros(0, np.int64)
    starts = np.nonzero(np.append(True, times[1:] != times[:-1]))[0]
    ends = np.append(starts[1:], len(times)) - 1
    instant = np.repeat(np.arange(len(starts)), ends - starts + 1)
    top = heights == np.maximum.reduceat(heights, starts)[instant]
    highest = np.nonzero(top)[0][np.unique(instant[top], return_index=True)[1]]
    around = np.maximum(heights[ends], np.append(0, heights[ends[:-1]]))
    return np.unique(np.concatenate((highest[heights[highest] > around], ends)))


def _curve(times: Floats, changes: npt.NDArray[np.int64], shown: npt.NDArray[np.int64]) -> Series:
    heights = np.cumsum(changes)[shown].astype(float)
    return Series("bytes", tuple(times[shown].tolist()), tuple(heights.tolist()))
