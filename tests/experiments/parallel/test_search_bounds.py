"""Planners that search end at their bound with a plan that can be carried out, and say so."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.core import registry
from experiments.core.budget import ENDED_AT
from experiments.hardware import Link
from experiments.parallel.interface import ParallelPlan, ParallelPolicy, violations
from tests.experiments.parallel.builders import cluster, estimate
from tests.experiments.parallel.test_optcnn import convolutions

#: A bound that every run meets, by policy.
SMALL: dict[str, dict[str, Any]] = {
    "flexflow": {"tasks": 1},
    "optcnn": {"evaluations": 1},
    "unity": {"evaluations": 1},
    "tofu": {"evaluations": 1},
    "alpa": {"programs": 1, "shared": False, "micro_batches": 1},
    "pipedream": {"evaluations": 1},
    "dapple": {"evaluations": 1, "micro_batches": 1},
}
MODEL = convolutions(2, 4, 8, 4, image=8)
#: Too little for the whole model on every device: prices have to be found.
TIGHT = cluster(1, 4, memory=5000, link=Link("node", 3e3, 1e-3, True, "test"))


def planned(name: str, knobs: dict[str, Any], hardware: Any = TIGHT) -> ParallelPlan:
    policy = registry.create("parallel", name, knobs)
    assert isinstance(policy, ParallelPolicy)
    return policy.place(MODEL, hardware, 4, estimate(MODEL, hardware, optimizer="sgd"))


@pytest.mark.parametrize("name", SMALL)
def test_a_search_that_meets_its_bound_returns_a_plan_and_says_so(name: str) -> None:
    plan = planned(name, SMALL[name])
    assert violations(plan, MODEL, TIGHT) == []
    (knob, most), *_ = SMALL[name].items()
    assert f"bound of {most} " in plan.notes[ENDED_AT] and f"knob {knob})" in plan.notes[ENDED_AT]


@pytest.mark.parametrize("name", SMALL)
def test_a_search_within_its_bound_says_nothing(name: str) -> None:
    _, *others = SMALL[name].items()
    assert ENDED_AT not in planned(name, dict(others)).notes
