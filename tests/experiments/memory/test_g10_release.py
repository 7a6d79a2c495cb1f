"""The release's engines on steps small enough to follow by hand: a page takes 4.096 s on every lane."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.core.errors import BadInput, Infeasible
from experiments.memory.interface import (
    Drop,
    MemoryPlan,
    Offload,
    PagingRelease,
    Prefetch,
    TwoEndedRelease,
    WaitForCopy,
    WaitingRelease,
    load_plan,
    violations,
)
from experiments.memory.interface.machine import CopyRate
from experiments.memory.interface.paged import PAGE, PagedStep
from experiments.memory.simulator import Simulator
from experiments.memory.simulator.g10_release.allocator import PageAllocator
from experiments.memory.simulator.g10_release.batches import GIB, BlockLane
from experiments.memory.simulator.g10_release.fault_time import Faults, FaultTimes
from experiments.memory.simulator.g10_release.lanes import WRITE
from experiments.memory.simulator.g10_release.waiting import WaitingStep
from tests.experiments.memory.steps import chain, machine, make_step

P = PAGE
#: One page a second to and from storage, and one more on the link for the host.
ON = replace(machine(), out=CopyRate(2 * P), back=CopyRate(2 * P), write=CopyRate(P), read=CopyRate(P))


def test_pages_are_given_out_from_both_ends_and_holes_grow_together():
    space = PageAllocator(10)
    assert [space.take(2, right=False), space.take(3, right=True), space.take(2, right=False)] == [0, 7, 2]
    assert (space.largest, space.free) == (3, 3)
    space.give(0, 2)
    assert space.take(3, right=False) == 4, "the lowest hole that fits"
    assert space.take(3, right=False) is None
    space.give(2, 2)
    assert (space.starts, space.lengths) == ([0], [4])


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=40), st.randoms(use_true_random=False))
def test_an_allocator_given_everything_back_is_one_hole(requests, random):
    space, held = PageAllocator(64), []
    for pages, right in requests:
        start = space.take(pages, right)
        if start is not None:
            assert all(start + pages <= s or s + p <= start for s, p in held)
            held.append((start, pages))
        if held and random.random() < 0.4:
            space.give(*held.pop(random.randrange(len(held))))
    for entry in held:
        space.give(*entry)
    assert (space.starts, space.lengths, space.free) == ([0], [64], 64)


def forward_and_back():
    """x (2 pages) is made by op 0 and used again by op 4; the ops between take a second each."""
    return make_step(
        [
            ("load", "forward", 1.0, [], ["x"]),
            ("layer", "forward", 1.0, ["x"], ["y"]),
            ("makeLoss", "forward", 1.0, ["y"], ["z"]),
            ("grad", "backward", 1.0, ["z"], ["g"]),
            ("last", "backward", 1.0, ["g", "x"], []),
        ],
        {"x": 2 * P, "y": P, "z": P, "g": P},
    )


def run(plan: MemoryPlan, step=None, **changes):
    step = step or forward_and_back()
    return Simulator(step, replace(ON, **changes)).run(plan)


def flashneuron(*moves):
    return MemoryPlan(moves, space=TwoEndedRelease())


def test_flashneuron_drains_its_writes_before_the_loss_and_fetches_on_demand():
    write = Offload(2, 0, 1, "storage")
    late = run(flashneuron(write))
    assert late.step_time == 5.0, "a write due at the loss op is never issued"
    assert late.moved_bytes["out"] == 0
    # Issued at op 1 (t=1) and two seconds long, it holds the loss op (t=2) up until 3. The prefetcher wants
    # more room than x after op 2 (t=4), two pages of 8 beside the largest op of 3, and has it: x is there at
    # 6.
    early = run(flashneuron(Offload(1, 0, 0, "storage")), capacity=8 * P)
    assert early.stalls["synchronization"] == 1.0
    assert early.moved_bytes == {"out": 2 * P, "back": 2 * P, "write": 2 * P, "read": 2 * P}
    assert early.step_time == 7.0
    # Without that room it comes on demand when op 4 (t=5) touches it.
    assert run(flashneuron(Offload(1, 0, 0, "storage")), capacity=5 * P).step_time == 8.0


def waiting(*moves, factor=1.0):
    return MemoryPlan(moves, space=WaitingRelease(space_factor=factor))


def test_a_planned_read_is_waited_for_only_once_it_has_its_pages():
    # Written at op 2 (t=2 to 4), wanted back at op 4 (t=4): it has its pages and is fetching when op 4 looks.
    assert run(waiting(Offload(2, 0, 1, "storage"), Prefetch(4, 0))).step_time == 7.0
    # Here x waits for pages: z lies at page 0, y at 1, page 2 is free. y leaves at t=1, x takes pages 1 and 2
    # and is used at once, two seconds before its copy is there.
    step = WaitingStep(PagedStep(forward_and_back()), replace(ON, capacity=3 * P), MemoryPlan(), 1.0)
    for tensor in (2, 1):
        assert step.try_allocate(tensor, right=False)
    step.lanes.queue(WRITE, 1, P, 0.0)
    step._want(0)
    assert list(step.reads) == [0]
    step.make_resident(0, op=4)
    assert (step.now, step.place[0], step.fetching) == (1.0, 1, {0})


def test_a_host_copy_comes_back_over_the_hosts_lane():
    found = run(waiting(Offload(2, 0, 1, "host"), Prefetch(4, 0)))
    assert found.moved_bytes == {"out": 2 * P, "back": 2 * P, "write": 0, "read": 0}
    on_demand = run(waiting(Offload(2, 0, 1, "host")))
    assert on_demand.moved_bytes["read"] == 2 * P, "on demand it comes over storage's lane, wherever it is"


def test_a_read_of_a_resident_tensor_takes_a_second_range_and_loses_the_first():
    assert run(waiting(Prefetch(2, 0))).peak_bytes == 6 * P
    assert run(waiting()).peak_bytes == 4 * P


def test_what_finds_no_pages_is_infeasible_with_the_op_and_the_hole():
    with pytest.raises(Infeasible, match="largest hole has 0") as caught:
        run(waiting(), capacity=3 * P)
    assert "op 2 (makeLoss)" in str(caught.value)


@pytest.mark.parametrize("release", [TwoEndedRelease(), WaitingRelease(), PagingRelease()])
def test_with_room_for_everything_and_no_moves_a_step_takes_its_ops_time(release):
    step = chain(6)
    roomy = replace(
        machine(),
        capacity=2**40,
        out=CopyRate(1e12),
        back=CopyRate(1e12),
        write=CopyRate(2e11),
        read=CopyRate(2e11),
    )
    found = Simulator(step, roomy).run(MemoryPlan(space=release))
    assert found.step_time == pytest.approx(found.ideal_time)
    assert found.stall_time == pytest.approx(0)
    assert found.moved_bytes["out"] == 0


def test_pages_cross_the_link_in_batches_of_fifty_and_storage_gets_whole_pages_of_them():
    lane = BlockLane(15.754 * GIB, 3.2 * GIB)
    assert lane.rate == 50 * 4096 / (15599 / 1.2e9)
    assert lane.storage_rate == 10 * 4096 / (15599 / 1.2e9)
    end = lane.move(4 << 20, 0.0, storage=True)
    assert end == lane.storage_free == (4 << 20) / lane.storage_rate
    assert lane.ready(lane.free, storage=False)
    assert not lane.ready(lane.free, storage=True), "storage is still busy, the link is not"


def test_faults_of_inputs_and_outputs_cost_what_the_profile_says():
    step = forward_and_back()
    on = replace(ON, back=CopyRate(10 * GIB), read=CopyRate(2 * GIB))
    plain = FaultTimes(PagedStep(step), on)
    assert plain.of(1, Faults(storage=[0, 0], other=[10**10, 0])) == pytest.approx(1.0)
    # From storage at 2 GB/s, the rest beside it at 8.
    assert plain.of(1, Faults(storage=[10**9, 0], other=[8 * 10**9, 0])) == pytest.approx(1.0)
    cycles = {"fault_cycles": [int(4.9 * 1.2e9)] * 5, "input_fault_cycles": [int(2.5 * 1.2e9)] * 5}
    slow = FaultTimes(PagedStep(replace(step, facts={"g10": cycles})), on)
    # Cut to 4, 2 and 1 seconds: 2 pages read in 2 s, 1 page written in 1 s.
    assert slow.of(1, Faults(other=[2 * P, P])) == pytest.approx(3.0)
    assert slow.of(1, Faults(storage=[P, 0])) == pytest.approx(65 / 45)


def paging(*moves, **options):
    return MemoryPlan(moves, space=PagingRelease(block_bytes=P, **options))


def test_uvm_moves_dead_tensors_and_deepum_drops_them():
    fast = replace(
        ON,
        out=CopyRate(1000 * GIB),
        back=CopyRate(1000 * GIB),
        write=CopyRate(500 * GIB),
        read=CopyRate(500 * GIB),
    )
    step = forward_and_back()
    tight = replace(fast, capacity=3 * P)
    uvm = Simulator(step, tight).run(paging(keeps_dead=True))
    # x leaves for z, y for g, z for x; in the second step x finds g dead and in its place, and so on.
    assert uvm.moved_bytes["back"] > 0
    deepum = Simulator(step, tight).run(paging(lookahead=1))
    assert deepum.moved_bytes["out"] < uvm.moved_bytes["out"]
    assert uvm.peak_bytes == deepum.peak_bytes == 3 * P


def test_a_free_hint_gives_the_pages_back_at_once():
    fast = replace(
        ON,
        out=CopyRate(1000 * GIB),
        back=CopyRate(1000 * GIB),
        write=CopyRate(500 * GIB),
        read=CopyRate(500 * GIB),
    )
    hints = [Drop(3, 1), Drop(4, 2), Drop(5, 0), Drop(5, 3)]
    found = Simulator(forward_and_back(), replace(fast, capacity=4 * P)).run(paging(*hints, keeps_dead=True))
    assert found.moved_bytes == {"out": 0, "back": 0, "write": 0, "read": 0}
    assert found.step_time == pytest.approx(found.ideal_time, rel=1e-6)


def test_bytes_that_pass_a_lane_fit_into_the_time_it_had():
    slow = replace(ON, capacity=3 * P, out=CopyRate(GIB / 1e6), back=CopyRate(GIB / 1e6))
    found = Simulator(forward_and_back(), slow).run(paging(keeps_dead=True))
    for channel in ("out", "back"):
        assert 0 < found.moved_bytes[channel] <= found.step_time * 1e3 * 1.001


def test_a_plan_for_the_artifact_survives_json_and_names_only_what_there_is():
    plan = waiting(Offload(2, 0, 1, "host"), Prefetch(4, 0), factor=4.0)
    assert load_plan(plan.to_json()) == plan
    step = forward_and_back()
    assert violations(plan, step, ON) == []
    assert len(violations(waiting(Prefetch(9, 0), Prefetch(1, 77), WaitForCopy(1, 0)), step, ON)) == 3
    with pytest.raises(BadInput, match=r"plan\.space: unknown model 'steam'"):
        load_plan({"space": {"model": "steam"}})
