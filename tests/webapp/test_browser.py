"""What only a browser shows: uploads with bars, pages that move by themselves, and what a screen reader meets."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.utils import timezone

from tests.webapp.browser import browser_page, serving, sign_in
from tests.webapp.cast import Cast, experiment_with, finished, make_cast, ready
from webapp.artifacts.models import Artifact
from webapp.runs.models import Run

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def red(settings, monkeypatch) -> Cast:  # type: ignore[no-untyped-def]
    """The cast, with static files served from where they stand and the ORM allowed beside Playwright's loop."""
    settings.WHITENOISE_USE_FINDERS = settings.WHITENOISE_AUTOREFRESH = True
    monkeypatch.setitem(os.environ, "DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    return make_cast()


@pytest.fixture
def address(red: Cast) -> Iterator[str]:
    with serving() as url:
        yield url


def test_files_are_sent_with_a_bar_each_and_their_fate_follows(red: Cast, address: str) -> None:
    with browser_page() as page:
        sign_in(page, address, "max")
        page.goto(address + red.url("artifacts/upload"))
        files = [
            {"name": f"{n}.json", "mimeType": "application/json", "buffer": b"{}" + n.encode()} for n in "ab"
        ]
        page.locator("#id_files").set_input_files(files)
        rows = page.locator("#uploads tr")
        page.get_by_text("waiting to be read").nth(1).wait_for()
        assert rows.count() == 2
        Artifact.objects.filter(name="a.json").update(state="ready", kind="model", format="hf-config")
        Artifact.objects.filter(name="b.json").update(state="rejected", reason="line 1: not a model")
        page.get_by_text("model (hf-config)").wait_for()
        page.get_by_text("line 1: not a model").wait_for()


def test_an_experiment_moves_without_reloading_and_survives_a_reload(red: Cast, address: str) -> None:
    experiment = experiment_with(red.project, ready(red.project), queued=1, running=1)
    running = Run.objects.get(state="running")
    with browser_page() as page:
        sign_in(page, address, "vera")
        page.goto(address + red.url(f"experiments/{experiment.pk}/"))
        page.evaluate("window.notReloaded = true")
        page.get_by_text("place 1 in the queue").wait_for()
        Run.objects.filter(pk=running.pk).update(progress_step="op 7 of 9", progress_at=timezone.now())
        page.get_by_text("op 7 of 9").wait_for()
        Run.objects.update(state="succeeded", outcome_status="ok", progress=1, finished_at=timezone.now())
        page.get_by_text("all ended").wait_for()
        assert page.evaluate("window.notReloaded")
        page.reload()
        page.get_by_text("all ended").wait_for()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_main_pages_have_no_serious_fault_for_assistive_technology(
    red: Cast, address: str, theme: str
) -> None:
    model = ready(red.project, summary={"cards": [{"label": "ops", "value": 9, "unit": ""}], "plots": []})
    experiment = experiment_with(red.project, model, queued=1, failed=1, succeeded=1)
    run = finished(experiment.runs.get(state="succeeded"))
    pages = [
        "",
        "artifacts/",
        "artifacts/upload",
        f"artifacts/{model.pk}/",
        "experiments/",
        "experiments/new",
    ]
    pages += [f"experiments/{experiment.pk}/", f"runs/{run.pk}/", "hosts/"]
    with browser_page(theme=theme) as page:
        page.goto(f"{address}/accounts/login/")
        found = {"login": serious(page)}
        sign_in(page, address, "ada")
        for rest in pages:
            page.goto(address + red.url(rest), wait_until="load")
            found[rest] = serious(page)
        page.goto(f"{address}/t/red/")
        found["team"] = serious(page)
    assert {name: faults for name, faults in found.items() if faults} == {}


def serious(page) -> list[str]:  # type: ignore[no-untyped-def]
    faults = Axe().run(page).response["violations"]
    return [f["id"] for f in faults if f["impact"] in ("serious", "critical")]


def test_nothing_is_wider_than_a_phone(red: Cast, address: str) -> None:
    experiment = experiment_with(red.project, ready(red.project), queued=2, failed=1)
    run = finished(experiment_with(red.project, ready(red.project), succeeded=1).runs.get())
    pages = ["", "artifacts/", "artifacts/upload", "experiments/new", "hosts/", f"runs/{run.pk}/"]
    with browser_page(width=390) as page:
        sign_in(page, address, "ada")
        for rest in [*pages, f"experiments/{experiment.pk}/"]:
            page.goto(address + red.url(rest))
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, rest


def test_a_run_page_that_waits_turns_into_its_result_with_the_plot_drawn(red: Cast, address: str) -> None:
    run = experiment_with(red.project, ready(red.project), running=1).runs.get()
    with browser_page() as page:
        sign_in(page, address, "vera")
        page.goto(address + red.url(f"runs/{run.pk}/"))
        page.get_by_role("progressbar").wait_for()
        finished(run)
        Run.objects.update(state="succeeded", outcome_status="ok", progress=1, finished_at=timezone.now())
        page.get_by_text("2 GiB").wait_for()
        page.locator(".js-plotly-plot .legendtext", has_text="capacity").wait_for()
        page.get_by_text("offload").wait_for()


def test_the_preview_follows_the_form_and_a_whole_family_is_one_click(red: Cast, address: str) -> None:
    model = ready(red.project)
    with browser_page() as page:
        sign_in(page, address, "max")
        page.goto(address + red.url(f"experiments/new?artifact={model.pk}"))
        page.get_by_text("Not ready to launch").wait_for()
        page.get_by_role("button", name="all memory policies").click()
        page.locator("#id_devices").select_option(["a100-40g", "t4-16g"])
        page.locator("#preview").get_by_text("runs").wait_for()
        count = page.locator("input[value^='memory/']").count()
        page.locator("#preview strong", has_text=str(2 * count)).wait_for()
        page.get_by_role("button", name="Launch").click()
        page.wait_for_url("**/experiments/*-*/")
        assert Run.objects.filter(kind="policy").count() == 2 * count
