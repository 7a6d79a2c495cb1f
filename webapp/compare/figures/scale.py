"""A memory axis that changes its scale at the capacity of a device, and round numbers for its ticks."""

from __future__ import annotations

import math
from dataclasses import dataclass

from experiments.core.units import human

#: Share of the axis up to the capacity, where anything lies beyond it, and where nothing does.
BROKEN_AT, WHOLE = 0.62, 0.97
#: Free space at an end, as a share of what is shown.
MARGIN = 0.06
TICKS = 5


@dataclass(frozen=True)
class BrokenScale:
    """Places from 0 to 1: ``low`` to ``capacity`` bytes up to ``line``, then ``capacity`` to ``high``."""

    low: float
    capacity: float
    high: float
    line: float

    def place(self, size: float) -> float:
        if size <= self.capacity:
            return self.line * (size - self.low) / (self.capacity - self.low)
        return self.line + (1 - self.line) * (size - self.capacity) / (self.high - self.capacity)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Where ticks stand, with their words; that of the capacity is the line's own name."""
        inner = round_numbers(self.low, self.capacity * 0.985, TICKS)
        outer = round_numbers(self.capacity * 1.015, self.high, TICKS) if self.line < WHOLE else []
        return [(self.place(size), human(size, "bytes")) for size in (*inner, *outer)]


def broken_scale(fits: list[float], needs: list[float], capacity: float) -> BrokenScale:
    """From a little below the leanest to a little above the neediest."""
    low = max(0.0, min([*fits, 0.9 * capacity]) - MARGIN * capacity)
    if not needs:
        return BrokenScale(low, capacity, capacity * (1 + MARGIN), WHOLE)
    beyond = max(max(needs) - capacity, 0.02 * capacity)
    return BrokenScale(low, capacity, capacity + beyond * (1 + MARGIN), BROKEN_AT if fits else 0.2)


def round_numbers(low: float, high: float, most: int) -> list[float]:
    """Multiples of 1, 2 or 5 (times a power of ten) of the binary unit, at most ``most`` of them."""
    if high <= low:
        return []
    unit = 1024.0 ** math.floor(math.log(high, 1024))
    rough = (high - low) / unit / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough) * unit
    first = math.ceil(low / step)
    return [step * count for count in range(first, math.floor(high / step) + 1)]
