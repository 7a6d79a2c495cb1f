"""The figure of a parallel run: lanes, messages, memory and topology of a plan that a reader can follow."""

from __future__ import annotations

from typing import Any

import pytest

from tests.webapp.cast import Cast, experiment_with, ready, signed_in
from webapp.runs import parallel_figure
from webapp.runs.models import Run, RunDocument
from webapp.runs.parallel_figure import device_names, parallel_view
from webapp.runs.plan_topology import topology_of
from webapp.runs.planner_notes import notes_of


def outcome() -> dict[str, Any]:
    """Two nodes of two devices: worker 0 (devices 0, 1) has stage 0, workers 1 and 2 are replicas
    of stage 1.
    """
    return {
        "series": {
            "memory_device_0": {"unit": "bytes", "x": [0.0, 4.0], "y": [4, 8]},
            "bubble_by_device": {
                "unit": "fraction",
                "x": [0, 2, 3],
                "y": [0.25, 0.5, 0.5],
                "x_unit": "device",
            },
        },
        "plan": {
            "mesh": {"pipeline": 2},
            "stages": [{"begin": 0, "end": 3, "workers": [0]}, {"begin": 3, "end": 4, "workers": [1, 2]}],
            "workers": [
                {"devices": [0, 1], "slots": ["F0.0", "F1.0"]},
                {"devices": [2], "slots": ["F0.1"]},
                {"devices": [3], "slots": ["F1.1"]},
            ],
            "notes": {"predicted_time": 0.002, "curve": [3.0] + [2.0] * 12},
            "peak_memory_by_worker": [8, 2, 2],
            "capacity_by_worker": [16, 16, 16],
            "live_micro_batches": [2, 1, 1],
            "communication_by_worker": [{"send": 10.0}, {}, {}],
            "timeline": {
                "lanes": [
                    {"worker": 0, "devices": [0, 1], "events": [[0.0, 1.0, "F0.0"], [1.0, 2.0, "F1.0"]]},
                    {"worker": 1, "devices": [2], "events": [[1.5, 2.5, "F0.1"], [3.5, 4.0, "U.1"]]},
                    {"worker": 2, "devices": [3], "events": [[2.5, 3.5, "F1.1"]]},
                ],
                "messages": {
                    "of": 3,
                    "kind": ["send", "all_reduce"],
                    "about": ["F0.0 to stage 1", "stage 1, bucket 0"],
                    "start": [1.0, 3.5],
                    "end": [1.5, 3.6],
                    "workers": [[0], [1, 2]],
                    "target": [1, -1],
                    "bytes": [10.0, 8.0],
                    "between_nodes": [True, False],
                },
                "communication": [
                    {"kind": "send", "way": "between nodes", "messages": 2, "bytes": 20.0, "seconds": 1.0}
                ],
            },
        },
        "provenance": {
            "hardware": {"groups": [{"count": 2, "node": {"device_count": 2, "device": {"name": "unit"}}}]}
        },
    }


def test_slots_and_messages_are_on_the_lanes_of_their_workers() -> None:
    view = parallel_view(outcome())
    assert view is not None
    assert [row["name"] for row in view.data["rows"]] == ["0-1", "2", "3"]
    assert view.data["slots"]["kind"] == ["forward", "forward", "forward", "update of weights", "forward"]
    assert view.data["slots"]["micro_batch"] == [0, 1, 0, None, 1]
    bars = list(zip(view.data["messages"]["row"], view.data["messages"]["label"], strict=True))
    assert bars == [
        (0, "F0.0 to stage 1, between nodes"),
        (1, "F0.0 to stage 1, between nodes (received)"),
        (1, "stage 1, bucket 0, inside a node"),
        (2, "stage 1, bucket 0, inside a node"),
    ]
    assert (view.data["end"], view.said) == (4.0, ())
    first = view.workers[0]
    assert (first.devices, first.stages, first.idle, first.percent) == ("0-1", "0", 0.25, "50.00")
    assert view.memory is not None
    assert [line["name"] for line in view.memory["series"]] == ["device 0", "capacity"]


def test_replicas_give_way_to_stages_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_figure, "ENOUGH_LANES", 2)
    monkeypatch.setattr(parallel_figure, "MOST_MESSAGES", 1)
    view = parallel_view(outcome())
    assert view is not None
    assert [row["worker"] for row in view.data["rows"]] == [0, 1]
    assert view.said[0] == "2 of 3 workers are drawn, one replica of each stage first"
    assert view.said[1].startswith("3 messages in all")


def test_a_far_capacity_is_said_not_drawn() -> None:
    told = outcome()
    told["plan"]["capacity_by_worker"] = [2**30] * 3
    view = parallel_view(told)
    assert view is not None
    assert view.memory is not None
    assert view.memory["title"].endswith("of 1 GiB")
    assert len(view.memory["series"]) == 1


@pytest.mark.parametrize(
    ("devices", "name"),
    [([3], "3"), ([0, 1, 2], "0-2"), ([0, 4], "0, 4"), (list(range(0, 16, 2)), "0, 2 ... (8)"), ([], "")],
)
def test_devices_are_named_briefly(devices: list[int], name: str) -> None:
    assert device_names(devices) == name


def test_the_topology_has_devices_in_their_nodes_with_stage_and_group() -> None:
    found = topology_of(outcome())
    assert found is not None
    assert [[spot.words for spot in node.spots] for node in found.nodes] == [
        ["device 0: stage 0, worker 0", "device 1: stage 0, worker 0"],
        ["device 2: stage 1, worker 1", "device 3: stage 1, worker 2"],
    ]
    assert [spot.joined for node in found.nodes for spot in node.spots] == [True, False, False, False]
    assert [(row.layers, row.replicas, row.devices_each, row.on_nodes) for row in found.stages] == [
        ("0-2", 1, 2, "0"),
        ("3", 2, 1, "1"),
    ]


def test_a_planners_numbers_are_a_table_and_its_tries_a_curve() -> None:
    notes = notes_of(
        {"notes": {"predicted_step_time": 0.002, "cuts": 17, "curve": [3.0, 1.0] * 6, "why": "so"}}
    )
    assert notes is not None
    assert notes.facts == (("predicted step time", "2 ms"), ("cuts", "17"), ("why", "so"))
    (curve,) = notes.curves
    assert curve["series"][1]["y"] == [3.0] + [1.0] * 11


def test_the_page_has_figure_tables_and_trace(cast: Cast) -> None:
    run = experiment_with(cast.project, ready(cast.project), succeeded=1).runs.get()
    Run.objects.filter(pk=run.pk).update(family="parallel", policy="gpipe")
    RunDocument.objects.create(run=run, outcome=outcome())
    client = signed_in(cast.vera)
    page = client.get(cast.url(f"runs/{run.pk}/")).content.decode()
    for words in (
        "What every device does over the step",
        "What the links carry",
        "The plan on its cluster",
        "2 ms",
    ):
        assert words in page
    assert 'hue-2" title="device 2: stage 1, worker 1"' in page
    events = client.get(cast.url(f"runs/{run.pk}/trace.json")).json()["traceEvents"]
    assert {event["args"]["name"] for event in events if event["name"] == "process_name"} == {
        "node 0",
        "node 1",
    }
