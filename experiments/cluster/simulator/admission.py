"""Jobs that could not run on the whole cluster, were it empty."""

from __future__ import annotations

from experiments.cluster.interface import ClusterPolicy, Demand, Machines, Pool, VisibleJobs
from experiments.cluster.interface.policy import REFUSE
from experiments.core.errors import Infeasible
from experiments.workloads.jobs import JobTrace


def find_oversized(trace: JobTrace, machines: Machines, policy: ClusterPolicy) -> dict[int, str]:
    """Return the jobs that never fit, each with the reason.

    ``Infeasible`` names the largest of them unless the policy's ``oversized`` drops them.
    """
    jobs, pool = VisibleJobs(trace, frozenset()), Pool(machines)
    reasons: dict[Demand, str] = {}
    found: dict[int, str] = {}
    for job in range(len(trace)):
        demand = policy.insists_on(jobs.demand(job))
        if demand not in reasons:
            reasons[demand] = _lack(demand, pool, policy)
        if reasons[demand]:
            found[job] = reasons[demand]
    if found and policy.oversized == REFUSE:
        largest = max(found, key=lambda job: (jobs.gpus[job], -job))
        missing = jobs.gpus[largest] - machines.devices
        more = f"; {len(found)} jobs can never run" if len(found) > 1 else ""
        raise Infeasible(found[largest] + more, f"job {trace.job[largest]}", max(missing, 0) or None)
    return found


def _lack(demand: Demand, pool: Pool, policy: ClusterPolicy) -> str:
    gpus = demand.gpus
    devices = sum(node.gpus for node in pool.machines if not demand.types or node.device in demand.types)
    if gpus > devices:
        of_type = f" of type {' or '.join(demand.types)}" if demand.types else ""
        return f"wants {gpus} GPUs{of_type}, the cluster has {devices}: {gpus - devices} are missing"
    if pool.place(0, demand, "pack") is None:
        wants = [f"{gpus} GPUs"] if gpus else []
        wants += [f"{demand.cpus:g} processors"] if demand.cpus else []
        wants += [f"{demand.memory:g} bytes of host memory"] if demand.memory else []
        largest = max(pool.machines, key=lambda node: (node.cpus, node.memory))
        has = f"{largest.cpus:g} processors and {largest.memory:g} bytes"
        return f"wants {', '.join(wants)}, and no node has them: the largest has {has}"
    return ""
