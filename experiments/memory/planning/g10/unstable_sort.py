"""The order in which a C++ program's ``std::sort`` (GNU library) leaves elements that compare equal.

``std::sort`` is not stable, so where the G10 release sorts by a key with ties, which of them comes first is
decided by the algorithm itself. To meet the published figures the algorithm is carried out as the library
does it: quicksort around a median of three down to ranges of 16, heap sort where that goes too deep, and
insertion sort at the end.
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
    """Return the permutation that sorts ``rank`` ascending.

    Element ``i`` of the result was at position ``order[i]``.
    """
    count = len(rank)
    shift = count.bit_length()
    # Rank and position in one integer: those of a lower rank than ``a`` are below ``a >> shift << shift``.
    items = ((rank << shift) | np.arange(count)).tolist()
    if count:
        _quick(items, 0, count, 2 * (count.bit_length() - 1), shift)
        _insertion(items, shift)
    mask = (1 << shift) - 1
    return [item & mask for item in items]


def _quick(items: list[int], low: int, high: int, depth: int, shift: int) -> None:
    while high - low > SHORT:
        if depth == 0:
            _heap(items, low, high, shift)
            return
        depth -= 1
        cut = _partition(items, low, high, shift)
        _quick(items, cut, high, depth, shift)
        high = cut


def _median(items: list[int], low: int, high: int, shift: int) -> int:
    """Which of the second, the middle and the last element has the middle rank."""
    places = low + 1, low + (high - low) // 2, high - 1
    a, b, c = (items[place] >> shift for place in places)
    if a < b:
        return places[1] if b < c else places[2] if a < c else places[0]
    return places[0] if a < c else places[2] if b < c else places[1]


def _partition(items: list[int], low: int, high: int, shift: int) -> int:
    """Lower ranks to the left of the cut that is returned, higher ones to the right; equal ones change sides
    too.
    """
    middle = _median(items, low, high, shift)
    items[low], items[middle] = items[middle], items[low]
    lower = items[low] >> shift << shift
    upper = lower + (1 << shift)
    left, right = low + 1, high - 1
    while True:
        while items[left] < lower:
            left += 1
        while items[right] >= upper:
            right -= 1
        if left >= right:
            return left
        items[left], items[right] = items[right], items[left]
        left += 1
        right -= 1


def _insertion(items: list[int], shift: int) -> None:
    """What is left over is at most ``SHORT`` places from its place."""
    before = items[0]
    for i, value in enumerate(items):
        upper = ((value >> shift) + 1) << shift
        if before < upper:
            before = value
            continue
        j = i
        while j and items[j - 1] >= upper:
            j -= 1
        items[j : i + 1] = [value, *items[j:i]]


def _heap(items: list[int], low: int, high: int, shift: int) -> None:
    """Heap sort of a range, with the library's way of sinking a value to a leaf first."""
    count = high - low
    for parent in range((count - 2) // 2, -1, -1):
        _sink(items, low, parent, count, items[low + parent], shift)
    for last in range(count - 1, 0, -1):
        value, items[low + last] = items[low + last], items[low]
        _sink(items, low, 0, last, value, shift)


def _sink(items: list[int], low: int, hole: int, count: int, value: int, shift: int) -> None:
    top = hole
    while hole < (count - 1) // 2:
        child = 2 * (hole + 1)
        if items[low + child] >> shift < items[low + child - 1] >> shift:
            child -= 1
        items[low + hole] = items[low + child]
        hole = child
    if count % 2 == 0 and hole == (count - 2) // 2:
        child = 2 * hole + 1
        items[low + hole] = items[low + child]
        hole = child
    while hole > top and items[low + (hole - 1) // 2] >> shift < value >> shift:
        parent = (hole - 1) // 2
        items[low + hole] = items[low + parent]
        hole = parent
    items[low + hole] = value
