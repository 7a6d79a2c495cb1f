"""Shared terms: what is one term, what is simplified while made, and the ATen calls that compute them, run
by torch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from experiments.compilation.interface import IllTyped, Ref, map_refs
from experiments.compilation.live.types import Inference
from experiments.compilation.planning.substitutions.terms import CHANNELS, FEATURES, RESULT, Terms
from tests.experiments.compilation.graphs import kind

pytestmark = pytest.mark.torch


class Played:
    """Terms against numpy: every leaf has random whole numbers, every term can be carried out by its ATen
    calls.
    """

    def __init__(self) -> None:
        self.terms = Terms(Inference())
        self.values: dict[str, torch.Tensor] = {}

    def leaf(self, name: str, *shape: int, free: bool = False) -> int:
        random = np.random.default_rng(len(self.values))
        number = self.terms.leaf(name, (kind(*shape),), free)
        self.values[name] = torch.tensor(random.integers(-4, 5, shape).astype(np.float32))
        return number

    def make(self, what: str, data: Any, *inputs: int) -> int:
        return self.terms.make(what, data, inputs)

    def run(self, number: int) -> Any:
        term = self.terms[number]
        if term.kind == "leaf":
            return self.values[term.data]
        if term.kind == RESULT:
            return self.run(term.inputs[0])[term.data]
        call = self.terms.call(term.kind, term.data, term.inputs)
        _, op, overload = call.target.split(".")
        arguments = map_refs(call.arguments, self._read)
        return getattr(getattr(torch.ops.aten, op), overload)(*arguments, **dict(call.keywords))

    def _read(self, ref: Ref) -> torch.Tensor:
        found = self.run(int(ref.node))
        result = found[ref.output] if isinstance(found, list | tuple) else found
        assert isinstance(result, torch.Tensor)
        return result


def test_equal_operators_on_equal_inputs_are_one_term() -> None:
    """An addition in either order too, a product not."""
    of = Played()
    a, b = of.leaf("a", 3, 3), of.leaf("b", 3, 3)
    assert of.make("ew_add", None, a, b) == of.make("ew_add", None, b, a)
    assert of.make("matmul", None, a, b) == of.make("matmul", None, a, b) != of.make("matmul", None, b, a)
    assert of.make("relu", None, a) != of.make("relu", None, b)


def test_two_transposes_are_none() -> None:
    of = Played()
    a = of.leaf("a", 2, 3, 4)
    turned = of.make("transpose", None, a)
    assert of.terms.shape(turned) == (2, 4, 3) and of.make("transpose", None, turned) == a


def test_what_was_just_joined_comes_apart_as_it_was() -> None:
    of = Played()
    a, b = of.leaf("a", 2, 3), of.leaf("b", 2, 5)
    joined = of.make("concat", -1, a, b)
    apart = of.make("split", (-1, (3, 5)), joined)
    assert [of.make(RESULT, place, apart) for place in (0, 1)] == [a, b]
    other = of.make("split", (-1, (5, 3)), joined)
    first = of.make(RESULT, 0, other)
    assert of.terms[first].kind == RESULT, "cut at another place it is something new"
    assert torch.equal(of.run(first), torch.cat([of.values["a"], of.values["b"]], 1)[:, :5])


def test_what_was_just_split_is_whole_again_in_its_order_alone() -> None:
    of = Played()
    whole = of.leaf("x", 2, 8)
    apart = of.make("split", (-1, (3, 5)), whole)
    one, two = (of.make(RESULT, place, apart) for place in (0, 1))
    assert of.make("concat", -1, one, two) == whole
    turned = of.make("concat", -1, two, one)
    assert turned != whole
    assert torch.equal(of.run(turned), torch.cat([of.values["x"][:, 3:], of.values["x"][:, :3]], 1))


def test_a_bias_of_joined_columns_is_the_joined_bias() -> None:
    """Biases of 3 and 5 along the features of two products: one of 8. Joined along the rows they are
    copies.
    """
    of = Played()
    a, b = of.leaf("a", 3), of.leaf("b", 5)
    spread = [of.terms.broadcast(v, FEATURES, (4, n)) for v, n in ((a, 3), (b, 5))]
    joined = of.make("concat", -1, *spread)
    assert of.terms[joined].kind == "broadcast" and of.terms.shape(joined) == (4, 8)
    bias = of.terms.bias(joined)
    assert of.terms.shape(bias) == (8,) and of.terms[bias].kind == "concat"
    assert torch.equal(of.run(joined), torch.cat([of.values["a"], of.values["b"]]).expand(4, 8))
    same = of.make("concat", -2, spread[0], spread[0])
    assert of.terms.bias(same) == a and of.terms.shape(same) == (8, 3)
    other = of.terms.broadcast(of.leaf("c", 3), FEATURES, (4, 3))
    assert of.terms[of.make("concat", -2, spread[0], other)].kind == "concat", "two biases are not one"


def test_a_bias_of_channels_stands_third_from_the_end() -> None:
    of = Played()
    spread = of.terms.broadcast(of.leaf("a", 3), CHANNELS, (2, 3, 4, 5))
    assert of.terms.shape(spread) == (2, 3, 4, 5) and of.terms[of.terms.bias(spread)].origin == "a"
    assert torch.equal(of.run(spread), of.values["a"][:, None, None].expand(2, 3, 4, 5))


def test_joined_weights_turn_with_their_parts() -> None:
    """(W1 W2)' is W1' over W2'; of data it stays as it is, for there nothing is computed once."""
    of = Played()
    weights = [of.leaf(name, 2, 3, free=True) for name in ("v", "w")]
    turned = of.make("transpose", None, of.make("concat", -1, *weights))
    assert (of.terms[turned].kind, of.terms[turned].data) == ("concat", -2)
    assert torch.equal(of.run(turned), torch.cat([of.values["v"], of.values["w"]], 1).T)
    data = [of.leaf(name, 2, 3) for name in ("x", "y")]
    assert of.terms[of.make("transpose", None, of.make("concat", -1, *data))].kind == "transpose"


def test_a_product_with_a_weight_is_a_linear_layer() -> None:
    """The weight's transpose is free, so it is computed once; data by data stays a product."""
    of = Played()
    x, w = of.leaf("x", 4, 3), of.leaf("w", 3, 5, free=True)
    product = of.make("matmul", None, x, w)
    call = of.terms.call("matmul", None, (x, w))
    assert call.target == "aten.linear.default"
    assert torch.equal(of.run(product), of.values["x"] @ of.values["w"])
    y = of.leaf("y", 3, 5)
    assert of.terms.call("matmul", None, (x, y)).target == "aten.mm.default"
    batch = [of.leaf("p", 2, 4, 3), of.leaf("q", 2, 3, 5)]
    assert of.terms.call("matmul", None, tuple(batch)).target == "aten.bmm.default"
    mixed = of.make("matmul", None, batch[0], y)
    assert torch.equal(of.run(mixed), of.values["p"] @ of.values["y"])


def test_what_depends_on_weights_alone_is_free() -> None:
    of = Played()
    w, x = of.leaf("w", 3, 3, free=True), of.leaf("x", 3, 3)
    assert of.terms[of.make("relu", None, w)].free
    assert not of.terms[of.make("ew_add", None, w, x)].free
    assert of.terms[of.make("ew_add", None, w, x)].depth == 1 + of.terms[x].depth


@pytest.mark.parametrize(
    ("what", "data", "shapes"),
    [
        ("ew_add", None, ((3, 4), (4,))),
        ("ew_mul", None, ((3, 4), (3, 1))),
        ("matmul", None, ((3, 4), (4,))),
        ("matmul", None, ((2, 3, 4), (3, 4, 5))),
        ("matmul", None, ((3, 4), (3, 4))),
        ("concat", -3, ((3, 4), (3, 4))),
    ],
)
def test_what_aten_would_broadcast_is_no_operator_of_the_algebra(
    what: str, data: Any, shapes: tuple[tuple[int, ...], ...]
) -> None:
    of = Played()
    inputs = [of.leaf(f"x{number}", *shape) for number, shape in enumerate(shapes)]
    with pytest.raises(IllTyped):
        of.make(what, data, *inputs)


def test_operands_of_two_types_are_refused() -> None:
    of = Played()
    half = of.terms.leaf("h", (kind(3, 3, dtype="float16"),), False)
    with pytest.raises(IllTyped, match="ew_add of float"):
        of.make("ew_add", None, of.leaf("x", 3, 3), half)
