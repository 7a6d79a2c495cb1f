"""Policies decide on plain records: no torch here."""

from experiments.compilation.interface import Graph, Node, violations
from experiments.compilation.policies.constant_folding import ConstantFolding
from experiments.compilation.policies.cse import Cse
from experiments.compilation.policies.dce import Dce
from experiments.compilation.policies.fuse_conv_bn import BATCH_NORM, FuseConvBn


def node(name: str, target: str, *inputs: str, kind: str = "op", size: int = 4, **flags: bool) -> Node:
    arguments = "(" + ", ".join("%" + i for i in inputs) + ("," if len(inputs) == 1 else "") + ")"
    random, mutates = flags.get("random", False), flags.get("mutates", False)
    return Node(name, kind, target, inputs, arguments, (1,), "float32", size, random, mutates)


def graph(*nodes: Node) -> Graph:
    x = node("x", "x", kind="input")
    return Graph((x, *nodes))


def result(*inputs: str) -> Node:
    return node("output", "output", *inputs, kind="output")


def groups(policy: Cse | Dce | ConstantFolding | FuseConvBn, of: Graph) -> tuple[tuple[str, ...], ...]:
    recipe = policy.recipe(of)
    assert violations(recipe, of) == []
    return recipe.passes[0].groups


def test_equal_subexpressions_are_found_through_their_arguments() -> None:
    # a+b and d+e are equal because d is a again and e is b again.
    of = graph(
        node("a", "aten.sin.default", "x"),
        node("b", "aten.cos.default", "x"),
        node("c", "aten.add.Tensor", "a", "b"),
        node("d", "aten.sin.default", "x"),
        node("e", "aten.cos.default", "x"),
        node("f", "aten.add.Tensor", "e", "d"),
        result("c", "f"),
    )
    assert groups(Cse(), of) == (("a", "d"), ("b", "e"), ("c", "f"))


def test_two_random_draws_stay_two() -> None:
    first = node("r", "aten.rand_like.default", "x", random=True)
    second = node("s", "aten.rand_like.default", "x", random=True)
    of = graph(first, second, node("t", "aten.add.Tensor", "r", "s"), result("t"))
    assert groups(Cse(), of) == ()
    assert Cse().recipe(of).passes[0].refused == {"r": "draws random numbers", "s": "draws random numbers"}


def test_a_mutation_between_two_equal_ops_keeps_them_apart() -> None:
    of = graph(
        node("a", "aten.sin.default", "x"),
        node("m", "aten.add_.Tensor", "x", mutates=True),
        node("b", "aten.sin.default", "x"),
        node("c", "aten.add.Tensor", "a", "b"),
        result("c"),
    )
    assert groups(Cse(), of) == ()


def test_a_dead_chain_goes_and_effects_and_draws_stay() -> None:
    of = graph(
        node("a", "aten.sin.default", "x"),
        node("b", "aten.sin.default", "a"),
        node("c", "aten.sin.default", "b"),
        node("draw", "aten.rand_like.default", "x", random=True),
        node("write", "aten.add_.Tensor", "x", mutates=True),
        node("kept", "aten.cos.default", "x"),
        result("kept"),
    )
    assert groups(Dce(), of) == (("a",), ("b",), ("c",))


def test_a_constant_is_folded_unless_it_would_be_huge() -> None:
    of = graph(
        node("w", "weight", kind="constant"),
        node("small", "aten.full.default"),
        node("next", "aten.add.Tensor", "small", "w"),
        node("huge", "aten.ones.default", size=10**9),
        node("uses", "aten.mul.Tensor", "x", "huge"),
        result("uses", "next"),
    )
    assert groups(ConstantFolding(), of) == (("small",), ("next",))
    assert groups(ConstantFolding(freeze=False), of) == (("small",),)
    assert ConstantFolding().recipe(of).passes[0].refused == {"huge": "would keep 1000000000 bytes"}


def conv_bn(shared_weight: bool = False, second_reader: bool = False) -> Graph:
    constants = [node(name, name, kind="constant") for name in ("w", "g", "b", "m", "v")]
    ops = [
        node("conv", "aten.conv2d.default", "x", "w"),
        node("bn", BATCH_NORM, "conv", "g", "b", "m", "v"),
        node("first", "getitem", "bn"),
    ]
    if shared_weight:
        ops.append(node("other", "aten.conv2d.default", "first", "w"))
    if second_reader:
        ops.append(node("again", "aten.relu.default", "conv"))
    return Graph((node("x", "x", kind="input"), *constants, *ops, result("first")))


def test_a_batch_norm_is_folded_only_where_that_is_right() -> None:
    assert groups(FuseConvBn(), conv_bn()) == (("conv", "bn"),)
    shared, read_twice = conv_bn(shared_weight=True), conv_bn(second_reader=True)
    assert FuseConvBn().recipe(shared).passes[0].refused == {"bn": "the weight is shared with another op"}
    assert FuseConvBn().recipe(read_twice).passes[0].refused == {
        "bn": "the convolution's result is read elsewhere too"
    }
    assert groups(FuseConvBn(), shared) == groups(FuseConvBn(), read_twice) == ()
