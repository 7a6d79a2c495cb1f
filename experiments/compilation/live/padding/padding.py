"""Does padding leak? A walk over a graph that follows the padded axis and says where it must be masked.

Two graphs of one model, at two sizes, show which dimensions the axis is in. An op that works on each entry
apart keeps padding to itself. An op that mixes entries (a sum, a softmax, a product over the axis) is given
the neutral element in the padding's place; an op that cannot be masked, or that is not known here, is refused
with its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from experiments.compilation.interface import CONSTANT, INPUT, OUTPUT, Graph, GraphNode, Ref, map_refs
from experiments.compilation.live.padding.axes import Axes, Leak, PaddedAxis, Shape, new_axes, plain
from experiments.core.errors import Infeasible


@dataclass(frozen=True)
class Mask:
    """Argument ``argument`` of ``node`` with ``neutral`` in its padding, along these of its dimensions."""

    node: str
    argument: int
    axes: Axes
    neutral: float


@dataclass(frozen=True)
class Padding:
    """What keeps padding from leaking.

    ``means`` are nodes whose result counts the padding too, with how many padded dimensions they average
    over; ``keys`` attention nodes that must not look at padded keys, with the axis of the keys;
    ``statistics`` batch normalizations that must take theirs from useful entries, with the axes of what they
    normalize. ``inputs`` and ``outputs`` say where the axis lies.
    """

    inputs: Mapping[str, Axes]
    outputs: tuple[Axes, ...]
    masks: tuple[Mask, ...] = ()
    means: Mapping[str, int] = field(default_factory=dict)
    keys: Mapping[str, PaddedAxis] = field(default_factory=dict)
    statistics: Mapping[str, Axes] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "masks": [
                {"node": mask.node, "argument": mask.argument, "neutral": str(mask.neutral)}
                for mask in self.masks
            ],
            "means": dict(self.means),
            "attention": sorted(self.keys),
            "statistics": sorted(self.statistics),
        }


@dataclass
class PaddingWalk:
    """State of the walk: the axes of every result so far, and what was found to be needed."""

    small: Graph
    large: Graph
    entries: tuple[int, int]
    axes: dict[Ref, Axes] = field(default_factory=dict)
    masks: list[Mask] = field(default_factory=list)
    means: dict[str, int] = field(default_factory=dict)
    keys: dict[str, PaddedAxis] = field(default_factory=dict)
    statistics: dict[str, Axes] = field(default_factory=dict)

    def of(self, argument: Any) -> Axes:
        return self.axes[argument] if isinstance(argument, Ref) else ()

    def shape(self, ref: Ref) -> Shape:
        return self.large.type(ref).shape

    def mask(self, node: GraphNode, argument: int, dimensions: set[int], neutral: float) -> None:
        """Cover the padding of one argument along ``dimensions``."""
        axes = self.of(node.arguments[argument])
        chosen = tuple(axis if place in dimensions else None for place, axis in enumerate(axes))
        if any(chosen):
            self.masks.append(Mask(node.name, argument, chosen, neutral))

    def fresh_axes(self, node: GraphNode) -> Axes:
        """Return axes of a result that is made from its sizes, or from tensors that are not padded."""
        before = self.small.by_name[node.name]
        return new_axes(node.shape, self.entries[1], before.shape, self.entries[0])


Rule = Callable[[PaddingWalk, GraphNode], tuple[Axes, ...]]


def padding(small: Graph, large: Graph, entries: tuple[int, int], rules: Mapping[str, Rule]) -> Padding:
    """What padding of the axis needs.

    ``entries`` are its sizes in the two graphs, the smaller one first. ``Infeasible`` names the op that it
    would leak through.
    """
    walk = PaddingWalk(small, large, entries)
    names = [node.name for node in small.nodes]
    if names != [node.name for node in large.nodes]:
        raise Infeasible("the graph's ops depend on the size", "padding")
    for node in large.nodes:
        try:
            _step(walk, node, rules)
        except Leak as leak:
            raise Infeasible(f"padding would leak: {leak}", f"{node.name} ({node.target})") from None
    inputs = {node.name: walk.axes[Ref(node.name)] for node in large.inputs}
    outputs = tuple(walk.axes[ref] for ref in large.output.refs)
    return Padding(inputs, outputs, tuple(walk.masks), walk.means, walk.keys, walk.statistics)


def _step(walk: PaddingWalk, node: GraphNode, rules: Mapping[str, Rule]) -> None:
    if node.kind == OUTPUT:
        return
    if node.kind == INPUT:
        found: tuple[Axes, ...] = (walk.fresh_axes(node),)
    elif node.kind == CONSTANT:
        found = (plain(len(node.shape)),)
    else:
        found = _apply_rule(walk, node, rules)
    for number, axes in enumerate(found):
        walk.axes[Ref(node.name, number)] = axes
    _check_sizes(walk, node, found)


def _apply_rule(walk: PaddingWalk, node: GraphNode, rules: Mapping[str, Rule]) -> tuple[Axes, ...]:
    name = node.target.split(".")[1]
    if name in rules:
        return rules[name](walk, node)
    if any(any(walk.of(ref)) for ref in node.refs):
        raise Leak("what the op does to single entries is not known here")
    _same_arguments(walk, node)
    return tuple(plain(0 if out is None else len(out.shape)) for out in node.outputs)


def _same_arguments(walk: PaddingWalk, node: GraphNode) -> None:
    """A number among the arguments that follows the size counts the padding too."""
    before = walk.small.by_name[node.name]
    if _numbers(before) != _numbers(node):
        raise Leak("an argument of the op depends on the size")


def _numbers(node: GraphNode) -> Any:
    return map_refs((node.arguments, node.keywords), lambda ref: "tensor")


def _check_sizes(walk: PaddingWalk, node: GraphNode, found: tuple[Axes, ...]) -> None:
    """The sizes at both numbers of entries are those that the axes give: the walk has understood the op."""
    before = walk.small.by_name[node.name].outputs
    for axes, less, more in zip(found, before, node.outputs, strict=True):
        if less is None or more is None:
            continue
        for axis, small, large in zip(axes, less.shape, more.shape, strict=True):
            given = (small, small) if axis is None else tuple(axis.size(n) for n in walk.entries)
            if (small, large) != given:
                raise Leak(f"a dimension of {small} and {large} is not what {walk.entries} entries give")
