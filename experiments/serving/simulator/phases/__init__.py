"""Instances for prompts and for answers, and the copies of KV between them."""

from experiments.serving.simulator.phases.copies import Fabric, KvCopies
from experiments.serving.simulator.phases.engine import simulate_phases
from experiments.serving.simulator.phases.figures import phase_curves, phase_figures
from experiments.serving.simulator.phases.instance import InstanceEngine

__all__ = ["Fabric", "InstanceEngine", "KvCopies", "phase_curves", "phase_figures", "simulate_phases"]
