"""Tiles of connected operators: what they need of each other, hold, move and compute, by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.oracles.examples import EXAMPLES
from benchmarks.oracles.partitions import partitions
from experiments.compilation.interface.architecture import Architecture
from experiments.compilation.interface.expressions import Expression
from experiments.compilation.interface.tile_graph import TileGraph, TileNode, independent
from experiments.compilation.planning.tiles import operators
from experiments.compilation.planning.tiles.best_fit import ALIGNMENT, BestFitMemory
from experiments.compilation.planning.tiles.group_tile import (
    evaluate,
    footprint,
    least_bytes,
    least_seconds,
    traffic,
)
from experiments.compilation.planning.tiles.propagation import (
    block_flops,
    group_of,
    points,
    propagate,
    spatial_of,
)
from experiments.core.errors import BadInput
from experiments.hardware.specs import resolve

V100 = Architecture(resolve("v100").device)
#: Transactions of 8 elements read and 8 written; two units of two blocks; 1,024 bytes of shared memory.
UNITS = replace(
    V100.units,
    count=2,
    partitions=4,
    read_transaction_bytes=32,
    write_transaction_bytes=32,
    shared_bytes=2048,
    shared_bytes_per_block=1024,
)
SMALL = Architecture(replace(V100.device, units=UNITS))


def graph(*rows: tuple[str, Expression, tuple[str, ...]], kept: str = "") -> TileGraph:
    nodes = tuple(TileNode(*row) for row in rows)
    return TileGraph(nodes, frozenset({kept or rows[-1][0]}))


def picture(side: int = 8) -> Expression:
    return operators.elementwise((1, 2, side, side))


def blur(side: int = 8, kernel: int = 3) -> Expression:
    """A depthwise window of 3 x 3 over a padded picture of two channels."""
    return operators.convolution(
        1, 2, (side, side), 2, (kernel, kernel), padding=(kernel // 2,) * 2, groups=2
    )


# --- propagation ----------------------------------------------------------------------------------


def test_two_windows_need_a_halo_of_two_on_each_side() -> None:
    """A tile of 2 x 2 of the second blur needs 4 x 4 of the first and 6 x 6 of the picture."""
    group = group_of(
        graph(("x", picture(), ("",)), ("a", blur(), ("x", "")), ("b", blur(), ("a", ""))), ("x", "a", "b")
    )
    tiles = propagate(group, (1, 1, 2, 2))
    assert tiles == ((1, 1, 6, 6), (1, 1, 4, 4), (1, 1, 2, 2))
    # One operation a point of the picture, 2 x 9 of a window.
    assert block_flops(group, tiles) == 36 + 18 * 16 + 18 * 4
    assert points(group, tiles) == 36 + 16 + 4


def test_a_halo_ends_at_the_border_of_the_picture() -> None:
    group = group_of(graph(("x", picture(8), ("",)), ("a", blur(8), ("x", ""))), ("x", "a"))
    assert propagate(group, (1, 2, 8, 8)) == ((1, 2, 8, 8), (1, 2, 8, 8))


def test_a_result_read_twice_is_as_large_as_its_larger_reader_needs() -> None:
    """The sum needs 2 x 2 of the picture itself and 4 x 4 of it for the blur."""
    added = operators.elementwise((1, 2, 8, 8), ((1, 2, 8, 8),) * 2)
    group = group_of(
        graph(("x", picture(), ("",)), ("a", blur(), ("x", "")), ("sum", added, ("a", "x"))),
        ("x", "a", "sum"),
    )
    assert propagate(group, (1, 1, 2, 2)) == ((1, 1, 4, 4), (1, 1, 2, 2), (1, 1, 2, 2))


def test_a_product_behind_a_product_needs_whole_rows() -> None:
    """C = (A B) D: a tile of 4 x 2 of C reads 4 rows of AB over all 16 columns, so those are computed
    again.
    """
    group = group_of(
        graph(("ab", operators.matmul(8, 16, 32), ("", "")), ("c", operators.matmul(8, 6, 16), ("ab", ""))),
        ("ab", "c"),
    )
    tiles = propagate(group, (4, 2))
    assert tiles == ((4, 16), (4, 2))
    assert block_flops(group, tiles) == 2 * 4 * 16 * 32 + 2 * 4 * 2 * 16


def test_outputs_of_a_group_share_its_grid_in_proportion() -> None:
    """A picture and its pool of half the sides: a tile of 2 x 2 of the pool is one of 4 x 4 of the
    picture."""
    pool = operators.pooling(1, 2, (8, 8), (2, 2))
    both = graph(("x", picture(), ("",)), ("pool", pool, ("x",)))
    group = group_of(TileGraph(both.nodes, frozenset({"x", "pool"})), ("x", "pool"))
    assert group.domain == (1, 2, 8, 8)
    assert propagate(group, (1, 1, 4, 4)) == ((1, 1, 4, 4), (1, 1, 2, 2))
    assert propagate(group, (1, 1, 3, 4)) is None, "3 rows are no whole number of the pool's"


def test_a_dimension_of_two_axes_is_filled_from_the_faster() -> None:
    """12 filters in 4 groups of 3: five of them are two groups, of which all three filters are computed."""
    grouped = operators.convolution(1, 8, (6, 6), 12, (3, 3), groups=4)
    assert spatial_of(grouped, (1, 3, 4, 4)) == (1, 1, 3, 4, 4)
    assert spatial_of(grouped, (1, 5, 4, 4)) == (1, 2, 3, 4, 4)
    assert spatial_of(grouped, (1, 99, 1, 1)) == (1, 4, 3, 1, 1)


@given(st.integers(1, 4), st.sampled_from([1, 3, 5]), st.sampled_from([1, 3, 5]), st.integers(1, 3))
def test_a_chain_of_windows_needs_their_reaches_together(
    tile: int, first: int, second: int, rows: int
) -> None:
    """Kernels of k and l: tile + k + l - 2, inside a picture that is large enough."""
    group = group_of(
        graph(
            ("x", picture(32), ("",)),
            ("a", blur(32, first), ("x", "")),
            ("b", blur(32, second), ("a", "")),
        ),
        ("x", "a", "b"),
    )
    tiles = propagate(group, (1, 1, rows, tile))
    assert tiles is not None
    assert tiles[0] == (1, 1, rows + first + second - 2, tile + first + second - 2)


# --- what a kernel reads, holds, writes -------------------------------------------------------------


def layer(size: int = 16) -> TileGraph:
    """A product of 16 x 16 x 16 with a bias and a rectifier."""
    shape = (size, size)
    return graph(
        ("product", operators.matmul(size, size, size), ("", "")),
        ("bias", operators.elementwise(shape, (shape, (size,))), ("product", "")),
        ("relu", operators.elementwise(shape), ("bias",)),
    )


ALL = ("product", "bias", "relu")


def test_a_group_knows_what_comes_from_memory_and_what_goes_there() -> None:
    group = group_of(layer(), ALL)
    assert [len(own) for own in group.external] == [2, 1, 0]
    assert group.written == (2,) and group.producers == ((-1, -1), (0, -1), (1,))
    front = group_of(layer(), ("product", "bias"))
    assert front.written == (1,), "what the rest reads is written"


def test_the_least_bytes_of_a_layer() -> None:
    """Two matrices and a bias in, one matrix out: (3 x 256 + 16) x 4. Apart, each result is written and
    read.
    """
    assert least_bytes(group_of(layer(), ALL)) == (3 * 256 + 16) * 4
    apart = sum(least_bytes(group_of(layer(), (name,))) for name in ALL)
    assert apart == (3 * 256 + (256 + 16 + 256) + 2 * 256) * 4


def test_a_block_moves_whole_transactions() -> None:
    """A tile of 8 x 8: 8 rows of 16 of A, 16 rows of 8 of B, 8 of the bias, and 8 rows of 8 out."""
    group = group_of(layer(), ALL)
    tiles = propagate(group, (8, 8))
    assert tiles is not None
    assert traffic(group, tiles, SMALL) == (128 + 128 + 8 + 64, 4 * 328)
    narrow = propagate(group, (8, 4))
    assert narrow is not None
    # Rows of four elements of B and of the result take a transaction of eight; so does the bias.
    assert traffic(group, narrow, SMALL)[0] == 128 + 128 + 8 + 64


def test_rows_that_do_not_stay_are_read_twice() -> None:
    """Softmax of 4 rows of 16: in twice and out once, or in once where all 16 are taken in a step."""
    group = group_of(graph(("s", operators.rowwise((4, 16), (1,)), ("",))), ("s",))
    tiles = propagate(group, (4,))
    assert tiles is not None
    assert traffic(group, tiles, SMALL, ((8,),))[0] == 3 * 64
    assert traffic(group, tiles, SMALL, ((16,),))[0] == 2 * 64


def test_shared_memory_holds_operands_of_a_step_and_results_until_they_are_read() -> None:
    """8 x 8 results, four terms a step: 2 x 32 operands (256 B), gone before the product's 64 results (256
    B) come.

    The bias is element-wise: nobody asks for its results in shared memory at once with its operands."""
    group = group_of(layer(), ALL)
    tiles = propagate(group, (8, 8))
    assert tiles is not None
    steps = ((4,), (), ())
    assert footprint(group, tiles, steps) == 256
    assert footprint(group, tiles, ((16,), (), ())) == 1024
    assert footprint(group, tiles, steps, in_registers=True) == 256


def test_blocks_in_waves() -> None:
    """16 x 16 in tiles of 4 x 4 are 16 blocks. A block holds 128 bytes, so partitions let 4 stay on each of
    2 units.
    """
    group = group_of(layer(), ALL)
    made = evaluate(group, (4, 4), ((4,), (), ()), SMALL)
    assert made is not None
    assert (made.shared_bytes, made.resident, made.grid, made.waves) == (128, 4, 16, 2)
    assert made.flops == 2 * 16 * 16 + 16 + 16
    assert made.priority == (made.traffic + 1) * 2
    assert evaluate(group, (16, 16), ((16,), (), ()), SMALL) is None, "2,048 bytes of operands do not fit"


def test_nothing_is_faster_than_moving_each_element_once() -> None:
    """The bound by hand: 3,136 bytes, or 8,192 + 512 FLOPs, after a launch."""
    bound = least_seconds(group_of(layer(), ALL), V100)
    moving, computing = 3136 / V100.dram_bandwidth, (8192 + 512) / V100.flops("float32")
    assert bound == pytest.approx(V100.device.kernels.launch + max(moving, computing))


# --- graphs ---------------------------------------------------------------------------------------


def test_a_result_leaves_where_others_read_it_or_a_view_does() -> None:
    x, y = TileNode("x", picture(), ("",)), TileNode("y", picture(), ("x",))
    seen = TileNode("z", picture(), ("",), after=("x",))
    inside = frozenset({"x", "y"})
    assert not TileGraph((x, y)).leaves("x", inside)
    assert TileGraph((x, y)).leaves("y", inside), "nobody reads it: it is a result"
    assert TileGraph((x, y), frozenset({"x"})).leaves("x", inside)
    assert TileGraph((x, y, seen)).leaves("x", inside | {"z"}), "a view reads memory, whoever is in the group"
    assert seen.reads == ("x",) and TileGraph((x, y, seen)).readers["x"] == (y, seen)


def test_operators_of_a_list_read_nothing_of_each_other() -> None:
    of = independent([operators.matmul(2, 2, 2, name="a"), operators.elementwise((2,), name="b")])
    assert [node.sources for node in of.nodes] == [("", ""), ("",)] and of.kept == {"a", "b"}


def test_a_device_without_units_has_no_tiles() -> None:
    plain = Architecture(replace(V100.device, units=None))
    with pytest.raises(BadInput, match="has no sheet of units"):
        evaluate(group_of(layer(), ALL), (4, 4), ((4,), (), ()), plain)


def test_all_divisions_of_a_few_operators() -> None:
    """Bell's numbers: 1, 2, 5, 15, 52; each a division of all operators without an empty part."""
    for count, bell in ((1, 1), (2, 2), (3, 5), (4, 15), (5, 52)):
        names = "abcde"[:count]
        found = list(partitions(names))
        assert len(found) == len({frozenset(division) for division in found}) == bell
        assert all(sorted(name for part in division for name in part) == list(names) for division in found)


@pytest.mark.parametrize("name", EXAMPLES)
def test_operators_of_the_examples_read_what_the_ones_before_make(name: str) -> None:
    """Of the shape that they read: an example with a wrong size would be fused for the wrong reason."""
    of = EXAMPLES[name]()
    for number, node in enumerate(of.nodes):
        for access, source in zip(node.expression.inputs, node.sources, strict=True):
            if source:
                assert of.place[source] < number
                made = of.by_name[source].expression.output.shape
                same = math.prod(access.shape) >= math.prod(made) and len(access.shape) == len(made)
                assert same, f"{node.name} reads {access.shape} of {source}, which makes {made}"


# --- addresses ------------------------------------------------------------------------------------


def test_the_smallest_hole_that_fits_is_filled() -> None:
    memory = BestFitMemory()
    a, b, c, d, e = (memory.take(size) for size in (96, 32, 64, 32, 32))
    assert memory.limit == 256
    memory.give(a)
    memory.give(c)
    assert memory.take(40) == c, "two of 32 in the hole of 64, not in that of 96"
    assert memory.take(32) == (0, 32) and memory.limit == 256
    memory.give(b)
    memory.give(d)
    memory.give(e)
    assert memory.take(200) == (192, 416), "the hole at the end grows"
    assert memory.limit == 416


@given(st.lists(st.integers(0, 200), min_size=1, max_size=12), st.data())
def test_blocks_never_overlap_and_all_holes_come_back(sizes: list[int], data: st.DataObject) -> None:
    memory, taken = BestFitMemory(), list[tuple[int, int]]()
    for size in sizes:
        start, end = memory.take(size)
        assert end - start >= size and start % ALIGNMENT == end % ALIGNMENT == 0 and end <= memory.limit
        assert all(end <= a or b <= start for a, b in taken if a != b and start != end)
        taken.append((start, end))
        if data.draw(st.booleans()):
            memory.give(taken.pop(data.draw(st.integers(0, len(taken) - 1))))
    high = memory.limit
    for block in taken:
        memory.give(block)
    assert memory.take(high) == (0, high) and memory.limit == high, "all of it is one hole again"
