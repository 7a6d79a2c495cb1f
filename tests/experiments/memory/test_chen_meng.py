"""Meng et al.: which maps stay, and which node triggers a swap-in."""

from __future__ import annotations

from experiments.memory.interface import Offload, Prefetch, violations
from experiments.memory.planning.graph import DataFlow, between, members
from experiments.memory.planning.swaps import Gap
from experiments.memory.policies.chen_meng import ChenMeng, trigger
from experiments.memory.simulator import Simulator
from tests.experiments.memory.steps import MS, chain, machine, make_step, plan_of


def nodes_in_a_chain():
    """Ten nodes of 10 ms; node 8 reads again what node 0 made."""
    rows = [("node_0", "forward", 10 * MS, [], ["t0"])]
    for i in range(1, 10):
        read = [f"t{i - 1}", "t0"] if i == 8 else [f"t{i - 1}"]
        rows.append((f"node_{i}", "forward" if i < 5 else "backward", 10 * MS, read, [f"t{i}"]))
    return make_step(rows, {f"t{i}": 15 for i in range(10)})


def test_the_swap_in_is_triggered_by_node_5_which_ends_20_ms_before_the_reader():
    # The copy takes 15 ms: node 5 ends at 60, node 6 at 70, and 65 is the limit.
    flow = DataFlow(nodes_in_a_chain())
    assert trigger(flow, Gap(0, 15, 1, 8), 15 * MS) == 5 + 1
    assert (
        trigger(flow, Gap(0, 15, 1, 8), 1.0) == 3
    )  # none is early enough: the one after the producer's reader


def test_completion_times_are_longest_paths_not_sums():
    # b and c do not depend on each other, so d completes after 1 + 5 + 1.
    rows = [
        ("a", "forward", 1.0, [], ["x"]),
        ("b", "forward", 5.0, ["x"], ["y"]),
        ("c", "forward", 3.0, ["x"], ["z"]),
        ("d", "forward", 1.0, ["y", "z"], ["w"]),
    ]
    flow = DataFlow(make_step(rows, {"x": 1, "y": 1, "z": 1, "w": 1}))
    assert flow.completion == [1.0, 6.0, 4.0, 7.0]
    assert flow.level == [0, 1, 1, 2]
    assert list(members(flow.ancestors[3])) == [0, 1, 2]
    assert list(members(flow.ancestors[3] & flow.by_level[1] & between(2, 3))) == [2]


def test_the_shortest_lived_maps_stay_and_the_longest_lived_leave():
    # 16 maps of a byte; the largest op needs 3, so a threshold of 8 leaves room for the loss (no bytes) and
    # five.
    step = chain(16)
    plan = plan_of(ChenMeng(threshold=8.0), step, machine())
    names = [step.tensors.name[move.tensor] for move in plan.moves if isinstance(move, Offload)]
    assert plan.notes["kept_maps"] == 1 + 5
    assert names == [f"a{i}" for i in range(11)]


def test_without_a_threshold_it_swaps_just_enough_to_fit():
    step = chain(16)
    assert plan_of(ChenMeng(), step, machine(step.live_peak)).moves == ()
    for capacity in range(5, step.live_peak):
        on = machine(capacity, bandwidth=2.0)
        plan = plan_of(ChenMeng(), step, on)
        assert violations(plan, step, on) == []
        assert Simulator(step, on).run(plan).peak_bytes <= capacity
        assert any(isinstance(move, Prefetch) for move in plan.moves)
