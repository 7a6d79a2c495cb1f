"""Where policies, simulator and live runner of the memory family meet."""

from experiments.memory.interface.artifact import Artifact
from experiments.memory.interface.check import violations
from experiments.memory.interface.machine import DeviceView, Estimate, Machine, Rate, machine_of
from experiments.memory.interface.plan import (
    Algorithm,
    Compress,
    Decompress,
    Drop,
    InPlace,
    Log,
    MemoryPlan,
    Move,
    Offload,
    OnHost,
    Place,
    Prefetch,
    Recompute,
    Wait,
    load_plan,
)
from experiments.memory.interface.policy import (
    Eviction,
    MemoryPolicy,
    ReactiveMemoryPolicy,
    Resident,
    SharedLinkPolicy,
    SharedPlans,
)
from experiments.memory.interface.rerun import Lineage
from experiments.memory.interface.space import Paging, Pool

__all__ = [
    "Algorithm",
    "Artifact",
    "Compress",
    "Decompress",
    "DeviceView",
    "Drop",
    "Estimate",
    "Eviction",
    "InPlace",
    "Lineage",
    "Log",
    "Machine",
    "MemoryPlan",
    "MemoryPolicy",
    "Move",
    "Offload",
    "OnHost",
    "Paging",
    "Place",
    "Pool",
    "Prefetch",
    "Rate",
    "ReactiveMemoryPolicy",
    "Recompute",
    "Resident",
    "SharedLinkPolicy",
    "SharedPlans",
    "Wait",
    "load_plan",
    "machine_of",
    "violations",
]
