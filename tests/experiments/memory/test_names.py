"""The numbers of a plan in words."""

from __future__ import annotations

from experiments.memory.experiment.names import names_of
from experiments.memory.interface import MemoryPlan
from experiments.memory.interface.plan import Drop, Offload, Recompute
from tests.experiments.memory.steps import chain


def test_what_moves_name_is_named_and_nothing_else() -> None:
    step = chain(4)
    plan = MemoryPlan((Offload(1, 0, 2), Drop(2, 1), Recompute(5, (1, 2), (1,))))
    found = names_of(step, plan)
    assert set(found["ops"]) == {"1", "2", "5"}
    assert set(found["tensors"]) == {"0", "1"}
    assert found["ops"]["1"].startswith(step.ops.name[1])
    assert found["tensors"]["0"].startswith(f"{step.tensors.name[0]} (")
