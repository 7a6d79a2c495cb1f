"""The page of a cluster run: nodes by time, lives of jobs, queues and distributions of a real simulation."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import pytest

from experiments.core.spec import load_spec
from experiments.run import run
from tests.variants import variants
from tests.webapp.browser import browser_page, enter, ink, serious, serving
from tests.webapp.cast import finished_run, make_cast
from webapp.runs.cluster_figure import ORDERS, cluster_view
from webapp.runs.lives import MOST_LIVES
from webapp.runs.question import question_of

HARDWARE = {"cluster": {"nodes": 4, "devices_per_node": 4, "device": "v100-32g"}}


@cache
def outcome() -> dict[str, Any]:
    """Forty jobs under Tiresias, some of them preempted, each start of 30 s."""
    spec = {
        "family": "cluster",
        "policy": "tiresias",
        "knobs": {"restart_cost": 30.0},
        "workload": {"source": "package:forty-jobs.csv"},
        "hardware": HARDWARE,
    }
    return run(load_spec(spec)).to_json()


def test_lives_are_in_the_order_asked_for_and_account_for_all_of_a_jobs_time() -> None:
    stopped = cluster_view(outcome(), {"jobs": "stopped"})
    assert stopped is not None and stopped.lives is not None
    assert len(stopped.lives["lanes"]) == MOST_LIVES
    jobs = {row[0]: row for row in outcome()["plan"]["jobs"]["rows"]}
    counts = [jobs[lane.removeprefix("job ")][5] for lane in stopped.lives["lanes"]]
    assert counts == sorted(counts, reverse=True) and counts[0] > 1
    first = stopped.lives["lanes"][0]
    bars = [
        (start, end)
        for line in stopped.lives["series"]
        for start, end, lane in zip(line["x"], line["to"], line["y"], strict=True)
        if lane == first
    ]
    told = jobs[first.removeprefix("job ")]
    assert sum(end - start for start, end in bars) == pytest.approx(told[4] - told[1])
    for order in ORDERS:
        assert cluster_view(outcome(), {"jobs": order}) is not None


def test_a_life_has_every_execution_and_a_job_of_no_such_name_none() -> None:
    rows = outcome()["plan"]["jobs"]["rows"]
    most = max(rows, key=lambda row: row[5])
    found = cluster_view(outcome(), {"job": most[0]})
    assert found is not None and found.life is not None
    assert len(found.life.stages) == most[5]
    assert [stage["ended"] for stage in found.life.stages] == ["preempted"] * (most[5] - 1) + ["completed"]
    lost = cluster_view(outcome(), {"job": "none such"})
    assert lost is not None and lost.life is None


def test_what_is_no_cluster_run_or_an_old_one_has_no_such_figures() -> None:
    assert cluster_view({"plan": {"columns": ["job"], "rows": []}}, {}) is None
    assert cluster_view({}, {}) is None


@pytest.mark.django_db
def test_what_was_run_is_said_without_what_is_usual() -> None:
    """The spec of an outcome spells out every option of a workload, those of models too."""
    made = finished_run(make_cast(), outcome(), "4x4 v100-32g")
    assert "adapter" in made.spec["workload"]["options"]
    assert question_of(made) == "The workload as it was read, on 4x4 v100-32g"


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("width", variants(1440, 390))
def test_the_page_draws_them_and_one_click_shows_a_jobs_life(
    settings: Any, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    settings.WHITENOISE_USE_FINDERS = settings.WHITENOISE_AUTOREFRESH = True
    monkeypatch.setitem(os.environ, "DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    cast = make_cast()
    made = finished_run(cast, outcome(), "4x4 v100-32g")
    with serving() as address, browser_page(width=width) as page:
        enter(page, address, cast.vera)
        page.goto(address + cast.url(f"runs/{made.pk}/"))
        for figure in ("#nodes", "#cluster-1", "#cluster-2", "#lives-plot"):
            place = page.locator(f"{figure} .plot-container").first
            place.wait_for()
            assert ink(page, place) > 0.02, figure
        faults = serious(page)
        page.emulate_media(color_scheme="light")
        assert faults == []
        page.get_by_label("Shown").select_option("stopped")
        page.wait_for_url("**jobs=stopped**")
        page.get_by_label("or one job").fill("7")
        page.get_by_label("or one job").press("Enter")
        page.get_by_role("heading", name="Job 7", exact=True).wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
