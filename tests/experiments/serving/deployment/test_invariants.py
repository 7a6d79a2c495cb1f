"""What holds for every registered deployment policy, on any models, devices and requests."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.core import registry
from experiments.serving.interface.deployment import Deployment, DeploymentPolicy
from tests.experiments.serving.deployment.by_hand import answered, ask, model, on_devices, serve

POLICIES = [
    name
    for name, one in sorted(registry.family_policies("serving").items())
    if issubclass(one, DeploymentPolicy)
]
#: Ways of a policy that its default does not go.
WAYS: list[tuple[str, dict[str, object]]] = [
    *((name, {}) for name in POLICIES),
    ("clockwork", {"control": "controller"}),
    ("nexus", {"epoch": 2.0}),
    ("selective_replication", {"search": "program"}),
]
every_way = pytest.mark.parametrize(("name", "knobs"), WAYS)
every_policy = pytest.mark.parametrize("name", POLICIES)
times = st.tuples(st.floats(0, 20), st.integers(0, 3))


@st.composite
def deployments(draw: st.DrawFn) -> Deployment:
    """Four models of any size, time and objective on up to five devices."""
    models = [
        model(
            name,
            draw(st.floats(0.01, 1.0)),
            slo=draw(st.sampled_from([0.3, 1.0, 3.0, math.inf])),
            rate=draw(st.floats(0.1, 5)),
            gigabytes=draw(st.floats(0.1, 6)),
        )
        for name in "abcd"
    ]
    return on_devices(*models, devices=draw(st.integers(1, 5)), gigabytes=draw(st.floats(1, 8)))


@every_way
@settings(max_examples=30)
@given(deployment=deployments(), rows=st.lists(times, min_size=1, max_size=30))
def test_every_request_ends_once_and_no_device_holds_or_does_too_much(
    name: str, knobs: dict[str, object], deployment: Deployment, rows: list[tuple[float, int]]
) -> None:
    """``serve`` asks the checker: memory, devices, weights and order; nothing is left unfinished."""
    asked = ask(*rows)
    plan = serve(deployment, name, asked, **knobs)
    for answer in plan.answers:
        assert bool(answer.rejected) != (not math.isnan(answer.answered))
        if math.isinf(deployment.models[int(asked.model[answer.request])].slo):
            assert "late" not in answer.rejected
    for one in plan.passes:
        assert all(later >= earlier for earlier, later in pairwise((*one.enter, one.leave[-1])))


@every_way
@settings(max_examples=15)
@given(deployment=deployments(), rows=st.lists(times, min_size=1, max_size=20))
def test_the_same_requests_end_the_same_way_each_time(
    name: str, knobs: dict[str, object], deployment: Deployment, rows: list[tuple[float, int]]
) -> None:
    first, second = (repr(serve(deployment, name, ask(*rows), **knobs)) for _ in range(2))
    assert first == second


@every_policy
def test_a_request_that_waits_for_nothing_takes_its_own_time(name: str) -> None:
    """Preparation 10 ms, a pass of 100 ms, 20 ms behind it, whatever the other model does."""
    one = model("a", 0.1, slo=1, preprocess=0.01, postprocess=0.02)
    deployment = on_devices(one, model("b", 0.2, slo=1), devices=2)
    assert answered(serve(deployment, name, ask((1, 0), (5, 1)))) == pytest.approx([1.13, 5.2])


@every_policy
def test_an_objective_below_one_pass_is_met_by_nobody(name: str) -> None:
    deployment = on_devices(model("a", 0.1, slo=0.0999))
    plan = serve(deployment, name, ask((0, 0), (1, 0)))
    assert all(answer.rejected for answer in plan.answers)
