"""Carries out one cluster run: trace, cluster and policy in; figures, curves and the allocation log out.

Measured runs are in ``measured``.
"""

from __future__ import annotations

from experiments.cluster.experiment.clusters import cluster_of, machines_of
from experiments.cluster.experiment.document import plan_json
from experiments.cluster.experiment.knowledge import columns_of_formats, refuse_unknown
from experiments.cluster.experiment.measured import measure
from experiments.cluster.interface import ClusterPolicy, violations
from experiments.cluster.planning.performance import performance_of, timed_by
from experiments.cluster.simulator import curves, figures
from experiments.cluster.simulator.releases import engine_of
from experiments.core.errors import BadInput
from experiments.core.policy import Policy
from experiments.core.progress import Progress, part
from experiments.core.spec import Result, RunSpec
from experiments.sources import jobs_of

__all__ = ["carry_out", "machines_of", "plan_json"]


def carry_out(spec: RunSpec, policy: Policy, progress: Progress) -> Result:
    """Simulate ``policy`` on the job trace of ``spec`` and the nodes of its hardware, or measure it here."""
    if not isinstance(policy, ClusterPolicy):
        raise BadInput(f"{policy.name} is not a cluster policy", "spec.policy", "a cluster policy")
    if spec.mode == "measured":
        return measure(spec, policy, progress)
    trace, loaded = jobs_of(spec.workload, spec.seed)
    machines, described = cluster_of(spec.hardware)
    performance = performance_of(trace, machines)
    trace = timed_by(trace, performance)
    refuse_unknown(policy, trace, performance, columns_of_formats())
    simulate = engine_of(policy.rules)
    plan = simulate(trace, machines, policy, performance, spec.seed, part(progress, 0.05, 0.9))
    document = plan_json(plan, trace, machines)
    if faults := violations(plan, trace, machines, performance, rigid=policy.keeps_sizes):
        return Result.from_violations(faults, document, loaded.sha256)
    return Result(
        metrics=figures(plan, trace, machines),
        series=curves(plan, trace, machines),
        plan=document,
        workload_sha256=loaded.sha256,
        notes={
            "hardware": described,
            "cluster": {"nodes": len(machines), "devices": machines.devices},
            "performance": {"model": performance.name, "unit": performance.unit, **performance.describe()},
            **({"solver": plan.facts["solver"]} if "solver" in plan.facts else {}),
            "engine": {"rules": policy.rules, **plan.facts, "quirks": dict(plan.quirks)},
            "trace": {
                "format": loaded.format,
                "jobs": len(trace),
                "assumed": list(loaded.assumed),
                "warnings": list(loaded.warnings),
            },
        },
    )
