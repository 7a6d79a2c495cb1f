"""Ops of a graph as tensor expressions: FLOPs, operands and the elements a tile touches, counted by hand."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.compilation.interface import INPUT, OP, OUTPUT, Graph, GraphNode, Ref, TensorType
from experiments.compilation.interface.expressions import Expression, Sizes
from experiments.compilation.planning.tiles.from_ops import FORMS, broadcast, copy
from tests.experiments.compilation.graphs import kind

X, Y, Z = Ref("x"), Ref("y"), Ref("z")


def graph_of(target: str, arguments: tuple[Any, ...], result: TensorType, *inputs: TensorType) -> Graph:
    """Inputs x, y and z of these types, the op, and its result."""
    given = [GraphNode(name, INPUT, name, outputs=(own,)) for name, own in zip("xyz", inputs, strict=False)]
    op = GraphNode("op", OP, target, arguments, outputs=(result,))
    return Graph((*given, op, GraphNode("output", OUTPUT, "output", ((Ref("op"),),))))


def made(target: str, arguments: tuple[Any, ...], result: Sizes, *inputs: Sizes) -> Any:
    """What the op's form makes of it."""
    graph = graph_of(f"aten.{target}.default", arguments, kind(*result), *(kind(*own) for own in inputs))
    return FORMS[target](graph.by_name["op"], graph)


def expression_of(target: str, arguments: tuple[Any, ...], result: Sizes, *inputs: Sizes) -> Expression:
    expression: Expression = made(target, arguments, result, *inputs)[0]
    assert expression.output.shape == result
    return expression


def work(expression: Expression) -> float:
    return expression.work(expression.extents)


def read(expression: Expression, *tile: int) -> list[Sizes]:
    """What a tile of the output needs of every input, from the first to the last element."""
    return [expression.extents_touched(each, expression.whole(tile)) for each in expression.inputs]


# --- products -------------------------------------------------------------------------------------


def test_a_product_that_adds_reads_its_bias_last() -> None:
    """``addmm(bias, a, b)`` of 2 x 3 and 3 x 5: 2 x 30 FLOPs, and the bias is the third input, not the
    first.
    """
    expression, refs = made("addmm", (X, Y, Z), (2, 5), (5,), (2, 3), (3, 5))
    assert refs == (Y, Z, X)
    assert [access.shape for access in expression.inputs] == [(2, 3), (3, 5), (5,)]
    assert read(expression, 1, 2) == [(1, 3), (3, 2), (2,)]
    assert work(expression) == 60


def test_products_of_a_batch_read_their_own_matrices() -> None:
    expression = expression_of("bmm", (X, Y), (4, 2, 5), (4, 2, 3), (4, 3, 5))
    assert work(expression) == 2 * 4 * 2 * 3 * 5
    assert read(expression, 1, 2, 1) == [(1, 2, 3), (1, 3, 1)]


@pytest.mark.parametrize(
    ("left", "right", "result"), [((3,), (3, 5), (5,)), ((4, 2, 3), (3, 5), (4, 2, 5))], ids=["vector", "one"]
)
def test_products_that_broadcast_have_no_form(left: Sizes, right: Sizes, result: Sizes) -> None:
    assert made("matmul", (X, Y), result, left, right) is None


# --- windows --------------------------------------------------------------------------------------


def test_a_convolution_takes_its_groups_from_where_its_overload_has_them() -> None:
    """Two groups of two channels and three filters over 4 x 4: each of 6 x 2 x 2 results sums 2 x 9
    products, and one pixel of one filter reads one group's 2 x 3 x 3.
    """
    sizes: tuple[Sizes, ...] = ((1, 4, 4, 4), (6, 2, 3, 3))
    short = expression_of("conv2d", (X, Y, None, (1, 1), (0, 0), (1, 1), 2), (1, 6, 2, 2), *sizes)
    long = (X, Y, None, (1, 1), (0, 0), (1, 1), False, (0, 0), 2)
    full = expression_of("convolution", long, (1, 6, 2, 2), *sizes)
    assert work(short) == work(full) == 2 * (6 * 2 * 2) * (2 * 9)
    one = (1,) * len(short.domain)
    assert read(short, *one)[0] == (1, 2, 3, 3)


def test_a_transposed_convolution_has_no_form() -> None:
    long = (X, Y, None, (1, 1), (0, 0), (1, 1), True, (0, 0), 1)
    assert made("convolution", long, (1, 3, 6, 6), (1, 2, 4, 4), (2, 3, 3, 3)) is None


def test_a_pool_without_a_stride_steps_by_its_window() -> None:
    """Windows of 2 x 3 over 4 x 6: 2 x 2 of them, a comparison a tap."""
    expression = expression_of("max_pool2d", (X, (2, 3)), (1, 1, 2, 2), (1, 1, 4, 6))
    assert work(expression) == 24
    assert read(expression, 1, 1, 2, 1) == [(1, 1, 4, 3)]


def test_a_window_with_gaps_reaches_as_far_as_its_last_tap() -> None:
    """Taps 0 and 2 of nine rows, two rows a step: four results, like those of a window without gaps, but
    one of them reads three rows and two read five.
    """
    gaps = ((2, 1), (2, 1), (0, 0), (2, 1))
    expression = expression_of("max_pool2d", (X, *gaps), (1, 1, 4, 1), (1, 1, 9, 1))
    assert read(expression, 1, 1, 1, 1) == [(1, 1, 3, 1)]
    assert read(expression, 1, 1, 2, 1) == [(1, 1, 5, 1)]
    plain = expression_of("max_pool2d", (X, (2, 1), (2, 1)), (1, 1, 4, 1), (1, 1, 9, 1))
    assert read(plain, 1, 1, 2, 1) == [(1, 1, 4, 1)]


def test_a_mean_that_rounds_its_size_up_has_no_form() -> None:
    """Five columns in twos are three windows only where the last may hang over; the argument that
    says so stands where a maximum has its dilation.
    """
    assert made("avg_pool2d", (X, (1, 2), (1, 2), (0, 0), True), (1, 1, 1, 3), (1, 1, 1, 5)) is None
    expression = expression_of("avg_pool2d", (X, (1, 2), (1, 2), (0, 0), True), (1, 1, 1, 2), (1, 1, 1, 4))
    assert read(expression, 1, 1, 1, 1) == [(1, 1, 1, 2)]


def test_pools_to_a_size_are_windows_a_sum_or_nothing() -> None:
    """Six columns to three are windows of two, to one a sum of all; to four they are windows of two sizes."""
    windows = expression_of("adaptive_avg_pool2d", (X, (1, 3)), (1, 2, 1, 3), (1, 2, 1, 6))
    assert read(windows, 1, 1, 1, 2) == [(1, 1, 1, 4)]
    whole = expression_of("adaptive_avg_pool2d", (X, (1, 1)), (1, 2, 1, 1), (1, 2, 4, 6))
    assert whole.reduction == (4, 6) and work(whole) == 2 * 24
    assert made("adaptive_avg_pool2d", (X, (1, 4)), (1, 2, 1, 4), (1, 2, 1, 6)) is None


# --- rows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "result", "reduced"),
    [
        ((X, (1,), False), (2, 4), (3,)),
        ((X, (-1, 0), False), (3,), (2, 4)),
        ((X, (), False), (), (2, 3, 4)),
        ((X,), (), (2, 3, 4)),
    ],
    ids=["an axis", "two, one from the end", "none is all", "none named"],
)
def test_sums_over_axes(arguments: tuple[Any, ...], result: Sizes, reduced: Sizes) -> None:
    """24 numbers are added whatever the axes."""
    expression = made("sum", arguments, result, (2, 3, 4))[0]
    assert sorted(expression.reduction) == sorted(reduced)
    assert work(expression) == 24


def test_a_norm_runs_over_as_many_last_axes_as_it_names() -> None:
    """Over 3 x 4 of 2 x 3 x 4; a weight and a bias are read beside."""
    expression = expression_of("layer_norm", (X, (3, 4), Y, Z), (2, 3, 4), (2, 3, 4), (3, 4), (3, 4))
    assert expression.rowwise and expression.reduction == (3, 4) and expression.domain == (2,)
    assert len(expression.inputs) == 3


# --- other ops ------------------------------------------------------------------------------------


def plain(form: Any, result: Sizes, *inputs: Sizes) -> Any:
    graph = graph_of("aten.add.Tensor", (X, Y)[: len(inputs)], kind(*result), *(kind(*own) for own in inputs))
    return form(graph.by_name["op"], graph)


def test_operands_broadcast_from_the_last_axis() -> None:
    """A tile of one row of 2 x 3 reads a row of a matrix and one number of a column."""
    expression, refs = plain(broadcast, (2, 3), (2, 3), (2, 1))
    assert refs == (X, Y)
    assert read(expression, 1, 3) == [(1, 3), (1, 1)]
    assert plain(broadcast, (2, 3), (2, 3), (2,)) is None


def test_what_has_no_form_is_a_copy_that_reads_all_its_operands() -> None:
    """A result of 4 from operands of 8 and 4: 12 elements read for 4 written, without a FLOP."""
    expression, refs = plain(copy, (4,), (8,), (4,))
    assert refs == (X, Y) and work(expression) == 0
    (source,) = expression.inputs
    assert expression.elements(source, expression.extents) / source.repeats == 12
