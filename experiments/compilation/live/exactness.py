"""Whether a rewrite that claims to be exact is.

On small whole numbers, where arithmetic does not round.

A node *stayed* if both graphs have it under its name, with the same op on the same plain arguments. Where a
node that stayed reads something else than before, the two things read must be equal whatever the nodes that
stayed give; so each such place is checked by itself, with random whole numbers for what stayed. If all places
agree, the graphs do, by induction along the order of the ops; and a deep network's numbers never grow beyond
what floats hold exactly.

Constants are never drawn: whole ones (a mask, a table of indices, what an op without inputs gives) are what
they are, others become whole numbers by their values, so that equal ones stay equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Any

import torch
from torch import Tensor

from experiments.compilation.interface import CONSTANT, OP, Graph, GraphNode, Ref, TensorType, map_refs
from experiments.compilation.interface.graph import reachable_from
from experiments.compilation.live.lower import call
from experiments.core.progress import Progress, accompany, silent

#: Largest whole number drawn, and the types that sum products of such numbers without rounding.
LARGEST = 3
EXACT = ("float32", "float64")
#: Constants up to this are what they are where they are whole.
LARGEST_CONSTANT = 256

#: What a reader read before and what it reads after the rewrite, each with its graph.
Sides = tuple[tuple[Graph, Ref], tuple[Graph, Ref]]


def exact_places(
    before: Graph,
    after: Graph,
    device: str,
    seed: int,
    progress: Progress = silent,
    constants: Mapping[str, Tensor] | None = None,
) -> tuple[int, str]:
    """Return how many places were compared, and the first at which the graphs differ ("" for none).

    ``constants`` are the model's, by path; those that calls write to are drawn like any other value.

    Places behind which another type than float32 or float64 is computed are left out: whole numbers round
    there.
    """
    stayed = {node.name for node in before.nodes if _alike(node, after.by_name.get(node.name))}
    unfixed = stayed - _fixed(before) - _fixed(after)
    compared = 0
    for reader, old, new in accompany(places(before, after, stayed), progress, 1):
        sides = (before, old), (after, new)
        try:
            agree = any(
                _agree(sides, drawn, _Draws(before, device, seed, constants or {}))
                for drawn in (stayed, _independent(sides, unfixed))
            )
        except _Rounds:
            continue
        compared += 1
        if not agree:
            return (
                compared,
                f"whole numbers in place of what stayed: {reader} reads another value than before",
            )
    return compared, ""


def _agree(sides: Sides, drawn: Set[str], draws: _Draws) -> bool:
    """Return whether both sides are equal when the nodes of ``drawn`` give any numbers."""
    theirs, ours = (_value(graph, ref, drawn, draws) for graph, ref in sides)
    return theirs.shape == ours.shape and torch.equal(torch.nan_to_num(theirs), torch.nan_to_num(ours))


def _independent(sides: Sides, unfixed: Set[str]) -> Set[str]:
    """Return ``unfixed`` without what can be computed from others of them.

    Where a duplicate gives way to a node that stayed, the two are equal because of what both are made of.
    Random nodes are never computed again.
    """
    drawn = unfixed
    while True:
        border = {name for graph, ref in sides for name in _border(graph, ref.node, drawn)}
        tied = {name for graph, _ in sides for name in border if _depends(graph, name, border)}
        if not tied:
            return drawn
        drawn = drawn - tied


def _fixed(graph: Graph) -> set[str]:
    """Return the ops that give the same whatever the inputs are: ones, and what is made of them alone."""
    found: set[str] = set()
    for node in graph.nodes:
        if node.kind == OP and not node.anchored and found.issuperset(node.inputs):
            found.add(node.name)
    return found


def _is_fixed(graph: Graph, name: str) -> bool:
    """Whether an op without inputs gives the same each time: ones, say."""
    node = graph.by_name[name]
    return node.kind == OP and not node.inputs and not node.anchored


def _depends(graph: Graph, name: str, others: Set[str]) -> bool:
    return not graph.by_name[name].anchored and bool((reachable_from(graph, [name]) - {name}) & others)


def _border(graph: Graph, name: str, drawn: Set[str]) -> set[str]:
    """Return the nodes of ``drawn`` that ``name`` is computed from."""
    found: set[str] = set()
    seen, waiting = {name}, [name]
    while waiting:
        name = waiting.pop()
        if name in drawn:
            found.add(name)
            continue
        new = [source for source in graph.by_name[name].inputs if source not in seen]
        seen.update(new)
        waiting += new
    return found


def _alike(node: GraphNode, other: GraphNode | None) -> bool:
    return other is not None and _skeleton(node) == _skeleton(other)


def _skeleton(node: GraphNode) -> Any:
    return node.kind, node.target, map_refs((node.arguments, node.keywords), lambda ref: None)


def places(before: Graph, after: Graph, stayed: set[str]) -> Iterator[tuple[str, Ref, Ref]]:
    """Where a node that stayed reads something else: its name, what it read and what it reads."""
    for node in before.nodes:
        if node.name not in stayed:
            continue
        for old, new in zip(node.refs, after.by_name[node.name].refs, strict=True):
            if old != new:
                yield node.name, old, new


class _Rounds(Exception):
    """A value of a type in which whole numbers round."""


class _Draws:
    """Whole numbers for the results of nodes that stayed, the same for both graphs; constants have theirs."""

    def __init__(self, graph: Graph, device: str, seed: int, constants: Mapping[str, Tensor]) -> None:
        self._graph, self._constants = graph, constants
        self._generator = torch.Generator(device).manual_seed(seed)
        self._known: dict[Ref, Tensor] = {}

    def __call__(self, ref: Ref) -> Tensor:
        if ref not in self._known:
            found = self._constant(ref)
            self._known[ref] = self._draw(self._graph.type(ref)) if found is None else _whole(found)
        return self._known[ref]

    def _constant(self, ref: Ref) -> Tensor | None:
        """Return what does not depend on the inputs: an unwritten constant, the result of a factory."""
        node = self._graph.by_name[ref.node]
        if node.kind == CONSTANT and node.name in self._graph.unwritten_constants:
            found = self._constants.get(node.target)
            return None if found is None else found.detach()
        if not _is_fixed(self._graph, node.name):
            return None
        values: dict[Ref, Any] = {}
        call(node, values)
        made: Tensor = values[ref]
        return made

    def _draw(self, kind: TensorType) -> Tensor:
        if kind.dtype not in EXACT and "float" in kind.dtype:
            raise _Rounds
        low, high = (-LARGEST, LARGEST + 1) if "float" in kind.dtype else (0, 2)
        device = self._generator.device
        drawn = torch.randint(low, high, kind.shape, generator=self._generator, device=device)
        made = torch.empty_strided(kind.shape, kind.stride, dtype=getattr(torch, kind.dtype), device=device)
        return made.zero_() if 0 in kind.stride else made.copy_(drawn)


def _whole(constant: Tensor) -> Tensor:
    """Return a constant whose broken and large numbers are small whole ones, by their values."""
    if not constant.is_floating_point():
        return constant
    if str(constant.dtype).removeprefix("torch.") not in EXACT:
        raise _Rounds
    kept = ((constant == constant.round()) & (constant.abs() <= LARGEST_CONSTANT)) | ~constant.isfinite()
    bits = constant.double().contiguous().view(torch.int64)
    mixed = ((bits ^ (bits >> 29)) * 0x2545F4914F6CDD1D >> 40) % (2 * LARGEST)
    drawn = torch.where(mixed < LARGEST, mixed + 1, LARGEST - 1 - mixed)
    return torch.where(kept, constant, drawn.to(constant.dtype))


@torch.no_grad()
def _value(graph: Graph, ref: Ref, stayed: Set[str], draws: _Draws) -> Tensor:
    """Return ``ref`` from what stayed: the ops between are carried out."""
    given = {node.name for node in graph.nodes if node.kind != OP} | stayed
    needed, waiting = set(), [ref.node]
    values: dict[Ref, Any] = {}
    while waiting:
        name = waiting.pop()
        if name not in given and name not in needed:
            needed.add(name)
            waiting += graph.by_name[name].inputs
    for node in graph.nodes:
        if node.name in needed:
            for read in node.refs:
                if read.node in given:
                    values[read] = draws(read)
            call(node, values)
    found: Tensor = values[ref] if ref in values else draws(ref)
    return found
