"""G10's benefit of moving a tensor away during a gap: the area above the memory line that comes free."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from experiments.memory.planning.g10.gaps import Gaps
from experiments.memory.planning.g10.link_time import BACK, OUT, BookedLane, LinkTime
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats


def benefits(
    gaps: Gaps, over: npt.NDArray[np.bool_], lengths: Floats, links: LinkTime, odd: bool, host: bool = False
) -> Floats:
    """Bytes times microseconds of ops during which memory is ``over`` the line and the tensor would be away.

    An ordinary gap counts from when half the tensor has left to when half must be on its way back, on
    storage's lanes as booked so far, or on the ``host``'s where that is longer. All gaps at once, with prefix
    sums over ops.
    """
    area = np.concatenate(([0.0], np.cumsum(np.where(over, lengths, 0.0))))
    ordinary = _away(gaps, area, links.lanes(host=False))
    if host:
        ordinary = np.maximum(ordinary, _away(gaps, area, links.lanes(host=True)))
    looped = area[-1] - area[gaps.start] + (_odd_area(over, lengths) if odd else area)[gaps.end]
    microseconds: Floats = np.where(gaps.looped, looped, ordinary)
    return gaps.bytes * microseconds


def _away(gaps: Gaps, area: Floats, lanes: tuple[BookedLane, ...]) -> Floats:
    first, last = _half_out(gaps, lanes[OUT]), _half_back(gaps, lanes[BACK])
    return np.where(last > first, area[last] - area[first], 0.0)


def _half_out(gaps: Gaps, lane: BookedLane) -> Ints:
    passed = np.concatenate(([0.0], np.cumsum(lane.free)))
    slots: Ints = np.searchsorted(passed[1:], passed[gaps.start] + gaps.bytes / 2)
    return np.minimum(slots, len(passed) - 2)


def _half_back(gaps: Gaps, lane: BookedLane) -> Ints:
    passed = np.concatenate(([0.0], np.cumsum(lane.free)))
    return np.maximum(np.searchsorted(passed, passed[gaps.end] - gaps.bytes / 2, side="right") - 1, 0)


def _odd_area(over: npt.NDArray[np.bool_], lengths: Floats) -> Floats:
    """The area from the step's start as the release counts it for looped gaps, off by one: op ``m`` counts
    with the length of op ``m - 1``, and op 0 with minus the whole step.
    """
    shifted = np.where(over, np.concatenate(([-lengths.sum()], lengths[:-1])), 0.0)
    return np.concatenate(([0.0], np.cumsum(shifted)))
