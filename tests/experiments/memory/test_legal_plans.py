"""What the checker lets through the simulator carries out, or says which bytes do not fit; whatever the
moves.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.core.errors import Infeasible
from experiments.memory.interface import (
    Compress,
    CopyRate,
    CountedBytes,
    Decompress,
    Drop,
    InPlace,
    MemoryPlan,
    MemoryPool,
    Offload,
    OnHost,
    PlaceTensor,
    Prefetch,
    Recompute,
    WaitForCopy,
    violations,
)
from experiments.memory.interface.check import FULL
from experiments.memory.simulator import Simulator
from tests.experiments.memory.steps import machine
from tests.experiments.memory.test_simulator import steps

TIER = st.sampled_from(["host", "host", "storage", "remote"])


def group(draw, step):
    """Moves of one tensor that make sense by themselves."""
    count, tensors = len(step.ops), len(step.tensors)
    which, tier = draw(st.integers(0, tensors - 1)), draw(TIER)
    start = draw(st.integers(0, count))
    back = draw(st.integers(start, count))
    kind = draw(st.sampled_from(["swap", "swap", "kept", "host", "drop", "codec", "place"]))
    if step.persistent[which] and kind == "swap":
        keep = draw(st.booleans())
        return [PlaceTensor(0, which, tier), Prefetch(0, which, keep), Offload(count, which, count - 1, tier)]
    if kind in ("swap", "kept"):
        until = draw(st.integers(start - 1, start + 1))
        moves = [Offload(start, which, until, tier), Prefetch(back, which, kind == "kept")]
        return [*moves, WaitForCopy(start, which)] if draw(st.booleans()) else moves
    if kind == "drop":
        makers = tuple(op for op in range(start) if which in step.outputs[op])
        return [Drop(start, which), Recompute(back, makers, (which,))]
    if kind == "codec":
        return [Compress(start, which, 2.0, 0.1), Decompress(back, which, 0.1)]
    op = min(start, count - 1)
    if kind == "place":
        return [Offload(op, which, op - 1, "remote"), InPlace(op, (which,), 0.25), Prefetch(op + 1, which)]
    read, written = step.inputs[op].tolist(), step.outputs[op].tolist()
    out = [Offload(op, tensor, op - 1) for tensor in read]
    return [*out, OnHost(op, 0.5), *(Prefetch(op + 1, tensor) for tensor in dict.fromkeys([*read, *written]))]


def legal(plan, step, on):
    return all(fault.startswith(FULL) for fault in violations(plan, step, on))


def legal_plan(draw, step, on):
    """Groups of moves, each of which leaves the plan legal; a group may lack its end where that is what is
    legal.
    """
    space = draw(
        st.sampled_from(
            [CountedBytes(), CountedBytes(), MemoryPool("best_fit", 1), MemoryPool("two_ended", 4, (0, 2))]
        )
    )
    plan = MemoryPlan(space=space)
    for _ in range(draw(st.integers(1, 6))):
        moves = group(draw, step)
        for end in (len(moves), len(moves) - 1):
            longer = MemoryPlan((*plan.moves, *moves[:end]), space=space)
            if legal(longer, step, on):
                plan = longer
                break
    return plan


@settings(max_examples=200)
@given(
    st.data(),
    steps(),
    st.sampled_from([0.5, 8.0, 1e6]),
    st.integers(1, 250),
    st.booleans(),
    st.integers(1, 3),
)
def test_a_legal_plan_is_carried_out_or_lacks_bytes(data, step, bandwidth, capacity, duplex, iterations):
    rate = CopyRate(bandwidth)
    on = machine(
        capacity,
        bandwidth,
        duplex=duplex,
        remote_bytes=2**40,
        remote_write=rate,
        remote_read=rate,
        storage_page=16,
    )
    plan = legal_plan(data.draw, step, on)
    try:
        done = Simulator(step, on).run(plan, iterations=iterations)
    except Infeasible as told:
        assert told.missing is not None and told.missing > 0, told
        return
    held = sum(change for _, _, change in done.log)
    at_rest = sum(
        int(step.tensors.bytes[tensor])
        for tensor in range(len(step.tensors))
        if step.persistent[tensor]
        and not any(isinstance(move, PlaceTensor) and move.tensor == tensor for move in plan.moves)
    )
    assert held == at_rest or (iterations > 1 and held >= 0)
    assert done.peak_bytes <= capacity and done.stall_time >= 0
    assert all(most >= 0 for most in done.peaks.values())
    assert done.late.keys() <= set(range(len(step.tensors)))
    parts = done.stall_time + done.overlap_time + done.execution_time
    assert abs(parts - done.step_time) <= 1e-9 * max(1.0, done.step_time)
