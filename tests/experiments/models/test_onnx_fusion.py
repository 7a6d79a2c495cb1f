"""Formulas that an exporter wrote out: which of them are put together again, with results worked by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from experiments.models.exported import Call, Now  # noqa: E402
from experiments.models.onnx_fusion import fuse  # noqa: E402
from experiments.workloads.program import Stored, Value, Weight  # noqa: E402

pytestmark = pytest.mark.torch
#: Queries, keys and values: one sample, one head, two tokens of one number.
SHAPES = {"q": (1, 1, 2, 1), "k": (1, 1, 2, 1), "kt": (1, 1, 1, 2), "v": (1, 1, 2, 1)}
SHAPES |= dict.fromkeys(("s", "scaled", "hidden"), (1, 1, 2, 2))


def call(op: str, result: str, *operands: Any, **attributes: Any) -> Call:
    """A call of an operator; a string is the value of that name."""
    values = tuple(Value(own) if isinstance(own, str) else own for own in operands)
    return Call(print, result, "", (Now(), *values), {}, (result,), op, attributes)


def fused(
    *calls: Call, output: str, constants: dict[str, Weight] | None = None, **shapes: tuple[int, ...]
) -> tuple[Call, ...]:
    return fuse(
        calls, {**SHAPES, "scaled": SHAPES["s"], "hidden": SHAPES["s"], **shapes}, constants or {}, output
    )


def ops(calls: tuple[Call, ...]) -> list[str]:
    return [one.op for one in calls]


def result(of: Call, *tensors: Any) -> Any:
    """What the call makes of numbers in place of its arguments."""
    return of.function(None, *tensors)


# --- activations ----------------------------------------------------------------------------------


def gelu(output: str = "y") -> list[Call]:
    """x / 2 (1 + erf(x / sqrt 2)), the half in front."""
    return [
        call("Mul", "half", "x", 0.5),
        call("Div", "small", "x", math.sqrt(2)),
        call("Erf", "bell", "small"),
        call("Add", "one", "bell", 1.0),
        call("Mul", output, "half", "one"),
    ]


def test_a_gelu_is_known_by_what_it_computes() -> None:
    """At 0 and far to both sides: nothing, nothing, and the number itself."""
    (made,) = fused(*gelu(), output="y")
    assert (made.op, made.arguments, made.outputs) == ("Gelu", (Now(), Value("x")), ("y",))
    assert result(made, torch.tensor([0.0, -40.0, 40.0])).tolist() == [0.0, 0.0, 40.0]


def test_one_spelled_otherwise_is_the_same_one() -> None:
    """(x + x erf(x c)) / 2 with c = 0.70710678, as a cut constant."""
    calls = [
        call("Mul", "small", "x", 0.70710678),
        call("Erf", "bell", "small"),
        call("Mul", "beside", "bell", "x"),
        call("Add", "twice", "x", "beside"),
        call("Div", "y", "twice", 2.0),
    ]
    assert ops(fused(*calls, output="y")) == ["Gelu"]


def test_a_sigmoid_is_a_swish_only_at_the_plain_slope() -> None:
    """x sigmoid(1.702 x) approximates a GELU and is none: it stays as it is written."""
    plain = [call("Sigmoid", "s", "x"), call("Mul", "y", "x", "s")]
    assert ops(fused(*plain, output="y")) == ["Swish"]
    quick = [call("Mul", "t", "x", 1.702), call("Sigmoid", "s", "t"), call("Mul", "y", "x", "s")]
    assert ops(fused(*quick, output="y")) == ["Mul", "Sigmoid", "Mul"]


def test_a_formula_that_is_read_in_its_middle_stays_in_pieces() -> None:
    """Somebody else reads 1 + erf, so the product behind it is not all that there is."""
    calls = [*gelu("whole"), call("Add", "y", "whole", "one")]
    assert ops(fused(*calls, output="y")) == ["Mul", "Div", "Erf", "Add", "Mul", "Add"]


def test_an_activation_of_a_product_reads_the_product() -> None:
    """Sources are asked nearest first: z = a b is a value of its own, of which y is the Swish."""
    calls = [call("Mul", "z", "a", "b"), call("Sigmoid", "s", "z"), call("Mul", "y", "s", "z")]
    first, second = fused(*calls, output="y")
    assert (first.op, second.op, second.arguments) == ("Mul", "Swish", (Now(), Value("z")))


# --- attention ------------------------------------------------------------------------------------

QUERY = torch.ones(1, 1, 2, 1)
#: exp(0) : exp(ln 3) = 1 : 3, so the weights are 1/4 and 3/4, or 1/10 and 9/10 at twice the scores.
KEY = torch.tensor([0.0, math.log(3)]).reshape(1, 1, 1, 2)
VALUE = torch.tensor([0.0, 10.0]).reshape(1, 1, 2, 1)


def attention(*between: Call, scores: str = "s", weights: str = "w", axis: int = -1) -> list[Call]:
    """Both products and the softmax of ``scores``, with what else is done between them."""
    return [
        call("MatMul", "s", "q", "kt"),
        *between,
        call("Softmax", "w", scores, axis=axis),
        call("MatMul", "y", weights, "v"),
    ]


def rows(made: Call, *masks: Any) -> list[float]:
    found: list[float] = result(made, QUERY, KEY, VALUE, *masks).flatten().tolist()
    return found


def test_a_softmax_between_two_products_is_attention() -> None:
    (made,) = fused(*attention(), output="y")
    assert made.op == "Attention" and made.arguments == (Now(), Value("q"), Value("kt"), Value("v"))
    assert rows(made) == pytest.approx([7.5, 7.5])


@pytest.mark.parametrize(
    "scaling",
    [("Mul", "s", 2.0), ("Mul", 2.0, "s"), ("Div", "s", 0.5)],
    ids=["times 2", "2 times", "by a half"],
)
def test_scores_are_scaled_by_a_factor_or_a_divisor(scaling: tuple[Any, ...]) -> None:
    op, *operands = scaling
    (made,) = fused(*attention(call(op, "scaled", *operands), scores="scaled"), output="y")
    assert rows(made) == pytest.approx([9.0, 9.0])


def test_factors_of_queries_and_keys_count_with_that_of_their_product() -> None:
    """1/2 of the queries, 8 of the keys and 1/2 of the scores are a factor of 2."""
    calls = [
        call("Mul", "q2", "q", 0.5),
        call("Mul", "k2", "kt", 8.0),
        call("MatMul", "s", "q2", "k2"),
        call("Div", "scaled", "s", 2.0),
        *attention(scores="scaled")[1:],
    ]
    (made,) = fused(*calls, output="y")
    assert made.arguments[1:3] == (Value("q"), Value("kt"))
    assert rows(made) == pytest.approx([9.0, 9.0])


def triangle(*entries: float, shape: tuple[int, ...] = (1, 1, 2, 2)) -> dict[str, Weight]:
    return {"mask": Weight("float32", shape, np.array(entries, np.float32).tobytes())}


def masked(mask: dict[str, Weight]) -> Call:
    """Attention whose mask stands in front of the scores in their sum."""
    calls = attention(call("Add", "hidden", Stored("mask"), "s"), scores="hidden")
    (made,) = fused(*calls, output="y", constants=mask)
    return made


def test_a_mask_that_hides_later_tokens_is_no_tensor() -> None:
    """The first token sees itself alone."""
    made = masked(triangle(0, -1e9, 0, 0))
    assert len(made.arguments) == 4
    assert rows(made) == pytest.approx([0.0, 7.5])


def test_any_other_mask_is_added() -> None:
    """-5 hides little, and a triangle the other way hides the first token from the second."""
    made = masked(triangle(0, -5, 0, 0))
    assert made.arguments[-1] == Stored("mask")
    other = masked(triangle(0, 0, -1e9, 0))
    assert other.arguments[-1] == Stored("mask")
    mask = torch.tensor([[0.0, 0.0], [-1e9, 0.0]])
    assert rows(other, mask) == pytest.approx([7.5, 10.0])


def test_rows_that_a_mask_hides_altogether_may_be_put_to_0() -> None:
    """Where(IsNaN(w), 0, w): with a 0 it belongs to the attention, with a 1 it does not."""
    guard = [call("IsNaN", "bad", "w"), call("Where", "safe", "bad", Stored("fill"), "w")]
    calls = attention(weights="safe")
    calls[2:2] = guard
    for number, expected in ((0.0, ["Attention"]), (1.0, ["MatMul", "Softmax", "IsNaN", "Where", "MatMul"])):
        fill = {"fill": Weight("float32", (), np.float32(number).tobytes())}
        assert ops(fused(*calls, output="y", constants=fill)) == expected


@pytest.mark.parametrize(
    ("calls", "shapes"),
    [
        (attention(axis=2), {}),
        ([*attention()[:2], call("MatMul", "y", "v", "w")], {}),
        (attention(), {"v": (1, 2, 1)}),
        ([*attention(), call("Add", "z", "y", "w")], {}),
    ],
    ids=["over queries", "values first", "three dimensions", "weights read by others"],
)
def test_what_only_looks_like_attention_stays(calls: list[Call], shapes: dict[str, tuple[int, ...]]) -> None:
    made = fused(*calls, output=calls[-1].outputs[0], **shapes)
    assert ops(made) == [one.op for one in calls]


def test_keys_that_were_turned_with_their_heads_folded_are_read_unturned() -> None:
    """[1, 1, 2, 1] as [1, 2, 1], turned to [1, 1, 2], and back to [1, 1, 1, 2]."""
    calls = [
        call("Reshape", "flat", "k"),
        call("Transpose", "turned", "flat", perm=(0, 2, 1)),
        call("Reshape", "kt", "turned"),
        *attention(),
    ]
    (made,) = fused(*calls, output="y", flat=(1, 2, 1), turned=(1, 1, 2))
    assert made.arguments[2] == Value("k")
    assert result(made, QUERY, KEY.reshape(1, 1, 2, 1), VALUE).flatten().tolist() == pytest.approx([7.5] * 2)
