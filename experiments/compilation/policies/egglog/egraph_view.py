"""A whole e-graph as hard-coded rules look at graphs: one term for each e-node, readers by class.

So a rewrite that gains nothing by itself (a convolution with fewer groups) is there for the next one, though
it is in no cheapest graph. Operators on what rules have joined are left out: those rules make all joins, and
a join of a join with its own part would never end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from experiments.compilation.planning.substitutions.graphs import OUTSIDE
from experiments.compilation.planning.substitutions.space import Rewrite
from experiments.compilation.planning.substitutions.terms import RESULT
from experiments.compilation.policies.egglog.egraph import EGraph

#: Not a rule, so no step reports it.
REJOINED = "all parts of a split"


class Readers(Mapping[int, Sequence[int]]):
    """By any term of a class the terms that read one of it."""

    def __init__(self, egraph: EGraph, terms: Sequence[int], roots: Sequence[int]) -> None:
        self._egraph = egraph
        self._held: dict[int, list[int]] = defaultdict(list)
        for number in terms:
            for owner in dict.fromkeys(egraph.class_of(n) for n in egraph.terms[number].inputs):
                self._held[owner].append(number)
        for owner in {egraph.class_of(root) for root in roots}:
            self._held[owner].append(OUTSIDE)

    def __getitem__(self, number: int) -> Sequence[int]:
        return self._held.get(self._egraph.class_of(number), ())

    def __iter__(self) -> Iterator[int]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)


class EGraphView:
    """View of ``egraph``, whose graph ends in ``roots``, as hard-coded rules look at graphs."""

    def __init__(self, egraph: EGraph, roots: Sequence[int]) -> None:
        self._egraph = egraph
        self._all = egraph.distinct()
        self.order = [number for number in self._all if not self._reads_join(number)]
        self.readers = Readers(egraph, self.order, roots)

    def rejoinings(self) -> Iterator[Rewrite]:
        """Yield the rewrites of a join of all parts of a split to what was split.

        Known of terms, but not of terms that are equal to parts.
        """
        terms, of = self._egraph.terms, self._egraph.class_of
        parts: dict[int, dict[tuple[int, int], int]] = defaultdict(dict)
        for number in self._all:
            if terms[number].kind == RESULT and terms[terms[number].inputs[0]].kind == "split":
                parts[of(number)][terms[number].inputs[0], terms[number].data] = number
        for number in self._all:
            inputs = terms[number].inputs
            if terms[number].kind == "concat":
                for split, first in sorted(parts.get(of(inputs[0]), ())):
                    axis, sizes = terms[split].data
                    whole = (axis, len(sizes), first) == (terms[number].data, len(inputs), 0)
                    own = [parts.get(of(n), {}).get((split, i)) for i, n in enumerate(inputs)]
                    took = tuple(part for part in own if part is not None)
                    if whole and len(took) == len(inputs):
                        yield Rewrite(REJOINED, took, {number: terms[split].inputs[0]})

    def representative(self, number: int) -> int:
        return self._egraph.class_of(number)

    def _reads_join(self, number: int) -> bool:
        """Return whether the operator reads a tensor that a rule joined."""
        terms, given = self._egraph.terms, self._egraph.given
        return any(terms[source].kind == "concat" and source >= given for source in terms[number].inputs)
