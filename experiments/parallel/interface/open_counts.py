"""Counts for what a spec leaves open: depths of pipelines, micro-batches, updates of a window.

Plain arithmetic on devices, layers and samples, in the order in which they are tried; which of them fit, and
which is fastest, is asked of the simulator (``planning.settings``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from experiments.core.integers import divisors

#: Micro-batches for each stage from which on bubbles hardly count (Huang et al., GPipe, NeurIPS'19, section
#: 2.3: M >= 4 K).
FILLING = 4
#: Updates of a window without flushes, and its passes (of all stages of a pipeline) where these are many.
MOST_UPDATES, LEAST_UPDATES, WINDOW_PASSES = 32, 2, 8192


def one(stages: int) -> int:
    """Return a round of one micro-batch: they may be any number."""
    return 1


@dataclass(frozen=True)
class PipelineShapes:
    """Depths and micro-batches of pipelines over ``devices`` for steps of ``batch`` samples.

    - ``most``: stages that the layers make at most.
    - ``stages``, ``micro_batches``: as asked for; ``None`` is open.
    - ``together``: for a depth, the micro-batches that make a whole round.
    """

    devices: int
    most: int
    batch: int
    stages: int | None = None
    micro_batches: int | None = None
    together: Callable[[int], int] = one

    def whole(self) -> list[tuple[int, int]]:
        """Return every depth with a batch that is not divided unless that is asked for."""
        return [(depth, self.micro_batches or 1) for depth in self.depths()]

    def rounds(self) -> Iterator[list[tuple[int, int]]]:
        """Yield every depth with just enough micro-batches to fill it, then with as many as there can be."""
        yield [(depth, self._filling(depth)) for depth in self.depths()]
        yield [(depth, self._most(depth)) for depth in self.depths()]

    def deepest(self) -> tuple[int, int]:
        """Return the last of the first round: the most devices that a pipeline has stages for."""
        depth = self.depths()[-1]
        return depth, self._filling(depth)

    def depths(self) -> list[int]:
        """From two stages on, one device being a pipeline of one."""
        if self.stages is not None:
            return [self.stages]
        return [depth for depth in divisors(self.devices) if 2 <= depth <= self.most] or [1]

    def _filling(self, depth: int) -> int:
        counts = self._counts(depth)
        return next((count for count in counts if count >= FILLING * depth), counts[-1])

    def _most(self, depth: int) -> int:
        return self._counts(depth)[-1]

    def _counts(self, depth: int) -> list[int]:
        """Micro-batches of equal size, in whole rounds where samples divide so, ascending."""
        if self.micro_batches is not None:
            return [self.micro_batches]
        samples = max(1, self.batch // max(1, self.devices // depth))
        own = self.together(depth)
        return [count for count in divisors(samples) if count % own == 0] or [samples]


def doubling(samples: int, least: int = 1) -> list[int]:
    """Return numbers of equal micro-batches from ``least`` on, each at least twice the one before.

    The last are micro-batches of one sample: 12 gives 1, 2, 4, 12. Only these where there are fewer samples.
    """
    found: list[int] = []
    for count in divisors(max(1, samples)):
        if count >= least and (not found or count >= 2 * found[-1] or count == samples):
            found.append(count)
    return found or [max(1, samples)]


def window_updates(stages: int, micro_batches: int) -> int:
    """Return the updates of a window without flushes: fewer where each takes many passes."""
    passes = 2 * stages * micro_batches
    return min(MOST_UPDATES, max(LEAST_UPDATES, WINDOW_PASSES // passes))
