"""ONNX operators with odd attributes give what onnxruntime gives; what is not built is refused, never
wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from hypothesis import assume, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from experiments.core.errors import BadInput  # noqa: E402
from tests.experiments.models.one_node import agrees, by_us, node_model  # noqa: E402

pytestmark = pytest.mark.torch
Array = npt.NDArray[Any]


def reals(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def positive(*shape: int) -> Array:
    return np.abs(reals(*shape)) + np.float32(0.5)


def different(*shape: int) -> Array:
    """Values in some order, no two of them equal."""
    values = np.random.default_rng(0).permutation(int(np.prod(shape)))
    return values.reshape(shape).astype(np.float32)


def whole(*values: int) -> Array:
    return np.array(values, np.int64)


# --- windows --------------------------------------------------------------------------------------

pair = st.tuples(st.integers(1, 3), st.integers(1, 3))
four = st.lists(st.integers(0, 2), min_size=4, max_size=4)
AUTOMATIC = ("SAME_UPPER", "SAME_LOWER", "VALID")


@settings(max_examples=25)
@given(pair, pair, pair, four, st.sampled_from([1, 2, 4]), st.booleans())
def test_convolutions(
    kernel: tuple[int, int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    pads: list[int],
    group: int,
    bias: bool,
) -> None:
    """Pads may differ at the two ends of an axis, which torch's own convolution does not know."""
    inputs = (reals(2, 4, 7, 9), reals(8, 4 // group, *kernel, seed=1), reals(8) if bias else None)
    agrees("Conv", *inputs, strides=strides, dilations=dilations, pads=pads, group=group)


@settings(max_examples=15)
@given(pair, pair, st.sampled_from(AUTOMATIC))
def test_convolutions_that_pad_themselves(
    kernel: tuple[int, int], strides: tuple[int, int], auto_pad: str
) -> None:
    agrees("Conv", reals(1, 2, 7, 8), reals(3, 2, *kernel), strides=strides, auto_pad=auto_pad)


@pytest.mark.parametrize("rank", [1, 3])
def test_convolutions_of_other_ranks(rank: int) -> None:
    size, kernel = (9, 7, 6)[:rank], (3, 2, 2)[:rank]
    attributes = {"strides": [2] * rank, "pads": [1] * rank + [0] * rank}
    agrees("Conv", reals(2, 3, *size), reals(4, 3, *kernel), **attributes)
    agrees("MaxPool", reals(2, 3, *size), kernel_shape=kernel, **attributes)
    agrees("AveragePool", reals(2, 3, *size), kernel_shape=kernel, **attributes)


@settings(max_examples=20)
@given(pair, st.tuples(st.integers(1, 3), st.integers(1, 3)), four, st.sampled_from([1, 2]), st.booleans())
def test_transposed_convolutions(
    kernel: tuple[int, int], strides: tuple[int, int], pads: list[int], group: int, extra: bool
) -> None:
    """``output_padding`` adds rows at the end, less than a stride of them; pads cut the result."""
    output_padding = [step - 1 for step in strides] if extra else [0, 0]
    sizes = [
        (size - 1) * step + width + more - pads[axis] - pads[axis + 2]
        for axis, (size, step, width, more) in enumerate(
            zip((4, 5), strides, kernel, output_padding, strict=True)
        )
    ]
    assume(min(sizes) > 0)
    inputs = reals(1, 4, 4, 5), reals(4, 3, *kernel, seed=1)
    agrees("ConvTranspose", *inputs, strides=strides, pads=pads, group=group, output_padding=output_padding)


@pytest.mark.parametrize("auto_pad", ["NOTSET", "SAME_UPPER", "SAME_LOWER"])
def test_transposed_convolutions_to_a_wanted_size(auto_pad: str) -> None:
    """8 rows of a possible 9: one is cut, at the end or at the beginning."""
    inputs = reals(1, 2, 4, 4), reals(2, 3, 3, 3, seed=1)
    agrees("ConvTranspose", *inputs, strides=[2, 2], output_shape=[8, 8], auto_pad=auto_pad)


@settings(max_examples=25)
@given(st.tuples(st.integers(2, 4), st.integers(2, 4)), pair, four, st.booleans())
def test_maximum_pools(
    kernel: tuple[int, int], strides: tuple[int, int], pads: list[int], ceil: bool
) -> None:
    """Pads below half the window (torch's limit). Rounded up, no window may begin in the padding behind."""
    pads = [min(pad, kernel[axis % 2] // 2) for axis, pad in enumerate(pads)]
    agrees("MaxPool", reals(1, 2, 7, 9), kernel_shape=kernel, strides=strides, pads=pads, ceil_mode=int(ceil))


def test_no_window_begins_in_the_padding_behind() -> None:
    """9 columns and one zero at each end by windows of 2 at every second place: the sixth would begin at
    the last zero.

    The rows are padded at one end only, so that all padding is made before the pool."""
    found = agrees(
        "MaxPool", reals(1, 2, 7, 9), kernel_shape=[2, 2], strides=[1, 2], pads=[0, 1, 1, 1], ceil_mode=1
    )
    assert found[0].shape == (1, 2, 7, 5)


@pytest.mark.parametrize("auto_pad", AUTOMATIC)
def test_pools_that_pad_themselves(auto_pad: str) -> None:
    for op in ("MaxPool", "AveragePool"):
        agrees(op, reals(1, 2, 7, 8), kernel_shape=[3, 2], strides=[2, 3], auto_pad=auto_pad)


def test_a_dilated_maximum() -> None:
    agrees("MaxPool", reals(1, 2, 9, 9), kernel_shape=[2, 3], dilations=[3, 2], pads=[1, 1, 1, 1])


@settings(max_examples=25)
@given(st.tuples(st.integers(2, 4), st.integers(2, 4)), pair, four, st.booleans())
def test_means_of_windows(
    kernel: tuple[int, int], strides: tuple[int, int], pads: list[int], count: bool
) -> None:
    """Zeros of the padding count or do not, also where the two ends are padded differently."""
    pads = [min(pad, kernel[axis % 2] // 2) for axis, pad in enumerate(pads)]
    attributes = {"kernel_shape": kernel, "strides": strides, "pads": pads, "count_include_pad": int(count)}
    agrees("AveragePool", reals(1, 2, 7, 9), **attributes)


@pytest.mark.parametrize("count", [0, 1])
def test_means_of_windows_rounded_up(count: int) -> None:
    """7 by windows of 3 at every second place with one zero at each end, and 8, where the last window is
    short.
    """
    for size in (7, 8):
        attributes = {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1, "count_include_pad": count}
        agrees("AveragePool", reals(1, 1, size, size), pads=[1, 1, 1, 1], **attributes)


def test_pools_of_everything() -> None:
    for op in ("GlobalAveragePool", "GlobalMaxPool"):
        agrees(op, reals(2, 3, 4, 5))
        agrees(op, reals(2, 3, 7))


# --- products and norms ---------------------------------------------------------------------------


@pytest.mark.parametrize("turned", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("bias", [None, (), (5,), (3, 1), (3, 5)])
def test_gemm(turned: tuple[int, int], bias: tuple[int, ...] | None) -> None:
    a, b = reals(3, 4), reals(4, 5, seed=1)
    left, right = (np.ascontiguousarray(x.T) if t else x for x, t in zip((a, b), turned, strict=True))
    c = None if bias is None else np.asarray(reals(*bias, seed=2))
    agrees("Gemm", left, right, c, transA=turned[0], transB=turned[1], alpha=0.5, beta=2.0)


@pytest.mark.parametrize(
    ("left", "right"),
    [((4,), (4,)), ((3, 4), (4,)), ((4,), (2, 4, 3)), ((2, 1, 3, 4), (5, 4, 2)), ((1, 3, 4), (2, 4, 2))],
)
def test_products_broadcast(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    agrees("MatMul", reals(*left), reals(*right, seed=1))


@pytest.mark.parametrize(
    "equation", ["ij,jk->ik", "bij, bkj -> bik", "ii->i", "ij->ji", "i,j->ij", "...ij,jk"]
)
def test_einsum(equation: str) -> None:
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    shapes = [[SIZES[letter] for letter in term.replace("...", "")] for term in terms]
    agrees("Einsum", *(reals(*shape, seed=n) for n, shape in enumerate(shapes)), equation=equation)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_layer_norms(axis: int) -> None:
    shape = (2, 3, 4)[axis:]
    agrees(
        "LayerNormalization", reals(2, 3, 4), reals(*shape), reals(*shape, seed=1), axis=axis, epsilon=1e-2
    )
    agrees("LayerNormalization", reals(2, 3, 4), reals(*shape), axis=axis)


def test_other_norms() -> None:
    x, scale, bias = reals(2, 4, 5, 3), reals(4, seed=1), reals(4, seed=2)
    agrees("InstanceNormalization", x, scale, bias, epsilon=1e-2)
    agrees("BatchNormalization", x, scale, bias, reals(4, seed=3), positive(4), epsilon=1e-2)
    agrees("GroupNormalization", x, scale, bias, num_groups=2)
    agrees("GroupNormalization", x, scale[:2], bias[:2], num_groups=2, version=18)
    for size in (3, 5):
        agrees("LRN", x, size=size, alpha=0.5, beta=0.6, bias=1.5)
    for p in (1, 2):
        for axis in (0, 2, -1):
            agrees("LpNormalization", x, p=p, axis=axis)


# --- reductions -----------------------------------------------------------------------------------

SIZES = {"b": 2, "i": 3, "j": 4, "k": 5}
REDUCTIONS = ["Max", "Min", "Sum", "Mean", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp"]


@pytest.mark.parametrize("kind", REDUCTIONS)
def test_reductions(kind: str) -> None:
    """Axes as an attribute (version 11) and as an argument (18), from the end, none, and all."""
    x, op = positive(2, 3, 4), f"Reduce{kind}"
    for axes, keep in (([1], 1), ([-1, 0], 0), ([0, 1, 2], 1)):
        agrees(op, x, version=11, axes=axes, keepdims=keep)
        agrees(op, x, whole(*axes), version=18, keepdims=keep)
    agrees(op, x, version=18, keepdims=0)
    assert (agrees(op, x, version=18, noop_with_empty_axes=0)[0].shape) == (1, 1, 1)


def test_without_axes_a_reduction_may_do_nothing() -> None:
    x = reals(2, 3)
    assert (agrees("ReduceSum", x, version=18, noop_with_empty_axes=1)[0] == x).all()


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_positions_of_the_greatest_and_least(op: str) -> None:
    """Of equal ones the first, or the last where it is asked for."""
    ties = np.array([[1, 3, 3, 0], [2, 0, 0, 2]], np.float32)
    for axis in (0, 1, -1):
        for keep in (0, 1):
            for last in (0, 1):
                agrees(op, ties, axis=axis, keepdims=keep, select_last_index=last)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax_before_version_13_took_all_axes_behind_as_one(op: str) -> None:
    x = reals(2, 3, 4)
    for axis in (0, 1, 2, -1):
        old, new = (agrees(op, x, version=version, axis=axis)[0] for version in (11, 13))
        assert np.allclose(old, new) == (axis in (2, -1))
    assert agrees(op, x, version=11)[0].shape == agrees(op, x, version=13)[0].shape


# --- shapes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "allowzero"), [((4, -1), 0), ((0, -1), 0), ((0, 0, 2, 2), 0), ((-1,), 0), ((1, 24, 1), 0)]
)
def test_reshape(sizes: tuple[int, ...], allowzero: int) -> None:
    """A zero keeps the size that stands there."""
    agrees("Reshape", reals(2, 3, 4), whole(*sizes), allowzero=allowzero)


def test_reshape_to_nothing() -> None:
    agrees("Reshape", np.zeros((0, 3), np.float32), whole(3, 0), allowzero=1)


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1, -3])
def test_flatten(axis: int) -> None:
    agrees("Flatten", reals(2, 3, 4), axis=axis)


def test_axes_are_added_taken_and_turned() -> None:
    x = reals(1, 3, 1, 4)
    agrees("Unsqueeze", x, whole(0, -1, 3))
    agrees("Unsqueeze", x, version=11, axes=[1, -1])
    agrees("Squeeze", x, whole(0, -2))
    agrees("Squeeze", x)
    agrees("Squeeze", x, version=11, axes=[2])
    agrees("Transpose", x)
    agrees("Transpose", x, perm=[3, 0, 2, 1])
    agrees("Expand", x, whole(2, 1, 1, 5, 1))
    agrees("Tile", x, whole(2, 1, 3, 2))
    agrees("Concat", x, x, x, axis=-2)


@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps"),
    [
        ([1], [3], [0], [1]),
        ([-3], [-1], [-1], None),
        ([0, 1], [99, -1], [1, 0], [2, 1]),
        ([-1], [-99], [1], [-1]),  # all of it backwards
        ([3], [0], [1], [-2]),  # 3, 1
        ([99], [-5], [1], [-2]),  # from the last one; -5 is the first, which is left out
        ([2], [2], [0], None),  # nothing
        ([3], [1], [0], None),  # nothing either
        ([1, 2], [3, 4], None, None),
    ],
)
def test_slices(starts: list[int], ends: list[int], axes: list[int] | None, steps: list[int] | None) -> None:
    optional = [None if value is None else whole(*value) for value in (axes, steps)]
    agrees("Slice", reals(4, 5), whole(*starts), whole(*ends), *optional)


def test_slices_of_old_versions() -> None:
    agrees("Slice", reals(4, 5), version=9, starts=[1, -2], ends=[3, 99], axes=[0, 1])


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize("axes", [None, (1,), (-1, 0)])
def test_pads(mode: str, axes: tuple[int, ...] | None) -> None:
    count = 2 * (2 if axes is None else len(axes))
    pads = whole(*(2, 1, 0, 2)[:count])
    value = np.array(3.5, np.float32) if mode == "constant" else None
    agrees("Pad", reals(3, 4), pads, value, None if axes is None else whole(*axes), mode=mode)


def test_pads_that_cut() -> None:
    agrees("Pad", reals(4, 5), whole(-1, 2, 1, -2))
    agrees("Pad", reals(4, 5), version=2, pads=[0, 1, 2, 0], mode="constant", value=1.5)


def test_splits() -> None:
    x = reals(7, 4)
    agrees("Split", x, whole(3, 0, 4), outputs=3, axis=-2)
    agrees("Split", x, outputs=3, num_outputs=3)  # 3, 3 and the rest: 1
    agrees("Split", x, version=11, outputs=2, axis=1, split=[1, 3])
    agrees("Split", x, version=13, outputs=2, axis=1)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_becomes_space(mode: str) -> None:
    agrees("DepthToSpace", reals(2, 12, 2, 3), blocksize=2, mode=mode)


def test_space_becomes_depth_and_triangles() -> None:
    agrees("SpaceToDepth", reals(2, 3, 4, 6), blocksize=2)
    for upper in (0, 1):
        for k in (-1, 0, 2):
            agrees("Trilu", reals(2, 3, 4), np.array(k, np.int64), upper=upper)


# --- resizing -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "placing", "scales"),
    [
        ("nearest", "asymmetric", (1, 1, 2, 1.5)),
        ("nearest", "asymmetric", (1, 1, 0.5, 0.7)),
        ("nearest", "half_pixel", (1, 1, 2, 3)),
        ("linear", "half_pixel", (1, 1, 2, 1.5)),
        ("linear", "half_pixel", (1, 1, 0.5, 0.5)),
        ("linear", "align_corners", (1, 1, 2, 1.5)),
        ("cubic", "half_pixel", (1, 1, 2, 1.5)),
    ],
)
def test_resizing_by_factors(mode: str, placing: str, scales: tuple[float, ...]) -> None:
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": placing}
    if mode == "nearest":
        attributes["nearest_mode"] = "floor" if placing == "asymmetric" else "round_prefer_floor"
    if mode == "cubic":
        attributes["cubic_coeff_a"] = -0.75
    agrees("Resize", reals(1, 2, 6, 6), None, np.array(scales, np.float32), **attributes)


def test_resizing_to_sizes() -> None:
    for mode, sizes in (("linear", (1, 2, 9, 4)), ("cubic", (1, 2, 12, 5))):
        agrees("Resize", reals(1, 2, 6, 6), None, None, whole(*sizes), mode=mode)


@pytest.mark.parametrize(
    "attributes",
    [
        {"mode": "nearest", "coordinate_transformation_mode": "half_pixel", "nearest_mode": "ceil"},
        {"mode": "linear", "coordinate_transformation_mode": "asymmetric"},
        {"mode": "linear", "antialias": 1},
        {"mode": "linear", "keep_aspect_ratio_policy": "not_larger"},
    ],
)
def test_resizing_in_ways_that_torch_has_not_is_refused(attributes: dict[str, Any]) -> None:
    inputs = (reals(1, 1, 6, 6), None, None, whole(1, 1, 9, 9))
    model = node_model("Resize", inputs, 21, **attributes)
    with pytest.raises(BadInput, match="resizing"):
        by_us(model, {"x0": inputs[0], "x3": inputs[3]}, "y0")  # type: ignore[dict-item]


# --- indices --------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather(axis: int) -> None:
    """By a table of indices, by one, and from the end."""
    x = reals(4, 3, 5)
    agrees("Gather", x, np.array([[0, 2], [-1, 1]]), axis=axis)
    agrees("Gather", x, np.array(-2), axis=axis)
    agrees("GatherElements", x, np.random.default_rng(0).integers(-3, 3, (4, 3, 5)), axis=axis)


def test_words_are_looked_up_from_the_end_too() -> None:
    agrees("Gather", reals(6, 4), np.array([[0, 5], [2, 1]]))
    agrees("Gather", reals(6, 4), np.array([[0, -1], [2, -6]]))


@pytest.mark.parametrize(("batch_dims", "shape"), [(0, (2, 2)), (0, (3, 1)), (1, (2, 4, 1)), (2, (2, 3, 1))])
def test_gather_by_several_indices(batch_dims: int, shape: tuple[int, ...]) -> None:
    indices = np.random.default_rng(0).integers(-2, 2, shape)
    agrees("GatherND", reals(2, 3, 4), indices, batch_dims=batch_dims)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scatter_elements(reduction: str) -> None:
    """One row meets itself twice, but for plain writing, where the standard leaves the order open."""
    indices = np.array([[0, -1, 1]] if reduction == "none" else [[0, -1, 0]])
    agrees(
        "ScatterElements", reals(3, 4), indices, reals(1, 3, seed=1), axis=-1, reduction=reduction, version=18
    )


def test_scatter_by_several_indices() -> None:
    x, rows = reals(4, 3), np.array([[1], [-1]])
    agrees("ScatterND", x, rows, reals(2, 3, seed=1))
    agrees("ScatterND", x, np.array([[1], [1]]), reals(2, 3, seed=1), reduction="add")
    model = node_model("ScatterND", (x, rows, reals(2, 3)), 18, reduction="mul")
    with pytest.raises(BadInput, match="scattering with reduction 'mul'"):
        by_us(model, {"x0": x, "x1": rows, "x2": reals(2, 3)}, "y0")


def test_the_largest_and_the_least() -> None:
    x = different(3, 5)
    for axis, count in ((0, 2), (1, 4), (-1, 1)):
        for largest in (0, 1):
            agrees("TopK", x, whole(count), outputs=2, axis=axis, largest=largest)
    agrees("TopK", x, version=1, outputs=2, k=2, axis=1)


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_running_sums(exclusive: int, reverse: int) -> None:
    for axis in (0, -1):
        agrees("CumSum", reals(3, 4), np.array(axis), exclusive=exclusive, reverse=reverse)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_hot(axis: int) -> None:
    """Of 4 places; -1 is the last, 4 is none."""
    agrees("OneHot", np.array([[0, -1, 4], [3, -4, 1]]), whole(4), np.array([-1, 5], np.float32), axis=axis)


# --- element by element ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "op", ["Add", "Sub", "Mul", "Div", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"]
)
@pytest.mark.parametrize(
    ("left", "right"), [((3, 1), (4,)), ((), (2, 3)), ((2, 1, 4), (3, 1)), ((1,), (1, 1))]
)
def test_two_operands_broadcast(op: str, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    agrees(op, np.asarray(reals(*left)), np.asarray(reals(*right, seed=1)))


def test_whole_numbers_divide_toward_zero() -> None:
    left, right = whole(7, -7, 7, -7), whole(2, 2, -2, -2)
    assert agrees("Div", left, right)[0].tolist() == [3, -3, -3, 3]


def test_the_rest_has_the_sign_of_the_divisor_or_of_the_dividend() -> None:
    left, right = whole(7, -7, 7, -7), whole(3, 3, -3, -3)
    assert agrees("Mod", left, right)[0].tolist() == [1, 2, -2, -1]
    assert agrees("Mod", left, right, fmod=1)[0].tolist() == [1, -1, 1, -1]
    agrees("Mod", left.astype(np.float32) / 2, right.astype(np.float32), fmod=1)


def test_powers_keep_the_type_of_their_base() -> None:
    assert agrees("Pow", whole(2, 3), np.array([2.0, 3.0], np.float32))[0].dtype == np.int64
    agrees("Pow", positive(3), np.array(2, np.int64))
    agrees("Pow", positive(2, 3), reals(3))


def test_several_operands() -> None:
    for op in ("Max", "Min", "Sum", "Mean"):
        agrees(op, reals(3, 1), reals(4, seed=1), np.asarray(reals(seed=2)))
        agrees(op, reals(3))


def test_clips_with_one_limit_or_two() -> None:
    x, low, high = reals(3, 4), np.array(-0.5, np.float32), np.array(0.25, np.float32)
    agrees("Clip", x, low, high)
    agrees("Clip", x, None, high)
    agrees("Clip", x, low)
    agrees("Clip", x, version=6, min=-0.5, max=0.25)
    assert (agrees("Clip", x, high, low)[0] == low).all(), "the upper limit wins where they cross"


def test_choices_broadcast() -> None:
    agrees("Where", np.array([[True], [False]]), reals(3), reals(2, 1, seed=1))
    agrees("PRelu", reals(2, 3, 4), reals(3, 1, seed=1))


def test_numbers_between_two_go_to_the_even_one() -> None:
    halves = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 2.4], np.float32)
    assert agrees("Round", halves)[0].tolist() == [-2, -2, 0, 0, 2, 2, 2]


def test_casts_cut_toward_zero() -> None:
    values = np.array([-2.7, -0.5, 0.0, 0.9, 3.2], np.float32)
    assert agrees("Cast", values, to=7)[0].tolist() == [-2, 0, 0, 0, 3]
    assert agrees("Cast", values, to=9)[0].tolist() == [True, True, False, True, True]
    agrees("CastLike", whole(1, 2), reals(1))


def test_infinities() -> None:
    values = np.array([np.inf, -np.inf, np.nan, 1], np.float32)
    for positive_, negative in ((0, 0), (0, 1), (1, 0), (1, 1)):
        agrees("IsInf", values, detect_positive=positive_, detect_negative=negative)
    agrees("IsNaN", values)


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("LeakyRelu", {"alpha": 0.3}),
        ("Elu", {"alpha": 0.5}),
        ("Celu", {"alpha": 0.5}),
        ("Selu", {"alpha": 1.2, "gamma": 0.9}),
        ("Selu", {}),
        ("HardSigmoid", {"alpha": 0.4, "beta": 0.3}),
        ("HardSigmoid", {}),
        ("ThresholdedRelu", {"alpha": 0.4}),
        ("Gelu", {}),
        ("Gelu", {"approximate": "tanh"}),
        ("HardSwish", {}),
        ("Softplus", {}),
        ("Softsign", {}),
        ("Mish", {}),
        ("Erf", {}),
        ("Sign", {}),
    ],
)
def test_activations(op: str, attributes: dict[str, Any]) -> None:
    agrees(op, np.linspace(-4, 4, 33, dtype=np.float32), **attributes)


# --- attention ------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("kv_heads", [2, 4])
def test_attention_of_shared_heads(causal: int, kv_heads: int) -> None:
    """Four heads of 8 for 5 tokens, whose keys and values may be shared by two."""
    q, k, v = reals(2, 4, 5, 8), reals(2, kv_heads, 5, 8, seed=1), reals(2, kv_heads, 5, 8, seed=2)
    agrees("Attention", q, k, v, version=23, is_causal=causal, scale=0.3)


def test_attention_of_flat_heads_with_a_mask() -> None:
    q, k, v = reals(2, 5, 16), reals(2, 6, 16, seed=1), reals(2, 6, 16, seed=2)
    numbers = {"q_num_heads": 4, "kv_num_heads": 4}
    agrees("Attention", q, k, v, version=23, **numbers)
    agrees("Attention", q, k, v, reals(5, 6, seed=3), version=23, **numbers)
    agrees("Attention", q, k, v, reals(5, 6, seed=3) > -1, version=23, **numbers)
