"""When the values of a graph's nodes are let go, and which moves stand before which op."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from torch import fx

from experiments.core.errors import BadInput
from experiments.memory.interface import plan as moves
from experiments.memory.interface.plan import MemoryPlan, Move
from experiments.memory.interface.rerun import Lineage
from experiments.profiling.capture import Traced

#: What the live runner can carry out, with the host as the only tier.
SUPPORTED = (moves.Offload, moves.Prefetch, moves.Wait, moves.Drop, moves.Recompute)


@dataclass(frozen=True)
class Schedule:
    """``before[i]`` are the moves at op ``i``. ``after[name]`` are the nodes whose value node ``name`` needs last,
    ``after_moves[i]`` those that a rerun at op ``i`` needs last. ``again`` are the ops that some rerun repeats.
    """

    before: Mapping[int, list[Move]]
    after: Mapping[str, list[str]]
    after_moves: Mapping[int, list[str]]
    again: frozenset[int]


def schedule(traced: Traced, plan: MemoryPlan) -> Schedule:
    """``BadInput`` names a kind of move that torch cannot carry out here."""
    before: dict[int, list[Move]] = defaultdict(list)
    for move in plan.moves:
        kept = isinstance(move, moves.Prefetch) and move.keep
        if not isinstance(move, SUPPORTED) or getattr(move, "tier", "host") != "host" or kept:
            expected = "offload to the host, prefetch (no copy kept), wait, drop, recompute"
            raise BadInput(f"{move.action} at op {move.at} cannot be measured", "plan", expected)
        before[move.at].append(move)
    reruns = [move for move in plan.moves if isinstance(move, moves.Recompute)]
    after, after_moves = _last_needs(traced, reruns)
    return Schedule(before, after, after_moves, frozenset(op for move in reruns for op in move.ops))


def _last_needs(
    traced: Traced, reruns: list[moves.Recompute]
) -> tuple[dict[str, list[str]], dict[int, list[str]]]:
    nodes = {node.name: node for node in traced.graph_module.graph.nodes}
    order = {name: position for position, name in enumerate(nodes)}
    last: dict[str, tuple[int, str | int]] = {}
    for node in nodes.values():
        final = max((node, *node.users), key=lambda reader: order[reader.name])
        last[node.name] = (2 * order[final.name] + 1, final.name)
    lineage = Lineage(traced.step)
    for move in reruns:
        place = 2 * order[traced.step.ops.name[move.at]]
        for name in sources(move, traced, nodes, lineage):
            last[name] = max(last[name], (place, move.at), key=lambda entry: entry[0])
    after: dict[str, list[str]] = defaultdict(list)
    after_moves: dict[int, list[str]] = defaultdict(list)
    for name, (_, when) in last.items():
        if isinstance(when, int):
            after_moves[when].append(name)
        else:
            after[when].append(name)
    return after, after_moves


def made_by(move: moves.Recompute, lineage: Lineage) -> set[int]:
    """Tensors that a rerun makes; parameters and statistics keep their place."""
    return {tensor for op in move.ops for tensor in lineage.writes[op] if not lineage.persistent[tensor]}


def sources(
    move: moves.Recompute, traced: Traced, nodes: Mapping[str, fx.Node], lineage: Lineage
) -> set[str]:
    """Nodes whose present value a rerun reads: arguments that lie in no tensor that the rerun makes."""
    made = made_by(move, lineage)
    found: set[str] = set()
    seen: set[str] = set()
    todo = [argument for op in move.ops for argument in nodes[traced.step.ops.name[op]].all_input_nodes]
    while todo:
        node = todo.pop()
        if node.name in seen:
            continue
        seen.add(node.name)
        if made.isdisjoint(traced.tensor_of.get(node.name, ())):
            found.add(node.name)
        elif node.op == "call_function":
            todo.extend(node.all_input_nodes)
    return found
