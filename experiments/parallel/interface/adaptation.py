"""KungFu's measurements and what it does by them, as functions (Mai et al., OSDI'20, sections 2.1 and 6)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Noise:
    """Estimates of a gradient's signal and of its noise.

    - ``squared``: of the true gradient's squared length.
    - ``trace``: of the trace of a sample gradient's covariance.
    """

    squared: float
    trace: float

    @property
    def scale(self) -> float:
        """The batch at which noise and signal are equal: the gradient noise scale."""
        return self.trace / self.squared if self.squared else float("inf")


def gradient_noise(small: float, small_batch: int, large: float, large_batch: int) -> Noise:
    """Return estimates from squared lengths of a worker's gradient and of the averaged one.

    The two are of batches of different size.

    Source: McCandlish et al., "An Empirical Model of Large-Batch Training", 2018, appendix A.1.
    """
    squared = (large_batch * large - small_batch * small) / (large_batch - small_batch)
    trace = (small - large) / (1 / small_batch - 1 / large_batch)
    return Noise(squared, trace)


def smoothed(before: Noise | None, now: Noise, factor: float) -> Noise:
    """Return both estimates smoothed by an exponential average.

    Each alone is unbiased, their quotient is not.
    """
    if before is None:
        return now
    return Noise(
        factor * before.squared + (1 - factor) * now.squared, factor * before.trace + (1 - factor) * now.trace
    )


def gains_enough(before: float, now: float, workers: int, gain: float) -> bool:
    """Return whether the throughput of ``workers`` is worth its last one.

    It has to be at least 1 + gain / workers times that without it.
    """
    return now >= (1 + gain / workers) * before


def workers_by_throughput(throughputs: Iterable[float], gain: float) -> int:
    """Return how many workers stay: one more until one does not pay.

    ``throughputs`` of 1, 2, ... are asked for one by one.
    """
    before, workers = 0.0, 0
    for workers, now in enumerate(throughputs, 1):
        if workers > 1 and not gains_enough(before, now, workers, gain):
            return workers - 1
        before = now
    return workers
