"""Operators as loops and index maps: carried out point by point they are torch's, and tiles touch what they
say.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.compilation.interface.expressions import Expression, TensorAccess
from experiments.compilation.planning.tiles import operators
from experiments.compilation.planning.tiles.traffic import coalesced_elements, contiguous

pytestmark = pytest.mark.torch
Array = npt.NDArray[np.float64]


def places(expression: Expression, access: TensorAccess, sizes: Sequence[int]) -> npt.NDArray[np.int64]:
    """The element of ``access`` that every point of a tile at the origin touches: [points, dimensions]."""
    points = np.array(list(np.ndindex(*sizes))).reshape(math.prod(sizes), len(sizes))
    column = {axis.name: points[:, number] for number, axis in enumerate(expression.axes)}
    found = [
        sum((column[n] * f for n, f in index.terms), np.zeros(len(points), int)) for index in access.indices
    ]
    return np.stack(found, axis=1) if found else np.zeros((len(points), 0), int)


def carried_out(expression: Expression, *inputs: Array) -> Array:
    """Products of the inputs' elements, added up where points share an element of the output."""
    values = np.ones(math.prod(expression.extents))
    for access, tensor in zip(expression.inputs, inputs, strict=True):
        assert tensor.shape == access.shape, access
        values = values * tensor[tuple(places(expression, access, expression.extents).T)]
    output = np.zeros(expression.output.shape)
    np.add.at(output, tuple(places(expression, expression.output, expression.extents).T), values)
    return output


def numbers(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).integers(-4, 5, shape).astype(float)


def same(found: Array, expected: torch.Tensor) -> bool:
    return found.shape == tuple(expected.shape) and bool((found == expected.numpy()).all())


# --- against torch --------------------------------------------------------------------------------


def test_products() -> None:
    a, b = numbers(3, 4), numbers(4, 5)
    assert (carried_out(operators.matmul(3, 5, 4), a, b) == a @ b).all()
    turned = np.ascontiguousarray(b.T)
    assert (carried_out(operators.matmul(3, 5, 4, transposed=True), a, turned) == a @ b).all()
    heads, keys = numbers(2, 3, 4), numbers(2, 4, 5)
    assert (carried_out(operators.matmul(3, 5, 4, batch=(2,)), heads, keys) == heads @ keys).all()


def test_a_layer_of_three_dimensions_with_a_bias() -> None:
    x, w, bias = numbers(2, 3, 4), numbers(5, 4), numbers(5)
    layer = operators.linear((2, 3), 4, 5)
    assert (carried_out(layer, x, w) == x @ w.T).all()
    # A bias is read at every point of the reduction too: only its index is of interest, so the depth is one
    # here.
    biased = operators.with_bias(operators.linear((2, 3), 1, 5), 2)
    assert (carried_out(biased, x[:, :, :1], w[:, :1], bias) == x[:, :, :1] @ w[:, :1].T * bias).all()


@settings(max_examples=25)
@given(
    st.sampled_from([(4, 6, 1), (4, 6, 2), (4, 4, 4), (4, 8, 4), (1, 3, 1)]),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.integers(1, 3),
    st.tuples(st.integers(0, 1), st.integers(0, 1)),
    st.integers(1, 2),
)
def test_convolutions(
    channels: tuple[int, int, int],
    kernel: tuple[int, int],
    stride: int,
    padding: tuple[int, int],
    dilation: int,
) -> None:
    """Plain, in groups, and depthwise with one or more filters for each channel; the picture is padded
    before.
    """
    deep, filters, groups = channels
    expression = operators.convolution(
        2,
        deep,
        (6, 7),
        filters,
        kernel,
        stride=(stride,) * 2,
        padding=padding,
        dilation=(dilation,) * 2,
        groups=groups,
    )
    x, w = numbers(2, deep, 6, 7), numbers(filters, deep // groups, *kernel)
    padded = np.pad(x, ((0, 0), (0, 0), *((p, p) for p in padding)))
    truth = torch.conv2d(torch.tensor(padded), torch.tensor(w), None, stride, 0, dilation, groups)
    assert same(carried_out(expression, padded, w), truth)
    assert expression.work(expression.extents) == 2 * truth.numel() * deep // groups * math.prod(kernel)


def test_convolutions_of_one_and_three_dimensions() -> None:
    x, w = numbers(2, 3, 8), numbers(4, 3, 3)
    line = operators.convolution(2, 3, (8,), 4, (3,), stride=(2,))
    assert same(carried_out(line, x, w), torch.conv1d(torch.tensor(x), torch.tensor(w), stride=2))
    x, w = numbers(1, 2, 3, 4, 5), numbers(2, 2, 2, 2, 2)
    space = operators.convolution(1, 2, (3, 4, 5), 2, (2, 2, 2))
    assert same(carried_out(space, x, w), torch.conv3d(torch.tensor(x), torch.tensor(w)))


def test_a_convolution_is_the_product_of_its_filters_and_windows() -> None:
    """The matrix of windows by torch's unfold; each of 3 x 6 x 6 pixels stands in it 432 / 108 = 4 times."""
    convolved = operators.convolution(1, 3, (6, 6), 5, (3, 3))
    product = operators.implicit_gemm(convolved)
    x, w = numbers(1, 3, 6, 6), numbers(5, 3, 3, 3)
    matrix = torch.nn.functional.unfold(torch.tensor(x), 3)[0].numpy()
    truth = torch.conv2d(torch.tensor(x), torch.tensor(w))[0].flatten(1)
    assert same(carried_out(product, w.reshape(5, 27), matrix), truth)
    assert product.inputs[1].repeats == 27 * 16 / (3 * 36)
    assert product.work(product.extents) == convolved.work(convolved.extents)


def test_sums_over_windows_and_axes() -> None:
    x = numbers(2, 3, 6, 6)
    pool = operators.pooling(2, 3, (6, 6), (3, 2), stride=(2, 2))
    assert same(carried_out(pool, x), torch.nn.functional.avg_pool2d(torch.tensor(x), (3, 2), 2) * 6)
    for over, keep in (((1,), False), ((1, 3), True), ((0, 2, 3), False)):
        total = operators.reduction(x.shape, over, keep=keep)
        assert (carried_out(total, x) == x.sum(axis=over, keepdims=keep)).all(), over


def test_elementwise_operands_broadcast_as_numpys() -> None:
    shapes = [(2, 3, 4), (3, 1), (4,), (1,), ()]
    operands = [numbers(*shape) for shape in shapes]
    expression = operators.elementwise((2, 3, 4), shapes)
    assert (carried_out(expression, *operands) == math.prod(operands[1:], start=operands[0])).all()


def test_transposes() -> None:
    x = numbers(2, 3, 4)
    for order in itertools.permutations(range(3)):
        assert (carried_out(operators.transpose(x.shape, order), x) == x.transpose(order)).all(), order


@given(st.integers(1, 9), st.integers(1, 4), st.integers(1, 3), st.integers(0, 2), st.integers(1, 3))
def test_windows_have_torchs_sizes(size: int, kernel: int, stride: int, padding: int, dilation: int) -> None:
    if size + 2 * padding < dilation * (kernel - 1) + 1:
        return
    x, w = torch.zeros(1, 1, size), torch.zeros(1, 1, kernel)
    truth = torch.conv1d(x, w, None, stride, padding, dilation)
    assert operators.windows((size,), (kernel,), (stride,), (padding,), (dilation,)) == tuple(truth.shape[2:])


# --- tiles ----------------------------------------------------------------------------------------

EXPRESSIONS: dict[str, Expression] = {
    "product": operators.matmul(6, 8, 5),
    "batched": operators.matmul(3, 4, 5, batch=(2,)),
    "strided": operators.convolution(1, 2, (9, 9), 3, (3, 3), stride=(2, 2)),
    "overlapping": operators.convolution(2, 1, (6, 6), 2, (3, 3), padding=(1, 1)),
    "skipping": operators.convolution(1, 2, (9, 9), 3, (1, 2), stride=(3, 3)),
    "grouped": operators.convolution(1, 4, (5, 5), 4, (2, 2), groups=2),
    "pool": operators.pooling(1, 2, (6, 6), (2, 2)),
    "broadcast": operators.elementwise((3, 4), ((3, 4), (4,), (3, 1))),
    "rows": operators.rowwise((4, 5), (1,), parameters=1),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
@settings(max_examples=20)
@given(st.data())
def test_a_tile_needs_the_elements_that_its_points_touch(name: str, data: st.DataObject) -> None:
    expression = EXPRESSIONS[name]
    sizes = tuple(data.draw(st.integers(1, extent)) for extent in expression.extents)
    total = 0
    for access in expression.accesses:
        touched = places(expression, access, sizes)
        box = tuple(int(column.max()) + 1 for column in touched.T)
        distinct = len({tuple(place) for place in touched.tolist()})
        assert expression.extents_touched(access, sizes) == box
        assert expression.elements(access, sizes) == distinct
        total += 4 * distinct
    assert expression.bytes(sizes) == total


def test_a_dilated_window_is_counted_within_its_box() -> None:
    """3 taps 2 apart at 2 places next to each other touch 0, 2, 4 and 1, 3, 5: six in a box of six."""
    dilated = operators.convolution(1, 1, (9,), 1, (3,), dilation=(2,))
    image = dilated.inputs[0]
    assert dilated.extents_touched(image, (1, 1, 2, 3)) == (1, 1, 6)
    assert dilated.elements(image, (1, 1, 2, 3)) == 6
    assert dilated.elements(image, (1, 1, 1, 3)) == 3, "of one window only every other element"


def test_a_row_that_is_reduced_over_is_read_by_columns() -> None:
    """x[m, k] and w[n, k] lie along k; b[k, n] of a product does not."""
    assert [access.tensor for access in operators.linear((4,), 5, 6).column_reads] == ["x", "w"]
    assert [access.tensor for access in operators.matmul(4, 6, 5).column_reads] == ["a"]
    assert operators.elementwise((4, 5)).column_reads == ()


def test_softmax_writes_whole_rows_and_a_sum_does_not() -> None:
    assert operators.rowwise((4, 5), (1,)).rowwise and not operators.reduction((4, 5), (1,)).rowwise
    assert operators.rowwise((4, 5), (1,)).whole((2,)) == (2, 5)


def test_intensity_of_a_square_tile() -> None:
    """8 x 8 results over 16 terms: 2,048 FLOPs for 2 x 128 operands and 64 results of 4 bytes."""
    assert operators.matmul(64, 64, 16).intensity((8, 8)) == 2048 / (4 * (128 + 128 + 64))


# --- transactions ---------------------------------------------------------------------------------


@given(st.data())
def test_a_run_is_the_addresses_that_follow_each_other(data: st.DataObject) -> None:
    tensor = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    tile = tuple(data.draw(st.integers(1, extent)) for extent in tensor)
    addresses = sorted(int(np.ravel_multi_index(place, tensor)) for place in np.ndindex(*tile))
    run = next((n for n, address in enumerate(addresses) if address != n), len(addresses))
    assert contiguous(tile, tensor) == run


@pytest.mark.parametrize(
    ("tile", "elements"),
    [
        ((4, 8), 32),  # rows of a whole transaction
        ((4, 16), 64),  # of two
        ((4, 2), 32),  # a quarter of each is of use
        ((4, 1), 32),  # an eighth
        ((1, 1), 8),
        ((0, 8), 0),
    ],
)
def test_short_rows_waste_the_rest_of_their_transactions(tile: tuple[int, int], elements: float) -> None:
    """Transactions of 8 elements on rows of 64."""
    assert coalesced_elements(tile, (16, 64), 8) == elements


def test_whole_rows_are_one_run() -> None:
    """Rows of 2 elements, of which a tile takes 4 whole ones: 8 in a run waste nothing."""
    assert contiguous((4, 2), (16, 2)) == 8
    assert coalesced_elements((4, 2), (16, 2), 8) == 8
    assert coalesced_elements((4, 2), (16, 3), 8) == 32


# What a tile moves is the same however its operator is called.
CARRIERS: list[Callable[[], Expression]] = [
    lambda: operators.linear((6,), 5, 8),
    lambda: operators.matmul(6, 8, 5),
]


def test_a_layer_and_a_product_of_the_same_sizes_move_the_same() -> None:
    for sizes in itertools.product((1, 3, 6), (2, 8), (1, 5)):
        assert len({build().bytes(sizes) for build in CARRIERS}) == 1, sizes
