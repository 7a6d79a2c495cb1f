"""A graph of records optimised by rules: terms, search, the cheapest graph written back, and what was done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from experiments.compilation.interface import Graph, Rewritten, Workbench
from experiments.compilation.rules.emission import Emission
from experiments.compilation.rules.graphs import Prices, TermGraph
from experiments.compilation.rules.hard_coded import NO_FUSED_OP, SPECIALS
from experiments.compilation.rules.importing import imported
from experiments.compilation.rules.matcher import Matcher, Pattern, pattern
from experiments.compilation.rules.search import Limits, Statistics, search
from experiments.compilation.rules.space import RewriteSpace
from experiments.compilation.rules.terms import Terms
from experiments.compilation.rules.verdicts import Verdict
from experiments.core.progress import Progress

#: From a space and its start to the best graph found: a whole search, or one in parts.
Strategy = Callable[[RewriteSpace, TermGraph, Limits, Progress], tuple[TermGraph, Statistics]]


@dataclass(frozen=True)
class Rulebook:
    """Rules that may be applied, and by name why others may not."""

    patterns: tuple[Pattern, ...]
    refused: Mapping[str, str] = field(default_factory=dict)


def rulebook(verdicts: Sequence[Verdict]) -> Rulebook:
    patterns, refused = [], {}
    for verdict in verdicts:
        found = pattern(verdict)
        if isinstance(found, str):
            refused[verdict.name] = found
        else:
            patterns.append(found)
    return Rulebook(tuple(patterns), refused)


def whole(
    space: RewriteSpace, start: TermGraph, limits: Limits, progress: Progress
) -> tuple[TermGraph, Statistics]:
    """One search over the whole graph."""
    return search(space, start, limits, progress)


def optimised(
    graph: Graph, bench: Workbench, rules: Rulebook, limits: Limits, strategy: Strategy = whole
) -> Rewritten:
    """``graph`` at the lowest cost that the search finds; the input itself where that is its own."""
    if graph.mutates:
        return Rewritten(graph, refused={"graph": "writes to its arguments: order and aliases matter"})
    source = imported(graph, Terms(bench.types))
    prices = Prices(source.terms, graph, bench)
    space = RewriteSpace(prices, Matcher(rules.patterns, source.terms), SPECIALS)
    start = prices.graph(source.roots)
    best, statistics = strategy(space, start, limits, bench.progress)
    refused = {**rules.refused, **NO_FUSED_OP, **space.refused}
    figures = _figures(statistics, start, best, len(source.terms))
    if not best.steps():
        return Rewritten(graph, refused=refused, search=figures)
    emission = Emission(source, prices, best, bench.types)
    made = emission.graph()
    return Rewritten(made, emission.applied(made), refused, figures, exactness="reassociated")


def _figures(statistics: Statistics, start: TermGraph, best: TermGraph, terms: int) -> dict[str, float]:
    names = ("explored", "pruned", "duplicate", "rejected", "improved", "seconds")
    found = {name: float(getattr(statistics, name)) for name in names}
    return found | {"cost_before": start.cost, "cost_after": best.cost, "terms": float(terms)}
