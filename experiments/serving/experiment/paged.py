"""Carries out a run of a policy over KV blocks: priced by a measured layer profile where the trace has one
beside it, else by the device's sheet.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from experiments.core.errors import BadInput, Infeasible
from experiments.core.progress import Progress, part, silent
from experiments.core.spec import Result, RunSpec
from experiments.core.units import DTYPE_BYTES
from experiments.hardware import Hardware, resolve
from experiments.models.served import ServedModel
from experiments.serving.experiment.batching import kv_slots, model_of, plan_json
from experiments.serving.experiment.context import fit_to_context
from experiments.serving.experiment.prices import doubts_of, price_of
from experiments.serving.experiment.rates import max_rate, objective_of
from experiments.serving.interface import violations
from experiments.serving.interface.paged import PagedPolicy
from experiments.serving.interface.phases import InstanceShape
from experiments.serving.interface.plan import ServingPlan
from experiments.serving.simulator import curves, figures
from experiments.serving.simulator.paged import simulate_paged
from experiments.sources import requests_of
from experiments.workloads.requests import RequestTrace


def serve_paged(spec: RunSpec, policy: PagedPolicy, progress: Progress) -> Result:
    """Simulate ``policy`` on the request trace of ``spec``, on one engine.

    Devices of a node share a layer.
    """
    whole, loaded = requests_of(spec.workload, spec.seed)
    options = spec.workload.options
    model, dtype = model_of(options), options.dtype or "float16"
    fitted = fit_to_context(whole, model.context, policy.truncate)
    trace = fitted.trace
    hardware = resolve(spec.hardware)
    if len(hardware.groups) > 1 or hardware.node_count > 1:
        raise BadInput(f"{hardware.name} has {hardware.node_count} nodes", "spec.hardware", "one node")
    price, told = price_of(
        trace.profiles, model, hardware, dtype, InstanceShape(1, hardware.node.device_count)
    )
    blocks = _blocks(policy, model, hardware, dtype)
    copy = _swap_seconds(policy, model, hardware, dtype)
    wanted, policy = policy, policy.settle(price, trace.prompt.tolist())

    def serve(requests: RequestTrace, progress: Progress = silent) -> ServingPlan:
        return simulate_paged(requests, policy, blocks, price, model.context, copy, progress, spec.seed)

    plan = serve(trace, part(progress, 0.05, 0.5))
    document = plan_json(plan, trace)
    if faults := violations(plan, trace, blocks * policy.block_size):
        return Result.from_violations(faults, document, loaded.sha256)
    objective = objective_of(policy)
    found = figures(plan, trace, objective) | _swap_figures(plan, policy, model, dtype)
    highest = max_rate(
        trace, policy, lambda one: figures(serve(one), one, objective), part(progress, 0.5, 0.95)
    )
    return Result(
        metrics={**found, **fitted.metrics, **highest.metrics},
        series={**curves(plan, trace, objective), **highest.series},
        plan=document,
        workload_sha256=loaded.sha256,
        notes={
            "hardware": hardware.to_json(),
            "warnings": [*hardware.warnings, *fitted.warnings, *doubts_of(plan), *highest.warnings],
            "served": {
                "model": model.to_json(),
                "dtype": dtype,
                "tensor_parallel": hardware.node.device_count,
                "blocks": blocks,
                "block_size": policy.block_size,
                "prefixes": _prefixes(trace, policy),
                **list_settled(wanted, policy),
                **told,
            },
            "trace": {
                "format": loaded.format,
                "requests": len(trace),
                "assumed": list(loaded.assumed),
                "warnings": list(loaded.warnings),
            },
        },
    )


def list_settled(wanted: PagedPolicy, settled: PagedPolicy) -> dict[str, Any]:
    """The knobs that a policy chose by itself before the first request."""
    names = [field.name for field in dataclasses.fields(wanted)]
    return {name: getattr(settled, name) for name in names if getattr(settled, name) != getattr(wanted, name)}


def _blocks(policy: PagedPolicy, model: ServedModel, hardware: Hardware, dtype: str) -> int:
    if policy.blocks is not None:
        return policy.blocks
    blocks = kv_slots(model, hardware, DTYPE_BYTES[dtype]) // policy.block_size
    if blocks < 1:
        raise Infeasible("no block of KV memory fits beside the weights", f"model {model.name}")
    return blocks


def _swap_seconds(policy: PagedPolicy, model: ServedModel, hardware: Hardware, dtype: str) -> float:
    """Of one block over the host link of each device, all at once."""
    size = policy.block_size * model.kv_bytes_per_token(DTYPE_BYTES[dtype])
    return hardware.device.host_link.time(size / hardware.device_count)


def _swap_figures(plan: ServingPlan, policy: PagedPolicy, model: ServedModel, dtype: str) -> dict[str, float]:
    if plan.memory is None:
        return {}
    size = policy.block_size * model.kv_bytes_per_token(DTYPE_BYTES[dtype])
    return {"swapped_bytes": float(plan.memory.swapped_blocks * size)}


def _prefixes(trace: RequestTrace, policy: PagedPolicy) -> str:
    """Which blocks can be found again."""
    if not policy.caches_prefixes:
        return "none are found again"
    if trace.hashes is None or trace.block != policy.block_size:
        return "a request's own blocks alone are found again: the trace tells none of this size"
    return "blocks of prompts by what the trace tells, of answers by their own request"
