"""TrainingCXL: tables in place, logs before rows are overwritten, and why the relaxed lookup is exact."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.memory.interface import (
    CopyRate,
    InPlace,
    Log,
    MemoryMachine,
    MemoryPlan,
    PlaceTensor,
    WaitForCopy,
    load_plan,
    violations,
)
from experiments.memory.policies.cxl_checkpoint import CxlCheckpoint, tables_of
from experiments.memory.simulator import MemorySimulation, Simulator
from experiments.workloads.step import KINDS, Step
from tests.experiments.memory.steps import Row, machine, make_step, plan_of

TABLE, ROWS, MLP = 100_000, 1_000, 500


def recommender(seconds: float = 1.0) -> Step:
    """One table of 100,000 bytes of which a batch looks up 1,000, and a layer of 500 bytes; every op takes a
    second.
    """
    rows: list[Row] = [
        ("aten.embedding.default", "forward", seconds, ("table", "ids"), ("found",)),
        ("aten.mm.default", "forward", seconds, ("found", "w"), ("y",)),
        ("aten.mm.backward", "backward", seconds, ("y", "w", "found"), ("dw", "dfound")),
        ("aten.embedding_dense_backward.default", "backward", seconds, ("dfound", "ids"), ("dtable",)),
        ("aten.add_.Tensor", "optimizer", seconds, ("table", "dtable"), ("table",)),
        ("aten.add_.Tensor", "optimizer", seconds, ("w", "dw"), ("w",)),
    ]
    sizes = {
        "table": TABLE,
        "ids": 10,
        "found": ROWS,
        "w": MLP,
        "y": 10,
        "dw": MLP,
        "dfound": ROWS,
        "dtable": TABLE,
    }
    step = make_step(rows, sizes, persistent=("table", "w", "ids"))
    step.tensors.kind[step.tensors.name.index("ids")] = KINDS.index("input")
    return step


STEP = recommender()


def on(read: float = 1e6, write: float = 1e6) -> MemoryMachine:
    plain = machine(10_000, bandwidth=1e9)
    return replace(plain, remote_bytes=10**9, remote_read=CopyRate(read), remote_write=CopyRate(write))


def carried_out(level: str, beside: MemoryMachine) -> MemorySimulation:
    plan = plan_of(CxlCheckpoint(level=level), STEP, beside)
    assert load_plan(plan.to_json()).moves == plan.moves
    assert violations(plan, STEP, beside) == []
    return Simulator(STEP, beside).run(plan)


def test_the_table_and_its_dense_gradient_lie_in_persistent_memory() -> None:
    names = STEP.tensors.name
    found = tables_of(STEP)
    assert {names[t]: size for t, size in found.rows.items()} == {"table": ROWS}
    assert {names[t] for t in found.whole} == {"table", "dtable"}
    plan = plan_of(CxlCheckpoint(), STEP, on())
    assert [names[move.tensor] for move in plan.moves if isinstance(move, PlaceTensor)] == ["table"]
    assert [move.at for move in plan.moves if isinstance(move, InPlace)] == [0, 3, 4]


def test_rows_are_logged_before_they_are_overwritten() -> None:
    plan = plan_of(CxlCheckpoint(level="background"), STEP, on())
    names = STEP.tensors.name
    logs = {names[move.tensor]: (move.at, move.bytes) for move in plan.moves if isinstance(move, Log)}
    assert logs == {"table": (0, ROWS), "w": (0, MLP)}
    assert {names[move.tensor]: move.at for move in plan.moves if isinstance(move, WaitForCopy)} == {
        "table": 4,
        "w": 5,
    }


def test_a_log_in_the_background_is_hidden_and_one_on_demand_is_not() -> None:
    # A log of 1,000 bytes takes 2 s at 500 bytes a second: the passes before the update hide it.
    slow = on(write=500.0)
    none, demand, background = (carried_out(level, slow) for level in ("none", "demand", "background"))
    assert background.stalls["synchronization"] == 0
    assert demand.stalls["synchronization"] >= 2.0
    assert none.step_time <= background.step_time < demand.step_time
    assert demand.moved_bytes["remote_write"] == background.moved_bytes["remote_write"] == ROWS + MLP


def test_the_full_level_spreads_the_other_parameters_and_overlaps_lookups_with_updates() -> None:
    slow = on(read=1e4, write=1e4)
    full, background = carried_out("full", slow), carried_out("background", slow)
    assert full.step_time < background.step_time
    assert full.moved_bytes["remote_write"] == ROWS + MLP // 100


def test_without_such_memory_nothing_is_done_and_that_is_said() -> None:
    plan = plan_of(CxlCheckpoint(), STEP, machine())
    assert plan.moves == MemoryPlan().moves
    assert "no memory beyond the host's" in plan.notes["reason"]


@pytest.mark.parametrize("seed", range(5))
def test_lookups_before_the_update_plus_their_updates_are_lookups_after_it(seed: int) -> None:
    """The relaxed lookup is exact in integers, and the undo log brings a batch's start back after
    any crash.
    """
    random = np.random.default_rng(seed)
    table = random.integers(-1000, 1000, (50, 8))
    update = np.zeros_like(table)
    touched = random.choice(50, 20, replace=False)
    update[touched] = random.integers(-9, 9, (20, 8))
    bags = random.integers(0, 50, (16, 4))
    assert (table[bags].sum(1) + update[bags].sum(1) == (table + update)[bags].sum(1)).all()
    log = table[touched].copy()
    crashed = table.copy()
    crashed[touched[:7]] += update[touched[:7]]  # some rows only
    crashed[touched] = log
    assert (crashed == table).all()
