"""What a step of an engine takes besides its layers: policy, filling, drafts, indices of blocks, records.

Layers by themselves are timed again and again, and stay in the caches; between steps the engine's own work
drives them out. That is in here, too: it is seen in short runs of the engine, less what the layers say.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from experiments.serving.interface.step_load import StepLoad
from experiments.serving.live.model import PagedGpt
from experiments.serving.live.prompts import prompts_of
from experiments.workloads.profiles.layer_times import Curve
from experiments.workloads.requests import RequestTrace

#: Steps of a run: the load of each, and when it ended.
Timed = Sequence[tuple[StepLoad, float]]
#: An engine under a policy: it answers the prompts of a trace.
Serve = Callable[[RequestTrace, Sequence[Sequence[int]]], Timed]
#: Seconds of a step by the layers alone.
Price = Callable[[StepLoad], float]
#: Requests at once, the most tokens of their prompts, and those of their answers.
SEQUENCES, PROMPT, ANSWER = (1, 2, 4, 8, 16, 32), 128, 24
#: Runs of each, since a shared host is slow at times.
RUNS = 3


def measure_bookkeeping(model: PagedGpt, serve: Serve, price: Price, prompt: int, seed: int = 0) -> Curve:
    """Return the seconds of a step besides its ``price``, by requests in it: medians of short runs.

    Prompts of ``prompt`` tokens, or ``PROMPT``, are drawn from ``seed``. Where a policy never serves so many
    at once, the curve ends before.
    """
    tokens = min(prompt, PROMPT, model.positions - ANSWER)
    besides = [_measure_once(model, serve, price, tokens, seed) for _ in range(RUNS)]
    points = min(besides, key=len)
    found = [statistics.median(run[requests] for run in besides) for requests in points]
    return Curve(tuple(map(float, points)), tuple(max(0.0, seconds) for seconds in found))


def _measure_once(model: PagedGpt, serve: Serve, price: Price, prompt: int, seed: int) -> dict[int, float]:
    """Seconds besides the price, by requests at once."""
    found: dict[int, float] = {}
    for requests in SEQUENCES:
        ones, names = np.ones(requests, np.int64), ("",) * requests
        trace = RequestTrace("calibration", np.zeros(requests), prompt * ones, ANSWER * ones, names)
        timed = serve(trace, prompts_of(trace, model.vocabulary, seed))
        besides = [
            end - before - price(load)
            for (_, before), (load, end) in pairwise(timed)
            if load.sequences == requests
        ]
        if not besides:
            break
        found[requests] = statistics.median(besides)
    return found
