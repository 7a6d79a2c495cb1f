"""Unity's placement: branches one after another on all devices, or side by side on parts of them.

Source: Unger et al. (Unity), OSDI'22, section 5, and the released ``graph.cc``: between two operators that
all paths cross, the branches are split in two; their time is the sum when they run on all devices in turn,
the longer one when the devices are split too (both ways round), and so on in each half.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class OperatorBranch:
    """Seconds of one branch where its inputs are, and on other devices.

    On others all that it reads must go there; ``parts`` are the devices that it needs.
    """

    near: float
    far: float
    parts: int


class PlacedBranches(NamedTuple):
    """Seconds, and the first device of each branch."""

    seconds: float
    firsts: tuple[int, ...]


def place_branches(branches: Sequence[OperatorBranch], devices: int) -> PlacedBranches:
    """Return the fastest way to run the branches on ``devices`` neighboring devices."""
    fewest = sorted(branch.parts for branch in branches)[:2]
    if len(branches) < 2 or sum(fewest) > devices:  # no two of them fit side by side
        return PlacedBranches(sum(branch.near for branch in branches), (0,) * len(branches))
    kept = tuple(branches)

    @functools.cache
    def best(begin: int, end: int, first: int, count: int) -> PlacedBranches:
        """Branches ``begin`` to ``end`` on ``count`` devices from ``first`` on."""
        if end - begin == 1:
            branch = kept[begin]
            seconds = branch.far if first else branch.near
            return PlacedBranches(seconds if branch.parts <= count else float("inf"), (first,))
        found = []
        for cut in range(begin + 1, end):
            one, other = best(begin, cut, first, count), best(cut, end, first, count)
            found.append(PlacedBranches(one.seconds + other.seconds, one.firsts + other.firsts))
            for share in (s for s in range(1, count) if count % s == 0 or count % (count - s) == 0):
                one, other = best(begin, cut, first, share), best(cut, end, first + share, count - share)
                found.append(PlacedBranches(max(one.seconds, other.seconds), one.firsts + other.firsts))
                one, other = best(begin, cut, first + share, count - share), best(cut, end, first, share)
                found.append(PlacedBranches(max(one.seconds, other.seconds), one.firsts + other.firsts))
        return min(found, key=lambda way: way.seconds)

    return best(0, len(kept), 0, devices)
