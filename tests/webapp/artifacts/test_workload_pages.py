"""Pages of job and request traces: demand against a cluster, and what follows for the model that serves."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from django.utils.html import strip_tags

from experiments.summaries import summary
from experiments.summaries.arrivals import arrivals_of, plots_of
from experiments.summaries.demand import demand_of
from tests.experiments.summaries.test_demand import jobs, requests
from tests.variants import variants
from tests.webapp.browser import browser_page, enter, ink, serious, serving
from tests.webapp.cast import Cast, make_cast, ready, signed_in
from webapp.artifacts.models import Artifact
from webapp.artifacts.step_options import spell_out_options
from webapp.artifacts.workloads.jobs import demand_of as page_demand
from webapp.artifacts.workloads.requests import load_of

pytestmark = pytest.mark.django_db
PLAIN: dict[str, Any] = {"cards": [], "plots": [], "estimates": []}
HOUR = 3600.0
HEIGHTS_OF = ".chips:not(.devices) .chip > span:first-of-type"


def job_trace(cast: Cast) -> Artifact:
    """Over 10 h: 4 GPUs for 5 h from the start, 8 for 5 h from the first hour, one for an hour at the end."""
    rows = jobs((0, 4, 5 * HOUR), (HOUR, 8, 5 * HOUR), (10 * HOUR, 1, HOUR))
    return ready(cast.project, "jobs", "jobs.csv", zoo="", summary={**PLAIN, "demand": demand_of(rows)})


def test_demand_stands_next_to_the_cluster_of_the_address(cast: Cast) -> None:
    """61 GPU-hours are 76 % of what 8 GPUs give in 10 h; 12 are wanted for 4 h."""
    found, reader = job_trace(cast), signed_in(cast.max)
    page = reader.get(cast.url(f"artifacts/{found.pk}/?gpus=8")).content.decode()
    assert "3 jobs over 10 h ask for 61 GPU-hours:" in page
    assert "76 % of what 8 GPUs can give in that time; demand exceeds them for 4 h." in page
    assert "At most 12 GPUs are wanted at once, 1 h after the start." in page
    assert "Jobs of 8 GPUs are 33 % of all and take 66 % of the GPU time." in page
    assert "family=cluster&amp;nodes=1&amp;devices_per_node=8" in page
    small = reader.get(cast.url(f"artifacts/{found.pk}/?gpus=4")).content.decode()
    assert "1.52 times what 4 GPUs can give" in small
    assert "✗ 1 job wants more than 4 GPUs" in small
    large = reader.get(cast.url(f"artifacts/{found.pk}/?gpus=12")).content.decode()
    assert "demand never exceeds them" in large
    assert "nodes=3&amp;devices_per_node=4" in large
    assert '<button class="primary" name="all" value="cluster">Try all schedulers on 12 GPUs' in large


@pytest.mark.parametrize("asked", ["", "0", "-8", "x", "9" * 30, "1e3"])
def test_without_a_size_the_cluster_holds_every_job_at_three_quarters_of_its_load(
    cast: Cast, asked: str
) -> None:
    found = page_demand(job_trace(cast), {"gpus": asked})
    assert found is not None and (found.gpus, found.too_large) == (16, 0)


def test_a_form_that_was_opened_for_a_cluster_has_it(cast: Cast) -> None:
    found = job_trace(cast)
    address = f"experiments/new?artifact={found.pk}&family=cluster&nodes=3&devices_per_node=4"
    page = signed_in(cast.max).get(cast.url(address)).content.decode()
    assert 'name="nodes" value="3"' in page
    assert 'name="devices_per_node" value="4"' in page


def test_a_form_that_names_no_cluster_has_the_one_of_the_traces_page(cast: Cast) -> None:
    """61 GPU-hours in 10 h are three quarters of 8.1 GPUs: two nodes of 8."""
    found = job_trace(cast)
    page = signed_in(cast.max).get(cast.url(f"experiments/new?artifact={found.pk}&family=cluster"))
    assert 'name="nodes" value="2"' in page.content.decode()
    assert 'name="devices_per_node" value="8"' in page.content.decode()


def test_before_a_launch_it_is_said_which_jobs_the_cluster_can_never_start(cast: Cast) -> None:
    """One job wants 8 GPUs, and there are 4."""
    trace = job_trace(cast)
    trace.summary["cards"] = [{"label": "mean demand", "value": 6.1, "unit": "GPUs"}]
    trace.save()
    address = f"experiments/new?artifact={trace.pk}&family=cluster&nodes=1&devices_per_node=4"
    page = signed_in(cast.max).get(cast.url(address)).content.decode()
    assert "1 job wants more than the 4 GPUs that there are and can never start." in page
    wider = signed_in(cast.max).get(cast.url(address.replace("nodes=1", "nodes=2"))).content.decode()
    assert "can never start" not in wider


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_names_of_policies_are_not_broken_beside_what_they_lack(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The surprise: a reason that needs two lines left a name as little as its widest letter."""
    settings.WHITENOISE_USE_FINDERS = settings.WHITENOISE_AUTOREFRESH = True
    monkeypatch.setitem(os.environ, "DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    cast = make_cast()
    trace = job_trace(cast)
    trace.summary["told"] = {"columns": [], "several_gpus": 3, "speeds": False}
    trace.save()
    new = cast.url(f"experiments/new?artifact={trace.pk}&family=cluster")
    with serving() as address, browser_page() as page:
        enter(page, address, cast.max)
        page.goto(address + new)
        heights = page.eval_on_selector_all(HEIGHTS_OF, "names => names.map(name => name.offsetHeight)")
        assert len(heights) > 10 and len(set(heights)) == 1


def test_demand_that_stays_above_the_cluster_is_said_so(cast: Cast) -> None:
    """4 GPUs for the first hour, 12 for 4 h, 8 for one: with 4 GPUs more are wanted for 5 h on end."""
    found, reader = job_trace(cast), signed_in(cast.max)
    small = reader.get(cast.url(f"artifacts/{found.pk}/?gpus=4")).content.decode()
    assert "✗ Overloaded: the queue grows" in small
    assert "Demand stays above 4 GPUs for 5 h on end, from 1 h after the start; in all 45 % of" in small
    assert "stays above" not in reader.get(cast.url(f"artifacts/{found.pk}/?gpus=12")).content.decode()
    assert "Overloaded" not in reader.get(cast.url(f"artifacts/{found.pk}/?gpus=8")).content.decode()


def told_trace(cast: Cast, **more: Any) -> Artifact:
    """Four jobs of two tenants within two hours, and seven rows of the file that are no jobs."""
    rows = jobs((0, 1, HOUR), (60, 1, HOUR), (120, 1, HOUR), (2 * HOUR, 8, HOUR))
    left_out = {"left out": {"never started": 4, "ask for no GPU": 3}}
    told = replace(rows, tenant=("<b>", "<b>", "<b>", "vision"), facts=left_out, **more)
    assumed = ["time 0 is the first submission"]
    return ready(cast.project, "jobs", "log.csv", zoo="", summary=summary(told), assumed=assumed)


def test_a_trace_tells_its_sizes_and_owners_and_what_was_left_out(cast: Cast) -> None:
    found = told_trace(cast)
    page = signed_in(cast.vera).get(cast.url(f"artifacts/{found.pk}/")).content.decode()
    assert "the busiest 5 minutes, 0 s in, has 3." in page
    assert "vision has 25 % of the jobs and 73 % of the GPU time." in page
    for title in ("Jobs submitted, by 5 minutes", "GPUs that a job asks for", "Durations", "By tenant"):
        assert f"<figcaption>{title}" in page
    plain = " ".join(strip_tags(page.replace("<", " <")).split())
    assert "8 GPUs 1 25 % 73 % 1 h" in plain
    assert "&lt;b&gt; 3 75 % 27 % 1 h" in plain
    assert "Of 11 rows 4 are jobs here; left out are:" in plain
    assert "never started 4 ask for no GPU 3 Assumed time 0 is the first submission" in plain


def test_a_trace_without_durations_says_what_they_follow_from(cast: Cast) -> None:
    found = told_trace(cast, service=np.full(4, np.nan))
    page = signed_in(cast.vera).get(cast.url(f"artifacts/{found.pk}/")).content.decode()
    assert "the file does not tell how long they run" in page
    assert "Of GPU time" not in page and "<figcaption>Durations" not in page


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("width", variants(1280, 390))
def test_a_browser_draws_a_trace_of_a_year_by_what_can_be_seen(
    settings: Any, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    """70,000 jobs of 20 tenants: every figure is drawn, within the page, without a serious fault."""
    settings.WHITENOISE_USE_FINDERS = settings.WHITENOISE_AUTOREFRESH = True
    monkeypatch.setitem(os.environ, "DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    cast, rng = make_cast(), np.random.default_rng(5)
    rows = jobs(
        *zip(
            np.sort(rng.uniform(0, 3e7, 70_000)),
            rng.choice((1, 2, 8), 70_000),
            rng.lognormal(8, 2, 70_000),
            strict=True,
        )
    )
    told = summary(replace(rows, tenant=tuple(f"team {number}" for number in rng.integers(0, 20, 70_000))))
    found = ready(cast.project, "jobs", "year.csv", zoo="", summary=told)
    with serving() as address, browser_page(width=width) as page:
        enter(page, address, cast.vera)
        page.goto(address + cast.url(f"artifacts/{found.pk}/?gpus=16"))
        for figure in ("#demand-figure", *(f"#trace-{number}" for number in range(1, 6))):
            place = page.locator(f"{figure} .plot-container").first
            place.wait_for()
            assert ink(page, place) > 0.02, figure
        assert page.locator("#by-owner").count() == 1
        titles = page.eval_on_selector_all(".modebar-btn", "all => all.map((one) => one.dataset.title)")
        assert "Download as SVG" in titles and "Share chart..." not in titles, "nothing leaves the lab"
        assert serious(page) == []
        page.emulate_media(color_scheme="light")
        page.get_by_label("GPUs of the cluster").fill("4")
        page.get_by_text("times what 4 GPUs can give").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def request_trace(cast: Cast) -> Artifact:
    """Two requests a second, each of 40 prompt and 10 output tokens, all after the same 32 tokens."""
    rows = requests([place / 2 for place in range(41)], [[1, 2]] * 41)
    return ready(
        cast.project, "requests", "r.jsonl", zoo="", summary={**PLAIN, "arrivals": arrivals_of(rows)}
    )


def test_the_model_of_the_address_says_what_is_kept_and_computed(cast: Cast) -> None:
    """Llama-2 7B keeps 2 x 32 x 32 x 128 x 2 bytes of a token; an upload of 2 x 4 x 2 x 8 x 2."""
    found, reader = request_trace(cast), signed_in(cast.max)
    page = reader.get(cast.url(f"artifacts/{found.pk}/")).content.decode()
    assert "82 prompt and 20.5 output tokens a second; 78 % of prompt tokens repeat a prefix." in page
    assert "512 KiB" in page
    assert "option:model=llama2-7b" in page
    small = {"parameters": 1e6, "layers": 4, "hidden": 16, "heads": 2, "kv_heads": 2, "head_dim": 8}
    told = {"name": "x", **small, "context": 45, "source": "its config.json"}
    mine = ready(cast.project, "model", "mine.json", zoo="", summary={**PLAIN, "served": told})
    load = load_of(found, {"model": f"artifact:{mine.pk}"})
    assert load is not None
    assert (load.kv_bytes, load.model.name) == (256, "mine.json")
    assert load.flops == pytest.approx(2e6 * 50 * 41 / 20)
    other = reader.get(cast.url(f"artifacts/{found.pk}/?model=artifact:{mine.pk}")).content.decode()
    assert "✗ The longest request has 50 tokens, mine.json takes 45." in other
    assert f"option:model=artifact%3A{mine.pk}" in other


def test_sessions_are_told_of_where_a_trace_has_them(cast: Cast) -> None:
    """a asks at 0, 1 and 3 s, b once; a request of no session counts for none."""
    rows = replace(requests([0.0, 1.0, 2.0, 3.0, 4.0]), original={"session": ("a", "a", "b", "a", "")})
    arrivals = arrivals_of(rows)
    assert arrivals["sessions"] == {
        "sessions": 2, "requests": 4, "mean": 2.0, "most": 3, "alone": 0.5, "gap": 1.5,
    }  # fmt: skip
    sessions = plots_of(rows)[-1]
    assert sessions["title"] == "Requests of a session" and sum(sessions["series"][0]["y"]) == 2
    found = ready(cast.project, "requests", "r.jsonl", zoo="", summary={**PLAIN, "arrivals": arrivals})
    page = signed_in(cast.max).get(cast.url(f"artifacts/{found.pk}/")).content.decode()
    assert "2 sessions have 2 requests each, at most 3" in page


@pytest.mark.parametrize(
    ("longest", "model"),
    [(4096, "llama2-7b"), (4097, "mistral-7b"), (32769, "llama31-8b"), (200001, "llama2-7b")],
)
def test_a_model_that_takes_the_longest_request_is_proposed(cast: Cast, longest: int, model: str) -> None:
    """The smallest; where none does the usual one, whose page says so."""
    found = request_trace(cast)
    found.summary["arrivals"]["both"]["most"] = longest
    found.save()
    page = signed_in(cast.max).get(cast.url(f"artifacts/{found.pk}/")).content.decode()
    assert f"option:model={model}" in page
    assert ("✗ The longest request" in page) == (longest > 200000)
    assert spell_out_options(found, {}) == {"model": model}
    assert spell_out_options(found, {"model": "opt-13b"}) == {"model": "opt-13b"}


def test_devices_hold_tokens_in_nine_tenths_of_their_memory_beside_the_weights(cast: Cast) -> None:
    load = load_of(request_trace(cast), {"model": "no such model"})
    assert load is not None and load.chosen == "llama2-7b"
    rows = {row.name: row for row in load.devices}
    usable = 0.9 * 40 * 2**30
    assert rows["a100-40g"].tokens == int((usable - 2 * 6.738e9) / (512 * 1024))
    assert rows["k40-12g"].devices == int(np.ceil(2 * 6.738e9 / (0.9 * 12 * 2**30)))


def test_traces_read_before_have_their_old_page(cast: Cast) -> None:
    for kind in ("jobs", "requests"):
        old = ready(cast.project, kind, f"{kind}.csv", zoo="", summary=PLAIN)
        assert signed_in(cast.max).get(cast.url(f"artifacts/{old.pk}/")).status_code == 200
