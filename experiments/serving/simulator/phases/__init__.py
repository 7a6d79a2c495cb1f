"""Instances for prompts and for answers, and the copies of KV between them."""

from experiments.serving.simulator.phases.copies import Fabric, KvCopies
from experiments.serving.simulator.phases.engine import InstanceEngine, simulate_phases
from experiments.serving.simulator.phases.figures import phase_curves, phase_figures

__all__ = ["Fabric", "InstanceEngine", "KvCopies", "phase_curves", "phase_figures", "simulate_phases"]
