"""Carries out one cluster run: trace, cluster and policy in; figures, curves and the allocation log out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.cluster.interface import ClusterPlan, ClusterPolicy, violations
from experiments.cluster.simulator import curves, figures, simulate
from experiments.core.errors import BadInput
from experiments.core.policy import Policy
from experiments.core.progress import Progress, part
from experiments.core.spec import Result, RunSpec
from experiments.hardware import resolve
from experiments.sources import jobs_of
from experiments.workloads.jobs import JobTrace

#: Rows of the allocation log that an outcome carries.
MAX_ROWS = 4000


def carry_out(spec: RunSpec, policy: Policy, progress: Progress) -> Result:
    """Simulate ``policy`` on the job trace of ``spec`` and the nodes of its hardware."""
    if not isinstance(policy, ClusterPolicy):
        raise BadInput(f"{policy.name} is not a cluster policy", "spec.policy", "a cluster policy")
    trace, loaded = jobs_of(spec.workload)
    hardware = resolve(spec.hardware)
    capacity = [node.device_count for node in hardware.nodes]
    plan = simulate(trace, capacity, policy, part(progress, 0.05, 0.9))
    if faults := violations(plan, trace, capacity, rigid=policy.rigid):
        return Result.from_violations(faults, plan_json(plan, trace), loaded.sha256)
    return Result(
        metrics=figures(plan, trace, sum(capacity)),
        series=curves(plan, trace, sum(capacity)),
        plan=plan_json(plan, trace),
        workload_sha256=loaded.sha256,
        notes={
            "hardware": hardware.to_json(),
            "cluster": {"nodes": len(capacity), "devices": sum(capacity)},
            "trace": {
                "format": loaded.format,
                "jobs": len(trace),
                "assumed": list(loaded.assumed),
                "warnings": list(loaded.warnings),
            },
        },
    )


def plan_json(plan: ClusterPlan, trace: JobTrace) -> Mapping[str, Any]:
    """The allocation log as a table of executions; a long one is thinned evenly, and says so."""
    step = -(-len(plan.executions) // MAX_ROWS) or 1
    rows = [
        [
            trace.job[execution.gang.job],
            execution.start,
            execution.end,
            execution.gang.size,
            [list(pair) for pair in execution.gang.devices],
            "completed" if execution.completed else "preempted",
        ]
        for execution in plan.executions[::step]
    ]
    sampling = "every stint" if step == 1 else f"every {step}th of {len(plan.executions)} stints"
    return {
        "columns": ["job", "start", "end", "gpus", "devices_by_node", "ended"],
        "rows": rows,
        "stints": len(plan.executions),
        "sampling": sampling,
        "rejected": [trace.job[job] for job in plan.rejected[:MAX_ROWS]],
        "unfinished": [trace.job[job] for job in plan.unfinished[:MAX_ROWS]],
    }
