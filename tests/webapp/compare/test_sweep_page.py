"""The comparison of a load sweep in a browser: every figure is drawn, on a phone too."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.variants import variants
from tests.webapp.browser import browser_page, enter, ink, serious, serving
from tests.webapp.cast import Cast, experiment, make_cast, run
from webapp.runs.models import Experiment, RunDocument


def sweep(cast: Cast) -> Experiment:
    """Three schedulers at two rates, each with curves of its jobs."""
    made = experiment(cast.project)
    for place, name in enumerate(("las", "sjf", "fifo"), 1):
        for rate in (0.001, 0.01):
            hours = place * (1 + 100 * rate)
            metrics = {
                "avg_jct": 3600 * hours,
                "makespan": 36000 * hours,
                "finish_time_fairness_p99": 9 / hours,
                "utilization": 0.2 * place,
            }
            done = run(made, name, metrics, family="cluster", options={"rate": rate})
            curve = {"x": [60.0, 1800 * hours, 7200 * hours], "y": [0.0, 0.5, 1.0]}
            names = ("jct_distribution", "jct_distribution.1_gpu", "jct_distribution.over_8_gpus")
            RunDocument.objects.create(run=done, outcome={"series": dict.fromkeys(names, curve)})
    return made


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("width", variants(1280, 390))
def test_every_figure_of_a_sweep_is_drawn(settings: Any, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    settings.WHITENOISE_USE_FINDERS = settings.WHITENOISE_AUTOREFRESH = True
    monkeypatch.setitem(os.environ, "DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    cast = make_cast()
    made = sweep(cast)
    with serving() as address, browser_page(width=width) as page:
        enter(page, address, cast.vera)
        page.goto(address + cast.url(f"compare/{made.pk}/"))
        page.get_by_text("finishes the average job soonest at every rate").wait_for()
        for name, title in (
            ("by load", "Completion time by load"),
            ("done by then", "Jobs done by then, at 0.01 jobs a second"),
            ("by size of jobs", "Completion time by size of jobs, at 0.01 jobs a second"),
            ("utilization", "Device utilization, at 0.01 jobs a second"),
            ("makespan and fairness", "Makespan against finish-time fairness, at 0.01 jobs a second"),
        ):
            page.locator("#figure").get_by_role("link", name=name, exact=True).press("Enter")
            page.locator("#figure figcaption", has_text=title).wait_for()
            place = page.locator("#figure-plot .plot-container")
            place.wait_for()
            assert ink(page, place) > 0.01, name
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert serious(page) == []
