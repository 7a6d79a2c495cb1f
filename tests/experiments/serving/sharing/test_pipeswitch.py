"""PipeSwitch by hand: four layers whose copies take 1 ms each, calls of 1 ms, compute of 2, 1, 1 and 1 ms."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.core import registry
from experiments.core.errors import BadInput
from experiments.serving.interface.sharing import HostCosts, Operator, SharedDevice, SharedModel
from experiments.serving.policies.pipeswitch.layer_groups import (
    block_ends,
    optimal_groups,
    pipelined_time,
    pruned_groups,
)
from experiments.serving.simulator.sharing import SharingPlan, share, sharing_figures

COPY, COMPUTE = (1.0, 1.0, 1.0, 1.0), (2.0, 1.0, 1.0, 1.0)
DEVICE = SharedDevice(units=10, memory=100.0, bandwidth=1.0, call_time=1.0)
ASKED = SharedModel("asked", "real_time", tuple(map(Operator, COMPUTE, COPY)))
TRAINED = SharedModel("trained", "training", (Operator(0.5, 1.0), Operator(0.5, 1.0)))


def run(
    knobs: dict[str, object],
    arrivals: tuple[float, ...] = (3.25,),
    models: tuple[SharedModel, ...] = (ASKED, TRAINED),
) -> SharingPlan:
    policy = registry.create("serving", "pipeswitch", knobs)
    resident = [policy.starts_resident(model) for model in models]
    asked = [(time, 0) for time in arrivals]
    return share(DEVICE, models, resident, policy.begin(DEVICE, models), asked, 40.0)


@pytest.mark.parametrize(
    ("transmission", "seconds"),
    [
        ("groups", 8),
        ("pruned search", 8),
        ("per layer", 9),
        ("grouped", 10),
        ("per layer, no pipeline", 13),
        ("ready", 5),
    ],
)
def test_a_switch_lasts_as_long_as_by_hand_after_the_layer_in_which_training_stops(
    transmission: str, seconds: float
) -> None:
    [request] = run({"transmission": transmission}).requests
    assert request.answered == pytest.approx(3.5 + seconds)
    assert request.is_switch


@pytest.mark.parametrize(
    ("transmission", "seconds"), [("per layer", 11), ("grouped", 10), ("per layer, no pipeline", 13)]
)
def test_only_who_computes_meanwhile_is_told_of_each_group(transmission: str, seconds: float) -> None:
    [request] = run({"transmission": transmission, "sync_time": 0.5}).requests
    assert request.answered == pytest.approx(3.5 + seconds)


def test_a_models_own_blocks_are_its_groups() -> None:
    """Two of two layers arrive after 3 and 6, and are computed in 3 and 2."""
    blocks = tuple(one._replace(part=place // 2) for place, one in enumerate(ASKED.operators))
    [request] = run({"transmission": "blocks"}, models=(replace(ASKED, operators=blocks), TRAINED)).requests
    assert request.answered == pytest.approx(3.5 + 8)
    assert block_ends((0, 0, 1, 4, 4)) == (2, 3, 5)
    assert block_ends((0, 0)) == (2,), "who tells no blocks has one"


COSTS = {"pageable_share": 0.5, "allocation_time": 0.5, "handle_time": 0.25}


@pytest.mark.parametrize(
    ("memory", "seconds"),
    [
        ("shared", 9),
        ("pageable", 13),  # arrived after 3, 6, 9, 12
        ("allocated", 9.5),  # computed in 2.5, 1.5, 1.5, 1.5
        ("handles", 10),  # in 2.75, 1.75, 1.75, 1.75
    ],
)
def test_memory_costs_the_link_or_the_worker(memory: str, seconds: float) -> None:
    [request] = run({"transmission": "per layer", "memory": memory, **COSTS}).requests
    assert request.answered == pytest.approx(3.5 + seconds)


def test_one_group_is_one_handle() -> None:
    [request] = run({"transmission": "grouped", "memory": "handles", **COSTS}).requests
    assert request.answered == pytest.approx(3.5 + 5 + 5 + 4 * 0.5 + 0.25)


def test_layers_are_pointed_at_their_weights_once_for_each_switch() -> None:
    knobs = {"transmission": "per layer", "memory": "allocated", **COSTS}
    first, second, third = run(knobs, arrivals=(3.25, 3.3, 30.25)).requests
    assert second.answered == pytest.approx(first.answered + 5)
    assert third.answered - third.started == pytest.approx(first.answered - first.started)


def test_managed_models_are_resident_before_they_are_asked_and_training_goes_on() -> None:
    """The copy lasts until 4; each has half of the device from the end of training's layer on."""
    plan = run({"memory": "managed"}, arrivals=(5.25,))
    assert plan.requests[0].answered == pytest.approx(5.5 + 2 * 5)
    assert [(copy.model, copy.start, copy.end) for copy in plan.copies] == [(0, 0.0, 4.0)]
    assert not any(span.killed for span in plan.spans if span.end < 40)


def test_a_host_has_pinned_memory_alone() -> None:
    with pytest.raises(BadInput, match="measured"):
        registry.create("serving", "pipeswitch", {"memory": "handles"}).on_host(HostCosts())


def test_the_processor_prepares_a_request_and_its_answer_while_training_goes_on() -> None:
    plan = run({}, models=(replace(ASKED, preprocess=2.0, postprocess=0.75), TRAINED))
    [request] = plan.requests
    assert request.prepared == pytest.approx(5.25)
    assert max(one.end for one in plan.spans if one.model == 1 and one.end < 8) == pytest.approx(5.5)
    assert request.answered == pytest.approx(5.5 + 8 + 0.75)


def test_a_request_that_is_prepared_when_the_run_is_over_is_answered() -> None:
    [request] = run({}, arrivals=(39.5,), models=(replace(ASKED, preprocess=2.0), TRAINED)).requests
    assert request.answered == pytest.approx(41.5 + 8)


def test_a_closed_client_asks_again_when_it_has_its_answer() -> None:
    model = replace(ASKED, preprocess=2.0, postprocess=0.75)
    policy = registry.create("serving", "pipeswitch", {"transmission": "ready"})
    plan = share(DEVICE, [model], [True], policy.begin(DEVICE, [model]), [(0.0, 0)], 10.0, closed={0})
    assert [one.arrival for one in plan.requests] == [0.0, 7.75]


def test_without_training_nobody_is_waited_for() -> None:
    [request] = run({}, models=(ASKED,)).requests
    assert request.answered == pytest.approx(3.25 + 8)


def test_one_process_cleans_up_first() -> None:
    [request] = run({"workers": "one process", "clean_time": 2.5}).requests
    assert request.answered == pytest.approx(3.5 + 2.5 + 8)


def test_the_iteration_that_was_stopped_is_lost_and_training_comes_back() -> None:
    plan = run({})
    again = [span for span in plan.spans if span.model == 1 and span.start > 4]
    assert again[0].first == 0, "from the first layer"
    assert again[0].start == pytest.approx(3.5 + 8 + 3), "after its weights came back with one call"
    assert plan.passes[1] == 3 + 25


def test_a_second_request_of_the_same_model_finds_its_weights() -> None:
    first, second = run({}, arrivals=(3.25, 3.3)).requests
    assert second.answered == pytest.approx(first.answered + 5)
    assert not second.is_switch


@pytest.mark.parametrize(("slo", "attained"), [(8.2, 0.0), (8.25, 0.5), (13.3, 1.0), (None, None)])
def test_requests_are_in_time_within_their_models_objective(
    slo: float | None, attained: float | None
) -> None:
    """Asked at 3.25 and 3.3, answered after 8.25 and 13.2."""
    plan = run({}, arrivals=(3.25, 3.3))
    models = (ASKED, TRAINED) if slo is None else (replace(ASKED, slo=slo), TRAINED)
    figures = sharing_figures(plan, plan, models, 40.0)
    assert figures.get("slo_attainment") == attained
    if attained is not None:
        assert figures["goodput"] == pytest.approx(2 * attained / 40)


def test_without_time_of_a_call_each_layer_is_a_group() -> None:
    ends = optimal_groups(COPY, COMPUTE, 0.0)
    best = pipelined_time(ends, COPY, COMPUTE, 0.0)
    assert best == pipelined_time((1, 2, 3, 4), COPY, COMPUTE, 0.0) == 6


times = st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), min_size=1, max_size=9)


@settings(max_examples=400, deadline=None)
@given(times, st.floats(0, 3))
def test_both_searches_are_as_good_as_all_divisions(layers: list[tuple[float, float]], call: float) -> None:
    copy, compute = zip(*layers, strict=True)
    inner = range(1, len(copy))
    least = min(
        pipelined_time((*cut, len(copy)), copy, compute, call)
        for number in range(len(copy))
        for cut in combinations(inner, number)
    )
    for search in (optimal_groups, pruned_groups):
        ends = search(copy, compute, call)
        assert ends[-1] == len(copy)
        assert pipelined_time(ends, copy, compute, call) == pytest.approx(least, rel=1e-9, abs=1e-9)
