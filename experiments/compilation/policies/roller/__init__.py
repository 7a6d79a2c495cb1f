"""Roller (Zhu et al., OSDI 2022).

Tiles are constructed from the shapes of hardware and tensors, not searched for.

An operator's program (rProgram) is a tile at each level of memory. Sizes are aligned with what the hardware
moves and runs (transactions, banks, warps on every scheduler) and pad tensors little; they grow along the
axis with the most data reuse until the level below is no longer waited for. A model of the device, built from
micro-benchmarks, prices the few programs left: that is all that "top 1" does; "top 10" would also run ten on
the device.

What is chosen here where the paper and its release leave it open: see ``construction``, ``shrinking`` and
``micro_model``. Every op of a model is a kernel of its own; ``programs`` constructed ones are priced and the
best by the model is taken. A measured run, on a GPU, carries out linear layers and matmuls by a Triton kernel
with the blocks nearest to their tiles; what else a model has stays with torch, and no others are tried.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from experiments.compilation.interface.architecture import Architecture
from experiments.compilation.interface.expressions import Expression
from experiments.compilation.interface.tile_graph import TileGraph
from experiments.compilation.interface.tiles import (
    KernelLaunch,
    PlannedKernel,
    TileCost,
    TilePlan,
    TilePolicy,
)
from experiments.compilation.planning.tiles.group_tile import least_bytes, least_seconds
from experiments.compilation.planning.tiles.program import (
    TileProgram,
    grid,
    registers,
    resident,
    shared_bytes,
)
from experiments.compilation.planning.tiles.propagation import FusedGroup, group_of
from experiments.compilation.policies.roller.construction import BUDGET, Constructed, construct
from experiments.compilation.policies.roller.micro_model import estimate
from experiments.compilation.policies.roller.shrinking import WAYS
from experiments.compilation.policies.roller.tiled_form import tiled_form
from experiments.core.budget import ENDED_AT, caveat
from experiments.core.knobs import knob
from experiments.core.progress import Progress

#: A planned kernel without its operator's name, and what was constructed for it.
Planned = tuple[PlannedKernel, Constructed]


@dataclass(frozen=True)
class Roller(TilePolicy):
    """Constructs aligned tiles for every operator and takes the best by a model of the device."""

    name: ClassVar[str] = "roller"
    mechanism: ClassVar[str] = "make kernels"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")

    programs: int = knob(10, "programs constructed and priced for an operator", low=1, high=100)
    padding: float = knob(1.0, "share by which a tile may pad an axis", low=0.0, high=1.0)
    visited: int = knob(BUDGET, "tiles that the construction for one operator looks at", low=2, high=100_000)
    shrink: str = knob(
        "one",
        "halve tiles of small operators: the best axis at a time, all at once, not; or as far as the model "
        "likes best",
        choices=WAYS,
    )

    def tiles(self, graph: TileGraph, architecture: Architecture, progress: Progress) -> TilePlan:
        known: dict[object, Planned] = {}
        kernels, examined = [], 0
        for index, node in enumerate(graph.nodes):
            progress(index / len(graph.nodes), f"constructing tiles of {node.name}")
            form = tiled_form(node.expression)
            key = (form.kind, form.axes, form.inputs, form.output, form.flops)
            if key not in known:
                known[key] = self._plan_group(form, architecture, group_of(graph, [node.name]))
                examined += known[key][1].examined
            kernels.append(_named(known[key][0], node.name))
        early = any(found.ended_early for _, found in known.values())
        ended = caveat(self.visited, "tiles of an operator", "visited") if early else {}
        return TilePlan(tuple(kernels), examined, ended.get(ENDED_AT, ""))

    def _plan_group(self, form: Expression, architecture: Architecture, alone: FusedGroup) -> Planned:
        found = construct(form, architecture, self.programs, self.padding, self.shrink, self.visited)
        priced = [(estimate(form, program, architecture), program) for program in found.programs]
        best, program = min(priced, key=lambda pair: pair[0].seconds)
        cost = TileCost(best.seconds + architecture.launch, best.dram_bytes)
        kernel = PlannedKernel(
            operators=("",),
            kinds=(form.kind,),
            domain=form.domain,
            tile=program.shared,
            levels={"thread": program.register, "reduction step": program.step},
            launch=_launch(form, program, architecture),
            flops=form.work(form.extents),
            bound=best.bound,
            cost=cost,
            least=TileCost(least_seconds(alone, architecture), least_bytes(alone)),
            apart=cost,
        )
        return kernel, found


def _named(kernel: PlannedKernel, name: str) -> PlannedKernel:
    return replace(kernel, operators=(name,))


def _launch(form: Expression, program: TileProgram, architecture: Architecture) -> KernelLaunch:
    blocks, units = grid(form, program), architecture.units
    return KernelLaunch(
        grid=blocks,
        waves=-(-blocks // (resident(form, program, architecture) * units.count)),
        threads=program.threads,
        shared_bytes=shared_bytes(form, program, units),
        registers=registers(form, program.register),
    )
