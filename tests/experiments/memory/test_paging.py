"""Demand paging: a device that is a cache of blocks. One block here is 1,024 bytes and takes a second to
move.
"""

import pytest

from experiments.memory.interface import MemoryPlan, Prefetch
from experiments.memory.interface.space import (
    CACHED_STORAGE,
    CorrelationPaging,
    DemandPaging,
    LinePaging,
    Paging,
    ReadAheadPaging,
)
from experiments.memory.simulator.paging import PagedRun
from experiments.memory.simulator.prepared import Prepared
from experiments.memory.simulator.report import MemorySimulation
from experiments.workloads.step import Step
from tests.experiments.memory.steps import Row, machine, make_step

BLOCK = 1024


def pages(order: str) -> Step:
    """One op of a second for each letter, which reads the persistent block of that name."""
    names = sorted(set(order))
    rows = [(f"read {name}", "forward", 1.0, (name,), ()) for name in order]
    return make_step(rows, dict.fromkeys(names, BLOCK), persistent=names)


def run(
    step: Step,
    slots: int,
    moves: tuple[Prefetch, ...] = (),
    kind: type[Paging] = DemandPaging,
    **options: object,
) -> PagedRun:
    paging = kind(**{"block_bytes": BLOCK, "fault_latency": 0.0, "iterations": 1, **options})  # type: ignore[arg-type]
    prepared = Prepared(step, machine(slots * BLOCK, bandwidth=float(BLOCK)))
    return PagedRun(prepared, MemoryPlan(moves, space=paging), paging)


def faults(pager: PagedRun) -> int:
    pager.run()
    return pager.faults


def test_five_pages_twice_through_four_slots_fault_ten_times() -> None:
    assert faults(run(pages("ABCDEABCDE"), 4)) == 10


def test_reading_one_ahead_leaves_six_faults() -> None:
    assert faults(run(pages("ABCDEABCDE"), 4, kind=ReadAheadPaging, window=1)) == 6


def test_first_in_first_out_ignores_hits() -> None:
    # C pushes A out although A was used last; the least recently used would be B.
    assert faults(run(pages("ABACA"), 2, eviction="fifo")) == 4
    assert faults(run(pages("ABACA"), 2)) == 3


def test_a_fault_stops_compute_for_its_latency_and_its_transfer() -> None:
    seen = run(pages("AB"), 2, fault_latency=0.25).run()
    assert seen.step_time == pytest.approx(2 * (0.25 + 1) + 2)
    assert seen.stalls["fault"] == pytest.approx(2.5)
    assert seen.moved_bytes["back"] == 2 * BLOCK


def test_when_everything_fits_the_second_step_moves_nothing_and_is_exactly_ideal() -> None:
    seen = run(pages("ABC"), 3, iterations=2).run()
    assert seen.step_time == seen.ideal_time == 3.0
    assert not any(seen.moved_bytes.values())


def test_clean_blocks_are_dropped_and_dirty_ones_written_back() -> None:
    rows = [("write A", "forward", 1.0, (), ("A",)), ("B", "forward", 1.0, ("B",), ())]
    step = make_step(rows, {"A": BLOCK, "B": BLOCK}, persistent=("A", "B"))
    seen = run(step, 1).run()
    assert seen.moved_bytes["out"] == BLOCK  # A only: B is clean
    # A in 1 s, write 1 s, A out 1 s, B in 1 s, read 1 s
    assert seen.step_time == pytest.approx(5.0)


def test_a_hint_fetches_beside_compute() -> None:
    step = pages("AB")
    assert run(step, 2).run().step_time == pytest.approx(4.0)
    # B is asked for when A is: it queues behind A's demand, no: before it, and both are there after two
    # seconds.
    hinted = run(step, 2, (Prefetch(0, 1),)).run()
    assert hinted.step_time == pytest.approx(4.0)
    longer = pages("AAB")
    assert run(longer, 2, (Prefetch(1, 1),)).run().step_time == pytest.approx(1 + 1 + 1 + 1)


def chain(n: int) -> Step:
    """n activations in a row, read again in reverse: forward and backward of a chain."""
    names = [f"x{i}" for i in range(n)]
    rows: list[Row] = [(f"f{i}", "forward", 1.0, names[i - 1 : i] if i else [], [names[i]]) for i in range(n)]
    rows += [(f"b{i}", "backward", 1.0, (names[i],), ()) for i in reversed(range(n))]
    return make_step(rows, dict.fromkeys(names, BLOCK))


def test_new_content_costs_no_fetch() -> None:
    seen = run(chain(4), 4).run()
    assert seen.step_time == 8.0
    assert not any(seen.moved_bytes.values())


def test_dead_content_is_carried_about_unless_the_driver_is_told() -> None:
    rows = [
        ("a", "forward", 1.0, (), ("a",)),
        ("b", "forward", 1.0, (), ("b",)),
        ("c", "forward", 1.0, (), ("c",)),
    ]
    step = make_step(rows, dict.fromkeys("abc", BLOCK))
    kept = run(step, 1, reuse=False).run()
    told = run(step, 1, reuse=False, discard_dead=True).run()
    assert (kept.moved_bytes["out"], told.moved_bytes["out"]) == (2 * BLOCK, 0)
    shared = run(step, 1).run()  # each takes the address of the one that died before it
    assert not any(shared.moved_bytes.values())
    assert shared.step_time == shared.ideal_time


def test_reused_addresses_need_no_more_than_the_live_peak() -> None:
    seen = run(chain(6), 6, iterations=2).run()
    assert seen.step_time == seen.ideal_time


def test_what_was_touched_before_is_prefetched_once_the_tables_are_warm() -> None:
    # Five blocks, four slots: on demand every touch is a fault; with the tables only as many as lack a slot
    # ahead.
    step = pages("ABCDE")
    plain = run(step, 4, iterations=3)
    learned = run(step, 4, iterations=3, kind=CorrelationPaging, degree=2)
    assert faults(plain) == 5
    assert faults(learned) < 5
    assert learned.now < plain.now


def test_with_room_only_the_first_kernel_faults() -> None:
    order = "ABC"
    learned = run(pages(order), 3, iterations=2, kind=CorrelationPaging, degree=2)
    assert faults(learned) == 0


def test_peak_never_exceeds_the_device() -> None:
    for slots in (1, 2, 3, 5):
        seen: MemorySimulation = run(chain(8), slots, iterations=2, kind=ReadAheadPaging, window=4).run()
        assert seen.peak_bytes <= slots * BLOCK
        assert seen.step_time >= seen.ideal_time


def test_storage_behind_a_host_cache_is_written_only_when_the_cache_overflows() -> None:
    step = chain(6)
    pager = run(step, 2, backing=CACHED_STORAGE)
    seen = pager.run()
    assert seen.moved_bytes["out"] > 0
    assert seen.moved_bytes["write"] == 0


def test_a_hint_takes_the_space_of_an_output_that_holds_nothing_yet() -> None:
    rows = [
        ("a", "forward", 1.0, (), ("a",)),
        ("b", "forward", 1.0, (), ("b",)),
        ("again", "backward", 1.0, ("a",), ()),
    ]
    step = make_step(rows, dict.fromkeys("ab", BLOCK))
    # The device holds one block: b pushes a out (a second), and a comes back (a second).
    assert run(step, 1).run().step_time == pytest.approx(3 + 2 + 1)
    assert run(step, 2, (Prefetch(0, 1),)).run().step_time == 3.0


def test_preferred_tensors_leave_last() -> None:
    step = pages("WABWCDW")
    plain, advised = run(step, 3), run(step, 3, preferred=(step.tensors.name.index("W"),))
    assert faults(plain) == 5
    assert faults(advised) == 5
    tight_plain, tight = run(step, 2), run(step, 2, preferred=(step.tensors.name.index("W"),))
    assert (faults(tight_plain), faults(tight)) == (7, 5)


def test_an_op_goes_on_with_the_first_line_while_its_block_is_under_way() -> None:
    # One block of 1,024 bytes a second; lines of 256 bytes at a quarter of the link come at 1, 2, 3 and 4 s,
    # the block with the other three quarters after 4/3 s. The op starts at 1 s and takes 1 s of compute.
    step = pages("A")
    plain = run(step, 1).run()
    lines = run(step, 1, kind=LinePaging, line_bytes=256, line_share=0.25).run()
    assert plain.step_time == pytest.approx(2.0)
    assert lines.step_time == pytest.approx(1.0 + 1.0)
    packed = run(step, 1, kind=LinePaging, line_bytes=64, line_share=0.25, ratio=2.0).run()
    # The first line after 1/4 s; the block of half the size after 2/3 s, before the compute has ended.
    assert packed.step_time == pytest.approx(0.25 + 1.0)
    assert packed.moved_bytes["back"] == pytest.approx(BLOCK / 2 / 0.75)


def test_lines_alone_finish_where_the_block_is_late() -> None:
    # Nine tenths for lines: they are all there after 10/9 s, the block only after 10 s.
    seen = run(pages("A"), 1, kind=LinePaging, line_bytes=64, line_share=0.9).run()
    assert seen.step_time == pytest.approx(64 / (0.9 * BLOCK) + 1 + (10 / 9 - 1 - 64 / (0.9 * BLOCK)))
