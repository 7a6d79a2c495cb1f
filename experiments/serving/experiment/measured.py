"""Carries out a run of a policy over KV blocks for real: a GPT of the zoo serves the trace on this host.

Beside it stands what the simulator says, which knows the layer profile of this host that was measured before
the run, and nothing of the run itself.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.core.errors import BadInput
from experiments.core.progress import Progress, part
from experiments.core.spec import Result, RunSpec
from experiments.core.units import human
from experiments.hardware.local import this_host
from experiments.models.served import ServedModel, served_model
from experiments.serving.experiment.batching import plan_json
from experiments.serving.interface import violations
from experiments.serving.interface.paged import PagedPolicy
from experiments.serving.interface.plan import ServingPlan
from experiments.serving.simulator import LatencyObjective, curves, figures
from experiments.serving.simulator.paged import simulate_paged
from experiments.serving.simulator.step_prices import ProfilePrice
from experiments.sources import requests_of
from experiments.workloads.profiles.layer_times import LayerTimes
from experiments.workloads.requests import RequestTrace

#: The model of a measured run where none is named.
SMALL = "zoo:gpt2-mini"
#: Bytes of KV memory where no number of blocks is told, and the longest run in seconds.
KV_BYTES, MOST_SECONDS = 2e9, 1800.0
COMPARED = ("ttft", "tpot", "latency")


@dataclass(frozen=True)
class LiveHost:
    """A model that was built here, and what its layers take."""

    model: Any
    served: ServedModel
    times: LayerTimes

    @property
    def price(self) -> ProfilePrice:
        return ProfilePrice(self.times, self.served)


def prepare(
    source: str, dtype: str, seed: int, longest: int, progress: Progress, device: str = "cpu"
) -> LiveHost:
    """Build the model and measure its layers up to ``longest`` tokens of a step or request."""
    live = importlib.import_module("experiments.serving.live")
    model = live.build(source, dtype, seed, device)
    with live.one_thread():
        return LiveHost(model, served_model(source), live.measure_layers(model, longest, progress))


def serve_here(spec: RunSpec, policy: PagedPolicy, progress: Progress) -> Result:
    """Serve the request trace of ``spec`` on this host."""
    trace, loaded = requests_of(spec.workload)
    options = spec.workload.options
    dtype = options.dtype or "float32"
    longest = int((trace.prompt + trace.output).max())
    host = prepare(options.model or SMALL, dtype, spec.seed, longest, part(progress, 0.0, 0.1))
    return serve_on(host, trace, loaded, spec, policy, part(progress, 0.1, 1.0))


def serve_on(
    host: LiveHost, trace: RequestTrace, loaded: Any, spec: RunSpec, policy: PagedPolicy, progress: Progress
) -> Result:
    """Simulate the run by what ``host`` was measured to be, then let it happen."""
    live = importlib.import_module("experiments.serving.live")
    trace = dataclasses.replace(trace, measured=None, profiles=None)
    blocks = policy.blocks or _blocks(trace, host, policy.block_size)
    context = host.served.context
    predicted = simulate_paged(trace, policy, blocks, host.price, context, seed=spec.seed)
    expected = figures(predicted, trace)
    _refuse_long(predicted)
    prompts = live.prompts_of(trace, host.model.vocabulary, spec.seed)
    with live.one_thread():
        ran = live.LiveServing(trace, policy, host.model, blocks, prompts, progress).run()
    document = plan_json(ran.plan, trace)
    if faults := violations(ran.plan, trace, blocks * policy.block_size):
        return Result.from_violations(faults, document, loaded.sha256)
    seen = figures(ran.plan, trace, LatencyObjective(policy.slo_ttft, policy.slo_tpot))
    return Result(
        metrics=seen | _errors(expected, seen) | {"swapped_bytes": _swapped(ran.plan, host)},
        series=curves(ran.plan, trace),
        plan=document,
        workload_sha256=loaded.sha256,
        notes={
            "mode": "measured",
            "hardware": this_host().to_json(),
            "served": {
                "model": host.served.to_json(),
                "dtype": spec.workload.options.dtype or "float32",
                "tensor_parallel": 1,
                "blocks": blocks,
                "block_size": policy.block_size,
                "cost": "measured; the prediction by a layer profile of this host",
            },
            "predicted": {name: expected[name] for name in seen if name in expected},
            "trace": {
                "format": loaded.format,
                "requests": len(trace),
                "assumed": list(loaded.assumed),
                "warnings": list(loaded.warnings),
            },
        },
    )


def _blocks(trace: RequestTrace, host: LiveHost, size: int) -> int:
    """As many as all requests need together, within the memory set aside."""
    token = host.served.kv_bytes_per_token(host.model.body.tokens.weight.element_size())
    wanted = int(np.sum(-(-(trace.prompt + trace.output) // size)))
    return max(1, min(wanted, int(KV_BYTES / token / size)))


def _refuse_long(predicted: ServingPlan) -> None:
    seconds = max((row.end for row in predicted.iterations), default=0.0)
    if seconds > MOST_SECONDS:
        what = f"the trace would take {human(seconds, 's')} here"
        raise BadInput(what, "spec.workload", f"at most {MOST_SECONDS:g} s: a limit, or a smaller model")


def _errors(expected: Mapping[str, float], seen: Mapping[str, float]) -> dict[str, float]:
    """The simulator's means over the measured ones, less 1."""
    names = [name for name in COMPARED if f"{name}_mean" in expected and seen.get(f"{name}_mean")]
    return {f"{name}_error": expected[f"{name}_mean"] / seen[f"{name}_mean"] - 1 for name in names}


def _swapped(plan: ServingPlan, host: LiveHost) -> float:
    token = host.served.kv_bytes_per_token(host.model.body.tokens.weight.element_size())
    return float(plan.memory.swapped_blocks * plan.memory.size * token) if plan.memory else 0.0
