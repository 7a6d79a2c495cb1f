"""Instances for prompts and for answers, and the copies of KV between them."""

from experiments.serving.simulator.phases.copies import Fabric, KvCopies
from experiments.serving.simulator.phases.figures import phase_curves, phase_figures
from experiments.serving.simulator.phases.instance import InstanceEngine
from experiments.serving.simulator.phases.simulate import simulate_phases

__all__ = ["Fabric", "InstanceEngine", "KvCopies", "phase_curves", "phase_figures", "simulate_phases"]
