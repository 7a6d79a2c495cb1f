"""What holds on a shared device whatever policy decides, on random models and requests."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.core import jsonio, registry
from experiments.serving.experiment.sharing import sharing_json
from experiments.serving.interface.sharing import Operator, SharedDevice, SharedModel, SharingPolicy
from experiments.serving.simulator.sharing import SharingPlan, share

NAMES = sorted(
    name for name, one in registry.family_policies("serving").items() if issubclass(one, SharingPolicy)
)
DEVICE = SharedDevice(units=8, memory=60.0, bandwidth=1e3, call_time=1e-3)
operators = st.lists(
    st.builds(
        Operator,
        st.floats(0.01, 0.3),
        st.floats(0.0, 3.0),
        st.integers(1, 30),
        st.lists(st.floats(0.01, 0.3), max_size=4).map(lambda waves: tuple(sorted(waves))),
    ),
    min_size=1,
    max_size=6,
).map(tuple)
asked = st.lists(operators, min_size=1, max_size=2)
rest = st.lists(operators, max_size=1)
arrivals = st.lists(st.tuples(st.floats(0, 3), st.integers(0, 1)), max_size=6).map(sorted)


def models_of(front: list[tuple[Operator, ...]], back: list[tuple[Operator, ...]]) -> list[SharedModel]:
    first = [SharedModel(f"asked {place}", "real_time", one) for place, one in enumerate(front)]
    return [*first, *[SharedModel(f"rest {place}", "training", one) for place, one in enumerate(back)]]


def run(name: str, models: list[SharedModel], times: list[tuple[float, int]]) -> SharingPlan:
    policy = registry.create("serving", name, {})
    resident = [policy.starts_resident(model) for model in models]
    return share(DEVICE, models, resident, policy.begin(DEVICE, models), times, 3.0)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60, deadline=None)
@given(asked, rest, arrivals)
def test_shares_memory_and_clock(name: str, front: list, back: list, times: list[tuple[float, int]]) -> None:
    models = models_of(front, back)
    times = [(time, model % len(front)) for time, model in times]
    plan = run(name, models, times)
    assert plan.fault == "", "more units or bytes than the device has are a fault of the executor"
    changes = [(span.end, -span.units) for span in plan.spans] + [
        (one.start, one.units) for one in plan.spans
    ]
    used = 0
    for _, change in sorted(changes):
        used += change
        assert used <= DEVICE.units
    assert all(span.start <= span.end <= plan.end + 1e-9 for span in plan.spans)
    for request in plan.requests:
        assert request.answered is not None
        assert request.started is not None
        own = models[request.model].seconds
        assert request.arrival <= request.started <= request.answered - own + 1e-9, (
            "no sooner than its own pass"
        )
    again = run(name, models, times)
    assert jsonio.canonical(sharing_json(again, models)) == jsonio.canonical(sharing_json(plan, models))


@pytest.mark.parametrize("name", ["reef", "antman_inference"])
@settings(max_examples=40, deadline=None)
@given(operators, st.floats(0, 3))
def test_without_other_load_a_request_takes_its_solo_latency(name: str, one: tuple, time: float) -> None:
    models = models_of([one], [])
    [request] = run(name, models, [(time, 0)]).requests
    assert request.answered - request.arrival == pytest.approx(models[0].seconds)
