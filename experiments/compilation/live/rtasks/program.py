"""A schedule as lists of parts for lanes, and how a part of an operator is computed."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from experiments.compilation.interface import OP, Graph, GraphNode, Ref, map_refs
from experiments.compilation.interface.blocks import BlockSchedule
from experiments.compilation.live.rtasks.division import divisions_of
from experiments.compilation.live.types import constant, function, gives_several

Values = dict[Ref, Any]


@dataclass(frozen=True)
class ScheduledOperator:
    """An operator of a schedule: the ops that it computes, in order, and where its blocks run.

    Block k runs on ``lanes[k % len(lanes)]``; ``waits`` are the operators of its group that it reads.
    """

    members: tuple[str, ...]
    blocks: int
    lanes: tuple[int, ...]
    waits: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.members[-1]

    def blocks_of(self, lane: int) -> range:
        """Return the blocks that a lane runs, in order."""
        return range(self.lanes.index(lane), self.blocks, len(self.lanes)) if lane in self.lanes else range(0)

    def to_json(self) -> dict[str, Any]:
        return {"members": list(self.members), "blocks": self.blocks, "lanes": list(self.lanes)}


#: The operators that one launch runs, in an order in which each stands behind what it reads.
Group = tuple[ScheduledOperator, ...]


def groups_of(schedule: BlockSchedule) -> list[list[dict[str, Any]]]:
    """Return the schedule as JSON: for every group its operators with their ops, blocks and lanes."""
    members = {operator.name: operator.members for operator in schedule.operators}
    return [
        [
            ScheduledOperator(members[entry.operator], entry.kernel.blocks, entry.units).to_json()
            for entry in group.placements
        ]
        for group in schedule.groups
    ]


def read_groups(rows: Sequence[Sequence[Mapping[str, Any]]], graph: Graph) -> list[Group]:
    """Return the groups of a recipe, with what each operator waits for inside its group."""
    return [_group(group, graph) for group in rows]


def _group(rows: Sequence[Mapping[str, Any]], graph: Graph) -> Group:
    found: list[ScheduledOperator] = []
    owner: dict[str, str] = {}
    for row in rows:
        members = tuple(row["members"])
        read = {name for member in members for name in _operands(graph.by_name[member], graph)}
        waits = tuple(dict.fromkeys(owner[name] for name in sorted(read) if name in owner))
        found.append(ScheduledOperator(members, row["blocks"], tuple(row["lanes"]), waits))
        owner |= dict.fromkeys(members, found[-1].name)
    return tuple(found)


def _operands(node: GraphNode, graph: Graph) -> Iterator[str]:
    """Yield the ops whose results ``node`` reads, behind views."""
    for name in node.inputs:
        source = graph.by_name[name]
        yield from _operands(source, graph) if source.kind == OP and source.views else (name,)


class PartialOperators:
    """How each operator of a schedule is computed whole, or one block of it.

    A block is an equal range of the outermost axis along which all members can be divided; what members hand
    each other stays in the block.
    """

    def __init__(self, graph: Graph, groups: Sequence[Group], device: str) -> None:
        self._graph, self._device = graph, device
        self._op = functools.cache(function)
        divided = [operator for group in groups for operator in group if operator.blocks > 1]
        self._divisions = {
            name: divisions_of(graph.by_name[name], graph)
            for operator in divided
            for name in operator.members
        }
        self._axes = {operator.name: self._axis(operator) for operator in divided}

    def _axis(self, operator: ScheduledOperator) -> int:
        """Return the outermost axis that all members can be divided along into as many blocks."""
        common = set.intersection(*(set(self._divisions[name]) for name in operator.members))
        fits = [axis for axis in common if self._can_divide(operator, axis)]
        assert fits, f"{operator.name} has no axis for {operator.blocks} blocks"
        return min(fits)

    def _can_divide(self, operator: ScheduledOperator, axis: int) -> bool:
        """Whether each member reads, of what the others make, no more than its own part."""
        nodes = [self._graph.by_name[name] for name in operator.members]
        return all(
            node.shape[axis] == nodes[-1].shape[axis] >= operator.blocks
            and all(
                self._divisions[node.name][axis].get(place) == axis
                for place, value in enumerate(node.arguments)
                if isinstance(value, Ref) and value.node in operator.members
            )
            for node in nodes
        )

    def prepare(self, operator: ScheduledOperator, values: Values) -> None:
        """Make room for the results of an operator that is computed in blocks."""
        if operator.blocks > 1:
            for name in self._list_kept(operator):
                kind = self._graph.type(Ref(name))
                dtype = getattr(torch, kind.dtype)
                values[Ref(name)] = torch.empty_strided(
                    kind.shape, kind.stride, dtype=dtype, device=self._device
                )

    def _list_kept(self, operator: ScheduledOperator) -> list[str]:
        """Return the members whose results somebody else reads."""
        users = self._graph.users
        return [n for n in operator.members if any(u.name not in operator.members for u in users[n])]

    def compute(self, operator: ScheduledOperator, block: int, values: Values) -> None:
        """Compute one block; all of it where there is one."""
        if operator.blocks == 1:
            for name in operator.members:
                self._whole(self._graph.by_name[name], values)
            return
        axis = self._axes[operator.name]
        extent = self._graph.by_name[operator.name].shape[axis]
        start, stop = (extent * number // operator.blocks for number in (block, block + 1))
        own: dict[Ref, Tensor] = {}
        for name in operator.members:
            own[Ref(name)] = self._part(self._graph.by_name[name], axis, start, stop - start, values, own)
        for name in self._list_kept(operator):
            values[Ref(name)].narrow(axis, start, stop - start).copy_(own[Ref(name)])

    def _whole(self, node: GraphNode, values: Values) -> None:
        op = self._op(node.target)
        arguments, keywords = map_refs(
            (node.arguments, node.keywords), lambda ref: _Value(self.value(ref, values))
        )
        out = op(*map(_plain, arguments), **{name: _plain(value) for name, value in keywords})
        several = out if gives_several(op) else (out,)
        values.update((Ref(node.name, number), value) for number, value in enumerate(several))

    def _part(
        self, node: GraphNode, axis: int, start: int, length: int, values: Values, own: Mapping[Ref, Tensor]
    ) -> Tensor:
        places = self._divisions[node.name][axis]

        def argument(place: int, value: Any) -> Any:
            if not isinstance(value, Ref):
                return _plain(value)
            if value in own:
                return own[value]
            whole = self.value(value, values)
            return whole.narrow(places[place], start, length) if place in places else whole

        arguments = [argument(place, value) for place, value in enumerate(node.arguments)]
        keywords = {name: _plain(value) for name, value in node.keywords}
        op = self._op(node.target)
        out = op(*arguments, **keywords)
        made: Tensor = out[0] if gives_several(op) else out
        return made

    def value(self, ref: Ref, values: Values) -> Any:
        """Return a result; a view is made of what it shows when it is first asked for."""
        if ref not in values:
            self._whole(self._graph.by_name[ref.node], values)
        return values[ref]


@dataclass(frozen=True)
class _Value:
    """A value in the place of a ``Ref``, apart from the plain arguments around it."""

    held: Any


def _plain(value: Any) -> Any:
    if isinstance(value, _Value):
        return value.held
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    return constant(value)
