"""Request traces drawn from a seed, with the lengths of Orca's study (OSDI'22, section 6.2): prompts of 32 to
512 tokens, answers of 1 to 128, both uniform and independent.

``poisson`` arrivals have exponential gaps, ``bursts`` gamma gaps with a coefficient of variation of 4.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from experiments.core.options import WorkloadOptions
from experiments.workloads.arrival_processes import GAPS
from experiments.workloads.requests import RequestTrace

#: The process of the gaps of each kind, and their coefficient of variation.
KINDS: Mapping[str, tuple[str, float]] = {"poisson": ("poisson", 1.0), "bursts": ("gamma", 4.0)}
PROMPT, OUTPUT = (32, 512), (1, 128)
#: The rate (per second) and the number of requests where nobody names them.
USUAL_RATE, USUAL_REQUESTS = 2.0, 300


def settle(options: WorkloadOptions) -> tuple[float, int]:
    """The rate and the number of requests that ``options`` ask for."""
    return options.rate or USUAL_RATE, options.limit or USUAL_REQUESTS


def generate(kind: str, seed: int, rate: float, count: int) -> RequestTrace:
    """Return ``count`` requests that come at ``rate`` per second on average, the first at 0.

    Lengths and gaps are drawn by generators of their own: at another rate the same requests come in the same
    order.
    """
    process, variation = KINDS[kind]
    lengths, gaps = (np.random.default_rng([seed, part]) for part in (0, 1))
    between = GAPS[process](gaps, count, 1.0, variation) / rate
    prompt = lengths.integers(PROMPT[0], PROMPT[1] + 1, count)
    output = lengths.integers(OUTPUT[0], OUTPUT[1] + 1, count)
    arrival = np.cumsum(between) - between[0]
    facts = {"requests": count, "seed": seed, "rate": rate}
    return RequestTrace(f"generated:{kind}", arrival, prompt, output, ("",) * count, {}, facts)
