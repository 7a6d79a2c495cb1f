"""Addresses in shared memory by best fit.

The smallest hole that holds a block, else more memory at the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field

ALIGNMENT = 32


@dataclass
class BestFitMemory:
    """Holes as [start, end) in bytes; ``limit`` is how far memory was ever needed."""

    limit: int = 0
    _holes: list[tuple[int, int]] = field(default_factory=list)

    def take(self, size: int) -> tuple[int, int]:
        """Return a block of at least ``size`` bytes, as [start, end)."""
        needed = -(-size // ALIGNMENT) * ALIGNMENT
        fitting = [hole for hole in self._holes if hole[1] - hole[0] >= needed]
        if fitting:
            start, end = min(fitting, key=lambda hole: (hole[1] - hole[0], hole[0]))
            self._holes.remove((start, end))
            if start + needed < end:
                self._holes.append((start + needed, end))
            return start, start + needed
        start = self._last_hole()
        self.limit = start + needed
        return start, start + needed

    def _last_hole(self) -> int:
        """Return where a block that fits no hole begins: in the hole at the end, if there is one."""
        for hole in self._holes:
            if hole[1] == self.limit:
                self._holes.remove(hole)
                return hole[0]
        return self.limit

    def give(self, block: tuple[int, int]) -> None:
        """Free a block; neighboring holes become one."""
        start, end = block
        if start == end:
            return
        for hole in list(self._holes):
            if hole[1] == start or hole[0] == end:
                self._holes.remove(hole)
                start, end = min(start, hole[0]), max(end, hole[1])
        self._holes.append((start, end))
