"""The graph of records that a graph of terms stands for.

What did not change keeps its nodes and names.

A term of the input graph is its node. The same op on changed inputs is that node with other arguments, so
that names and order stay; anything else is a new node. Free terms are nodes that are computed once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from experiments.compilation.interface import Applied, Draft, Graph, Ref, Types, map_refs
from experiments.compilation.planning.substitutions.graphs import OUTSIDE, Prices, TermGraph
from experiments.compilation.planning.substitutions.importing import Imported
from experiments.compilation.planning.substitutions.terms import LEAF, RESULT, TermCall


class Emission:
    """Writes ``final`` into a draft of the input graph."""

    def __init__(self, source: Imported, prices: Prices, final: TermGraph, types: Types) -> None:
        self.terms, self.prices, self.final, self.source = source.terms, prices, final, source
        self.draft = Draft(source.graph, types)
        self.folded: tuple[str, ...] = ()
        self._made: dict[int, Ref] = {}
        self._kept = {self.terms[n].origin for n in final.order if self.terms[n].kind != LEAF} - {""}

    def graph(self) -> Graph:
        readers = self.final.readers.__getitem__
        for number in self.final.order:
            if self.terms[number].kind != RESULT and not self.prices.is_absorbed(number, readers):
                self._made[number] = self._emit(number)
        output = self.source.graph.output
        roots = iter(self.final.roots)
        self.draft.rewire(output.name, *map_refs(output.arguments, lambda _: self._value(next(roots))))
        for ref, number in self.source.values.items():
            if ref.node in self.source.merged and self._stands(number):
                self.draft.replace(ref, self._value(number))
        return self._fold_constants(self.draft.finish())

    def _fold_constants(self, made: Graph) -> Graph:
        """Return ``made`` with the input graph's own ops on constants computed once."""
        free = {term.origin for term in self.source.terms if term.free and term.kind != LEAF}
        self.folded = tuple(node.name for node in made.ops if node.name in free and not node.once)
        return Graph(
            tuple(replace(node, once=True) if node.name in self.folded else node for node in made.nodes)
        )

    def applied_steps(self, final: Graph) -> tuple[Applied, ...]:
        """Return the steps by the names of their nodes in the input and of what is left in ``final``."""
        steps = self.final.steps()
        found = []
        for place, step in enumerate(steps):
            left = list(step.made)
            for later in steps[place + 1 :]:
                left = [later.moved.get(number, number) for number in left]
            made = tuple(name for name in self._names(tuple(left)) if name in final.by_name)
            found.append(Applied(step.rule, self._names(step.took), made))
        found += [Applied("equal to an earlier op", (n,), (o,)) for n, o in self.source.merged.items()]
        found += [Applied("depends on constants only", (name,), (name,)) for name in self.folded]
        return tuple(found)

    def _names(self, numbers: tuple[int, ...]) -> tuple[str, ...]:
        found = [self._name(number) for number in numbers]
        return tuple(dict.fromkeys(name for name in found if name))

    def _name(self, number: int) -> str:
        term = self.terms[number]
        if term.kind == RESULT:
            return self._name(term.inputs[0])
        if term.origin:
            return term.origin
        made = self._made.get(number)
        if made is not None:
            return made.node
        around = [n for n in self.final.readers.get(number, ()) if n != OUTSIDE and n in self._made]
        return term.successor or (self._made[around[0]].node if around else "") or self._covering(number)

    def _covering(self, number: int) -> str:
        """Return the node of the input graph that computes the term inside it."""
        return next(
            (self.terms[n].origin for n in range(number, len(self.terms)) if number in self.terms[n].covers),
            "",
        )

    def _emit(self, number: int) -> Ref:
        term = self.terms[number]
        if term.origin:
            return Ref(term.origin)
        call = self.prices.call(number, self.prices.inside(number, self.final.readers.__getitem__))
        arguments, keywords = map_refs((call.arguments, call.keywords), self._read)
        node = self.source.graph.by_name.get(term.successor)
        if node is not None and node.name not in self._kept and self._same_op(node, call):
            self._kept.add(node.name)
            self.draft.rewire(node.name, *arguments)
            return Ref(node.name)
        return self.draft.op(call.target, *arguments, **dict(keywords))

    @staticmethod
    def _same_op(node: Any, call: TermCall) -> bool:
        return bool(node.target == call.target and node.keywords == call.keywords)

    def _read(self, ref: Ref) -> Ref:
        """Return a term's number in a call, as the node that computes it."""
        whole = self._value(int(ref.node))
        return Ref(whole.node, ref.output) if ref.output else whole

    def _value(self, number: int) -> Ref:
        term = self.terms[number]
        if term.kind == RESULT:
            return Ref(self._value(term.inputs[0]).node, term.data)
        if number not in self._made:
            self._made[number] = Ref(term.origin) if term.kind == LEAF else self._once(number)
        return self._made[number]

    def _stands(self, number: int) -> bool:
        """Return whether the term is still computed: what an op and its equal gave may both be gone."""
        term = self.terms[number]
        if term.kind == RESULT:
            return self._stands(term.inputs[0])
        return term.free or term.kind == LEAF or number in self._made

    def _once(self, number: int) -> Ref:
        term = self.terms[number]
        assert term.free, f"term {number} is read before it is made"
        call = self.terms.call(term.kind, term.data, term.inputs)
        arguments, keywords = map_refs((call.arguments, call.keywords), self._read)
        return self.draft.op(call.target, *arguments, once=True, **dict(keywords))
