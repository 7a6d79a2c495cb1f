"""Where a rule's source occurs in a graph of terms.

Matches that hang from one term depend on that term alone and are found once for a whole search; a second
mapped output is looked for among the readers of what the first one bound. What a match becomes,
``application`` says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from experiments.compilation.planning.substitutions.graphs import OUTSIDE, TermGraph
from experiments.compilation.planning.substitutions.pattern import Bound, Match, Pattern
from experiments.compilation.planning.substitutions.terms import Terms
from experiments.workloads.substitutions import Operand, Operator

COMMUTATIVE = ("ew_add", "ew_mul")


class Matcher:
    """All matches of ``patterns`` in graphs over ``terms``."""

    def __init__(self, patterns: Sequence[Pattern], terms: Terms) -> None:
        self.terms = terms
        self._by_kind: dict[str, list[Pattern]] = defaultdict(list)
        for one in patterns:
            self._by_kind[one.rule.source[one.roots[0]].kind].append(one)
        self._at: dict[int, list[tuple[Pattern, Bound]]] = {}
        self.height = max((one.height for one in patterns), default=0)

    def matches(self, graph: TermGraph, at: Iterable[int] | None = None) -> Iterator[Match]:
        """Yield all matches whose first root is one of ``at`` (None: any term of the graph)."""
        for number in graph.order if at is None else at:
            for one, bound in self._hanging(number):
                for whole in self._complete(one, bound, graph, 0):
                    found = Match(one, tuple(whole.items()))
                    if self.stays_inside(found, graph):
                        yield found

    def _hanging(self, number: int) -> list[tuple[Pattern, Bound]]:
        """Matches of first roots at one term."""
        known = self._at.get(number)
        if known is None:
            known = self._at[number] = [
                (one, bound)
                for one in self._by_kind.get(self.terms[number].kind, ())
                for bound in self._at_operator(one, one.roots[0], number, {})
            ]
        return known

    def _at_operator(
        self, one: Pattern, index: int, number: int, bound: Bound
    ) -> Iterator[dict[Operand, int]]:
        """Ways in which operator ``index`` of the source is term ``number``, given what is bound."""
        operator, term = one.rule.source[index], self.terms[number]
        held = bound.get(Operand(index))
        if held is not None:
            if held == number:
                yield dict(bound)
            return
        if term.kind != operator.kind or not self._accepts(operator, number):
            return
        here = {**bound, Operand(index): number}
        orders = [term.inputs]
        if operator.kind in COMMUTATIVE and term.inputs[0] != term.inputs[1]:
            orders.append(term.inputs[::-1])
        for inputs in orders:
            yield from self._inputs(one, operator.inputs, inputs, here)

    def _inputs(
        self, one: Pattern, operands: Sequence[Operand], numbers: Sequence[int], bound: Bound
    ) -> Iterator[dict[Operand, int]]:
        if not operands:
            yield dict(bound)
            return
        operand, number = operands[0], numbers[0]
        if operand.is_variable:
            if bound.get(operand, number) == number:
                yield from self._inputs(one, operands[1:], numbers[1:], {**bound, operand: number})
            return
        for further in self._at_operator(one, operand.op, number, bound):
            yield from self._inputs(one, operands[1:], numbers[1:], further)

    def _accepts(self, operator: Operator, number: int) -> bool:
        """Parameters that the rule is about.

        Axes. Those of convolutions are bound and tested (``_is_right``).
        """
        term = self.terms[number]
        if operator.kind == "concat":
            return bool(term.data == operator.parameter("axis"))
        return operator.kind != "conv2d" or term.data[2] == (1, 1)

    def _complete(
        self, one: Pattern, bound: Bound, graph: TermGraph, done: int
    ) -> Iterator[dict[Operand, int]]:
        """``bound`` with the roots that are still to be found."""
        if done == len(one.climbs):
            yield dict(bound)
            return
        operand, path = one.climbs[done]
        reached = {bound[operand]}
        for index in path:
            kind = one.rule.source[index].kind
            reached = {
                reader
                for number in reached
                for reader in graph.readers.get(number, ())
                if reader != OUTSIDE and self.terms[reader].kind == kind
            }
        taken = set(bound.values())
        for number in sorted(reached - taken):
            for further in self._at_operator(one, path[-1], number, bound):
                yield from self._complete(one, further, graph, done + 1)

    def stays_inside(self, match: Match, graph: TermGraph) -> bool:
        """Nothing outside the match reads what is not mapped, and no variable depends on a mapped result."""
        bound = dict(match.bound)
        mapped = {bound[mine] for mine, _ in match.pattern.rule.outputs}
        took = {number for operand, number in bound.items() if not operand.is_variable}
        for number in took - mapped:
            if not self.terms[number].free and any(r not in took for r in graph.readers.get(number, ())):
                return False
        if any(self.terms[number].free for number in mapped):
            return False
        variables = {number for operand, number in bound.items() if operand.is_variable}
        return len(mapped) == 1 or not any(self._depends(number, mapped) for number in variables)

    def _depends(self, number: int, on: set[int]) -> bool:
        lowest = min(self.terms[target].depth for target in on)
        waiting, seen = [number], {number}
        while waiting:
            here = waiting.pop()
            if here in on:
                return True
            for source in self.terms[here].inputs:
                if source not in seen and self.terms[source].depth >= lowest:
                    seen.add(source)
                    waiting.append(source)
        return False
