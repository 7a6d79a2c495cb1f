"""Where a rule's source occurs in a graph of terms, and what its target would be there.

Matches that hang from one term depend on that term alone and are found once for a whole search; a second mapped output
is looked for among the readers of what the first one bound. A rule is applied only where its verdict says that it is
right: kernels, strides and paddings that the file did not state are tested exactly before the first use (TASO's own
matcher ignores kernel sizes), and so are other ranks; guards on groups are looked up on the shapes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from experiments.compilation.interface import IllTyped
from experiments.compilation.rules.canonical import EXPLICIT, SAME, VALID
from experiments.compilation.rules.graphs import OUTSIDE, TermGraph
from experiments.compilation.rules.terms import RESULT, Terms
from experiments.compilation.rules.testing import EQUAL_GROUPS, UNGROUPED, examined, nominal_ranks
from experiments.compilation.rules.verdicts import Verdict
from experiments.core.errors import BadInput
from experiments.workloads.substitutions import Operand, Operator, Substitution

COMMUTATIVE = ("ew_add", "ew_mul")
SHAPES_OF_A_CLASS = 20

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
        """The same match after other terms were replaced."""
        bound = tuple((operand, moved.get(number, number)) for operand, number in self.bound)
        return Match(self.pattern, bound)


def pattern(verdict: Verdict) -> Pattern | str:
    """The rule as a pattern, or why it cannot be matched."""
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
    """How each further root is reached from what was bound before; None where one is not."""
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


class Matcher:
    """All matches of ``patterns`` in graphs over ``terms``."""

    def __init__(self, patterns: Sequence[Pattern], terms: Terms) -> None:
        self.terms = terms
        self._by_kind: dict[str, list[Pattern]] = defaultdict(list)
        for one in patterns:
            self._by_kind[one.rule.source[one.roots[0]].kind].append(one)
        self._at: dict[int, list[tuple[Pattern, Bound]]] = {}
        self._right: dict[Any, bool] = {}
        self.height = max((one.height for one in patterns), default=0)

    def matches(self, graph: TermGraph, at: Iterable[int] | None = None) -> Iterator[Match]:
        """All matches whose first root is one of ``at`` (None: any term of the graph)."""
        for number in graph.order if at is None else at:
            for one, bound in self._hanging(number):
                for whole in self._completed(one, bound, graph, 0):
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
        """Parameters that the rule is about: axes. Those of convolutions are bound and tested (``_is_right``)."""
        term = self.terms[number]
        if operator.kind == "concat":
            return bool(term.data == operator.parameter("axis"))
        return operator.kind != "conv2d" or term.data[2] == (1, 1)

    def _completed(
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
                yield from self._completed(one, further, graph, done + 1)

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

    def target(self, match: Match) -> dict[int, int]:
        """What each mapped term becomes; empty where nothing would change. Raises ``IllTyped`` or ``BadInput`` where the
        target does not accept the shapes, or the rule is not right for them.
        """
        rule, bound = match.pattern.rule, dict(match.bound)
        convolutions = self._convolutions(match)
        made = {operand: number for operand, number in bound.items() if operand.is_variable}
        for index, operator in enumerate(rule.target):
            inputs = [made[operand] for operand in operator.inputs]
            if operator.kind == "split":
                self._split(rule, index, inputs[0], made)
            else:
                made[Operand(index)] = self.terms.make(
                    operator.kind, self._data(operator, inputs, convolutions), inputs
                )
        found = {bound[mine]: made[theirs] for mine, theirs in rule.outputs}
        for mine, theirs in found.items():
            if self.terms.shape(mine) != self.terms.shape(theirs):
                raise IllTyped(f"{rule.name}: {self.terms.shape(theirs)} for {self.terms.shape(mine)}")
        return {mine: theirs for mine, theirs in found.items() if mine != theirs}

    def _convolutions(self, match: Match) -> dict[Any, Any]:
        """Actual parameters by the rule's; ``BadInput`` where two that the rule makes equal differ."""
        found: dict[Any, Any] = {}
        for operand, number in match.bound:
            if operand.is_variable or self.terms[number].kind != "conv2d":
                continue
            stated = match.pattern.rule.source[operand.op].parameters
            kernel = self.terms.shape(self.terms[number].inputs[1])[2:]
            actual = (kernel, *self.terms[number].data[:3])
            if found.setdefault(stated, actual) != actual:
                raise BadInput("convolutions differ", match.pattern.rule.name, "equal ones")
        return found

    def _data(self, operator: Operator, inputs: Sequence[int], convolutions: Mapping[Any, Any]) -> Any:
        if operator.kind == "concat":
            return operator.parameter("axis")
        if operator.kind != "conv2d":
            return None
        channels, width = self.terms.shape(inputs[0])[1], self.terms.shape(inputs[1])[1]
        if channels % width:
            raise IllTyped(f"{channels} channels in groups of {width}")
        return (*convolutions[operator.parameters][1:], channels // width)

    def _split(self, rule: Substitution, index: int, whole: int, made: dict[Operand, int]) -> None:
        axis = rule.target[index].parameter("axis")
        first, place = joined(rule.target, rule.target[index].inputs[0], axis)
        cut = self.terms.shape(made[first])[place]
        sizes = (cut, self.terms.shape(whole)[axis] - cut)
        parts = self.terms.make("split", (axis, sizes), (whole,))
        for output in range(2):
            made[Operand(index, output)] = self.terms.make(RESULT, output, (parts,))

    def is_right(self, match: Match) -> bool:
        """Whether the rule's guard holds and the rule passes the exact test for this class of shapes."""
        one, bound = match.pattern, dict(match.bound)
        groups = [
            self._groups(n) for o, n in match.bound if not o.is_variable and self.terms[n].kind == "conv2d"
        ]
        if one.guard == UNGROUPED and any(count != 1 for count, _, _ in groups):
            return False
        if one.guard == EQUAL_GROUPS and len({(width, filters) for _, width, filters in groups}) > 1:
            return False
        ranks = {
            operand: len(self.terms.shape(number)) for operand, number in bound.items() if operand.is_variable
        }
        key = (one.rule.name, tuple(sorted(ranks.items())), tuple(self._convolutions(match).items()))
        if key not in self._right:
            self._right[key] = self._examined(match, ranks)
        return self._right[key]

    def _groups(self, number: int) -> tuple[int, int, int]:
        """Groups of a convolution, channels of a filter and filters of a group."""
        w = self.terms.shape(self.terms[number].inputs[1])
        groups = int(self.terms[number].data[3])
        return groups, w[1], w[0] // groups

    def _examined(self, match: Match, ranks: Mapping[Operand, int]) -> bool:
        one = match.pattern
        actual = {stated: _stated(*found) for stated, found in self._convolutions(match).items()}
        if all(stated == found for stated, found in actual.items()) and dict(ranks) == dict(one.ranks):
            return True
        if None in actual.values():
            return False
        source, target = (
            tuple(replace(op, parameters=actual.get(op.parameters, op.parameters) or ()) for op in side)
            for side in (one.rule.source, one.rule.target)
        )
        changed = replace(one.rule, source=source, target=target)
        return examined(changed, ranks, guard=one.guard, shapes=SHAPES_OF_A_CLASS).passed


def _stated(kernel: Any, stride: Any, padding: Any, dilation: Any) -> tuple[tuple[str, int], ...] | None:
    """A convolution's parameters as the algebra spells them; None where it has no word for them."""
    if padding[0] != padding[1] or dilation != (1, 1):
        return None
    same = stride == (1, 1) and tuple(size - 1 for size in kernel) == tuple(2 * size for size in padding)
    pad = SAME if same else VALID if padding == (0, 0) else EXPLICIT + padding[0]
    names = ("kernel_h", "kernel_w", "stride_h", "stride_w", "pad")
    return tuple(zip(names, (*kernel, *stride, pad), strict=True))


def joined(side: Sequence[Operator], operand: Operand, axis: int) -> tuple[Operand, int]:
    """The first part of the newest concatenation along ``axis`` of a tensor, and that part's own axis."""
    if operand.is_variable:
        raise BadInput("splits what it does not concatenate", "rule", "a concatenation along the axis")
    operator = side[operand.op]
    inputs = operator.inputs
    if operator.kind == "concat" and operator.parameter("axis") == axis:
        return inputs[0], axis
    if operator.kind == "transpose" and axis > -3:
        axis = -3 - axis
    elif operator.kind == "matmul" and axis == -1:
        return joined(side, inputs[1], axis)
    elif operator.kind == "conv2d" and axis == -3:
        return joined(side, inputs[1], -4)
    return joined(side, inputs[0], axis)
