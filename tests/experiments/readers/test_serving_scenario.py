"""``serving-scenario``: what is read, what is refused and where, and the arrivals that a seed draws."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.core.spec import Workload
from experiments.readers.base import open_file
from experiments.sources import requests_of, scenario_of
from experiments.summaries import summary
from experiments.workloads.arrival_processes import draw_arrivals
from experiments.workloads.scenario import BatchProfile, FixedCost, KernelFile, LayerCosts, Scenario

PROFILE = """caffe:tiny:1
TITAN_X_(Pascal)
Forward latency
batch,latency(us),std(us),memory(B)
1,6000,20,1000
2,8000,20,1500
4,12000,20,2500
Preprocess latency
mean(us),std(us)
500,10
Postprocess latency
mean(us),std(us)
40,10
"""


def row(**fields: Any) -> dict[str, Any]:
    return {"name": "a", "slo": 0.2, "rate": 10, "latency": 0.05, **fields}


def written(folder: Path, *rows: dict[str, Any], duration: Any = 10) -> Path:
    file = folder / "scenario.json"
    file.write_text(json.dumps({"duration": duration, "models": list(rows)}))
    return file


def read(file: Path, **options: Any) -> Scenario:
    opened = open_file(file, "auto", WorkloadOptions(**options))
    assert opened.reader.format == "serving-scenario" and opened.reader.kind == "requests"
    assert isinstance(opened.reading.value, Scenario)
    return opened.reading.value


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in row().items() if key != name}


def test_a_scenario_is_read_as_it_says(tmp_path: Path) -> None:
    found = read(
        written(
            tmp_path,
            row(bytes=5e9, cv=2, arrivals="gamma", preprocess=0.01),
            {
                "name": "b",
                "class": "training",
                "layers": [{"seconds": 0.1, "bytes": 3}, {"seconds": 0.2, "bytes": 4}],
            },
            {"name": "c", "after": "a", "share": 2.5, "profile": {"batch": [1, 4], "latency": [0.01, 0.03]}},
        )
    )
    a, b, c = found.models
    assert (a.cost, a.bytes, a.preprocess, a.slo) == (FixedCost(0.05), 5e9, 0.01, 0.2)
    assert b.cost == LayerCosts((0.1, 0.2), (3.0, 4.0)) and b.bytes == 7 and b.service_class == "training"
    assert isinstance(c.cost, BatchProfile) and c.cost.at(2) == pytest.approx(0.01 + 0.02 / 3)
    assert found.rate("c") == 25


def test_objectives_are_scaled_and_a_model_without_one_stays_so(tmp_path: Path) -> None:
    file = written(tmp_path, row(), {**without("slo"), "name": "b"})
    assert [model.slo for model in read(file, slo_scale=2.5).models] == [0.5, None]
    with pytest.raises(BadInput, match="can be scaled"):
        read(written(tmp_path, without("slo")), slo_scale=2.0)


def layer(**told: Any) -> dict[str, Any]:
    return {"seconds": 0.1, "bytes": 3, **told}


def test_layers_tell_the_blocks_of_their_model(tmp_path: Path) -> None:
    told = {**without("latency"), "layers": [layer(block=0), layer(block=2), layer(block=2)]}
    assert read(written(tmp_path, told)).models[0].cost == LayerCosts((0.1,) * 3, (3.0,) * 3, (0, 2, 2))


@pytest.mark.parametrize("blocks", [(1, 0), (0, 0.5), (0, None), (0, -1)])
def test_blocks_are_told_of_all_layers_in_their_order(tmp_path: Path, blocks: tuple[Any, ...]) -> None:
    rows = [layer() if block is None else layer(block=block) for block in blocks]
    with pytest.raises(BadInput, match="block"):
        read(written(tmp_path, {**without("latency"), "layers": rows}))


def test_a_profile_goes_on_beyond_what_was_measured() -> None:
    profile = BatchProfile((2, 4), (0.01, 0.03))
    assert [profile.at(batch) for batch in (1, 2, 3, 4, 6)] == pytest.approx([0.01, 0.01, 0.02, 0.03, 0.05])


def test_files_are_found_next_to_the_scenario_and_in_an_archive(tmp_path: Path) -> None:
    named = {"name": "a", "slo": 1, "rate": 1, "profile_file": "tiny.txt"}
    file = written(tmp_path, named)
    (tmp_path / "tiny.txt").write_text(PROFILE)
    beside = read(file).models[0]
    assert isinstance(beside.cost, BatchProfile) and beside.cost.latency == pytest.approx(
        (0.006, 0.008, 0.012)
    )
    assert (beside.preprocess, beside.postprocess, beside.bytes) == pytest.approx((0.0005, 0.00004, 1000))
    (tmp_path / "tiny.txt").unlink()
    with zipfile.ZipFile(tmp_path / "profiles.zip", "w") as packed:
        packed.writestr("folder/tiny.txt", PROFILE)
        packed.writestr("folder/other.txt", "")
    assert read(file, extra=str(tmp_path / "profiles.zip")).models[0] == beside


def test_an_upload_does_not_reach_the_files_next_to_it(tmp_path: Path) -> None:
    """Uploads lie under their hash, those of others next to them."""
    file = written(tmp_path, {"name": "a", "slo": 1, "rate": 1, "profile_file": "tiny.txt"})
    (tmp_path / "tiny.txt").write_text(PROFILE)
    with pytest.raises(BadInput, match="is not found"):
        read(file.rename(tmp_path / "0f3a"))


def test_kernels_come_with_their_profile(tmp_path: Path) -> None:
    (tmp_path / "net.json").write_text("{}")
    (tmp_path / "net.profile.json").write_text('{"a": 1}')
    file = written(tmp_path, {"name": "net", "rate": 1, "kernels": "net.json"})
    assert read(file).models[0].cost == KernelFile("net.json", b"{}", b'{"a": 1}')


def test_a_scenario_and_the_files_that_it_names_come_as_one_archive(tmp_path: Path) -> None:
    scenario = written(tmp_path, {"name": "a", "slo": 1, "rate": 1, "profile_file": "tiny.txt"})
    file = tmp_path / "0f3a"
    with zipfile.ZipFile(file, "w") as packed:
        packed.write(scenario, "scenario.json")
        packed.writestr("profiles/tiny.txt", PROFILE)
    assert isinstance(read(file).models[0].cost, BatchProfile)
    with zipfile.ZipFile(file, "w") as packed:
        packed.write(scenario, "scenario.json")
        packed.writestr("profiles/large.txt", PROFILE)
    with pytest.raises(BadInput, match=r"'tiny\.txt' is not found"):
        read(file)


@pytest.mark.parametrize(
    ("rows", "where", "what"),
    [
        ([without("name")], "models[0].name", "is missing"),
        ([without("rate")], "models[0].rate", "is missing"),
        ([without("latency")], "models[0]", "has no cost"),
        ([row(layers=[{"seconds": 1, "bytes": 1}])], "models[0]", "has latency and layers"),
        ([row(latency=-1)], "models[0].latency", "-1"),
        ([row(latency="fast")], "models[0].latency", "'fast'"),
        ([row(slo=-0.1)], "models[0].slo", "-0.1"),
        ([row(peaks=[1e9, -1])], "models[0].peaks[1]", "-1"),
        ([row(arrivals="closed")], "models[0].rate", "several say its load"),
        ([row(rate=True)], "models[0].rate", "True"),
        ([row(speed=1)], "models[0]", "unknown field 'speed'"),
        ([row(), row()], "models[0].name", "appears twice"),
        ([row(**{"class": "slow"})], "models[0].class", "'slow' is no class"),
        ([row(arrivals="bursty")], "models[0].arrivals", "'bursty'"),
        ([row(arrivals="mmpp", cv=1.0)], "models[0].cv", "1"),
        ([row(times=[0, 1])], "models[0].rate", "several say its load"),
        ([{**without("rate"), "times": [1, 0]}], "models[0].times[1]", "0 after 1"),
        ([{**without("rate"), "after": "x"}], "models[0].after", "'x' is no model"),
        ([{**without("rate"), "after": "a"}], "models[0].after", "'a' is before itself"),
        (["no row"], "models[0]", "'no row' is no object"),
        ([{**without("latency"), "profile": {"batch": [2, 1], "latency": [1, 2]}}], "profile.batch", "(2.0"),
        ([{**without("latency"), "profile": {"batch": [1], "latency": [1, 2]}}], "profile", "2 latencies"),
        ([{**without("latency"), "profile": {"batch": [1.5], "latency": [1]}}], "profile.batch", "1.5"),
        ([{**without("latency"), "layers": [{"seconds": 1}]}], "layers[0]", "{'seconds': 1}"),
        ([{**without("latency"), "profile_file": "no.txt"}], "profile_file", "'no.txt' is not found"),
        ([{**without("latency"), "sizes": "bert-9b"}], "sizes", "'bert-9b' has no sizes here"),
        ([], "models", "[]"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused_at_its_field(
    rows: list[Any], where: str, what: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput) as refused:
        read(written(tmp_path, *rows))
    assert refused.value.where is not None and refused.value.where.endswith(where)
    assert what in refused.value.what and refused.value.expected


@pytest.mark.parametrize("duration", [0, -1, "long", None, True])
def test_a_duration_is_seconds(duration: Any, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="duration"):
        read(written(tmp_path, row(), duration=duration))


def test_requests_without_number_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="1e\\+12 requests"):
        read(written(tmp_path, row(rate=1e7), duration=1e5))


@pytest.mark.parametrize(
    "place", [(3, "batch"), (4, "1,6000,20"), (4, "x,6000,20,1000"), (4, "1,-5,20,1000")]
)
def test_a_broken_profile_names_its_line(place: tuple[int, str], tmp_path: Path) -> None:
    line, text = place
    lines = PROFILE.splitlines()
    (tmp_path / "tiny.txt").write_text("\n".join([*lines[:line], text, *lines[line + 1 :]]))
    with pytest.raises(BadInput, match=f"tiny.txt, line {line + 1}"):
        read(written(tmp_path, {"name": "a", "slo": 1, "rate": 1, "profile_file": "tiny.txt"}))


def test_the_published_profiles_of_nexus_are_read(shared_data: Path, tmp_path: Path) -> None:
    rows = [
        {"name": file.stem, "slo": 1, "rate": 1, "profile_file": file.name}
        for file in sorted((shared_data / "serving/nexus").glob("*.txt"))
    ]
    found = read(written(tmp_path, *rows), extra=str(shared_data / "serving/nexus"))
    by_name = {model.name: model for model in found.models}
    yolo = by_name["darknet:yolo9000:1"]
    assert isinstance(yolo.cost, BatchProfile) and yolo.cost.at(1) == pytest.approx(0.0216757)
    assert yolo.preprocess == pytest.approx(0.00948056) and yolo.bytes == 1_069_481_984


def test_loads_are_scaled_in_proportion_and_the_first_requests_kept(tmp_path: Path) -> None:
    file = written(tmp_path, row(rate=30), row(name="b", rate=10))
    assert [model.rate for model in read(file, rate=20.0).models] == [15, 5]
    assert len(read(file, limit=7).draw(1)) == 7


def test_draws_are_those_of_the_seed_and_a_further_model_changes_none(tmp_path: Path) -> None:
    two = read(written(tmp_path, row(), row(name="b")))
    three = read(written(tmp_path, row(), row(name="b"), row(name="c")))
    first, again, more, other = two.draw(3), two.draw(3), three.draw(3), two.draw(4)
    assert first.arrival.tolist() == again.arrival.tolist() != other.arrival.tolist()
    assert more.arrival[more.model < 2].tolist() == first.arrival.tolist()


def test_answers_ask_the_models_after_them(tmp_path: Path) -> None:
    """Each of 50 answers of a asks b 2.5 times in the mean, each of b's asks c once."""
    found = read(
        written(
            tmp_path,
            row(rate=5, arrivals="constant"),
            {"name": "b", "latency": 1, "after": "a", "share": 2.5},
            {"name": "c", "latency": 1, "after": "b"},
        )
    ).draw(0)
    counts = np.bincount(found.model).tolist()
    assert counts[0] == 50 and 100 <= counts[1] <= 150 and counts[2] == counts[1]
    assert np.isnan(found.arrival[found.parent >= 0]).all()
    assert (found.model[found.parent[found.model == 2]] == 1).all()


@pytest.mark.parametrize(
    ("process", "cv", "variation"),
    [("constant", 1, 0), ("poisson", 1, 1), ("uniform", 1, 3**-0.5), ("gamma", 4, 4), ("mmpp", 3, 3)],
)
def test_gaps_have_the_mean_and_the_variation_asked_for(process: str, cv: float, variation: float) -> None:
    times = draw_arrivals(process, 50.0, cv, 20_000.0, np.random.default_rng(7))
    gaps = np.diff(times)
    assert len(times) == pytest.approx(1_000_000, rel=0.02)
    assert gaps.std() / gaps.mean() == pytest.approx(variation, rel=0.05, abs=1e-9)


def test_a_scenario_is_no_trace_of_one_model_and_the_other_way_round(tmp_path: Path) -> None:
    file = written(tmp_path, row())
    assert scenario_of(Workload(str(file)))[0].models[0].name == "a"
    with pytest.raises(BadInput, match="is a scenario of several models"):
        requests_of(Workload(str(file)))
    (tmp_path / "requests.csv").write_text("arrival,prompt,output\n0,1,1\n")
    with pytest.raises(BadInput, match="expected a serving-scenario"):
        scenario_of(Workload(str(tmp_path / "requests.csv")))


def test_a_summary_says_what_is_asked_of_how_many_models(tmp_path: Path) -> None:
    found = summary(read(written(tmp_path, row(bytes=3e9), row(name="b", rate=40, slo=0.1))))
    cards = {card["label"]: card["value"] for card in found["cards"]}
    assert (cards["models"], cards["mean rate"], cards["tightest objective"]) == (2, 50, 0.1)
    assert [model["name"] for model in found["models"]] == ["b", "a"]
    assert [plot["title"] for plot in found["plots"]] == ["Requests over time (seed 0)", "A request alone"]
    json.dumps(found, allow_nan=False)
