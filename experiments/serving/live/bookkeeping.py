"""What a step of the engine takes besides its model: filling, indices of blocks, records, choosing tokens."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from experiments.serving.interface import ServingPlan
from experiments.serving.interface.executor import StepExecutor
from experiments.serving.interface.paged import PagedPolicy, PagedView, StepFiller
from experiments.serving.live.model import PagedGpt
from experiments.serving.live.steps import TorchSteps
from experiments.workloads.requests import RequestTrace

#: The engine: it serves a trace by a policy from so many blocks, on an executor.
Serve = Callable[[RequestTrace, PagedPolicy, int, StepExecutor], ServingPlan]
PROMPT, ANSWER = 4, 24


@dataclass(frozen=True)
class _AllAtOnce(PagedPolicy):
    """Admits whoever waits and decodes for all: no policy that anybody would choose."""

    def begin(self) -> StepFiller:
        return _Fill()


class _Fill:
    def fill(self, view: PagedView) -> bool:
        while view.waiting:
            view.admit(view.waiting[0], PROMPT)
        if not view.entries:
            view.extend_all()
        return False


def measure_bookkeeping(model: PagedGpt, requests: int, serve: Serve) -> float:
    """Return the seconds between two steps of so many requests, less those in the model: the median."""
    ones = np.ones(requests, np.int64)
    trace = RequestTrace("calibration", np.zeros(requests), PROMPT * ones, ANSWER * ones, ("",) * requests)
    policy = _AllAtOnce()
    blocks = requests * -(-(PROMPT + ANSWER) // policy.block_size)
    executor = TorchSteps(model, blocks, policy.block_size, [[1] * PROMPT] * requests)
    ends = [row.end for row in serve(trace, policy, blocks, executor).iterations]
    periods = [later - sooner for sooner, later in pairwise(ends)]
    return statistics.median(
        period - computing for period, computing in zip(periods, executor.computing[1:], strict=True)
    )
