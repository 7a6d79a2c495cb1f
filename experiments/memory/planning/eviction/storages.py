"""What is resident while a step runs in a budget: bytes in use, which storages may leave, and which leaves
next.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np

from experiments.workloads.step import Floats, Step


class Valuation(Protocol):
    """Prices the absence of tensors, and is notified who left and who came back."""

    @property
    def prices(self) -> Floats:
        """Seconds of compute at stake when each tensor leaves."""

    def note_departure(self, tensor: int) -> None: ...

    def note_return(self, tensor: int) -> None: ...


class Storages:
    """The storages of ``step``. Those of at most ``least`` bytes leave only when no other can.

    ``clock`` is the compute so far; a storage was last accessed when an op that reads it began, or when the
    op that first made it ended. A locked one is in use and stays; a fixed one could not be recomputed.
    """

    def __init__(self, step: Step, valuation: Valuation, least: float) -> None:
        count = len(step.tensors)
        self.valuation = valuation
        self.size: list[int] = step.tensors.bytes.tolist()
        self.resident: list[bool] = step.persistent.tolist()
        self.used = step.persistent_bytes
        self.clock = 0.0
        self._bytes = step.tensors.bytes.astype(np.float64)
        self._large = step.tensors.bytes > least
        self._access = np.zeros(count)
        self._locks = [0] * count
        self._movable = np.zeros(count, np.bool_)
        self._turn = np.zeros(count, np.int64)
        self._turns = 0
        self._persistent = list(self.resident)
        self._fixed: set[int] = set()

    def enter(self, tensor: int) -> None:
        """``tensor`` has been made, for the first time or again."""
        self.valuation.note_return(tensor)
        self.resident[tensor] = True
        self.used += self.size[tensor]
        self._admit(tensor)

    def leave(self, tensor: int) -> None:
        """``tensor`` is evicted or released: from now on it is an evicted neighbor of others."""
        self.resident[tensor] = False
        self.used -= self.size[tensor]
        self._movable[tensor] = False
        self.valuation.note_departure(tensor)

    def fix(self, tensor: int) -> None:
        """``tensor`` stays from now on."""
        self._fixed.add(tensor)
        self._movable[tensor] = False

    def lock(self, tensor: int) -> None:
        self._locks[tensor] += 1
        self._movable[tensor] = False

    def is_locked(self, tensor: int) -> bool:
        """Return whether ``tensor`` is in use."""
        return self._locks[tensor] > 0

    def unlock(self, tensors: Iterable[int]) -> None:
        for tensor in tensors:
            self._locks[tensor] -= 1
            if not self._locks[tensor]:
                self._admit(tensor)

    def access(self, tensors: Iterable[int]) -> None:
        """These are accessed now."""
        for tensor in tensors:
            self._access[tensor] = self.clock

    def cheapest(self) -> int | None:
        """The storage of least price by byte and staleness.

        Among equals the one that could leave last, as in the paper's simulator, whose search goes through all
        and ends at the first that costs nothing.
        """
        prices = self.valuation.prices
        large = np.nonzero(self._movable & self._large)[0]
        return self._least(large if len(large) else np.nonzero(self._movable)[0], prices)

    def _least(self, among: np.ndarray[tuple[int], np.dtype[np.int64]], prices: Floats) -> int | None:
        if not len(among):
            return None
        stale = self._bytes[among] * (self.clock - self._access[among])
        scores = np.full(len(among), np.inf)
        np.divide(prices[among], stale, out=scores, where=stale > 0)
        ties = among[scores == scores.min()]
        turns = self._turn[ties]
        return int(ties[np.argmax(turns) if scores.min() else np.argmin(turns)])

    def _admit(self, tensor: int) -> None:
        """Among those that may leave, unless it holds no byte, is in use, fixed or persistent."""
        may = self.size[tensor] and not self._locks[tensor] and tensor not in self._fixed
        if may and self.resident[tensor] and not self._persistent[tensor]:
            self._movable[tensor] = True
            self._turns += 1
            self._turn[tensor] = self._turns
