"""Carries out a memory plan on a model of the hardware: event-driven over ops, no clock, no chance."""

from experiments.memory.simulator.engine import Simulator
from experiments.memory.simulator.lanes import lanes
from experiments.memory.simulator.report import CAUSES, MemorySimulation, curves
from experiments.memory.simulator.shared import run_shared

__all__ = ["CAUSES", "MemorySimulation", "Simulator", "curves", "lanes", "run_shared"]
