"""Serving: a GPT answers requests here under every policy that has an engine and at three loads.

A small one on a CPU, whose layers are measured before each run, since a shared host's speed drifts, and again
where it changed within a cell (``pace.py``); GPT-2 XL in bfloat16 on a GPU, measured once. Requests are drawn
from a seed; the loads are shares of what the simulator says that the policy carries on this host at first.
How open a cell is its ``predicted_range`` says: near saturation a queue makes much of small differences.

On a GPU models also answer while they train (PipeSwitch's variants, and a process for each request).
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import brentq

from experiments.core.completion import complete
from experiments.core.errors import LabError
from experiments.core.progress import Progress, part
from experiments.serving.experiment.live_engines import AllAtOnce, LiveHost, run_steps, time_steps_of
from experiments.serving.experiment.measured import SMALL, engine_of, prepare, serve_on
from experiments.serving.interface import ServingPlan, ServingPolicy
from experiments.serving.interface.paged import PagedPolicy
from experiments.serving.simulator import figures
from experiments.sources import Loaded
from experiments.validate.cells import (
    EVERYTHING,
    Chosen,
    Models,
    ValidationCell,
    cell_spec,
    compare,
    left_out,
    run_cell,
)
from experiments.validate.pace import Pace, steadiest
from experiments.workloads.requests import RequestTrace

#: Policies, and the knobs that bound them.
BLOCKS = {"max_batch": 32, "blocks": 1024}
POLICIES: Mapping[str, Mapping[str, Any]] = {
    "vllm_v1": BLOCKS,
    "vllm_paged": BLOCKS,
    "sarathi_chunked": BLOCKS,
    "speculative": {**BLOCKS, "draft_tokens": 4, "draft_cost": 0.0},
    "orca": {"max_batch": 32},
    "static_batching": {"max_batch": 8},
    "dynamic_batching": {"max_batch": 32},
}
#: Requests of a run, and shares of the load that a policy carries.
REQUESTS, LOADS = 60, (0.3, 0.6, 0.9)
TRACE = "generated requests"
#: Requests at once that tell the host's pace, and the tokens of their prompts and answers.
WORK = (4, 128, 64)
#: The model and its numbers, and up to how many tokens its layers are measured.
SERVED = {"cpu": (SMALL, "float32"), "cuda": ("zoo:gpt2-xl", "bfloat16")}
LONGEST = {"cpu": 512, "cuda": 1024}

#: Models that answer and train on one GPU; policies with what tells their cells apart.
SWITCHED: dict[str, Models] = {
    "cpu": {},
    "cuda": {"zoo:resnet152": {"batch": 8}, "zoo:bert-base": {"batch": 8, "sequence": 128}},
}
SWITCHES: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("pipeswitch", {"transmission": "ready"}, ": ready"),
    ("pipeswitch", {}, ""),
    ("pipeswitch", {"transmission": "per layer"}, ": per layer"),
    ("pipeswitch", {"transmission": "grouped"}, ": grouped"),
    ("pipeswitch", {"transmission": "per layer, no pipeline"}, ": per layer, no pipeline"),
    ("pipeswitch", {"workers": "one process"}, ": one process"),
    ("stop_and_start", {}, ""),
)


def models(device: str) -> Models:
    """One model at three loads, and those that switch."""
    return {**{_named(load): {"model": SERVED[device][0]} for load in LOADS}, **SWITCHED[device]}


def _named(load: float) -> str:
    return f"{TRACE} at {load:.0%} of the load"


def cells(device: str, progress: Progress, chosen: Chosen = EVERYTHING) -> Iterator[ValidationCell]:
    share = 0.5 if SWITCHED[device] else 0.0
    yield from _switching_cells(device, part(progress, 0.0, share), chosen)
    yield from _serving_cells(device, part(progress, share, 1.0), chosen)


def _switching_cells(device: str, progress: Progress, chosen: Chosen) -> Iterator[ValidationCell]:
    """Each variant on each model: a run as from the command line."""
    grid = [
        (model, options, plan)
        for model, options in chosen.of(SWITCHED[device]).items()
        for plan in SWITCHES
        if chosen.has(plan[0])
    ]
    for done, (model, options, (policy, knobs, variant)) in enumerate(grid):
        if chosen.out_of_time:
            yield left_out(model, "serving", policy + variant)
            continue
        here = part(progress, done / len(grid), (done + 1) / len(grid))
        spec = cell_spec(model, options, "serving", policy, knobs=knobs)
        yield run_cell(spec, model, policy + variant, here)


def _serving_cells(device: str, progress: Progress, chosen: Chosen) -> Iterator[ValidationCell]:
    grid = [(load, name) for load in LOADS for name in POLICIES if chosen.has(name)]
    grid = [(load, name) for load, name in grid if _named(load) in chosen.of(models(device))]
    if not grid:
        return
    progress(0.0, "measuring the layers of the model")
    host = _measure(device, part(progress, 0.0, 0.1))
    most = {name: _capacity(host, name) for name in POLICIES}
    pace = partial(Pace, _work(host))
    for done, (load, name) in enumerate(grid):
        here = part(progress, 0.1 + 0.9 * done / len(grid), 0.1 + 0.9 * (done + 1) / len(grid))
        if chosen.out_of_time:
            yield left_out(_named(load), "serving", name)
        elif device == "cpu":
            yield steadiest(partial(_anew, load, load * most[name], name), pace, here)
        else:
            yield _cell(host, load, load * most[name], name, here)


def _work(host: LiveHost) -> Callable[[], object]:
    """Steps like those of the cells."""
    live = importlib.import_module("experiments.serving.live")
    count, prompt, answer = WORK
    trace = RequestTrace(
        "pace", np.zeros(count), np.full(count, prompt), np.full(count, answer), ("",) * count
    )
    prompts = live.prompts_of(trace, host.model.vocabulary, 0)

    def work() -> None:
        with live.one_thread():
            time_steps_of(host.model, AllAtOnce(), trace, prompts)

    return work


def _anew(load: float, rate: float, name: str, pace: Pace, progress: Progress) -> ValidationCell:
    """A cell by what the host is just now."""
    pace.look()
    host = _measure("cpu", part(progress, 0.0, 0.2))
    cell = _cell(host, load, rate, name, part(progress, 0.2, 1.0), pace.look)
    pace.look()
    return cell


def _measure(device: str, progress: Progress) -> LiveHost:
    return prepare(*SERVED[device], 0, LONGEST[device], progress, device)


def _seen(host: LiveHost, name: str) -> dict[str, float]:
    """The knobs of a policy that the model decides."""
    return {"acceptance": _acceptance(host)} if name == "speculative" else {}


def _acceptance(host: LiveHost) -> float:
    """Which share of drafted tokens is right of this model's greedy answers: seen on other prompts."""
    live = importlib.import_module("experiments.serving.live")
    policy = policy_of("speculative")[1]
    assert isinstance(policy, PagedPolicy)
    trace = requests_at(1e9)
    prompts = live.prompts_of(trace, host.model.vocabulary, 1)
    executor = live.TorchSteps(host.model, 1024, policy.block_size, prompts)
    return acceptance_of(run_steps(trace, policy, 1024, executor))


def acceptance_of(plan: ServingPlan) -> float:
    """Return the share of drafted tokens that were right.

    A verification of k drafts gives (1 - a^(k+1)) / (1 - a) tokens.
    """
    log = plan.memory
    assert log is not None
    mean = log.verified_tokens / log.verifications
    drafts = range(POLICIES["speculative"]["draft_tokens"] + 1)
    return float(brentq(lambda share: sum(share**n for n in drafts) - mean, 0.0, 1.0))


def requests_at(rate: float) -> RequestTrace:
    """Poisson arrivals at ``rate`` requests a second, with prompts and answers of any length in a range."""
    rng = np.random.default_rng(0)
    arrival = np.cumsum(rng.exponential(1.0, REQUESTS)) / rate
    prompt, output = rng.integers(16, 385, REQUESTS), rng.integers(8, 121, REQUESTS)
    return RequestTrace(TRACE, arrival - arrival[0], prompt, output, ("",) * REQUESTS)


def _capacity(host: LiveHost, name: str) -> float:
    """Requests a second that the policy answers, as the simulator has it, when they come as fast as the
    engine answers them at best: all at once under ``vllm_v1``.
    """
    at_once = _throughput(host, policy_of("vllm_v1")[1], requests_at(1e9))
    return _throughput(host, policy_of(name, **_seen(host, name))[1], requests_at(at_once))


def _throughput(host: LiveHost, policy: PagedPolicy | ServingPolicy, trace: RequestTrace) -> float:
    plan = engine_of(host, trace, policy).simulate(trace, host.price, 0)
    return figures(plan, trace)["throughput"]


def policy_of(name: str, **knobs: float) -> tuple[Any, PagedPolicy | ServingPolicy]:
    """Return the spec and the policy of a cell."""
    spec, policy = complete(cell_spec(SMALL, {}, "serving", name, knobs={**POLICIES[name], **knobs}))
    assert isinstance(policy, PagedPolicy | ServingPolicy)
    return spec, policy


def _cell(
    host: LiveHost,
    load: float,
    rate: float,
    name: str,
    progress: Progress,
    once_foretold: Callable[[], None] = lambda: None,
) -> ValidationCell:
    clock, knobs = time.perf_counter(), _seen(host, name)
    (spec, policy), trace = policy_of(name, **knobs), requests_at(rate)
    loaded = Loaded(trace, "requests", "generated", "")
    try:
        result = serve_on(host, trace, loaded, spec, policy, progress, once_foretold)
    except LabError as error:
        took = time.perf_counter() - clock
        return ValidationCell(_named(load), "serving", name, "failed", str(error), {}, {}, took)
    metrics, took = dict(result.metrics), time.perf_counter() - clock
    compared = compare(metrics, result.notes.get("predicted", {}))
    within = result.notes.get("predicted_range", {})
    facts = {
        **knobs,
        "predicted_range": {metric: within[metric] for metric in compared if metric in within},
    }
    return ValidationCell(
        _named(load), "serving", name, result.status, result.reason, compared, metrics, took, facts=facts
    )
