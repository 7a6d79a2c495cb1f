"""The page of a serving run: latencies, lives of requests and the engine over time, of a real simulation."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from experiments.core.spec import load_spec
from experiments.run import run
from tests.variants import variants
from tests.webapp.browser import browser_page, enter, ink, serious, serving
from tests.webapp.cast import finished_run, make_cast
from webapp.runs.lives import MOST_LIVES
from webapp.runs.serving_figure import ORDERS, serving_view
from webapp.runs.serving_plots import serving_plots

HARDWARE = "a100-80g"


@cache
def outcome() -> dict[str, Any]:
    """Two hundred requests, more at once than fit into a batch."""
    draw = np.random.default_rng(7)
    arrival = np.cumsum(draw.exponential(0.05, 200))
    sizes = zip(draw.integers(20, 900, 200), draw.integers(1, 200, 200), strict=True)
    rows = [f"{time:.4f},{prompt},{output}" for time, (prompt, output) in zip(arrival, sizes, strict=True)]
    with TemporaryDirectory() as folder:
        trace = Path(folder) / "requests.csv"
        trace.write_text("arrival,prompt,output\n" + "\n".join(rows) + "\n")
        spec = {
            "family": "serving",
            "policy": "orca",
            "knobs": {"max_batch": 16, "slo_ttft": 2.0},
            "workload": {"source": str(trace), "format": "requests-csv"},
            "hardware": HARDWARE,
        }
        return run(load_spec(spec)).to_json()


def test_lives_are_in_the_order_asked_for_and_account_for_all_of_a_requests_time() -> None:
    shown = serving_view(outcome(), {"requests": "waited"})
    assert shown is not None and shown.lives is not None
    assert len(shown.lives["lanes"]) == MOST_LIVES
    requests = {row[0]: row for row in outcome()["plan"]["rows"]}
    told = [requests[int(lane.removeprefix("request "))] for lane in shown.lives["lanes"]]
    waits = [row[3] - row[1] for row in told]
    assert waits == sorted(waits, reverse=True) and waits[0] > waits[-1]
    first = shown.lives["lanes"][0]
    bars = [
        end - start
        for line in shown.lives["series"]
        for start, end, lane in zip(line["x"], line["to"], line["y"], strict=True)
        if lane == first
    ]
    assert sum(bars) == pytest.approx(told[0][5] - told[0][1])
    for order in ORDERS:
        assert serving_view(outcome(), {"requests": order}) is not None


def test_one_request_is_told_of_from_arrival_to_answer_and_one_of_no_such_number_not() -> None:
    found = serving_view(outcome(), {"request": "17"})
    assert found is not None and found.life is not None
    assert [stage["what"] for stage in found.life.stages][-2:] == ["prompt", "answering"]
    lost = serving_view(outcome(), {"request": "none such"})
    assert lost is not None and lost.life is None


def test_the_objective_stands_in_the_figure_of_first_tokens() -> None:
    shown = serving_view(outcome(), {})
    assert shown is not None
    assert shown.plots[0]["limit"]["x"] == 2.0
    assert "limit" not in shown.plots[1]


def test_the_rates_that_were_tried_stand_first_with_what_was_asked_of_them() -> None:
    """Of the time between tokens the wait as well, since a queue that grows does not change the former."""
    curve = {"unit": "s", "x_unit": "requests/s", "x": [1.0, 2.0, 4.0], "y": [0.1, 0.2, 9.0]}
    names = ("slo_attainment_by_rate", "tbt_p99_by_rate", "scheduling_delay_p50_by_rate")
    told = outcome()
    searched = {
        **told,
        "series": {**told["series"], **dict.fromkeys(names, curve)},
        "metrics": {**told["metrics"], "max_rate": {"value": 2.0}},
        "spec": {**told["spec"], "knobs": {"slo_tbt_p99": 0.5}},
    }
    shown = serving_view(searched, {})
    assert shown is not None
    first, second = shown.plots[:2]
    assert (first["title"], second["title"]) == (
        "Rates that were tried: 99th percentile between tokens",
        "Rates that were tried: median wait for a pass",
    )
    assert [plot["series"][1]["y"] for plot in (first, second)] == [[0.5] * 2, [2.0] * 2]
    assert first["limit"]["x"] == 2.0 and not shown.plots[2]["title"].startswith("Rates")


def test_a_preempted_request_is_drawn_out_of_memory() -> None:
    columns = ["request", "arrival", "admitted", "first_token", "last_token", "answered"]
    columns += ["prompt", "output", "rejected", "preempted"]
    row = [0, 0.0, 1.0, 2.0, 8.0, 8.0, 10, 5, False, [[3.0, 6.0]]]
    view = serving_view({"plan": {"columns": columns, "rows": [row], "sampling": "every request"}}, {})
    assert view is not None and view.lives is not None
    drawn = {line["name"]: (line["x"], line["to"]) for line in view.lives["series"]}
    assert drawn["preempted"] == ([3.0], [6.0])
    assert drawn["answering"] == ([2.0, 6.0], [3.0, 8.0])


def test_what_a_pass_takes_and_wider_objectives_are_drawn() -> None:
    shown = serving_view(outcome(), {})
    assert shown is not None
    plots = {plot["title"]: plot for plot in shown.plots}
    passes = plots["What a pass takes"]
    assert [line["name"] for line in passes["series"]] == ["a pass"], "nothing is beyond a roofline"
    assert plots["Objective kept, by how wide it is"]["limit"]["x"] == 1.0
    gaps = [line["name"] for line in plots["Time of a token"]["series"]]
    assert "every gap between tokens" in gaps


def test_extrapolated_passes_full_memory_and_what_was_measured_stand_in_their_figures() -> None:
    curve = {"x": [1.0, 2.0], "y": [3.0, 4.0]}
    names = ("pass_time", "pass_time.beyond", "kv_blocks.used", "kv_blocks.capacity")
    names += ("kv_blocks.preemptions", "ttft_distribution", "ttft_distribution.measured")
    plots = {plot["title"]: plot["series"] for plot in serving_plots(dict.fromkeys(names, curve), {})}
    assert [line["name"] for line in plots["What a pass takes"]] == ["a pass", "extrapolated"]
    ours, measured = plots["Answered by then"]
    assert measured["name"] == "measured: to the first token"
    assert ours["color"] == measured["color"] and ours["dash"] != measured["dash"]
    used, whole, preempted = plots["KV memory"]
    assert "stack" in used and "stack" not in whole and preempted["mode"] == "markers"


def test_how_many_were_in_the_passes_of_a_stage_is_told_under_the_mouse() -> None:
    columns = ["request", "arrival", "admitted", "first_token", "last_token", "answered"]
    columns += ["prompt", "output", "rejected"]
    plan = {"columns": columns, "rows": [[0, 0.0, 1.0, 2.0, 8.0, 8.0, 10, 5, False]], "sampling": "all"}
    batch = {"x": [0.0, 1.0, 2.0, 5.0, 8.0], "y": [1, 4, 7, 9, 2]}
    view = serving_view({"plan": plan, "series": {"batch_size": batch}}, {})
    assert view is not None and view.lives is not None
    words = {line["name"]: line["text"][0] for line in view.lives["series"]}
    assert words["prompt"].endswith("<br>4 requests in a pass")
    assert words["answering"].endswith("<br>7 to 9 requests in a pass")
    assert "in a pass" not in words["waiting"]


def test_what_is_no_serving_run_has_no_such_figures() -> None:
    assert serving_view({"plan": {"columns": ["job"], "rows": []}}, {}) is None
    assert serving_view({}, {}) is None


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("width", variants(1440, 390))
def test_the_page_draws_them_and_one_click_shows_a_requests_life(
    settings: Any, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    settings.WHITENOISE_USE_FINDERS = settings.WHITENOISE_AUTOREFRESH = True
    monkeypatch.setitem(os.environ, "DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    cast = make_cast()
    made = finished_run(cast, outcome(), HARDWARE)
    with serving() as address, browser_page(width=width) as page:
        enter(page, address, cast.vera)
        page.goto(address + cast.url(f"runs/{made.pk}/"))
        for figure in ("#serving-1", "#serving-2", "#lives-plot"):
            place = page.locator(f"{figure} .plot-container").first
            place.wait_for()
            assert ink(page, place) > 0.02, figure
        faults = serious(page)
        page.emulate_media(color_scheme="light")
        assert faults == []
        if folder := os.environ.get("SERVING_SHOTS"):
            page.screenshot(path=f"{folder}/serving-{width}.png", full_page=True)
        page.get_by_label("Shown").select_option("prompt")
        page.wait_for_url("**requests=prompt**")
        page.get_by_label("or one request").fill("7")
        page.get_by_label("or one request").press("Enter")
        page.get_by_role("heading", name="Request 7", exact=True).wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
