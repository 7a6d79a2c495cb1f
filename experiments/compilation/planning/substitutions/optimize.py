"""A graph of records optimized by rules.

Terms, search, the cheapest graph written back, and what was done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from experiments.compilation.interface import Graph, Rewritten, Workbench
from experiments.compilation.planning.substitutions.emission import Emission
from experiments.compilation.planning.substitutions.graphs import Prices, TermGraph
from experiments.compilation.planning.substitutions.hard_coded import NO_FUSED_OP, SPECIALS
from experiments.compilation.planning.substitutions.importing import import_graph
from experiments.compilation.planning.substitutions.matcher import Matcher
from experiments.compilation.planning.substitutions.pattern import Pattern, pattern
from experiments.compilation.planning.substitutions.search import SearchLimits, Statistics
from experiments.compilation.planning.substitutions.space import RewriteSpace
from experiments.compilation.planning.substitutions.strategies import Whole
from experiments.compilation.planning.substitutions.terms import Terms
from experiments.compilation.planning.substitutions.verdicts import RuleVerdict
from experiments.core.progress import Progress, silent

#: From a space and its start to the best graph found: a whole search, or one in parts.
Strategy = Callable[[RewriteSpace, TermGraph, SearchLimits, Progress], tuple[TermGraph, Statistics]]


WHOLE = Whole()


@dataclass(frozen=True)
class Rulebook:
    """Rules that may be applied, and by name why others may not."""

    patterns: tuple[Pattern, ...]
    refused: Mapping[str, str] = field(default_factory=dict)


def rulebook(verdicts: Sequence[RuleVerdict]) -> Rulebook:
    patterns, refused = [], {}
    for verdict in verdicts:
        found = pattern(verdict)
        if isinstance(found, str):
            refused[verdict.name] = found
        else:
            patterns.append(found)
    return Rulebook(tuple(patterns), refused)


def optimize_graph(
    graph: Graph,
    bench: Workbench,
    rules: Rulebook,
    limits: SearchLimits,
    strategy: Strategy = WHOLE,
    progress: Progress = silent,
) -> Rewritten:
    """Return ``graph`` at the lowest cost that the search finds.

    What depends on constants only is computed once, and equal ops are one.
    """
    if graph.mutates:
        return Rewritten(graph, refused={"graph": "writes to its arguments: order and aliases matter"})
    source = import_graph(graph, Terms(bench.types))
    prices = Prices(source.terms, graph, bench)
    space = RewriteSpace(prices, Matcher(rules.patterns, source.terms), SPECIALS)
    start = prices.graph(source.roots)
    best, statistics = strategy(space, start, limits, progress)
    refused = {**rules.refused, **NO_FUSED_OP, **space.refused}
    emission = Emission(source, prices, best, bench.types)
    made = emission.graph()
    exactness = "reassociated" if best.steps() else "exact"
    figures = _figures(statistics) | {"terms": len(source.terms), "rules": len(rules.patterns)}
    figures |= {"cost_before": bench.cost(graph), "cost_after": bench.cost(made)}
    ended_at = _bound(limits) if statistics.truncated else ""
    return Rewritten(made, emission.applied_steps(made), refused, figures, exactness, ended_at=ended_at)


def _bound(limits: SearchLimits) -> str:
    return (
        f"the search ended at its bound of {limits.budget} graphs expanded (knob budget) or {limits.builds} "
        "built "
        "(knob builds) with the best so far"
    )


def _figures(statistics: Statistics) -> dict[str, float]:
    names = ("explored", "pruned", "duplicate", "rejected", "improved")
    return {name: float(getattr(statistics, name)) for name in names}
