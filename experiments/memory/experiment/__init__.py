"""One memory run, simulated or measured."""

from __future__ import annotations

from experiments.core.policy import Policy
from experiments.core.progress import Progress
from experiments.core.spec import Result, RunSpec
from experiments.memory.experiment.measured import measure, measure_in
from experiments.memory.experiment.planned import make_plan
from experiments.memory.experiment.simulated import simulate
from experiments.memory.interface import MemoryPolicy

__all__ = ["carry_out", "make_plan", "measure_in"]


def carry_out(spec: RunSpec, policy: Policy, progress: Progress) -> Result:
    """Plan and carry out one step; ``Infeasible`` names the op that does not fit."""
    assert isinstance(policy, MemoryPolicy)
    return (measure if spec.mode == "measured" else simulate)(spec, policy, progress)
