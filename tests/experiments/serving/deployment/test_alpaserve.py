"""Groups of devices with model parallelism."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.core.spec import load_spec
from experiments.hardware import resolve
from experiments.run import run
from experiments.serving.interface.deployment import EncoderCost
from experiments.serving.policies.alpaserve.buckets import divide_devices, list_buckets
from experiments.serving.policies.alpaserve.group_shapes import list_shapes, partition
from experiments.workloads.encoders import ENCODERS
from tests.experiments.serving.deployment.by_hand import ask, met, model, on_devices, policy, serve

SIXTEEN = {"cluster": {"nodes": 2, "devices_per_node": 8, "device": "v100-16g"}}


def test_groups_are_powers_of_two_with_few_stages_and_parts() -> None:
    assert list(list_shapes(4, 4)) == [(1, 1), (2, 1), (1, 2), (4, 1), (2, 2), (1, 4)]
    assert (16, 1) not in list(list_shapes(16, 8)) and (4, 4) in list(list_shapes(16, 8))


def test_what_is_left_over_becomes_pipelines() -> None:
    found = partition(0, 7, 2, 2)
    assert [(group.devices, group.pipeline, group.tensor) for group in found] == [
        ((0, 1, 2, 3), 2, 2),
        ((4, 5), 2, 1),
        ((6,), 1, 1),
    ]


def test_a_model_too_large_for_a_device_is_divided() -> None:
    deployment = on_devices(model("a", 0.4, slo=1, gigabytes=3), devices=2, gigabytes=2)
    placed = policy("alpaserve").place(deployment, ask((0, 0), (2, 0)))
    assert [(group.pipeline, group.models) for group in placed.groups] == [(2, (0,))]


def test_a_burst_of_either_model_uses_both_devices() -> None:
    """Two models, two devices, one model fits each: four requests of one at once, within two passes' time.

    Alone on its device the last would take four passes; in two stages it takes half of five.
    """
    deployment = on_devices(model("a", 1, slo=2.5), model("b", 1, slo=2.5), devices=2, gigabytes=1)
    asked = ask(*[(0.0, 0)] * 4, *[(10.0, 1)] * 4)
    assert met(serve(deployment, "selective_replication", asked), deployment, asked) == 0.5
    assert met(serve(deployment, "alpaserve", asked), deployment, asked) == 1


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.floats(0, 5), st.integers(0, 2)), min_size=1, max_size=25),
    st.floats(0.2, 2.0),
    st.integers(1, 4),
    st.sampled_from(["fast greedy", "beam"]),
)
def test_on_its_sample_it_is_never_below_selective_replication(
    rows: list[tuple[float, int]], slo: float, devices: int, search: str
) -> None:
    models = (model("a", 0.5, slo), model("b", 0.3, slo), model("c", 0.2, slo))
    deployment, asked = on_devices(*models, devices=devices, gigabytes=1.5), ask(*rows)
    replicated = "beam" if search == "beam" else "greedy"
    ours = met(serve(deployment, "alpaserve", asked, search=search), deployment, asked)
    theirs = met(serve(deployment, "selective_replication", asked, search=replicated), deployment, asked)
    assert ours >= theirs - 1e-3


def test_models_of_similar_latency_share_a_bucket_and_devices_follow_the_load() -> None:
    models = (model("a", 1.0, rate=1), model("b", 0.1, rate=10), model("c", 0.7, rate=2))
    deployment = on_devices(*models, devices=8)
    buckets = list_buckets(deployment)
    assert buckets == [(1,), (2, 0)]
    assert divide_devices(deployment, buckets) == [2, 6]
    assert divide_devices(on_devices(*models, devices=1), buckets) is None


def bert_scenario(folder: Path, scale: float, latency: float) -> Path:
    """24 models of BERT-2.6B, 40 requests/s together, in bursts (CV 4)."""
    rows = [
        {"name": f"bert-{place}", "sizes": "bert-2.6b", "rate": 40 / 24, "arrivals": "gamma", "cv": 4}
        | {"slo": scale * latency}
        for place in range(24)
    ]
    file = folder / f"bert-{scale}.json"
    file.write_text(json.dumps({"duration": 60, "models": rows}))
    return file


def attainment(file: Path, name: str, **knobs: object) -> float:
    spec = {"family": "serving", "policy": name, "knobs": knobs, "hardware": SIXTEEN}
    outcome = run(load_spec({**spec, "workload": {"source": str(file)}}))
    assert (outcome.status, outcome.violations) == ("ok", [])
    value: float = outcome.metrics["slo_attainment"]["value"]
    return value


@pytest.mark.parametrize("scale", [0.99, 2, 5, 10])
def test_of_24_berts_on_16_devices_never_fewer_are_in_time_than_with_replicas(
    scale: float, tmp_path: Path
) -> None:
    latency = sum(EncoderCost(ENCODERS["bert-2.6b"], 2048, resolve(SIXTEEN)).stage_times(1, 1, 1))
    file = bert_scenario(tmp_path, scale, latency)
    ours, theirs = attainment(file, "alpaserve"), attainment(file, "selective_replication")
    assert ours >= theirs
    assert (theirs == 0) == (scale < 1)


def test_a_search_in_two_processes_places_the_same_to_the_byte(tmp_path: Path) -> None:
    """Models of 2.6 and 0.2 s, so that buckets are tried as well."""
    rows = [
        {"name": f"{size}-{place}", "sizes": size, "rate": 1.0, "arrivals": "gamma", "cv": 4, "slo": 3.0}
        for size in ("bert-2.6b", "bert-1.3b")
        for place in range(4)
    ]
    file = tmp_path / "berts.json"
    file.write_text(json.dumps({"duration": 20, "models": rows}))
    asked = {"family": "serving", "policy": "alpaserve", "hardware": SIXTEEN}

    def find(processes: int) -> str:
        spec = load_spec({**asked, "knobs": {"processes": processes}, "workload": {"source": str(file)}})
        outcome = run(spec).to_json()
        return json.dumps([outcome["metrics"], outcome["plan"], outcome["series"]])

    assert find(2) == find(1)
