"""Carries out a serving policy's batches, pass by pass, and measures what came of them."""

from experiments.serving.simulator.engine import Simulation, simulate
from experiments.serving.simulator.figures import Objective, curves, figures

__all__ = ["Objective", "Simulation", "curves", "figures", "simulate"]
