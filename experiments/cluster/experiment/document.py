"""What an outcome keeps of a cluster run's plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.cluster.interface import ClusterPlan, Machines
from experiments.cluster.simulator import executions_of, lives, occupancy, told_jobs
from experiments.workloads.jobs import JobTrace

#: Rejected and unfinished jobs that an outcome names.
MAX_ROWS = 4000


def plan_json(plan: ClusterPlan, trace: JobTrace, machines: Machines) -> Mapping[str, Any]:
    """The allocation log as a table of executions, of a long one those of some jobs in whole, and says so.

    Times are the trace's own; ``origin`` is its first submission.
    """
    jobs, sampling = told_jobs(plan, trace)
    origin = float(trace.submit[0])
    return {
        "columns": ["job", "start", "end", "gpus", "devices_by_node", "ended", "restarting"],
        "rows": executions_of(plan, trace, machines, jobs),
        "executions": len(plan.executions),
        "sampling": sampling,
        "origin": origin,
        "jobs": lives(plan, trace, jobs),
        "nodes": occupancy(plan, machines, origin),
        "rejected": [trace.job[job] for job in plan.rejected[:MAX_ROWS]],
        "unfinished": [trace.job[job] for job in plan.unfinished[:MAX_ROWS]],
    }
