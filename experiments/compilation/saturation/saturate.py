"""Rules applied to an e-graph round by round, until nothing is new or a limit is met.

The guards are those of the search: a rule fires where its exact test passes for the shapes at hand. Two matches of one
rule that take the same operators are one (their targets differ in order alone), and a match is left out whose target
would join tensors that are joined already: it could go on for ever and saves nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.compilation.interface import IllTyped
from experiments.compilation.rules.matcher import Match, Matcher, Pattern
from experiments.compilation.rules.space import Rewrite
from experiments.compilation.rules.terms import Terms
from experiments.compilation.saturation.egraph import EGraph
from experiments.core.errors import BadInput
from experiments.core.progress import Progress
from experiments.workloads.substitutions import Operand


@dataclass(frozen=True)
class Bounds:
    """When to stop although more would match: rounds, terms in the e-graph, seconds of wall time."""

    rounds: int = 8
    terms: int = 20_000
    seconds: float = math.inf


class Saturation:
    """An e-graph of ``terms`` that grows by ``patterns``; ``rewrites`` are all equalities told, in order."""

    def __init__(self, terms: Terms, patterns: Sequence[Pattern]) -> None:
        self.terms = terms
        self.egraph = EGraph(terms, patterns)
        self.rewrites: list[Rewrite] = []
        self.refused: dict[str, str] = {}
        self.rounds = 0
        self.stopped = ""
        self._matcher = Matcher(patterns, terms)
        self._done: set[tuple[str, frozenset[int]]] = set()
        self.egraph.grow()

    def run(self, bounds: Bounds, progress: Progress) -> None:
        """Until saturated, or stopped by a bound: ``stopped`` says which."""
        began = time.monotonic()
        self.stopped = ""
        for _ in range(bounds.rounds):
            found = self.egraph.matches()
            progress(min(1.0, self.rounds / bounds.rounds), f"round {self.rounds + 1}: {len(found)} matches")
            fresh = []
            for match in found:
                if len(self.terms) >= bounds.terms or time.monotonic() - began > bounds.seconds:
                    self.stopped = "terms" if len(self.terms) >= bounds.terms else "seconds"
                    break
                rewrite = self._rewrite(match)
                fresh += [rewrite] if rewrite else []
            if not self.tell(fresh) or self.stopped:
                return
            self.rounds += 1
        self.stopped = "rounds"

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

    def _rewrite(self, match: Match) -> Rewrite | None:
        """What the match says is equal, if the rule is right here and the target new."""
        name = match.pattern.rule.name
        key = name, frozenset(match.took)
        if key in self._done or self._is_free(match) or self._joins_again(match):
            return None
        self._done.add(key)
        try:
            if not self._matcher.is_right(match):
                self.refused[name] = "its exact test or guard fails for the shapes matched"
                return None
            replaced = self._matcher.target(match)
        except (IllTyped, BadInput) as error:
            self.refused[name] = str(error)
            return None
        return Rewrite(name, match.took, replaced) if replaced else None

    def _is_free(self, match: Match) -> bool:
        """What depends on constants alone is computed once: nothing to gain."""
        bound: Mapping[object, int] = dict(match.bound)
        return any(self.terms[bound[mine]].free for mine, _ in match.pattern.rule.outputs)

    def _joins_again(self, match: Match) -> bool:
        """Whether the target would concatenate tensors that have a part in common."""
        bound: Mapping[Operand, int] = dict(match.bound)
        for operator in match.pattern.rule.target:
            if operator.kind == "concat" and all(operand.is_variable for operand in operator.inputs):
                axis = operator.parameter("axis")
                parts = [part for operand in operator.inputs for part in self._parts(bound[operand], axis)]
                if len(set(parts)) < len(parts):
                    return True
        return False

    def _parts(self, number: int, axis: int) -> list[int]:
        """The classes that a concatenation of concatenations joins; the term's own where it is none."""
        term = self.terms[number]
        if term.kind != "concat" or term.data != axis:
            return [self.egraph.class_of(number)]
        return [part for source in term.inputs for part in self._parts(source, axis)]

    def summary(self) -> dict[str, float]:
        classes = {self.egraph.class_of(number) for number in range(self.egraph.held)}
        return {
            "rounds": float(self.rounds),
            "terms": float(len(self.terms)),
            "classes": float(len(classes)),
            "rewrites": float(len(self.rewrites)),
            "saturated": float(not self.stopped),
        }
