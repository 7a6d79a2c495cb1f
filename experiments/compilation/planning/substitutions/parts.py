"""Large graphs are optimized in parts.

cut where few matches lie, search each part, then around the cuts.

MetaFlow (SysML'19, section 5.2) cuts by flow: the capacity of a node is the number of matches that use an
edge into it and one out of it, a minimum vertex cut divides the graph, and so on until parts are small. Unity
(OSDI'22, section 5) cuts at post-dominators of the source that no match crosses. Both leave sizes open: a cut
that leaves less than a fifth on a side is not taken; of equal cuts the one nearest the middle, then the
earliest node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from experiments.core.errors import BadInput

LEAST_SHARE = 0.2
#: Beside this, ties of position weigh nothing.
SCALE = 10**9

Edges = Mapping[int, Sequence[int]]


def networkx() -> Any:
    try:
        import networkx
    except ImportError:
        raise BadInput("networkx is not installed", "cuts of a graph", "the package networkx") from None
    return networkx


def capacities(inputs: Edges, matches: Iterable[Set[int]]) -> dict[int, int]:
    """For every node of ``inputs`` the matches that hold a node which it reads and one that reads it."""
    found = dict.fromkeys(inputs, 0)
    for match in matches:
        read = {source for node in match for source in inputs.get(node, ()) if source in match}
        for node in match:
            if node in read and any(source in match for source in inputs.get(node, ())):
                found[node] += 1
    return found


def minimum_cut(order: Sequence[int], inputs: Edges, capacity: Mapping[int, int]) -> tuple[list[int], int]:
    """Return the nodes of a minimum vertex cut of ``order`` (topological) and the matches that it cuts."""
    place = {node: number for number, node in enumerate(order)}
    flow = networkx().DiGraph()
    read: set[int] = set()
    for node in order:
        # Integers keep the flow exact; the position decides among equal cuts.
        aside = 2 * abs(2 * place[node] - len(order) + 1) + (2 * place[node] >= len(order))
        flow.add_edge(("in", node), ("out", node), capacity=capacity.get(node, 0) * SCALE + aside + 1)
        sources = [source for source in inputs.get(node, ()) if source in place]
        read.update(sources)
        for source in sources:
            flow.add_edge(("out", source), ("in", node))
        if not sources:
            flow.add_edge("source", ("in", node))
    for node in order:
        if node not in read:
            flow.add_edge(("out", node), "sink")
    _, (near, _) = networkx().minimum_cut(flow, "source", "sink")
    chosen = [node for node in order if ("in", node) in near and ("out", node) not in near]
    return chosen, sum(capacity.get(node, 0) for node in chosen)


def flow_parts(
    order: Sequence[int], inputs: Edges, capacity: Mapping[int, int], threshold: int
) -> list[list[int]]:
    """Return ``order`` in parts of at most ``threshold`` nodes, where balanced cuts exist.

    A cut's nodes end the part before it.
    """
    if len(order) <= threshold:
        return [list(order)]
    cut, _ = minimum_cut(order, inputs, capacity)
    before = _before(cut, inputs, set(order))
    first = [node for node in order if node in before]
    second = [node for node in order if node not in before]
    if min(len(first), len(second)) < LEAST_SHARE * len(order):
        return [list(order)]
    return [part for half in (first, second) for part in flow_parts(half, inputs, capacity, threshold)]


def _before(cut: Sequence[int], inputs: Edges, within: set[int]) -> set[int]:
    found, waiting = set(cut), list(cut)
    while waiting:
        for source in inputs.get(waiting.pop(), ()):
            if source in within and source not in found:
                found.add(source)
                waiting.append(source)
    return found


def post_dominators(order: Sequence[int], inputs: Edges) -> list[int]:
    """Return nodes that every path from the first node to the end goes through, in order."""
    place = set(order)
    backwards = networkx().DiGraph()
    read: set[int] = set()
    for node in order:
        sources = [source for source in inputs.get(node, ()) if source in place]
        read.update(sources)
        backwards.add_edges_from((node, source) for source in sources)
        if not sources:
            backwards.add_edge(node, "source")
    backwards.add_edges_from(("sink", node) for node in order if node not in read)
    above = networkx().immediate_dominators(backwards, "sink")
    found, node = [], above["source"]
    while node != "sink":
        found.append(node)
        node = above[node]
    return found


def dominated_parts(
    order: Sequence[int], inputs: Edges, matches: Sequence[Set[int]], threshold: int, most_crossing: int = 0
) -> list[list[int]]:
    """Return ``order`` cut behind post-dominators whose out-edges at most ``most_crossing`` matches use.

    The fewest first.
    """
    if len(order) <= threshold:
        return [list(order)]
    place = {node: number for number, node in enumerate(order)}
    best: tuple[int, int, int] | None = None
    for node in post_dominators(order, inputs):
        crossing = sum(_crosses(match, node, inputs) for match in matches)
        left = place[node] + 1
        below = threshold - left if left <= threshold else left  # the left part nearest below the threshold
        if crossing <= most_crossing and left < len(order):
            best = min(best or (crossing, below, node), (crossing, below, node))
    if best is None:
        return [list(order)]
    before = _before([best[2]], inputs, set(order))
    first = [node for node in order if node in before]
    second = [node for node in order if node not in before]
    if not second:
        return [first]
    return [
        *dominated_parts(first, inputs, matches, threshold, most_crossing),
        *dominated_parts(second, inputs, matches, threshold, most_crossing),
    ]


def _crosses(match: Set[int], node: int, inputs: Edges) -> bool:
    return node in match and any(node in inputs.get(other, ()) for other in match)


def window(cut: Iterable[int], inputs: Edges, readers: Edges, hops: int) -> set[int]:
    """Return nodes within ``hops`` edges of ``cut``."""
    found = set(cut)
    for _ in range(hops):
        around = [other for node in found for other in (*inputs.get(node, ()), *readers.get(node, ()))]
        found |= {other for other in around if other in inputs}
    return found
