"""The one harness by which times of this host are compared.

Several things timed in turn, A B C C B A ...

Clock: wall time, the device waited for before and after; processor time of the calling thread where only that
thread computes, which other work on the host does not lengthen. Warm-up: ``WARM_UP`` rounds are thrown away
(loading, layouts, compiling). Pairing: every round takes each thing once, in the opposite order of the round
before, because on a busy host what comes first is interrupted more often. Spread: the median is the figure,
the quartiles are its noise, and a difference of things whose quartiles overlap is none.
"""

from __future__ import annotations

import functools
import os
import statistics
import time
from collections.abc import Callable, Mapping
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
        """Return whether the inter-quartile ranges overlap: a difference inside them is noise."""
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
        """Calls after which ``compiling`` seconds are won back.

        ``None`` where ours is not faster beyond the noise.
        """
        won = self.eager.median - self.ours.median
        return compiling / won if won > 0 and not self.inside_the_noise else None


#: Rounds that are thrown away, taken at least, and taken at most where there is time for more.
WARM_UP, LEAST_ROUNDS, MOST_ROUNDS = 2, 5, 200

Clock = Callable[[], float]
#: Does what is timed, once or often, and returns the seconds of one call.
Timed = Callable[[], float]


def in_turns(
    calls: Mapping[str, Timed], rounds: int = LEAST_ROUNDS, seconds: float = 0.0
) -> dict[str, Sample]:
    """Take the seconds of each of ``calls`` in turn.

    At least ``rounds`` times, then for ``seconds`` in all.
    """
    order = list(calls)
    for _ in range(WARM_UP):
        for name in order:
            calls[name]()
    taken: dict[str, list[float]] = {name: [] for name in order}
    deadline = time.perf_counter() + seconds
    done = 0
    while done < rounds or (time.perf_counter() < deadline and done < MOST_ROUNDS):
        for name in order:
            taken[name].append(calls[name]())
        order.reverse()
        done += 1
    return {name: sample_of(values) for name, values in taken.items()}


def compare(
    ours: Callable[[], Any], eager: Callable[[], Any], device: str, seconds: float = 2.0
) -> Comparison:
    """Time single calls of both in turn, by the wall's clock, for about ``seconds``."""
    calls = {
        name: functools.partial(mean_seconds, call, device)
        for name, call in (("ours", ours), ("eager", eager))
    }
    found = in_turns(calls, seconds=seconds)
    return Comparison(found["ours"], found["eager"], os.getloadavg()[0])


def time_repeats(
    call: Callable[[], Any], device: str, repeats: int, least: float, clock: Clock = time.perf_counter
) -> list[float]:
    """Return seconds of a call, measured ``repeats`` times after one call to warm up.

    Each time lasts at least ``least`` seconds.
    """
    once = mean_seconds(call, device, 1, clock)
    calls = max(1, int(least / max(once, 1e-9)))
    return [mean_seconds(call, device, calls, clock) for _ in range(repeats)]


def mean_seconds(
    call: Callable[[], Any], device: str, calls: int = 1, clock: Clock = time.perf_counter
) -> float:
    """Return the mean seconds of ``calls`` calls one after the other."""
    _wait(device)
    started = clock()
    for _ in range(calls):
        call()
    _wait(device)
    return (clock() - started) / calls


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def sample_of(values: list[float]) -> Sample:
    """Median and quartiles of the seconds of some calls."""
    lower, median, upper = statistics.quantiles(values, n=4)
    return Sample(median, lower, upper, len(values), min(values))
