"""Rammer's schedule on the smallest cases that can be worked out by hand, its laws on random graphs, and its
claims.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.compilation.interface.architecture import UnitShare
from experiments.compilation.interface.blocks import (
    BlockOperator,
    BlockSchedule,
    KernelGrid,
    OperatorWork,
    VirtualDevice,
    violations,
)
from experiments.compilation.planning.blocks import operator_of
from experiments.compilation.policies.rammer import Rammer
from experiments.compilation.policies.rammer.fusion import fuse
from experiments.compilation.policies.rammer.grouping import THRESHOLD, Grouping
from experiments.compilation.policies.rammer.layout import laid_out, waves
from experiments.compilation.simulator.rtasks import busy_units, lanes, play

US = 1e-6
MACHINE = VirtualDevice(units=80, sync=1 * US)


def operator(name: str, blocks: int, microseconds: float, *reads: str) -> BlockOperator:
    kernel = KernelGrid(blocks, microseconds * US)
    return BlockOperator(name, kernel, kernel, reads)


def scheduled(
    *operators: BlockOperator, machine: VirtualDevice = MACHINE, **choices: object
) -> BlockSchedule:
    grouping = Grouping(machine, **choices)  # type: ignore[arg-type]
    return BlockSchedule(machine, operators, tuple(grouping.groups(operators)))


A, B = operator("a", 40, 10), operator("b", 40, 10)


def test_two_halves_of_the_device_run_side_by_side() -> None:
    """Forty blocks of 10 us each on eighty units: 10 us together, 20 one after the other."""
    schedule = scheduled(A, B)
    assert len(schedule.groups) == 1
    assert play(schedule).seconds == pytest.approx(10 * US)
    assert schedule.serial == pytest.approx(20 * US)
    assert play(schedule).utilization == pytest.approx(1.0)


def test_what_reads_both_waits_and_synchronizes() -> None:
    """80 blocks of 5 us after them: 10 + 1 + 5 = 16 us instead of 25."""
    members = [A, B, operator("c", 80, 5, "a", "b")]
    together = laid_out(members, {entry.name: entry.fast for entry in members}, MACHINE)
    alone = BlockSchedule(MACHINE, tuple(members), (together,))
    assert play(alone).seconds == pytest.approx(16 * US)
    assert alone.serial == pytest.approx(25 * US)
    # A second launch of 4 us costs more than the wait.
    assert len(scheduled(*members, machine=dataclasses.replace(MACHINE, launch=4 * US)).groups) == 1
    assert len(scheduled(*members).groups) == 2


def test_a_chain_of_full_kernels_is_not_grouped() -> None:
    """Two kernels that fill the device: 10 + 1 + 10 = 21 us in company, 20 alone, so they stay alone."""
    chain = operator("a", 80, 10), operator("b", 80, 10, "a")
    together = laid_out(chain, {entry.name: entry.fast for entry in chain}, MACHINE)
    assert together.seconds == pytest.approx(21 * US)
    schedule = scheduled(*chain)
    assert [group.why for group in schedule.groups] == ["the only kernel of its group"] * 2
    assert play(schedule).seconds == pytest.approx(20 * US)


def test_twice_as_many_blocks_as_units_take_two_waves() -> None:
    assert KernelGrid(160, 10 * US).alone(80) == pytest.approx(20 * US)
    assert play(scheduled(operator("a", 160, 10))).seconds == pytest.approx(20 * US)
    assert KernelGrid(161, 10 * US).alone(80) == pytest.approx(30 * US)


def test_a_wave_of_full_kernels_is_given_up() -> None:
    schedule = scheduled(operator("a", 80, 1), operator("b", 120, 1))
    assert {group.why for group in schedule.groups} == {"every kernel of the group fills the device"}


def test_a_launch_costs_more_than_a_wait_so_the_chain_is_grouped() -> None:
    machine = dataclasses.replace(MACHINE, launch=4 * US)
    narrow = [operator("a", 10, 10), operator("b", 10, 10, "a"), operator("c", 10, 10, "b")]
    schedule = scheduled(*narrow, machine=machine)
    assert len(schedule.groups) == 1
    assert play(schedule).seconds == pytest.approx((4 + 3 * 10 + 2) * US)


def test_an_operator_that_is_not_made_of_blocks_ends_a_group() -> None:
    machine = dataclasses.replace(MACHINE, launch=4 * US)
    library = dataclasses.replace(operator("b", 10, 10, "a"), divisible=False)
    schedule = scheduled(operator("a", 10, 10), library, operator("c", 10, 10, "b"), machine=machine)
    assert len(schedule.groups) == 3


def test_waves_are_levels_by_the_longest_way() -> None:
    graph = [A, operator("c", 1, 1, "a"), B, operator("d", 1, 1, "c", "b")]
    assert [[entry.name for entry in wave] for wave in waves(graph)] == [["a", "b"], ["c"], ["d"]]


def crowd(count: int) -> list[BlockOperator]:
    """Fast alone: 64 blocks of 1 us. Thrifty: 4 blocks of 3 us, a fifth of the unit-seconds."""
    return [BlockOperator(f"m{n}", KernelGrid(64, 1 * US), KernelGrid(4, 3 * US)) for n in range(count)]


def test_kernels_in_company_are_the_thrifty_ones_beyond_the_threshold() -> None:
    """Five kernels of 64 blocks are 320, not above the threshold: five waves of 64 on 80 units. Six are."""
    five, six = (scheduled(*crowd(count), choice=THRESHOLD) for count in (5, 6))
    assert {entry.kernel.blocks for entry in five.groups[0].placements} == {64}
    assert {entry.kernel.blocks for entry in six.groups[0].placements} == {4}
    assert play(six).seconds == pytest.approx(3 * US)
    # The paper compares: 320 blocks on 80 units are 4 us, the thrifty ones 3.
    assert play(scheduled(*crowd(5))).seconds == pytest.approx(3 * US)


@st.composite
def programs(draw: st.DrawFn) -> list[BlockOperator]:
    found: list[BlockOperator] = []
    for number in range(draw(st.integers(1, 12))):
        reads = draw(st.lists(st.sampled_from(found), max_size=3)) if found else []
        fast, thrifty = (
            KernelGrid(draw(st.integers(1, 20)), draw(st.integers(1, 9)) * US) for _ in ("fast", "thrifty")
        )
        names = tuple(dict.fromkeys(entry.name for entry in reads))
        divisible = draw(st.booleans()) or number % 3 > 0
        found.append(BlockOperator(f"op{number}", fast, thrifty, names, divisible))
    return found


@settings(max_examples=60)
@given(programs(), st.integers(1, 9), st.sampled_from([0.0, 4 * US]), st.booleans())
def test_no_unit_runs_two_blocks_at_once_and_reads_wait(
    operators: list[BlockOperator], units: int, launch: float, merge: bool
) -> None:
    schedule = scheduled(*operators, machine=VirtualDevice(units, US, launch), merge=merge)
    assert violations(schedule) == []
    played = play(schedule)
    finished = {piece.operator: float(piece.finishes.max()) for piece in played.pieces}
    for piece in played.pieces:
        reads = next(entry.reads for entry in operators if entry.name == piece.operator)
        assert all(finished[name] <= piece.starts.min() + 1e-12 for name in reads)
        assert (
            int(np.rint((piece.finishes - piece.starts).sum() / piece.kernel.seconds)) == piece.kernel.blocks
        )
    _, busy = busy_units(played.pieces)
    assert busy.min() >= 0
    assert busy.max() <= units
    for lane in lanes(played.pieces, 10**6):
        pairs = itertools.pairwise(lane["events"])
        assert all(left[1] <= right[0] + 1e-12 for left, right in pairs)
    assert played.seconds == pytest.approx(schedule.seconds)
    assert played.seconds <= schedule.serial * (1 + 1e-12)


UNIT = UnitShare(count=80, flops=1e11, bytes=1e10, latency=1 * US)


def work(name: str, target: str, elements: int, *reads: str, flops: float = 0.0) -> OperatorWork:
    return OperatorWork(name, target, flops, 8.0 * elements, elements, 4.0 * elements, reads)


def test_elementwise_ops_join_what_makes_their_input() -> None:
    """relu(x @ w + b) is one kernel; x + y after two products holds one of them; a value read
    twice is kept.
    """
    one = [work("p", "aten.mm.default", 64), work("b", "aten.add.Tensor", 64, "p")]
    (kernel,) = fuse([*one, work("r", "aten.relu.default", 64, "b")])
    assert (kernel.name, kernel.target, kernel.parts) == ("r", "aten.mm.default", 3)
    assert kernel.bytes == 3 * 8 * 64 - 2 * 2 * 4 * 64
    two = [work("p", "aten.mm.default", 64), work("q", "aten.mm.default", 64)]
    assert [entry.name for entry in fuse([*two, work("s", "aten.add.Tensor", 64, "p", "q")])] == ["q", "s"]
    twice = [*one, work("c", "aten.tanh.default", 64, "p")]
    assert len(fuse(twice)) == 3


def test_a_product_alone_is_cut_small_and_in_company_large() -> None:
    """256 outputs of 64 kB: alone in 64 blocks of 4 outputs (1 us and 1/64 of the work), in company in one
    block.
    """
    product = operator_of(work("p", "aten.mm.default", 256, flops=131072.0), UNIT)
    assert product.fast.blocks == 64
    assert product.thrifty.blocks == 1
    assert product.thrifty.area < product.fast.area


def test_the_policy_never_takes_longer_than_its_baselines() -> None:
    """Eight gates of a cell, their sums, one product of all: launches cost 4 us each."""
    gates = [work(f"g{n}", "aten.mm.default", 256, flops=131072.0) for n in range(8)]
    pairs = [work(f"s{n}", "aten.add.Tensor", 256, f"g{2 * n}", f"g{2 * n + 1}") for n in range(4)]
    works = [*gates, *pairs, work("t", "aten.mm.default", 256, *(f"s{n}" for n in range(4)), flops=131072.0)]
    seconds = {
        schedule: play(Rammer(schedule=schedule).plan(works, UNIT, 4 * US)).seconds
        for schedule in ("kernels", "fused", "rtasks")
    }
    assert seconds["kernels"] > seconds["fused"] > seconds["rtasks"]
    assert len(Rammer().plan(works, UNIT, 4 * US).groups) == 1
