"""Which of a graph's operators are tuned, and how often a model calls each."""

from experiments.compilation.interface import CONSTANT, INPUT, OP, OUTPUT, Graph, GraphNode, Ref
from experiments.compilation.live.tuning.model_tasks import contraction_of, heaviest, of_graph, of_list
from experiments.compilation.live.tuning.operators import conv2d, matmul
from experiments.workloads.operator_list import Operator as Listed
from experiments.workloads.operator_list import OperatorList
from tests.experiments.compilation.graphs import kind

KINDS, DTYPES = ("matmul", "conv2d"), ("float32",)


def op(
    name: str, target: str, shape: tuple[int, ...], *arguments: object, dtype: str = "float32"
) -> GraphNode:
    refs = tuple(Ref(value) if isinstance(value, str) else value for value in arguments)
    return GraphNode(name, OP, target, refs, outputs=(kind(*shape, dtype=dtype),))  # type: ignore[arg-type]


def held(name: str, *shape: int) -> GraphNode:
    return GraphNode(name, CONSTANT, name, outputs=(kind(*shape),))


def graph(*nodes: GraphNode) -> Graph:
    x = GraphNode("x", INPUT, "x", outputs=(kind(2, 8, 10, 10),))
    return Graph((x, *nodes, GraphNode("output", OUTPUT, "output", (Ref(nodes[-1].name),))))


def test_equal_shapes_are_one_task_and_the_heaviest_in_all_comes_first() -> None:
    whole = graph(
        held("w", 8, 8, 3, 3),
        held("big", 16, 8, 3, 3),
        op("a", "aten.conv2d.default", (2, 8, 10, 10), "x", "w", None, (1, 1), (1, 1)),
        op("b", "aten.conv2d.default", (2, 8, 10, 10), "a", "w", None, (1, 1), (1, 1)),
        op("c", "aten.conv2d.default", (2, 8, 10, 10), "b", "w", None, (1, 1), (1, 1)),
        op("d", "aten.conv2d.default", (2, 16, 8, 8), "c", "big"),
    )
    found = heaviest(of_graph(whole), 9, KINDS, DTYPES)
    assert [(one.title, one.calls) for one in found] == [
        ("conv2d n 2 y 10 x 10 f 8 c 8 r 3 q 3", 3),  # 3 x 100 x 8 columns of work against 64 x 16
        ("conv2d n 2 y 8 x 8 f 16 c 8 r 3 q 3", 1),
    ]


def test_products_by_every_name_and_what_is_left_out() -> None:
    nodes = (
        held("left", 4, 6),
        held("right", 6, 5),
        held("weight", 5, 6),
        held("bias", 5),
        held("batched", 3, 4, 6),
        held("other", 3, 6, 5),
        held("kernel", 8, 4, 3, 3),
        op("mm", "aten.mm.default", (4, 5), "left", "right"),
        op("addmm", "aten.addmm.default", (4, 5), "bias", "left", "right"),
        op("linear", "aten.linear.default", (3, 4, 5), "batched", "weight", "bias"),
        op("bmm", "aten.bmm.default", (3, 4, 5), "batched", "other"),
        op("wide", "aten.matmul.default", (3, 4, 5), "batched", "right"),
        op("grouped", "aten.conv2d.default", (2, 8, 8, 8), "x", "kernel", None, (1, 1), (0, 0), (1, 1), 2),
        op("relu", "aten.relu.default", (4, 5), "mm"),
    )
    whole = graph(*nodes)
    sizes = {
        node.name: nest.axes if (nest := contraction_of(node, whole)) else None
        for node in nodes
        if node.kind == OP
    }
    flat, tall = (("m", 4), ("n", 5), ("k", 6)), (("m", 12), ("n", 5), ("k", 6))
    assert sizes == {
        "mm": flat,
        "addmm": flat,
        "linear": tall,
        "wide": tall,
        "bmm": (("b", 3), *flat),
        "grouped": None,
        "relu": None,
    }


def test_operators_of_a_list_are_the_same_loop_nests() -> None:
    listed = OperatorList(
        "four",
        (
            Listed("product", "matmul", {"m": (4,), "n": (5,), "k": (6,)}),
            Listed("many", "matmul", {"m": (4,), "n": (5,), "k": (6,), "batch": (3, 2)}),
            Listed(
                "conv", "conv", {"x": (2, 8, 10, 10), "filters": (8,), "kernel": (3, 3), "padding": (1, 1)}
            ),
            Listed("deep", "conv", {"x": (2, 8, 10, 10), "filters": (8,), "kernel": (3, 3), "groups": (8,)}),
            Listed("sum", "reduce", {"shape": (4, 5), "over": (1,)}),
        ),
    )
    found = [nest for nest, _ in of_list(listed)]
    assert found[0] == matmul(4, 5, 6)
    assert found[1] == matmul(4, 5, 6, batch=6)
    assert found[2] == conv2d((2, 8, 10, 10), (8, 8, 3, 3), (1, 1), (1, 1))
    assert found[3:] == [None, None]
