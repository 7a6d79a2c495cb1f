"""Request traces drawn from a seed: gaps of one generator, lengths of another.

- ``poisson`` and ``bursts`` have the lengths of Orca's study (OSDI'22, section 6.2): prompts of 32 to 512
  tokens, answers of 1 to 128, both uniform and independent. Gaps are exponential, or gamma with a coefficient
  of variation of 4.
- ``sharegpt`` and ``alpaca`` have the mean lengths of these sets of conversations and instructions as vLLM's
  study has them (SOSP'23, figure 11): prompts of 161.31 and 19.31 tokens, answers of 337.99 and 58.45. Means
  and a picture are all that is published; geometric lengths assume no more. Prompts end at half the context
  of 2,048 tokens, answers where it does. Gaps are exponential.
- ``openchat`` and ``arxiv`` have the medians and 90th percentiles that Sarathi-Serve's study has of
  openchat_sharegpt4 and arxiv_summarization (OSDI'24, table 2), logarithms of lengths normal. As there,
  requests of more than 8,192 and 16,384 tokens together are left out. Gaps are exponential.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from experiments.core.options import WorkloadOptions
from experiments.workloads.arrival_processes import GAPS
from experiments.workloads.ragged import Ints
from experiments.workloads.requests import RequestTrace

#: The process of the gaps of each kind, and their coefficient of variation.
KINDS: Mapping[str, tuple[str, float]] = {
    "poisson": ("poisson", 1.0),
    "bursts": ("gamma", 4.0),
    "sharegpt": ("poisson", 1.0),
    "alpaca": ("poisson", 1.0),
    "openchat": ("poisson", 1.0),
    "arxiv": ("poisson", 1.0),
}
#: Mean tokens of prompts and answers, of the kinds whose lengths are geometric, and what both have together.
MEAN_LENGTHS: Mapping[str, tuple[float, float]] = {"sharegpt": (161.31, 337.99), "alpaca": (19.31, 58.45)}
CONTEXT = 2048
#: Median and 90th percentile of prompts and of answers, of the kinds whose lengths are lognormal.
QUANTILES: Mapping[str, tuple[tuple[int, int], tuple[int, int]]] = {
    "openchat": ((1730, 5696), (415, 834)),
    "arxiv": ((7059, 12985), (208, 371)),
}
#: Tokens of a prompt and its answer together beyond which these leave a request out.
LONGEST: Mapping[str, int] = {"openchat": 8192, "arxiv": 16384}
#: Standard deviations from the mean of a normal distribution to its 90th percentile.
TO_P90 = 1.2815515655446004
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
    prompt, output = _lengths(kind, lengths, count)
    arrival = np.cumsum(between) - between[0]
    facts = {"requests": count, "seed": seed, "rate": rate}
    return RequestTrace(f"generated:{kind}", arrival, prompt, output, ("",) * count, {}, facts)


def lengths_in_words(kind: str) -> str:
    """Return what the lengths of ``kind`` are and whose."""
    if kind in QUANTILES:
        prompts, answers = QUANTILES[kind]
        return (
            f"prompts of {prompts[0]:,} tokens and answers of {answers[0]:,} in the median, nine of ten below"
            f" {prompts[1]:,} and {answers[1]:,}, lognormal, at most {LONGEST[kind]:,} together, as in"
            " Sarathi-Serve's study"
        )
    if kind not in MEAN_LENGTHS:
        return "prompts of 32 to 512 tokens and answers of 1 to 128, as in Orca's study"
    prompt, output = MEAN_LENGTHS[kind]
    return (
        f"prompts of {prompt:g} tokens and answers of {output:g} in the mean, geometric, as in vLLM's study"
    )


def _lengths(kind: str, rng: np.random.Generator, count: int) -> tuple[Ints, Ints]:
    """Return the tokens of prompts and of answers."""
    if kind in QUANTILES:
        return _lognormal(kind, rng, count)
    if kind not in MEAN_LENGTHS:
        prompt = rng.integers(PROMPT[0], PROMPT[1] + 1, count)
        return prompt, rng.integers(OUTPUT[0], OUTPUT[1] + 1, count)
    mean_prompt, mean_output = MEAN_LENGTHS[kind]
    prompt = np.minimum(rng.geometric(1 / mean_prompt, count), CONTEXT // 2)
    return prompt, np.minimum(rng.geometric(1 / mean_output, count), CONTEXT - prompt)


def _lognormal(kind: str, rng: np.random.Generator, count: int) -> tuple[Ints, Ints]:
    """Requests are drawn until there are ``count`` that are short enough."""
    kept: list[Ints] = []
    while sum(len(rows) for rows in kept) < count:
        drawn = [
            np.maximum(
                1, np.rint(median * np.exp(np.log(p90 / median) / TO_P90 * rng.standard_normal(count)))
            )
            for median, p90 in QUANTILES[kind]
        ]
        rows = np.stack(drawn, 1).astype(np.int64)
        kept.append(rows[rows.sum(1) <= LONGEST[kind]])
    prompt, output = np.concatenate(kept)[:count].T
    return prompt, output
