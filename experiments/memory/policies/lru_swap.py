"""Least recently used out, on demand in: what an operating system does with pages, done with whole tensors.

Where an op finds too few free bytes, the tensors that have gone longest without use leave for the host until
there are enough; what an op lacks is fetched when the op is about to begin. Nothing is known of the future
and no copy is hidden, so this is the baseline of planners. On a chain of layers forward and backward the
tensor used longest ago is also the one needed last, so the choice is as good as any that looks ahead; only
the waiting is not.

The rule is the classical one. Its pages have one size and are written back only where they changed; here a
tensor moves whole and every eviction is a copy. Of tensors last used at the same time the largest leaves
first. Parameters that have not been used yet count as used when the step begins; what is persistent must fit
the device together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from experiments.memory.interface import Eviction, ReactiveMemoryPolicy, Resident


@dataclass(frozen=True)
class LruSwap(ReactiveMemoryPolicy):
    """Whole-tensor demand swapping: the least recently used tensors leave for the host.

    They leave when an op lacks space, and return when an op needs them.
    """

    name: ClassVar[str] = "lru_swap"
    mechanism: ClassVar[str] = "offload"

    def evict(self, needed: int, resident: Sequence[Resident], now: float) -> Sequence[Eviction]:
        leaving: list[Eviction] = []
        for entry in sorted(resident, key=lambda entry: (entry.last_use, -entry.bytes, entry.tensor)):
            if needed <= 0:
                break
            if entry.bytes:
                leaving.append(Eviction(entry.tensor))
                needed -= entry.bytes
        return leaving
