"""Serving: a small GPT answers requests here under every policy over KV blocks and at three loads.

The host's layers are measured before each run, since a shared host's speed drifts. Requests are drawn from a
seed; the loads are shares of what the simulator says that the host carries at first.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from experiments.core.completion import complete
from experiments.core.errors import LabError
from experiments.core.progress import Progress, part
from experiments.serving.experiment.measured import SMALL, LiveHost, prepare, serve_on
from experiments.serving.interface.paged import PagedPolicy
from experiments.serving.simulator import figures
from experiments.serving.simulator.paged import simulate_paged
from experiments.sources import Loaded
from experiments.validate.cells import (
    EVERYTHING,
    Chosen,
    Models,
    ValidationCell,
    cell_spec,
    compare,
    left_out,
)
from experiments.workloads.requests import RequestTrace

POLICIES = ("vllm_v1", "vllm_paged", "sarathi_chunked")
#: Requests of a run, and shares of the load that the host carries.
REQUESTS, LOADS = 60, (0.3, 0.6, 0.9)
LONGEST = 512
TRACE = "generated requests"


def models(device: str) -> Models:
    """One model at three loads."""
    return {_named(load): {"model": SMALL} for load in LOADS}


def _named(load: float) -> str:
    return f"{TRACE} at {load:.0%} of the load"


def cells(device: str, progress: Progress, chosen: Chosen = EVERYTHING) -> Iterator[ValidationCell]:
    grid = [(load, name) for load in LOADS for name in POLICIES if chosen.has(name)]
    grid = [(load, name) for load, name in grid if _named(load) in chosen.of(models(device))]
    if not grid:
        return
    progress(0.0, "measuring the layers of the model")
    most = _carried(prepare(SMALL, "float32", 0, LONGEST, part(progress, 0.0, 0.1), device))
    for done, (load, name) in enumerate(grid):
        here = part(progress, 0.1 + 0.9 * done / len(grid), 0.1 + 0.9 * (done + 1) / len(grid))
        if chosen.out_of_time:
            yield left_out(_named(load), "serving", name)
        else:
            host = prepare(SMALL, "float32", 0, LONGEST, part(here, 0.0, 0.2), device)
            yield _cell(host, load, requests_at(load * most), name, part(here, 0.2, 1.0))


def requests_at(rate: float) -> RequestTrace:
    """Poisson arrivals at ``rate`` requests a second, with prompts and answers of any length in a range."""
    rng = np.random.default_rng(0)
    arrival = np.cumsum(rng.exponential(1.0, REQUESTS)) / rate
    prompt, output = rng.integers(16, 385, REQUESTS), rng.integers(8, 121, REQUESTS)
    return RequestTrace(TRACE, arrival - arrival[0], prompt, output, ("",) * REQUESTS)


def _carried(host: LiveHost) -> float:
    """Requests a second when all of them are there at once, as the simulator has it."""
    policy = _policy(POLICIES[0])[1]
    trace = requests_at(1e9)
    plan = simulate_paged(trace, policy, policy.blocks or 1, host.price, host.served.context)
    return figures(plan, trace)["throughput"]


def _policy(name: str) -> tuple[Any, PagedPolicy]:
    knobs: Mapping[str, Any] = {"max_batch": 32, "blocks": 1024}
    spec, policy = complete(cell_spec(SMALL, {}, "serving", name, knobs=knobs))
    assert isinstance(policy, PagedPolicy)
    return spec, policy


def _cell(host: LiveHost, load: float, trace: RequestTrace, name: str, progress: Progress) -> ValidationCell:
    clock, (spec, policy) = time.perf_counter(), _policy(name)
    loaded = Loaded(trace, "requests", "generated", "")
    try:
        result = serve_on(host, trace, loaded, spec, policy, progress)
    except LabError as error:
        took = time.perf_counter() - clock
        return ValidationCell(_named(load), "serving", name, "failed", str(error), {}, {}, took)
    metrics = dict(result.metrics)
    predicted = result.notes["predicted"]
    took = time.perf_counter() - clock
    return ValidationCell(
        _named(load), "serving", name, "ok", None, compare(metrics, predicted), metrics, took
    )
