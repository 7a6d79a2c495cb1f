"""Graphs of terms with their cost: what is live, who reads what, and what each term is charged.

A term is charged what its node of the input graph costs, or the ATen call that would compute it. Two terms
are one call, charged to the outer, where an op can absorb it: a bias added to a product or convolution that
nothing else reads, a concatenation of concatenations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from experiments.compilation.interface import INPUT, OP, Graph, GraphNode, Workbench
from experiments.compilation.planning.substitutions.terms import (
    BROADCAST,
    CHANNELS,
    FEATURES,
    LEAF,
    RESULT,
    TermCall,
    Terms,
)

#: In a term's readers: it is an output of the graph.
OUTSIDE = -1
Readers = Mapping[int, Sequence[int]]
ReadersOf = Callable[[int], Sequence[int]]
#: Kinds that another op may absorb.
INSIDE_OTHERS = ("matmul", "conv2d", "concat", "ew_add")


@dataclass(frozen=True)
class RewriteStep:
    """One change on the way to a graph: the rule, the terms it took and those that it put in their place.

    ``moved`` says what became of every term that it changed, those above included; ``added`` are all terms
    made for it.
    """

    rule: str
    took: tuple[int, ...]
    made: tuple[int, ...]
    moved: Mapping[int, int]
    before: RewriteStep | None = None
    added: Set[int] = frozenset()

    def all(self) -> list[RewriteStep]:
        """Return the steps in the order done."""
        found: list[RewriteStep] = []
        step: RewriteStep | None = self
        while step is not None:
            found.append(step)
            step = step.before
        return found[::-1]


class GraphView(Protocol):
    """The graph or e-graph that a hard-coded rule looks at.

    Terms that are computed, inputs first, and their readers; ``representative`` says by which term
    ``readers`` knows one.
    """

    @property
    def order(self) -> Sequence[int]: ...

    @property
    def readers(self) -> Readers: ...

    def representative(self, number: int) -> int: ...


@dataclass(frozen=True, eq=False)
class TermGraph:
    """The terms that ``roots`` need.

    All but these is found when first asked for (most graphs are seen again).
    """

    roots: tuple[int, ...]
    prices: Prices
    step: RewriteStep | None = None

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The live terms that a call computes, inputs first."""
        return self.prices.live(self.roots)

    @cached_property
    def readers(self) -> Readers:
        """Of every live term and its inputs those that read it."""
        return self.prices.readers(self.order, self.roots)

    @cached_property
    def cost(self) -> float:
        """Seconds: every live term once."""
        return sum(self.prices.charge(number, self.readers.__getitem__) for number in self.order)

    def representative(self, number: int) -> int:
        return number

    def steps(self) -> list[RewriteStep]:
        return self.step.all() if self.step else []


class Prices:
    """Seconds of terms; each call is asked of the workbench once."""

    def __init__(self, terms: Terms, graph: Graph, bench: Workbench) -> None:
        self.terms, self._graph, self._bench = terms, graph, bench
        self._calls: dict[TermCall, float] = {}
        self._nodes: dict[str, float] = {}
        self._charges: dict[tuple[int, tuple[int, ...]], float] = {}
        self._products: dict[int, int] = {}

    def graph(self, roots: tuple[int, ...], step: RewriteStep | None = None) -> TermGraph:
        return TermGraph(roots, self, step)

    def readers(self, order: Sequence[int], roots: Sequence[int]) -> Readers:
        found: dict[int, list[int]] = {number: [] for number in order}
        for number in order:
            for source in dict.fromkeys(self.terms[number].inputs):
                found.setdefault(source, []).append(number)
        for number in dict.fromkeys(roots):
            found.setdefault(number, []).append(OUTSIDE)
        return found

    def live(self, roots: Sequence[int]) -> tuple[int, ...]:
        """Return terms that are not free, each after its inputs."""
        order: list[int] = []
        done: set[int] = set()
        waiting = [(number, False) for number in reversed(roots)]
        terms = self.terms
        while waiting:
            number, ready = waiting.pop()
            if ready:
                order.append(number)
            elif number not in done and not terms[number].free:
                done.add(number)
                waiting.append((number, True))
                waiting += [(source, False) for source in reversed(terms[number].inputs)]
        return tuple(order)

    def charge(self, number: int, readers: ReadersOf) -> float:
        """Return the seconds of one term among its readers.

        0 for what is free, or computed inside its readers' calls.
        """
        term = self.terms[number]
        if term.free or term.kind in (LEAF, RESULT):
            return 0.0
        if term.kind in INSIDE_OTHERS and self.is_absorbed(number, readers):
            return 0.0
        inside = () if term.origin else self.inside(number, readers)
        known = self._charges.get((number, inside))
        if known is None:
            own = self._node(term.origin) if term.origin else self.call_seconds(self.call(number, inside))
            known = self._charges[number, inside] = own
        return known

    def is_absorbed(self, number: int, readers: ReadersOf) -> bool:
        """Return whether everything that reads the term computes it in its own call."""
        own = readers(number)
        if not own:
            return False
        for reader in own:
            if reader == OUTSIDE:
                return False
            term = self.terms[reader]
            if number not in (term.covers if term.origin else self.inside(reader, readers)):
                return False
        return True

    def inside(self, number: int, readers: ReadersOf) -> tuple[int, ...]:
        """Return terms that the term's own call would compute too: they have no other reader."""
        term = self.terms[number]
        if term.kind == "concat":
            return tuple(
                part for source in term.inputs for part in self._find_nested(source, term.data, readers)
            )
        if term.kind == "ew_add":
            product = self._find_biased(number)
            return (product,) if product >= 0 and len(readers(product)) == 1 else ()
        return ()

    def _find_nested(self, number: int, axis: int, readers: ReadersOf) -> tuple[int, ...]:
        """Return a concatenation along the same axis that is read here alone, and those inside it."""
        term = self.terms[number]
        if term.kind != "concat" or term.data != axis or term.free or len(readers(number)) != 1:
            return ()
        return (
            number,
            *(part for source in term.inputs for part in self._find_nested(source, axis, readers)),
        )

    def _find_biased(self, number: int) -> int:
        """Of an addition of a bias along the right axis the product or convolution; -1 of any other."""
        known = self._products.get(number)
        if known is None:
            left, right = self.terms[number].inputs
            fits = (pair[0] for pair in ((left, right), (right, left)) if self._takes_bias(*pair))
            known = self._products[number] = next(fits, -1)
        return known

    def _takes_bias(self, product: int, bias: int) -> bool:
        spread, term = self.terms[bias], self.terms[product]
        if spread.kind != BROADCAST or not spread.free:
            return False
        if term.kind == "matmul" and spread.data[0] == FEATURES:
            return self.terms.call(term.kind, term.data, term.inputs).target == "aten.linear.default"
        return term.kind == "conv2d" and bool(spread.data[0] == CHANNELS)

    def call(self, number: int, inside: tuple[int, ...]) -> TermCall:
        """Return the ATen call that computes the term and what is ``inside`` it."""
        term, terms = self.terms[number], self.terms
        plain = terms.call(term.kind, term.data, term.inputs)
        if not inside:
            return plain
        if term.kind == "concat":
            return TermCall(
                plain.target, (tuple(terms.ref(n) for n in self._parts(number, inside)), plain.arguments[1])
            )
        (product,) = inside
        (bias,) = (source for source in term.inputs if source != product)
        base = terms.call(terms[product].kind, terms[product].data, terms[product].inputs)
        vector = terms.ref(terms.bias(bias))
        return TermCall(base.target, (*base.arguments[:2], vector, *base.arguments[3:]))

    def _parts(self, number: int, inside: tuple[int, ...]) -> list[int]:
        """Return what a concatenation joins when those inside it are taken apart."""
        found: list[int] = []
        for source in self.terms[number].inputs:
            found += self._parts(source, inside) if source in inside else [source]
        return found

    def call_seconds(self, call: TermCall) -> float:
        known = self._calls.get(call)
        if known is None:
            node, around = self._alone(call)
            known = self._calls[call] = self._bench.seconds(node, around)
        return known

    def _alone(self, call: TermCall) -> tuple[GraphNode, Graph]:
        """Return the call as a node among inputs of the right types."""
        known = self.terms.signature(call)
        node = GraphNode("call", OP, call.target, call.arguments, call.keywords, *known)
        sources = [GraphNode(name, INPUT, name, outputs=self.terms[int(name)].types) for name in node.inputs]
        return node, Graph((*sources, node))

    def _node(self, name: str) -> float:
        if name not in self._nodes:
            self._nodes[name] = self._bench.seconds(self._graph.by_name[name], self._graph)
        return self._nodes[name]


def rebuilt(terms: Terms, graph: TermGraph, replaced: Mapping[int, int]) -> dict[int, int]:
    """What becomes of every term when some are replaced and everything above is built again.

    Raises ``IllTyped``.
    """
    new = dict(replaced)
    for number in graph.order:
        if number not in new:
            moved = again(terms, number, new)
            if moved is not None:
                new[number] = moved
    return new


def again(terms: Terms, number: int, new: Mapping[int, int]) -> int | None:
    """Return the same op on new inputs; None where none of its inputs is new."""
    term = terms[number]
    if not any(source in new for source in term.inputs):
        return None
    inputs = tuple(new.get(source, source) for source in term.inputs)
    made = terms.make_or_copy(term.kind, term.data, inputs)
    if not made.origin and not made.successor:
        made.successor = term.origin or term.successor
    return made.number
