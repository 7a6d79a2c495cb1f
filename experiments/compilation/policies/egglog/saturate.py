"""Rules applied to an e-graph round by round, until nothing is new or a limit is met.

The guards are those of the search: a rule fires where its exact test passes for the shapes at hand. Tensors
are joined in order (``ordering``) and never with what holds them already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from experiments.compilation.interface import IllTyped
from experiments.compilation.planning.substitutions.application import Application
from experiments.compilation.planning.substitutions.pattern import Match, Pattern
from experiments.compilation.planning.substitutions.space import Rewrite
from experiments.compilation.planning.substitutions.terms import Terms
from experiments.compilation.policies.egglog.egraph import EGraph
from experiments.compilation.policies.egglog.ordering import Neighbors, exchangeable, first_concatenation
from experiments.core.errors import BadInput
from experiments.core.progress import Progress
from experiments.workloads.substitutions import Operand


@dataclass(frozen=True)
class Bounds:
    """When to stop although more would match: rounds, terms in the e-graph, matches that are looked at.

    ``nodes`` of branch and bound when the cheapest graph is selected.
    """

    rounds: int = 64
    terms: int = 20_000
    matches: int = 1_000_000
    nodes: int = 10_000


class Saturation:
    """An e-graph of ``terms`` that grows by ``patterns``.

    ``rewrites`` are all equalities asserted, in order.
    """

    def __init__(self, terms: Terms, patterns: Sequence[Pattern]) -> None:
        self.terms = terms
        self.egraph = EGraph(terms, patterns)
        self.rewrites: list[Rewrite] = []
        self.refused: dict[str, str] = {}
        self.rounds = 0
        self.stopped = ""
        self._looked_at = 0
        self._application = Application(terms)
        self._neighbors = Neighbors()
        self._perform: set[tuple[str, frozenset[int], tuple[int, ...]]] = set()
        self.egraph.grow()

    def run(self, bounds: Bounds, progress: Progress) -> None:
        """Until saturated, or stopped by a bound.

        ``stopped`` says which, for good (matches left then do not return).
        """
        for _ in range(bounds.rounds):
            found = self.egraph.matches()
            progress(min(1.0, self.rounds / bounds.rounds), f"round {self.rounds + 1}: {len(found)} matches")
            fresh = []
            for match in self._one_of_each(found):
                self.stopped = self._bound_met(bounds)
                if self.stopped:
                    break
                self._looked_at += 1
                progress(min(1.0, self.rounds / bounds.rounds), "")
                rewrite = self._rewrite(match)
                fresh += [rewrite] if rewrite else []
            if not self.tell(fresh) or self.stopped:
                return
            self.rounds += 1
        self.stopped = "rounds"

    def _bound_met(self, bounds: Bounds) -> str:
        if len(self.terms) >= bounds.terms:
            return "terms"
        return "matches" if self._looked_at >= bounds.matches else ""

    def tell(self, rewrites: Sequence[Rewrite]) -> bool:
        """Takes in equalities; whether there were any that were not known."""
        news = [rewrite for rewrite in rewrites if not self._is_known(rewrite)]
        for rewrite in news:
            self.egraph.unite(rewrite.replaced)
        self.egraph.grow()
        self.rewrites += news
        return bool(news)

    def _is_known(self, rewrite: Rewrite) -> bool:
        held, of = self.egraph.held, self.egraph.class_of
        return all(new < held and of(old) == of(new) for old, new in rewrite.replaced.items())

    def _one_of_each(self, found: Sequence[Match]) -> Iterator[Match]:
        """Yield the matches that join what may be joined.

        Of those of one rule that take the same operators and join in the same order the first.
        """
        for match in found:
            self._notice(match)
        for match in found:
            key = match.pattern.rule.name, frozenset(match.took), self._joined(match)
            if key not in self._perform and not self._is_free(match) and self._joins_well(match):
                self._perform.add(key)
                yield match

    def _rewrite(self, match: Match) -> Rewrite | None:
        """Return what the match says is equal, if the rule is right here and the target new."""
        name = match.pattern.rule.name
        try:
            if not self._application.is_right(match):
                self.refused[name] = "its exact test or guard fails for the shapes matched"
                return None
            replaced = self._application.target(match)
        except (IllTyped, BadInput) as error:
            self.refused[name] = str(error)
            return None
        return Rewrite(name, match.took, replaced) if replaced else None

    def _is_free(self, match: Match) -> bool:
        """What depends on constants alone is computed once: nothing to gain."""
        bound: Mapping[object, int] = dict(match.bound)
        return any(self.terms[bound[mine]].free for mine, _ in match.pattern.rule.outputs)

    def _notice(self, match: Match) -> None:
        """Which two tensors can be joined."""
        pair = exchangeable(match.pattern.rule)
        if pair:
            first, second = (self._parts(match, operand) for operand in pair)
            if len(first) == len(second) == 1:
                self._neighbors.add(first[0], second[0])

    def _joined(self, match: Match) -> tuple[int, ...]:
        """Return the classes that the match joins, in order, where order is free."""
        pair = exchangeable(match.pattern.rule)
        return tuple(part for operand in pair or () for part in self._parts(match, operand))

    def _joins_well(self, match: Match) -> bool:
        """Return whether what the target joins has no part in common and, where order is free, follows in
        order.
        """
        pair = first_concatenation(match.pattern.rule)
        if pair is None:
            return True
        left, right = (self._parts(match, operand) for operand in pair)
        if set(left) & set(right):
            return False
        if not exchangeable(match.pattern.rule) or (left[-1], right[0]) in self.egraph.follow:
            return True
        return left[-1] < right[0] and self._neighbors.follows(right[0], left[-1])

    def _parts(self, match: Match, operand: Operand) -> list[int]:
        """Return the classes that a join joins; the tensor's own where it is none."""
        waiting, found = [dict(match.bound)[operand]], []
        while waiting:
            term = self.terms[waiting.pop()]
            if term.kind == "concat" and term.number >= self.egraph.given:
                waiting += term.inputs[::-1]
            else:
                found.append(self.egraph.class_of(term.number))
        return found

    def summary(self) -> dict[str, float]:
        classes = {self.egraph.class_of(number) for number in range(self.egraph.held)}
        return {
            "rounds": float(self.rounds),
            "terms": float(len(self.terms)),
            "classes": float(len(classes)),
            "rewrites": float(len(self.rewrites)),
            "saturated": float(not self.stopped),
        }
