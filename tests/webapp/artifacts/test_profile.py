"""A model is profiled on a host from its page, and from then on runs on that device take the
measured times.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import FilePayload

from tests.webapp.browser import browser_page, serving, sign_in
from tests.webapp.cast import Cast, make_cast, ready, signed_in
from tests.webapp.worker import working
from webapp.runs.models import Run

#: A GPT-2 so small that its step takes milliseconds.
TINY = {"model_type": "gpt2", "n_embd": 32, "n_layer": 1, "n_head": 2, "vocab_size": 100, "n_positions": 32}
SECONDS = 600_000


@pytest.fixture
def red(settings: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Cast]:
    settings.WHITENOISE_USE_FINDERS = settings.WHITENOISE_AUTOREFRESH = True
    settings.MEDIA_ROOT = tmp_path / "var" / "files"
    monkeypatch.setitem(os.environ, "DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    cast = make_cast()
    with working(tmp_path):
        yield cast


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_profile_on_a_host_and_its_times_are_used(red: Cast) -> None:
    with serving() as address, browser_page() as page:
        sign_in(page, address, "max")
        page.goto(address + red.url("artifacts/upload"))
        file: FilePayload = {
            "name": "tiny.json",
            "mimeType": "application/json",
            "buffer": json.dumps(TINY).encode(),
        }
        page.locator("#id_files").set_input_files(file)
        page.get_by_text("model (hf-config)").wait_for(timeout=SECONDS)
        page.get_by_role("link", name="tiny.json").click()
        page.get_by_role("region", name="Captured and profiled steps").get_by_label("batch").fill("2")
        page.get_by_role("button", name="Profile on a host").click()
        page.wait_for_url("**/runs/*/")
        page.get_by_role("progressbar").wait_for()
        page.get_by_role("link", name="timed step").wait_for(timeout=SECONDS)
        page.get_by_role("link", name="timed step").click()
        page.get_by_text("Used from then on").wait_for()
        profile = Run.objects.get(kind="profile")
        assert (profile.state, profile.needs) == ("succeeded", "cpu")

        page.goto(address + red.url(f"experiments/new?artifact={profile.artifact_id}&policy=memory/baseline"))
        page.get_by_label("batch", exact=True).fill("2")
        page.locator("[name=devices]:checked").uncheck()
        for device in ("cpu-generic", "a100-40g"):
            # What follows a choice moves what stands below it, and a click in that moment goes astray.
            page.wait_for_load_state("networkidle")
            page.locator(f"#device-{device}").check()
        page.get_by_text("Launch 2 runs").wait_for()
        page.get_by_role("button", name="Launch").click()
        page.get_by_text("all ended").wait_for(timeout=SECONDS)
        timings = {}
        for run in Run.objects.filter(kind="policy", state="succeeded"):
            page.goto(address + red.url(f"runs/{run.pk}/"))
            timings[run.hardware] = page.locator("#timing").inner_text()
    assert timings["cpu-generic"].startswith("times of ops: measured on cpu:")
    lower_bound = "roofline of a100-40g at full peak: a lower bound on time"
    assert timings["a100-40g"] == f"times of ops: {lower_bound}"


@pytest.mark.django_db
def test_a_profile_is_of_one_step_and_says_so_at_its_field(cast: Cast) -> None:
    model = ready(cast.project)
    url = cast.url(f"artifacts/{model.pk}/profile")
    answer = signed_in(cast.max).post(url, {"device": "cpu", "batch": "2, 4", "dtype": "float33"})
    assert answer.status_code == 422
    page = answer.content.decode()
    assert "One value: a profile is of one step." in page
    assert "float33" in page
    assert not Run.objects.filter(kind="profile").exists()


@pytest.mark.django_db
def test_options_left_open_are_the_models_own(cast: Cast) -> None:
    model = ready(cast.project)
    answer = signed_in(cast.max).post(
        cast.url(f"artifacts/{model.pk}/profile"), {"device": "cuda", "batch": "8", "sequence": ""}
    )
    assert answer.status_code == 302
    told = {"batch": 8, "sequence": 1024, "dtype": "float32", "precision": "fp32", "optimizer": "adamw"}
    assert Run.objects.get(kind="profile").spec == {"workload": {"options": told}}
