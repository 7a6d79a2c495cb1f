"""Serving: a GPT answers requests here under every policy that has an engine and at three loads.

A small one on a CPU, whose layers are measured for each cell, since a shared host's speed drifts; GPT-2 XL in
bfloat16 on a GPU, measured once. Requests are drawn from a seed; the loads are shares of what the simulator
says that the policy carries by those layers. Each cell's run happens in several turns (``turns.py``).

On a GPU models also answer while they train (PipeSwitch's variants, and a process for each request).
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.optimize import brentq

from experiments.core.completion import complete
from experiments.core.errors import LabError
from experiments.core.progress import Progress, part
from experiments.serving.experiment.live_engines import LiveHost, run_steps
from experiments.serving.experiment.measured import SMALL, Turn, engine_of, prepare, serve_in_turns
from experiments.serving.interface import ServingPlan, ServingPolicy
from experiments.serving.interface.paged import PagedPolicy
from experiments.serving.simulator import figures
from experiments.validate.cells import (
    EVERYTHING,
    Chosen,
    Models,
    ValidationCell,
    cell_spec,
    left_out,
    run_cell,
)
from experiments.validate.turns import middle_of, ranges_of
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
    host = None
    for done, (load, name) in enumerate(grid):
        if chosen.out_of_time:
            yield left_out(_named(load), "serving", name)
            continue
        here = part(progress, done / len(grid), (done + 1) / len(grid))
        if host is None or device == "cpu":
            here(0.0, "measuring the layers of the model")
            host = _measure(device, part(here, 0.0, 0.2))
        yield _cell(host, load, name, chosen.turns, part(here, 0.2, 1.0))


def _measure(device: str, progress: Progress) -> LiveHost:
    return prepare(*SERVED[device], 0, LONGEST[device], progress, device)


def _seen(host: LiveHost, name: str) -> dict[str, float]:
    """The knobs of a policy that the model decides."""
    return {"acceptance": _acceptance(host)} if name == "speculative" else {}


def _acceptance(host: LiveHost) -> float:
    """Which share of drafted tokens is right of this model's greedy answers: seen on other prompts."""
    live = importlib.import_module("experiments.serving.live")
    policy = policy_of("speculative")
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


def _capacity(host: LiveHost, policy: PagedPolicy | ServingPolicy) -> float:
    """Requests a second that the policy answers, as the simulator has it, when they come as fast as the
    engine answers them at best: all at once under ``vllm_v1``.
    """
    at_once = _throughput(host, policy_of("vllm_v1"), requests_at(1e9))
    return _throughput(host, policy, requests_at(at_once))


def _throughput(host: LiveHost, policy: PagedPolicy | ServingPolicy, trace: RequestTrace) -> float:
    plan = engine_of(host, trace, policy).simulate(trace, host.price, 0)
    return figures(plan, trace)["throughput"]


def policy_of(name: str, **knobs: float) -> PagedPolicy | ServingPolicy:
    """Return the policy of a cell."""
    _, policy = complete(cell_spec(SMALL, {}, "serving", name, knobs={**POLICIES[name], **knobs}))
    assert isinstance(policy, PagedPolicy | ServingPolicy)
    return policy


def _cell(host: LiveHost, load: float, name: str, times: int, progress: Progress) -> ValidationCell:
    clock, knobs = time.perf_counter(), _seen(host, name)
    policy = policy_of(name, **knobs)
    trace = requests_at(load * _capacity(host, policy))

    def cell_of(status: str, reason: str | None, turns: Sequence[Turn] = ()) -> ValidationCell:
        figures, metrics = middle_of(turns) if turns else ({}, {})
        facts = {**knobs, **ranges_of(turns), "turns": len(turns)} if turns else {}
        took = time.perf_counter() - clock
        return ValidationCell(
            _named(load), "serving", name, status, reason, figures, metrics, took, facts=facts
        )

    try:
        turns = list(serve_in_turns(host, trace, 0, policy, times, progress))
    except LabError as error:
        return cell_of("failed", str(error))
    faults = [fault for turn in turns for fault in turn.faults]
    return cell_of("rejected", faults[0]) if faults else cell_of("ok", None, turns)
