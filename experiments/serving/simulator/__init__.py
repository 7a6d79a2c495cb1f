"""Carries out a serving policy's batches, pass by pass, and measures what came of them."""

from experiments.serving.simulator.engine import BatchEngine, simulate
from experiments.serving.simulator.figures import LatencyObjective, curves, figures

__all__ = ["BatchEngine", "LatencyObjective", "curves", "figures", "simulate"]
