"""What a cluster policy sees, answers and is checked by: the only thing policies and the simulator share."""

from experiments.cluster.interface.allocation import NOTHING, Allocation, ClusterPlan, Execution, Gang
from experiments.cluster.interface.check import gang_fault, violations
from experiments.cluster.interface.jobs import HIDEABLE, VisibleJobs
from experiments.cluster.interface.placement import PLACEMENTS, Pool
from experiments.cluster.interface.policy import ClusterPolicy, Decider
from experiments.cluster.interface.view import ClusterView
from experiments.cluster.interface.waiting import WaitingJobs

__all__ = [
    "HIDEABLE",
    "NOTHING",
    "PLACEMENTS",
    "Allocation",
    "ClusterPlan",
    "ClusterPolicy",
    "ClusterView",
    "Decider",
    "Execution",
    "Gang",
    "Pool",
    "VisibleJobs",
    "WaitingJobs",
    "gang_fault",
    "violations",
]
