"""Products, norms, reductions, element-wise operators and attention of ONNX give what onnxruntime gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from tests.experiments.models.one_node import agrees, positive, reals, whole  # noqa: E402

pytestmark = pytest.mark.torch

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


#: The length of each letter's axis.
SIZES = {"b": 2, "i": 3, "j": 4, "k": 5}


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
