"""Unity's algebraic substitutions: other operators for the same values.

Source: Unger et al. (Unity), OSDI'22, section 4, and the rules of the compilation family, which judges each
by an exact test (``compilation.planning.substitutions``); a substitution is made only where its rule is
usable. Two are made, alone and on top of one another:

- **Siblings**: products that read one tensor become one product with all their columns, and a split whose
  parts stand for what they made (Q, K and V; gate and up; 1x1 convolutions of an Inception module).
- **Activation**: a relu that alone reads a product is computed by the product's kernel (``PM_ACTI`` of
  FlexFlow's LINEAR; in the algebra an activation is an operator of its own, so both sides are the same).

In training only such rules are left as join parameters and compute nothing from them: the optimizer then
updates the joined parameter as it would have updated its parts. The joined columns follow each other part by
part, as in the rules, so a device that has some of the columns has them of one part: the split needs all.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from experiments.parallel.policies.unity.rewritten_times import RewrittenTimes
from experiments.parallel.policies.unity.siblings import (
    ACTIVATION,
    PRODUCTS,
    column_of,
    is_usable,
    joined_product,
    product_weight,
    sibling_rule,
    split_part,
)
from experiments.workloads.einsum import Operand, Operator

#: Up to so many siblings are joined in every way, more of them only with their neighbors.
MOST_SIBLINGS = 4
ACTIVATION_RULE = "activation"


class Rewriting(NamedTuple):
    """One substitution: the operators that it takes out and those that it puts in.

    - ``heirs``: for each made one the taken operator whose division it begins with.
    - ``covers``: the model's operators whose work is done by what is made.
    """

    rule: str
    took: frozenset[int]
    made: tuple[int, ...]
    heirs: tuple[int, ...]
    covers: frozenset[int]


@dataclass(frozen=True)
class Alternatives:
    """A model's operators, the first ``own``, and after them all that substitutions may put in their place.

    ``values[u]`` is the value that operator ``u`` computes, named by the model's operator that makes it (or
    by ``u``, where it is new). An operand stands once for each operator that makes its value; an edge is in a
    graph where both its ends are. ``position`` orders the operators of any graph; ``members`` are the
    products that a joined one is made of, in the order of its columns.
    """

    operators: tuple[Operator, ...]
    own: int
    rewritings: tuple[Rewriting, ...]
    values: tuple[int, ...]
    position: tuple[tuple[int, int], ...]
    members: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def none(cls, operators: tuple[Operator, ...]) -> Alternatives:
        """Return a model's operators with nothing in their place."""
        numbers = tuple(range(len(operators)))
        return cls(operators, len(operators), (), numbers, tuple((number, 0) for number in numbers))

    def graph(self, live: Sequence[int]) -> tuple[tuple[Operator, ...], list[int]]:
        """Return the operators ``live`` as a graph of their own, and which each was."""
        order = sorted(live, key=lambda number: (self.position[number], number))
        place = {number: index for index, number in enumerate(order)}
        found = []
        for number in order:
            operator = self.operators[number]
            kept = (o for o in operator.operands if o.source < 0 or o.source in place)
            operands = tuple(replace(o, source=place.get(o.source, -1)) for o in kept)
            found.append(replace(operator, operands=operands))
        return tuple(found), order


def alternatives(operators: Sequence[Operator], times: RewrittenTimes, element_bytes: int) -> Alternatives:
    """Return ``operators`` with all that substitutions put in their place; none twice."""
    found = _Substitutions(operators, times, element_bytes)
    found.activate()
    found.join()
    return found.result()


class _Substitutions:
    """Operators and substitutions as they are found."""

    def __init__(self, operators: Sequence[Operator], times: RewrittenTimes, element_bytes: int) -> None:
        self.operators = list(operators)
        self.own, self._times, self._size = len(operators), times, element_bytes
        self._values = list(range(self.own))
        self._position = [(number, 0) for number in range(self.own)]
        self._covers = [frozenset((number,)) for number in range(self.own)]
        self._rewritings: list[Rewriting] = []
        self._members: dict[int, tuple[int, ...]] = {}
        read = [o.source for operator in operators for o in operator.operands if o.source >= 0]
        self._readers = Counter(read)
        self._holders = Counter(o.parameter for operator in operators for o in operator.parameters)

    def result(self) -> Alternatives:
        """Return the operators, each operand once for every operator that makes its value."""
        makers: dict[int, list[int]] = defaultdict(list)
        for number, value in enumerate(self._values):
            makers[value].append(number)

        def spread(operator: Operator) -> Operator:
            operands = [
                replace(operand, source=maker)
                for operand in operator.operands
                for maker in (makers[operand.source] if operand.source >= 0 else (operand.source,))
            ]
            return replace(operator, operands=tuple(operands))

        whole = tuple(map(spread, self.operators))
        return Alternatives(
            whole,
            self.own,
            tuple(self._rewritings),
            tuple(self._values),
            tuple(self._position),
            self._members,
        )

    def _add(
        self, operator: Operator, value: int | None, position: tuple[int, int], covers: frozenset[int]
    ) -> int:
        number = len(self.operators)
        self.operators.append(operator)
        self._values.append(number if value is None else value)
        self._position.append(position)
        self._covers.append(covers)
        return number

    # --- activations
    # ------------------------------------------------------------------------------------------------

    def activate(self) -> None:
        """Add every product with the relu in its kernel that alone reads it."""
        for number in range(self.own):
            product = self._activated_product(number)
            if product is None:
                continue
            before, after = self.operators[product], self.operators[number]
            seconds = self._times.activate(before, after)
            whole = replace(
                before,
                name=f"{before.name}+{after.name}",
                function=ACTIVATION,
                stash_bytes=after.stash_bytes,
                flops=before.flops + after.flops,
                share=self._times.share(seconds, before.layer),
            )
            taken = frozenset((product, number))
            made = self._add(whole, number, (product, 0), taken)
            self._rewritings.append(Rewriting(ACTIVATION_RULE, taken, (made,), (product,), taken))

    def _activated_product(self, number: int) -> int | None:
        """The product that operator ``number`` is the activation of, if it is one."""
        operator = self.operators[number]
        if operator.function != ACTIVATION or len(operator.operands) != 1:
            return None
        source = operator.operands[0].source
        if source < 0 or self._readers[source] != 1:
            return None
        before = self.operators[source]
        same = operator.output == operator.operands[0].dims and len(operator.output) == len(before.output)
        return source if same and before.kind in PRODUCTS and product_weight(before) else None

    # --- siblings
    # ---------------------------------------------------------------------------------------------------

    def join(self) -> None:
        """Add what joins products that read one tensor, and its split."""
        groups: dict[Hashable, list[int]] = defaultdict(list)
        for number in range(len(self.operators)):
            key = self._sibling_key(number)
            if key is not None:
                groups[key].append(number)
        for siblings in groups.values():
            self._join_group(siblings)

    def _sibling_key(self, number: int) -> Hashable:
        """What siblings have in common: what they read, rows, inner loop, form. None for no sibling."""
        operator = self.operators[number]
        weight, column = product_weight(operator), column_of(operator)
        data = [operand for operand in operator.operands if operand.parameter < 0]
        if weight is None or not column or len(data) != 1 or data[0].source < 0:
            return None
        if any(self._holders[operand.parameter] > 1 for operand in operator.parameters):
            return None
        biased, activated = len(operator.parameters) == 2, operator.function == ACTIVATION
        if not is_usable(operator.kind, biased, activated) or not self._is_plain(operator, weight, data[0]):
            return None
        rows = tuple((name, operator.size[name]) for name in operator.output if name != column)
        inner = tuple((name, operator.size[name]) for name in weight.dims if name != column)
        place = operator.output.index(column)
        return operator.kind, data[0], rows, inner, place, biased, activated

    def _is_plain(self, operator: Operator, weight: Operand, data: Operand) -> bool:
        """Whether a convolution has a window of one element and reads all: strides are not known."""
        if operator.kind != "convolution":
            return True
        elements = dict.fromkeys((weight, data), 1.0 * self._size)
        for operand in elements:
            for name in operand.dims:
                elements[operand] *= operator.size.get(name, 0)
        return not operator.halo and all(size == operand.bytes for operand, size in elements.items())

    def _join_group(self, siblings: Sequence[int]) -> None:
        """Each set of siblings as one product, from every two sets that make it."""
        made: dict[tuple[int, ...], tuple[int, ...]] = {(number,): (number,) for number in siblings}
        for members in _sets(siblings):
            parts = [cut for cut in _halves(members) if cut[0] in made and cut[1] in made]
            made[members] = self._join(members)
            for one, other in parts:
                taken = (*made[one], *made[other])
                first = self.operators[members[0]]
                biased, activated = len(first.parameters) == 2, first.function == ACTIVATION
                rule = sibling_rule(first.kind, biased, activated)
                heirs = (taken[0], *(self._maker(taken, member) for member in members))
                covers = frozenset().union(*(self._covers[number] for number in taken))
                self._rewritings.append(Rewriting(rule, frozenset(taken), made[members], heirs, covers))

    def _maker(self, taken: Sequence[int], member: int) -> int:
        """Which of ``taken`` makes what sibling ``member`` made."""
        return next(number for number in taken if self._values[number] == self._values[member])

    def _join(self, members: tuple[int, ...]) -> tuple[int, ...]:
        """The product of all members and the parts of its result."""
        found = [self.operators[number] for number in members]
        first, column = found[0], column_of(found[0])
        whole = joined_product(found, column)
        seconds, parts = self._times.join(found, whole)
        whole = replace(whole, share=self._times.share(seconds, first.layer))
        covers = frozenset().union(*(self._covers[number] for number in members))
        product = self._add(whole, None, self._position[members[0]], covers)
        self._members[product] = members
        made = [product]
        for number, member, own in zip(members, found, parts, strict=True):
            part = split_part(member, whole, column, product, self._times.share(own, member.layer))
            after = (self._position[number][0], 1)
            made.append(self._add(part, self._values[number], after, self._covers[number]))
        return tuple(made)


def _sets(siblings: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Sets of two and more, the smaller ones first: all, or of many siblings runs of neighbors."""
    for size in range(2, len(siblings) + 1):
        if len(siblings) <= MOST_SIBLINGS:
            yield from itertools.combinations(siblings, size)
        else:
            yield from (tuple(siblings[i : i + size]) for i in range(len(siblings) - size + 1))


def _halves(members: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Ways to see a set as two; the first has the first member."""
    for size in range(1, len(members)):
        for one in itertools.combinations(members, size):
            if one[0] == members[0]:
                yield one, tuple(number for number in members if number not in one)
