"""One model divided over a torus of chips: what a policy is told, answers, and what that costs."""

from experiments.serving.interface.partitioning.cost import PhaseCost, phase_cost
from experiments.serving.interface.partitioning.layouts import (
    BATCH,
    HEADS,
    LAYOUTS,
    MULTIHEAD,
    Layout,
    activation_elements,
    kv_bytes_per_context_token,
    weight_elements,
)
from experiments.serving.interface.partitioning.policy import Partition, PartitioningPolicy
from experiments.serving.interface.partitioning.site import DividedModel, Phase, Torus

__all__ = [
    "BATCH",
    "HEADS",
    "LAYOUTS",
    "MULTIHEAD",
    "DividedModel",
    "Layout",
    "Partition",
    "PartitioningPolicy",
    "Phase",
    "PhaseCost",
    "Torus",
    "activation_elements",
    "kv_bytes_per_context_token",
    "phase_cost",
    "weight_elements",
]
