"""A graph of records optimized by equality saturation.

Terms, e-graph, cheapest selection, written back as records.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from experiments.compilation.interface import Graph, IllTyped, Rewritten, Workbench
from experiments.compilation.planning.substitutions.emission import Emission
from experiments.compilation.planning.substitutions.graphs import (
    GraphView,
    Prices,
    RewriteStep,
    TermGraph,
    again,
)
from experiments.compilation.planning.substitutions.hard_coded import NO_FUSED_OP, SPECIALS
from experiments.compilation.planning.substitutions.importing import Imported, import_graph
from experiments.compilation.planning.substitutions.optimize import Rulebook
from experiments.compilation.planning.substitutions.space import Rewrite
from experiments.compilation.planning.substitutions.terms import BROADCAST, LEAF, RESULT, Term, Terms
from experiments.compilation.policies.egglog.egraph import Key
from experiments.compilation.policies.egglog.egraph_view import REJOINED, EGraphView
from experiments.compilation.policies.egglog.extraction import Extracted, TermChoice, extract
from experiments.compilation.policies.egglog.saturate import Bounds, Saturation
from experiments.core.progress import Progress

#: How often hard-coded rules, which look at a graph and not at an e-graph, see the cheapest graph again.
MOST_GRAPHS = 4


@dataclass(frozen=True)
class Pick:
    """The e-node of term ``node``, computed as ``number`` by one call that has the terms ``inside`` it."""

    node: int
    number: int
    inside: frozenset[int] = frozenset()


def saturate_graph(graph: Graph, bench: Workbench, rules: Rulebook, bounds: Bounds) -> Rewritten:
    """Return ``graph`` at the lowest cost among all that the e-graph holds.

    What depends on constants only is computed once, and equal ops are one.
    """
    if graph.mutates:
        return Rewritten(graph, refused={"graph": "writes to its arguments: order and aliases matter"})
    source = import_graph(graph, Terms(bench.types))
    prices = Prices(source.terms, graph, bench)
    start, given = prices.graph(source.roots), len(source.terms)
    saturation = Saturation(source.terms, rules.patterns)
    best, proved = start, True
    saturation.tell(_hard_coded(source.terms, start))
    for _ in range(MOST_GRAPHS):
        _grow(saturation, source, bounds, bench.progress)
        found = _Cheapest(saturation, prices, source, given).graph(bounds.nodes, bench.progress)
        if found is None:
            proved = False
            break
        proved = proved and found.proved
        if found.graph.cost < best.cost:
            best = found.graph
        if saturation.stopped or not saturation.tell(_hard_coded(source.terms, found.graph)):
            break
    figures = saturation.summary() | {"proved_cheapest": float(proved)}
    refused = {**rules.refused, **NO_FUSED_OP, **saturation.refused}
    written = _written(source, prices, best, refused, figures, bench)
    return replace(written, ended_at=_bound(saturation.stopped, proved, bounds))


def _bound(stopped: str, proved: bool, bounds: Bounds) -> str:
    """At which bound the e-graph stopped growing or the selection among what it holds ended.

    Empty at none.
    """
    if stopped:
        return (
            f"the e-graph stopped growing at its bound of {getattr(bounds, stopped)} {stopped} (knob "
            f"{stopped})"
        )
    return "" if proved else f"the selection ended at its bound of {bounds.nodes} nodes (knob nodes)"


def _grow(saturation: Saturation, source: Imported, bounds: Bounds, progress: Progress) -> None:
    """Rules, then hard-coded rules on all that the e-graph holds, until these say nothing new or a bound is
    met.
    """
    while True:
        saturation.run(bounds, progress)
        everything = EGraphView(saturation.egraph, source.roots)
        news = [*everything.rejoinings(), *_hard_coded(source.terms, everything)]
        if saturation.stopped or not saturation.tell(news):
            return


def _hard_coded(terms: Terms, graph: GraphView) -> list[Rewrite]:
    return [rewrite for special in SPECIALS for rewrite in special(terms, graph)]


def _written(
    source: Imported,
    prices: Prices,
    best: TermGraph,
    refused: Mapping[str, str],
    figures: Mapping[str, float],
    bench: Workbench,
) -> Rewritten:
    emission = Emission(source, prices, best, bench.types)
    made = emission.graph()
    figures = {**figures, "cost_before": bench.cost(source.graph), "cost_after": bench.cost(made)}
    exactness = "reassociated" if best.steps() else "exact"
    return Rewritten(made, emission.applied_steps(made), refused, figures, exactness)


@dataclass(frozen=True)
class _Found:
    graph: TermGraph
    proved: bool


class _Cheapest:
    """The cheapest graph of a saturated e-graph; ``given`` terms are of the input graph."""

    def __init__(self, saturation: Saturation, prices: Prices, source: Imported, given: int) -> None:
        self.terms, self.prices, self.source = prices.terms, prices, source
        self.saturation, self.given = saturation, given
        egraph = saturation.egraph
        self._key = egraph.key
        self._of = [egraph.class_of(number) for number in range(egraph.held)]
        members_of: dict[int, list[int]] = defaultdict(list)
        for number, owner in enumerate(self._of):
            members_of[owner].append(number)
        self._nodes = {owner: self._distinct(members) for owner, members in members_of.items()}

    def _distinct(self, members: list[int]) -> list[Term]:
        """One term for each e-node of a class, the one of the input graph before others."""
        found: dict[Key, Term] = {}
        for number in sorted(members, key=lambda n: (not self.terms[n].origin, n)):
            found.setdefault(self._key(number), self.terms[number])
        return list(found.values())

    def graph(self, nodes: int, progress: Progress) -> _Found | None:
        """None where no selection was found within so many ``nodes``, or the one found cannot be built."""
        roots = [self._of[number] for number in self.source.roots]
        choices = {owner: list(self._choices(owner)) for owner in self._nodes}
        found = extract(choices, roots, nodes, progress)
        if found is None:
            return None
        try:
            built = self._built(found)
        except IllTyped:
            return None
        step = self._steps(found, built)
        return _Found(self.prices.graph(tuple(built[root] for root in roots), step), found.proved)

    def _choices(self, owner: int) -> Iterator[TermChoice[Pick]]:
        """Yield the calls that compute a class; one without any cost where it depends on constants alone."""
        free = next((term for term in self._nodes[owner] if term.free), None)
        if free is not None:
            yield TermChoice(Pick(free.number, free.number), (), 0.0)
            return
        for term in self._nodes[owner]:
            if term.kind == LEAF:
                yield TermChoice(Pick(term.number, term.number), (), 0.0)
                continue
            if term.origin:
                yield self._choice(term, frozenset(term.covers))
            if not term.origin or term.covers:
                yield self._choice(term, frozenset())
            yield from self._with_bias(term)

    def _choice(self, term: Term, inside: frozenset[int]) -> TermChoice[Pick]:
        pick = Pick(term.number, term.number, inside)
        reads = tuple(dict.fromkeys(self._of[number] for number in self._boundary(term.number, inside)))
        return TermChoice(pick, reads, self._seconds(term, inside))

    def _boundary(self, number: int, inside: frozenset[int]) -> Iterator[int]:
        for source in self.terms[number].inputs:
            if source in inside:
                yield from self._boundary(source, inside)
            else:
                yield source

    def _seconds(self, term: Term, inside: frozenset[int]) -> float:
        if term.kind == RESULT:
            return 0.0
        if inside == frozenset(term.covers) and term.origin:
            return self.prices.charge(term.number, lambda _: ())
        return self.prices.call_seconds(self.terms.call(term.kind, term.data, term.inputs))

    def _with_bias(self, term: Term) -> Iterator[TermChoice[Pick]]:
        """An addition of a bias to a product that no one else needs: one call."""
        if term.kind != "ew_add":
            return
        for product, bias in (term.inputs, term.inputs[::-1]):
            spread = next((t for t in self._nodes[self._of[bias]] if t.kind == BROADCAST and t.free), None)
            if spread is None:
                continue
            for inner in self._nodes[self._of[product]]:
                if inner.kind in ("matmul", "conv2d") and inner.number != term.number:
                    whole = self.terms.make("ew_add", None, (inner.number, spread.number))
                    yield from self._fused(term, whole, inner)

    def _fused(self, term: Term, whole: int, inner: Term) -> Iterator[TermChoice[Pick]]:
        alone = {inner.number: (whole,)}
        inside = self.prices.inside(whole, lambda number: alone.get(number, ()))
        if inside and not (self.terms[whole].origin and inner.number in self.terms[whole].covers):
            cost = self.prices.call_seconds(self.prices.call(whole, inside))
            reads = tuple(dict.fromkeys(self._of[number] for number in inner.inputs))
            yield TermChoice(Pick(term.number, whole, frozenset(inside)), reads, cost)

    def _built(self, found: Extracted[Pick]) -> dict[int, int]:
        """Return the term of every chosen class, on its chosen inputs."""
        built: dict[int, int] = {}
        for owner, choice in found.chosen.items():
            built[owner] = self._rebuilt(choice.name.number, choice.name.inside, built)
        return built

    def _rebuilt(self, number: int, inside: frozenset[int], built: Mapping[int, int]) -> int:
        term = self.terms[number]
        if term.free or term.kind == LEAF:
            return number
        new = {
            source: self._rebuilt(source, inside, built) if source in inside else self._now(source, built)
            for source in term.inputs
        }
        moved = again(self.terms, number, {old: now for old, now in new.items() if old != now})
        return number if moved is None else moved

    def _now(self, number: int, built: Mapping[int, int]) -> int:
        """What stands for an input; what is free may be the term itself."""
        return number if self.terms[number].free else built[self._of[number]]

    def _steps(self, found: Extracted[Pick], built: Mapping[int, int]) -> RewriteStep | None:
        """Return the rewrites that led from the input graph to what was chosen, in the order asserted."""
        step: RewriteStep | None = None
        for place in sorted(self._used_rewrites(found)):
            rewrite = self.saturation.rewrites[place]
            if rewrite.rule == REJOINED:
                continue
            made = tuple(built.get(self._of[new], new) for new in rewrite.replaced.values())
            step = RewriteStep(rewrite.rule, rewrite.took, made, {}, step)
        return step

    def _used_rewrites(self, found: Extracted[Pick]) -> set[int]:
        """Return the places of the rewrites that made what was chosen.

        With those that made what those took, or that replaced an op by another.
        """
        picks = [choice.name for choice in found.chosen.values()]
        chosen = {self._key(number) for pick in picks for number in (pick.node, *self._members(pick.inside))}
        given = {self._key(number) for number in range(self.given)}
        first: dict[Key, int] = {}
        used: set[int] = set()
        for place, rewrite in enumerate(self.saturation.rewrites):
            for old, new in rewrite.replaced.items():
                first.setdefault(self._key(new), place)
                if self._key(new) in given & chosen and self._key(old) in given - chosen:
                    used.add(place)
        waiting = [key for key in chosen - given if key in first]
        while waiting:
            place = first[waiting.pop()]
            if place not in used:
                used.add(place)
                took = {self._key(number) for number in self.saturation.rewrites[place].took}
                waiting += [key for key in took - given if key in first]
        return used

    def _members(self, numbers: Iterable[int]) -> Iterator[int]:
        return (number for number in numbers if number < len(self._of))
