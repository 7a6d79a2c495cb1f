"""Carries out a cluster policy's decisions and measures what came of them."""

from experiments.cluster.simulator.admission import find_oversized
from experiments.cluster.simulator.costs import PartStartCosts, StartCosts
from experiments.cluster.simulator.curves import curves
from experiments.cluster.simulator.engine import ClusterSimulation, simulate
from experiments.cluster.simulator.figures import figures
from experiments.cluster.simulator.picture import executions_of, lives, occupancy, told_jobs

__all__ = [
    "ClusterSimulation",
    "PartStartCosts",
    "StartCosts",
    "curves",
    "executions_of",
    "figures",
    "find_oversized",
    "lives",
    "occupancy",
    "simulate",
    "told_jobs",
]
