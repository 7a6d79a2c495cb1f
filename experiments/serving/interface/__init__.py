"""What a serving policy sees, answers and is checked by: the only thing policies and the simulator share."""

from experiments.serving.interface.batch import Admission, Batch, Wait
from experiments.serving.interface.check import batch_fault, violations
from experiments.serving.interface.engine import CostModel, Engine, Load, LoadCost, RooflineCost
from experiments.serving.interface.plan import Iteration, Served, ServingPlan
from experiments.serving.interface.policy import Scheduler, ServingPolicy
from experiments.serving.interface.view import ServingView

__all__ = [
    "Admission",
    "Batch",
    "CostModel",
    "Engine",
    "Iteration",
    "Load",
    "LoadCost",
    "RooflineCost",
    "Scheduler",
    "Served",
    "ServingPlan",
    "ServingPolicy",
    "ServingView",
    "Wait",
    "batch_fault",
    "violations",
]
