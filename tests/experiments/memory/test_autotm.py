"""AutoTM: the objective of the program is the step that is simulated, and every freedom makes it no worse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.core import registry
from experiments.core.errors import Infeasible
from experiments.core.progress import silent
from experiments.core.spec import load_workload
from experiments.hardware import resolve
from experiments.memory.interface import (
    CopyRate,
    InPlace,
    Offload,
    PlaceTensor,
    Prefetch,
    WaitForCopy,
    machine_of,
    violations,
)
from experiments.memory.planning.offsets import Overflow
from experiments.memory.policies.autotm import AutoTM, lowered
from experiments.memory.simulator import Simulator
from experiments.sources import step_of
from tests.experiments.memory.steps import MS, chain, five_layers, machine, make_step, plan_of

MB = 10**6


def one_tensor_between_two_kernels():
    """The card: 1,200 MB made by kernel 0, used by kernel 2; kernel 1 lasts 120 ms and needs the room."""
    rows = [
        ("kernel_0", "forward", 10 * MS, [], ["t"]),
        ("kernel_1", "forward", 120 * MS, [], ["big"]),
        ("kernel_2", "backward", 10 * MS, ["t"], []),
    ]
    return make_step(rows, {"t": 1200 * MB, "big": 1200 * MB})


def planned(step, on, **knobs):
    plan = plan_of(AutoTM(gap=0.0, nodes=1000, least_bytes=1, **knobs), step, on)
    assert violations(plan, step, on) == []
    return plan, Simulator(step, on).run(plan)


def test_synchronous_moves_of_1200_mb_at_12_gb_per_second_add_100_and_100_ms():
    step, on = one_tensor_between_two_kernels(), machine(1200 * MB, bandwidth=12e9)
    plan, done = planned(step, on, mode="synchronous")
    assert [type(move) for move in plan.moves] == [Offload, WaitForCopy, Prefetch]
    assert plan.notes["objective"] == pytest.approx(0.2)
    assert done.step_time == pytest.approx(0.14 + 0.2)


def test_an_asynchronous_write_hides_beside_a_kernel_of_120_ms():
    # Kernel 1 needs no room here, kernel 2 does: the tensor may leave beside kernel 1 and is read
    # synchronously.
    rows = [
        ("kernel_0", "forward", 10 * MS, [], ["t"]),
        ("kernel_1", "forward", 120 * MS, [], []),
        ("kernel_2", "forward", 10 * MS, [], ["big"]),
        ("kernel_3", "backward", 10 * MS, ["t"], []),
    ]
    step, on = make_step(rows, {"t": 1200 * MB, "big": 1200 * MB}), machine(1200 * MB, bandwidth=12e9)
    plan, done = planned(step, on, mode="asynchronous")
    assert plan.notes["objective"] == pytest.approx(0.1)
    assert done.step_time == pytest.approx(0.15 + 0.1)


def test_a_copy_longer_than_its_kernel_prolongs_it_by_the_difference():
    step = five_layers()
    plan, done = planned(step, machine(step.live_peak - 1))
    assert done.step_time <= step.seconds + plan.notes["objective"] + 1e-12
    assert plan.notes["carried_out"]


@pytest.mark.torch
@pytest.mark.parametrize(("name", "batch"), [("resnet18", 32), ("gpt2-tiny", 16)])
def test_times_known_it_is_never_slower_than_rules_that_know_none(name, batch):
    pytest.importorskip("torch")
    hardware = resolve("v100-16g")
    workload = load_workload({"source": f"zoo:{name}", "options": {"batch": batch}})
    step, _ = step_of(workload, hardware.device, silent)
    for share in (0.85, 0.7, 0.5):
        on = replace(machine_of(hardware), capacity=int(share * step.live_peak))
        times = {}
        for policy in ("autotm", "tflms", "autoswap"):
            plan = plan_of(registry.create("memory", policy, {}), step, on)
            assert violations(plan, step, on) == []
            times[policy] = Simulator(step, on).estimate(plan).step_time
        assert times["autotm"] == min(times.values()), (share, times)


def with_remote(capacity: int, bandwidth: float = 4.0):
    rate = CopyRate(bandwidth)
    return machine(capacity, bandwidth=bandwidth, remote_bytes=2**40, remote_write=rate, remote_read=rate)


@pytest.mark.parametrize("capacity", [16, 11, 6, 3])
def test_every_freedom_makes_the_objective_no_worse(capacity):
    step, on = chain(16), with_remote(capacity)
    found = {mode: planned(step, on, mode=mode) for mode in ("static", "synchronous", "asynchronous")}
    objectives = [plan.notes["objective"] for plan, _ in found.values()]
    assert objectives == sorted(objectives, reverse=True)
    for mode, (plan, done) in found.items():
        counted = step.seconds + plan.notes["objective"]
        assert done.step_time <= counted + 1e-9
        assert mode == "asynchronous" or done.step_time == pytest.approx(counted)


@pytest.mark.parametrize("share", [0.95, 0.85, 0.7, 0.5])
def test_copies_that_may_overlap_are_never_worse_than_copies_between_ops_of_microseconds(share):
    pytest.importorskip("torch")
    hardware = resolve("local")
    options = {"batch": 8, "sequence": 64}
    step, _ = step_of(load_workload({"source": "zoo:gpt2-tiny", "options": options}), hardware.device, silent)
    on = replace(machine_of(hardware), capacity=int(share * step.live_peak))
    knobs = {"least_bytes": 1024, "gap": 0.0, "nodes": 1000}
    between, overlapped = (
        plan_of(AutoTM(mode=mode, **knobs), step, on).notes["objective"]
        for mode in ("synchronous", "asynchronous")
    )
    assert overlapped <= between * (1 + 1e-6)


def test_static_places_for_life_and_never_copies():
    step, on = chain(8), with_remote(5, bandwidth=0.5)
    plan, done = planned(step, on, mode="static")
    assert {type(move) for move in plan.moves} == {InPlace}
    assert done.moved_bytes["out"] == 0 and done.peak_bytes <= 5


def test_a_parameter_may_begin_and_end_the_step_elsewhere():
    rows = [
        ("use", "forward", 1.0, ["w"], ["x"]),
        ("long", "forward", 9.0, ["x"], ["big"]),
        ("end", "backward", 1.0, ["big"], []),
    ]
    step = make_step(rows, {"w": 4, "x": 1, "big": 4}, persistent=["w"])
    plan, done = planned(step, machine(6, bandwidth=1.0), mode="synchronous")
    assert any(isinstance(move, PlaceTensor) for move in plan.moves)
    assert plan.notes["objective"] == pytest.approx(4 + 4)
    # It is only read, so that its copy on the host stays good and the second departure is free after all.
    assert done.peak_bytes == 5 and done.step_time == pytest.approx(11 + 4)


def test_without_remote_memory_nothing_can_be_static():
    with pytest.raises(Infeasible, match="in place"):
        plan_of(AutoTM(mode="static"), chain(8), machine(5))


def test_nothing_moves_where_all_fits_and_too_little_room_is_named():
    step = chain(8)
    assert plan_of(AutoTM(), step, machine(step.live_peak)).moves == ()
    with pytest.raises(Infeasible, match="op 9 "):
        plan_of(AutoTM(least_bytes=2), step, machine(4))  # every tensor has one byte and may not move


def test_limits_fall_by_half_the_excess_at_most_a_tenth_around_the_uses_of_what_did_not_fit():
    # t0 is used at op 0 only: ops 0..10 are near.
    step = make_step(
        [(f"op_{i}", "forward", 1.0, [], [f"t{i}"]) for i in range(30)], {f"t{i}": 1 for i in range(30)}
    )
    limits = lowered(np.full(30, 100.0), step, Overflow(110, (0,)), 100)
    assert limits.tolist() == [95.0] * 11 + [100.0] * 19
    assert lowered(np.full(30, 100.0), step, Overflow(300, (0,)), 100)[0] == 90.0


def test_fragmentation_makes_it_solve_again_until_an_allocator_finds_room():
    step = uneven()
    on = machine(step.live_peak * 6 // 10, bandwidth=1e5)
    once = plan_of(AutoTM(least_bytes=1, allocator="first_fit", rounds=1), step, on)
    assert once.notes["address_end"] > on.capacity
    plan, done = planned(step, on, allocator="first_fit", rounds=12)
    assert plan.notes["solutions"] > 1 and plan.notes["address_end"] is None
    assert done.pool_bytes <= on.capacity


def uneven():
    """A chain of twelve layers whose sizes are the digits of pi, in KiB."""
    digits = (3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 9)
    rows = [(f"layer_{i}", "forward", 1.0, [f"a{i - 1}"] if i else [], [f"a{i}"]) for i in range(12)]
    for i in reversed(range(12)):
        rows.append((f"back_{i}", "backward", 1.0, [f"a{i}", *([f"g{i + 1}"] if i < 11 else [])], [f"g{i}"]))
    sizes = {f"{kind}{i}": 1024 * digit for i, digit in enumerate(digits) for kind in "ag"}
    return make_step(rows, sizes)
