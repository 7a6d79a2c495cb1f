"""Carries plans of kernels out on a modeled device."""

from experiments.compilation.simulator.launches import replay_launches
from experiments.compilation.simulator.run import carry_out as carry_out_blocks
from experiments.compilation.simulator.tiles import carry_out as carry_out_tiles

__all__ = ["carry_out_blocks", "carry_out_tiles", "replay_launches"]
