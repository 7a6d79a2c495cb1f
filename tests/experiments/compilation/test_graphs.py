"""Graph records and drafts of them: who reads what, what is equal, what a change leaves, by small graphs
drawn by hand.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.compilation.interface import (
    CONSTANT,
    INPUT,
    OP,
    OUTPUT,
    Draft,
    Graph,
    GraphNode,
    IllTyped,
    Ref,
    Signature,
    Symbol,
    TensorType,
    contiguous,
)
from experiments.compilation.interface.graph import map_refs, reachable_from
from experiments.compilation.interface.launches import obstacles, times
from tests.experiments.compilation.graphs import ByHand, graph, kind, node


def diamond() -> Graph:
    """x to a, a to b and c, both to d."""
    return graph(
        node("a", "aten.relu.default", "x"),
        node("b", "aten.exp.default", "a"),
        node("c", "aten.abs.default", "a"),
        node("d", "aten.add.Tensor", "b", "c"),
        reads=("d",),
    )


def names(of: Graph) -> list[str]:
    return [entry.name for entry in of.nodes]


# --- records --------------------------------------------------------------------------------------


def test_types_know_their_bytes_and_order() -> None:
    half = TensorType((2, 3, 4), "bfloat16", (12, 4, 1))
    assert (half.elements, half.bytes, half.contiguous) == (24, 48, True)
    turned = TensorType((3, 2), "float32", (1, 3))
    assert not turned.contiguous and turned.bytes == 24
    assert contiguous(()) == () and contiguous((2, 0, 3)) == (3, 3, 1)


def test_references_are_found_in_whatever_holds_them() -> None:
    """In tuples of tuples and keywords, once for each place; symbols and numbers are none."""
    op = GraphNode(
        "n", OP, "aten.cat.default", ((Ref("a"), (Ref("b"), 2)), Ref("a")), (("out", Ref("c", 1)),)
    )
    assert op.refs == (Ref("a"), Ref("b"), Ref("a"), Ref("c", 1))
    assert op.inputs == ("a", "b", "c")
    assert map_refs(op.arguments, lambda ref: ref.node) == (("a", ("b", 2)), "a")
    assert op.keyword("out") == Ref("c", 1) and op.keyword("dim", 7) == 7


def test_readers_and_users_of_a_diamond() -> None:
    of = diamond()
    assert [user.name for user in of.users["a"]] == ["b", "c"]
    assert [user.name for user in of.readers[Ref("d")]] == ["output"]
    assert reachable_from(of, ["b"]) == {"b", "a", "x"}
    assert of.inputs == (of.nodes[0],) and of.output.name == "output"


def test_what_nothing_anchored_needs_is_dead() -> None:
    of = graph(
        node("a", "aten.relu.default", "x"),
        node("dead", "aten.exp.default", "a"),
        node("noise", "aten.rand.default", random=True),
        node("check", "aten._assert_async.default", "a", effect=True),
        reads=("x",),
    )
    assert of.live == {"x", "a", "noise", "check", "output"}


def test_what_is_written_to_is_no_constant() -> None:
    of = graph(
        node("w", "-w"),
        node("counter", "-counter"),
        node("step", "aten.add_.Tensor", "counter", mutates=True),
        node("both", "aten.add.Tensor", "w", "counter"),
        reads=("both",),
    )
    assert of.written == {"counter"} and of.unwritten_constants == {"w"} and of.mutates


def test_the_caller_may_write_to_what_shares_memory_with_an_output() -> None:
    of = graph(
        node("a", "aten.relu.default", "x"),
        node("v", "aten.view.default", "a", views=True),
        node("t", "aten.t.default", "v", views=True),
        reads=("t",),
    )
    assert of.handed_out == {"t", "v", "a"}, "a view shares with what it views; a itself is new memory"
    assert [op.name for op in of.computing] == ["a"]


def test_equal_graphs_are_one_by_whatever_names() -> None:
    def of(first: str, second: str, target: str = "aten.exp.default") -> Graph:
        return graph(node(first, "aten.relu.default", "x"), node(second, target, first), reads=(second,))

    assert of("a", "b").identity == of("other", "names").identity
    assert of("a", "b").identity != of("a", "b", "aten.abs.default").identity


def test_two_draws_are_never_equal() -> None:
    of = graph(
        node("r1", "aten.rand_like.default", "x", random=True),
        node("r2", "aten.rand_like.default", "x", random=True),
        node("e1", "aten.relu.default", "x"),
        node("e2", "aten.relu.default", "x"),
        reads=("r1", "r2", "e1", "e2"),
    )
    assert of.hashes["r1"] != of.hashes["r2"] and of.hashes["e1"] == of.hashes["e2"]


# --- drafts ---------------------------------------------------------------------------------------


def draft(of: Graph) -> Draft:
    return Draft(of, ByHand().types)


def test_a_replaced_result_takes_with_it_what_only_it_needed() -> None:
    """d = b + c becomes the exponential of a twice: c is read by nobody any more."""
    change = draft(diamond())
    made = change.op("aten.add.Tensor", Ref("b"), Ref("b"))
    change.replace(Ref("d"), made)
    done = change.finish()
    assert names(done) == ["x", "a", "b", made.node, "output"]
    assert done.output.refs == (made,) and change.made == (made.node,)


def test_what_is_made_of_a_result_may_replace_it() -> None:
    """relu(a) in the place of a: b and c read it, and the new op itself still reads a."""
    change = draft(diamond())
    made = change.op("aten.relu.default", Ref("a"))
    change.replace(Ref("a"), made)
    done = change.finish()
    assert done.by_name[made.node].inputs == ("a",)
    assert {user.name for user in done.users[made.node]} == {"b", "c"}
    assert names(done).index(made.node) == names(done).index("a") + 1, "as early as its argument allows"


def test_what_was_dead_before_stays() -> None:
    of = graph(node("a", "aten.relu.default", "x"), node("dead", "aten.exp.default", "a"), reads=("a",))
    change = draft(of)
    change.replace(Ref("a"), change.op("aten.abs.default", Ref("x")))
    assert "dead" in names(change.finish())


def test_a_new_name_is_nobody_elses() -> None:
    of = graph(node("relu_new0", "aten.relu.default", "x"), reads=("relu_new0",))
    made = draft(of).op("aten.relu.default", Ref("x"))
    assert made.node == "relu_new1"


def test_a_node_that_is_read_cannot_be_removed() -> None:
    change = draft(diamond())
    with pytest.raises(AssertionError, match="a is read by"):
        change.remove("a")
    change.rewire("d", Ref("b"), Ref("b"))
    change.remove("c")
    assert names(change.finish()) == ["x", "a", "b", "d", "output"]


def test_a_cycle_is_found() -> None:
    change = draft(diamond())
    change.rewire("a", Ref("d"))
    with pytest.raises(ValueError, match="cycle"):
        change.finish()


class Halving(ByHand):
    """Every op gives half of the rows of its first argument; an odd number is refused."""

    def types(self, target: str, arguments: tuple[Any, ...], keywords: Any) -> Signature:
        first = next(a for a in arguments if isinstance(a, TensorType))
        if first.shape[0] % 2:
            raise IllTyped(f"{first.shape[0]} rows")
        return Signature((kind(first.shape[0] // 2),))


def test_types_below_a_change_are_inferred_again() -> None:
    """8 rows, 4, 2; with one op more in front 4, 2, 1, and with two the last is refused."""
    x = GraphNode("x", INPUT, "x", outputs=(kind(8),))
    a = GraphNode("a", OP, "aten.a.default", (Ref("x"),), outputs=(kind(4),))
    b = GraphNode("b", OP, "aten.b.default", (Ref("a"),), outputs=(kind(2),))
    of = Graph((x, a, b, GraphNode("output", OUTPUT, "output", ((Ref("b"),),))))
    change = Draft(of, Halving().types)
    front = change.op("aten.front.default", Ref("x"))
    change.rewire("a", front)
    done = change.finish()
    assert [done.by_name[name].shape for name in (front.node, "a", "b")] == [(4,), (2,), (1,)]
    change = Draft(of, Halving().types)
    change.rewire("a", change.op("aten.two.default", change.op("aten.one.default", Ref("x"))))
    with pytest.raises(IllTyped, match="1 rows"):
        change.finish()


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), min_size=2, max_size=8), st.data())
def test_a_finished_draft_reads_only_what_stands_before(
    edges: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Ops of two arguments each; a random one is replaced by an op on two results made before it."""
    nodes = []
    for number, (a, b) in enumerate(edges):
        sources = [f"n{i % number}" if number else "x" for i in (a, b)]
        nodes.append(node(f"n{number}", "aten.add.Tensor", *sources))
    of = graph(*nodes, reads=(nodes[-1].name,))
    victim = data.draw(st.integers(0, len(nodes) - 1))
    before = ["x", *(f"n{i}" for i in range(victim))]
    change = draft(of)
    made = change.op("aten.mul.Tensor", *(Ref(data.draw(st.sampled_from(before))) for _ in range(2)))
    change.replace(Ref(f"n{victim}"), made)
    done = change.finish()
    place = {name: number for number, name in enumerate(names(done))}
    assert all(place[source] < place[entry.name] for entry in done.nodes for source in entry.inputs)
    assert done.nodes[-1].kind == OUTPUT and done.nodes[0].kind == INPUT
    lost = set(of.live) - {f"n{victim}"} - set(place)
    assert not any(name in done.live for name in lost)


# --- launches -------------------------------------------------------------------------------------


def test_short_kernels_wait_for_their_launches() -> None:
    """100 kernels of 2 us at 5 us a launch: 500 us, replayed 10 + 200 us; of 8 us each it is the kernels."""
    short, long = times([2e-6] * 100, 5e-6, 1e-5), times([8e-6] * 100, 5e-6, 1e-5)
    assert (short.eager, short.bound) == (pytest.approx(5e-4), "launches")
    assert short.replayed == pytest.approx(2.1e-4) and short.speedup == pytest.approx(50 / 21)
    assert (long.eager, long.bound) == (pytest.approx(8e-4), "kernels")
    assert long.speedup < 1, "a graph's launch is not won back"


def test_what_needs_the_host_or_another_device_cannot_be_captured() -> None:
    def on(name: str) -> tuple[tuple[str, Symbol], ...]:
        return (("device", Symbol("device", name)),)

    nodes = (
        GraphNode("n", OP, "aten.nonzero.default", (Ref("x"),)),
        GraphNode("i", OP, "aten._local_scalar_dense.default", (Ref("x"),)),
        GraphNode("zeros", OP, "aten.zeros.default", ((2,),), on("cpu")),
        GraphNode("mine", OP, "aten.zeros.default", ((2,),), on("cuda:1")),
        GraphNode("w", CONSTANT, "w"),
    )
    found = obstacles(Graph((*nodes, GraphNode("output", OUTPUT, "output", ((),)))), "cuda:0")
    assert found == (
        "n (aten.nonzero.default): the shape of its result depends on data",
        "i (aten._local_scalar_dense.default): the host waits for its result",
        "zeros (aten.zeros.default): runs on or copies to cpu",
    )
