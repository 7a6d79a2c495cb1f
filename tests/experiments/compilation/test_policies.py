"""Policies decide on plain records: no torch here."""

from experiments.compilation.interface import Graph, GraphNode, Ref, violations
from experiments.compilation.policies.constant_folding import ConstantFolding
from experiments.compilation.policies.cse import Cse
from experiments.compilation.policies.dce import Dce
from experiments.compilation.policies.fuse_conv_bn import BATCH_NORM, FuseConvBn
from tests.experiments.compilation.graphs import by_hand, graph, node, targets, took


def test_equal_subexpressions_are_found_through_their_arguments() -> None:
    # a+b and d+e are equal because d is a again and e is b again.
    of = graph(
        node("a", "aten.sin.default", "x"),
        node("b", "aten.cos.default", "x"),
        node("c", "aten.add.Tensor", "a", "b"),
        node("d", "aten.sin.default", "x"),
        node("e", "aten.cos.default", "x"),
        node("f", "aten.add.Tensor", "e", "d"),
        reads=("c", "f"),
    )
    found = by_hand(Cse(), of)
    assert took(found) == [("d",), ("e",), ("f",)]
    assert targets(found.graph) == ["aten.sin.default", "aten.cos.default", "aten.add.Tensor"]
    assert found.graph.output.refs == (Ref("c"), Ref("c"))
    assert violations(found.graph, of) == []


def test_two_random_draws_stay_two() -> None:
    first = node("r", "aten.rand_like.default", "x", random=True)
    second = node("s", "aten.rand_like.default", "x", random=True)
    of = graph(first, second, node("t", "aten.add.Tensor", "r", "s"), reads=("t",))
    found = by_hand(Cse(), of)
    assert found.graph == of
    assert found.refused == {"r": "draws random numbers", "s": "draws random numbers"}


def test_a_mutation_between_two_equal_ops_keeps_them_apart() -> None:
    of = graph(
        node("a", "aten.sin.default", "x"),
        node("m", "aten.add_.Tensor", "x", mutates=True),
        node("b", "aten.sin.default", "x"),
        node("c", "aten.add.Tensor", "a", "b"),
        reads=("c",),
    )
    assert by_hand(Cse(), of).graph == of


def test_a_dead_chain_goes_and_effects_and_draws_stay() -> None:
    of = graph(
        node("a", "aten.sin.default", "x"),
        node("b", "aten.sin.default", "a"),
        node("c", "aten.sin.default", "b"),
        node("draw", "aten.rand_like.default", "x", random=True),
        node("write", "aten.add_.Tensor", "x", mutates=True),
        node("check", "aten._assert_async.default", "x", effect=True),
        node("kept", "aten.cos.default", "x"),
        reads=("kept",),
    )
    assert took(by_hand(Dce(), of)) == [("a",), ("b",), ("c",)]


def test_a_constant_is_folded_unless_it_would_be_huge() -> None:
    of = graph(
        node("w", "-weight"),
        node("small", "aten.full.default"),
        node("next", "aten.add.Tensor", "small", "w"),
        node("huge", "aten.ones.default", size=10**9),
        node("uses", "aten.mul.Tensor", "x", "huge"),
        reads=("uses", "next"),
    )
    found = by_hand(ConstantFolding(), of)
    assert sorted(took(found)) == [("next",), ("small",)]
    assert targets(found.graph) == ["aten.ones.default", "aten.mul.Tensor"]
    assert found.refused == {"huge": "would keep 4000000000 bytes"}
    assert took(by_hand(ConstantFolding(freeze=False), of)) == [("small",)]
    assert took(by_hand(ConstantFolding(training=True), of)) == [("small",)]


def conv_bn(shared_weight: bool = False, second_reader: bool = False, norm: str = BATCH_NORM) -> Graph:
    constants = [node(name, f"-{name}") for name in ("w", "g", "b", "m", "v")]
    bn = node("bn", norm, "conv", "g", "b", "m", "v")
    bn = GraphNode(**{**vars(bn), "arguments": (*bn.arguments, 0.1, 1e-5)})
    ops = [node("conv", "aten.conv2d.default", "x", "w"), bn]
    if shared_weight:
        ops.append(node("other", "aten.conv2d.default", "bn", "w"))
    if second_reader:
        ops.append(node("again", "aten.relu.default", "conv"))
    return graph(*constants, *ops, reads=("bn", ops[-1].name))


def test_a_batch_norm_is_folded_only_where_that_is_right() -> None:
    def refused(of: Graph) -> dict[str, str]:
        found = by_hand(FuseConvBn(), of)
        assert found.graph == of
        return dict(found.refused)

    assert refused(conv_bn(shared_weight=True)) == {"bn": "the weight is shared with another op"}
    assert refused(conv_bn(second_reader=True)) == {"bn": "the convolution's result is read elsewhere too"}
    training = "aten._native_batch_norm_legit_functional.default"
    assert refused(conv_bn(norm=training)) == {"bn": "uses the statistics of the batch"}
