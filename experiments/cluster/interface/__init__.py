"""What a cluster policy sees, answers and is checked by: the only thing policies and the simulator share."""

from experiments.cluster.interface.allocation import NOTHING, Allocation, Devices, Gang, OnHost
from experiments.cluster.interface.check import gang_fault, violations
from experiments.cluster.interface.division import Contest, Divider, Division, Sharers
from experiments.cluster.interface.jobs import HIDEABLE, Demand, VisibleJobs
from experiments.cluster.interface.log import ClusterPlan, Execution, ExecutionLog
from experiments.cluster.interface.machines import Machine, Machines
from experiments.cluster.interface.performance import Performance, Rate
from experiments.cluster.interface.placement import PLACEMENTS
from experiments.cluster.interface.policy import ClusterPolicy, Decider, rules_of
from experiments.cluster.interface.pool import Pool
from experiments.cluster.interface.view import ClusterView
from experiments.cluster.interface.waiting import RankedJobs, RunningOrder, WaitingJobs

__all__ = [
    "HIDEABLE",
    "NOTHING",
    "PLACEMENTS",
    "Allocation",
    "ClusterPlan",
    "ClusterPolicy",
    "ClusterView",
    "Contest",
    "Decider",
    "Demand",
    "Devices",
    "Divider",
    "Division",
    "Execution",
    "ExecutionLog",
    "Gang",
    "Machine",
    "Machines",
    "OnHost",
    "Performance",
    "Pool",
    "RankedJobs",
    "Rate",
    "RunningOrder",
    "Sharers",
    "VisibleJobs",
    "WaitingJobs",
    "gang_fault",
    "rules_of",
    "violations",
]
