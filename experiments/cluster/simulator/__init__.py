"""Carries out a cluster policy's decisions and measures what came of them."""

from experiments.cluster.simulator.curves import curves
from experiments.cluster.simulator.engine import ClusterSimulation, simulate
from experiments.cluster.simulator.figures import figures

__all__ = ["ClusterSimulation", "curves", "figures", "simulate"]
