"""Exactness place by place, on graphs written by hand: what stayed is drawn, what lies between is carried
out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from experiments.compilation.interface import INPUT, OP, OUTPUT, Graph, GraphNode, Ref, TensorType
from experiments.compilation.live.exactness import exact_places, places
from tests.experiments.compilation.graphs import kind

pytestmark = pytest.mark.torch
#: Name, ATen op, what it reads.
Line = tuple[str, str, tuple[Any, ...]]


def of(*lines: Line, reads: str, result: TensorType | None = None) -> Graph:
    """Inputs x and y of 2 x 3, then the ops, all of whose results are 2 x 3 (``result``: of the last)."""
    inputs = [GraphNode(name, INPUT, name, outputs=(kind(2, 3),)) for name in ("x", "y")]
    ops = [
        GraphNode(name, OP, f"aten.{target}", arguments, outputs=(kind(2, 3),))
        for name, target, arguments in lines
    ]
    if result is not None:
        ops[-1] = replace(ops[-1], outputs=(result,))
    output = GraphNode("output", OUTPUT, "output", ((Ref(reads),),))
    return Graph((*inputs, *ops, output))


X, Y = Ref("x"), Ref("y")
SUM: Line = ("sum", "add.Tensor", (X, Y))
RELU: Line = ("relu", "relu.default", (Ref("sum"),))


def test_a_sum_in_the_other_order_is_the_same() -> None:
    before = of(SUM, RELU, reads="relu")
    after = of(("new", "add.Tensor", (Y, X)), ("relu", "relu.default", (Ref("new"),)), reads="relu")
    assert list(places(before, after, {"x", "y", "relu", "output"})) == [("relu", Ref("sum"), Ref("new"))]
    assert exact_places(before, after, "cpu", 0) == (1, "")


def test_a_difference_is_found_at_the_op_that_reads_it() -> None:
    before = of(SUM, RELU, reads="relu")
    after = of(("new", "sub.Tensor", (Y, X)), ("relu", "relu.default", (Ref("new"),)), reads="relu")
    compared, what = exact_places(before, after, "cpu", 0)
    assert compared == 1 and "relu reads another value" in what


def test_a_rectifier_left_out_is_found_though_random_inputs_might_hide_it() -> None:
    """Whole numbers below zero are drawn for what the rectifier read."""
    assert exact_places(of(SUM, RELU, reads="relu"), of(SUM, reads="sum"), "cpu", 0)[1]


def test_a_graph_that_did_not_change_has_no_place_to_compare() -> None:
    before = of(SUM, RELU, reads="relu")
    assert exact_places(before, before, "cpu", 0) == (0, "")


def test_an_argument_that_is_a_number_makes_another_op() -> None:
    """x + 2 y in the place of x + y: the op of that name did not stay, so what reads it is compared."""
    before = of(SUM, RELU, reads="relu")
    twice = replace(before.by_name["sum"], keywords=(("alpha", 2),))
    after = Graph(tuple(twice if node.name == "sum" else node for node in before.nodes))
    assert exact_places(before, after, "cpu", 0) == (0, ""), (
        "names alone do not show it: nothing reads another node"
    )
    renamed = of(("other", "add.Tensor", (X, Y)), ("relu", "relu.default", (Ref("other"),)), reads="relu")
    changed = Graph(
        tuple(replace(n, keywords=(("alpha", 2),)) if n.name == "other" else n for n in renamed.nodes)
    )
    assert exact_places(before, changed, "cpu", 0)[1]


def test_a_duplicate_may_give_way_to_what_stayed() -> None:
    """Drawn numbers for the sum that stayed are not x + y; by what both are made of the two sums are
    equal."""
    second: Line = ("twin", "add.Tensor", (X, Y))
    before = of(SUM, second, ("both", "mul.Tensor", (Ref("sum"), Ref("twin"))), reads="both")
    after = of(SUM, ("both", "mul.Tensor", (Ref("sum"), Ref("sum"))), reads="both")
    assert exact_places(before, after, "cpu", 0) == (1, "")
    other: Line = ("twin", "sub.Tensor", (X, Y))
    before = of(SUM, other, ("both", "mul.Tensor", (Ref("sum"), Ref("twin"))), reads="both")
    after = of(SUM, ("both", "mul.Tensor", (Ref("sum"), Ref("sum"))), reads="both")
    assert exact_places(before, after, "cpu", 0)[1]


def test_another_shape_is_another_value() -> None:
    before = of(SUM, RELU, reads="relu")
    row = kind(3)
    after = of(
        ("new", "select.int", (X, 0, 0)), ("relu", "relu.default", (Ref("new"),)), reads="relu", result=row
    )
    assert exact_places(before, after, "cpu", 0)[1]
