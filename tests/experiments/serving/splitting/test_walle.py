"""A model between a device and a cloud: the cards' chain, every division tried, and a link that changes."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.core import registry
from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.core.spec import Outcome, load_spec
from experiments.readers.base import open_file
from experiments.run import run
from experiments.serving.interface.splitting import SplittingPolicy, split_cost
from experiments.workloads.split_task import LinkState, SplitOperator, SplitTask

CHAIN: dict[str, Any] = {
    "uplink": 1e7,
    "downlink": 1e7,
    "round_trip": 0.005,
    "input_bytes": 4e5,
    "output_bytes": 1e3,
    "operators": [
        {"name": "a", "device": 0.01, "cloud": 0.001, "bytes": 1e5},
        {"name": "b", "device": 0.01, "cloud": 0.001, "bytes": 5e4},
        {"name": "c", "device": 0.01, "cloud": 0.001},
    ],
}


def outcome(folder: Path, document: dict[str, Any], **knobs: Any) -> Outcome:
    path = folder / "task.json"
    path.write_text(json.dumps(document))
    spec = {"family": "serving", "policy": "walle", "knobs": knobs, "hardware": "cpu-generic"}
    return run(load_spec({**spec, "workload": {"source": str(path)}}))


def milliseconds(found: Outcome) -> float:
    assert found.status == "ok", found.reason
    return 1e3 * float(found.metrics["latency"]["value"])


def test_the_chain_is_cut_behind_its_first_operator(tmp_path: Path) -> None:
    found = outcome(tmp_path, CHAIN)
    assert milliseconds(found) == pytest.approx(27.1)
    assert found.plan["stretches"][0]["cloud"] == ["b", "c"]
    assert found.plan["alternatives"] == pytest.approx({"device": 0.030, "cloud": 0.0481})


def test_a_longer_round_trip_keeps_all_on_the_device(tmp_path: Path) -> None:
    found = outcome(tmp_path, {**CHAIN, "round_trip": 0.010})
    assert milliseconds(found) == pytest.approx(30)
    assert found.plan["stretches"][0]["cloud"] == []


def test_the_link_is_planned_for_anew_when_it_changes_by_a_fifth(tmp_path: Path) -> None:
    """A little slower is borne; a tenth of the bandwidth brings everything back to the device."""
    rows = [[0, 1e7, 1e7], [1, 8.5e6, 1e7], [2, 1e6, 1e6]]
    task = {key: value for key, value in CHAIN.items() if key not in ("uplink", "downlink")}
    found = outcome(tmp_path, {**task, "bandwidth": rows, "duration": 3})
    assert [row["is_planned"] for row in found.plan["stretches"]] == [True, False, True]
    assert found.plan["stretches"][2]["cloud"] == []
    assert milliseconds(found) == pytest.approx((27.1 + 27.1 + 10 * (1 / 0.85 - 1) + 30) / 3)


def make() -> SplittingPolicy:
    made = registry.create("serving", "walle", {})
    assert isinstance(made, SplittingPolicy)
    return made


@st.composite
def tasks(draw: st.DrawFn) -> SplitTask:
    """Up to six operators of any graph."""
    seconds = sizes = st.floats(0, 10).map(lambda value: round(value, 3))
    operators = []
    for place in range(draw(st.integers(1, 6))):
        sources = tuple(sorted(draw(st.sets(st.integers(-1, place - 1), min_size=1, max_size=3))))
        stays = draw(st.booleans()) and draw(st.booleans())
        cloud, size, device = draw(seconds), draw(sizes), draw(seconds)
        operators.append(SplitOperator(f"o{place}", cloud, size, sources, device, None, stays))
    link = LinkState(0.0, draw(st.floats(0.5, 5)), draw(st.floats(0.5, 5)))
    trip = draw(st.floats(0, 5))
    return SplitTask("drawn", tuple(operators), (link,), trip, draw(sizes), draw(sizes), 1.0)


@given(task=tasks())
def test_no_division_of_any_graph_is_faster_than_the_cut(task: SplitTask) -> None:
    policy, link = make(), task.links[0]
    device = policy.on_device(task)
    movable = [place for place, one in enumerate(task.operators) if not one.stays]
    every = [
        frozenset(chosen)
        for count in range(len(movable) + 1)
        for chosen in itertools.combinations(movable, count)
    ]
    best = min(split_cost(task, device.seconds, link, split).seconds for split in every)
    chosen = policy.split(task, device, link)
    assert chosen <= set(movable)
    assert split_cost(task, device.seconds, link, chosen).seconds == pytest.approx(best, abs=1e-9)


def test_the_library_with_the_lowest_sum_runs_the_cheapest_algorithms(tmp_path: Path) -> None:
    """Large products by Strassen, kernels of three by Winograd; the faster library schedules too slowly."""
    operators = [
        {"name": "conv", "convolution": [64, 64, 3, 56, 56], "stays": True},
        {"name": "small", "matmul": [16, 16, 16], "stays": True},
        {"name": "large", "matmul": [1024, 1024, 1024], "stays": True},
    ]
    backends = {"cpu": {"rate": 1e10, "scheduling": 1e-4}, "gpu": {"rate": 2e10, "scheduling": 1.0}}
    found = outcome(tmp_path, {**CHAIN, "operators": operators, "backends": backends})
    device = found.plan["device"]
    assert device["backend"] == "cpu" and device["seconds"]["gpu"] > device["seconds"]["cpu"]
    assert device["algorithms"]["small"] == "plain"
    assert device["algorithms"]["conv"].startswith("winograd")
    assert device["algorithms"]["large"].startswith("strassen")
    plain = (2 * 64 * 64 * 9 * 56 * 56 + 2 * 16**3 + 2 * 1024**3) / 1e10 + 3e-4
    assert milliseconds(found) < 1e3 * plain


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"uplink": -1}, "uplink"),
        ({"uplink": None}, "uplink"),
        ({"operators": []}, "operators"),
        ({"operators": [{"name": "a", "cloud": 1}]}, "device, matmul or convolution"),
        ({"operators": [{"name": "a", "device": 1}]}, "seconds in the cloud"),
        ({"operators": [{"name": "a", "device": 1, "cloud": 1, "inputs": ["b"]}]}, "no operator before it"),
        ({"operators": [{"name": "a", "matmul": [1, 2], "cloud": 1}]}, "3 counts"),
        ({"operators": [{"name": "a", "matmul": [1, 2, 3], "cloud": 1}]}, "shape and backends"),
        ({"operators": [*CHAIN["operators"], {"name": "a", "device": 1, "cloud": 1}]}, "twice"),
        ({"bandwidth": [[0, 1, 1], [0, 2, 2]]}, "ascend"),
        ({"backends": {"cpu": {}}}, "rate"),
        ({"wings": 2}, "wings"),
    ],
)
def test_a_task_that_cannot_be_read_says_where(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "task.json"
    path.write_text(json.dumps({**CHAIN, **change}))
    with pytest.raises(BadInput, match=message):
        open_file(path, "auto", WorkloadOptions())
