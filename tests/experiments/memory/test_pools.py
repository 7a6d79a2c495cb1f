"""Allocators with addresses: where tensors lie, what does not fit though there are bytes enough, and laws for
all.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.core.errors import Infeasible
from experiments.memory.interface import MemoryPlan, MemoryPool, Offload, PlaceTensor, Prefetch, violations
from experiments.memory.policies.swap_all import SwapAll
from experiments.memory.simulator import Simulator
from experiments.memory.simulator.pools import allocator
from experiments.memory.simulator.pools.caching import segment_bytes
from tests.experiments.memory.steps import machine, make_step, plan_of
from tests.experiments.memory.test_simulator import steps

MIB = 1 << 20


def pool(kind, capacity=100, sizes=(), **fields):
    return allocator(MemoryPool(kind, granularity=fields.pop("granularity", 1), **fields), capacity, sizes)


def test_first_fit_takes_the_lowest_hole_and_best_fit_the_tightest():
    for kind, expected in (("first_fit", 0), ("best_fit", 50)):
        range_ = pool(kind)
        addresses = [range_.take(i, size) for i, size in enumerate((30, 20, 10, 40))]
        assert addresses == [0, 30, 50, 60]
        range_.give(0)
        range_.give(50)
        assert range_.take(9, 10) == expected
        assert range_.free == 30 and range_.largest == (20 if kind == "first_fit" else 30)


def test_two_ended_serves_named_tensors_from_the_top():
    range_ = pool("two_ended", high=(1, 3))
    assert [range_.take(i, 10) for i in range(4)] == [0, 90, 10, 80]
    assert range_.largest == range_.free == 60
    range_.give(90)
    assert range_.take(3, 5) == 95  # the highest hole, at its upper end


def test_planned_addresses_are_kept_and_what_is_not_named_lies_above_them():
    range_ = pool("planned", sizes=[10, 20, 5], offsets=((0, 0), (1, 5)))
    assert range_.take(0, 10) == 0
    assert range_.take(1, 20) is None  # [5, 25) is not free while [0, 10) is taken
    assert range_.take(2, 5) == 25
    range_.give(0)
    assert range_.take(1, 20) == 5


def test_classes_serve_objects_of_fixed_sizes():
    objects = pool("classes", classes=((40, 1), (10, 3)), serves=((7, 0),))
    assert objects.take(1, 8) == 40 and objects.take(2, 10) == 50
    assert objects.take(7, 8) == 0  # decided, though a small object is free
    assert objects.take(3, 30) is None and objects.take(4, 50) is None
    assert objects.wasted == 2 + 32 and objects.end == 70
    objects.give(0)
    assert objects.take(3, 30) == 0
    with pytest.raises(Infeasible, match="30 more than the device has"):
        pool("classes", 40, classes=((40, 1), (10, 3)))


def test_blocks_of_the_caching_allocator_are_split_merged_and_given_back():
    cache = pool("caching", 44 * MIB, granularity=512)
    assert [segment_bytes(size) // MIB for size in (MIB, MIB + 1, 10 * MIB, 21 * MIB - 1)] == [2, 20, 10, 22]
    first, second = cache.take(0, 100), cache.take(1, MIB)
    assert (first, second, cache.reserved) == (0, 512, 2 * MIB)  # one small segment, split at 512 bytes
    large = cache.take(2, 6 * MIB)
    assert large == 2 * MIB and cache.reserved == 22 * MIB  # 14 MiB of the segment of 20 stay cached
    assert cache.take(3, 13 * MIB) == 8 * MIB  # what is left of it, 1 MiB, is not worth splitting off
    assert cache.take(4, 23 * MIB) is None  # 24 MiB would be needed of the 22 that the device has left
    assert cache.take(4, 22 * MIB) == 22 * MIB
    cache.give(8 * MIB)
    cache.give(large)
    assert cache.largest == 20 * MIB and cache.idle == 20 * MIB
    cache.give(22 * MIB)
    assert cache.take(5, 42 * MIB) == 44 * MIB  # both free segments went back to the device first
    assert cache.reserved == cache.end == 44 * MIB


def out_and_in_again():
    """``a`` and ``b`` lie side by side; ``a`` dies, ``c`` is as large as what is free in sum, but not in one
    piece.
    """
    rows = [
        ("make", "forward", 1.0, [], ["a", "b"]),
        ("use", "forward", 1.0, ["a"], []),
        ("more", "forward", 1.0, [], ["c"]),
        ("end", "backward", 1.0, ["b", "c"], []),
    ]
    return make_step(rows, {"a": 2, "b": 2, "c": 4})


def test_bytes_enough_but_no_hole_names_the_op_the_free_bytes_and_the_largest_hole():
    step, on = out_and_in_again(), machine(6)
    assert Simulator(step, on).run(MemoryPlan()).peak_bytes == 6
    fragmented = MemoryPlan(space=MemoryPool("first_fit", granularity=1))
    with pytest.raises(
        Infeasible, match=r"op 2 \(more.*4 bytes find no hole: 4 bytes are free, the largest hole has 2"
    ):
        Simulator(step, on).run(fragmented)
    ordered = MemoryPlan(space=MemoryPool("two_ended", granularity=1, high=(1,)))
    done = Simulator(step, on).run(ordered)
    assert (done.peak_bytes, done.pool_bytes, done.wasted_bytes) == (6, 6, 0)
    wide = Simulator(step, machine(8)).run(fragmented)
    assert (wide.peak_bytes, wide.pool_bytes, wide.wasted_bytes) == (6, 8, 2)


def test_an_allocation_without_a_hole_waits_for_the_copy_that_leaves_one():
    # b leaves from 1 to 3 and c, at 2, finds its four bytes only when b's are joined with those beside them.
    step, on = out_and_in_again(), machine(6, 1.0)
    plan = MemoryPlan((Offload(1, 1, 0), Prefetch(3, 1)), space=MemoryPool("first_fit", granularity=1))
    assert violations(plan, step, on) == []
    done = Simulator(step, on).run(plan)
    assert done.stalls["space"] == 1 and done.stalls["transfer"] == 2
    assert done.step_time == 4 + 1 + 2


def test_a_prefetch_is_admitted_when_a_hole_holds_it():
    # After op 1 a byte is free on either side of d. w, of two bytes, is fetched when d has died: at 4, not at
    # 2.
    rows = [
        ("make", "forward", 1.0, [], ["a", "d", "e"]),
        ("out", "forward", 1.0, ["a", "e"], []),
        ("work", "forward", 2.0, ["d"], []),
        ("rest", "forward", 1.0, [], []),
        ("use", "forward", 1.0, ["w"], []),
    ]
    step = make_step(rows, {"a": 1, "d": 2, "e": 1, "w": 2}, ["w"])
    moves = (PlaceTensor(0, 3), Prefetch(2, 3), Offload(5, 3, 4))
    counted = Simulator(step, machine(4, 1.0)).run(MemoryPlan(moves))
    placed = Simulator(step, machine(4, 1.0)).run(MemoryPlan(moves, space=MemoryPool("first_fit", 1)))
    assert counted.transfers["back"] == [(2, 4)] and placed.transfers["back"] == [(4, 6)]
    assert placed.stalls["transfer"] == 1 and placed.late == {3: 1}


def test_a_pool_that_names_what_is_not_there_is_a_violation():
    step, on = out_and_in_again(), machine(6)

    def complaints(**fields):
        return violations(MemoryPlan(space=MemoryPool(**fields)), step, on)

    assert complaints(kind="slab") == [
        "pool: 'slab' is none of first_fit, best_fit, two_ended, classes, planned, caching"
    ]
    assert complaints(kind="two_ended", high=(3,)) == ["pool: names tensor 3 of 3"]
    assert complaints(kind="planned", granularity=4, offsets=((0, 2),)) == [
        "pool: tensor 0 at address 2, not a multiple of 4"
    ]
    assert complaints(kind="classes", granularity=1, classes=((2, 1),), serves=((2, 0),)) == [
        "pool: tensor 2 of 4 bytes is served by objects of 2"
    ]
    assert complaints(kind="first_fit", granularity=0) == ["pool: granularity 0"]


KINDS = st.sampled_from(["first_fit", "best_fit", "two_ended", "planned", "classes", "caching"])


@settings(max_examples=200)
@given(
    KINDS, st.lists(st.tuples(st.integers(0, 40), st.integers(0, 10)), max_size=60), st.sampled_from([1, 4])
)
def test_ranges_never_overlap_and_free_bytes_are_right(kind, requests, grain):
    fields = {
        "two_ended": {"high": tuple(range(0, 60, 2))},
        "classes": {"classes": ((8, 6), (40, 3)), "serves": ((5, 1),)},
        "planned": {"offsets": tuple((i, 40 * (i % 4)) for i in range(0, 60, 3))},
    }.get(kind, {})
    scale, capacity = (MIB // 4, 64 * MIB) if kind == "caching" else (1, 168)
    pool_ = pool(kind, capacity, [40] * 60, granularity=512 if kind == "caching" else grain, **fields)
    held: dict[int, int] = {}
    empty = pool_.free
    for tensor, (size, victim) in enumerate(requests):
        address = pool_.take(tensor, size * scale)
        if address is not None and size:
            assert all(address >= a + s or a >= address + size * scale for a, s in held.items())
            assert kind == "caching" or address + size * scale <= capacity
            held[address] = size * scale
        assert pool_.free <= empty - sum(held.values())
        assert pool_.largest <= pool_.free
        if victim < len(held):
            gone = sorted(held)[victim]
            pool_.give(gone)
            del held[gone]
    for address in held:
        pool_.give(address)
    assert pool_.free == empty and pool_.end <= capacity
    if kind not in ("classes",):
        assert pool_.largest == empty


@settings(max_examples=100)
@given(steps(), KINDS, st.integers(1, 200), st.sampled_from([0.5, 8.0]))
def test_a_pool_with_room_changes_nothing_and_one_without_never_helps(step, kind, capacity, bandwidth):
    fields = {"classes": ((64, 40),)} if kind == "classes" else {}
    plan = plan_of(SwapAll(), step, machine(capacity, bandwidth))
    pooled = MemoryPlan(plan.moves, space=MemoryPool(kind, 1 if kind != "caching" else 512, **fields))
    endless = machine(bandwidth=bandwidth)
    free, told = Simulator(step, endless).run(plan), Simulator(step, endless).run(pooled)
    assert free.step_time == told.step_time and free.peak_bytes == told.peak_bytes
    try:
        done = Simulator(step, machine(capacity, bandwidth)).run(pooled)
    except Infeasible as reason:
        assert reason.missing is None or reason.missing > 0
        return
    assert done.pool_bytes is not None and done.peak_bytes <= done.pool_bytes <= capacity
