"""Carries out a run of a policy that chooses batches: trace, model, hardware in; figures, curves and what
became of requests out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.core.errors import BadInput, Infeasible
from experiments.core.options import WorkloadOptions
from experiments.core.progress import Progress, part
from experiments.core.spec import Result, RunSpec, Workload
from experiments.core.units import DTYPE_BYTES, human
from experiments.hardware import Hardware, resolve
from experiments.models.served import DEFAULT, ServedModel, served_model
from experiments.serving.experiment.context import fit_to_context
from experiments.serving.experiment.prices import doubts_of, price_of
from experiments.serving.experiment.rates import max_rate, objective_of
from experiments.serving.interface import Engine, RooflineCost, ServingPlan, ServingPolicy, violations
from experiments.serving.interface.phases import InstanceShape
from experiments.serving.simulator import curves, figures, simulate
from experiments.serving.simulator.step_prices import StepCost
from experiments.sources import load, requests_of
from experiments.workloads.model import ModelSource
from experiments.workloads.requests import RequestTrace

#: Said where a profile comes with a trace that a pipeline serves.
UNREAD = "the layer profile is not used: stages of a pipeline are priced by the device's sheet"
#: Rows of the request table that an outcome carries.
MAX_ROWS = 4000

#: Share of device memory for weights and KV together; the rest is workspace (vLLM's default is 0.9 as well).
USABLE_MEMORY = 0.9


def serve_trace(spec: RunSpec, policy: ServingPolicy, progress: Progress) -> Result:
    """Simulate ``policy`` on the request trace of ``spec``.

    Nodes are pipeline stages, devices of a node share a layer.
    """
    whole, loaded = requests_of(spec.workload, spec.seed)
    context = model_of(spec.workload.options).context
    fitted = fit_to_context(whole, context, policy.truncate)
    trace = fitted.trace
    deployment = deploy(spec, trace, policy.split_cost)
    refuse_short_reservations(policy, deployment.engine.max_output)
    plan = simulate(trace, deployment.engine, policy, part(progress, 0.05, 0.5))
    if faults := violations(plan, trace, deployment.engine.kv_slots):
        return Result.from_violations(faults, plan_json(plan, trace), loaded.sha256)
    objective = objective_of(policy)

    def serve(requests: RequestTrace) -> dict[str, float]:
        return figures(simulate(requests, deployment.engine, policy), requests, objective)

    highest = max_rate(trace, policy, serve, part(progress, 0.5, 0.95))
    return Result(
        metrics={**figures(plan, trace, objective), **fitted.metrics, **highest.metrics},
        series={**curves(plan, trace, objective), **highest.series},
        plan=plan_json(plan, trace),
        workload_sha256=loaded.sha256,
        notes={
            "hardware": deployment.hardware.to_json(),
            "warnings": [
                *deployment.hardware.warnings,
                *deployment.doubts,
                *fitted.warnings,
                *doubts_of(plan),
                *highest.warnings,
            ],
            "served": deployment.to_json(),
            "trace": {
                "format": loaded.format,
                "requests": len(trace),
                "assumed": list(loaded.assumed),
                "warnings": list(loaded.warnings),
            },
        },
    )


@dataclass(frozen=True)
class Deployment:
    """A model on hardware, and the engine that it makes."""

    model: ServedModel
    hardware: Hardware
    dtype: str
    engine: Engine
    priced_by: Mapping[str, Any]
    doubts: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "model": self.model.to_json(),
            "dtype": self.dtype,
            "stages": self.engine.stages,
            "tensor_parallel": self.hardware.node.device_count,
            "kv_slots": self.engine.kv_slots,
            "max_output": self.engine.max_output,
            **self.priced_by,
        }


def deploy(spec: RunSpec, trace: RequestTrace, split_cost: float) -> Deployment:
    """The engine of ``spec``. ``Infeasible`` says by how much the weights do not fit."""
    options = spec.workload.options
    model, dtype = model_of(options), options.dtype or "float16"
    hardware = resolve(spec.hardware)
    if len(hardware.groups) > 1:
        raise BadInput(f"{hardware.name} mixes nodes", "spec.hardware", "equal nodes, one for each stage")
    slots = kv_slots(model, hardware, DTYPE_BYTES[dtype])
    longest = longest_answer(trace, slots, model.context)
    stages, tensor = hardware.node_count, hardware.node.device_count
    if trace.profiles is not None and stages == 1:
        price, told = price_of(trace.profiles, model, hardware, dtype, InstanceShape(1, tensor))
        engine = Engine(StepCost(price, split_cost, model.layers), slots, longest, context=model.context)
        return Deployment(model, hardware, dtype, engine, told)
    cost = RooflineCost(
        model,
        hardware.device,
        dtype,
        DTYPE_BYTES[dtype],
        ranks=tensor,
        stages=stages,
        rank_link=hardware.node.link,
        stage_link=hardware.network,
        per_request_layer=split_cost,
    )
    doubts = (UNREAD,) if trace.profiles is not None else ()
    told = {"cost": "roofline of the spec sheet"}
    engine = Engine(cost, slots, longest, stages, model.context)
    return Deployment(model, hardware, dtype, engine, told, doubts)


def longest_answer(trace: RequestTrace, slots: int, context: int) -> int:
    """Tokens of the longest answer of the service, without requests that it refuses as they arrive."""
    fitting = trace.output[(trace.prompt + trace.output <= slots) & (trace.prompt <= context)]
    return int((fitting if len(fitting) else trace.output).max())


def refuse_short_reservations(policy: ServingPolicy, longest: int) -> None:
    """``BadInput`` where an answer of the service would outgrow the memory that a knob reserves for it."""
    reserved = policy.longest_reserved
    if reserved is not None and reserved < longest:
        what = f"{reserved:,} tokens are reserved for an answer"
        raise BadInput(what, "knobs.max_output", f"at least the {longest:,} of the longest answer, or empty")


def model_of(options: WorkloadOptions) -> ServedModel:
    """``options.model``: a known name, a zoo name, or the path of an HF configuration."""
    source = options.model or DEFAULT
    if not source.endswith(".json"):
        return served_model(source)
    value = load(Workload(source)).value
    if not isinstance(value, ModelSource) or not value.config:
        raise BadInput("is not an HF configuration", source, "a decoder-only language model's config.json")
    return served_model(Path(source).stem, value.config)


def kv_slots(model: ServedModel, hardware: Hardware, element: int) -> int:
    """Tokens whose keys and values fit next to the weights, on all devices together."""
    return slots_on(model, hardware.device.memory_bytes, hardware.device_count, element)


def slots_on(model: ServedModel, memory: float, devices: int, element: int) -> int:
    """The same on ``devices`` of ``memory`` bytes each; ``Infeasible`` says how much is missing for one."""
    usable = USABLE_MEMORY * memory * devices
    weights = model.parameters * element
    slots = int((usable - weights) / model.kv_bytes_per_token(element))
    if slots < 1:
        missing = weights + model.kv_bytes_per_token(element) - usable
        room = f"{human(usable, 'bytes')} usable on {devices} devices"
        what = f"weights of {human(weights, 'bytes')} and one token do not fit in {room}"
        raise Infeasible(f"{what}: {human(missing, 'bytes')} are missing", f"model {model.name}", missing)
    return slots


def plan_json(plan: ServingPlan, trace: RequestTrace) -> Mapping[str, Any]:
    """What became of the requests as a table; a long one is thinned evenly, and says so."""
    step = -(-len(plan.served) // MAX_ROWS) or 1
    rows = []
    for served in plan.served[::step]:
        row = served.request
        times = (served.admitted, served.first_token, served.last_token, served.answered)
        sizes = (int(trace.prompt[row]), int(trace.output[row]), served.slots)
        arrival = float(trace.arrival[row])
        happened = [None if math.isnan(t) else t for t in times]
        ended = [served.rejected, served.reason, [list(spell) for spell in served.preempted]]
        rows.append([row, arrival, *happened, *sizes, *ended])
    columns = "request arrival admitted first_token last_token answered prompt output kv_slots rejected"
    columns += " reason preempted"
    sampling = "every request" if step == 1 else f"every {step}th of {len(plan.served):,} requests"
    return {"columns": columns.split(), "rows": rows, "sampling": sampling}
