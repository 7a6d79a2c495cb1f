"""Figures as a browser draws them: whole and zoomed, brushed, and of nights."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from playwright.sync_api import Page

from experiments.core.suites import load_suite
from tests.webapp.browser import browser_page, enter, ink
from tests.webapp.cast import Cast, experiment, experiment_with, ready
from tests.webapp.cast import run as cast_run
from tests.webapp.long_step import long_step
from webapp.nightly.services import create_schedule, tick
from webapp.runs.models import RunDocument, RunMetric

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_the_figure_of_a_long_step_is_drawn_whole_and_in_detail_when_zoomed(cast: Cast, address: str) -> None:
    """Of 10,000 ops and 100,000 instants a screen has room for a few thousand; the one peak is among them."""
    run = experiment_with(cast.project, ready(cast.project), succeeded=1).runs.get()
    RunDocument.objects.create(run=run, outcome=long_step())
    with browser_page() as page:
        enter(page, address, cast.vera)
        page.goto(address + cast.url(f"runs/{run.pk}/"))
        figure = page.locator("#memory-figure")
        figure.locator(".scatterlayer .trace").first.wait_for()
        assert drawn_lines(page) == {
            "activation",
            "all",
            "capacity",
            "compute",
            "device to host",
            "stall: transfer",
        }
        assert ink(page, figure) > 0.3
        assert highest_of(page, "all") == 1.0  # KiB
        plot = page.locator("figure.plot", has_text="queue")
        plot.get_by_text("zoom in for more").wait_for()
        assert ink(page, plot.locator(".plot-container")) > 0.1
        note = page.locator(".memory .how-many")
        some, of = (int(word.replace(",", "")) for word in re.findall(r"[\d,]{4,}", note.inner_text()))
        assert some < of / 4 and of > 100_000
        page.evaluate("Plotly.relayout('memory-figure', {'xaxis.range': [2.15, 2.2]})")
        note.get_by_text("All").wait_for()
        assert drawn_between(page, "all", 2.15, 2.2) == 900  # of 1,800 in these 180 s, half are sent
        assert highest_of(page, "all") == 1.0


def drawn_lines(page: Page) -> set[str]:
    """Names of the traces of the memory figure that have a line to be seen."""
    script = """figure => [...figure.querySelectorAll(".scatterlayer .trace")]
        .filter((trace) => [...trace.querySelectorAll("path.js-line")]
            .reduce((sum, path) => sum + path.getTotalLength(), 0) > 10)
        .map((trace) => trace.__data__[0].trace.name)"""
    return set(page.locator("#memory-figure").evaluate(script))


def points_of(page: Page, name: str) -> list[list[float]]:
    script = "(figure, name) => (({ x, y }) => [x, y])(figure.data.find((trace) => trace.name === name))"
    return page.locator("#memory-figure").evaluate(script, name)  # type: ignore[no-any-return]


def highest_of(page: Page, name: str) -> float:
    return max(points_of(page, name)[1])


def drawn_between(page: Page, name: str, start: float, end: float) -> int:
    return sum(start <= x < end for x in points_of(page, name)[0])


def test_the_figure_of_a_comparison_draws_what_does_not_fit_and_axes_are_brushed(
    cast: Cast, address: str
) -> None:
    """Three policies fit in 40 GiB and one needs 60: its cross is beyond the line. Two take less than 2 s."""
    made, model = experiment(cast.project), ready(cast.project)
    for name, gib, seconds in (("swap_all", 30, 1.1), ("capuchin", 20, 1.2), ("swapadvisor", 10, 9.0)):
        figures = {"peak_memory": gib * 2.0**30, "step_time": seconds, "mfu": 1 / seconds}
        cast_run(made, name, figures, artifact=model)
    lost = cast_run(made, "baseline", state="infeasible", outcome_status="infeasible", artifact=model)
    needs = {"least_device": {"memory": 60.0 * 2**30, "step_time": 1.0}}
    RunDocument.objects.create(run=lost, outcome={"provenance": needs})
    with browser_page() as page:
        enter(page, address, cast.vera)
        page.goto(address + cast.url(f"compare/{made.pk}/"))
        page.locator("#figure .annotation-text", has_text="1 beyond it").wait_for()
        assert ink(page, page.locator("#figure-plot .canvas")) > 0.02
        at_line, at_cross = (
            page.locator("#figure-plot .shapelayer path"),
            page.locator("#figure-plot .point"),
        )
        line = at_line.first.bounding_box()
        boxes = [mark.bounding_box() for mark in at_cross.all()]
        assert line and all(boxes)
        assert sum(box["x"] > line["x"] + line["width"] for box in boxes if box) == 1
        page.get_by_role("link", name="parallel coordinates").click()
        handle = page.locator(".coordinates .handle").nth(1).bounding_box()
        assert handle
        across, down = handle["x"] + handle["width"] / 2, handle["y"]
        page.mouse.move(across, down + handle["height"] * 0.6)
        page.mouse.down()
        page.mouse.move(across, down + handle["height"])
        page.mouse.up()
        page.get_by_text("2 of 3 runs pass: swap_all, capuchin.").wait_for()


def test_a_chart_of_nights_draws_the_levels_and_marks_the_failed_night(cast: Cast, address: str) -> None:
    schedule = create_schedule(cast.project, cast.ada, "memory-gpt2", 2, 0)
    for day, value in enumerate((1.0, 1.0, None, 2.0, 2.0)):
        night = tick(schedule, datetime(2026, 3, 2 + day, 2, 0, tzinfo=UTC))
        assert night.experiment is not None
        for run in night.experiment.runs.all():
            RunMetric.objects.create(run=run, name="step_time", value=value or 0.0)
        night.experiment.runs.update(state="succeeded" if value else "failed")
    with browser_page() as page:
        enter(page, address, cast.vera)
        page.goto(address + cast.url(f"nightly/{schedule.pk}/"))
        page.locator(".js-plotly-plot .annotation-text", has_text="failed").wait_for()
        runs = len(load_suite("memory-gpt2").runs)
        assert page.locator(".js-plotly-plot .scatterlayer .trace").count() == 2 * runs
        assert page.locator(".js-plotly-plot .legendtext").count() == runs
        page.get_by_text("2 nights", exact=True).first.wait_for()
