"""The five laws of serving policies, whoever wrote them: on requests that come all at once and one after
another.
"""

from __future__ import annotations

import functools
import math

import pytest

from experiments.core import jsonio, registry
from experiments.serving.experiment.batching import plan_json
from experiments.serving.interface import Engine, ServingPlan, ServingPolicy, violations
from experiments.serving.simulator import simulate
from experiments.workloads.requests import RequestTrace
from tests.experiments.serving.traces import TOY, engine, requests

TRACES: dict[str, RequestTrace] = {
    "at once": requests(*[(0, 3 + row % 7, 1 + row % 5) for row in range(16)]),
    "one after another": requests(*[(40 * row, 5, 1 + row % 4) for row in range(10)]),
}
ENGINES: dict[str, Engine] = {
    "room for all": engine(max_output=5),
    "room for few": engine(kv_slots=30, max_output=5),
    "two stages": engine(kv_slots=60, max_output=5, stages=2),
}
every_policy = pytest.mark.parametrize(
    "name",
    [
        name
        for name, one in sorted(registry.family_policies("serving").items())
        if issubclass(one, ServingPolicy)
    ],
)
every_case = pytest.mark.parametrize(("trace", "on"), [(t, e) for t in TRACES for e in ENGINES])


def policy_named(name: str) -> ServingPolicy:
    policy = registry.create("serving", name, registry.policy_class("serving", name).quick)
    assert isinstance(policy, ServingPolicy)
    return policy


@functools.cache
def planned(name: str, trace: str, on: str) -> ServingPlan:
    return simulate(TRACES[trace], ENGINES[on], policy_named(name))


@every_policy
@every_case
def test_its_plan_is_legal(name: str, trace: str, on: str) -> None:
    assert violations(planned(name, trace, on), TRACES[trace], ENGINES[on].kv_slots) == []


@every_policy
@every_case
def test_it_is_repeatable(name: str, trace: str, on: str) -> None:
    again, first = simulate(TRACES[trace], ENGINES[on], policy_named(name)), planned(name, trace, on)
    assert jsonio.canonical(plan_json(again, TRACES[trace])) == jsonio.canonical(
        plan_json(first, TRACES[trace])
    )
    assert again.iterations == first.iterations


@every_policy
@every_case
def test_its_plan_survives_json(name: str, trace: str, on: str) -> None:
    document = plan_json(planned(name, trace, on), TRACES[trace])
    assert jsonio.loads(jsonio.canonical(document), "plan") == document


@every_policy
def test_closed_form_on_the_smallest_case(name: str) -> None:
    """One request alone: 10 ms and 1 ms per token for its prompt of 6, and 11 ms for each of the 3 tokens
    after.
    """
    plan = simulate(requests((7, 6, 4)), engine(), policy_named(name))
    assert plan.served[0].answered == pytest.approx(0.007 + 0.016 + 3 * 0.011, rel=1e-12)


@every_policy
@every_case
def test_never_better_than_the_bound(name: str, trace: str, on: str) -> None:
    """No request is answered sooner than by its own passes alone, and no token comes from a pass of less than
    one.
    """
    rows = TRACES[trace]
    for served in planned(name, trace, on).served:
        if math.isnan(served.answered):
            continue
        prompt, output = int(rows.prompt[served.request]), int(rows.output[served.request])
        own = TOY.fixed + prompt * TOY.per_token + (output - 1) * (TOY.fixed + TOY.per_token)
        latency = served.answered - float(rows.arrival[served.request])
        assert latency >= own * ENGINES[on].stages - 1e-9, served.request
