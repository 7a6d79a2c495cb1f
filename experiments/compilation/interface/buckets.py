"""Sizes that a batch or sequence is padded to, and what the padding wastes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.core.errors import BadInput


def power_of_two(size: int) -> int:
    """Return the smallest power of two from ``size`` on."""
    return 1 << (size - 1).bit_length()


def powers_of_two(sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the powers of two that ``sizes`` need."""
    return tuple(sorted({power_of_two(size) for size in sizes}))


def bucket_of(size: int, buckets: Sequence[int]) -> int:
    """Return the smallest bucket that holds ``size``; ``buckets`` ascend.

    Beyond the last there is none: ``BadInput``.
    """
    place = bisect_left(buckets, size)
    if place == len(buckets):
        raise BadInput(f"size {size} fits no bucket", "knobs.buckets", f"one of at least {size}")
    return buckets[place]


def sizes_from(text: str, where: str) -> tuple[int, ...]:
    """Return ``"1, 2, 4-6"`` as 1, 2, 4, 5, 6: ascending, each once."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        try:
            low = int(first)
            high = int(last) if dash else low
        except ValueError:
            raise BadInput(f"{part.strip()!r:.40} is no size", where, 'sizes such as "1, 2, 4-8"') from None
        if not 1 <= low <= high <= 1 << 20:
            raise BadInput(f"{part.strip()!r:.40}", where, f"sizes from 1 to {1 << 20}, the lower one first")
        found.update(range(low, high + 1))
    return tuple(sorted(found))


@dataclass(frozen=True)
class Waste:
    """``useful`` rows among ``padded`` ones, over one call of each size."""

    useful: int
    padded: int

    @property
    def of_useful(self) -> float:
        """Rows added for each useful one: (P - U) / U."""
        return (self.padded - self.useful) / self.useful


def waste(sizes: Sequence[int], buckets: Sequence[int]) -> Waste:
    return Waste(sum(sizes), sum(bucket_of(size, buckets) for size in sizes))
