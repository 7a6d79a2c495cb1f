"""A rule's source as what is looked for in a graph of terms.

Its roots, and the ways from what is bound to a further root.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.compilation.planning.substitutions.testing import nominal_ranks
from experiments.compilation.planning.substitutions.verdicts import RuleVerdict
from experiments.workloads.substitutions import Operand, Operator, Substitution

Bound = Mapping[Operand, int]


@dataclass(frozen=True, eq=False)
class Pattern:
    """A rule ready to be matched: ``roots`` are the source's operators whose results are mapped."""

    rule: Substitution
    guard: str
    roots: tuple[int, ...]
    ranks: Mapping[Operand, int]
    #: For every root after the first: from an operand bound before it up to the root, the operators between.
    climbs: tuple[tuple[Operand, tuple[int, ...]], ...]

    @property
    def height(self) -> int:
        """Operators on the longest way through the source."""
        heights: list[int] = []
        for operator in self.rule.source:
            below = [heights[operand.op] for operand in operator.inputs if not operand.is_variable]
            heights.append(1 + max(below, default=0))
        return max(heights)


@dataclass(frozen=True)
class Match:
    """``bound`` gives the term of every variable and operator of the source."""

    pattern: Pattern
    bound: tuple[tuple[Operand, int], ...]

    @property
    def took(self) -> tuple[int, ...]:
        return tuple(number for operand, number in self.bound if not operand.is_variable)

    def moved(self, moved: Mapping[int, int]) -> Match:
        """Return the same match after other terms were replaced."""
        bound = tuple((operand, moved.get(number, number)) for operand, number in self.bound)
        return Match(self.pattern, bound)


def pattern(verdict: RuleVerdict) -> Pattern | str:
    """Return the rule as a pattern, or why it cannot be matched."""
    rule = verdict.rule
    if rule is None or not verdict.usable:
        return verdict.reason or verdict.guarded.reason or verdict.label
    if "split" in {operator.kind for operator in rule.source}:
        return "its source splits what it does not concatenate"
    if any(mine.output for mine, _ in rule.outputs):
        return "maps a second result"
    roots = tuple(dict.fromkeys(mine.op for mine, _ in rule.outputs))
    climbs = _climbs(rule.source, roots)
    if climbs is None:
        return "its source falls into parts that share no tensor"
    return Pattern(rule, verdict.guard, roots, nominal_ranks(rule), climbs)


def _climbs(
    side: Sequence[Operator], roots: Sequence[int]
) -> tuple[tuple[Operand, tuple[int, ...]], ...] | None:
    """Return how each further root is reached from what was bound before; None where one is not."""
    bound = _below(side, roots[0])
    found = []
    for root in roots[1:]:
        if Operand(root) in bound:
            continue
        path = _path(side, root, bound)
        if path is None:
            return None
        found.append(path)
        bound |= _below(side, root)
    covered = {operand.op for operand in bound if not operand.is_variable}
    return tuple(found) if covered == set(range(len(side))) else None


def _below(side: Sequence[Operator], root: int) -> set[Operand]:
    found = {Operand(root)}
    for operand in side[root].inputs:
        found |= {operand} if operand.is_variable else _below(side, operand.op)
    return found


def _path(side: Sequence[Operator], root: int, bound: set[Operand]) -> tuple[Operand, tuple[int, ...]] | None:
    for operand in side[root].inputs:
        if operand in bound:
            return operand, (root,)
        further = None if operand.is_variable else _path(side, operand.op, bound)
        if further:
            return further[0], (*further[1], root)
    return None
