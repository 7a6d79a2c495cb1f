"""Policies whose answers are carried out on a modeled device, and what the simulator is given for it."""

from __future__ import annotations

from pathlib import Path

from experiments.compilation import simulator
from experiments.compilation.interface import Graph
from experiments.compilation.interface.blocks import SchedulingPolicy
from experiments.compilation.interface.launches import LaunchPolicy
from experiments.compilation.interface.tiles import TilePolicy
from experiments.core import registry
from experiments.core.progress import Progress
from experiments.core.spec import Result, RunSpec
from experiments.workloads.model import ModelSource


def replay_launches(spec: RunSpec, policy: LaunchPolicy, progress: Progress) -> Result:
    """Price the model's kernels launched one by one and as one graph."""
    return simulator.replay_launches(spec, policy, progress)


def play_blocks(spec: RunSpec, policy: SchedulingPolicy, progress: Progress) -> Result:
    """Play the policy's schedule of the model's blocks on a modeled device."""
    return simulator.carry_out_blocks(spec, policy, progress)


def price_tiles(spec: RunSpec, policy: TilePolicy, progress: Progress) -> Result:
    """Price the policy's kernels, for a list of operators or for a model, which torch exports here."""
    return simulator.carry_out_tiles(spec, policy, progress, _export)


def _export(source: ModelSource, seed: int, progress: Progress, file: Path | None) -> Graph:
    """Return a model's forward pass; torch is loaded only when one is exported."""
    graph: Graph = registry.load_module("compilation", "live").graph_of(source, seed, progress, file)
    return graph
