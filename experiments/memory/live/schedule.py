"""When the values of a graph's nodes are let go, and which moves stand before which op."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import fx

from experiments.core.errors import BadInput
from experiments.memory.interface import plan as moves
from experiments.memory.interface.lineage import Lineage
from experiments.memory.interface.plan import MemoryMove, MemoryPlan
from experiments.memory.interface.release import Release
from experiments.memory.interface.space import Paging
from experiments.memory.live.ledger import TIERS
from experiments.profiling.capture import Traced

#: Moves that stand between ops.
BETWEEN = (
    moves.Offload,
    moves.Prefetch,
    moves.WaitForCopy,
    moves.Drop,
    moves.Recompute,
    moves.Compress,
    moves.Decompress,
)


@dataclass(frozen=True)
class NodeSchedule:
    """A plan's moves and lifetimes by the nodes of the graph.

    ``before[i]``       the moves at op ``i``.
    ``after[name]``     the nodes whose value node ``name`` needs last.
    ``after_moves[i]``  those that a recomputation at op ``i`` needs last.
    ``again``           the ops that are recomputed.
    ``on_host``         those that run on the host's processor.
    ``places``          what is off the device between steps.
    """

    before: Mapping[int, list[MemoryMove]]
    after: Mapping[str, list[str]]
    after_moves: Mapping[int, list[str]]
    again: frozenset[int]
    on_host: frozenset[int]
    places: tuple[moves.PlaceTensor, ...]


def refuse(plan: MemoryPlan) -> None:
    """``BadInput`` names what torch cannot carry out here."""
    whole = (
        (plan.overlays, "overlays: kernels of torch cannot write over what they read"),
        (isinstance(plan.space, Paging), "pages"),
        (isinstance(plan.space, Release), "the rules of a published release"),
        (plan.reactive, "decisions while it runs"),
        (any(getattr(move, "late", False) for move in plan.moves), "updates one step late"),
    )
    for asked, what in whole:
        if asked:
            raise BadInput(f"the plan asks for {what}", "spec.mode", "simulated")
    for move in plan.moves:
        tier = move.through if isinstance(move, moves.OnHost) else getattr(move, "tier", "host")
        far = isinstance(move, moves.OnHost) and tier != "host"
        if not isinstance(move, (*BETWEEN, moves.OnHost, moves.PlaceTensor)) or tier not in TIERS or far:
            expected = "copies to host or storage, drops, reruns, codecs, places, ops on the host's memory"
            raise BadInput(f"{move.action} at op {move.at} ({tier}) cannot be measured", "plan", expected)


def schedule(traced: Traced, plan: MemoryPlan, nodes: Sequence[fx.Node]) -> NodeSchedule:
    """``nodes`` are the graph's in the order in which they run."""
    refuse(plan)
    before: dict[int, list[MemoryMove]] = defaultdict(list)
    for move in plan.moves:
        if isinstance(move, BETWEEN):
            before[move.at].append(move)
    reruns = [move for move in plan.moves if isinstance(move, moves.Recompute)]
    after, after_moves = _last_needs(traced, reruns, nodes)
    return NodeSchedule(
        before,
        after,
        after_moves,
        again=frozenset(op for move in reruns for op in move.ops),
        on_host=frozenset(move.at for move in plan.moves if isinstance(move, moves.OnHost)),
        places=tuple(move for move in plan.moves if isinstance(move, moves.PlaceTensor)),
    )


def in_order(traced: Traced, names: Sequence[str]) -> list[fx.Node]:
    """Return the graph's nodes with its ops in the order of ``names``.

    Each other node follows the last that it reads.
    """
    nodes = list(traced.graph_module.graph.nodes)
    ops, by_name = set(names), {node.name: node for node in nodes}
    leaves = [node for node in nodes if node.op in ("placeholder", "get_attr")]
    followers: dict[str, list[fx.Node]] = defaultdict(list)
    position = {name: place for place, name in enumerate(names)}
    for node in nodes:
        if node.op == "call_function" and node.name not in ops:
            last = max(node.all_input_nodes, key=lambda read: position.get(read.name, -1))
            position[node.name] = position.get(last.name, -1)
            followers[last.name].append(node)
    found = [*leaves]

    def add(node: fx.Node) -> None:
        found.append(node)
        for follower in followers[node.name]:
            add(follower)

    for name in names:
        add(by_name[name])
    return [*found, *(node for node in nodes if node.op == "output")]


def _last_needs(
    traced: Traced, reruns: list[moves.Recompute], ordered: Sequence[fx.Node]
) -> tuple[dict[str, list[str]], dict[int, list[str]]]:
    nodes = {node.name: node for node in ordered}
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
