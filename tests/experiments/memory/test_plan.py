"""A plan is data: it survives JSON, and the checker names what is wrong with it."""

from __future__ import annotations

import json

import pytest

from experiments.core.errors import BadInput
from experiments.memory.interface import (
    Algorithm,
    Compress,
    Decompress,
    Drop,
    MemoryPlan,
    Offload,
    PlaceTensor,
    Prefetch,
    Recompute,
    WaitForCopy,
    load_plan,
    violations,
)
from tests.experiments.memory.steps import chain, five_layers, machine, make_step

X0, X1, X3 = 0, 1, 3


def complaints(*moves, step=None):
    return violations(MemoryPlan(moves), step or five_layers(), machine())


def test_a_plan_survives_json_whatever_its_moves():
    moves = (
        PlaceTensor(0, 1, "storage"),
        Offload(2, 3, 2, "host", 1.5),
        Prefetch(4, 3),
        WaitForCopy(5, 3),
        Drop(5, 2),
        Compress(5, 4, 2.0, 0.1),
        Decompress(6, 4, 0.1),
        Recompute(6, (1, 2), (2,)),
        Algorithm(7, 0.5, 1024),
    )
    plan = MemoryPlan(moves, reactive=True, notes={"why": "all kinds"})
    assert load_plan(json.loads(json.dumps(plan.to_json()))) == plan


def test_moves_are_sorted_by_op_and_keep_their_order_within_one():
    plan = MemoryPlan((WaitForCopy(3, 1), Drop(1, 7), WaitForCopy(3, 0)))
    assert plan.moves == (Drop(1, 7), WaitForCopy(3, 1), WaitForCopy(3, 0))


def test_a_stored_plan_with_an_unknown_action_is_refused_by_name():
    with pytest.raises(BadInput, match=r"moves\[0\].*'teleport'"):
        load_plan({"moves": [{"action": "teleport", "at": 0}]})


def test_out_and_back_is_right():
    assert complaints(Offload(2, X0, 1), Prefetch(10, X0)) == []


def test_a_tensor_that_stays_away_is_missed_by_the_op_that_reads_it():
    assert complaints(Offload(2, X0, 1)) == ["op 10 (conv_0_backward) needs tensor 0 (X0), which is host"]


def test_moves_of_tensors_that_are_not_there():
    assert complaints(Offload(0, X0, 0)) == ["offload before op 0: tensor 0 (X0) is not yet produced"]
    assert complaints(Offload(4, X1, 4)) == ["offload before op 4: tensor 1 (X1) is dead"]
    assert complaints(Prefetch(5, X3)) == ["prefetch before op 5: tensor 3 (X3) is device, not on a tier"]


def test_a_copy_cannot_leave_while_its_tensor_is_written():
    step = make_step(
        [("a", "forward", 1, [], ["t"]), ("b", "forward", 1, ["t"], ["t"]), ("c", "backward", 1, ["t"], [])],
        {"t": 1},
    )
    assert complaints(Offload(1, 0, 1), Prefetch(2, 0), step=step) == [
        "op 1 (b) uses tensor 0 (t) while it leaves"
    ]


def test_a_rerun_needs_its_inputs_and_says_which_is_missing():
    step = chain(3)
    a0, a1 = step.tensors.name.index("a0"), step.tensors.name.index("a1")
    back = step.ops.name.index("back_2")
    assert complaints(Drop(3, a1), Recompute(back, (1,), (a1,)), step=step) == []
    gone = complaints(
        Drop(2, a0), Drop(3, a1), Recompute(back, (1,), (a1,)), Recompute(back, (0,), (a0,)), step=step
    )
    assert gone[0] == f"recompute before op {back}: op 1 (layer_1) reads tensor {a0}, which is absent"


def test_a_rerun_does_not_make_again_what_lies_on_the_host():
    step = make_step(
        [
            ("split", "forward", 1, [], ["a", "b"]),
            ("f", "forward", 1, ["a", "b"], ["c"]),
            ("g", "forward", 1, ["c"], ["d"]),
            ("back", "backward", 1, ["a", "b", "d"], []),
        ],
        {"a": 1, "b": 1, "c": 1, "d": 1},
    )
    moves = (Drop(2, 0), Offload(2, 1, 1), Recompute(3, (0,), (0,)), Prefetch(3, 1))
    assert complaints(*moves, step=step) == ["recompute before op 3: makes tensor 1 (b) again, which is host"]
    assert complaints(moves[0], moves[1], moves[3], moves[2], step=step) == []


def test_a_parameter_update_cannot_run_twice():
    step = make_step(
        [("f", "forward", 1, ["w"], ["a"]), ("u", "optimizer", 1, ["w", "a"], ["w"])], {"w": 1, "a": 1}, ["w"]
    )
    assert (
        complaints(Recompute(2, (1,), (0,)), step=step)[0]
        == "recompute before op 2: op 1 (u) changes a persistent tensor"
    )


def test_what_begins_on_the_host_must_end_there():
    step = make_step([("f", "forward", 1, ["w"], ["a"])], {"w": 1, "a": 1}, ["w"])
    assert complaints(PlaceTensor(0, 0), Prefetch(0, 0), step=step) == [
        "tensor 0 (w) begins on host and ends device"
    ]
    assert complaints(PlaceTensor(0, 0), Prefetch(0, 0), Offload(1, 0, 0), step=step) == []


def test_a_tensor_that_is_leaving_can_be_neither_dropped_nor_offloaded_again():
    leaving = Offload(2, X0, 4)
    assert complaints(leaving, Drop(3, X0))[0] == "drop before op 3: tensor 0 (X0) is leaving already"
    assert (
        complaints(leaving, Offload(3, X0, 3))[0] == "offload before op 3: tensor 0 (X0) is leaving already"
    )


def test_a_tier_that_does_not_exist():
    plan = MemoryPlan((Offload(2, X0, 1, "storage"), Prefetch(10, X0)))
    assert violations(plan, five_layers(), machine(storage_bytes=0)) == [
        "capacity: offload before op 2: there is no storage"
    ]
