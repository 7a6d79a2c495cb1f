"""DeepTM: the game of placing tensors, and what is learned from playing it."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.memory.interface import (
    CopyRate,
    InPlace,
    MemoryPlan,
    Offload,
    PlaceTensor,
    Prefetch,
    violations,
)
from experiments.memory.policies.deeptm import DeepTM, QLearner
from experiments.memory.policies.deeptm.placement_game import Board, Turn, bin_of
from experiments.memory.simulator import Simulator
from tests.experiments.memory.steps import chain, machine, make_step, plan_of


def three_uses():
    """A parameter used by the first and the last op, an activation between."""
    rows = [
        ("first", "forward", 1.0, ["w"], ["x"]),
        ("middle", "forward", 1.0, [], []),
        ("last", "backward", 1.0, ["w", "x"], []),
    ]
    return make_step(rows, {"w": 4, "x": 2}, persistent=["w"])


def with_remote(capacity: int, bandwidth: float = 4.0):
    rate = CopyRate(bandwidth)
    return machine(capacity, bandwidth=bandwidth, remote_bytes=2**40, remote_write=rate, remote_read=rate)


def ops_of(board: Board, turn: Turn) -> list[int]:
    everything = list(range(len(board.step.ops)))
    return [op for held in board.resident_ops(turn) for op in everything[held]]


def test_turns_around_the_end_come_first_then_births_then_gaps():
    board = Board(three_uses(), with_remote(100), 1)
    assert board.turns == [Turn(0, 2, 0, wraps=True), Turn(1, -1, 0), Turn(0, 0, 2), Turn(1, 0, 2)]
    assert [ops_of(board, turn) for turn in board.turns] == [[0], [0], [1, 2], [1, 2]]
    assert board.least_load.tolist() == [0, 0, 0]


def test_without_memory_to_use_in_place_only_gaps_are_decided():
    board = Board(three_uses(), machine(100), 1)
    assert board.turns == [Turn(0, 2, 0, wraps=True), Turn(0, 0, 2), Turn(1, 0, 2)]
    assert [ops_of(board, turn) for turn in board.turns] == [[], [1], [1]]
    assert board.least_load.tolist() == [6, 0, 6]


def test_a_decision_costs_what_its_copies_and_its_use_do_not_hide():
    # 4 bytes at 4 bytes a second take a second, as long as the op between; in place the last op takes no
    # longer than it is.
    board = Board(three_uses(), with_remote(100), 1)
    gap = Turn(0, 0, 2)
    assert board.cost(gap, here=True, stays=True) == 0
    assert board.cost(gap, here=True, stays=False) == 0
    slow = Board(three_uses(), with_remote(100, bandwidth=1.0), 1)
    assert slow.cost(gap, here=False, stays=True) == pytest.approx(4 - 1)
    assert slow.cost(gap, here=True, stays=False) == pytest.approx((4 - 1) + (4 - 1))
    host = Board(three_uses(), machine(100, bandwidth=1.0), 1)
    assert host.cost(gap, here=True, stays=False) == pytest.approx(4 + 4 - 1)


def test_every_answer_to_the_game_is_a_legal_plan():
    for on in (with_remote(100), machine(100)):
        board = Board(three_uses(), on, 1)
        for answer in range(2 ** len(board.turns)):
            stays = [bool(answer >> i & 1) for i in range(len(board.turns))]
            assert violations(MemoryPlan(board.moves(stays)), board.step, on) == []


def test_what_is_never_here_is_placed_and_used_where_it_lies():
    board = Board(three_uses(), with_remote(100), 1)
    moves = board.moves([False] * 4)
    assert {type(move) for move in moves} == {PlaceTensor, InPlace}
    there_and_back = board.moves([True, True, False, True])
    assert [type(move) for move in there_and_back] == [Offload, InPlace, Prefetch]


@pytest.mark.parametrize("on", [with_remote(12), machine(12, bandwidth=4.0)], ids=["in place", "host"])
def test_it_learns_a_plan_that_fits_and_keeps_its_curve(on):
    step = chain(16)
    policy = DeepTM(least_bytes=1, episodes=30)
    plan = plan_of(policy, step, on)
    assert violations(plan, step, on) == []
    done = Simulator(step, on).run(plan)
    assert done.peak_bytes <= 12
    assert done.step_time == pytest.approx(min(plan.notes["step_times"]))
    assert len(plan.notes["step_times"]) == 31
    assert plan_of(policy, step, on) == plan


def test_with_room_for_all_but_one_byte_training_leaves_almost_all_here():
    step = chain(8)
    plan = plan_of(DeepTM(least_bytes=1, episodes=100), step, with_remote(step.live_peak - 1, bandwidth=0.1))
    elsewhere = {tensor for move in plan.moves if isinstance(move, InPlace) for tensor in move.tensors}
    assert 1 <= len(elsewhere) <= 2
    assert plan_of(DeepTM(), step, with_remote(step.live_peak)).moves == ()


def test_a_refused_overflow_is_punished():
    step = chain(16)
    learner = QLearner(Board(step, with_remote(5), 1), np.random.default_rng(0))
    for _ in range(20):
        learner.episode(1.0)
    returns = [value for row in learner.table.values() for value in row]
    assert min(returns) <= -0.5
    assert max(returns) <= 0


def test_bins_are_fifths():
    assert [bin_of(share, (0.2, 0.4, 0.6, 0.8)) for share in (0.0, 0.2, 0.5, 1.0)] == [0, 1, 2, 4]
