"""G10's planner and FlashNeuron's choice on steps worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.core.errors import Infeasible
from experiments.memory.interface.paged import PAGE, PagedStep
from experiments.memory.planning.g10.benefit import benefits
from experiments.memory.planning.g10.gaps import paged_gaps
from experiments.memory.planning.g10.link_time import BACK, OUT, LinkTime
from experiments.memory.planning.g10.load import load_until_fits
from experiments.memory.planning.g10.migrations import MigrationPlanner, Taken
from experiments.memory.planning.g10.release_rules import release_rules, target_factor
from experiments.memory.policies.flashneuron.forward_offload import Write, bytes_for_saved, candidates, choose
from tests.experiments.memory.steps import machine, make_step

MS = 1e-3
P = PAGE


def small_step():
    """x is idle during ops 2 and 3; w is a parameter that ops 1 and 3 use; t is written and never read."""
    return make_step(
        [
            ("load", "forward", 1 * MS, [], ["x"]),
            ("layer", "forward", 2 * MS, ["x", "w"], ["y"]),
            ("makeLoss", "forward", 3 * MS, ["y"], ["z", "t"]),
            ("grad", "backward", 4 * MS, ["z", "w"], ["g"]),
            ("last", "backward", 5 * MS, ["g", "x"], []),
        ],
        {"x": 10 * P, "w": P + 1, "y": 3 * P, "z": 2 * P, "t": 7 * P, "g": P},
        persistent=["w"],
    )


def test_a_step_in_pages():
    paged = PagedStep(small_step())
    assert paged.pages == [10, 2, 3, 2, 7, 1]
    assert paged.touched == [[0], [2, 1, 0], [4, 3, 2], [5, 1, 3], [0, 5]], "inputs and outputs, reversed"
    assert paged.transient == [False, False, False, False, True, False]
    assert [paged.death[t] for t in (0, 2, 3, 4, 5)] == [5, 3, 4, 3, 5]
    assert paged.dying == [[], [], [2, 4], [3], [0, 5]]
    assert paged.clock.tolist() == pytest.approx([0, 1000, 3000, 6000, 10000, 15000])
    assert (paged.global_bytes, paged.largest_op) == (2 * P, 15 * P)


def test_the_source_may_know_the_order_of_touches():
    step = replace(small_step(), facts={"g10": {"touch_overrides": {"1": [0, 2, 1]}}})
    assert PagedStep(step).touched[1] == [0, 2, 1]


def test_workspace_is_a_transient_tensor_of_its_op():
    step = small_step()
    step = replace(step, ops=replace(step.ops, workspace=np.array([0, 5, 0, 0, 0])))
    paged = PagedStep(step)
    assert paged.touched[1] == [2, 1, 0, 6]
    assert (paged.pages[6], paged.transient[6], paged.death[6]) == (1, True, 2)


def test_gaps_end_where_the_tensor_is_touched_and_a_parameter_is_idle_around_the_end():
    gaps = paged_gaps(PagedStep(small_step()))
    rows = list(
        zip(gaps.tensor.tolist(), gaps.start.tolist(), gaps.end.tolist(), gaps.looped.tolist(), strict=True)
    )
    assert rows == [(0, 2, 4, False), (1, 2, 3, False), (1, 4, 1, True)]
    assert gaps.duration.tolist() == pytest.approx([7000, 3000, 5000 + 1000])


def test_a_parameter_that_the_last_op_uses_is_idle_from_the_first():
    step = make_step(
        [("a", "forward", MS, [], ["x"]), ("b", "backward", MS, ["x", "w"], [])], {"x": P, "w": P}, ["w"]
    )
    gaps = paged_gaps(PagedStep(step))
    assert (gaps.start.tolist(), gaps.end.tolist(), gaps.looped.tolist()) == ([0], [1], [False])


def test_the_load_counts_the_first_tensor_twice_and_stops_when_it_fits():
    paged = PagedStep(small_step())
    everything = sum(paged.bytes) + paged.bytes[0]
    assert load_until_fits(paged, everything).bytes.tolist() == [everything] * 5
    load = load_until_fits(paged, 0)
    # x never shrinks, being first. The others are allocated a little before their birth, in the slot before
    # it: y lives in slots 0 to 2, z in 1 to 3, t in 1 and 2, g in 2 to 4, beside 20 pages of x and 2 of w.
    assert (load.bytes // P).tolist() == [25, 34, 35, 25, 23]
    assert load.allocations == ((0, 2), (1, 3), (1, 4), (2, 5)), "allocated 0.8 ns a byte before birth"
    assert load.frees == ((3, 2), (4, 3), (3, 4), (5, 5))


def test_booking_fills_slots_in_turn_and_storage_passes_the_link():
    links = LinkTime(np.array([1.0, 1.0, 2.0]), storage=(10.0, 10.0), link=(30.0, 30.0))
    storage, link = links.storage[OUT], links.link[OUT]
    assert (storage.forward(10, 0), storage.forward(11, 0), storage.forward(999, 0)) == (0, 1, 2)
    assert (storage.backward(20, 3), storage.backward(21, 3), storage.backward(999, 3)) == (2, 1, 0)
    links.book(False, OUT, 15, 0)
    assert storage.used.tolist() == [10, 5, 0]
    assert storage.full.tolist() == [True, False, False]
    assert link.used.tolist() == [10, 5, 0]
    links.book(True, OUT, 40, 0)
    # 20 are free in slot 0 and fill it; 20 of 25 in slot 1 leave storage 5 of its 10, which it has used.
    assert link.used.tolist() == [30, 25, 0]
    assert storage.full.tolist() == [True, True, False]
    assert links.storage[BACK].used.sum() == 0


def test_benefit_is_the_area_over_the_line_while_half_of_the_tensor_is_away():
    paged = PagedStep(small_step())
    gaps, lengths = paged_gaps(paged), np.diff(paged.clock)
    links = LinkTime(lengths, (20 * P / 1000, 20 * P / 1000), (1e9, 1e9))
    over = np.array([True, False, True, True, True])
    found = benefits(gaps, over, lengths, links, odd=False) / P
    # x: half of it, 5 pages, has left within slot 2 and must come in slot 3: slot 2 counts.
    # w from op 4: slot 4 and, in the next step, slot 0.
    assert found.tolist() == pytest.approx([10 * 3000, 0, 2 * (5000 + 1000)])
    odd = benefits(gaps, over, lengths, links, odd=True) / P
    assert odd[2] == pytest.approx(2 * (5000 - 15000)), "slot 0 counts as minus the whole step"


def rules_for(capacity: int, host: int, storage: float):
    on = machine(capacity=capacity, bandwidth=1e9)
    return release_rules(replace(on, write=replace(on.write, bandwidth=storage)), 1.0, host, "stable")


def test_the_host_takes_what_finds_storage_full():
    paged = PagedStep(small_step())
    load = np.array([0, 0, 40, 40, 0]) * P
    rules = replace(rules_for(30 * P, 100 * P, storage=1e9), odd=False, link_latency=10.0, link=(2e3, 2e3))
    roomy = MigrationPlanner(paged, rules, load)
    roomy.select()
    assert [(h.op, h.tensor, h.kind, h.tier) for h in roomy.hints] == [(2, 0, "write", "storage")]
    assert roomy.host.tolist() == [0] * 5
    # Storage is busy for all of op 2 but for 5 of the 3000 microseconds: the tensor would leave later than
    # alone.
    busy = MigrationPlanner(paged, rules, load)
    busy.links.book(False, OUT, int(2995 * 1e3), 2)
    busy.select()
    assert [hint.tier for hint in busy.hints] == ["host"]
    # 10 pages pass the link in 20 microseconds.
    tiny = MigrationPlanner(paged, replace(rules, link_latency=21.0), load)
    tiny.select()
    assert tiny.hints == [], "a copy that takes longer to begin than to pass"
    # A write that ends within its first slot finds "no slot with room" in the release.
    odd = MigrationPlanner(paged, replace(rules, odd=True), load)
    odd.select()
    assert [hint.tier for hint in odd.hints] == ["host"]
    assert odd.host.tolist() == [0, 0, 10 * P, 10 * P, 0]


def test_a_prefetch_moves_forward_while_memory_allows():
    paged = PagedStep(small_step())
    load = np.array([0, 40, 40, 40, 40]) * P
    planner = MigrationPlanner(paged, replace(rules_for(30 * P, 0, storage=1e9), odd=False), load)
    planner.moved.append(Taken(gap=0, gone=1, back=4, host=False))
    planner.load[2:4] = 15 * P
    (moved,) = planner.prefetch()
    assert moved.back == 2, "15 pages and its own 10 fit under 29 in slots 2 and 3"
    assert (planner.load // P).tolist() == [0, 40, 25, 25, 40]


def test_flashneuron_takes_candidates_in_forward_order_until_the_rest_fits():
    paged = PagedStep(small_step())
    assert candidates(paged) == [0, 2], "z is made by the loss itself"
    assert bytes_for_saved(paged, 20 * P) == 3 * P
    assert choose(paged, [0, 2], 4 * P) == ([Write(0, 2)], 3 * P)
    assert choose(paged, [0, 2], 14 * P) == ([], 13 * P)
    with pytest.raises(Infeasible, match="nothing is left"):
        bytes_for_saved(paged, 17 * P)
    with pytest.raises(Infeasible, match="cannot leave"):
        choose(paged, [2], 1 * P)


def test_factors_apply_to_the_workloads_they_were_tuned_for():
    def step(model: str, batch: int):
        return replace(small_step(), facts={"model": model, "batch": batch})

    slow, fast = machine(bandwidth=3.2 * 2**30), machine(bandwidth=6.4 * 2**30)
    assert target_factor(step("VIT", 7), "g10-host", slow) == 1.269366
    assert target_factor(step("BERT_Base", 7), "g10-gds", slow) == 1.060606
    assert target_factor(step("BERT_Base", 512), "g10", slow) == 1.394
    assert target_factor(step("BERT_Base", 512), "g10", fast) == 1.0
    assert target_factor(step("VIT", 1280), "g10", fast) == 1.1
    assert target_factor(step("VIT", 1280), "g10", slow) == 1.0
