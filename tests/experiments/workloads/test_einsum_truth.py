"""Loops mean what they say: an op computed in parts, by numpy and torch, is the op computed whole.

Each dimension that an operator calls divisible is cut in two. Every operand is cut where it is walked by it;
the parts of the result must then stand side by side (an output dimension) or add up (a contracted one).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.workloads.einsum import Operand, Operator
from tests.experiments.workloads.hand_steps import one_op

pytestmark = pytest.mark.torch
X, W = "input", "parameter"
Computation = Callable[..., torch.Tensor]


def values(operator: Operator, shapes: Sequence[tuple[int, ...]]) -> list[torch.Tensor]:
    """Small whole numbers, so that sums are exact, in the axes that the operator names."""
    random = np.random.default_rng(0)
    found = [torch.tensor(random.integers(-4, 5, shape).astype(np.float64)) for shape in shapes]
    return [
        tensor if "" in operand.dims else tensor.reshape([operator.size[name] for name in operand.dims])
        for tensor, operand in zip(found, operator.operands, strict=True)
    ]


def part(tensor: torch.Tensor, operand: Operand, name: str, half: int) -> torch.Tensor:
    for axis, dim in enumerate(operand.dims):
        if dim == name:
            middle = tensor.shape[axis] // 2
            start, length = (0, middle) if half == 0 else (middle, tensor.shape[axis] - middle)
            tensor = tensor.narrow(axis, start, length)
    return tensor


def in_parts(
    operator: Operator, run: Computation, operands: Sequence[torch.Tensor], name: str
) -> torch.Tensor:
    """The result put together from two devices that have half of dimension ``name`` each."""
    halves = [
        run(*(part(t, operand, name, half) for t, operand in zip(operands, operator.operands, strict=True)))
        for half in (0, 1)
    ]
    if name in operator.contracted:
        return halves[0] + halves[1]
    return torch.cat(halves, operator.output.index(name))


def agrees_in_parts(
    operator: Operator, run: Computation, shapes: Sequence[tuple[int, ...]], but: tuple[str, ...] = ()
) -> None:
    operands = values(operator, shapes)
    whole = run(*operands)
    for name in operator.divisible:
        if name not in but:
            assert torch.equal(in_parts(operator, run, operands, name), whole), name


@settings(max_examples=15)
@given(st.integers(2, 5), st.integers(2, 5), st.integers(2, 5))
def test_linear_layers(rows: int, inside: int, columns: int) -> None:
    shapes = [(rows, inside), (columns, inside)]
    linear = one_op("mm", (rows, columns), (X, shapes[0]), (W, shapes[1]), batch=rows)
    assert len(linear.divisible) == 3
    agrees_in_parts(linear, lambda x, w: torch.einsum("bi,oi->bo", x, w), shapes)


def test_a_bias_is_not_part_of_a_sum_over_the_inputs() -> None:
    """Two devices with half the inputs would add the bias twice: what is true of the product is not of its
    bias.
    """
    shapes = [(3,), (4, 2), (3, 2)]
    linear = one_op("addmm", (4, 3), (W, shapes[0]), (X, shapes[1]), (W, shapes[2]), batch=4)

    def run(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return x @ w.T + bias

    ordered = [shapes[1], shapes[2], shapes[0]]
    agrees_in_parts(linear, run, ordered, but=("channel.in",))
    operands = values(linear, ordered)
    double = in_parts(linear, run, operands, "channel.in") - run(*operands)
    assert torch.equal(double, operands[2].expand(4, 3))


def test_a_linear_layer_over_a_picture() -> None:
    shapes = [(4, 3, 2, 2), (5, 12)]
    linear = one_op("mm", (4, 5), (X, shapes[0]), (W, shapes[1]), batch=4)
    agrees_in_parts(linear, lambda x, w: torch.einsum("bchw,ochw->bo", x, w), shapes)


def test_experts() -> None:
    shapes = [(4, 6, 3), (4, 3, 5)]
    expand = one_op("bmm", (4, 6, 5), (X, shapes[0]), (W, shapes[1]), batch=2, sequence=7)
    agrees_in_parts(expand, torch.bmm, shapes)


def test_a_convolution_over_batch_and_channels() -> None:
    shapes = [(2, 4, 6, 6), (3, 4, 3, 3)]
    convolution = one_op("convolution", (2, 3, 6, 6), (X, shapes[0]), (W, shapes[1]), batch=2)
    operands = [torch.tensor(np.random.default_rng(0).integers(-4, 5, shape) * 1.0) for shape in shapes]
    for name in ("batch", "channel", "channel.in"):
        # The weight's window is whole on every device: its last axes have no loop.
        parts = in_parts(convolution, lambda x, w: torch.conv2d(x, w, padding=1), operands, name)
        assert torch.equal(parts, torch.conv2d(*operands, padding=1)), name


@pytest.mark.parametrize(
    ("kernel", "stride", "padding"), [(3, 1, 1), (5, 1, 2), (3, 2, 1), (2, 2, 0), (7, 2, 3)]
)
def test_the_halo_is_the_rows_that_two_devices_read_beyond_their_own(
    kernel: int, stride: int, padding: int
) -> None:
    """Which rows each half of the result depends on, by differentiation; the halves share one border."""
    x = torch.ones(1, 1, 16, 16, dtype=torch.float64, requires_grad=True)
    result = torch.conv2d(
        x, torch.ones(1, 1, kernel, kernel, dtype=torch.float64), stride=stride, padding=padding
    )
    rows = result.shape[2]
    beyond = 0
    for half, own in ((slice(0, rows // 2), slice(8, 16)), (slice(rows // 2, rows), slice(0, 8))):
        (gradient,) = torch.autograd.grad(result[:, :, half].sum(), x, retain_graph=True)
        beyond += int((gradient[0, 0].sum(dim=1)[own] > 0).sum())
    shapes = (X, (1, 1, 16, 16)), (W, (1, 1, kernel, kernel))
    operator = one_op("convolution", tuple(result.shape), *shapes, batch=1)
    assert dict(operator.halo).get("height", 0) == beyond


def test_queries_heads_and_samples_of_attention_are_independent() -> None:
    """Query, key and value of 4 heads of 2 with a head behind another, as one product makes them."""
    samples, tokens, heads, width = 2, 6, 4, 2
    shape = (samples, tokens, heads * width)
    attention = one_op(
        "scaled_dot_product_attention",
        (samples, heads, tokens, width),
        *[(X, shape)] * 3,
        batch=samples,
        sequence=tokens,
    )

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        apart = [t.unflatten(-1, (-1, width)).transpose(1, 2) for t in (q, k, v)]
        return torch.nn.functional.scaled_dot_product_attention(*apart).transpose(1, 2)

    random = np.random.default_rng(0)
    operands = [torch.tensor(random.normal(size=shape)) for _ in range(3)]
    assert attention.divisible == ("batch", "sequence", "heads")
    for name in attention.divisible:
        found = in_parts(attention, run, operands, name)
        assert torch.allclose(found, run(*operands), atol=1e-12), name


def test_half_a_table_gives_a_part_of_the_sum() -> None:
    """A device looks up the words that it has and adds nothing for the others."""
    table = torch.arange(12.0).reshape(6, 2)
    words = torch.tensor([0, 5, 3, 2])
    look_up = one_op("embedding", (4, 2), (W, (6, 2)), (X, (4,)), batch=4)
    assert look_up.contracted == ("vocabulary",)

    def has(first: int, rows: torch.Tensor) -> torch.Tensor:
        mine = (words >= first) & (words < first + len(rows))
        return rows[torch.where(mine, words - first, 0)] * mine[:, None]

    assert torch.equal(has(0, table[:3]) + has(3, table[3:]), table[words])


def test_a_softmax_needs_more_than_its_own_part() -> None:
    """Over the last dimension it cannot be cut without the statistics of the whole; over the rows it can."""
    softmax = one_op("_softmax", (4, 6), (X, (4, 6)), batch=4)
    operands = values(softmax, [(4, 6)])

    def run(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, dim=-1)

    assert torch.equal(in_parts(softmax, run, operands, "batch"), run(*operands))
    (statistic,) = softmax.statistics
    apart = in_parts(softmax, run, operands, statistic)
    assert not torch.allclose(apart, run(*operands))
    maximum, total = (
        operands[0].amax(1, keepdim=True),
        (operands[0] - operands[0].amax(1, keepdim=True)).exp(),
    )
    assert torch.allclose((operands[0] - maximum).exp() / total.sum(1, keepdim=True), run(*operands))


@pytest.mark.parametrize("result", [(4, 3), (4,), (4, 3, 2)])
def test_sums(result: tuple[int, ...]) -> None:
    shape = (4, 3, 2, 5)
    total = one_op("sum", result, (X, shape), batch=4)
    gone = tuple(range(len(result), 4))
    agrees_in_parts(total, lambda x: x.sum(dim=gone), [shape])


def test_elementwise_with_a_bias_over_the_last_dimensions() -> None:
    shapes = [(4, 6, 3, 2), (3, 2)]
    agrees_in_parts(
        one_op("add", shapes[0], (X, shapes[0]), (W, shapes[1]), batch=4), lambda x, b: x + b, shapes
    )
