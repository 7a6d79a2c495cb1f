"""The parts of Roller by hand: which sizes are aligned, what moves with DRAM, how programs shrink and are
priced.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.compilation.interface.architecture import Architecture
from experiments.compilation.interface.expressions import Expression
from experiments.compilation.planning.tiles import operators
from experiments.compilation.planning.tiles.program import (
    TileProgram,
    conflicts,
    grid,
    registers,
    resident,
    row_padding,
    shared_bytes,
    tiles,
)
from experiments.compilation.policies.roller.alignment import (
    allowed_sizes,
    padded,
    reduction_steps,
    register_steps,
    shared_steps,
)
from experiments.compilation.policies.roller.micro_model import (
    bandwidth_share,
    dram_bytes,
    estimate,
    utilization,
)
from experiments.compilation.policies.roller.shrinking import shrunk, sizes_on_the_way
from experiments.hardware.specs import resolve

V100 = Architecture(resolve("v100").device)
#: Transactions of 8 floats, 4 units of 2 schedulers of 4 threads, 4 banks of 4 bytes.
UNITS = replace(
    V100.units,
    count=4,
    partitions=2,
    warp=4,
    banks=4,
    bank_bytes=4,
    write_transaction_bytes=32,
    read_transaction_bytes=32,
    shared_bytes=4096,
    shared_bytes_per_block=2048,
    threads=64,
    blocks=8,
    registers=4096,
    bandwidth_warps=2,
)
SMALL = Architecture(replace(V100.device, units=UNITS))


# --- sizes ----------------------------------------------------------------------------------------


@given(st.integers(1, 200), st.integers(1, 64))
def test_an_axis_is_padded_to_whole_tiles(extent: int, size: int) -> None:
    found = padded(extent, size)
    assert found % size == 0 and extent <= found < extent + size


def test_sizes_that_waste_too_much_are_left_out() -> None:
    """12 in tiles of 8 is padded to 16, a third more; in tiles of 5 to 15, a quarter."""
    assert allowed_sizes(12, (1, 4, 5, 6, 8, 12), 0.0) == [1, 4, 6, 12]
    assert allowed_sizes(12, (1, 4, 5, 6, 8, 12), 0.25) == [1, 4, 5, 6, 12]
    assert allowed_sizes(12, (1, 4, 5, 6, 8, 12), 1 / 3) == [1, 4, 5, 6, 8, 12]


def test_a_threads_tile_doubles_and_a_blocks_is_a_multiple_of_it() -> None:
    """16 x 24: rows in multiples of the thread's 2, columns in whole transactions of 8 and of the thread's
    4.
    """
    product = operators.matmul(16, 24, 64)
    assert register_steps(product, 0.0) == [[1, 2, 4, 8, 16], [1, 2, 4, 8]]
    assert shared_steps(product, (2, 4), SMALL, 0.0) == [[2, 4, 8, 16], [8, 24]]
    assert shared_steps(product, (2, 3), SMALL, 0.0)[1] == [24], "8 and 3 meet at 24"


def test_an_axis_shorter_than_a_transaction_is_taken_whole() -> None:
    assert shared_steps(operators.matmul(16, 5, 64), (2, 1), SMALL, 0.0)[1] == [5]


def test_a_reduction_grows_fourfold_from_a_transaction() -> None:
    """Of 8 floats, up to 32; a softmax of 24 may also take its whole row where two of them fit."""
    assert reduction_steps(operators.matmul(16, 24, 64), SMALL) == [[8, 32]]
    assert reduction_steps(operators.matmul(16, 24, 5), SMALL) == [[5]]
    assert reduction_steps(operators.rowwise((4, 40), (1,)), SMALL) == [[8, 32, 40]]
    assert reduction_steps(operators.rowwise((4, 400), (1,)), SMALL) == [[8, 32]]


# --- a block --------------------------------------------------------------------------------------


@given(st.integers(1, 40), st.integers(1, 8))
def test_bank_conflicts_by_counting(stride: int, rows: int) -> None:
    """A warp of 4 threads on rows so many words apart, 4 banks: as often as the fullest bank has rows."""
    banks = [row * stride % 4 for row in range(min(rows, 4))]
    assert conflicts(stride, rows, SMALL.units) == max(banks.count(bank) for bank in set(banks))


def test_rows_read_by_columns_are_padded_where_they_meet_in_a_bank() -> None:
    """w[n, k] in steps of 4 terms: rows 4 words apart all begin in one bank; with 5 they do not."""
    layer = operators.linear((8,), 64, 8)
    assert row_padding(layer, layer.inputs[1], (8, 8, 4), SMALL.units) == 1
    assert row_padding(layer, layer.inputs[1], (8, 8, 5), SMALL.units) == 0
    product = operators.matmul(8, 8, 64)
    assert row_padding(product, product.inputs[1], (8, 8, 4), SMALL.units) == 0, (
        "b[k, n] is read along its rows"
    )


def test_shared_memory_of_a_block() -> None:
    """a: 8 rows of 4 and one word more each, b: 4 rows of 8; what is used once is not staged at all."""
    product = operators.matmul(8, 8, 64)
    assert shared_bytes(product, TileProgram((2, 2), (8, 8), (4,)), SMALL.units) == 4 * (8 * 5 + 4 * 8)
    assert shared_bytes(operators.elementwise((8, 8)), TileProgram((1, 1), (8, 8), ()), SMALL.units) == 0


def test_registers_hold_operands_of_one_term_and_all_results() -> None:
    """2 x 4 results, 2 and 4 operands: 14; half precision packs operands, not results."""
    assert registers(operators.matmul(8, 8, 64), (2, 4)) == 14
    assert registers(operators.matmul(8, 8, 64, "float16"), (2, 4)) == 8 + 3


def test_a_unit_holds_as_many_blocks_as_its_scarcest_share_allows() -> None:
    product = operators.matmul(64, 64, 64)
    by_threads = TileProgram((1, 2), (4, 8), (1,))  # 16 threads of 64
    assert (by_threads.threads, resident(product, by_threads, SMALL)) == (16, 4)
    by_shared = TileProgram((4, 4), (16, 8), (16,))  # 16 x 17 + 16 x 8 floats, 1,600 of 4,096 bytes
    assert shared_bytes(product, by_shared, SMALL.units) == 1600 and resident(product, by_shared, SMALL) == 2


# --- what moves -----------------------------------------------------------------------------------


def counted_bytes(expression: Expression, program: TileProgram) -> int:
    """Bytes of every block's different elements, block by block, clipped at the border."""
    total = 0
    starts = [range(0, extent, size) for extent, size in zip(expression.domain, program.shared, strict=True)]
    for corner in itertools.product(*starts):
        axes = [
            np.arange(start, min(start + size, extent))
            for start, size, extent in zip(corner, program.shared, expression.domain, strict=True)
        ] + [np.arange(extent) for extent in expression.reduction]
        names = [axis.name for axis in expression.axes]
        for access in expression.accesses:
            spans = []
            for index in access.indices:
                grids = np.ix_(*(axes[names.index(name)] * factor for name, factor in index.terms))
                spans.append(len(np.unique(sum(grids, np.int64(0)))))
            total += math.prod(spans) * access.element_bytes
    return total


@pytest.mark.parametrize(
    ("expression", "shared"),
    [
        (operators.matmul(16, 24, 32), (4, 8)),
        (operators.matmul(16, 24, 32), (16, 24)),
        (operators.matmul(10, 24, 32), (4, 8)),  # rows do not come out even
        (operators.linear((16,), 32, 24), (8, 8)),
        (operators.elementwise((16, 32), ((16, 32), (32,))), (4, 16)),
    ],
)
def test_blocks_move_what_their_elements_take(expression: Expression, shared: tuple[int, ...]) -> None:
    """Where runs are whole transactions nothing else moves: counted element by element."""
    program = TileProgram(
        (1,) * len(shared), shared, tuple(min(extent, 32) for extent in expression.reduction)
    )
    assert dram_bytes(expression, program, SMALL) == counted_bytes(expression, program)


def test_short_runs_move_whole_transactions() -> None:
    """Columns in tiles of 2: each run of b and of the result takes a transaction of 8."""
    product = operators.matmul(16, 24, 32)
    narrow = TileProgram((1, 1), (4, 2), (32,))
    blocks = 4 * 12
    assert dram_bytes(product, narrow, SMALL) == 4 * blocks * (4 * 32 + 4 * 32 * 2 + 4 * 4 * 2)


def test_rows_that_are_not_kept_are_read_twice() -> None:
    soft = operators.rowwise((16, 64), (1,))
    once, twice = (TileProgram((1,), (4,), (step,)) for step in (64, 32))
    assert dram_bytes(soft, once, SMALL) == 4 * 2 * 16 * 64
    assert dram_bytes(soft, twice, SMALL) == 4 * 3 * 16 * 64


# --- time -----------------------------------------------------------------------------------------


def test_the_share_of_the_device_at_work() -> None:
    """4 units of 2 schedulers: 3 blocks of a warp fill 3 places of 8, of two warps 6; 9 blocks of 8 take
    two waves.
    """
    assert utilization(3, 1, 2, SMALL.units) == 3 / 8
    assert utilization(3, 2, 2, SMALL.units) == 6 / 8
    assert utilization(3, 99, 2, SMALL.units) == 6 / 8, "no block fills more than a unit"
    assert utilization(9, 2, 2, SMALL.units) == 9 / 16
    assert utilization(16, 2, 2, SMALL.units) == 1.0


def test_few_warps_leave_memory_waiting() -> None:
    """8 warps in flight are what saturates 4 units at 2 each: 1 - 1/e; resident blocks limit them."""
    assert bandwidth_share(4, 2, 2, SMALL.units) == pytest.approx(1 - math.exp(-1))
    assert bandwidth_share(100, 2, 1, SMALL.units) == bandwidth_share(4, 2, 1, SMALL.units)


def test_an_estimate_by_hand() -> None:
    """16 x 16 x 32 in blocks of 4 x 8 of 8 threads: 8 blocks of two warps fill every scheduler once."""
    product = operators.matmul(16, 16, 32)
    program = TileProgram((2, 2), (4, 8), (8,))
    found = estimate(product, program, SMALL)
    assert (program.threads, grid(product, program), found.utilization) == (8, 8, 1.0)
    assert found.compute == pytest.approx(2 * 16 * 16 * 32 / SMALL.flops("float32"))
    # Each of 8 threads reads 2 x 32 of a and 32 x 2 of b from shared memory.
    assert found.shared == pytest.approx(8 * 8 * 4 * 128 / SMALL.shared_bandwidth)
    assert found.dram_bytes == 8 * 4 * (4 * 32 + 32 * 8 + 32)
    assert found.seconds == max(found.compute, found.shared, found.dram)
    padded_ = estimate(operators.matmul(13, 16, 32), program, SMALL)
    assert padded_.compute == found.compute, "tiles at the border compute as whole ones"


# --- shrinking ------------------------------------------------------------------------------------


def test_a_small_product_is_halved_along_its_longer_side() -> None:
    """16 x 16 in one block of 16 x 8 twice: the side of 16 loses less reuse; two halvings give 4 units a
    block each.
    """
    product = operators.matmul(16, 16, 32)
    program = TileProgram((4, 2), (16, 16), (8,))
    done = shrunk(product, program, SMALL)
    assert grid(product, done) >= 4 and math.prod(done.shared) == 64 and done.shared == (8, 8)
    assert done.step == program.step and done.register in ((2, 1), (2, 2), (4, 1))
    assert shrunk(product, program, SMALL, "none") is program


def test_all_axes_at_once_as_the_release_does() -> None:
    done = shrunk(operators.matmul(16, 16, 32), TileProgram((4, 2), (16, 16), (8,)), SMALL, "all")
    assert (done.register, done.shared) == ((2, 1), (8, 8))


def test_every_size_on_the_way_is_offered_until_each_scheduler_has_a_block() -> None:
    product = operators.matmul(16, 16, 32)
    found = sizes_on_the_way(product, TileProgram((4, 4), (16, 16), (8,)), SMALL)
    assert [grid(product, program) for program in found] == [1, 2, 4, 8]


@settings(max_examples=30)
@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 20), st.integers(1, 20))
def test_shrinking_ends_with_a_block_for_every_unit_or_single_points(
    m: int, n: int, rows: int, columns: int
) -> None:
    product = operators.matmul(m, n, 8)
    program = TileProgram((1, 1), (min(rows, m), min(columns, n)), (8,))
    done = shrunk(product, program, SMALL)
    assert grid(product, done) >= 4 or set(done.shared) == {1}
    assert all(a <= b for a, b in zip(done.shared, program.shared, strict=True))
    assert tiles(done.shared, done.register) == done.threads >= 1
