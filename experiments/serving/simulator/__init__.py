"""Carries out a serving policy's batches, pass by pass, and measures what came of them."""

from experiments.serving.simulator.curves import curves
from experiments.serving.simulator.engine import BatchEngine, simulate
from experiments.serving.simulator.figures import figures
from experiments.serving.simulator.request_times import LatencyObjective

__all__ = ["BatchEngine", "LatencyObjective", "curves", "figures", "simulate"]
