"""When requests of a model arrive: the usual point processes, drawn from a generator.

``constant``  equal gaps, the first request at 0.
``poisson``   exponential gaps.
``uniform``   gaps between nothing and twice their mean.
``gamma``     gaps with a coefficient of variation ``cv``: above 1 in bursts, below 1 nearly regular.
``mmpp``      a Poisson process that is switched on and off (two states of equal mean length, twice the rate
              and none): with mean lengths of (cv^2 - 1) / rate the gaps have the variation ``cv`` (Fischer
              and Meier-Hellstern, The Markov-modulated Poisson process cookbook, 1993, section 3).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from experiments.workloads.step import Floats

#: Draws so many gaps in s, given their mean and coefficient of variation.
Gaps = Callable[[np.random.Generator, int, float, float], Floats]

GAPS: Mapping[str, Gaps] = {
    "constant": lambda rng, count, mean, cv: np.full(count, mean),
    "poisson": lambda rng, count, mean, cv: rng.exponential(mean, count),
    "uniform": lambda rng, count, mean, cv: rng.uniform(0.0, 2 * mean, count),
    "gamma": lambda rng, count, mean, cv: rng.gamma(1 / cv**2, mean * cv**2, count),
}
SWITCHED = "mmpp"
PROCESSES = (*GAPS, SWITCHED)


def draw_arrivals(process: str, rate: float, cv: float, duration: float, rng: np.random.Generator) -> Floats:
    """Return the times (s) at which requests arrive before ``duration``, ascending.

    ``rate`` is the mean number in a second, 0 for none; ``cv`` is read by ``gamma`` and ``mmpp`` alone.
    """
    if rate == 0:
        return np.empty(0)
    if process == SWITCHED:
        return _switched(rate, cv, duration, rng)
    if process == "constant":
        times = np.arange(math.ceil(duration * rate - 1e-9)) / rate
        return times[times < duration]
    return _renewals(GAPS[process], rate, cv, duration, rng)


def _renewals(gaps: Gaps, rate: float, cv: float, duration: float, rng: np.random.Generator) -> Floats:
    """Gaps are drawn by the batch until their sum passes the end."""
    expected = duration * rate
    count = int(expected + 4 * math.sqrt(expected)) + 16
    parts, reached = [], 0.0
    while reached < duration:
        part = reached + np.cumsum(gaps(rng, count, 1 / rate, cv))
        parts.append(part)
        reached = float(part[-1])
    times = np.concatenate(parts)
    kept: Floats = times[times < duration]
    return kept


def _switched(rate: float, cv: float, duration: float, rng: np.random.Generator) -> Floats:
    """Begins in either state with equal chance."""
    length, now, found = (cv**2 - 1) / rate, 0.0, []
    is_on = bool(rng.integers(2))
    while now < duration:
        stay = float(rng.exponential(length))
        if is_on:
            found.append(now + np.sort(rng.uniform(0.0, stay, rng.poisson(2 * rate * stay))))
        now, is_on = now + stay, not is_on
    times = np.concatenate(found) if found else np.empty(0)
    kept: Floats = times[times < duration]
    return kept
