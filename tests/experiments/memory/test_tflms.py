"""TFLMS: swaps by level distance, and the tuner that plays memory."""

from __future__ import annotations

import pytest

from experiments.memory.interface import Offload, Prefetch, WaitForCopy, violations
from experiments.memory.planning.graph import DataFlow
from experiments.memory.planning.swaps import Gap
from experiments.memory.policies.tflms import Tflms, TflmsV1, Tuner
from experiments.memory.policies.tflms.level_swaps import INS, OUTS, LevelSwaps, Settings
from experiments.memory.simulator import Simulator
from tests.experiments.memory.steps import MS, chain, machine, make_step, plan_of


def ten_levels():
    """The chain of the card: the tensor of level i is read at level i + 1 and, of the first five, at level 9
    - i.
    """
    rows = []
    for i in range(10):
        read = ([f"t{i - 1}"] if i else []) + ([f"t{9 - i}"] if i > 5 else [])
        rows.append((f"op_{i}", "forward" if i < 5 else "backward", 10 * MS, read, [f"t{i}"]))
    return make_step(rows, {f"t{i}": 1 for i in range(10)})


def names(plan, step, kind=Offload):
    return [step.tensors.name[move.tensor] for move in plan.moves if isinstance(move, kind)]


def test_a_threshold_of_4_swaps_the_tensors_whose_readers_are_9_7_and_5_levels_away():
    step = ten_levels()
    swaps = LevelSwaps(step).swaps(Settings(threshold=4, ahead=1))
    assert [(step.tensors.name[s.gap.tensor], s.gap.before) for s in swaps] == [
        ("t0", 9),
        ("t1", 8),
        ("t2", 7),
    ]


def test_two_levels_ahead_of_level_9_the_trigger_is_at_level_6():
    found = LevelSwaps(ten_levels()).trigger(Gap(0, 1, 1, 9), producer=0, ahead=2)
    assert found == 6


def test_version_1_swaps_every_forward_to_backward_edge_or_the_first_ones():
    step = ten_levels()
    flow = DataFlow(step)
    chosen = [step.tensors.name[s.tensor] for s in TflmsV1().chosen(step, flow)]
    assert chosen == ["t0", "t1", "t2", "t3", "t4"]
    assert [s.produced for s in TflmsV1(n_tensors=2).chosen(step, flow)] == [0, 1]
    # t4 is read once, by the next op: there is no gap to swap it in.
    assert names(plan_of(TflmsV1(), step, machine(5)), step) == ["t0", "t1", "t2", "t3"]


def test_version_1_triggers_by_the_chain_rule_where_the_next_level_reads_backwards():
    # One level below t0's producer op_1 made t1, which op_8 reads: op_8 triggers the swap-in for op_9.
    step = ten_levels()
    flow = DataFlow(step)
    assert TflmsV1().trigger(step, flow, Gap(0, 1, 1, 9)) == 8
    assert TflmsV1(strategy="direct_order", lb=2).trigger(step, flow, Gap(0, 1, 1, 9)) == 6


def test_readers_within_groupby_levels_share_a_swap_in():
    # x is read at levels 1, 5, 7.
    rows = [(f"op_{i}", "forward", 1.0, [f"t{i - 1}"] if i else [], [f"t{i}"]) for i in range(9)]
    rows = [(n, p, s, [*r, "t0"] if n in ("op_5", "op_7") else r, w) for n, p, s, r, w in rows]
    swaps = LevelSwaps(make_step(rows, {f"t{i}": 1 for i in range(9)}))
    gaps = [(s.gap.after, s.gap.before) for s in swaps.swaps(Settings(threshold=2))]
    assert gaps == [(1, 5), (5, 7)]
    together = [(s.gap.after, s.gap.before) for s in swaps.swaps(Settings(threshold=2, groupby=2))]
    assert together == [(1, 5)]


def test_blocking_copies_are_waited_for_and_fetched_on_demand():
    step = ten_levels()
    plan = plan_of(Tflms(threshold=4, sync_mode=OUTS | INS), step, machine(4))
    assert names(plan, step, WaitForCopy) == ["t0", "t1", "t2"]
    assert [move.at for move in plan.moves if isinstance(move, Prefetch)] == [7, 8, 9]


def test_the_tuner_seeks_the_largest_value_that_passes_and_records_every_pass():
    class ThresholdsUpTo11(LevelSwaps):
        def play(self, settings, room):
            return settings.threshold <= 11

    tuner = Tuner(ThresholdsUpTo11(ten_levels()), 0.0)
    assert tuner.largest(1, 40, lambda x: Settings(threshold=x)) == 11
    assert [(play["threshold"], play["fits"]) for play in tuner.plays] == [
        (21, False),
        (11, True),
        (16, False),
        (13, False),
        (12, False),
    ]


@pytest.mark.parametrize("policy", [Tflms(), TflmsV1()])
def test_a_chain_fits_in_two_thirds_of_its_peak(policy):
    step = chain(30)
    assert plan_of(policy, step, machine(step.live_peak)).moves == ()
    on = machine(20, bandwidth=2.0)
    plan = plan_of(policy, step, on)
    assert violations(plan, step, on) == []
    assert Simulator(step, on).run(plan).peak_bytes <= 20


def test_tuned_settings_swap_no_more_than_the_smallest_ones():
    step = chain(30)
    tuned = plan_of(Tflms(), step, machine(24))
    assert tuned.notes["threshold"] > 1
    assert tuned.notes["plays"][0] == {"threshold": 1, "ahead": 1, "groupby": 0, "sync": 0, "fits": True}
    assert len(tuned.moves) < len(plan_of(Tflms(threshold=1, ahead=1, groupby=0), step, machine(24)).moves)
