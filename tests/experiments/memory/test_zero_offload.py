"""ZeRO-Offload: what lies where, what crosses the link, when the update runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.core.errors import BadInput
from experiments.memory.interface import (
    MemoryPlan,
    Offload,
    OnHost,
    PlaceTensor,
    Prefetch,
    load_plan,
    violations,
)
from experiments.memory.live.schedule import refuse
from experiments.memory.planning.host_update import traffic, update_of
from experiments.memory.policies.zero_offload import ZeroOffload
from experiments.memory.simulator import Simulator
from experiments.workloads.step import KINDS, Step
from tests.experiments.memory.steps import Row, machine, make_step, plan_of

LAYERS, SIZE = 4, 1000


ROWS: list[Row] = [
    *((f"f{i}", "forward", 1.0, (f"w{i}", *([f"x{i - 1}"] if i else [])), (f"x{i}",)) for i in range(LAYERS)),
    *((f"b{i}", "backward", 1.0, (f"w{i}", f"x{i}"), (f"g{i}",)) for i in reversed(range(LAYERS))),
    *(
        (f"u{i}", "optimizer", 0.1, (f"w{i}", f"g{i}", f"m{i}", f"v{i}"), (f"w{i}", f"m{i}", f"v{i}"))
        for i in range(LAYERS)
    ),
]


def network(rows: list[Row] = ROWS) -> Step:
    """Four layers of a parameter, a gradient and two states of 1,000 bytes each; a pass takes a second a
    layer.
    """
    sizes = {f"{kind}{i}": SIZE for kind in "wxgmvt" for i in range(LAYERS)}
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
    # The closed form leaves out the first parameter's copy.
    closed = plan.notes["delayed_update_step_time"]
    assert isinstance(closed, float)
    assert closed == pytest.approx(max(8, 28e3 / host_bandwidth))
    assert closed - 1e-9 <= seen.step_time <= closed + 0.1 + 1e-9
    assert seen.step_time < Simulator(STEP, on).steady(plan_of(POLICY, STEP, on)).step_time


def test_the_update_hides_behind_no_pass_and_its_copies_hide_behind_it() -> None:
    # Each layer's update takes a second and its copy a tenth: only the last copy is seen.
    on = machine(9 * SIZE, bandwidth=1e4, host_bandwidth=7e3)
    plan = plan_of(POLICY, STEP, on)
    assert violations(plan, STEP, on) == [] and load_plan(plan.to_json()) == plan
    simulator = Simulator(STEP, on)
    assert simulator.run(plan).step_time == pytest.approx(8 + 0.1 + 4 + 0.1)
    assert simulator.run(plan, iterations=4).step_time == pytest.approx(8 + 0.1 + 4 + 0.1)
    late = simulator.steady(plan_of(replace(POLICY, delayed=True), STEP, on))
    assert late.step_time == pytest.approx(8 + 0.1)


@settings(max_examples=60)
@given(st.floats(500, 1e6), st.floats(500, 1e6), st.booleans())
def test_a_step_takes_its_passes_and_its_update_unless_delayed(
    bandwidth: float, host_bandwidth: float, decay: bool
) -> None:
    step = decayed() if decay else STEP
    on = machine(9 * SIZE, bandwidth=bandwidth, host_bandwidth=host_bandwidth)
    for iterations in (1, 4):
        plan = plan_of(POLICY, step, on)
        assert violations(plan, step, on) == []
        seen = Simulator(step, on).run(plan, iterations=iterations)
        seconds = sum(move.seconds for move in plan.moves if isinstance(move, OnHost))
        assert seen.step_time >= 8 + seconds - 1e-9
        assert seen.step_time <= 8 + seconds + 8 * SIZE / bandwidth + 1e-9


def decayed() -> Step:
    """The network whose optimizer shrinks all parameters before it updates them, as AdamW does."""
    rows = [row for row in ROWS if row[1] != "optimizer"]
    rows += [(f"d{i}", "optimizer", 0.1, (f"w{i}",), (f"w{i}",)) for i in range(LAYERS)]
    rows += [row for row in ROWS if row[1] == "optimizer"]
    return network(rows)


@pytest.mark.parametrize(("host_bandwidth", "step_time"), DELAYED)
def test_a_parameter_that_is_written_twice_is_one_step_late_all_the_same(
    host_bandwidth: float, step_time: float
) -> None:
    step, on = decayed(), machine(9 * SIZE, bandwidth=1e4, host_bandwidth=host_bandwidth)
    seen = Simulator(step, on).steady(plan_of(replace(POLICY, delayed=True), step, on))
    assert seen.step_time == pytest.approx(step_time)


def test_parameters_are_back_when_all_of_an_update_by_kinds_of_ops_has_ended() -> None:
    """All first ops of the update, then all last ones: the host's kernel still takes one parameter after the
    other, so that the copies hide.
    """
    on = machine(9 * SIZE, bandwidth=1e4, host_bandwidth=7e3)
    plan = plan_of(POLICY, decayed(), on)
    assert Simulator(decayed(), on).run(plan).step_time == pytest.approx(8 + 0.1 + 4 + 0.1)


def test_a_place_with_a_copy_is_on_both_sides_from_step_to_step() -> None:
    step, on = STEP, machine(bandwidth=1e4)
    both = MemoryPlan((PlaceTensor(0, 0, copy=True),))
    assert load_plan(both.to_json()) == both
    faults = violations(both, step, on)
    assert faults == ["tensor 0 (w0) begins with a copy on host and ends without"]  # the update writes it
    free = MemoryPlan((PlaceTensor(0, 0, copy=True), Offload(1, 0, 0), Prefetch(6, 0, keep=True)))
    seen = Simulator(step, on).run(free)
    assert seen.moved_bytes["out"] == 0 and seen.moved_bytes["back"] == SIZE


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
