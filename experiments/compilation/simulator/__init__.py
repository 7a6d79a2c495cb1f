"""Carries plans of kernels out on a modelled device."""

from experiments.compilation.simulator.launches import replayed
from experiments.compilation.simulator.run import carry_out

__all__ = ["carry_out", "replayed"]
