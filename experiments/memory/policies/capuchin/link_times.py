"""How far swaps that share a link hide behind computation (Capuchin, ASPLOS'20)."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence

from experiments.memory.planning.swaps import Gap

#: A swap in one direction: its place in the order, when the tensor may leave or has to be back, the seconds
#: of its transfer, and the tensor.
Transfer = tuple[int, float, float, int]


class LinkTimes:
    """Swaps in the order of the link, one at a time each way: out when used, back as late as they may be.

    ``start`` are the seconds at which ops start; ``out_time`` and ``back_time`` give the seconds of a gap's
    transfers.
    """

    def __init__(
        self, start: Sequence[float], out_time: Callable[[Gap], float], back_time: Callable[[Gap], float]
    ) -> None:
        self.start, self.out_time, self.back_time = start, out_time, back_time
        self._leaving: list[Transfer] = []
        self._coming: list[Transfer] = []

    def add(self, gap: Gap) -> None:
        """The tensor of ``gap`` is swapped. Of equal ones the first added goes first."""
        leaves = (gap.after, self.start[gap.after + 1], self.out_time(gap), gap.tensor)
        comes = (-gap.before, self.start[gap.before], self.back_time(gap), gap.tensor)
        insort(self._leaving, leaves, key=_place)
        insort(self._coming, comes, key=_place)

    def remove(self, gap: Gap) -> None:
        """The tensor of ``gap`` is swapped no more."""
        self._leaving = [entry for entry in self._leaving if entry[3] != gap.tensor]
        self._coming = [entry for entry in self._coming if entry[3] != gap.tensor]

    def overhead(self) -> float:
        """Seconds by which the worst of the swaps is not hidden."""
        begin: dict[int, float] = {}
        latest = float("inf")
        for _, due, seconds, tensor in self._coming:
            latest = (due if due < latest else latest) - seconds
            begin[tensor] = latest
        free = worst = 0.0
        for _, ready, seconds, tensor in self._leaving:
            free = (ready if ready > free else free) + seconds
            late = free - begin[tensor]
            if late > worst:
                worst = late
        return worst


def _place(transfer: Transfer) -> int:
    return transfer[0]
