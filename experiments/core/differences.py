"""Ratios of measured times: a figure only where its interval leaves out 1, otherwise these words."""

from __future__ import annotations

from collections.abc import Mapping

#: What stands in place of a ratio whose interval holds 1.
NO_DIFFERENCE = "no difference seen"
#: The ratio of two things that are equal.
EQUAL = 1.0
#: Measured ratios, each with the metrics that are the ends of its 95 % interval.
INTERVALS = {
    "speedup": ("speedup_low", "speedup_high"),
    "speedup_over_library": ("speedup_over_library_low", "speedup_over_library_high"),
}
#: The ends, which are part of a figure and none of their own.
ENDS = frozenset(end for ends in INTERVALS.values() for end in ends)


def holds_no_difference(low: float, high: float) -> bool:
    """Whether an interval of a ratio holds 1."""
    return low <= EQUAL <= high


def interval_of(name: str, values: Mapping[str, float]) -> tuple[float, float] | None:
    """Return the interval of the figure ``name`` among a run's ``values``; ``None`` where it has none."""
    low, high = (values.get(end) for end in INTERVALS.get(name, ("", "")))
    return None if low is None or high is None else (low, high)


def is_unseen(name: str, values: Mapping[str, float]) -> bool:
    """Whether the figure ``name`` of a run is a ratio whose interval holds 1."""
    interval = interval_of(name, values)
    return interval is not None and holds_no_difference(*interval)
