"""Where a graph of layers can be cut in two: the sets of layers that a pipeline may have behind it.

Source: Narayanan et al., "PipeDream", SOSP'19, section 3.1; the released planner walks the antichains of the
graph. An antichain and the set of layers at or before it say the same; here the sets are kept, as bits of an
integer. The walk starts at the first layer and adds, one at a time, a layer that reads from the set, with
everything before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from experiments.workloads.layers import LayerGraph
from experiments.workloads.step import Floats

#: A graph with more sets than this is cut between consecutive layers only.
MOST_CUTS = 2000


@dataclass(frozen=True)
class Cuts:
    """Sets of layers, smaller ones first; the last one holds all. Columns have shape (cuts,).

    ``ends[i]`` is the number of layers of cut ``i`` if they are the first ones of the graph, otherwise 0: a
    stage is a run of layers, so it can be placed only between such cuts. ``before[k, i]``: cut ``k`` is a
    part of cut ``i``. ``seconds``, ``stash`` and ``parameters`` add up over the layers; ``output`` is what
    crosses the cut.
    """

    ends: tuple[int, ...]
    before: npt.NDArray[np.bool_]
    seconds: Floats
    stash: Floats
    parameters: Floats
    output: Floats

    def __len__(self) -> int:
        return len(self.ends)

    def placeable(self) -> Cuts:
        """Those between consecutive layers only."""
        kept = np.flatnonzero(self.ends)
        columns = (column[kept] for column in (self.seconds, self.stash, self.parameters, self.output))
        return Cuts(tuple(self.ends[i] for i in kept), self.before[np.ix_(kept, kept)], *columns)


def cuts_of(model: LayerGraph, scale: float = 1.0) -> Cuts:
    """Return every cut of ``model``, or those between consecutive layers where there are too many.

    Times and activations are ``scale`` times those of the model's batch.
    """
    sets = _walk_sets(model)
    if sets is None:
        sets = [(1 << count) - 1 for count in range(1, len(model) + 1)]
    bits = [_bits(layers) for layers in sets]
    member = np.zeros((len(sets), len(model)), np.float32)
    for row, layers in enumerate(bits):
        member[row, layers] = 1.0
    outside = member @ (1.0 - member).T
    counts = member.sum(axis=1)
    frontiers = _frontiers(model, sets)
    return Cuts(
        ends=tuple(
            len(b) if layers == (1 << len(b)) - 1 else 0 for layers, b in zip(sets, bits, strict=True)
        ),
        before=(outside == 0) & (counts[:, None] < counts[None, :]),
        seconds=member @ (model.forward_seconds + model.backward_seconds) * scale,
        stash=member @ model.stash_bytes * scale,
        parameters=member @ model.parameter_bytes,
        output=np.array([model.output_bytes[list(layers)].sum() for layers in frontiers]) * scale,
    )


def _bits(layers: int) -> list[int]:
    return [index for index in range(layers.bit_length()) if layers >> index & 1]


def _closures(model: LayerGraph) -> tuple[list[int], list[int]]:
    """For each layer, itself with everything before it, and the layers that read it."""
    closed: list[int] = []
    readers = [0] * len(model)
    for layer, inputs in enumerate(model.predecessors.lists()):
        whole = 1 << layer
        for source in inputs:
            whole |= closed[source]
            readers[source] |= 1 << layer
        closed.append(whole)
    return closed, readers


def _walk_sets(model: LayerGraph) -> list[int] | None:
    """The sets that the walk meets, smaller ones first; ``None`` when there are more than ``MOST_CUTS``."""
    closed, readers = _closures(model)
    open_sets = [(closed[0], readers[0])]
    found = {closed[0]}
    while open_sets:
        layers, next_layers = open_sets.pop()
        for layer in _bits(next_layers):
            grown = layers | closed[layer]
            if grown in found:
                continue
            if len(found) == MOST_CUTS:
                return None
            found.add(grown)
            following = next_layers
            for added in _bits(grown & ~layers):
                following |= readers[added]
            open_sets.append((grown, following & ~grown))
    whole = (1 << len(model)) - 1
    if whole not in found:  # parts that no path from the first layer reaches
        found.add(whole)
    return sorted(found, key=lambda layers: (layers.bit_count(), layers))


def _frontiers(model: LayerGraph, sets: Sequence[int]) -> Iterator[list[int]]:
    """For each set the layers whose output is counted as crossing it.

    As released: its last layers, and each layer before one of them that is read by something not before that
    one (even where that reader is in the set too).
    """
    closed, readers = _closures(model)
    branching = sum(1 << layer for layer, read in enumerate(readers) if read.bit_count() > 1)
    for layers in sets:
        last = [layer for layer in _bits(layers) if not readers[layer] & layers]
        behind = [
            layer
            for layer in _bits(layers & branching)
            if any(
                closed[end] >> layer & 1 and layer != end and readers[layer] & ~closed[end] for end in last
            )
        ]
        yield last + behind
