"""ZeRO-Offload: what lies where, what crosses the link, when the update runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.core.errors import BadInput
from experiments.memory.interface import MemoryPlan, OnHost, load_plan, violations
from experiments.memory.live.schedule import refuse
from experiments.memory.planning.host_update import traffic, update_of
from experiments.memory.policies.zero_offload import ZeroOffload
from experiments.memory.simulator import Simulator
from experiments.workloads.step import KINDS, Step
from tests.experiments.memory.steps import Row, machine, make_step, plan_of

LAYERS, SIZE = 4, 1000


def network() -> Step:
    """Four layers of a parameter, a gradient and two states of 1,000 bytes each; a pass takes a second a
    layer.
    """
    rows: list[Row] = [
        (f"f{i}", "forward", 1.0, (f"w{i}", *([f"x{i - 1}"] if i else [])), (f"x{i}",)) for i in range(LAYERS)
    ]
    for i in reversed(range(LAYERS)):
        rows.append((f"b{i}", "backward", 1.0, (f"w{i}", f"x{i}"), (f"g{i}",)))
    rows += [
        (f"u{i}", "optimizer", 0.1, (f"w{i}", f"g{i}", f"m{i}", f"v{i}"), (f"w{i}", f"m{i}", f"v{i}"))
        for i in range(LAYERS)
    ]
    sizes = {f"{kind}{i}": SIZE for kind in "wxgmv" for i in range(LAYERS)}
    step = make_step(rows, sizes, persistent=[f"{kind}{i}" for kind in "wmv" for i in range(LAYERS)])
    for tensor, name in enumerate(step.tensors.name):
        if name[0] in "mv":
            step.tensors.kind[tensor] = KINDS.index("optimizer_state")
    return step


STEP = network()
POLICY = ZeroOffload(adam="bandwidth", always=True)


def test_the_update_is_found_with_its_parameters_states_and_gradients() -> None:
    update = update_of(STEP)
    assert update is not None
    names = STEP.tensors.name
    assert [names[t] for t in update.parameters] == ["w0", "w1", "w2", "w3"]
    assert [names[t] for t in update.states] == ["m0", "v0", "m1", "v1", "m2", "v2", "m3", "v3"]
    assert [(names[t], op) for t, op in update.gradients] == [("g0", 7), ("g1", 6), ("g2", 5), ("g3", 4)]
    # Parameter, momentum and variance in and out, the gradient in: seven times 1,000 bytes a layer.
    assert traffic(STEP, update) == LAYERS * 7 * SIZE


def test_gradients_leave_parameters_return_and_states_never_move() -> None:
    on = machine(9 * SIZE, bandwidth=1e6, host_bandwidth=1e6)
    plan = plan_of(POLICY, STEP, on)
    assert violations(plan, STEP, on) == []
    seen = Simulator(STEP, on).run(plan)
    assert seen.moved_bytes["out"] == LAYERS * SIZE
    assert seen.moved_bytes["back"] == LAYERS * SIZE
    assert seen.peak_bytes <= 9 * SIZE < STEP.live_peak


def test_a_slow_update_is_what_the_step_waits_for() -> None:
    times = []
    for bandwidth in (1e6, 1e4, 1e3):
        on = machine(9 * SIZE, bandwidth=1e6, host_bandwidth=bandwidth)
        plan = plan_of(POLICY, STEP, on)
        assert sum(move.seconds for move in plan.moves if isinstance(move, OnHost)) == pytest.approx(
            28e3 / bandwidth
        )
        times.append(Simulator(STEP, on).run(plan).step_time)
    assert times[0] == pytest.approx(8.0, abs=0.2)
    assert times[0] < times[1] < times[2]
    # The first gradient is there after eight ops; then 28 s of update follow.
    assert times[2] == pytest.approx(8 + 28, abs=0.1)


#: Passes of 8 s, a copy of 0.1 s, an update of 28,000 bytes; a step that waits for the update and one that
#: does not. The first parameter must come before the passes begin; the other copies pass beside them.
DELAYED = [(1e6, 8 + 0.1), (28e3 / 7, 8 + 0.1), (28e3 / 8.2, 8.2), (28e3 / 9, 9.0), (1e3, 28.0)]


@pytest.mark.parametrize(("host_bandwidth", "step_time"), DELAYED)
def test_the_delayed_update_hides_the_shorter_of_passes_and_update(
    host_bandwidth: float, step_time: float
) -> None:
    on = machine(9 * SIZE, bandwidth=1e4, host_bandwidth=host_bandwidth)
    plan = plan_of(replace(POLICY, delayed=True), STEP, on)
    assert violations(plan, STEP, on) == [] and load_plan(plan.to_json()) == plan
    seen = Simulator(STEP, on).steady(plan)
    assert seen.step_time == pytest.approx(step_time)
    assert seen.moved_bytes["out"] == seen.moved_bytes["back"] == LAYERS * SIZE
    # The closed form counts the copies, 0.8 s, with the update.
    closed = plan.notes["delayed_update_step_time"]
    assert isinstance(closed, float)
    assert closed == pytest.approx(max(8, 28e3 / host_bandwidth + 0.8))
    assert closed - 0.8 - 1e-9 <= seen.step_time <= closed + 0.1 + 1e-9
    assert seen.step_time < Simulator(STEP, on).steady(plan_of(POLICY, STEP, on)).step_time


def test_two_versions_of_the_parameters_lie_on_the_host_while_it_updates() -> None:
    on = machine(9 * SIZE, bandwidth=1e4, host_bandwidth=4e3)
    late, now = (
        Simulator(STEP, on).steady(plan_of(replace(POLICY, delayed=delayed), STEP, on))
        for delayed in (True, False)
    )
    assert late.host_peak == now.host_peak + LAYERS * SIZE
    assert late.host_time == pytest.approx(7.0)


def test_updating_one_step_late_is_not_measured() -> None:
    plan = plan_of(ZeroOffload(always=True, delayed=True), STEP, machine(9 * SIZE))
    with pytest.raises(BadInput, match="one step late"):
        refuse(plan)


def test_where_all_fits_nothing_moves_unless_asked() -> None:
    on = machine(STEP.live_peak)
    assert plan_of(ZeroOffload(), STEP, on).moves == MemoryPlan().moves
    assert plan_of(ZeroOffload(always=True), STEP, on).moves
