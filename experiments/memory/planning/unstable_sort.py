"""The order in which a C++ program's ``std::sort`` (GNU library) leaves elements that compare equal.

``std::sort`` is not stable, so where the G10 artifact sorts by a key with ties, which of them comes first is decided by
the algorithm itself. To meet the published figures the algorithm is carried out as the library does it: quicksort
around a median of three down to ranges of 16, heap sort where that goes too deep, and insertion sort at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats

T = TypeVar("T")

#: Ranges up to this long are left to the insertion sort.
SHORT = 16


def sorted_as_gnu(items: Sequence[T], keys: Sequence[float]) -> list[T]:
    """``items`` by ascending ``keys``, those with equal keys in the library's order."""
    return [items[i] for i in gnu_order(ranks([np.asarray(keys, float)]))]


def ranks(columns: Sequence[Floats]) -> Ints:
    """The rank of each row by the first column, then the next ...; equal rows have equal ranks."""
    order = np.lexsort(columns[::-1])
    changes = np.zeros(len(order), np.int64)
    for column in columns:
        changes[1:] |= column[order][1:] != column[order][:-1]
    found = np.empty(len(order), np.int64)
    found[order] = np.cumsum(changes)
    return found


def gnu_order(rank: Ints) -> list[int]:
    """The permutation that sorts ``rank`` ascending: element ``i`` of the result was at position ``order[i]``."""
    count = len(rank)
    sort = _GnuSort(rank.tolist())
    if count:
        sort.quick(0, count, 2 * (count.bit_length() - 1))
        sort.insertion(count)
    return sort.order


class _GnuSort:
    """``key[i]`` and ``order[i]`` move together."""

    def __init__(self, key: list[int]) -> None:
        self.key, self.order = key, list(range(len(key)))

    def swap(self, a: int, b: int) -> None:
        key, order = self.key, self.order
        key[a], key[b] = key[b], key[a]
        order[a], order[b] = order[b], order[a]

    def quick(self, low: int, high: int, depth: int) -> None:
        while high - low > SHORT:
            if depth == 0:
                self.heap(low, high)
                return
            depth -= 1
            cut = self.partition(low, high)
            self.quick(cut, high, depth)
            high = cut

    def median(self, low: int, high: int) -> int:
        """Which of the second, the middle and the last element has the middle key."""
        a, b, c = low + 1, low + (high - low) // 2, high - 1
        key = self.key
        if key[a] < key[b]:
            if key[b] < key[c]:
                return b
            return c if key[a] < key[c] else a
        if key[a] < key[c]:
            return a
        return c if key[b] < key[c] else b

    def partition(self, low: int, high: int) -> int:
        """Smaller keys to the left of the cut that is returned, larger ones to the right; equal ones are swapped too."""
        self.swap(low, self.median(low, high))
        key, order, pivot = self.key, self.order, self.key[low]
        left, right = low + 1, high - 1
        while True:
            while key[left] < pivot:
                left += 1
            while pivot < key[right]:
                right -= 1
            if left >= right:
                return left
            key[left], key[right] = key[right], key[left]
            order[left], order[right] = order[right], order[left]
            left += 1
            right -= 1

    def insertion(self, count: int) -> None:
        """What is left over is at most ``SHORT`` places from its place."""
        key, order = self.key, self.order
        for i in range(1, count):
            value = key[i]
            if value >= key[i - 1]:
                continue
            j = i
            while j and value < key[j - 1]:
                j -= 1
            key[j : i + 1] = [value, *key[j:i]]
            order[j : i + 1] = [order[i], *order[j:i]]

    def heap(self, low: int, high: int) -> None:
        """Heap sort of a range, with the library's way of sinking a value to a leaf first."""
        count = high - low
        for parent in range((count - 2) // 2, -1, -1):
            self._sink(low, parent, count, self.key[low + parent], self.order[low + parent])
        for last in range(count - 1, 0, -1):
            key, place = self.key[low + last], self.order[low + last]
            self.key[low + last], self.order[low + last] = self.key[low], self.order[low]
            self._sink(low, 0, last, key, place)

    def _sink(self, low: int, hole: int, count: int, value: int, place: int) -> None:
        key, order, top = self.key, self.order, hole
        while hole < (count - 1) // 2:
            child = 2 * (hole + 1)
            if key[low + child] < key[low + child - 1]:
                child -= 1
            key[low + hole], order[low + hole] = key[low + child], order[low + child]
            hole = child
        if count % 2 == 0 and hole == (count - 2) // 2:
            child = 2 * hole + 1
            key[low + hole], order[low + hole] = key[low + child], order[low + child]
            hole = child
        while hole > top and key[low + (hole - 1) // 2] < value:
            parent = (hole - 1) // 2
            key[low + hole], order[low + hole] = key[low + parent], order[low + parent]
            hole = parent
        key[low + hole], order[low + hole] = value, place
