"""Welder's greedy connection of operators into kernels (OSDI'23, section 4.3, and its release's engine).

From each operator that no kernel has yet, in execution order, a group grows over the readers of one result at
a time with what else they need; it is kept if the time that it saves over single kernels is not less than
before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from experiments.compilation.interface.architecture import Architecture
from experiments.compilation.interface.tile_graph import TileGraph
from experiments.compilation.planning.tiles.group_tile import GroupTile, seconds
from experiments.compilation.planning.tiles.propagation import FusedGroup, group_of
from experiments.compilation.policies.welder.tile_search import search
from experiments.core.errors import Infeasible
from experiments.core.progress import Progress, silent

MOST_ADDED = 10


@dataclass(frozen=True)
class WeldedKernel:
    """A group with its tile, its modeled seconds, and those of its operators by themselves."""

    group: FusedGroup
    tile: GroupTile
    seconds: float
    apart: float
    in_registers: bool = False

    @property
    def moved_bytes(self) -> float:
        """Bytes between memory and all blocks."""
        return self.tile.moved * self.tile.grid


@dataclass
class Welding:
    """The search over groups of one graph; equal groups are tuned once."""

    graph: TileGraph
    architecture: Architecture
    wanted: int = 10
    budget: int = 2000
    progress: Progress = silent
    examined: int = 0
    ended_early: bool = False
    _tuned: dict[object, tuple[GroupTile, float] | None] = field(default_factory=dict)

    def unfused_kernels(self) -> tuple[WeldedKernel, ...]:
        """Return every operator as a kernel of its own; ``Infeasible`` names one of which no tile fits."""
        return tuple(self.single(node.name) for node in self.graph.nodes)

    def run(self) -> tuple[WeldedKernel, ...]:
        """Kernels in execution order of their first operator."""
        taken: set[str] = set()
        kernels = []
        for index, node in enumerate(self.graph.nodes):
            self.progress(index / len(self.graph.nodes), f"connecting {node.name}")
            if node.name not in taken:
                kernel = self._grown(node.name, taken)
                taken |= kernel.group.names
                kernels.append(kernel)
        return tuple(kernels)

    def single(self, name: str) -> WeldedKernel:
        group = group_of(self.graph, [name])
        found = self._tune(group, False)
        if found is None:
            raise Infeasible(f"no tile fits a unit of {self.architecture.name}", name)
        return WeldedKernel(group, found[0], found[1], found[1])

    def _grown(self, first: str, taken: set[str]) -> WeldedKernel:
        best, gain = self.single(first), 0.0
        waiting = [first]
        while waiting:
            added = self._extend_group(waiting.pop(0), best.group.names, taken)
            if added is None:
                continue
            kernel = self.together(best.group.names | added)
            if kernel is not None and kernel.apart - kernel.seconds >= gain:
                best, gain = kernel, kernel.apart - kernel.seconds
                waiting += sorted(added, key=lambda name: self.graph.place[name])
        return best

    def _extend_group(self, name: str, group: frozenset[str], taken: set[str]) -> frozenset[str] | None:
        """Return all readers of a result with what they still need.

        ``None`` where the result is needed in memory anyway.
        """
        if name in self.graph.kept or not self.graph.readers[name]:
            return None
        added, waiting = set[str](), [reader.name for reader in self.graph.readers[name]]
        while waiting:
            current = waiting.pop()
            if current in group or current in added or current in taken:
                continue
            added.add(current)
            waiting += self.graph.by_name[current].reads
        return frozenset(added) if 0 < len(added) <= MOST_ADDED else None

    def together(self, names: frozenset[str]) -> WeldedKernel | None:
        """Return ``names`` as one kernel.

        ``None`` where a result is needed in it and in memory, or no tile fits.
        """
        if any(self._both(name, names) for name in names):
            return None
        group = group_of(self.graph, sorted(names))
        found = self._tune(group, False)
        local = self._tune(group, True) if _local(group) else None
        in_registers = local is not None and (found is None or local[1] < found[1])
        chosen = local if in_registers else found
        if chosen is None:
            return None
        apart = sum(self.single(node.name).seconds for node in group.nodes)
        return WeldedKernel(group, chosen[0], chosen[1], apart, in_registers)

    def _both(self, name: str, names: frozenset[str]) -> bool:
        """Return whether a result would be needed inside the kernel and in memory.

        There it is not complete in time.
        """
        inside = any(reader.name in names for reader in self.graph.readers[name])
        return inside and self.graph.leaves(name, names)

    def _tune(self, group: FusedGroup, in_registers: bool) -> tuple[GroupTile, float] | None:
        key = (_signature(group), in_registers)
        if key not in self._tuned:
            found = search(
                group,
                self.architecture,
                self.wanted,
                self.budget,
                in_registers,
                lambda: self.progress(0.0, ""),
            )
            self.examined += found.examined
            self.ended_early |= found.ended_early
            timed = [(seconds(group, tile, self.architecture), tile) for tile in found.tiles]
            best = min(timed, key=lambda pair: pair[0], default=None)
            self._tuned[key] = None if best is None else (best[1], best[0])
        return self._tuned[key]


def _local(group: FusedGroup) -> bool:
    """Return whether a reduction meets one element-wise reader: their connection may stay in registers."""
    if len(group.nodes) != 2:
        return False
    first, second = group.nodes
    return bool(first.expression.reduced) and not second.expression.reduced


def launch_order(kernels: Sequence[WeldedKernel], graph: TileGraph) -> tuple[WeldedKernel, ...] | None:
    """Return kernels so that each comes after those whose results it reads.

    Of several ready ones the first given goes first.
    """
    waiting, done, order = list(kernels), set[str](), []
    while waiting:
        ready = next((kernel for kernel in waiting if _needs(kernel, graph) <= done), None)
        if ready is None:
            return None
        waiting.remove(ready)
        done |= ready.group.names
        order.append(ready)
    return tuple(order)


def _needs(kernel: WeldedKernel, graph: TileGraph) -> set[str]:
    names = kernel.group.names
    return {source for name in names for source in graph.by_name[name].reads} - names


def _signature(group: FusedGroup) -> object:
    """Return what the search depends on: expressions without their names, and who reads whom by position."""
    place = {node.name: index for index, node in enumerate(group.nodes)}
    outputs = tuple(place[node.name] for node in group.outputs)
    return outputs, tuple(
        (
            (e := node.expression).kind,
            e.spatial,
            e.reduced,
            e.inputs,
            e.output,
            e.flops,
            tuple(place.get(source, -1) for source in node.sources),
        )
        for node in group.nodes
    )
