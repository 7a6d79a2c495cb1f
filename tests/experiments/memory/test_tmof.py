"""TMOF: devices behind one link swap different tensors or take turns."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.core.errors import Infeasible
from experiments.core.spec import load_spec
from experiments.memory.interface import DeviceView, Offload, SharedPlans, violations
from experiments.memory.planning.swaps import Gap
from experiments.memory.policies.tmof import MODES, Tmof, dealt, until_it_fits
from experiments.memory.simulator import Simulator, run_shared
from experiments.run import run
from tests.experiments.memory.steps import chain, machine, make_step, plan_of

MB = 10**6


def two_tensors():
    """Each of x and y, 1,200 MB, could leave beside an op of its own; one of them must."""
    rows = [
        ("make_x", "forward", 0.01, [], ["x"]),
        ("make_y", "forward", 0.30, [], ["y"]),
        ("rest", "forward", 0.30, [], []),
        ("big", "forward", 0.30, [], ["big"]),
        ("wait", "backward", 0.30, [], []),
        ("use", "backward", 0.01, ["y", "x"], []),
    ]
    return make_step(rows, {"x": 1200 * MB, "y": 1200 * MB, "big": 1200 * MB})


def shared(policy: Tmof, step, on) -> SharedPlans:
    simulator = Simulator(step, on)
    view = DeviceView(on, simulator.estimate, np.random.default_rng(0), simulator.split)

    def together(plans: SharedPlans):
        return [done.estimate for done in run_shared(step, plans.plans, on, plans.discipline)]

    return policy.share(step, view, together)


def test_the_same_tensor_at_the_same_time_takes_200_ms_and_at_different_times_100():
    # 1,200 MB over a link of 12 GB a second. x leaves at 10 ms, y at 310 ms.
    step, on = two_tensors(), machine(2400 * MB, bandwidth=12e9)

    def ends(mode: str) -> list[float]:
        plans = shared(Tmof(mode=mode), step, on)
        runs = run_shared(step, plans.plans, on, plans.discipline)
        return [round(done.transfers["out"][0][1] - done.transfers["out"][0][0], 9) for done in runs]

    assert ends("oblivious") == [0.2, 0.2]
    assert ends("disjoint") == [0.1, 0.1]
    assert sorted(ends("bidirectional")) == [0.1, 0.1]


def test_devices_prefer_every_second_tensor_each_from_its_own():
    gaps = [Gap(tensor, 10, 0, 5) for tensor in range(5)]
    assert [gap.tensor for gap in dealt(gaps, 0, 2)] == [0, 2, 4, 1, 3]
    assert [gap.tensor for gap in dealt(gaps, 1, 2)] == [1, 3, 0, 2, 4]
    assert [gap.tensor for gap in dealt(gaps, 0, 1)] == [0, 1, 2, 3, 4]


def test_only_gaps_around_the_highest_load_are_taken_and_no_more_than_needed():
    step = two_tensors()
    gaps = [Gap(0, 1200 * MB, 0, 5), Gap(1, 1200 * MB, 1, 5)]
    assert until_it_fits(step, gaps, 3600 * MB) == []
    assert until_it_fits(step, gaps, 2400 * MB) == gaps[:1]
    assert until_it_fits(step, gaps, 1200 * MB) == gaps


@pytest.mark.parametrize("selection", ["online", "offline"])
@pytest.mark.parametrize("mode", [*MODES, "auto"])
def test_every_device_has_a_legal_plan_that_fits(mode, selection):
    step, on = chain(16), machine(10, bandwidth=2.0)
    plans = shared(Tmof(devices=3, mode=mode, selection=selection, least_bytes=1), step, on)
    assert len(plans.plans) == 3
    assert all(violations(plan, step, on) == [] for plan in plans.plans)
    for done in run_shared(step, plans.plans, on, plans.discipline):
        assert done.peak_bytes <= 10 and done.step_time >= step.seconds


def test_disjoint_devices_solve_for_their_own_share_of_the_tensors():
    """One of x and y must leave: the first device may move x, the second y; on one device alone either may
    go.
    """
    step, on = two_tensors(), machine(2400 * MB, bandwidth=12e9)
    plans = shared(Tmof(mode="disjoint", selection="offline"), step, on).plans
    assert [{move.tensor for move in plan.moves} for plan in plans] == [{0}, {1}]
    same = shared(Tmof(mode="oblivious", selection="offline"), step, on).plans
    assert same[0] == same[1]


def test_auto_is_as_fast_as_the_fastest_mode():
    step, on = chain(16), machine(10, bandwidth=2.0)

    def time(mode: str) -> float:
        plans = shared(Tmof(mode=mode, least_bytes=1), step, on)
        return max(done.step_time for done in run_shared(step, plans.plans, on, plans.discipline))

    times = {mode: time(mode) for mode in (*MODES, "auto")}
    assert times["auto"] == min(times.values())


def test_one_device_alone_gains_nothing_from_any_mode():
    step, on = chain(16), machine(10, bandwidth=2.0)
    plans = {mode: shared(Tmof(devices=1, mode=mode, least_bytes=1), step, on) for mode in MODES}
    moves = {mode: found.plans[0].moves for mode, found in plans.items()}
    assert len(set(moves.values())) == 1
    times = {run_shared(step, p.plans, on, p.discipline)[0].step_time for p in plans.values()}
    assert len(times) == 1


def test_nothing_moves_where_all_fits_and_without_a_trial_the_sets_are_disjoint():
    step = chain(16)
    assert shared(Tmof(), step, machine(step.live_peak)).plans[0].moves == ()
    plan = plan_of(Tmof(least_bytes=1), step, machine(10))
    assert plan.notes["mode"] == "disjoint"
    assert any(isinstance(move, Offload) for move in plan.moves)
    with pytest.raises(Infeasible):
        plan_of(Tmof(least_bytes=2, selection="offline"), step, machine(10))


def test_a_run_gives_the_slowest_of_the_devices():
    spec = {
        "family": "memory",
        "policy": "tmof",
        "knobs": {"devices": 3, "least_bytes": 1},
        "workload": {"source": "zoo:mlp", "options": {"batch": 4096}},
        "hardware": {"device": "a100-40g", "overrides": {"memory_bytes": 40e6}},
    }
    done = run(load_spec(spec))
    assert done.status == "ok", done.reason
    times = done.provenance["step_time_by_device"]
    assert len(times) == 3 and done.metrics["step_time"]["value"] == max(times)
