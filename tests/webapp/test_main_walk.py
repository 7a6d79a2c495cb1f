"""The main job from end to end, with nothing stood in for: a browser, the pages, Postgres, Valkey, a worker,
trials, simulated and measured. What comes out at real sizes: ``walks``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import FilePayload, Page

from tests.webapp.browser import browser_page, serving, sign_in
from tests.webapp.cast import Cast, make_cast
from tests.webapp.worker import working
from webapp.runs.models import Run

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True)]

#: A GPT-2 of two layers, so that its measured runs take seconds.
GPT2 = {
    "model_type": "gpt2",
    "n_embd": 128,
    "n_layer": 2,
    "n_head": 4,
    "vocab_size": 1000,
    "n_positions": 256,
}
SECONDS = 600_000


@pytest.fixture
def red(settings: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cast:
    settings.WHITENOISE_USE_FINDERS = settings.WHITENOISE_AUTOREFRESH = True
    settings.MEDIA_ROOT = tmp_path / "var" / "files"
    monkeypatch.setitem(os.environ, "DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    return make_cast()


@pytest.fixture
def worker(red: Cast, tmp_path: Path) -> Iterator[None]:
    with working(tmp_path):
        yield


def upload(page: Page, url: str) -> None:
    page.goto(url)
    content = json.dumps(GPT2).encode()
    file: FilePayload = {"name": "gpt2-config.json", "mimeType": "application/json", "buffer": content}
    page.locator("#id_files").set_input_files(file)
    page.get_by_text("model (hf-config)").wait_for(timeout=SECONDS)


def launch(page: Page, url: str, workload: str, policies: list[str], **fields: str) -> str:
    """Fill in the form of a new experiment, launch it, and give the address of its page."""
    page.goto(url)
    option = page.locator("#id_artifacts option", has_text=workload)
    page.locator("#id_artifacts").select_option(option.get_attribute("value"))
    family = policies[0].split("/")[0]
    page.locator("#asked").get_by_text(f"{family} policies").wait_for()
    page.get_by_role("button", name="none", exact=True).first.click()
    for policy in policies:
        page.locator(f"input[value='{policy}']").check()
    for name, value in fields.items():
        page.locator(f"[name='option:{name}']").fill(value)
    page.get_by_text(f"Launch {len(policies)} runs").wait_for()
    return page.url


def start(page: Page) -> str:
    page.get_by_role("button", name="Launch").click()
    page.wait_for_url("**/experiments/*-*/")
    return page.url


def test_from_sign_in_to_a_latex_table(red: Cast, worker: None, tmp_path: Path) -> None:
    new = red.url("experiments/new")
    memory = ["memory/baseline", "memory/swap_all", "memory/checkpoint"]
    with serving() as address, browser_page() as page:
        sign_in(page, address, "max")
        upload(page, address + red.url("artifacts/upload"))

        launch(page, address + new, "gpt2-config", memory, batch="8", sequence="256")
        simulated = start(page)
        launch(page, address + new, "gpt2-config", memory[:2], batch="2", sequence="32")
        page.locator("input[name=modes][value=simulated]").uncheck()
        page.locator("input[name=modes][value=measured]").check()
        measured = start(page)

        for experiment in (simulated, measured):
            page.goto(experiment)
            page.get_by_text("all ended").wait_for(timeout=SECONDS)
        states = list(Run.objects.filter(kind="policy").values_list("policy", "mode", "state", "reason"))
        assert [row for row in states if row[2] != "succeeded"] == []
        assert len(states) == 5

        page.goto(simulated)
        page.get_by_role("link", name="Compare the runs").click()
        page.locator(".js-plotly-plot").first.wait_for()
        page.get_by_text("Pareto front").first.wait_for()
        page.locator("details.export summary").click()
        with page.expect_download() as download:
            page.get_by_role("link", name="LaTeX (booktabs)").click()
        table = Path(download.value.path()).read_text()
    assert table.count(r"\toprule") == table.count(r"\bottomrule") == 1
    assert all(policy.split("/")[1].replace("_", r"\_") in table.replace("{-}", "-") for policy in memory)
    peak = {
        run.policy: run.metrics.get(name="peak_memory").value
        for run in Run.objects.filter(mode="simulated", family="memory")
    }
    assert peak["swap_all"] < peak["baseline"]
    equal = Run.objects.get(mode="measured", policy="swap_all").metrics.get(name="max_parameter_difference")
    assert equal.value == 0.0
