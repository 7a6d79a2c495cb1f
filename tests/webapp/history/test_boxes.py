"""Boxes of the groups of a search: the database's quantiles are those of plain Python."""

from __future__ import annotations

import json
import re
import statistics
from typing import Any

import pytest
from django.test import Client

from tests.webapp import cast
from tests.webapp.cast import Place
from webapp.compare.figures import boxes as figures
from webapp.history import boxes
from webapp.history.search import parse
from webapp.history.table import find
from webapp.navigation import project_url
from webapp.runs.models import Run

BACKEND = "django.contrib.auth.backends.ModelBackend"
#: Twenty-one values, so that every fraction falls on one: the second, 6th, 11th, 16th and 20th.
EVERY_FRACTION = [0.1 * place for place in range(1, 22)]


@pytest.fixture
def ada(db: None) -> Place:
    there = cast.place("ada")
    made = cast.experiment(there.project)
    for seed, seconds in enumerate(EVERY_FRACTION):
        cast.run(made, "vdnn", {"step_time": seconds}, seed=seed)
    cast.run(made, "capuchin", {"step_time": 100.0})
    cast.run(made, "orca", {"peak_memory": 1.0})
    return there


@pytest.fixture
def client(client: Client, ada: Place) -> Client:
    client.force_login(ada.user, backend=BACKEND)
    return client


def drawn(ada: Place, text: str, box: str = "") -> figures.Boxes:
    found = find(ada.project, parse(text), [], box=box).boxes
    assert found is not None
    return found


def test_a_box_has_the_quantiles_of_its_runs_and_each_run_as_a_point(ada: Place) -> None:
    """The surprise: a policy without the figure has no box, and one run is a box of one value."""
    found = drawn(ada, "group by policy: count, mean(step_time)")
    vdnn, capuchin = found.boxes
    assert (vdnn.label, vdnn.count) == ("vdnn", 21) and (capuchin.label, capuchin.count) == ("capuchin", 1)
    assert vdnn.quantiles == pytest.approx([0.2, 0.6, 1.1, 1.6, 2.0])
    assert list(capuchin.quantiles) == [100.0] * 5
    assert sorted(point.value for point in vdnn.points) == pytest.approx(EVERY_FRACTION)
    newest = Run.objects.filter(policy="capuchin").get()
    assert capuchin.points[0].href == project_url(ada.project, "runs:run", run=newest.pk)
    assert found.plot["log"] == "x"  # from 0.1 s to 100 s
    assert found.plot["x_ticks"]["labels"] == ["100 ms", "500 ms", "1 s", "5 s", "10 s", "30 s", "1 min"]


def test_a_figure_that_reaches_over_little_is_on_a_plain_axis(ada: Place) -> None:
    assert (
        drawn(ada, "step_time > 0.15 and step_time < 50 group by policy: median(step_time)").plot["log"] == ""
    )


def test_of_many_runs_there_are_boxes_and_no_points(ada: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boxes, "MOST_POINTS", 22)
    found = drawn(ada, "group by policy: count, mean(step_time)")
    assert not found.has_points and found.boxes[0].count == 21


def test_groups_without_repeats_have_no_boxes(ada: Place) -> None:
    assert find(ada.project, parse("policy != vdnn group by policy: mean(step_time)"), []).boxes is None
    assert find(ada.project, parse("group by policy: count"), [], box="nothing").boxes is None
    assert find(ada.project, parse("policy = vdnn"), [], box="step_time").boxes is None


def test_the_median_is_an_aggregate_of_its_own(ada: Place) -> None:
    (row, *_) = find(ada.project, parse("group by policy: median(step_time)"), []).groups
    assert row["median(step_time)"] == pytest.approx(statistics.median(EVERY_FRACTION))


def test_the_page_has_the_figure_its_metric_and_the_same_as_a_table(ada: Place, client: Client) -> None:
    address = ada.url("all-runs/")
    page = client.get(address, {"q": "group by policy: count", "box": "step_time"}).content.decode()
    (told,) = re.findall(r'<script id="boxes-plot-data"[^>]*>(.*?)</script>', page)
    plot: dict[str, Any] = json.loads(told)
    assert plot["kind"] == "boxes" and plot["groups"] == ["vdnn", "capuchin"] and plot["x_unit"] == "s"
    assert '<option value="step_time" selected>' in page and '<option value="peak_memory">' in page
    rows = re.findall(r'<tr><th scope="row">(\w+)</th>(.*?)</tr>', page)
    cells = dict(rows)["vdnn"]
    assert re.findall(r">([\d.]+ m?s)<", cells) == ["200 ms", "600 ms", "1.1 s", "1.6 s", "2 s"]
    other = client.get(address, {"q": "group by policy: count", "box": "peak_memory"}).content.decode()
    assert "No group has several runs with this figure." in other and "boxes-plot-data" not in other


@pytest.mark.parametrize("box", ["", "x" * 500, "nothing", "%00", "step_time'"])
def test_no_metric_breaks_the_page(ada: Place, client: Client, box: str) -> None:
    answer = client.get(ada.url("all-runs/"), {"q": "group by policy: count", "box": box})
    assert answer.status_code == 200
