"""Welder: traffic and waves by hand, transactions, halos, shared memory, and what is connected."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.compilation.interface.architecture import Architecture
from experiments.compilation.interface.expressions import Expression
from experiments.compilation.interface.tile_graph import TileGraph, TileNode, independent
from experiments.compilation.planning.tiles import operators
from experiments.compilation.planning.tiles.best_fit import ALIGNMENT, BestFitMemory
from experiments.compilation.planning.tiles.group_tile import evaluate, footprint, traffic
from experiments.compilation.planning.tiles.propagation import FusedGroup, group_of, propagate, spatial_of
from experiments.compilation.planning.tiles.traffic import coalesced_elements, contiguous
from experiments.compilation.policies.welder import Welder
from experiments.compilation.policies.welder.connection import Welding, launch_order
from experiments.compilation.policies.welder.tile_search import (
    axis_sizes,
    base_tile,
    block_size,
    first_steps,
    search,
    similarity,
    step_choices,
)
from experiments.core.progress import silent
from experiments.hardware.specs import resolve

V100 = Architecture(resolve("v100").device)
N = 1024
PRODUCT = operators.matmul(N, N, N, name="product")


def layer() -> TileGraph:
    """A product, a bias over its columns, a rectifier."""
    return TileGraph(
        (
            TileNode("product", PRODUCT, ("", "")),
            TileNode("bias", operators.elementwise((N, N), ((N, N), (N,))), ("product", "")),
            TileNode("relu", operators.elementwise((N, N)), ("bias",)),
        ),
        frozenset({"relu"}),
    )


def alone(expression: Expression) -> FusedGroup:
    return group_of(independent([expression]), [expression.name])


class TestRanking:
    @pytest.mark.parametrize(
        ("size", "elements", "waves", "priority"),
        [(32, 66_560, 4, 266_244), (64, 135_168, 1, 135_169), (128, 278_528, 1, 278_529)],
    )
    def test_traffic_of_a_block_times_waves(
        self, size: int, elements: int, waves: int, priority: int
    ) -> None:
        made = evaluate(alone(PRODUCT), (size, size), ((16,),), V100)
        assert made is not None
        assert (made.traffic, made.waves, made.priority) == (elements, waves, priority)

    def test_the_search_finds_the_tile_of_64(self) -> None:
        found = search(alone(PRODUCT), V100)
        best = found.tiles[0]
        assert best.tile == (64, 64)
        assert best.steps == ((32,),)
        assert block_size(alone(PRODUCT), best, V100) == 128
        assert [tile.priority for tile in found.tiles] == sorted(tile.priority for tile in found.tiles)

    def test_a_tile_that_does_not_fit_is_no_candidate(self) -> None:
        assert evaluate(alone(PRODUCT), (512, 512), ((32,),), V100) is None

    def test_sizes_of_an_axis_are_divisors_and_small_powers_of_two(self) -> None:
        assert axis_sizes(12, 1) == (1, 2, 3, 4, 6, 8, 12)
        assert axis_sizes(12, 4) == (4, 6, 8, 12)
        assert step_choices(67) == (1, 2, 4, 8, 16, 32, 64)
        assert step_choices(61) == (1, 61)

    def test_reads_grow_to_a_transaction(self) -> None:
        assert similarity(32, 32) == 1.0
        assert similarity(8, 32) == pytest.approx(512 / 1088)
        assert first_steps(alone(PRODUCT), V100) == ((32,),)


class TestTransactions:
    def test_short_runs_waste_the_rest_of_a_transaction(self) -> None:
        assert coalesced_elements((32, 8), (N, N), 32) == 1024
        assert coalesced_elements((32, 64), (N, N), 32) == 2048
        assert contiguous((4, N), (N, N)) == 4 * N
        assert coalesced_elements((0, 8), (N, N), 32) == 0

    def test_a_fused_layer_saves_a_write_and_a_read_of_both_intermediates(self) -> None:
        graph = layer()
        whole = (N, N)

        def least(*names: str) -> float:
            group = group_of(graph, names)
            tiles = propagate(group, whole)
            assert tiles is not None
            return traffic(group, tiles, V100)[0]

        assert least("product") + least("bias") + least("relu") == 7_341_056
        assert least("product", "bias", "relu") == 3_146_752


class TestPropagation:
    def test_two_convolutions_compute_a_halo(self) -> None:
        first = operators.convolution(1, 16, (66, 66), 16, (3, 3), name="first")
        second = operators.convolution(1, 16, (64, 64), 16, (3, 3), name="second")
        graph = TileGraph(
            (TileNode("first", first, ("", "")), TileNode("second", second, ("first", ""))),
            frozenset({"second"}),
        )
        group = group_of(graph, ["first", "second"])
        assert propagate(group, (1, 16, 8, 8)) == ((1, 16, 10, 10), (1, 16, 8, 8))
        assert propagate(group, (1, 1, 62, 62)) == ((1, 16, 64, 64), (1, 1, 62, 62))
        assert base_tile(group) == (1, 16, 62, 62)

    def test_a_softmax_is_computed_in_whole_rows(self) -> None:
        soft = operators.rowwise((64, 1000), (1,), name="soft")
        graph = TileGraph(
            (TileNode("soft", soft, ("",)), TileNode("scale", operators.elementwise((64, 1000)), ("soft",))),
            frozenset({"scale"}),
        )
        group = group_of(graph, ["soft", "scale"])
        assert propagate(group, (2, 10)) == ((2,), (2, 10))
        assert base_tile(group) == (1, 1000)

    def test_channels_of_a_grouped_convolution_fill_its_filters_first(self) -> None:
        grouped = operators.convolution(1, 8, (6, 6), 12, (3, 3), groups=4)
        assert [axis.name for axis in grouped.spatial] == ["n", "g", "f", "oh", "ow"]
        assert spatial_of(grouped, (1, 2, 4, 4)) == (1, 1, 2, 4, 4)
        assert spatial_of(grouped, (1, 7, 4, 4)) == (1, 3, 3, 4, 4)

    def test_a_transpose_asks_for_the_other_tile(self) -> None:
        turned = operators.transpose((64, 32), (1, 0))
        assert turned.domain == (32, 64)
        assert turned.extents_touched(turned.inputs[0], (4, 16)) == (16, 4)

    def test_outputs_of_other_shapes_cannot_share_a_grid(self) -> None:
        graph = independent(
            [operators.elementwise((6, 4), name="a"), operators.elementwise((6, 9), name="b")]
        )
        group = group_of(graph, ["a", "b"])
        assert propagate(group, (6, 4)) == ((6, 4), (6, 9))
        assert propagate(group, (6, 1)) is None


class TestSharedMemory:
    def test_a_freed_block_is_used_again_and_neighbors_join(self) -> None:
        memory = BestFitMemory()
        first, second, third = memory.take(100), memory.take(64), memory.take(32)
        assert (first, second, third) == ((0, 128), (128, 192), (192, 224))
        memory.give(second)
        assert memory.take(40) == (128, 192)
        memory.give(first)
        memory.give((128, 192))
        assert memory.take(190) == (0, 192)
        assert memory.limit == 224

    def test_memory_holds_inputs_of_one_step_and_results_until_they_are_read(self) -> None:
        graph = layer()
        group = group_of(graph, ["product", "bias", "relu"])
        tiles = ((64, 64),) * 3
        result, inputs = 64 * 64 * 4, (64 * 16 + 16 * 64) * 4
        assert footprint(group, tiles, ((16,), (), ())) == max(inputs, result)
        assert footprint(group, tiles, ((16,), (), ()), in_registers=True) == inputs

    @settings(max_examples=40)
    @given(st.lists(st.tuples(st.integers(1, 500), st.booleans()), max_size=25))
    def test_live_blocks_never_overlap(self, requests: list[tuple[int, bool]]) -> None:
        memory, live = BestFitMemory(), list[tuple[int, int]]()
        for size, free in requests:
            if free and live:
                memory.give(live.pop(size % len(live)))
            block = memory.take(size)
            assert block[1] - block[0] >= size
            assert block[0] % ALIGNMENT == 0
            assert block[1] <= memory.limit
            assert all(block[1] <= start or end <= block[0] for start, end in live)
            live.append(block)


class TestConnection:
    def test_a_layer_becomes_one_kernel_that_moves_less(self) -> None:
        plan = Welder().tiles(layer(), V100, silent)
        apart = Welder(fuse=False).tiles(layer(), V100, silent)
        assert [kernel.operators for kernel in plan.kernels] == [("product", "bias", "relu")]
        assert [kernel.operators for kernel in apart.kernels] == [("product",), ("bias",), ("relu",)]
        assert plan.apart_seconds == apart.seconds
        assert plan.seconds < apart.seconds
        saved = 2 * 2 * N * N * 4
        assert apart.bytes - plan.bytes == pytest.approx(saved, rel=0.05)

    def test_a_result_that_is_needed_in_memory_ends_its_kernel(self) -> None:
        graph = layer()
        kept = TileGraph(graph.nodes, frozenset({"product", "relu"}))
        plan = Welder().tiles(kept, V100, silent)
        assert [kernel.operators for kernel in plan.kernels] == [("product",), ("bias", "relu")]

    def test_a_result_read_through_a_view_comes_from_memory(self) -> None:
        first, second, third = layer().nodes
        cut = TileNode("bias", second.expression, ("", ""), after=("product",))
        plan = Welder().tiles(TileGraph((first, cut, third), frozenset({"relu"})), V100, silent)
        assert [kernel.operators for kernel in plan.kernels] == [("product",), ("bias", "relu")]

    def test_readers_bring_what_else_they_need_and_order_holds(self) -> None:
        add = operators.elementwise((N, N), ((N, N), (N, N)))
        nodes = (
            TileNode("a", operators.elementwise((N, N)), ("",)),
            TileNode("b", operators.elementwise((N, N)), ("",)),
            TileNode("sum", add, ("a", "b")),
        )
        graph = TileGraph(nodes, frozenset({"sum"}))
        kernels = Welding(graph, V100).run()
        assert [sorted(kernel.group.names) for kernel in kernels] == [["a", "b", "sum"]]
        assert len(launch_order(Welding(graph, V100).unfused_kernels(), graph) or ()) == 3

    def test_equal_groups_are_tuned_once(self) -> None:
        nodes = tuple(TileNode(f"p{i}", PRODUCT, ("", "")) for i in range(5))
        welding = Welding(TileGraph(nodes, frozenset(node.name for node in nodes)), V100)
        welding.run()
        assert welding.examined == search(alone(PRODUCT), V100).examined

    def test_wide_rows_between_products_do_not_fit_and_stay_apart(self) -> None:
        rows = 4096
        nodes = (
            TileNode("first", operators.matmul(64, rows * 8, 64, name="first"), ("", "")),
            TileNode("soft", operators.rowwise((64, rows * 8), (1,), name="soft"), ("first",)),
        )
        plan = Welder().tiles(TileGraph(nodes, frozenset({"soft"})), V100, silent)
        assert [kernel.operators for kernel in plan.kernels] == [("first",), ("soft",)]
        assert math.isfinite(plan.seconds)


def test_a_search_that_meets_its_bound_shows_life_and_says_so() -> None:
    graph = layer()
    plans = {}
    for visited in (1, 100_000):
        reports: list[float] = []
        plans[visited] = Welder(visited=visited).tiles(
            graph, V100, lambda share, _, to=reports: to.append(share)
        )
        assert len(reports) > len(graph.nodes)
    assert plans[1].examined < plans[100_000].examined and plans[100_000].ended_at == ""
    assert "bound of 1 tiles of a group (knob visited)" in plans[1].ended_at
