"""Tiles and tuned operators on their run's page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.core.spec import load_spec
from experiments.run import run
from webapp.runs.kernels_figure import MOST_BARS, kernels_view

SUITES = Path(__file__).parents[3] / "experiments" / "suites" / "traces"


def planned(policy: str, source: str, **options: Any) -> dict[str, Any]:
    spec = {"family": "compilation", "policy": policy, "workload": {"source": source, "options": options}}
    return run(load_spec({**spec, "hardware": "v100"})).to_json()


def test_operators_by_themselves_stand_beside_their_bound() -> None:
    """Roller's 119 operators: the dearest are drawn, all are told, sums by kind add up."""
    view = kernels_view(planned("roller", str(SUITES / "roller-operators.txt")))
    assert view is not None and len(view.kernels) == 119 and not view.connected
    times, traffic = view.plots
    assert times["title"] == f"Time of each kernel, the {MOST_BARS} dearest of 119" and times["log"] == "y"
    assert [series["name"] for series in times["series"]] == ["as planned", "at least"]
    assert {len(series["x"]) for series in times["series"]} == {MOST_BARS}
    drawn = sum(traffic["series"][0]["y"])
    assert drawn == sum(one.row["bytes"] for one in view.kernels) == view.sums[0]["bytes"]
    assert "×" in view.kernels[0].domain and view.kernels[0].levels


def tuned(**more: Any) -> dict[str, Any]:
    sample = {"calls": 9, "least": 1.0, "lower": 1.1, "median": 1.2, "upper": 1.4}
    task = {
        "task": "matmul", "trials": 8, "failed": 1, "schedule": {"tile_m": [4, 2], "unroll": 0, "order": "x"},
        "spread": {"ours": sample, "torch": {**sample, "median": 1.3}}, **more,
    }  # fmt: skip
    return {"plan": {"tasks": [task, task]}}


def test_a_tuned_operator_has_its_spread_and_its_schedule() -> None:
    view = kernels_view(tuned())
    assert view is not None and not view.kernels and not view.sums
    [plot] = view.plots
    assert plot["lanes"] == ["1 ours", "1 torch", "2 ours", "2 torch"]
    ours = plot["series"][0]
    assert (ours["name"], ours["x"][:2], ours["to"][:2]) == ("ours", [1.1, 1.2], [1.2, 1.4])
    assert view.tasks[0].schedule == (("tile m", "4×2"), ("order", "x"))  # what is left out is not told


def test_a_replay_has_no_times_of_its_own_and_other_plans_nothing() -> None:
    replay = tuned(spread=None, schedule=None)
    view = kernels_view(replay)
    assert view is not None and not view.plots and view.tasks[0].schedule == ()
    assert kernels_view({"plan": {"kernels": [{"name": "k"}]}}) is None
    assert kernels_view({}) is None
