"""Where policies, simulator and live runner of the memory family meet."""

from experiments.memory.interface.check import violations
from experiments.memory.interface.machine import DeviceView, Estimate, Machine, Rate, machine_of
from experiments.memory.interface.plan import (
    Algorithm,
    Compress,
    Decompress,
    Drop,
    MemoryPlan,
    Move,
    Offload,
    Place,
    Prefetch,
    Recompute,
    Wait,
    load_plan,
)
from experiments.memory.interface.policy import Eviction, MemoryPolicy, ReactiveMemoryPolicy, Resident
from experiments.memory.interface.rerun import Lineage

__all__ = [
    "Algorithm",
    "Compress",
    "Decompress",
    "DeviceView",
    "Drop",
    "Estimate",
    "Eviction",
    "Lineage",
    "Machine",
    "MemoryPlan",
    "MemoryPolicy",
    "Move",
    "Offload",
    "Place",
    "Prefetch",
    "Rate",
    "ReactiveMemoryPolicy",
    "Recompute",
    "Resident",
    "Wait",
    "load_plan",
    "machine_of",
    "violations",
]
