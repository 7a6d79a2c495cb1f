"""Equality in the e-graph is closed under congruence: against a closure by trying all pairs again and
again.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("egglog")

from experiments.compilation.interface import Signature, TensorType
from experiments.compilation.planning.substitutions.terms import Terms
from experiments.compilation.policies.egglog.egraph import EGraph
from tests.experiments.compilation.graphs import kind

COMMUTES = ("ew_add", "ew_mul")


class Square:
    """Every op gives a matrix of 2 x 2."""

    def __call__(self, target: str, arguments: tuple[Any, ...], keywords: Any) -> Signature:
        return Signature((kind(2, 2),))


def leaves(count: int) -> tuple[Terms, list[int]]:
    terms = Terms(Square())
    types: tuple[TensorType, ...] = (kind(2, 2),)
    return terms, [terms.leaf(f"x{number}", types, False) for number in range(count)]


def closed(terms: Terms, united: list[tuple[int, int]]) -> list[int]:
    """For every term the lowest that is equal to it, by trying all pairs of terms until nothing changes."""
    root = list(range(len(terms)))

    def same(a: int, b: int) -> bool:
        one, other = terms[a], terms[b]
        if (one.kind, one.data, len(one.inputs)) != (other.kind, other.data, len(other.inputs)):
            return False
        if one.kind == "leaf":
            return False
        theirs = [other.inputs, other.inputs[::-1]] if one.kind in COMMUTES else [other.inputs]
        return any(
            all(root[x] == root[y] for x, y in zip(one.inputs, inputs, strict=True)) for inputs in theirs
        )

    def join(a: int, b: int) -> None:
        low, high = sorted((root[a], root[b]))
        for place, known in enumerate(root):
            root[place] = low if known == high else known

    for a, b in united:
        join(a, b)
    changed = True
    while changed:
        before = list(root)
        for a, b in itertools.combinations(range(len(terms)), 2):
            if root[a] != root[b] and same(a, b):
                join(a, b)
        changed = root != before
    return root


def test_equal_inputs_make_equal_results() -> None:
    """x = y, so relu(x) = relu(y) and relu(x) + z = z + relu(y), though nobody said so."""
    terms, (x, y, z) = leaves(3)
    relu = [terms.make("relu", None, (source,)) for source in (x, y)]
    sums = [terms.make("ew_add", None, (relu[0], z)), terms.make("ew_add", None, (z, relu[1]))]
    graph = EGraph(terms, ())
    graph.grow()
    assert graph.class_of(relu[1]) == relu[1] and graph.class_of(sums[1]) == sums[1]
    graph.unite({y: x})
    graph.grow()
    assert (
        graph.class_of(y) == x and graph.class_of(relu[1]) == relu[0] and graph.class_of(sums[1]) == sums[0]
    )
    assert graph.key(sums[1]) == graph.key(sums[0])
    assert graph.distinct() == [x, y, z, relu[0], sums[0]], "of equal e-nodes the first stands for all"


def test_terms_made_later_find_their_class() -> None:
    terms, (x, y) = leaves(2)
    first = terms.make("relu", None, (x,))
    graph = EGraph(terms, ())
    graph.unite({y: x})
    graph.grow()
    later = terms.make("relu", None, (y,))
    graph.grow()
    assert graph.class_of(later) == first


def test_equal_results_say_nothing_of_their_inputs() -> None:
    terms, (x, y) = leaves(2)
    relu = [terms.make("relu", None, (source,)) for source in (x, y)]
    graph = EGraph(terms, ())
    graph.unite({relu[0]: relu[1]})
    graph.grow()
    assert graph.class_of(relu[1]) == relu[0] and graph.class_of(y) == y


def test_a_product_has_an_order() -> None:
    terms, (x, y) = leaves(2)
    products = [terms.make("matmul", None, pair) for pair in ((x, y), (y, x))]
    graph = EGraph(terms, ())
    graph.grow()
    assert graph.class_of(products[1]) == products[1]
    graph.unite({x: y})
    graph.grow()
    assert graph.class_of(products[1]) == products[0]


ops = st.tuples(
    st.sampled_from(["relu", "ew_add", "ew_mul", "matmul", "transpose"]), st.integers(), st.integers()
)


@settings(max_examples=25)
@given(st.lists(ops, min_size=1, max_size=8), st.lists(st.tuples(st.integers(), st.integers()), max_size=3))
def test_classes_are_those_of_the_closure(
    steps: list[tuple[str, int, int]], pairs: list[tuple[int, int]]
) -> None:
    terms, _ = leaves(3)
    for what, a, b in steps:
        inputs = (a % len(terms),) if what in ("relu", "transpose") else (a % len(terms), b % len(terms))
        terms.make(what, None, inputs)
    united = [(a % len(terms), b % len(terms)) for a, b in pairs]
    graph = EGraph(terms, ())
    graph.grow()
    for first, second in united:
        graph.unite({first: second})
    graph.grow()
    assert [graph.class_of(number) for number in range(len(terms))] == closed(terms, united)
