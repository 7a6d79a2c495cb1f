"""Roller's construction: reuse by hand, alignment, waves, borders, small and odd operators."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.compilation.interface.architecture import Architecture
from experiments.compilation.interface.expressions import Expression
from experiments.compilation.planning.tiles import operators
from experiments.compilation.planning.tiles.program import (
    TileProgram,
    conflicts,
    fits,
    grid,
    is_aligned,
    shared_bytes,
    tiles,
)
from experiments.compilation.policies.roller.alignment import allowed_sizes, shared_steps
from experiments.compilation.policies.roller.construction import BUDGET, alignable, compute_bound, construct
from experiments.compilation.policies.roller.micro_model import bandwidth_share, estimate, utilization
from experiments.compilation.policies.roller.shrinking import shrunk
from experiments.compilation.policies.roller.tiled_form import tiled_form
from experiments.core.errors import BadInput
from experiments.hardware.specs import resolve

V100 = Architecture(resolve("v100").device)
UNITS = V100.units
SQUARE = operators.matmul(1024, 1024, 1024)


class TestReuse:
    def test_the_v100_computes_what_roller_measured(self) -> None:
        assert V100.flops("float32") == pytest.approx(12.48e12, rel=1e-4)
        assert V100.dram_bandwidth == pytest.approx(750e9, rel=1e-4)

    @pytest.mark.parametrize(
        ("tile", "reuse", "bound"),
        [
            ((64, 64), 15.52, False),
            ((64, 72), 16.40, False),
            ((72, 72), 17.39, True),
            ((128, 128), 30.12, True),
        ],
    )
    def test_a_tile_is_bound_by_computation_from_16_64_flop_a_byte(
        self, tile: tuple[int, int], reuse: float, bound: bool
    ) -> None:
        assert SQUARE.intensity(tile) == pytest.approx(reuse, abs=0.005)
        assert compute_bound(SQUARE, tile, V100.flops("float32"), V100.dram_bandwidth) is bound

    def test_half_precision_moves_half_the_bytes_and_computes_as_much(self) -> None:
        half = operators.matmul(1024, 1024, 1024, "float16")
        assert half.intensity((64, 64)) == 2 * SQUARE.intensity((64, 64))

    def test_windows_overlap_and_strides_leave_elements_out(self) -> None:
        conv = operators.convolution(1, 3, (32, 32), 8, (3, 3), padding=(1, 1))
        image = conv.inputs[0]
        assert conv.elements(image, (1, 1, 8, 8, 3, 3, 3)) == 3 * 10 * 10
        strided = operators.convolution(1, 3, (32, 32), 8, (1, 1), stride=(2, 2))
        assert strided.elements(strided.inputs[0], (1, 1, 8, 8, 3, 1, 1)) == 3 * 8 * 8
        assert strided.gaps(strided.inputs[0], (1, 1, 8, 8, 3, 1, 1)) == 15 / 8

    def test_a_dilated_and_a_grouped_convolution_touch_their_own_channels(self) -> None:
        wide = operators.convolution(1, 4, (20,), 4, (3,), dilation=(4,))
        assert wide.domain == (1, 4, 12)
        assert wide.elements(wide.inputs[0], (1, 1, 5, 4, 3)) == 4 * 13
        grouped = operators.convolution(2, 8, (6, 6), 12, (3, 3), groups=4)
        assert [axis.name for axis in grouped.axes] == ["n", "g", "f", "oh", "ow", "c", "kh", "kw"]
        assert grouped.elements(grouped.inputs[0], (1, 1, 3, 1, 1, 2, 3, 3)) == 2 * 9
        assert grouped.elements(grouped.inputs[1], (1, 4, 3, 1, 1, 2, 3, 3)) == 12 * 2 * 9
        assert math.prod(grouped.extents) * grouped.flops == 2 * (2 * 12 * 4 * 4) * (2 * 3 * 3)


class TestAlignment:
    def test_step_32_on_an_axis_of_100_pads_to_128_and_needs_four_tenths(self) -> None:
        assert allowed_sizes(100, [32], 0.2) == []
        assert allowed_sizes(100, [32], 0.4) == [32]

    def test_the_last_axis_grows_in_transactions_of_32_bytes(self) -> None:
        steps = shared_steps(SQUARE, (4, 4), V100, 0.0)
        assert steps[0][:3] == [4, 8, 16]
        assert steps[1][:3] == [8, 16, 32]

    def test_rows_in_one_bank_wait_for_one_another_until_padded(self) -> None:
        assert [conflicts(stride, 32, UNITS) for stride in (32, 8, 9, 33)] == [32, 8, 1, 1]
        program = TileProgram((8, 4), (128, 64), (8,))
        assert shared_bytes(SQUARE, program, UNITS) == 4 * (128 * 9 + 8 * 64)

    def test_no_larger_block_can_fill_whole_warps(self) -> None:
        counts = [[frozenset({3, 9})], [frozenset({32}), frozenset({64})]]
        assert alignable(counts, (0, 0), (128, 256, 384, 512)) is False
        counts[0] = [frozenset({3, 4})]
        assert alignable(counts, (0, 0), (128, 256, 384, 512)) is True


class TestWaves:
    def test_few_blocks_fill_schedulers_by_their_warps(self) -> None:
        assert utilization(100, 8, 2, UNITS) == pytest.approx(400 / 640) == 0.625

    def test_one_block_too_many_takes_a_second_wave(self) -> None:
        assert utilization(160, 8, 2, UNITS) == 1.0
        assert utilization(161, 8, 2, UNITS) == pytest.approx(0.503, abs=5e-4)

    def test_the_share_of_dram_that_few_warps_reach_is_that_of_the_published_table(
        self, shared_data: Path
    ) -> None:
        """Roller's look-up table of small kernels (V100, GB/s): the curve is within 8 % of the peak
        everywhere.
        """
        table = shared_data / "compilation/roller_osdi22/policy_glbmem_small_lookup.csv"
        rows = [line.split(",") for line in table.read_text(encoding="utf-8-sig").split()[1:]]
        peak = max(float(row[2]) for row in rows)
        for warps, blocks, reached in rows:
            ours = bandwidth_share(int(blocks), int(warps), 32, UNITS)
            assert ours == pytest.approx(float(reached) / peak, abs=0.08)


class TestConstruction:
    def test_a_square_product_ends_in_the_first_saturated_aligned_tile(self) -> None:
        found = construct(SQUARE, V100)
        first = found.programs[0]
        assert len(found.programs) == 10
        assert not found.border
        assert first == TileProgram((8, 4), (128, 64), (8,))
        assert (first.threads, grid(SQUARE, first)) == (256, 128)
        assert construct(SQUARE, V100, wanted=1).programs == (first,)

    def test_a_short_reduction_is_never_bound_by_computation_and_takes_the_border(self) -> None:
        thin = operators.matmul(65536, 1024, 2)
        found = construct(thin, V100)
        assert found.border
        assert all(is_aligned(program, UNITS) and fits(thin, program, V100) for program in found.programs)
        assert min(estimate(thin, program, V100).bound for program in found.programs) == "DRAM"

    def test_a_small_output_is_halved_until_every_unit_has_a_block(self) -> None:
        small = operators.matmul(256, 256, 1024)
        program = TileProgram((8, 8), (64, 64), (8,))
        assert grid(small, program) == 16
        halved = shrunk(small, program, V100, "all")
        assert halved == TileProgram((2, 2), (16, 16), (8,))
        assert grid(small, halved) == 256
        assert grid(small, shrunk(small, program, V100, "one")) == 128
        assert shrunk(small, program, V100, "none") == program

    def test_shrinking_ends_at_single_points_however_small_the_grid(self) -> None:
        tiny = operators.matmul(3, 2, 5)
        assert shrunk(tiny, TileProgram((1, 1), (3, 2), (5,)), V100).shared == (1, 1)

    def test_prime_sizes_are_padded(self) -> None:
        found = construct(operators.matmul(127, 131, 137), V100)
        assert found.programs
        assert found.slack > 0

    def test_a_construction_that_meets_its_bound_says_so(self) -> None:
        few, enough = construct(SQUARE, V100, budget=4), construct(SQUARE, V100)
        assert few.programs and few.ended_early and few.examined <= 4 < enough.examined
        assert construct(SQUARE, V100, wanted=1).ended_early is False

    def test_rows_that_no_warp_of_threads_can_hold_are_read_twice(self) -> None:
        # 32 rows of 512 take 64 KiB; three passes over the tensor (two reads, one write) take 1.5 times two.
        rows = operators.rowwise((65536, 512), (1,))
        priced = [estimate(rows, program, V100) for program in construct(rows, V100).programs]
        best = min(priced, key=lambda one: one.seconds)
        assert best.dram_bytes == 3 * 65536 * 512 * 4
        assert best.seconds < 2 * best.dram_bytes / V100.dram_bandwidth

    def test_where_the_largest_thread_tile_fills_no_warps_smaller_ones_are_tried(self) -> None:
        # 42 rows by 2^7 83^2 columns without padding: threads of 32 columns leave 4 x 21 of them to a block
        # at most.
        odd = operators.matmul(42, 128 * 83 * 83, 96)
        found = construct(odd, V100, slack=0.0)
        assert found.border
        assert [program.threads % 128 for program in found.programs] == [0] * len(found.programs)

    def test_a_device_without_units_is_refused(self) -> None:
        with pytest.raises(BadInput, match="no sheet of units"):
            _ = Architecture(resolve("tpu-v4").device).units

    def test_more_shared_memory_is_used_where_there_is_more(self) -> None:
        a100 = Architecture(resolve("a100").device)
        wide = replace(UNITS, shared_bytes_per_block=2048)
        cramped = construct(SQUARE, Architecture(replace(V100.device, units=wide)))
        assert all(shared_bytes(SQUARE, program, wide) <= 2048 for program in cramped.programs)
        assert construct(SQUARE, a100).programs


sizes = st.integers(1, 300)


@st.composite
def expressions(draw: st.DrawFn) -> Expression:
    kind = draw(st.sampled_from(["matmul", "conv", "pool", "elementwise", "reduce", "softmax"]))
    m, n, k = draw(sizes), draw(sizes), draw(sizes)
    if kind == "matmul":
        return operators.matmul(m, n, k, draw(st.sampled_from(["float32", "float16"])))
    if kind == "conv":
        groups = draw(st.sampled_from([1, 2, 4]))
        return tiled_form(
            operators.convolution(2, 4 * groups, (m + 4, 9), 8 * groups, (3, 1), stride=(2, 1), groups=groups)
        )
    if kind == "pool":
        return operators.pooling(1, m, (n + 4, k + 4), (3, 2), stride=(2, 2))
    if kind == "elementwise":
        return operators.elementwise((m, n), ((m, n), (n,)))
    return (operators.reduction if kind == "reduce" else operators.rowwise)((m, 7 * n), (1,))


@settings(max_examples=40)
@given(expressions())
def test_every_operator_gets_programs_that_fit_cover_it_and_cost_time(expression: Expression) -> None:
    found = construct(expression, V100)
    assert 1 <= len(found.programs) <= 10 + expression.rowwise
    assert found.examined <= BUDGET
    for program in found.programs:
        assert fits(expression, program, V100)
        assert all(1 <= small <= large for small, large in zip(program.register, program.shared, strict=True))
        blocks = grid(expression, program)
        assert blocks == tiles(expression.domain, program.shared)
        assert blocks * math.prod(program.shared) >= math.prod(expression.domain)
        priced = estimate(expression, program, V100)
        assert 0 < priced.seconds < math.inf
        floor = sum(
            math.prod(access.shape) / access.repeats * access.element_bytes for access in expression.inputs
        )
        assert expression.kind == "pooling" or priced.dram_bytes >= 0.4 * floor
