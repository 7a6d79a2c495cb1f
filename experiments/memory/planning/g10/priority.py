"""In which order G10 looks at gaps, and how ties fall."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from experiments.memory.planning.g10.gaps import Gaps
from experiments.memory.planning.g10.unstable_sort import gnu_order, ranks, sorted_as_gnu
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats

T = TypeVar("T")

#: ``stable``: ties in the order of the list, and a benefit that is not positive ends the selection.
#: ``artifact``: the unstable sort of a C++ program on one list that is sorted again and again, and gaps
#: without benefit are taken too.
TIE_ORDERS = ("artifact", "stable")


class Priority:
    """The order in which gaps are looked at.

    ``order`` is the list of gaps as the last sort left it; ``settled``: that sort has not changed it, so
    that sorting again by the same keys would not either.
    """

    def __init__(self, gaps: Gaps, tie_order: str) -> None:
        self.gaps, self.tie_order = gaps, tie_order
        self.order: Ints = np.arange(len(gaps))
        self.settled = True

    def top(self, benefits: Floats) -> int | None:
        """The gap of most benefit, ties by area; ``None`` where none is worth taking."""
        area = np.where(benefits != 0, self.gaps.area, 0.0)
        if self.tie_order == "artifact":
            self._sort([-benefits, -area])
            return int(self.order[0])
        best = int(np.lexsort((-area, -benefits))[0])
        return best if benefits[best] > 0 else None

    def by_area(self) -> list[int]:
        """All gaps by descending bytes times duration."""
        if self.tie_order == "artifact":
            self._sort([-self.gaps.area])
        else:
            self.order = np.argsort(-self.gaps.area, kind="stable")
        found: list[int] = self.order.tolist()
        return found

    def _sort(self, columns: list[Floats]) -> None:
        moved = gnu_order(ranks(columns)[self.order])
        self.settled = moved == list(range(len(moved)))
        self.order = self.order[moved]

    def sort(self, items: Sequence[T], keys: Sequence[float]) -> list[T]:
        """``items`` by ascending ``keys``, ties as this list's."""
        return order_by(items, keys, self.tie_order)


def order_by(items: Sequence[T], keys: Sequence[float], tie_order: str) -> list[T]:
    """``items`` by ascending ``keys``."""
    if tie_order == "artifact":
        return sorted_as_gnu(items, keys)
    return [items[i] for i in np.argsort(np.array(keys), kind="stable")]
