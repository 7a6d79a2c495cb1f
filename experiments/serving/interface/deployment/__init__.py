"""Several models on a cluster: what a deployment policy sees, answers and is checked by."""

from experiments.serving.interface.deployment.actions import (
    Action,
    DeploymentView,
    Dispatcher,
    GroupView,
    Load,
    Regroup,
    Reject,
    Run,
    Unload,
    Wake,
)
from experiments.serving.interface.deployment.check import deployment_violations, group_fault
from experiments.serving.interface.deployment.costs import EncoderCost, PassCost, ToldLayers, WholeCost
from experiments.serving.interface.deployment.placement import (
    DeployedModel,
    Deployment,
    Group,
    Placement,
    ServingCluster,
)
from experiments.serving.interface.deployment.plan import Answer, DeploymentPlan, Pass, Residence
from experiments.serving.interface.deployment.policy import DeploymentPolicy

__all__ = [
    "Action",
    "Answer",
    "DeployedModel",
    "Deployment",
    "DeploymentPlan",
    "DeploymentPolicy",
    "DeploymentView",
    "Dispatcher",
    "EncoderCost",
    "Group",
    "GroupView",
    "Load",
    "Pass",
    "PassCost",
    "Placement",
    "Regroup",
    "Reject",
    "Residence",
    "Run",
    "ServingCluster",
    "ToldLayers",
    "Unload",
    "Wake",
    "WholeCost",
    "deployment_violations",
    "group_fault",
]
