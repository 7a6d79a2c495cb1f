"""Squishy bin packing, turns and early drop, and how a query's objective is divided."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.core.spec import load_spec
from experiments.run import run
from experiments.serving.interface.deployment import DeployedModel
from experiments.serving.policies.nexus import Nexus
from experiments.serving.policies.nexus.query_split import split_query
from tests.experiments.serving.deployment.by_hand import ask, met, model, on_devices, serve

#: Seconds by batch of the paper's example (section 4.1, table 2).
A = {4: 0.050, 8: 0.075, 16: 0.100}
B = {4: 0.050, 8: 0.090, 16: 0.125}
C = {4: 0.060, 8: 0.095, 16: 0.125}
FOUR = {"cluster": {"nodes": 4, "devices_per_node": 4, "device": "v100-16g"}}


def example(rate_a: float, rate_b: float, rate_c: float) -> list[DeployedModel]:
    return [
        model("A", A, slo=0.200, rate=rate_a),
        model("B", B, slo=0.250, rate=rate_b),
        model("C", C, slo=0.250, rate=rate_c),
    ]


def test_saturated_sessions_fill_devices_of_their_own() -> None:
    """Batch 16 of which two passes are in time: 160, 128 and 128 requests/s."""
    gpus = Nexus().pack(on_devices(*example(320, 128, 128))).gpus
    rows = [
        (gpu.turns[0].session.model.name, gpu.turns[0].batch, round(gpu.turns[0].rate, 9)) for gpu in gpus
    ]
    assert rows == [("A", 16, 160), ("A", 16, 160), ("B", 16, 128), ("C", 16, 128)]


def test_the_papers_residual_loads_make_one_pair_and_one_alone(tmp_path: Path) -> None:
    """A 8 in 75 ms and B 4 in 50 ms share a cycle of 125 ms; C's 60 ms are too many for it."""
    rows = [
        {"name": name, "slo": slo, "rate": rate, "arrivals": "constant"}
        | {"profile": {"batch": list(times), "latency": list(times.values())}}
        for name, slo, rate, times in (("A", 0.2, 64, A), ("B", 0.25, 32, B), ("C", 0.25, 32, C))
    ]
    file = tmp_path / "scenario.json"
    file.write_text(json.dumps({"duration": 20, "models": rows}))
    spec = {"family": "serving", "policy": "nexus", "workload": {"source": str(file)}, "hardware": FOUR}
    outcome = run(load_spec(spec))
    gpus = outcome.plan["gpus"]
    assert [[row["model"] for row in gpu["sessions"]] for gpu in gpus] == [["A", "B"], ["C"]]
    assert gpus[0]["duty_cycle"] == pytest.approx(0.125)
    assert [row["batch"] for row in gpus[0]["sessions"]] == [8, 4]
    assert [row["latency"] for row in gpus[0]["sessions"]] == pytest.approx([0.075, 0.050])
    assert [row["worst"] for row in gpus[0]["sessions"]] == pytest.approx([0.200, 0.175])
    assert outcome.metrics["slo_attainment"]["value"] == 1
    assert outcome.metrics["duty_cycle"]["value"] == pytest.approx((0.125 + gpus[1]["duty_cycle"]) / 2)


def regular(rate: float, place: int, seconds: float) -> list[tuple[float, int]]:
    return [(time, place) for time in (np.arange(int(rate * seconds)) / rate).tolist()]


def test_at_99_percent_of_its_own_capacity_fewer_than_1_percent_are_dropped() -> None:
    """Four devices: two of A at 160/s, one of B, one of C at 128/s."""
    deployment = on_devices(*example(0.99 * 320, 0.99 * 128, 0.99 * 128), devices=4)
    asked = ask(*regular(0.99 * 320, 0, 60), *regular(0.99 * 128, 1, 60), *regular(0.99 * 128, 2, 60))
    assert met(serve(deployment, "nexus", asked), deployment, asked) > 0.99


def test_a_burst_beyond_its_objective_is_dropped_from_the_head() -> None:
    """40 requests at once: two passes of 16 are in time, the other eight are not run at all."""
    deployment = on_devices(*example(120, 1, 1)[:1])
    asked = ask(*[(0.0, 0)] * 41)
    plan = serve(deployment, "nexus", asked)
    assert sum(bool(answer.rejected) for answer in plan.answers) == sum(
        math.isnan(answer.answered) for answer in plan.answers
    )
    assert met(plan, deployment, asked) == sum(not answer.rejected for answer in plan.answers) / 41


def test_what_needs_more_devices_than_there_are_is_said() -> None:
    deployment = on_devices(*example(160, 128, 128), devices=2)
    placed = Nexus().place(deployment, ask((0, 0)))
    assert placed.unplaced == {2: "3 devices are needed, 2 are there"}


def test_an_objective_below_one_pass_is_met_by_nobody() -> None:
    deployment = on_devices(model("a", 0.1, slo=0.099))
    asked = ask((0, 0), (1, 0))
    assert met(serve(deployment, "nexus", asked), deployment, asked) == 0


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(st.floats(1, 300), st.sampled_from([A, B, C]), st.floats(0.13, 0.6)), min_size=1, max_size=8
    )
)
def test_every_device_is_within_its_cycle_memory_and_objectives(
    rows: list[tuple[float, dict[int, float], float]],
) -> None:
    models = [model(f"m{place}", times, slo=slo, rate=rate) for place, (rate, times, slo) in enumerate(rows)]
    packing = Nexus().pack(on_devices(*models, gigabytes=3))
    served = dict.fromkeys(range(len(models)), 0.0)
    for gpu in packing.gpus:
        assert gpu.busy <= gpu.duty_cycle + 1e-9 and len(gpu.turns) <= 3
        for turn in gpu.turns:
            served[turn.session.place] += turn.rate
            assert len(gpu.turns) == 1 or gpu.worst(turn) <= turn.session.budget + 1e-9
    for place, one in enumerate(models):
        assert place in packing.infeasible or served[place] == pytest.approx(one.rate)


@settings(max_examples=30)
@given(st.lists(st.lists(st.floats(0.1, 5), min_size=6, max_size=6), min_size=3, max_size=3))
def test_a_query_is_divided_as_well_as_by_trying_everything(table: list[list[float]]) -> None:
    """A model and two behind it, six steps of time: the fewest devices of all divisions."""

    def devices(place: int, seconds: float) -> float:
        return table[place][round(seconds) - 1]

    found = split_query(0, [[1, 2], [], []], 6.0, devices, steps=6)
    best = min(
        devices(0, a) + devices(1, b) + devices(2, c)
        for a, b, c in itertools.product(range(1, 7), repeat=3)
        if a + max(b, c) <= 6
    )
    assert math.fsum(devices(place, seconds) for place, seconds in found.items()) == pytest.approx(best)


def test_a_query_ends_with_its_last_answer(tmp_path: Path) -> None:
    """A detector and a classifier behind it, each 0.1 s: 0.2 s together, in time where 0.3 s are allowed."""
    rows = [
        {"name": "detect", "slo": 0.6, "rate": 1, "arrivals": "constant", "latency": 0.1},
        {"name": "classify", "after": "detect", "latency": 0.1},
    ]
    file = tmp_path / "query.json"
    file.write_text(json.dumps({"duration": 10, "models": rows}))
    spec = {"family": "serving", "policy": "nexus", "workload": {"source": str(file)}, "hardware": FOUR}
    outcome = run(load_spec(spec))
    assert outcome.violations == []
    assert outcome.metrics["latency_mean"]["value"] == pytest.approx(0.2)
    assert outcome.metrics["requests"]["value"] == 20 and outcome.metrics["slo_attainment"]["value"] == 1


def test_an_epoch_moves_devices_to_the_sessions_that_are_asked() -> None:
    """Told: four devices of a and a trickle of b. Asked from 20 s on: the other way round."""
    deployment = on_devices(
        model("a", {1: 0.1}, slo=1.0, rate=30.0, gigabytes=0.1),
        model("b", {1: 0.1}, slo=1.0, rate=0.1, gigabytes=0.1),
        devices=4,
    )
    rows = [*regular(30, 0, 20), *((20 + time, 1) for time, _ in regular(30, 1, 40))]
    asked = ask(*rows)
    still, moved = (serve(deployment, "nexus", asked, epoch=epoch) for epoch in (0.0, 10.0))
    assert met(still, deployment, asked) < 0.6
    assert met(moved, deployment, asked) > 0.8
    assert len(still.groupings) == 1
    last = moved.groupings[-1][1]
    assert sum(1 in group.models for group in last) >= 3 and sum(0 in group.models for group in last) <= 1
    assert not any(answer.rejected for answer in moved.answers if answer.ready > 35), "all in time again"


def test_noise_below_what_was_packed_for_moves_nothing() -> None:
    deployment = on_devices(model("a", {1: 0.1}, slo=1.0, rate=20.0), devices=4)
    asked = ask(*regular(19.8, 0, 60))
    assert len(serve(deployment, "nexus", asked, epoch=10.0).groupings) == 1
