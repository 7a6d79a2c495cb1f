"""How a search goes over a large graph.

As a whole, or part by part (``parts``) with the budget shared.

Each part is searched from where the last one ended, so that the result never costs more than the start. A
part is a set of terms; it follows its terms through every rewrite, also through those of other parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from experiments.compilation.planning.substitutions.graphs import OUTSIDE, TermGraph
from experiments.compilation.planning.substitutions.parts import (
    capacities,
    dominated_parts,
    flow_parts,
    window,
)
from experiments.compilation.planning.substitutions.search import SearchLimits, Statistics, search
from experiments.compilation.planning.substitutions.space import RewriteSpace
from experiments.core.progress import Progress, part


@dataclass(frozen=True)
class Whole:
    """One search over the whole graph (TASO, SOSP'19, section 6)."""

    def __call__(
        self, space: RewriteSpace, start: TermGraph, limits: SearchLimits, progress: Progress
    ) -> tuple[TermGraph, Statistics]:
        return search(space, start, limits, progress)


@dataclass(frozen=True)
class ByFlow:
    """Parts of at most ``threshold`` terms between minimum cuts, then around each cut.

    ``hops`` around each cut (MetaFlow, SysML'19, section 5.2).
    """

    threshold: int
    hops: int = 2

    def __call__(
        self, space: RewriteSpace, start: TermGraph, limits: SearchLimits, progress: Progress
    ) -> tuple[TermGraph, Statistics]:
        progress(0.0, f"dividing {len(start.order)} terms where few matches lie")
        matches, inputs = rewritten_terms(space, start), edges(start)
        parts = flow_parts(start.order, inputs, capacities(inputs, matches), self.threshold)
        if len(parts) == 1:
            return search(space, start, limits, progress)
        best, statistics = in_turn(space, start, parts, limits, part(progress, 0.0, 0.7))
        around = [_descendants(self._window(start, cut), best) for cut in _cuts(parts, inputs)]
        rest = replace(limits, budget=limits.budget - statistics.explored)
        best, more = in_turn(space, best, around, rest, part(progress, 0.7, 1.0))
        return best, statistics + more

    def _window(self, start: TermGraph, cut: Iterable[int]) -> set[int]:
        readers = {
            number: [r for r in start.readers.get(number, ()) if r != OUTSIDE] for number in start.order
        }
        return window(cut, edges(start), readers, self.hops)


@dataclass(frozen=True)
class ByDominators:
    """Parts of about ``threshold`` terms behind post-dominators that no match crosses.

    Unity, OSDI'22, section 5.
    """

    threshold: int

    def __call__(
        self, space: RewriteSpace, start: TermGraph, limits: SearchLimits, progress: Progress
    ) -> tuple[TermGraph, Statistics]:
        progress(0.0, f"dividing {len(start.order)} terms where no match crosses")
        parts = dominated_parts(start.order, edges(start), rewritten_terms(space, start), self.threshold)
        return in_turn(space, start, parts, limits, progress)


def edges(graph: TermGraph) -> dict[int, tuple[int, ...]]:
    """Of every live term the live terms that it reads."""
    live = set(graph.order)
    terms = graph.prices.terms
    return {n: tuple(source for source in terms[n].inputs if source in live) for n in graph.order}


def rewritten_terms(space: RewriteSpace, graph: TermGraph) -> list[frozenset[int]]:
    """Return the terms of every rewrite that can be made in ``graph``."""
    found = [frozenset(option.match.took) for option in space.options(graph)]
    return found + [frozenset(rewrite.took) for rewrite in space.special_rewrites(graph)]


def in_turn(
    space: RewriteSpace,
    start: TermGraph,
    parts: Sequence[Iterable[int]],
    limits: SearchLimits,
    progress: Progress,
) -> tuple[TermGraph, Statistics]:
    """One search within each part; what one leaves of the budget goes to those after it."""
    best, total = start, Statistics()
    for number, terms in enumerate(parts):
        share = -(-(limits.budget - total.explored) // (len(parts) - number))
        own = replace(limits, budget=share)
        space.within(best, _descendants(terms, best, start))
        ours = part(progress, number / len(parts), (number + 1) / len(parts))
        ours(0.0, f"part {number + 1} of {len(parts)}, best {best.cost:.3g} s")
        best, statistics = search(space, best, own, ours)
        total += statistics
    space.within(best, None)
    return best, total


def _descendants(terms: Iterable[int], graph: TermGraph, since: TermGraph | None = None) -> set[int]:
    """What became of ``terms`` by the rewrites that led from ``since`` (None: the input) to ``graph``, with
    what was made in their place.
    """
    found = set(terms)
    done = len(since.steps()) if since else 0
    for step in graph.steps()[done:]:
        mine = not found.isdisjoint(step.took)
        found = {step.moved.get(number, number) for number in found}
        if mine:
            found |= step.added
    return found


def _cuts(parts: Sequence[Sequence[int]], inputs: dict[int, tuple[int, ...]]) -> Iterator[list[int]]:
    """Of every part but the last the terms that a later part reads."""
    for number, own in enumerate(parts[:-1]):
        later = {n for other in parts[number + 1 :] for n in other}
        read = {source for n in later for source in inputs[n]}
        cut = [n for n in own if n in read]
        if cut:
            yield cut
