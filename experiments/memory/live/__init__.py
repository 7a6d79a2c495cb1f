"""Carries out a memory plan for real: torch runs the captured step with the plan's moves between its ops."""

from experiments.memory.live.measure import MeasuredPlan, Session
from experiments.memory.live.schedule import refuse

__all__ = ["MeasuredPlan", "Session", "refuse"]
