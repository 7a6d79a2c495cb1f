"""A wrong policy among the others: its plans are rejected with the first violation, simulated or measured."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments.core.spec import Outcome, load_spec
from experiments.parallel.experiment import placed as placing
from experiments.run import run
from experiments.sources import Loaded
from tests.experiments.parallel.builders import chain
from tests.planted import planted

#: Data parallelism on two devices with one fault: ``spoiled`` says which.
WRONG = '''
"""A policy that a test plants: data parallelism with a fault."""

from dataclasses import dataclass, replace
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.parallel.interface import (
    Collective, LivePolicy, ParallelPolicy, Sharding, Slot, Stage, Synchronization, Worker,
    data_parallel_plan,
)


def spoiled(plan, fault):
    if fault == "device":
        return replace(plan, workers=(plan.workers[0], replace(plan.workers[1], devices=(9,))))
    if fault == "slot":
        return replace(plan, workers=(plan.workers[0], Worker((1,), ())))
    if fault == "staleness":
        return replace(plan, synchronization=Synchronization(staleness=3))
    if fault == "rumour":
        return replace(plan, synchronization=Synchronization("rumour"))
    if fault == "infinite":
        endless = (Collective("all_reduce", float("inf")),)
        return replace(plan, shardings=(Sharding(0, "column", 1, 1, 1, endless, ()),))
    first = (Slot("F", 0, 0), Slot("B", 0, 0), Slot("F", 1, 0), Slot("B", 1, 0))
    last = (Slot("F", 1, 1), Slot("B", 1, 1), Slot("F", 0, 1), Slot("B", 0, 1))
    stages = (Stage(0, 1, (0,)), Stage(1, plan.stages[0].end, (1,)))
    return replace(plan, stages=stages, workers=(Worker((0,), first), Worker((1,), last)))


@dataclass(frozen=True)
class Planted(LivePolicy, ParallelPolicy):
    """Plans that cannot be carried out."""

    name: ClassVar[str] = "planted"
    fault: str = knob("device", "what is wrong with the plan")
    searches: bool = knob(False, "asks the simulator what the plan takes")

    def place(self, model, cluster, batch, estimate):
        plan = spoiled(data_parallel_plan(model, cluster, batch, 1, self.sync()), self.fault)
        if self.searches:
            estimate.evaluate(plan)
        return plan
'''
SHEET = """
[paper]
key = "planted"
title = "A planted policy"
authors = ["A test"]
venue = "none"
year = 2026
decides = "Nothing that can be carried out."
url = "https://example.org"
"""
#: Faults and the first violation of each.
FAULTS = {
    "device": "device 9 is not one of the cluster's 2",
    "slot": "slot F1.0 is missing",
    "staleness": "an all-reduce has no staleness (3)",
    "rumour": "nobody sums gradients by 'rumour', only by all_reduce, summation, parameter_server",
    "infinite": "layer 0: the all_reduce of inf bytes has no finite size",
    "deadlock": "worker 0: the schedule deadlocks: slot B0.0 never starts, as do 8 others",
}
every_fault = pytest.mark.parametrize("fault", FAULTS)
both_modes = pytest.mark.parametrize("mode", ["simulated", "measured"])


@pytest.fixture(autouse=True)
def wrong_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Among the policies, for two layers that nobody has to build: a rejected plan is never carried out."""
    model = chain(2, stash_bytes=2.0**20, output_bytes=2.0**10, parameter_bytes=2.0**20)
    monkeypatch.setattr(
        placing, "layers_of", lambda *given: (model, Loaded(model, "layers", "test", "0" * 64))
    )
    with planted("parallel", tmp_path, WRONG, sheet=SHEET):
        yield


def outcome_of(mode: str, **knobs: Any) -> Outcome:
    cluster = {"nodes": 1, "devices_per_node": 2, "device": "a100-80g"}
    return run(
        load_spec(
            {
                "family": "parallel",
                "policy": "planted",
                "knobs": knobs,
                "workload": {"source": "zoo:mlp", "options": {"batch": 2}},
                "hardware": {"cluster": cluster} if mode == "simulated" else "local",
                "mode": mode,
            }
        )
    )


@both_modes
@every_fault
def test_an_impossible_plan_is_rejected_with_its_first_violation(fault: str, mode: str) -> None:
    outcome = outcome_of(mode, fault=fault)
    assert (outcome.status, outcome.reason) == ("rejected", FAULTS[fault])
    assert outcome.violations[0] == FAULTS[fault] and outcome.metrics == {}
    assert outcome.provenance["workload_sha256"] == "0" * 64


@both_modes
@pytest.mark.parametrize("fault", ["slot", "deadlock"])
def test_a_search_that_asks_about_an_impossible_plan_is_rejected_too(fault: str, mode: str) -> None:
    outcome = outcome_of(mode, fault=fault, searches=True)
    assert (outcome.status, outcome.reason) == ("rejected", FAULTS[fault])
    assert outcome.violations[0] == FAULTS[fault]


def test_a_rejected_plan_is_kept_where_a_document_can_hold_it() -> None:
    assert outcome_of("simulated", fault="device").plan["micro_batches"] == 2
    assert outcome_of("simulated", fault="infinite").plan == {}
