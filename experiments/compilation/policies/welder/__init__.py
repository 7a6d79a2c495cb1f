"""Welder (Shi et al., OSDI 2023).

Operators are connected at the level of tiles, so that results stay on the chip.

A tile of a group's result says, through the operators' index maps, which tile of every operator before it is
needed; intermediate tiles live in shared memory (or registers) and only the group's own inputs and outputs
move. Groups grow greedily along the graph while the modeled time falls.

What is chosen here where the paper and its release leave it open: candidates are timed by the model of
``planning.tiles.group_tile`` (bytes of all blocks, or arithmetic at the rate that the last wave leaves) with
a launch each, where the release runs ten on the device; a register connection is tried for a reduction with
one element-wise reader. Results are not followed through views (reshapes, transposes). Fused and unfused are
priced by the same model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.compilation.interface.architecture import Architecture
from experiments.compilation.interface.tile_graph import TileGraph
from experiments.compilation.interface.tiles import (
    KernelLaunch,
    PlannedKernel,
    TileCost,
    TilePlan,
    TilePolicy,
)
from experiments.compilation.planning.tiles.group_tile import bound, least_bytes, least_seconds
from experiments.compilation.policies.welder.connection import WeldedKernel, Welding, launch_order
from experiments.compilation.policies.welder.tile_search import block_size
from experiments.core.budget import ENDED_AT, caveat
from experiments.core.knobs import knob
from experiments.core.progress import Progress, part


@dataclass(frozen=True)
class Welder(TilePolicy):
    """Connects operators into kernels by tiles kept in shared memory, where that saves traffic and time."""

    name: ClassVar[str] = "welder"
    mechanism: ClassVar[str] = "make kernels"
    connects: ClassVar[bool] = True

    candidates: int = knob(
        10, "tiles of a group that are priced, best by traffic and waves first", low=1, high=1000
    )
    visited: int = knob(2000, "tiles that the search of one group looks at", low=1, high=100_000)
    fuse: bool = knob(True, "connect operators; off: a kernel for each")

    def tiles(self, graph: TileGraph, architecture: Architecture, progress: Progress) -> TilePlan:
        within = part(progress, 0.0, 0.9)
        welding = Welding(graph, architecture, self.candidates, self.visited, within)
        kernels = welding.run() if self.fuse else welding.unfused_kernels()
        order = launch_order(kernels, graph)
        assert order is not None, "a group takes all that it still needs, so none waits for a later one"
        planned = tuple(_plan_kernel(kernel, welding, architecture) for kernel in order)
        ended = caveat(self.visited, "tiles of a group", "visited") if welding.ended_early else {}
        return TilePlan(planned, welding.examined, ended.get(ENDED_AT, ""))


def _plan_kernel(kernel: WeldedKernel, welding: Welding, architecture: Architecture) -> PlannedKernel:
    group, made = kernel.group, kernel.tile
    inner = {f"tile of {node.name}": own for node, own in zip(group.nodes, made.tiles, strict=True)}
    steps = {f"step of {node.name}": own for node, own in zip(group.nodes, made.steps, strict=True) if own}
    return PlannedKernel(
        operators=tuple(node.name for node in group.nodes),
        kinds=tuple(node.expression.kind for node in group.nodes),
        domain=group.domain,
        tile=made.tile,
        levels={**inner, **steps},
        launch=KernelLaunch(
            made.grid,
            made.waves,
            block_size(group, made, architecture),
            made.shared_bytes,
            made.registers,
        ),
        flops=made.flops * made.grid,
        bound=bound(group, made, architecture),
        cost=TileCost(kernel.seconds, kernel.moved_bytes),
        least=TileCost(least_seconds(group, architecture), least_bytes(group)),
        apart=TileCost(kernel.apart, sum(welding.single(node.name).moved_bytes for node in group.nodes)),
    )
