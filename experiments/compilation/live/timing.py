"""Interleaved timing of two callables: warm-up, A B B A ..., median and inter-quartile range."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Sample:
    """Seconds per call: median and quartiles over ``calls`` calls, and the least disturbed of them."""

    median: float
    lower: float
    upper: float
    calls: int
    least: float

    def overlaps(self, other: Sample) -> bool:
        """Whether the inter-quartile ranges overlap: a difference inside them is noise."""
        return self.lower <= other.upper and other.lower <= self.upper


@dataclass(frozen=True)
class Comparison:
    """Ours and eager's times taken in turn, with the load average of the host at the end."""

    ours: Sample
    eager: Sample
    load: float

    @property
    def speedup(self) -> float:
        return self.eager.median / self.ours.median

    @property
    def inside_the_noise(self) -> bool:
        return self.ours.overlaps(self.eager)

    def break_even(self, compiling: float) -> float | None:
        """Calls after which ``compiling`` seconds are won back; ``None`` where ours is not faster beyond the noise."""
        won = self.eager.median - self.ours.median
        return compiling / won if won > 0 and not self.inside_the_noise else None


def compare(
    ours: Callable[[], Any], eager: Callable[[], Any], device: str, seconds: float = 2.0
) -> Comparison:
    """Call both in turn for about ``seconds``, at least five times each after two warm-up calls. Which comes first
    changes from round to round: on a busy host the first one is interrupted more often.
    """
    for _ in range(2):
        _timed(ours, device)
        _timed(eager, device)
    mine: list[float] = []
    base: list[float] = []
    order = [(ours, mine), (eager, base)]
    deadline = time.perf_counter() + seconds
    while len(mine) < 5 or (time.perf_counter() < deadline and len(mine) < 200):
        for call, times in order:
            times.append(_timed(call, device))
        order.reverse()
    return Comparison(sample_of(mine), sample_of(base), os.getloadavg()[0])


def _timed(call: Callable[[], Any], device: str) -> float:
    _wait(device)
    start = time.perf_counter()
    call()
    _wait(device)
    return time.perf_counter() - start


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def sample_of(values: list[float]) -> Sample:
    """Median and quartiles of the seconds of some calls."""
    lower, median, upper = statistics.quantiles(values, n=4)
    return Sample(median, lower, upper, len(values), min(values))
