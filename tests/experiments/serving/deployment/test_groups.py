"""Groups of devices: stages, queues and rejection as closed forms and hand-worked cases have them."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.core.errors import ImpossiblePlan
from experiments.hardware import resolve
from experiments.serving.interface.deployment import (
    Dispatcher,
    EncoderCost,
    Group,
    Load,
    Placement,
    Run,
    ToldLayers,
)
from experiments.serving.interface.deployment.stage_cut import cut_stages
from experiments.serving.planning.groups.evaluator import Evaluator
from experiments.serving.planning.groups.shortest_queue import ShortestQueue
from experiments.serving.simulator.deployment import simulate_deployment
from experiments.workloads.encoders import ENCODERS
from experiments.workloads.scenario import LayerCosts
from tests.experiments.serving.deployment.by_hand import (
    answered,
    ask,
    carry_out,
    met,
    model,
    on_devices,
    serve,
)


def test_five_layers_make_stages_of_7_and_5() -> None:
    assert cut_stages((4, 3, 2, 1, 2), 2) == (2, 5)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.data())
def test_the_slowest_stage_is_the_fastest_of_all_cuts(layers: list[int], data: st.DataObject) -> None:
    stages = data.draw(st.integers(1, len(layers)))
    cuts = ((0, *inner, len(layers)) for inner in combinations(range(1, len(layers)), stages - 1))
    best = min(max(sum(layers[a:b]) for a, b in pairwise(cut)) for cut in cuts)
    ends = (0, *cut_stages(layers, stages))
    assert max(sum(layers[a:b]) for a, b in pairwise(ends)) == best


def test_of_three_requests_at_once_the_third_would_be_late() -> None:
    """Two stages of 0.2 s: done at 0.4 and 0.6, the third at 0.8 s with 0.7 s allowed."""
    deployment = on_devices(model(seconds=0.4, slo=0.7), devices=2)
    placement = Placement((Group((0, 1), pipeline=2, models=(0,)),))
    plan = carry_out(deployment, placement, ShortestQueue(placement), ask((0, 0), (0, 0), (0, 0)))
    assert answered(plan)[:2] == [0.4, 0.6]
    assert plan.answers[2].rejected == "would be late"


def poisson(rate: float, models: int, seconds: float, seed: int) -> list[tuple[float, int]]:
    rng, rows = np.random.default_rng(seed), []
    for place in range(models):
        times = np.cumsum(rng.exponential(1 / rate, int(1.1 * rate * seconds)))
        rows += [(time, place) for time in times[times < seconds].tolist()]
    return rows


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ((Group((0,), models=(0,)), Group((1,), models=(1,))), 0.6866),
        ((Group((0, 1), pipeline=2, models=(0, 1)),), 0.5414),
    ],
)
def test_queues_are_those_of_the_closed_form(groups: tuple[Group, ...], expected: float) -> None:
    """M/D/1, D = 0.39625 s, 1.5 requests/s of each of two models: D + r D^2 / (2 (1 - r D))."""
    deployment = on_devices(model("a", 0.39625), model("b", 0.39625), devices=2)
    asked = ask(*poisson(1.5, 2, 40_000.0, seed=5))
    plan = carry_out(deployment, Placement(groups), ShortestQueue(Placement(groups)), asked)
    latency = np.array([answer.answered for answer in plan.answers]) - asked.arrival
    assert latency.mean() == pytest.approx(expected, rel=0.02)


@given(
    st.lists(st.tuples(st.floats(0, 3), st.integers(0, 2)), min_size=1, max_size=30),
    st.floats(0.05, 1.0),
    st.sampled_from([(1, 1), (2, 1), (1, 2), (3, 1)]),
)
def test_the_evaluator_of_searches_is_the_simulator(
    rows: list[tuple[float, int]], slo: float, pipelines: tuple[int, int]
) -> None:
    deployment = on_devices(*(model(n, 0.1, slo) for n in "abc"), devices=sum(pipelines))
    first, second = pipelines
    groups = (
        Group(tuple(range(first)), pipeline=first, models=(0, 1)),
        Group(tuple(range(first, first + second)), pipeline=second, models=(1,)),
    )
    asked = ask(*rows)
    plan = carry_out(deployment, Placement(groups), ShortestQueue(Placement(groups)), asked)
    found = Evaluator(deployment, asked).evaluate(groups)
    assert found.attainment == pytest.approx(met(plan, deployment, asked))


def test_a_model_without_a_place_is_rejected_with_the_reason() -> None:
    deployment = on_devices(model(), model("b"))
    placement = Placement((Group((0,), models=(0,)),), {1: "it is too large"})
    plan = carry_out(deployment, placement, ShortestQueue(placement), ask((0, 0), (0, 1)))
    assert [answer.rejected for answer in plan.answers] == ["", "it is too large"]


def test_layers_are_cut_by_their_times_and_hold_their_bytes() -> None:
    cost = ToldLayers(LayerCosts((4, 3, 2, 1, 2), (1, 1, 1, 1, 6)), 10.0)
    assert cost.stage_times(1, 2, 1) == (7, 5) and cost.stage_bytes(2, 1) == (2, 8)
    assert not cost.divides(1, 2) and not cost.divides(6, 1)


def test_a_divided_encoder_computes_less_and_communicates() -> None:
    """24 layers of 12 h^2 weights on 2,048 tokens; on four devices a quarter each and two all-reduces."""
    v100 = resolve({"cluster": {"nodes": 1, "devices_per_node": 4, "device": "v100-16g"}})
    cost = EncoderCost(ENCODERS["bert-1.3b"], 2048, v100)
    flops = 24 * (24 * 2048**2 * 2048 + 4 * 2048 * 2048**2)
    assert cost.stage_times(1, 1, 1)[0] == pytest.approx(flops / v100.device.peak("float16"), rel=0.5)
    assert 1 / 4 < cost.stage_times(1, 1, 4)[0] / cost.stage_times(1, 1, 1)[0] < 1
    assert sum(cost.stage_bytes(2, 2)) * 2 == pytest.approx(ENCODERS["bert-1.3b"].weight_bytes)


class Plays(Dispatcher):
    """Does what it is told at the first arrival."""

    def __init__(self, *actions: Run | Load) -> None:
        self.actions = actions

    def on_arrival(self, request: int, view: object) -> tuple[Run | Load, ...]:
        return self.actions


@pytest.mark.parametrize(
    ("actions", "reason"),
    [
        ((Run(0, 1, (0,)),), "pass of another model"),
        ((Run(0, 0, (0,)), Run(0, 0, (0,))), "ends twice"),
        ((Run(0, 0, (1,)),), "before it arrived"),
        ((Run(1, 0, (0,)),), "runs but is not there"),
        ((Load(0, 0),), "is there already"),
        ((Load(0, 1),), "of stage 0 with model b"),
    ],
)
def test_what_no_cluster_could_do_is_refused(actions: tuple[Run | Load, ...], reason: str) -> None:
    deployment = on_devices(model(), model("b"), devices=2, gigabytes=1.5)
    placement = Placement((Group((0,), models=(0,)), Group((1,))))
    with pytest.raises(ImpossiblePlan, match=reason):
        simulate_deployment(deployment, placement, Plays(*actions), ask((0, 0), (1, 0)))


def test_what_is_being_copied_when_groups_change_arrives_before_others_are_copied() -> None:
    """3 GB: a and d are on their way until 4 and 5 s; at 4 s only b is wanted, whose 3 GB fit from 5 s on."""
    deployment = on_devices(
        model("a", 0.0625, slo=0.3, gigabytes=2),
        model("b", 1.0, gigabytes=3),
        model("c", 1.0, slo=0.3),
        model("d", 0.125, slo=1.0),
        gigabytes=3,
    )
    plan = serve(deployment, "nexus", ask((0.0, 0), (3.0, 1)), epoch=2.0)
    last = [stay for stay in plan.residences if stay.model == 1][-1]
    assert (last.begin, last.ready) == (5.0, 8.0)


def test_weights_that_are_on_their_way_when_groups_change_are_told_of_when_they_arrive() -> None:
    """d is copied from 2 to 5 s; groups are made anew at 4 s, and the request of 3 s is looked at at 5 s."""
    names = {"a": 0.3, "b": 0.3, "c": 3.0, "d": 1.0}
    models = [model(name, 1.0, slo=slo, gigabytes=3 if name == "d" else 1) for name, slo in names.items()]
    plan = serve(on_devices(*models, gigabytes=3), "nexus", ask((0.0, 0), (3.0, 3)), epoch=2.0)
    assert [bool(answer.rejected) for answer in plan.answers] == [True, True]
    assert "dropped" in plan.answers[1].rejected
