"""The levels of a series of figures: a piecewise constant function, found by asv's ``step_detect``.

It fits with a penalty on each piece (Potts functional, absolute deviations), so that noise is no step and one
odd night among many is none, however large the fraction; no threshold is chosen by us.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

#: A measured series that is shorter cannot tell a step from noise: of five nights with 2 % of noise every
#: fourth series would seem to have a step, of eight one in a hundred. Simulated figures have no noise.
FEWEST_MEASURED = 8
#: A step of a measured figure that is smaller, as a share, is not worth anybody's morning.
LEAST_MEASURED = 0.01


@dataclass(frozen=True)
class Segment:
    """Points ``first`` up to but without ``end`` lie around ``level`` (their median)."""

    first: int
    end: int
    level: float


@functools.lru_cache(maxsize=4096)
def segments(values: tuple[float, ...]) -> tuple[Segment, ...]:
    """The pieces of a series, from the oldest; one where nothing stepped."""
    if len(set(values)) < 2:
        return (Segment(0, len(values), values[0]),) if values else ()
    # Costs half a second, and only the pages of nights need it. The package has no types.
    from asv.step_detect import detect_steps  # type: ignore[import-untyped]

    found = detect_steps(list(values))
    return tuple(Segment(left, right, level) for left, right, level, _, _ in found)


def is_worth_telling(before: float, after: float) -> bool:
    """Whether a step between the two levels of a measured figure is."""
    return after != before and abs(after - before) >= LEAST_MEASURED * abs(before)


def shows_step(before: float, after: float, repeats: Sequence[float]) -> bool:
    """Whether the median of the repeats is nearer to the new level than to the old."""
    found = median(repeats)
    return abs(found - after) < abs(found - before)
