"""Pairs of equal graphs pruned to rules worth keeping (TASO, SOSP'19, section 3.2), and both ways of each.

A pair is dropped if both sides hold the same operator on the same variables, if they end in the same operator
with at most one other input, if neither reads its variables in order, or if it is a renaming of a kept one,
in either direction. A renaming may send two variables to one, so that a general rule stands for its special
cases.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from experiments.compilation.planning.substitutions.generator import SYMMETRIC, Small
from experiments.workloads.substitutions import Operand, Operator, Substitution, variables_of

Renaming = Mapping[Operand, Operand]
Shape = tuple[tuple[tuple[str, object], ...], ...]


@dataclass(frozen=True)
class Tensor:
    """A tensor of one side, to be walked down."""

    side: Sequence[Operator]
    operand: Operand

    @property
    def operator(self) -> Operator:
        return self.side[self.operand.op]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return tuple(Tensor(self.side, operand) for operand in self.operator.inputs)


def candidates(groups: Iterable[Sequence[Small]], sorts: Mapping[Operand, bool]) -> Iterator[Substitution]:
    """Yield all pairs of equal graphs that pass the tests of their own, smallest first.

    ``sorts`` of the variables.
    """
    for group in groups:
        for left, right in itertools.combinations(group, 2):
            rule = rule_of_pair(left, right)
            named = in_order(rule.source, sorts) or in_order(rule.target, sorts)
            if named and not (common(rule) or same_end(rule)):
                yield rule


def rule_of_pair(left: Small, right: Small) -> Substitution:
    theirs = dict(right.outputs)
    outputs = tuple((operand, theirs[fingerprint]) for fingerprint, operand in left.outputs)
    return Substitution("candidate", left.operators, right.operators, outputs)


def common(rule: Substitution) -> bool:
    """Return whether both sides hold the same operator on variables."""
    own = {op for op in rule.source if all(operand.is_variable for operand in op.inputs)}
    return any(op in own for op in rule.target)


def same_end(rule: Substitution) -> bool:
    """Return whether a mapped output is the same operator on both sides with at most one other input."""
    for mine, theirs in rule.outputs:
        left, right = rule.source[mine.op], rule.target[theirs.op]
        same = [a for a, b in zip(left.inputs, right.inputs, strict=False) if a == b and a.is_variable]
        alike = (left.kind, left.parameters) == (right.kind, right.parameters)
        if alike and len(left.inputs) - len(same) <= 1:
            return True
    return False


def in_order(side: Sequence[Operator], sorts: Mapping[Operand, bool]) -> bool:
    """Return whether the variables of each sort are first read as a, b, c ..."""
    read = dict.fromkeys(operand for op in side for operand in op.inputs if operand.is_variable)
    by_sort = ([operand for operand in read if sorts[operand] is weight] for weight in (False, True))
    return all(names == sorted(names, reverse=True) for names in by_sort)


def pruned(rules: Iterable[Substitution]) -> list[Substitution]:
    """Return those that are no renaming of another, earlier or later."""
    kept: dict[Shape, list[Substitution]] = defaultdict(list)
    for rule in rules:
        others = kept[_shape(rule)]
        if any(is_renaming(other, rule) for other in others):
            continue
        others[:] = [other for other in others if not is_renaming(rule, other)]
        others.append(rule)
    return [rule for others in kept.values() for rule in others]


def _shape(rule: Substitution) -> Shape:
    """Return the operators of each side, which renaming and turning around leave alone."""
    sides = (tuple(sorted((op.kind, op.parameters) for op in side)) for side in (rule.source, rule.target))
    return tuple(sorted(sides))


def is_renaming(general: Substitution, special: Substitution) -> bool:
    """Return whether ``special`` is ``general`` with other names, in either direction.

    Their outputs may be in any order.
    """
    for rule in (special, reverse_rule(special)):
        for outputs in itertools.permutations(rule.outputs):
            if len(outputs) == len(general.outputs) and _unify(general, rule, outputs):
                return True
    return False


def _unify(general: Substitution, special: Substitution, outputs: Sequence[tuple[Operand, Operand]]) -> bool:
    pairs = []
    for (mine, theirs), (other, others) in zip(general.outputs, outputs, strict=True):
        pairs.append((Tensor(general.source, mine), Tensor(special.source, other)))
        pairs.append((Tensor(general.target, theirs), Tensor(special.target, others)))
    return next(_renamings(pairs, {}), None) is not None


def _renamings(pairs: Sequence[tuple[Tensor, Tensor]], known: Renaming) -> Iterator[Renaming]:
    """Yield all ways to name the first tensors' variables so that they become the second ones."""
    if not pairs:
        yield known
        return
    (one, other), *rest = pairs
    if one.operand.is_variable or other.operand.is_variable:
        named = known.get(one.operand, other.operand)
        if one.operand.is_variable and other.operand.is_variable and named == other.operand:
            yield from _renamings(rest, {**known, one.operand: other.operand})
        return
    mine, theirs = one.operator, other.operator
    if (mine.kind, mine.parameters, one.operand.output) != (
        theirs.kind,
        theirs.parameters,
        other.operand.output,
    ):
        return
    orders = [other.inputs, other.inputs[::-1]] if mine.kind in SYMMETRIC else [other.inputs]
    for inputs in orders:
        yield from _renamings([*zip(one.inputs, inputs, strict=True), *rest], known)


def reverse_rule(rule: Substitution) -> Substitution:
    """From target to source."""
    outputs = tuple((theirs, mine) for mine, theirs in rule.outputs)
    return Substitution(rule.name, rule.target, rule.source, outputs)


def both_ways(rules: Iterable[Substitution], stem: str) -> list[Substitution]:
    """Return every rule and its reverse, where its source binds all that its target reads."""
    found: list[Substitution] = []
    for rule in rules:
        for way in (rule, reverse_rule(rule)):
            if set(variables_of(way.target)) <= set(variables_of(way.source)):
                found.append(replace(way, name=f"{stem}-{len(found)}"))
    return found
