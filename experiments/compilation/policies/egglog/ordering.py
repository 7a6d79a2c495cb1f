"""In which order tensors are joined, so that n of them do not make all trees of joins.

Where a rule matches two operators in either order (products of one input), the targets differ in order alone:
the e-graph is asked only for those that append one tensor to a join of tensors with lower numbers. So n
tensors make 2^n joins; of more than ``MOST_SUBSETS`` that can be joined with each other only neighbors in
the order of numbers are, n^2 / 2 joins. Besides, tensors are joined in the orders that the graph's own
concatenations have (``wanted_orders``), which then fall away.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from experiments.compilation.planning.substitutions.terms import Terms
from experiments.workloads.substitutions import Operand, Operator, Substitution

MOST_SUBSETS = 6


def exchangeable(rule: Substitution) -> tuple[Operand, Operand] | None:
    """Return the two variables that the target joins in any order.

    The source is the same with its two roots exchanged.
    """
    roots = sorted({mine.op for mine, _ in rule.outputs})
    if len(roots) != 2 or _written(rule.source, roots) != _written(rule.source, roots[::-1]):
        return None
    return first_concatenation(rule)


def first_concatenation(rule: Substitution) -> tuple[Operand, Operand] | None:
    """Return the variables of the target's first concatenation of two variables."""
    for operator in rule.target:
        if operator.kind == "concat" and all(operand.is_variable for operand in operator.inputs):
            first, second = operator.inputs
            return first, second
    return None


def _written(side: Sequence[Operator], roots: Sequence[int]) -> Any:
    """Return the operators from ``roots`` on, with variables numbered as they are met."""
    numbers: dict[Operand, int] = {}

    def written(operand: Operand) -> Any:
        if operand.is_variable:
            return numbers.setdefault(operand, len(numbers))
        operator = side[operand.op]
        return operator.kind, operator.parameters, tuple(written(source) for source in operator.inputs)

    return [written(Operand(root)) for root in roots]


def wanted_orders(terms: Terms) -> frozenset[tuple[int, int]]:
    """Return tensors of the input graph in the order in which a concatenation reads them.

    Or what is made of them by the same ops.
    """
    found: set[tuple[int, int]] = set()
    joins = [_parts(terms, term.number, term.data) for term in terms if term.kind == "concat"]
    waiting = [pair for parts in joins for pair in itertools.pairwise(parts)]
    while waiting:
        pair = waiting.pop()
        first, second = (terms[number] for number in pair)
        if pair[0] != pair[1] and pair not in found:
            found.add(pair)
            if (first.kind, len(first.inputs)) == (second.kind, len(second.inputs)):
                waiting += zip(first.inputs, second.inputs, strict=True)
    return frozenset(found)


def _parts(terms: Terms, number: int, axis: int) -> list[int]:
    """Return what a concatenation and those inside it along the same axis read."""
    term = terms[number]
    if term.kind != "concat" or term.data != axis:
        return [number]
    return [part for source in term.inputs for part in _parts(terms, source, axis)]


class Neighbors:
    """Tensors that can be joined with each other, found from pairs."""

    def __init__(self) -> None:
        self._group: dict[int, set[int]] = {}

    def add(self, first: int, second: int) -> None:
        merged = self._group.get(first, {first}) | self._group.get(second, {second})
        for number in merged:
            self._group[number] = merged

    def follows(self, number: int, last: int) -> bool:
        """Return whether ``number`` may be appended to a join that ends with ``last``."""
        group = self._group.get(number, {number})
        if len(group) <= MOST_SUBSETS:
            return True
        between = [other for other in group if last < other < number]
        return not between
