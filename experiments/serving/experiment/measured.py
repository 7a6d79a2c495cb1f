"""Carries out a run of a policy for real: a GPT of the zoo serves the trace on this host.

Next to it stands what the simulator says, which knows the layer profile of this host and short runs of the
engine from before the run, and of the run itself how fast the host was at each moment, by a meter that knows
nothing of requests. Both are the same engine: a pass is carried out by torch or priced.
"""

from __future__ import annotations

import dataclasses
import importlib
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from experiments.core.errors import BadInput
from experiments.core.heap import freeze_heap, keep_freed_memory
from experiments.core.progress import Progress, part, weighted_parts
from experiments.core.spec import Result, RunSpec
from experiments.hardware import resolve
from experiments.models.served import served_model
from experiments.serving.experiment.batching import plan_json
from experiments.serving.experiment.context import fit_to_context
from experiments.serving.experiment.live_engines import (
    AllAtOnce,
    LiveBatches,
    LiveHost,
    LivePaged,
    between,
    layer_price,
    prices_of_engine,
    serve_all,
)
from experiments.serving.experiment.prediction import foretell, predict
from experiments.serving.experiment.rates import WHERE, goal_of, objective_of
from experiments.serving.interface import ServingPlan, ServingPolicy, violations
from experiments.serving.interface.pace import Pace
from experiments.serving.interface.paged import PagedPolicy
from experiments.serving.simulator import curves, figures
from experiments.serving.simulator.step_prices import EnginePrice
from experiments.sources import requests_of
from experiments.workloads.requests import RequestTrace

#: The model of a measured run where none is named.
SMALL = "zoo:gpt2-mini"
COMPARED = ("ttft", "tpot", "latency")
#: Short runs that foretell a measured one, since a shared host is slow at times.
SHORT_RUNS = 5


def prepare(
    source: str, dtype: str, seed: int, longest: int, progress: Progress, device: str = "cpu"
) -> LiveHost:
    """Build the model and measure its layers up to ``longest`` tokens of a step or request."""
    keep_freed_memory()
    live = importlib.import_module("experiments.serving.live")
    model = live.build(source, dtype, seed, device)
    served = served_model(source)
    hardware = resolve("local" if device == "cpu" else live.device_name(device))
    meter = live.PaceMeter() if device == "cpu" else None

    def serve(trace: RequestTrace, prompts: Sequence[Sequence[int]]) -> Any:
        return serve_all(model, AllAtOnce(), trace, prompts, live.WallClock(meter=meter)).timed

    with live.one_thread():
        times = live.measure_layers(model, longest, serve, partial(layer_price, served=served), progress)
    if meter is not None:
        meter.settle()
    return LiveHost(model, served, times, hardware, meter)


def serve_here(spec: RunSpec, policy: PagedPolicy | ServingPolicy, progress: Progress) -> Result:
    """Serve the request trace of ``spec`` on this host, on its GPU where it has one."""
    live = importlib.import_module("experiments.serving.live")
    whole, loaded = requests_of(spec.workload, spec.seed)
    if goal_of(policy).is_asked:
        where = WHERE if policy.slo_tbt_p99 is None else "knobs.slo_tbt_p99"
        raise BadInput("a search over rates is not measured", where, "empty, or a simulated run")
    if isinstance(policy, PagedPolicy) and policy.branches is not None:
        raise BadInput(
            "several answers to a prompt are not measured", "knobs.sequences", "1, or a simulated run"
        )
    options = spec.workload.options
    device = live.default_device()
    dtype = options.dtype or ("float32" if device == "cpu" else "bfloat16")
    model = options.model or SMALL
    context = served_model(model).context
    fitted = fit_to_context(whole, context, policy.truncate)
    trace = fitted.trace
    longest = min(int((trace.prompt + trace.output).max()), context)
    host = prepare(model, dtype, spec.seed, longest, part(progress, 0.0, 0.1), device)
    result = serve_on(host, trace, loaded, spec, policy, part(progress, 0.1, 1.0))
    notes = {**result.notes, "warnings": list(fitted.warnings)}
    metrics = {**result.metrics, **fitted.metrics} if result.metrics else {}
    return dataclasses.replace(result, metrics=metrics, notes=notes)


def serve_on(
    host: LiveHost,
    trace: RequestTrace,
    loaded: Any,
    spec: RunSpec,
    policy: PagedPolicy | ServingPolicy,
    progress: Progress,
) -> Result:
    """Simulate the run by what ``host`` was measured to be, then let it happen."""
    live = importlib.import_module("experiments.serving.live")
    trace = dataclasses.replace(trace, measured=None, profiles=None)
    way = engine_of(host, trace, policy)
    with live.one_thread(), freeze_heap():
        prices = list(prices_of_engine(way, SHORT_RUNS, spec.seed))
        before = predict(way, [(price, Pace.steady(price.pace)) for price in prices], spec.seed)
        prompts = live.prompts_of(trace, host.model.vocabulary, spec.seed)
        plan, pace = way.carry_out(prompts, progress)
        expected = predict(way, [(price, pace) for price in prices], spec.seed)
    document = plan_json(plan, trace)
    if faults := violations(plan, trace, way.slots):
        return Result.from_violations(faults, document, loaded.sha256)
    seen = _figures_of(plan, trace, policy, host)
    return Result(
        metrics=seen | _errors(expected.middle, seen),
        series=curves(plan, trace, objective_of(policy)),
        plan=document,
        workload_sha256=loaded.sha256,
        notes={
            "mode": "measured",
            "hardware": host.hardware.to_json(),
            "served": {
                "model": host.served.to_json(),
                "dtype": str(host.model.dtype).removeprefix("torch."),
                "tensor_parallel": 1,
                **way.told,
                "cost": "measured; the prediction by a layer profile of this host at the pace that it had",
            },
            **expected.describe(list(seen)),
            **(_describe_pace(pace, prices, before.middle) if host.meter else {}),
            "trace": {
                "format": loaded.format,
                "requests": len(trace),
                "assumed": list(loaded.assumed),
                "warnings": list(loaded.warnings),
            },
        },
    )


def _describe_pace(
    pace: Pace, prices: Sequence[EnginePrice], before: Mapping[str, float]
) -> dict[str, Mapping[str, object]]:
    """The pace in short runs and in the run, and what was foretold by the first alone."""
    means = [f"{name}_mean" for name in COMPARED]
    return {
        "predicted_before": {name: before[name] for name in means if name in before},
        "pace": {
            "before": [price.pace for price in prices],
            "mean": pace.mean,
            "range": [float(pace.factors.min()), float(pace.factors.max())],
        },
    }


@dataclass(frozen=True)
class Turn:
    """Figures of a run, foretold by all short runs of its cell and as they were seen; the rules it broke.

    ``foretold``  at the pace that the host had in the run; ``blind`` at that of the short runs around it.
    ``pace``      of the host in the run, next to that of the short runs, in the mean.
    """

    foretold: Mapping[str, float]
    blind: Mapping[str, float]
    pace: float
    seen: Mapping[str, float]
    faults: Sequence[str]


def serve_in_turns(
    host: LiveHost,
    trace: RequestTrace,
    seed: int,
    policy: PagedPolicy | ServingPolicy,
    turns: int,
    progress: Progress,
) -> Iterator[Turn]:
    """Let the same run happen so many times between short runs, each foretold by all of these."""
    live = importlib.import_module("experiments.serving.live")
    way = engine_of(host, trace, policy)
    prompts = live.prompts_of(trace, host.model.vocabulary, seed)
    with live.one_thread(), freeze_heap():
        short_runs = prices_of_engine(way, turns + 1, seed)
        prices, carried_out = [next(short_runs)], []
        for here in weighted_parts(progress, [1.0] * turns):
            carried_out.append(way.carry_out(prompts, here))
            prices.append(next(short_runs))
    price = between(prices)
    for turn, (plan, pace) in enumerate(carried_out):
        around = statistics.fmean(one.pace for one in prices[turn : turn + 2])
        foretold, blind = (foretell(way, price, seed + turn, each) for each in (pace, Pace.steady(around)))
        seen, faults = _figures_of(plan, trace, policy, host), violations(plan, trace, way.slots)
        yield Turn(foretold, blind, pace.mean / around, seen, faults)


def engine_of(
    host: LiveHost, trace: RequestTrace, policy: PagedPolicy | ServingPolicy
) -> LivePaged | LiveBatches:
    """Return the engine of this host under ``policy``."""
    if isinstance(policy, PagedPolicy):
        return LivePaged(host, trace, policy)
    return LiveBatches(host, trace, policy)


def _errors(expected: Mapping[str, float], seen: Mapping[str, float]) -> dict[str, float]:
    """The predicted means over the measured ones, less 1."""
    names = [name for name in COMPARED if f"{name}_mean" in expected and seen.get(f"{name}_mean")]
    return {f"{name}_error": expected[f"{name}_mean"] / seen[f"{name}_mean"] - 1 for name in names}


def _figures_of(
    plan: ServingPlan, trace: RequestTrace, policy: PagedPolicy | ServingPolicy, host: LiveHost
) -> dict[str, float]:
    seen, log = figures(plan, trace, objective_of(policy)), plan.memory
    return seen | ({"swapped_bytes": float(log.swapped_blocks * log.size * host.token_bytes)} if log else {})
