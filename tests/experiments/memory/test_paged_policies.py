"""Policies that let page faults fill the device: OC-DNN and DRAGON."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.memory.interface import MemoryPolicy, Prefetch, violations
from experiments.memory.policies.daemon import Daemon
from experiments.memory.policies.dragon import Dragon
from experiments.memory.policies.oc_dnn import OcDnn, destinations
from experiments.memory.simulator import MemorySimulation, Simulator
from experiments.workloads.step import Step
from tests.experiments.memory.steps import Row, machine, make_step, plan_of

MiB = 1 << 20
LAYERS = [("f0", "forward", 0.01, ("w", "x"), ("a",)), ("f1", "forward", 0.01, ("w", "a"), ("b",))]
STEP = make_step(
    [*LAYERS, ("b1", "backward", 0.01, ("a", "b"), ("g",)), ("b0", "backward", 0.01, ("x", "g"), ("w",))],
    {"w": 8 * MiB, "x": 4 * MiB, "a": 16 * MiB, "b": 16 * MiB, "g": 16 * MiB},
    persistent=("w", "x"),
)


def chain(count: int, size: int) -> Step:
    """Layers in a row with a weight of a block each, and their backward pass."""
    rows: list[Row] = []
    for i in range(count):
        rows.append((f"f{i}", "forward", 0.01, (f"w{i}", *([f"x{i - 1}"] if i else [])), (f"x{i}",)))
    for i in reversed(range(count)):
        rows.append(
            (
                f"b{i}",
                "backward",
                0.02,
                (f"w{i}", f"x{i}", *([f"g{i + 1}"] if i < count - 1 else [])),
                (f"g{i}",),
            )
        )
    sizes = {f"w{i}": 2 * MiB for i in range(count)}
    sizes |= {f"{kind}{i}": size for kind in "xg" for i in range(count)}
    return make_step(rows, sizes, persistent=[f"w{i}" for i in range(count)])


POLICIES = [OcDnn(), OcDnn(variant="naive"), Dragon(), Dragon(read_ahead=0, host_cache=False), Daemon()]


def carried_out(policy: MemoryPolicy, capacity: int, bandwidth: float = 1e9) -> MemorySimulation:
    on = machine(capacity, bandwidth)
    plan = plan_of(policy, STEP, on)
    assert violations(plan, STEP, on) == []
    return Simulator(STEP, on).run(plan)


def test_what_the_next_layer_writes_is_asked_for_while_a_layer_runs() -> None:
    names = STEP.tensors.name
    assert [(move.at, names[move.tensor]) for move in destinations(STEP) if isinstance(move, Prefetch)] == [
        (0, "b"),
        (1, "g"),
        (2, "w"),
    ]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_a_step_that_fits_moves_nothing_after_the_first(policy: MemoryPolicy) -> None:
    seen = carried_out(policy, 256 * MiB)
    assert seen.step_time == seen.ideal_time
    assert not any(seen.moved_bytes.values())


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("capacity", [48, 40, 20])
def test_less_memory_than_the_step_needs_costs_time_and_never_exceeds_the_device(
    policy: MemoryPolicy, capacity: int
) -> None:
    seen = carried_out(policy, capacity * MiB)
    assert seen.peak_bytes <= capacity * MiB
    assert seen.step_time > seen.ideal_time
    assert seen.stall_time == pytest.approx(seen.step_time - seen.ideal_time)


@pytest.mark.parametrize("bandwidth", [1e8, 1e9, 1e10])
@pytest.mark.parametrize("layers", [5, 8, 12])
def test_prefetch_and_advice_are_not_slower_than_naive_where_two_layers_fit(
    bandwidth: float, layers: int
) -> None:
    step = chain(16, 16 * MiB)
    on = machine(layers * 16 * MiB, bandwidth)
    naive, ours = (
        Simulator(step, on).run(plan_of(OcDnn(variant=v), step, on)) for v in ("naive", "optimized")
    )
    assert ours.step_time <= naive.step_time


def test_an_op_larger_than_the_device_runs() -> None:
    assert int(STEP.op_need.max()) > 20 * MiB
    assert carried_out(Dragon(), 20 * MiB).page_faults > 0


def test_reading_ahead_saves_faults_and_time() -> None:
    without = carried_out(Dragon(read_ahead=0, coalesced=1), 40 * MiB)
    ahead = carried_out(Dragon(coalesced=1), 40 * MiB)
    assert ahead.page_faults < without.page_faults
    assert ahead.step_time < without.step_time


def test_storage_is_read_only_when_the_host_cannot_keep_what_leaves() -> None:
    on = machine(40 * MiB, 1e9)
    small = replace(on, host_bytes=8 * MiB)
    plan = plan_of(Dragon(), STEP, on)
    assert Simulator(STEP, on).run(plan).moved_bytes["read"] == 0
    assert Simulator(STEP, small).run(plan).moved_bytes["read"] > 0


@pytest.mark.parametrize("bandwidth", [1e8, 1e9, 1e10])
def test_lines_beside_compressed_blocks_beat_blocks_alone(bandwidth: float) -> None:
    for capacity in (24, 40, 48):
        blocks = carried_out(Daemon(movement="block"), capacity * MiB, bandwidth)
        assert carried_out(Daemon(), capacity * MiB, bandwidth).step_time < blocks.step_time
