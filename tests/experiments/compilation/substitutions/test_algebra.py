"""Operators of the algebra of rules: exact integers against torch, splits by the joins they undo, shapes as
unknowns.
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.compilation.planning.substitutions.canonical import EXPLICIT, SAME, VALID, canonical
from experiments.compilation.planning.substitutions.dims import Dims, IllTyped, WindowDims, infer_symbols
from experiments.compilation.planning.substitutions.evaluate import JoinedTensor, apply, evaluate
from experiments.compilation.planning.substitutions.rule_text import parse_rule, rule_text
from experiments.core.errors import BadInput
from experiments.workloads.substitutions import Operand, Operator, Substitution

pytestmark = pytest.mark.torch
Integers = npt.NDArray[np.int64]
A, B, C = Operand(-1), Operand(-2), Operand(-3)


def whole(*shape: int, seed: int = 0) -> Integers:
    return np.random.default_rng(seed).integers(-5, 6, shape)


def by(kind: str, *arrays: Integers, **parameters: int) -> Integers:
    """The only result of an operator."""
    operator = Operator(kind, (A, B)[: len(arrays)], tuple(parameters.items()))
    (found,) = apply(operator, [JoinedTensor.of(array) for array in arrays])
    return found.array


# --- against torch --------------------------------------------------------------------------------


@settings(max_examples=40)
@given(
    st.sampled_from([(2, 3, 1), (4, 4, 2), (4, 8, 4)]),
    st.tuples(st.sampled_from([1, 2, 3]), st.sampled_from([1, 2, 3])),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.sampled_from([VALID, EXPLICIT, EXPLICIT + 1, EXPLICIT + 2]),
)
def test_convolutions_are_torchs(
    channels: tuple[int, int, int], kernel: tuple[int, int], stride: tuple[int, int], pad: int
) -> None:
    """``pad`` from EXPLICIT on says how many zeros pad each side."""
    deep, filters, groups = channels
    x, w = whole(2, deep, 6, 7), whole(filters, deep // groups, *kernel, seed=1)
    parameters = {"kernel_h": kernel[0], "kernel_w": kernel[1], "stride_h": stride[0], "stride_w": stride[1]}
    found = by("conv2d", x, w, **parameters, pad=pad)
    tensors = torch.tensor(x).double(), torch.tensor(w).double()
    truth = torch.conv2d(*tensors, None, stride, max(pad - EXPLICIT, 0), 1, groups)
    assert found.shape == tuple(truth.shape) and (found == truth.long().numpy()).all()


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel", [1, 2, 3, 4])
def test_same_padding_is_tensorflows(kernel: int, stride: int) -> None:
    """ceil(size / stride) positions; one zero more at the end where their number is odd."""
    for size in (5, 6):
        x, w = whole(1, 1, size, size), whole(1, 1, kernel, kernel, seed=1)
        found = by(
            "conv2d", x, w, kernel_h=kernel, kernel_w=kernel, stride_h=stride, stride_w=stride, pad=SAME
        )
        out = -(-size // stride)
        missing = max((out - 1) * stride + kernel - size, 0)
        around = (missing // 2, missing - missing // 2)
        padded = torch.tensor(np.pad(x, ((0, 0), (0, 0), around, around))).double()
        truth = torch.conv2d(padded, torch.tensor(w).double(), None, stride)
        assert found.shape == (1, 1, out, out) and (found == truth.long().numpy()).all()


def test_pools_are_sums_and_maxima_that_padding_never_wins() -> None:
    """Of negative numbers the maximum is negative, though zeros lie around them."""
    x = -np.abs(whole(1, 2, 5, 5)) - 1
    parameters = {"kernel_h": 3, "kernel_w": 3, "stride_h": 2, "stride_w": 2, "pad": SAME}
    best = by("pool2d_max", x, **parameters)
    truth = torch.nn.functional.max_pool2d(torch.tensor(x).double(), 3, 2, 1)
    assert (best == truth.long().numpy()).all() and best.max() < 0
    total = by("pool2d_avg", x, **parameters)
    mean = torch.nn.functional.avg_pool2d(torch.tensor(x).double(), 3, 2, 1)
    assert (total == (mean * 9).round().long().numpy()).all(), "nine times the mean, zeros counted"


def test_products_and_the_rest_are_numpys() -> None:
    a, b, batch = whole(3, 4), whole(4, 5, seed=1), whole(2, 3, 4, seed=2)
    assert (by("matmul", a, b) == a @ b).all() and (by("matmul", batch, b) == batch @ b).all()
    both = whole(2, 4, 5, seed=3)
    assert (by("matmul", batch, both) == batch @ both).all()
    assert (by("transpose", batch) == batch.swapaxes(1, 2)).all()
    assert (by("relu", a) == np.maximum(a, 0)).all()
    assert (by("ew_mul", a, a) == a * a).all() and (by("ew_add", a, a) == 2 * a).all()
    assert (by("concat", a, whole(3, 2), axis=-1) == np.concatenate([a, whole(3, 2)], 1)).all()


def test_a_smaller_kernel_in_the_middle_of_a_larger_one_is_the_same_convolution() -> None:
    """What lets convolutions of 1 and 3 be joined: the filter grows, and the result with SAME padding does
    not change.
    """
    x, w = whole(1, 2, 5, 5), whole(3, 2, 1, 1, seed=1)
    ones = {"stride_h": 1, "stride_w": 1, "pad": SAME}
    grown = by("enlarge", w, kernel_h=3, kernel_w=3)
    assert (
        grown.shape == (3, 2, 3, 3) and (grown[:, :, 1, 1] == w[:, :, 0, 0]).all() and grown.sum() == w.sum()
    )
    small, large = (by("conv2d", x, f, kernel_h=k, kernel_w=k, **ones) for f, k in ((w, 1), (grown, 3)))
    assert (small == large).all()
    with pytest.raises(IllTyped):
        by("enlarge", w, kernel_h=2, kernel_w=3)


@pytest.mark.parametrize(
    ("kind", "shapes", "parameters"),
    [
        ("matmul", ((3, 4), (3, 4)), {}),
        ("matmul", ((2, 3, 4), (5, 4, 6)), {}),
        ("ew_add", ((3, 4), (3, 1)), {}),
        ("concat", ((3, 4), (2, 4)), {"axis": -1}),
        ("concat", ((4,), (4,)), {"axis": -2}),
        ("split", ((4, 4),), {"axis": -1}),
    ],
)
def test_operators_refuse_shapes_that_numpy_would_stretch(
    kind: str, shapes: tuple[tuple[int, ...], ...], parameters: dict[str, int]
) -> None:
    with pytest.raises(IllTyped):
        by(kind, *(whole(*shape) for shape in shapes), **parameters)


# --- joins ----------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 3), min_size=2, max_size=4))
def test_splits_undo_joins_the_newest_first(sizes: list[int]) -> None:
    """((a b) c) d comes apart as ((a b) c) and d, then (a b) and c, then a and b."""
    parts = [JoinedTensor.of(whole(2, size, seed=number)) for number, size in enumerate(sizes)]
    join, cut = Operator("concat", (A, B), (("axis", -1),)), Operator("split", (A,), (("axis", -1),))
    joined = parts[0]
    for part in parts[1:]:
        (joined,) = apply(join, [joined, part])
    for part in reversed(parts[1:]):
        joined, last = apply(cut, [joined])
        assert (last.array == part.array).all()
    assert (joined.array == parts[0].array).all()


def test_a_product_of_joined_columns_splits_into_products() -> None:
    side = parse_rule("matmul(a, b), matmul(a, c) => split[axis=-1](matmul(a, concat[axis=-1](b, c)))")
    values = {
        v: JoinedTensor.of(a) for v, a in zip((A, B, C), (whole(2, 3), whole(3, 4), whole(3, 1)), strict=True)
    }
    source, target = (evaluate(ops, values) for ops in (side.source, side.target))
    for mine, theirs in side.outputs:
        assert (source[mine].array == target[theirs].array).all()


# --- text -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "relu(relu(a)) => relu(a)",
        "transpose(transpose(a)) => a",
        "matmul(a, b), matmul(a, c) => split[axis=-1](matmul(a, concat[axis=-1](b, c))).0, "
        "split[axis=-1](matmul(a, concat[axis=-1](b, c))).1",
        "ew_add(a, b) => ew_add(b, a)",
    ],
)
def test_a_rule_is_read_as_it_is_written(text: str) -> None:
    assert rule_text(parse_rule(text)) == text


def test_equal_operators_of_a_side_are_one() -> None:
    rule = parse_rule("ew_add(relu(a), relu(a)) => ew_add(relu(a), relu(a))")
    assert [operator.kind for operator in rule.source] == ["relu", "ew_add"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("relu(a) -> a", "at character 7"),
        ("relu(a => a", "at character 6"),
        ("relu(a) => a b", "'b' at character 12"),
        ("relu[axis](a) => a", "'\\]'"),
        ("relu[axis=x](a) => a", "at character"),
        ("relu(a), relu(b) => a", "2 tensors become 1"),
        ("a => a", "source of 0 operators"),
    ],
)
def test_text_that_is_no_rule_says_where(text: str, what: str) -> None:
    with pytest.raises(BadInput, match=what):
        parse_rule(text)


# --- files ----------------------------------------------------------------------------------------


def test_activations_inside_operators_are_taken_out() -> None:
    """A linear layer with a rectifier inside: transpose the weight, multiply, rectify."""
    layer = Operator("linear", (A, B), (("acti", 2),))
    rule = canonical(Substitution("r", (layer,), (layer,), ((Operand(0), Operand(0)),)))
    assert [operator.kind for operator in rule.source] == ["transpose", "matmul", "relu"]
    assert rule.source[1].inputs == (A, Operand(0)) and rule.outputs == ((Operand(2), Operand(2)),)


def test_axes_count_from_the_end() -> None:
    joined = Operator("concat", (A, B), (("axis", 1), ("numdim", 2)))
    rule = canonical(Substitution("r", (joined,), (joined,), ((Operand(0), Operand(0)),)))
    assert rule.source[0].parameters == (("axis", -1),)


@pytest.mark.parametrize(
    ("operator", "what"),
    [
        (Operator("partition", (A,)), "moves data among devices"),
        (Operator("dropout", (A,)), "not in the algebra"),
        (Operator("relu", (A, B)), "relu of 2 inputs"),
        (Operator("split", (A,), (("axis", 0), ("num_outputs", 3))), "splits in 3"),
        (Operator("matmul", (A, B), (("acti", 1),)), "activation 1"),
        (Operator("concat", (A, B), (("axis", 3), ("numdim", 2))), "axis 3 of 2 dims"),
    ],
)
def test_what_is_outside_the_algebra_is_named(operator: Operator, what: str) -> None:
    with pytest.raises(BadInput, match=what):
        canonical(Substitution("r", (operator,), (operator,), ((Operand(0), Operand(0)),)))


# --- shapes ---------------------------------------------------------------------------------------


def test_unknown_sizes_follow_from_each_other() -> None:
    """a + b = total: with 7 and 3 it is 4; 7 and 8 contradict; a product of 3 and 4 is no 13."""
    dims = Dims()
    a, b, total = dims.new(3), dims.new(), dims.new(7)
    dims.sums.append((total, a, b))
    assert dims.solve(np.random.default_rng(0)) == [3, 4, 7]
    contradiction = Dims()
    contradiction.sums.append((contradiction.new(7), contradiction.new(8), contradiction.new()))
    assert contradiction.solve(np.random.default_rng(0)) is None
    odd = Dims()
    odd.products.append((odd.new(13), odd.new(3), odd.new()))
    assert odd.solve(np.random.default_rng(0)) is None


def test_sizes_that_are_equal_are_one() -> None:
    dims = Dims()
    a, b, c = dims.new(), dims.new(5), dims.new()
    dims.equal(a, b)
    dims.equal(c, a)
    assert dims.root(c) == dims.root(b) and dims.solve(np.random.default_rng(0)) == [5, 5, 5]
    with pytest.raises(IllTyped, match="5 is not 6"):
        dims.equal(c, dims.new(6))
    with pytest.raises(IllTyped, match="2 and 1 dims"):
        dims.all_equal((a, b), (c,), "add")


@given(st.integers(1, 9), st.integers(1, 4), st.integers(1, 3), st.sampled_from([SAME, VALID, EXPLICIT + 1]))
def test_positions_of_a_window_by_counting(size: int, kernel: int, stride: int, pad: int) -> None:
    window = WindowDims(0, 0, kernel, stride, pad)
    if pad == SAME:
        assert window.positions(size) == len(range(0, size, stride))
    else:
        around = max(pad - EXPLICIT, 0)
        starts = range(-around, size + around - kernel + 1, stride)
        assert max(window.positions(size), 0) == len(starts)


@settings(max_examples=20)
@given(st.integers(0, 1000))
def test_shapes_that_are_solved_are_accepted(seed: int) -> None:
    """Of a rule with a product, a join and an addition: every solution evaluates, to the shapes that it
    says.
    """
    rule = parse_rule("ew_add(matmul(a, concat[axis=-1](b, c)), d) => relu(d)")
    dims = Dims()
    tensors = {variable: dims.tensor(2) for variable in rule.variables}
    shapes = infer_symbols(rule.source, tensors, dims)
    solved = dims.solve(np.random.default_rng(seed))
    assert solved is not None
    values = {v: JoinedTensor.of(whole(*(solved[s] for s in symbols))) for v, symbols in tensors.items()}
    for operand, value in evaluate(rule.source, values).items():
        assert value.array.shape == tuple(solved[symbol] for symbol in shapes[operand])


def test_sums_alone_can_make_sizes_equal() -> None:
    """a + b = c and a + d = c: then b is d, whatever they are; a and b need not be equal."""
    dims = Dims()
    a, b, c, d = (dims.new() for _ in range(4))
    dims.sums += [(c, a, b), (c, a, d)]
    equal = dims.equality_test()
    assert equal(b, d) and not equal(a, b)
    assert not any(equal(x, y) for x, y in itertools.combinations((a, b, c), 2))
