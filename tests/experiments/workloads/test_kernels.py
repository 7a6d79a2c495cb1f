"""Products cut among devices: shapes by hand, and the arithmetic of all parts together is that of the
whole.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.workloads.kernels import BACKWARD, FORWARD, WEIGHT, WHOLE, Cut, Product, Shape, Work, shapes

#: 6 tokens of 8 values to 10.
LINEAR = Product(6, 8, 10)
#: Two heads' queries (6 x 4) by keys (4 x 6).
SCORES = Product(6, 4, 6, 2, weight=False)


def test_the_three_passes_of_a_linear_layer() -> None:
    """y = x W, dx = dy W', dW = x' dy."""
    assert shapes(LINEAR, 1, WHOLE, FORWARD) == Shape(6, 10, 8, 1)
    assert shapes(LINEAR, 1, WHOLE, BACKWARD) == Shape(6, 8, 10, 1)
    assert shapes(LINEAR, 1, WHOLE, WEIGHT) == Shape(8, 10, 6, 1)


def test_more_samples_are_more_rows_of_a_weight_and_more_products_of_activations() -> None:
    assert shapes(LINEAR, 5, WHOLE, FORWARD) == Shape(30, 10, 8, 1)
    assert shapes(SCORES, 5, WHOLE, FORWARD) == Shape(6, 6, 4, 10)


def test_columns_rows_and_tokens_are_cut_in_turn() -> None:
    """Twelve ways: 2 of columns, 2 of rows, and the rest of tokens."""
    assert shapes(LINEAR, 3, Cut(12, outputs=2, inputs=2), FORWARD) == Shape(6, 5, 4, 1)
    assert shapes(LINEAR, 3, Cut(12, outputs=2, inputs=2), WEIGHT) == Shape(4, 5, 6, 1)


def test_a_product_without_a_weight_has_neither_columns_nor_rows_to_cut() -> None:
    """The cut of the layer's weights divides its heads: half of two heads is one, of the same shape."""
    assert shapes(SCORES, 1, Cut(2, outputs=2), FORWARD) == Shape(6, 6, 4, 1)


def test_elements_are_operands_and_result() -> None:
    assert Shape(6, 10, 8, 2).elements == 2 * (6 * 8 + 8 * 10 + 6 * 10)
    assert Shape(6, 10, 8, 2).flops == 2 * 2 * 6 * 10 * 8
    assert Work((LINEAR, SCORES)).forward_flops == 2 * 6 * 8 * 10 + 2 * 2 * 6 * 4 * 6


sizes = st.integers(1, 64)
cuts = st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4)).map(
    lambda cut: Cut(cut[0] * cut[1] * cut[2], cut[0], cut[1])
)


@given(
    sizes, sizes, sizes, st.integers(1, 8), st.booleans(), cuts, st.sampled_from([FORWARD, BACKWARD, WEIGHT])
)
def test_all_parts_together_compute_the_whole(
    tokens: int, inputs: int, outputs: int, count: int, weight: bool, cut: Cut, what: str
) -> None:
    product = Product(tokens, inputs, outputs, count, weight)
    part = shapes(product, 3, cut, what)
    assert part.flops * cut.parts == pytest.approx(3 * product.flops, rel=1e-9)
