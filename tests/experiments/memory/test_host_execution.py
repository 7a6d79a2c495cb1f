"""Ops on the host's processor, tensors used where they lie, copies that stay good, and memory beyond the
host.
"""

from __future__ import annotations

import json

import pytest

from experiments.core.errors import BadInput, Infeasible
from experiments.hardware import resolve
from experiments.memory.interface import (
    CopyRate,
    CountedBytes,
    InPlace,
    MemoryPlan,
    Offload,
    OnHost,
    PlaceTensor,
    Prefetch,
    load_plan,
    machine_of,
    violations,
)
from experiments.memory.simulator import Simulator
from tests.experiments.memory.steps import machine, make_step

W, A, G = 0, 1, 2


def training():
    """A parameter of 4 bytes, a forward, a backward that makes its gradient, an update; 1 s each, 1 byte a
    second.
    """
    rows = [
        ("forward", "forward", 1.0, ["w"], ["a"]),
        ("backward", "backward", 1.0, ["w", "a"], ["g"]),
        ("adam", "optimizer", 1.0, ["w", "g"], ["w"]),
        ("rest", "optimizer", 1.0, [], []),
    ]
    return make_step(rows, {"w": 4, "a": 2, "g": 4}, ["w"])


def run(*moves, step=None, on=None, space=None):
    step, on = step or training(), on or machine(bandwidth=1.0)
    plan = MemoryPlan(moves, space=space or CountedBytes())
    assert load_plan(json.loads(json.dumps(plan.to_json()))) == plan
    assert violations(plan, step, on) == []
    return Simulator(step, on).run(plan)


def complaints(*moves, on=None):
    return violations(MemoryPlan(moves), training(), on or machine())


def test_the_host_updates_what_lies_there_while_the_device_goes_on():
    # w comes in 0-4; forward 4-5, backward 5-6; g leaves 6-10; the host works 10-15; the device has been idle
    # since 7.
    done = run(PlaceTensor(0, W), Prefetch(0, W, keep=True), Offload(2, G, 1), OnHost(2, 5.0))
    assert done.transfers["back"] == [(0, 4)] and done.transfers["out"] == [(6, 10)]
    assert done.host_busy == [(10, 15)]
    assert done.step_time == 15 and done.stalls["drain"] == 8 and done.stalls["transfer"] == 4
    # The host holds w (4) all the time and g (4) from 6 to 15; the device's copy of w is void from 6 on.
    assert (done.host_peak, done.peak_bytes) == (8, 4 + 2 + 4)
    assert [change for _, _, change in done.log][-2:] == [-4, -4]


def test_what_the_host_made_is_waited_for_and_the_wait_has_two_causes():
    rows = [
        ("seed", "forward", 1.0, [], ["x"]),
        ("lookup", "forward", 1.0, ["x"], ["y"]),
        ("use", "forward", 1.0, ["y"], []),
    ]
    step = make_step(rows, {"x": 2, "y": 3})
    # x leaves 1-3, the host computes 3-7, y comes 7-10: the device, at 1, waits 6 s for the host and 3 for
    # the link.
    done = run(Offload(1, 0, 0), OnHost(1, 4.0), Prefetch(2, 1), step=step)
    assert (done.step_time, done.stalls["host"], done.stalls["transfer"]) == (11, 6, 3)
    assert done.late == {1: 9} and done.host_busy == [(3, 7)]


def test_an_op_on_the_host_needs_its_tensors_there():
    assert complaints(OnHost(2, 1.0))[:2] == [
        "on_host before op 2: tensor 0 (w) has no copy on the host, it is device",
        "on_host before op 2: tensor 2 (g) has no copy on the host, it is device",
    ]
    on_storage = complaints(
        PlaceTensor(0, W, "storage"), Prefetch(0, W, keep=True), Offload(2, G, 1), OnHost(2, 1.0)
    )
    assert on_storage[0] == "on_host before op 2: tensor 0 (w) has no copy on the host, it is device"
    with pytest.raises(Infeasible, match=r"op 2 \(adam.*runs on the host, where tensor 0 has no copy"):
        Simulator(training(), machine()).run(MemoryPlan((OnHost(2, 1.0),)))


def test_a_kept_copy_is_good_until_its_tensor_is_written():
    # g is read once more after it came back: the second copy out moves nothing.
    rows = [
        ("make", "forward", 1.0, [], ["t"]),
        ("work", "forward", 1.0, [], []),
        ("read", "forward", 1.0, ["t"], []),
        ("rest", "forward", 1.0, [], []),
        ("again", "forward", 1.0, ["t"], []),
    ]
    step = make_step(rows, {"t": 1})
    moves = (Offload(1, 0, 0), Prefetch(2, 0, keep=True), Offload(3, 0, 2), Prefetch(4, 0))
    done = run(*moves, step=step)
    assert done.moved_bytes["out"] == 1 and done.moved_bytes["back"] == 2 and done.host_peak == 1
    rows[2] = ("write", "forward", 1.0, ["t"], ["t"])
    assert run(*moves, step=make_step(rows, {"t": 1})).moved_bytes["out"] == 2


def test_tensors_used_in_place_never_take_device_bytes():
    on = machine(bandwidth=1.0, remote_bytes=100, remote_write=CopyRate(1.0), remote_read=CopyRate(1.0))
    done = run(
        PlaceTensor(0, W, "remote"),
        InPlace(0, (W, A), 3.0),
        InPlace(1, (W, A), 2.0),
        InPlace(2, (W,), 1.5),
        on=on,
    )
    assert done.step_time == 3 + 2 + 1.5 + 1 and done.peak_bytes == 4  # only the gradient
    assert done.peaks["remote"] == 6 and done.stall_time == 0


def test_an_op_waits_for_what_is_still_on_its_way_to_where_it_is_used():
    # a leaves 1-3 over the slower of the link and the memory behind it (4 s: 1-5); the backward op then takes
    # 2 s.
    on = machine(bandwidth=1.0, remote_bytes=100, remote_write=CopyRate(0.5), remote_read=CopyRate(1.0))
    done = run(Offload(1, A, 0, "remote"), InPlace(1, (A,), 2.0), on=on)
    assert done.stalls["transfer"] == 4 and done.step_time == 5 + 2 + 1 + 1
    assert done.moved_bytes["out"] == done.moved_bytes["remote_write"] == 2 and done.moved_bytes["write"] == 0


def test_only_byte_addressable_tiers_can_be_used_in_place():
    assert (
        complaints(
            PlaceTensor(0, W, "storage"), InPlace(0, (W,), 1.0), InPlace(1, (W,), 1.0), InPlace(2, (W,), 1.0)
        )[0]
        == "in_place before op 0: tensor 0 (w) is storage"
    )
    assert complaints(InPlace(0, (W,), 1.0))[0] == "in_place before op 0: tensor 0 (w) is device"
    assert "does not use tensors [2]" in complaints(InPlace(0, (G,), 1.0))[0]
    assert "the op runs elsewhere already" in complaints(InPlace(3, (), 1.0), OnHost(3, 1.0))[0]
    assert complaints(PlaceTensor(0, W, "remote"), Prefetch(0, W), Offload(3, W, 2, "remote"))[0].endswith(
        "no remote"
    )


def test_every_tier_has_a_capacity_and_storage_has_pages():
    moves = (Offload(1, A, 0, "storage"), Prefetch(1, A))
    paged = machine(bandwidth=1.0, storage_page=8)
    assert run(*moves, on=paged).peaks["storage"] == 8
    assert run(*moves, on=paged).moved_bytes["write"] == 8
    full = machine(bandwidth=1.0, storage_page=8, storage_bytes=7)
    assert violations(MemoryPlan(moves), training(), full) == [
        "capacity: offload before op 1: storage lacks 1 bytes (1 B)"
    ]
    with pytest.raises(Infeasible, match="storage do not fit: 1 bytes are missing of 7"):
        Simulator(training(), full).run(MemoryPlan(moves))


def test_host_scratch_of_an_op_there_counts():
    step = training()
    step.ops.workspace[2] = 10
    moves = (PlaceTensor(0, W), Prefetch(0, W, keep=True), Offload(2, G, 1), OnHost(2, 5.0))
    assert run(*moves, step=step).host_peak == 8 + 10
    with pytest.raises(Infeasible, match="host do not fit"):
        Simulator(step, machine(bandwidth=1.0, host_bytes=17)).run(MemoryPlan(moves))


def test_a_node_may_have_memory_beyond_the_host():
    on = machine_of(resolve({"device": "a100-40g", "remote": "optane-pmem"}))
    assert on.remote_bytes == 6 * 128 * 2**30 and on.remote_page == 256
    assert on.remote_write.bandwidth == 13.9e9 and on.remote_read.bandwidth == 39.4e9
    assert on.back_time(39.4e9, "remote") == pytest.approx(39.4e9 / on.back.bandwidth, rel=1e-3)
    assert machine_of(resolve("a100-40g")).remote_bytes == 0
    assert resolve({"device": "a100-40g", "remote": "cxl"}).node.remote.read_bandwidth == 36e9
    assert machine_of(resolve("a100-40g")).host_flops > 1e12
    with pytest.raises(BadInput, match="nvme-gen4 is not byte-addressable"):
        resolve({"device": "a100-40g", "remote": "nvme-gen4"})


def test_on_a_processor_that_is_its_own_host_an_op_there_takes_its_time():
    rows = [
        ("seed", "forward", 1.0, [], ["x"]),
        ("side", "forward", 1.0, ["x"], ["y"]),
        ("rest", "forward", 2.0, [], []),
    ]
    step = make_step(rows, {"x": 2, "y": 1})
    moves = (Offload(1, 0, 0), OnHost(1, 4.0))
    # x is copied 1-3 and the side op runs 3-7: beside the rest on a device, before it on a processor.
    assert run(*moves, step=step).step_time == 7
    done = run(*moves, step=step, on=machine(bandwidth=1.0, synchronous=True))
    assert (done.step_time, done.stalls["host"], done.stalls["synchronization"]) == (9, 4, 2)
