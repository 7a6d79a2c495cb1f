"""Searches against enumeration: all partitions of small graphs, all tiles of small operators."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.oracles.enumeration import enumerate_all, programs
from benchmarks.oracles.examples import EXAMPLES, layer, mlp_block, residual_block
from benchmarks.oracles.partitions import best_partition, partitions
from experiments.compilation.interface.architecture import Architecture
from experiments.compilation.interface.expressions import Expression
from experiments.compilation.interface.tile_graph import TileGraph, TileNode, independent
from experiments.compilation.planning.tiles import operators
from experiments.compilation.planning.tiles.group_tile import evaluate, least_bytes
from experiments.compilation.planning.tiles.propagation import group_of
from experiments.compilation.policies.roller.construction import construct
from experiments.compilation.policies.roller.micro_model import estimate
from experiments.compilation.policies.welder.connection import Welding, launch_order
from experiments.compilation.policies.welder.tile_search import axis_sizes, first_steps, search
from experiments.hardware.specs import resolve

V100 = Architecture(resolve("v100").device)


class TestPartitions:
    @pytest.mark.parametrize(("count", "bell"), [(0, 1), (1, 1), (3, 5), (5, 52), (7, 877)])
    def test_there_are_as_many_as_bell_numbers_say(self, count: int, bell: int) -> None:
        found = list(partitions("abcdefg"[:count]))
        assert len({frozenset(division) for division in found}) == len(found) == bell

    @pytest.mark.parametrize("name", EXAMPLES)
    def test_the_greedy_connection_is_the_best_of_all(self, name: str) -> None:
        graph = EXAMPLES[name]()
        greedy = Welding(graph, V100).run()
        best = best_partition(Welding(graph, V100))
        assert sum(kernel.seconds for kernel in greedy) == pytest.approx(best.seconds)

    def test_kernels_that_wait_for_one_another_are_no_plan(self) -> None:
        # The first and last of four in a row cannot be one kernel while the two between are others.
        shape = (64, 64)
        names = ["a", "b", "c", "d"]
        nodes = [TileNode("a", operators.elementwise(shape), ("",))]
        nodes += [
            TileNode(name, operators.elementwise(shape), (source,))
            for source, name in itertools.pairwise(names)
        ]
        welding = Welding(TileGraph(tuple(nodes), frozenset({"d"})), V100)
        inside = welding.together(frozenset({"b", "c"}))
        outside = welding.together(frozenset({"a", "d"}))
        assert inside is not None
        assert outside is not None
        assert launch_order([outside, inside], welding.graph) is None
        assert best_partition(welding).valid == 8

    def test_what_the_kernel_makes_for_others_too_is_not_connected(self) -> None:
        welding = Welding(residual_block(), V100)
        assert welding.together(frozenset({"relu0", "conv1"})) is None
        assert welding.together(frozenset({"conv1", "relu1"})) is not None

    def test_too_many_operators_are_refused(self) -> None:
        nodes = tuple(TileNode(f"n{i}", operators.elementwise((8,)), ("",)) for i in range(10))
        with pytest.raises(ValueError, match="10 operators"):
            best_partition(Welding(TileGraph(nodes), V100))

    def test_connecting_saves_a_write_and_a_read_of_what_stays_inside(self) -> None:
        graph, size = layer(256), 256 * 256 * 4
        apart = sum(least_bytes(group_of(graph, [node.name])) for node in graph.nodes)
        together = least_bytes(group_of(graph, ["product", "bias", "relu"]))
        assert apart - together == 4 * size
        shortcut = mlp_block(64, 96)
        whole = least_bytes(group_of(shortcut, list(shortcut.by_name)))
        # Two tensors added, scale and shift, two weights, the result; what "sum" reads stays inside.
        assert whole == 4 * (3 * 64 * 96 + 2 * 96 + 2 * 96 * 384)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from(["product", "point", "rows", "pair"]), min_size=1, max_size=4), st.data())
def test_the_greedy_connection_lies_between_the_best_and_none(kinds: list[str], data: st.DataObject) -> None:
    size, nodes, kept = 96, list[TileNode](), set[str]()
    for index, kind in enumerate(kinds):
        earlier = data.draw(st.sampled_from([node.name for node in nodes] or [""]))
        made = {
            "product": operators.matmul(size, size, size),
            "point": operators.elementwise((size, size)),
            "rows": operators.rowwise((size, size), (1,)),
            "pair": operators.elementwise((size, size), ((size, size), (size, size))),
        }[kind]
        last = nodes[-1].name if nodes else ""
        sources = (last, earlier)[: len(made.inputs)] + ("",) * (len(made.inputs) - 2)
        nodes.append(TileNode(f"{kind}{index}", made, sources))
        if data.draw(st.booleans()):
            kept.add(nodes[-1].name)
    welding = Welding(TileGraph(tuple(nodes), frozenset(kept)), V100)
    greedy = sum(kernel.seconds for kernel in welding.run())
    apart = sum(kernel.seconds for kernel in welding.unfused_kernels())
    assert best_partition(welding).seconds * (1 - 1e-9) <= greedy <= apart * (1 + 1e-9)


@pytest.mark.parametrize(
    "expression",
    [
        operators.matmul(96, 1000, 72),
        operators.convolution(1, 16, (14, 14), 24, (3, 3), padding=(1, 1)),
        operators.transpose((64, 96), (1, 0)),
    ],
    ids=lambda made: made.kind,
)
def test_the_search_by_priority_finds_the_best_of_all_tiles(expression: Expression) -> None:
    group = group_of(independent([expression]), [expression.name])
    steps = first_steps(group, V100)
    choices = [axis_sizes(extent, 1) for extent in group.domain]
    made = (evaluate(group, tile, steps, V100) for tile in itertools.product(*choices))
    best = min(tile.priority for tile in made if tile is not None)
    found = evaluate(group, search(group, V100).tiles[0].tile, steps, V100)
    assert found is not None
    assert found.priority == best


class TestPrograms:
    def test_they_are_counted_by_hand(self) -> None:
        # 8 points: 8 + 4 + 2 + 1 pairs, 4 points: 4 + 2 + 1, 3 points: 3 + 2 + 1; one step of 5.
        assert len(list(programs(operators.matmul(8, 4, 5), V100))) == 15 * 7
        assert len(list(programs(operators.elementwise((3,)), V100))) == 6

    def test_too_many_are_refused(self) -> None:
        with pytest.raises(ValueError, match="programs; at most"):
            next(programs(operators.matmul(4096, 4096, 4096), V100))

    @pytest.mark.parametrize(
        ("made", "within"),
        [(operators.matmul(32, 48, 64), 3.5), (operators.reduction((64, 512), (1,)), 1.3)],
        ids=["matmul", "reduction"],
    )
    def test_constructed_ones_are_within_a_factor_of_the_best(self, made: Expression, within: float) -> None:
        best = enumerate_all(made, V100)
        times = {
            way: min(estimate(made, p, V100).seconds for p in construct(made, V100, shrink=way).programs)
            for way in ("none", "one", "priced")
        }
        assert best.seconds <= times["priced"] <= min(times["one"], times["none"]) < math.inf
        assert times["priced"] <= within * best.seconds
