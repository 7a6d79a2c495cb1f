"""The simulated step, second by second: numbers that a reader can work out."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.core.errors import ImpossiblePlan, Infeasible
from experiments.memory.interface import (
    Algorithm,
    Compress,
    CopyRate,
    Decompress,
    Drop,
    Eviction,
    MemoryPlan,
    Offload,
    PlaceTensor,
    Prefetch,
    ReactiveMemoryPolicy,
    Recompute,
    Resident,
    WaitForCopy,
    violations,
)
from experiments.memory.policies.checkpoint import Checkpoint
from experiments.memory.policies.swap_all import SwapAll
from experiments.memory.policies.vdnn import VdnnAll
from experiments.memory.simulator import Simulator, curves
from experiments.memory.simulator.recorder import StepRecorder
from tests.experiments.memory.steps import chain, machine, make_step, plan_of


def there_and_back():
    """``t`` (4 bytes) is made in op 0 and read in op 3; each op takes 3 s; a byte takes a second
    on the link.
    """
    rows = [
        ("make", "forward", 3.0, [], ["t"]),
        ("work", "forward", 3.0, [], ["u"]),
        ("more", "backward", 3.0, ["u"], ["v"]),
        ("read", "backward", 3.0, ["t", "v"], []),
    ]
    return make_step(rows, {"t": 4, "u": 2, "v": 2})


@pytest.mark.parametrize("policy", [SwapAll(), VdnnAll(), Checkpoint()])
@pytest.mark.parametrize("bandwidth", [0.7, 3.0, 100.0])
def test_ops_that_wait_for_nothing_come_to_the_same_watched_and_unwatched(policy, bandwidth):
    """Watched, every op is a process of its own; unwatched, most are carried out at once. The preparation
    for one machine serves another.
    """
    step, on = chain(12), machine(10**6, bandwidth=bandwidth)
    plan = plan_of(policy, step, on)
    simulator = Simulator(step, on)
    for repeated in (1, 3):
        quick = simulator.run(plan, iterations=repeated)
        assert quick == simulator.run(plan, iterations=repeated, recorder=StepRecorder())
        slower = machine(10**6, bandwidth=bandwidth / 2)
        assert simulator.on(slower).run(plan) == Simulator(step, slower).run(plan)


def run(*moves, on=None, step=None):
    step = step or there_and_back()
    on = on or machine(bandwidth=1.0)
    plan = MemoryPlan(moves)
    assert violations(plan, step, on) == []
    return Simulator(step, on).run(plan)


def test_nothing_moves_and_the_step_takes_exactly_the_sum_of_its_ops():
    step = make_step(
        [(f"op{i}", "forward", 0.1, [], [f"t{i}"]) for i in range(10)], {f"t{i}": 1 for i in range(10)}
    )
    done = Simulator(step, machine()).run(MemoryPlan())
    # Added one after the other: from Python 3.12 on, sum() makes up for rounding and says 1.0.
    assert done.step_time == done.ideal_time == functools.reduce(operator.add, [0.1] * 10)
    assert done.stall_time == 0 and done.peak_bytes == step.live_peak == 1


def test_a_copy_out_hides_behind_compute_and_a_late_copy_back_does_not():
    # Out from 3 to 7; back from 9 (op 3) to 13, four seconds in which nothing computes; op 3 ends at 16.
    done = run(Offload(1, 0, 0), Prefetch(3, 0))
    assert done.step_time == 16
    assert done.stalls == {"transfer": 4, "space": 0, "synchronization": 0, "drain": 0, "fault": 0}
    assert done.overlap_time == 4
    assert done.idle == [(9, 13)]
    assert done.moved_bytes["out"] == done.moved_bytes["back"] == 4


def test_a_prefetch_two_ops_ahead_hides_too_but_waits_for_its_own_copy_out():
    # Issued at 6, the copy back starts when the copy out has ended (7) and ends at 11: 2 s late for op 3.
    assert run(Offload(1, 0, 0), Prefetch(2, 0)).step_time == 14


def test_a_wait_stops_compute_until_the_copy_has_left():
    done = run(Offload(1, 0, 0), WaitForCopy(1, 0), Prefetch(3, 0))
    assert done.stalls["synchronization"] == 4 and done.step_time == 20


def test_an_allocation_waits_for_a_tensor_that_is_leaving():
    # 4 bytes of device: op 1 needs 2, and t leaves until 7. Then v fits beside u, and t has to wait for u to
    # die.
    rows = [
        ("make", "forward", 3.0, [], ["t"]),
        ("work", "forward", 3.0, [], ["u"]),
        ("read", "backward", 3.0, ["t"], []),
    ]
    step = make_step(rows, {"t": 4, "u": 2})
    done = run(Offload(1, 0, 0), Prefetch(2, 0), on=machine(4, 1.0), step=step)
    assert done.stalls == {"transfer": 4, "space": 4, "synchronization": 0, "drain": 0, "fault": 0}
    assert done.peak_bytes == 4 and done.step_time == 17


def test_what_does_not_fit_is_named_with_the_missing_bytes():
    with pytest.raises(Infeasible, match=r"op 1 \(work, forward\).*1 bytes are missing of 5") as told:
        Simulator(there_and_back(), machine(5)).run(MemoryPlan())
    assert told.value.missing == 1


def test_two_directions_of_a_half_duplex_link_take_turns():
    rows = [
        ("a", "forward", 1.0, [], ["t", "s"]),
        ("b", "forward", 1.0, [], []),
        ("c", "backward", 1.0, ["t", "s"], []),
    ]
    step = make_step(rows, {"t": 4, "s": 4})
    moves = (Offload(1, 0, 0), Prefetch(2, 0), Offload(1, 1, 0), Prefetch(2, 1))
    # Duplex: out 1-5 and 5-9, back 5-9 and 9-13. Half duplex: t comes back only after both are out: 9-13,
    # 13-17.
    assert run(*moves, on=machine(bandwidth=1.0), step=step).step_time == 14
    assert run(*moves, on=machine(bandwidth=1.0, duplex=False), step=step).step_time == 18


def test_storage_is_as_slow_as_its_slower_part_and_has_its_own_latency():
    on = machine(bandwidth=1.0, write=CopyRate(0.5, 1.0), read=CopyRate(2.0, 1.0))
    done = run(Offload(1, 0, 0, "storage"), Prefetch(3, 0), on=on)
    # Written from 3 to 3 + 1 + 8 = 12; read at 9? not before it is there: 12 + max(4, 1 + 2) = 16; op 3 ends
    # at 19.
    assert done.step_time == 19
    assert done.moved_bytes == {"out": 4, "back": 4, "write": 4, "read": 4}


def test_a_dropped_tensor_is_made_again_by_its_ops():
    done = run(Drop(1, 0), Recompute(3, (0,), (0,)))
    assert done.recompute_time == 3 and done.step_time == 15 and done.stall_time == 0
    assert done.peak_bytes == 6 and done.recompute_flops == 1


def test_compression_shrinks_the_tensor_and_costs_compute():
    done = run(Compress(1, 0, 2.0, 0.5), Decompress(3, 0, 0.25))
    assert done.step_time == 12.75 and done.codec_time == 0.75
    assert done.peak_bytes == 8  # t decoded beside its encoded form (4 + 2) and v


def test_a_compressing_copy_engine_halves_the_transfer_and_the_host_bytes():
    done = run(Offload(1, 0, 0, "host", 2.0), Prefetch(3, 0))
    assert done.step_time == 14 and done.host_peak == 2 and done.moved_bytes["out"] == 2


def test_a_parameter_kept_on_the_host_is_fetched_and_put_back():
    step = make_step(
        [("f", "forward", 3.0, ["w"], ["a"]), ("g", "forward", 3.0, ["a"], [])], {"w": 2, "a": 1}, ["w"]
    )
    done = run(PlaceTensor(0, 0), Prefetch(0, 0), Offload(1, 0, 0), on=machine(bandwidth=1.0), step=step)
    assert (done.step_time, done.peak_bytes, done.host_peak) == (8, 3, 2)


def test_another_algorithm_changes_time_and_workspace():
    done = run(Algorithm(1, 1.0, 100))
    assert done.step_time == 10 and done.peak_bytes == 106


def test_a_host_that_is_full_is_infeasible():
    with pytest.raises(Infeasible, match="host do not fit: 1 bytes are missing of 3"):
        plan = MemoryPlan((Offload(1, 0, 0), Prefetch(3, 0)))
        Simulator(there_and_back(), machine(host_bytes=3)).run(plan)


def test_no_bandwidth_is_infeasible_and_not_a_hang():
    with pytest.raises(Infeasible, match="never ends"):
        run(Offload(1, 0, 0), Prefetch(3, 0), on=machine(bandwidth=0.0))


@dataclass(frozen=True)
class OldestOut(ReactiveMemoryPolicy):
    """Least recently used first, until enough is free."""

    name: ClassVar[str] = "test-oldest-out"

    def evict(self, needed: int, resident: Sequence[Resident], now: float) -> list[Eviction]:
        chosen, free = [], 0
        for tensor in sorted(resident, key=lambda entry: entry.last_use):
            if free < needed:
                chosen.append(Eviction(tensor.tensor))
                free += tensor.bytes
        return chosen


def test_a_reactive_policy_is_asked_when_memory_is_short():
    step, policy = there_and_back(), OldestOut()
    done = Simulator(step, machine(6, 1.0)).run(plan_of(policy, step, machine(6, 1.0)), policy)
    # At 6 op 2 lacks 2 bytes: t leaves until 10. At 13 t comes back on demand (u is dead by then): 17, and op
    # 3: 20.
    assert done.step_time == 20 and done.peak_bytes == 6
    assert done.stalls["space"] == done.stalls["transfer"] == 4


@dataclass(frozen=True)
class Greedy(ReactiveMemoryPolicy):
    """Sends away what the running op holds."""

    name: ClassVar[str] = "test-greedy"

    def evict(self, needed: int, resident: Sequence[Resident], now: float) -> list[Eviction]:
        return [Eviction(1)]


def test_a_reactive_policy_cannot_evict_what_the_op_uses():
    with pytest.raises(ImpossiblePlan, match=r"op 2 \(.*: the policy evicts tensor 1, which cannot leave"):
        Simulator(there_and_back(), machine(6, 1.0)).run(MemoryPlan(reactive=True), Greedy())


def test_the_timeline_ends_where_it_began_and_its_kinds_add_up():
    series = curves(run(Offload(1, 0, 0), Prefetch(3, 0)), 100)
    whole = series["device_bytes"]
    # t until 7, u until 9, v from 6; t again from 9.
    assert list(zip(whole.x, whole.y, strict=True)) == [(0, 4), (3, 6), (6, 8), (7, 4), (9, 6), (16, 0)]
    assert whole.y[-1] == 0
    assert run(Offload(1, 0, 0), Prefetch(3, 0)).average_bytes == (4 * 3 + 6 * 3 + 8 * 1 + 4 * 2 + 6 * 7) / 16
    kinds = [curve for name, curve in series.items() if name.startswith("device_bytes.")]
    assert [sum(heights) for heights in zip(*(curve.y for curve in kinds), strict=True)] == list(whole.y)


# --- invariants over random steps ---------------------------------------------------------------------------


@st.composite
def steps(draw):
    """Random forward pass, and a backward pass that reads what it left in reverse."""
    count = draw(st.integers(2, 7))
    sizes, rows = {"w": draw(st.integers(0, 20))}, []
    names = st.sampled_from(["conv", "relu", "pool", "linear", "add"])
    for i in range(count):
        before = (
            draw(st.lists(st.sampled_from([f"a{j}" for j in range(i)]), max_size=2, unique=True)) if i else []
        )
        sizes[f"a{i}"] = draw(st.integers(0, 50))
        rows.append(
            (f"{draw(names)}_{i}", "forward", draw(st.integers(0, 40)) / 8, ["w", *before], [f"a{i}"])
        )
    sizes["g"] = draw(st.integers(0, 20))
    rows.append(("loss_backward", "backward", 0.5, [f"a{count - 1}"], ["g"]))
    for i in reversed(range(count)):
        if draw(st.booleans()):
            rows.append(
                (rows[i][0] + "_backward", "backward", draw(st.integers(0, 40)) / 8, ["g", f"a{i}"], ["g"])
            )
    rows.append(("update", "optimizer", 0.25, ["w", "g"], ["w"]))
    return make_step(rows, sizes, persistent=["w"])


POLICIES = st.sampled_from(
    [SwapAll(), SwapAll(ahead=0), SwapAll(ahead=3), VdnnAll(), Checkpoint(), Checkpoint(keep_last=False)]
)


@settings(max_examples=150)
@given(steps(), POLICIES, st.integers(1, 200), st.sampled_from([0.5, 8.0, 1e6]), st.booleans())
def test_whatever_the_plan_the_capacity_holds_and_the_time_adds_up(step, policy, capacity, bandwidth, duplex):
    on = machine(capacity, bandwidth, duplex=duplex)
    plan = plan_of(policy, step, on)
    assert violations(plan, step, on) == []
    try:
        done = Simulator(step, on).run(plan)
    except Infeasible as told:
        assert told.missing is None or told.missing > 0
        return
    assert done.peak_bytes <= capacity
    assert done.peak_bytes >= int(step.op_need.max())
    assert done.step_time >= done.ideal_time
    assert done.step_time == pytest.approx(done.ideal_time + done.stall_time + done.recompute_time, rel=1e-9)
    assert 0 <= done.overlap_time <= done.step_time - done.stall_time + 1e-9
    assert all(
        sum(end - start for start, end in spans) <= done.step_time + 1e-9 for spans in done.transfers.values()
    )
    assert sum(change for _, _, change in done.log) == step.persistent_bytes
    assert Simulator(step, on).run(plan) == done


@settings(max_examples=100)
@given(steps())
def test_without_moves_the_live_peak_is_just_enough(step):
    fits = Simulator(step, machine(step.live_peak)).run(MemoryPlan())
    assert fits.step_time == fits.ideal_time and fits.peak_bytes == step.live_peak
    if step.live_peak:
        with pytest.raises(Infeasible):
            Simulator(step, machine(step.live_peak - 1)).run(MemoryPlan())


def test_a_long_chain_under_checkpointing_ends_with_nothing_but_its_gradient_gone():
    step = chain(30)
    done = Simulator(step, machine()).run(plan_of(Checkpoint(), step, machine()))
    assert sum(change for _, _, change in done.log) == 0
