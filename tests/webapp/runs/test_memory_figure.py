"""The figure of a memory run and its trace: what is drawn, what is said in words, what leaves for
Perfetto.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.webapp.cast import Cast, experiment_with, ready, signed_in
from webapp.runs import memory_figure
from webapp.runs.memory_figure import memory_view
from webapp.runs.models import Run, RunDocument


def outcome() -> dict[str, Any]:
    """Three ops of 2 s; ``acts`` (4 bytes) leaves at op 1 over a copy of 1 s and is waited for 1
    s at op 2.
    """
    tensor = {"tensor": 7, "name": "acts", "kind": "activation", "bytes": 4, "module": "layer.0"}
    return {
        "series": {
            "device_bytes": {"unit": "bytes", "x": [0.0, 2.0, 4.0, 7.0], "y": [4, 6, 2, 0]},
            "device_bytes.activation": {"unit": "bytes", "x": [0.0, 2.0, 4.0, 7.0], "y": [4, 6, 2, 0]},
            "capacity": {"unit": "bytes", "x": [0.0, 7.0], "y": [8, 8]},
            "channel.out": {"unit": "busy", "x": [0.0, 2.0, 3.0, 7.0], "y": [0, 1, 0, 0]},
            "channel.stall": {"unit": "busy", "x": [0.0, 4.0, 5.0, 7.0], "y": [0, 1, 0, 0]},
            "other": {"unit": "jobs", "x": [0.0], "y": [1]},
        },
        "plan": {
            "moves": [
                {"action": "offload", "at": 1, "tensor": 7, "until": 0, "tier": "host"},
                {"action": "prefetch", "at": 2, "tensor": 7},
                {"action": "recompute", "at": 2, "ops": [0], "keep": [3]},
            ]
        },
        "provenance": {
            "stall_by_cause": {"transfer": 1.0, "space": 0.0},
            "bytes_by_channel": {"out": 4, "back": 4},
            "timeline": {
                "compute": {
                    "of": 3,
                    "what": ["op", "op", "op"],
                    "index": [0, 1, 2],
                    "start": [0.0, 2.0, 5.0],
                    "end": [2.0, 4.0, 7.0],
                    "texts": ["", "a", "b", "c"],
                    "name": [1, 2, 3],
                    "module": [0, 0, 0],
                },
                "stalls": {"transfer": [[4.0, 5.0]]},
                "tensors": {"7": tensor},
                "fullest": {
                    "time": 2.0,
                    "op": 1,
                    "name": "b",
                    "held": [tensor],
                    "others": {"tensors": 2, "bytes": 2},
                    "workspace": 0,
                },
            },
        },
    }


def stored(cast: Cast) -> Run:
    run = experiment_with(cast.project, ready(cast.project), succeeded=1).runs.get()
    RunDocument.objects.create(run=run, outcome=outcome())
    return run


def test_arcs_lanes_and_stalls_share_the_time_axis() -> None:
    found = memory_view(outcome())
    assert found is not None
    (arc,) = found.data["arcs"]
    assert (arc["start"], arc["end"], arc["tier"], arc["bytes"]) == (2.0, 5.0, "host", 4)
    assert arc["text"] == "acts: out at op 1, back at op 2"
    assert [(mark["kind"], mark["x"]) for mark in found.data["marks"]] == [("recompute", 5.0)]
    assert [(lane["name"], lane["x"], lane["to"]) for lane in found.data["lanes"]] == [
        ("device to host", [2.0], [3.0]),
        ("stall: transfer", [4.0], [5.0]),
    ]
    assert [(lane.name, lane.busy, lane.bytes) for lane in found.lanes] == [("device to host", 1.0, 4)]
    assert [(lane.name, lane.percent) for lane in found.stalls] == [("transfer", "14.29")]
    assert found.data["capacity"] == 8
    assert found.said == ()


def test_of_too_many_arcs_the_weightiest_are_drawn_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_figure, "MOST_ARCS", 1)
    crowded = outcome()
    small = {"action": "offload", "at": 1, "tensor": 9, "until": 0, "tier": "host"}
    crowded["plan"]["moves"] = [small, *crowded["plan"]["moves"]]
    crowded["provenance"]["timeline"]["tensors"]["9"] = {"name": "tiny", "bytes": 1, "module": ""}
    found = memory_view(crowded)
    assert found is not None
    assert [arc["text"].split(":")[0] for arc in found.data["arcs"]] == ["acts"]
    assert "1 of 2 stays" in found.said[0]


def test_an_outcome_without_times_of_ops_keeps_its_plain_plots() -> None:
    old = outcome()
    del old["provenance"]["timeline"]
    assert memory_view(old) is None


def test_the_page_draws_one_figure_and_names_the_tensors_at_the_peak(cast: Cast) -> None:
    run = stored(cast)
    page = signed_in(cast.vera).get(cast.url(f"runs/{run.pk}/")).content.decode()
    for text in ("memory-figure", "layer.0", "and 2 more", "14.3 %", "trace.json", 'title="4 bytes">4 B'):
        assert text in page, text
    assert "channel stall" not in page, "drawn once, in the figure"
    assert '"title": "other"' in page


def test_the_trace_leaves_as_a_file_and_only_where_there_is_one(cast: Cast) -> None:
    run = stored(cast)
    client = signed_in(cast.vera)
    answer = client.get(cast.url(f"runs/{run.pk}/trace.json"))
    assert answer.headers["Content-Disposition"] == f'attachment; filename="trace-{run.pk}.json"'
    events = json.loads(answer.content)["traceEvents"]
    assert sum(event["ph"] == "X" and event["tid"] == 1 for event in events) == 3
    times = [event["ts"] for event in events if "ts" in event]
    assert times == sorted(times)
    RunDocument.objects.update(outcome={"status": "infeasible"})
    assert client.get(cast.url(f"runs/{run.pk}/trace.json")).status_code == 404
