"""Prompts and answers on instances of their own: what a policy that separates them sees and answers."""

from experiments.serving.interface.phases.arrangement import (
    DECODE,
    PREFILL,
    Instance,
    InstanceShape,
    instance_fault,
    place_instances,
)
from experiments.serving.interface.phases.check import phase_violations
from experiments.serving.interface.phases.plan import InstancePass, KvCopy, PhasePlan
from experiments.serving.interface.phases.policy import (
    Arrangement,
    PhaseDispatcher,
    PhasePolicy,
    Site,
    Trial,
)
from experiments.serving.interface.phases.view import InstanceView, PhaseView

__all__ = [
    "DECODE",
    "PREFILL",
    "Arrangement",
    "Instance",
    "InstancePass",
    "InstanceShape",
    "InstanceView",
    "KvCopy",
    "PhaseDispatcher",
    "PhasePlan",
    "PhasePolicy",
    "PhaseView",
    "Site",
    "Trial",
    "instance_fault",
    "phase_violations",
    "place_instances",
]
