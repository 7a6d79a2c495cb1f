"""What a match of a rule becomes, and whether the rule is right there.

A rule is applied only where its verdict says that it is right: kernels, strides and paddings that the file
did not state are tested exactly before the first use (TASO's own matcher ignores kernel sizes), and so are
other ranks; guards on groups are looked up on the shapes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from experiments.compilation.interface import IllTyped
from experiments.compilation.planning.substitutions.canonical import EXPLICIT, SAME, VALID
from experiments.compilation.planning.substitutions.pattern import Match
from experiments.compilation.planning.substitutions.terms import RESULT, Terms
from experiments.compilation.planning.substitutions.testing import EQUAL_GROUPS, UNGROUPED, examine
from experiments.core.errors import BadInput
from experiments.workloads.substitutions import Operand, Operator, Substitution

SHAPES_OF_A_CLASS = 20


class Application:
    """Rules applied over ``terms``; a rule is tested once for each class of shapes."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self._right: dict[Any, bool] = {}

    def target(self, match: Match) -> dict[int, int]:
        """Return what each mapped term becomes; empty where nothing would change.

        Raises ``IllTyped`` or ``BadInput`` where the target does not accept the shapes, or the rule is not
        right for them.
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
        first, place = first_part(rule.target, rule.target[index].inputs[0], axis)
        cut = self.terms.shape(made[first])[place]
        sizes = (cut, self.terms.shape(whole)[axis] - cut)
        parts = self.terms.make("split", (axis, sizes), (whole,))
        for output in range(2):
            made[Operand(index, output)] = self.terms.make(RESULT, output, (parts,))

    def is_right(self, match: Match) -> bool:
        """Return whether the rule's guard holds and it passes the exact test for this class of shapes."""
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
            self._right[key] = self._is_right(match, ranks)
        return self._right[key]

    def _groups(self, number: int) -> tuple[int, int, int]:
        """Return groups of a convolution, channels of a filter and filters of a group."""
        w = self.terms.shape(self.terms[number].inputs[1])
        groups = int(self.terms[number].data[3])
        return groups, w[1], w[0] // groups

    def _is_right(self, match: Match, ranks: Mapping[Operand, int]) -> bool:
        one = match.pattern
        actual = {stated: _window_parameters(*found) for stated, found in self._convolutions(match).items()}
        if all(stated == found for stated, found in actual.items()) and dict(ranks) == dict(one.ranks):
            return True
        if None in actual.values():
            return False
        source, target = (
            tuple(replace(op, parameters=actual.get(op.parameters, op.parameters) or ()) for op in side)
            for side in (one.rule.source, one.rule.target)
        )
        changed = replace(one.rule, source=source, target=target)
        return examine(changed, ranks, guard=one.guard, shapes=SHAPES_OF_A_CLASS).passed


def _window_parameters(
    kernel: Any, stride: Any, padding: Any, dilation: Any
) -> tuple[tuple[str, int], ...] | None:
    """Return a convolution's parameters as the algebra spells them; None where it has no word for them."""
    if padding[0] != padding[1] or dilation != (1, 1):
        return None
    same = stride == (1, 1) and tuple(size - 1 for size in kernel) == tuple(2 * size for size in padding)
    pad = SAME if same else VALID if padding == (0, 0) else EXPLICIT + padding[0]
    names = ("kernel_h", "kernel_w", "stride_h", "stride_w", "pad")
    return tuple(zip(names, (*kernel, *stride, pad), strict=True))


def first_part(side: Sequence[Operator], operand: Operand, axis: int) -> tuple[Operand, int]:
    """Return the first part of a tensor's newest concatenation along ``axis``, and that part's own axis."""
    if operand.is_variable:
        raise BadInput("splits what it does not concatenate", "rule", "a concatenation along the axis")
    operator = side[operand.op]
    inputs = operator.inputs
    if operator.kind == "concat" and operator.parameter("axis") == axis:
        return inputs[0], axis
    if operator.kind == "transpose" and axis > -3:
        axis = -3 - axis
    elif operator.kind == "matmul" and axis == -1:
        return first_part(side, inputs[1], axis)
    elif operator.kind == "conv2d" and axis == -3:
        return first_part(side, inputs[1], -4)
    return first_part(side, inputs[0], axis)
