"""Which layers are copied with one call: the division that answers soonest (PipeSwitch, section 4.2).

Group j arrives at T_j = T_(j-1) + call + bytes/bandwidth, and is computed from max(T_j, f_(j-1)).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

#: Ends of the groups, excluded; the last is the number of layers.
Ends = tuple[int, ...]


def pipelined_time(
    ends: Sequence[int], copy: Sequence[float], compute: Sequence[float], call: float
) -> float:
    """Return the seconds until the last layer is computed; ``copy`` and ``compute`` of the layers."""
    arrived = finished = 0.0
    first = 0
    for end in ends:
        arrived += call + sum(copy[first:end])
        finished = max(arrived, finished) + sum(compute[first:end])
        first = end
    return finished


def block_ends(blocks: Sequence[int]) -> Ends:
    """Return a group for each of a model's own blocks; ``blocks`` are the numbers that its layers tell."""
    inner = (end for end in range(1, len(blocks)) if blocks[end] != blocks[end - 1])
    return (*inner, len(blocks))


def optimal_groups(copy: Sequence[float], compute: Sequence[float], call: float) -> Ends:
    """Return the division of least time, exactly: O(n^3).

    When the first i layers have arrived depends only on their number of groups g, so the best end of g groups
    over i layers is a minimum over where the last of them begins.
    """
    count = len(copy)
    copied = [0.0, *accumulate(copy)]
    computed = np.array([0.0, *accumulate(compute)])
    best = np.full(count + 1, math.inf)
    best[0] = 0.0
    found: tuple[float, Ends] = (math.inf, ())
    begins: list[list[int]] = []
    for groups in range(1, count + 1):
        following, begin = np.full(count + 1, math.inf), [0] * (count + 1)
        for end in range(groups, count + 1):
            arrived = groups * call + copied[end]
            starts = slice(groups - 1, end)
            finished = np.maximum(arrived, best[starts]) + computed[end] - computed[starts]
            least = int(finished.argmin())
            following[end], begin[end] = finished[least], groups - 1 + least
        begins.append(begin)
        best = following
        if best[count] < found[0]:
            found = float(best[count]), _trace(begins, count)
        if groups * call + copied[count] >= found[0]:
            break  # more calls alone last longer than what was found
    return found[1]


def _trace(begins: Sequence[Sequence[int]], count: int) -> Ends:
    ends = []
    for begin in reversed(begins):
        ends.append(count)
        count = begin[count]
    return tuple(reversed(ends))


def pruned_groups(copy: Sequence[float], compute: Sequence[float], call: float) -> Ends:
    """Return the division of least time by the paper's search (Algorithm 1): branch on the first group.

    A branch ends where all that remains to copy, or to compute, lasts too long already; a group after the
    first takes at least the layers whose copy hides behind what is computed meanwhile.
    """
    return _Search(tuple(copy), tuple(compute), call).run()


class _Search:
    def __init__(self, copy: Sequence[float], compute: Sequence[float], call: float) -> None:
        self.copy, self.compute, self.call = copy, compute, call
        self.copied = [0.0, *accumulate(copy)]
        self.computed = [0.0, *accumulate(compute)]
        self.least, self.ends = math.inf, ()

    least: float
    ends: Ends

    def run(self) -> Ends:
        self._branch((), 0.0, 0.0)
        return self.ends

    def _branch(self, ends: Ends, arrived: float, finished: float) -> None:
        first, count = (ends[-1] if ends else 0), len(self.copy)
        if first == count:
            if finished < self.least:
                self.least, self.ends = finished, ends
            return
        for end in range(self._smallest(first, arrived, finished), count + 1):
            there = arrived + self.call + self.copied[end] - self.copied[first]
            done = max(there, finished) + self.computed[end] - self.computed[first]
            if self._bound(end, there, done) < self.least:
                self._branch((*ends, end), there, done)

    def _smallest(self, first: int, arrived: float, finished: float) -> int:
        """The least end: all that arrives in one call before the device is free (all but the first)."""
        end = first + 1
        while end < len(self.copy):
            if arrived + self.call + self.copied[end + 1] - self.copied[first] > finished:
                break
            end += 1
        return end

    def _bound(self, end: int, arrived: float, finished: float) -> float:
        rest = len(self.copy)
        if end == rest:
            return finished
        by_copy = arrived + self.call + self.copied[rest] - self.copied[end] + self.compute[-1]
        return max(by_copy, finished + self.computed[rest] - self.computed[end])
