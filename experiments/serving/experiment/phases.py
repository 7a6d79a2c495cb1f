"""Carries out a run with instances for prompts and for answers: what was tried, and what came out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from experiments.core.errors import BadInput, ImpossiblePlan, Infeasible
from experiments.core.progress import Progress, part, silent
from experiments.core.spec import Result, RunSpec
from experiments.core.units import DTYPE_BYTES
from experiments.hardware import resolve
from experiments.serving.experiment.batching import model_of, plan_json, slots_on
from experiments.serving.experiment.context import fit_to_context
from experiments.serving.experiment.phase_cluster import PhaseCluster
from experiments.serving.experiment.phase_trials import ArrangementTrials
from experiments.serving.experiment.prices import doubts_of
from experiments.serving.experiment.rates import max_rate, objective_of
from experiments.serving.interface.phases import (
    Arrangement,
    PhasePlan,
    PhasePolicy,
    Site,
    instance_fault,
    phase_violations,
)
from experiments.serving.simulator.phases import phase_curves, phase_figures
from experiments.sources import requests_of
from experiments.workloads.requests import RequestTrace

#: Rows of a table of an outcome.
ROWS = 4000


def serve_phases(spec: RunSpec, policy: PhasePolicy, progress: Progress) -> Result:
    """Arrange ``policy``'s instances, then simulate them on the request trace of ``spec``."""
    whole, loaded = requests_of(spec.workload, spec.seed)
    options = spec.workload.options
    hardware = resolve(spec.hardware)
    if len(hardware.groups) > 1:
        raise BadInput(f"{hardware.name} mixes nodes", "spec.hardware", "equal nodes")
    fitted = fit_to_context(whole, model_of(options).context, policy.truncate)
    trace = fitted.trace
    cluster = PhaseCluster(policy, model_of(options), hardware, options.dtype or "float16", trace.profiles)
    trials = ArrangementTrials(cluster, trace, spec.seed, part(progress, 0.02, 0.4))
    site = _site(cluster, trace, trials)
    arrangement = policy.arrange(site)
    if fault := instance_fault(arrangement.instances, hardware.device_count, hardware.node.device_count):
        raise ImpossiblePlan([fault])
    plan = cluster.serve(arrangement.instances, trace, progress=part(progress, 0.4, 0.6))
    document = _plan_json(plan, trace, arrangement)
    if faults := phase_violations(plan, trace):
        return Result.from_violations(faults, document, loaded.sha256)
    objective = objective_of(policy)

    def serve(requests: RequestTrace) -> dict[str, float]:
        instances = arrangement.instances
        if policy.arranges_by_rate:
            instances = policy.arrange(replace(site, rate=_rate_of(requests))).instances
        return phase_figures(cluster.serve(instances, requests, progress=silent), requests, objective)

    highest = max_rate(trace, policy, serve, part(progress, 0.6, 0.95))
    return Result(
        metrics={**phase_figures(plan, trace, objective), **fitted.metrics, **highest.metrics},
        series={**phase_curves(plan, trace, objective), **highest.series},
        plan=document,
        workload_sha256=loaded.sha256,
        notes={
            "hardware": hardware.to_json(),
            "warnings": [
                *hardware.warnings,
                *fitted.warnings,
                *trials.doubts(),
                *doubts_of(plan.serving),
                *highest.warnings,
            ],
            "served": cluster.to_json() | trials.to_json(),
            "trace": {
                "format": loaded.format,
                "requests": len(trace),
                "assumed": list(loaded.assumed),
                "warnings": list(loaded.warnings),
            },
        },
    )


def _site(cluster: PhaseCluster, trace: RequestTrace, trials: ArrangementTrials) -> Site:
    hardware = cluster.hardware
    longest = int(np.minimum(trace.prompt, cluster.model.context).max())
    shapes = cluster.shapes(longest)
    if not shapes:
        # Says how much is missing on all devices; else the longest prompt is what does not fit.
        slots = slots_on(
            cluster.model, hardware.device.memory_bytes, hardware.device_count, DTYPE_BYTES[cluster.dtype]
        )
        what = f"no instance holds the weights and a prompt of {longest} tokens"
        raise Infeasible(what, f"model {cluster.model.name}", float(max(0, longest - slots)))
    rate = _rate_of(trace)
    per_node = hardware.node.device_count
    return Site(hardware.node_count, per_node, shapes, rate, trials.carried, trials.try_out, trials.note)


def _rate_of(trace: RequestTrace) -> float:
    span = float(trace.arrival[-1] - trace.arrival[0])
    return len(trace) / span if span else float(len(trace))


def _plan_json(plan: PhasePlan, trace: RequestTrace, arrangement: Arrangement) -> dict[str, Any]:
    step = -(-len(plan.copies) // ROWS) or 1
    rows = [list(copy) for copy in plan.copies[::step]]
    stride = -(-len(plan.passes) // ROWS) or 1
    passes = [list(row) for row in sorted(plan.passes, key=lambda row: row.start)[::stride]]
    return {
        **arrangement.plan,
        **plan_json(plan.serving, trace),
        "instances": [one.to_json() for one in plan.instances],
        "copies": {
            "columns": ["request", "source", "goal", "bytes", "asked", "start", "end"],
            "rows": rows,
            "sampling": "every copy" if step == 1 else f"every {step}th of {len(plan.copies)} copies",
        },
        "passes": {
            "columns": ["instance", "start", "free", "end", "prefill", "decode", "steps", "used_blocks"],
            "rows": passes,
            "sampling": "every pass" if stride == 1 else f"every {stride}th of {len(plan.passes)} passes",
        },
    }
