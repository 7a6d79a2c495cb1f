"""A limit of time ends searches with the best so far, and the answer says what repeats it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from experiments.core.budget import Budget
from experiments.core.spec import RunSpec, load_spec
from experiments.core.time_limit import limit_time, time_is_up
from experiments.run import run

MEMORY = {
    "family": "memory",
    "policy": "swapadvisor",
    "knobs": {"evaluations": 100_000, "population": 6},
    "workload": {"source": "zoo:mlp", "options": {"batch": 4096}},
    "hardware": {"device": "v100-16g", "overrides": {"memory_bytes": 5e7}},
}
PARALLEL = {
    "family": "parallel",
    "policy": "alpa",
    "knobs": {"micro_batches": 2},
    "workload": {"source": "zoo:gpt2", "options": {"batch": 8, "sequence": 64}},
    "hardware": {"cluster": {"device": "v100-16g", "nodes": 1, "devices_per_node": 4}},
}


def test_evaluations_are_refused_when_time_is_up_and_the_knob_that_repeats_it_is_kept() -> None:
    with limit_time(0.05) as limit:
        budget = Budget(10**6, unit="plans")
        while budget.take():
            time.sleep(0.001)
        (told,) = budget.caveat("evaluations").values()
    assert limit is not None and limit.reached == {"evaluations": budget.done}
    assert told.startswith("the search ended after its 0.05 s with the best so far")
    assert told.endswith(f"evaluations={budget.done} repeats it")
    assert not time_is_up()
    again = Budget(budget.done)
    assert sum(again.take() for _ in range(budget.done + 5)) == budget.done


def test_work_that_overshot_is_repeated_by_a_bound_below_it() -> None:
    with limit_time(1e-9):
        budget = Budget(100)
        budget.spend(7)
        assert not budget.take(0)
        budget.caveat("work")
    again = Budget(budget.most)
    again.spend(7)
    assert not again.take(0)


@pytest.mark.parametrize(("row", "knob"), [(MEMORY, "evaluations"), (PARALLEL, "programs")])
def test_what_a_limit_of_time_ended_is_repeated_without_one(row: dict[str, Any], knob: str) -> None:
    asked = load_spec(row)
    first = run(asked, search_seconds=1e-6)
    assert first.status == "ok"
    reached = first.provenance["knobs_reached"][knob]
    assert first.spec["knobs"][knob] == reached
    again = run(RunSpec(**{**vars(asked), "knobs": first.spec["knobs"]}))
    assert again.spec_id == first.spec_id
    assert again.metrics == first.metrics
    assert "knobs_reached" not in again.provenance
