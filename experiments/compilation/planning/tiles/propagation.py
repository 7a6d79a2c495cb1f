"""From a tile of a group's results to the tile of every operator in it, through the operators' index maps.

Welder, section 4.2: an operator's input tile is what its output tile touches, clipped to the tensor; it is
the output tile of the operator that makes it. Overlapping windows make producers compute more than once: the
halo.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.compilation.interface.expressions import Expression, Sizes, TensorAccess
from experiments.compilation.interface.tile_graph import TileGraph, TileNode

#: A spatial tile for every operator of a group, in its order.
Tiles = tuple[Sizes, ...]


@dataclass(frozen=True)
class FusedGroup:
    """Operators of one kernel in execution order, and which of their results go to memory."""

    nodes: tuple[TileNode, ...]
    outputs: tuple[TileNode, ...]

    @functools.cached_property
    def names(self) -> frozenset[str]:
        return frozenset(node.name for node in self.nodes)

    @functools.cached_property
    def producers(self) -> tuple[tuple[int, ...], ...]:
        """For every operator and input the position of the operator in the group that makes it.

        -1: from memory.
        """
        place = {node.name: index for index, node in enumerate(self.nodes)}
        return tuple(tuple(place.get(source, -1) for source in node.sources) for node in self.nodes)

    @functools.cached_property
    def written(self) -> tuple[int, ...]:
        """Positions of the outputs."""
        return tuple(index for index, node in enumerate(self.nodes) if node in self.outputs)

    @functools.cached_property
    def external(self) -> tuple[tuple[TensorAccess, ...], ...]:
        """For every operator the inputs that come from memory."""
        return tuple(
            tuple(access for access, source in zip(node.expression.inputs, own, strict=True) if source < 0)
            for node, own in zip(self.nodes, self.producers, strict=True)
        )

    @property
    def domain(self) -> Sizes:
        """The spatial extents that the kernel's grid covers: those of its first output."""
        return self.outputs[0].expression.domain


def group_of(graph: TileGraph, names: Sequence[str]) -> FusedGroup:
    """Return the operators ``names`` of ``graph`` as a group."""
    inside = frozenset(names)
    nodes = tuple(graph.by_name[name] for name in sorted(inside, key=lambda name: graph.place[name]))
    return FusedGroup(nodes, tuple(node for node in nodes if graph.leaves(node.name, inside)))


def spatial_of(expression: Expression, box: Sequence[int]) -> Sizes:
    """Return the spatial tile that computes ``box`` (sizes along each dimension) of the expression's output.

    A dimension of two axes (filters of a grouped convolution) is filled from the faster one.
    """
    sizes = dict.fromkeys((axis.name for axis in expression.spatial), 1)
    extents = {axis.name: axis.extent for axis in expression.spatial}
    for index, wanted in zip(expression.output.indices, box, strict=True):
        left = min(wanted, index.extent)
        for name, _ in sorted(index.terms, key=lambda term: term[1]):
            if name in sizes:
                sizes[name] = min(extents[name], left)
                left = -(-left // sizes[name])
    return tuple(sizes.values())


def propagate(group: FusedGroup, tile: Sequence[int]) -> Tiles | None:
    """Return the spatial tile of every operator for a ``tile`` of the first output.

    ``None`` where outputs cannot share a grid.
    """
    found: list[Sizes | None] = [None] * len(group.nodes)
    for index in group.written:
        found[index] = _scaled(tile, group.domain, group.nodes[index].expression.domain)
        if found[index] is None:
            return None
    for index in reversed(range(len(group.nodes))):
        expression, own = group.nodes[index].expression, found[index]
        assert own is not None, f"nobody reads {group.nodes[index].name} and it is no output"
        whole = expression.whole(own)
        for access, producer in zip(expression.inputs, group.producers[index], strict=True):
            if producer >= 0:
                maker = group.nodes[producer].expression
                needed = spatial_of(maker, expression.extents_touched(access, whole))
                known = found[producer] or needed
                found[producer] = tuple(max(pair) for pair in zip(known, needed, strict=True))
    return tuple(own for own in found if own is not None)


def _scaled(tile: Sequence[int], domain: Sizes, own: Sizes) -> Sizes | None:
    """Return ``tile`` of ``domain`` in proportion on another output's domain."""
    if len(domain) != len(own):
        return None
    if any(size * mine % whole for size, whole, mine in zip(tile, domain, own, strict=True)):
        return None
    return tuple(size * mine // whole for size, whole, mine in zip(tile, domain, own, strict=True))


def block_flops(group: FusedGroup, tiles: Tiles) -> float:
    """Return FLOPs of one block, halos included."""
    pairs = zip(group.nodes, tiles, strict=True)
    return sum(node.expression.work(node.expression.whole(tile)) for node, tile in pairs)


def points(group: FusedGroup, tiles: Tiles) -> int:
    """Result points that a block makes in all operators; whole rows where an operator writes them."""
    total = 0
    for node, tile in zip(group.nodes, tiles, strict=True):
        rows = math.prod(node.expression.reduction) if node.expression.rowwise else 1
        total += math.prod(tile) * rows
    return total
