"""Job traces that runs draw from their seeds: from the page of a new experiment to a load sweep's runs."""

from __future__ import annotations

import os
from typing import Any

import pytest

from experiments.core.spec import load_spec
from experiments.run import run
from tests.webapp.browser import browser_page, enter, serious, serving
from tests.webapp.cast import Cast, make_cast, signed_in
from webapp.artifacts.models import Artifact
from webapp.artifacts.services import add_generated
from webapp.runs.as_command import commands_of
from webapp.runs.forms import ExperimentForm
from webapp.runs.models import Run
from webapp.runs.proposal import propose
from webapp.runs.specs import Submission, spec_of
from workers.sources import portable_source, source_of

NAME = "generated:philly"


def form_of(cast: Cast, name: str = NAME, **more: Any) -> ExperimentForm:
    drawn = add_generated(cast.project, cast.max, name)
    cluster = {"nodes": "2", "devices_per_node": "4", "cluster_device": "v100-16g"}
    fields = {"artifacts": [drawn.pk], "policies": ["cluster/fifo"], "modes": ["simulated"], "seeds": "0"}
    return ExperimentForm(cast.project, {**fields, **cluster, **more})


def test_a_drawn_trace_is_there_at_once_and_once(cast: Cast) -> None:
    """From the page of a new experiment one goes on there; from the page of uploads to its own."""
    member, address = signed_in(cast.max), cast.url("artifacts/generated")
    there = member.post(address, {"trace": NAME, "family": "memory"})
    made = Artifact.objects.get()
    assert (made.name, made.state, made.kind, made.blob) == (NAME, "ready", "jobs", None)
    assert f"artifact={made.pk}&family=cluster&cluster_device=v100-16g" in there["Location"]
    assert f"artifacts/{made.pk}/" in member.post(address, {"trace": NAME})["Location"]
    assert Artifact.objects.count() == 1
    assert member.post(address, {"trace": "generated:x"}).status_code == 404
    page = member.get(cast.url(f"artifacts/{made.pk}/")).content.decode()
    assert "an example: 1000 jobs drawn from seed 0" in page
    assert "Download" not in page
    form = member.get(there["Location"]).content.decode()
    assert "1,000 jobs drawn" in form and 'value="v100-16g" selected' in form


def test_rates_and_seeds_are_axes_of_one_experiment(cast: Cast) -> None:
    """Two policies at three rates and two seeds; nothing of a run is left open."""
    sweep = {"option:rate": "0.0001, 0.0002, 0.0004", "option:limit": "50", "seeds": "0-1"}
    form = form_of(cast, policies=["cluster/fifo", "cluster/las"], **sweep)
    assert form.is_valid(), form.errors
    trials = form.cleaned_data["expansion"].trials
    axes = {(t.spec["policy"], t.spec["workload"]["options"]["rate"], t.spec["seed"]) for t in trials}
    assert len(axes) == len(trials) == 12
    told = {"limit": 50, "extra": "package:gavel-speeds.json"}
    assert all({**t.spec["workload"]["options"], **told} == t.spec["workload"]["options"] for t in trials)
    found = propose(form_of(cast, **sweep), {})
    assert found.sentence is not None
    assert found.sentence.step == "50 jobs drawn, rate 0.0001 or 0.0002 or 0.0004"
    assert "2 seeds" in found.sentence.rest
    work = trials[0].artifact.summary["demand"]
    assert found.load is not None
    assert found.load.wanted == pytest.approx(0.0004 * work["gpu_seconds"] / work["jobs"])


def test_requests_are_drawn_at_several_rates(cast: Cast) -> None:
    """From the page of a new experiment to runs in which nothing is left open."""
    there = signed_in(cast.max).post(
        cast.url("artifacts/generated"), {"trace": "generated:bursts", "family": "memory"}
    )
    made = Artifact.objects.get()
    assert (made.kind, made.state) == ("requests", "ready")
    assert f"artifact={made.pk}&family=serving" in there["Location"]
    assert "300 requests drawn from seed 0" in str(made.assumed)
    assert signed_in(cast.max).get(there["Location"]).status_code == 200
    fields: dict[str, Any] = {"artifacts": [made.pk], "policies": ["serving/orca"], "devices": ["a100-80g"]}
    fields |= {"modes": ["simulated"], "seeds": "0-1", "option:rate": "1, 2", "option:limit": "20"}
    form = ExperimentForm(cast.project, fields)
    assert form.is_valid(), form.errors
    told = [(t.spec["workload"]["options"], t.spec["seed"]) for t in form.cleaned_data["expansion"].trials]
    same = {"limit": 20, "model": "llama2-7b"}
    assert told == [({"rate": rate, **same}, seed) for rate in (1.0, 2.0) for seed in (0, 1)]
    spec = spec_of(form.cleaned_data["expansion"].trials[0])
    outcome = run(load_spec({**spec, "workload": {**spec["workload"], "source": source_of(made)[0]}}))
    assert outcome.metrics["requests"]["value"] == 20


def test_left_open_the_usual_rate_and_number_of_jobs_are_taken(cast: Cast) -> None:
    form = form_of(cast)
    assert form.is_valid(), form.errors
    (trial,) = form.cleaned_data["expansion"].trials
    options = trial.spec["workload"]["options"]
    assert (options["rate"], options["limit"]) == (1 / 9000, 1000)
    windowed = form_of(cast, **{"option:window": "10:30"})
    assert windowed.is_valid(), windowed.errors
    assert windowed.cleaned_data["expansion"].trials[0].spec["workload"]["options"]["limit"] == 60


def test_a_device_whose_speed_is_not_told_is_refused_at_its_field(cast: Cast) -> None:
    form = form_of(cast, cluster_device="a100-40g")
    assert not form.is_valid()
    (error,) = form.errors["cluster_device"]
    assert error == f"{NAME}: how fast jobs run on a100-40g is not told, only on k80, p100, v100"


@pytest.mark.parametrize("kind", ["annotated", "elastic"])
def test_jobs_that_are_as_fast_everywhere_run_on_any_device(cast: Cast, kind: str) -> None:
    form = form_of(cast, f"generated:{kind}", cluster_device="a100-40g", **{"option:limit": "20"})
    assert form.is_valid(), form.errors
    (trial,) = form.cleaned_data["expansion"].trials
    workload = {**trial.spec["workload"], "source": trial.artifact.name}
    assert run(load_spec({**trial.spec, "workload": workload})).metrics["deadline_satisfaction"]["value"] > 0


def test_a_run_draws_what_its_spec_says_wherever_it_is_carried_out(cast: Cast) -> None:
    """By the API, by a worker and by a command to copy; what comes out is that of its seed."""
    hardware = {"cluster": {"nodes": 2, "devices_per_node": 4, "device": "v100-16g"}}
    workload = {"source": NAME, "options": {"limit": 20}}
    asked = {"family": "cluster", "policy": "fifo", "workload": workload, "hardware": hardware, "seed": 7}
    trial = Submission(cast.project, cast.max).trial(asked)
    assert (trial.artifact.name, trial.spec["workload"]["options"]["rate"]) == (NAME, 1 / 9000)
    assert (source_of(trial.artifact), portable_source(trial.artifact)) == ((NAME, ()), NAME)
    commands = commands_of(cast.project, "x", [trial], "http://lab")
    assert f'"source": "{NAME}"' in commands.local and "curl" not in commands.local
    spec = spec_of(trial)
    first, again, other = (
        run(load_spec({**spec, "workload": {**spec["workload"], "source": NAME}, "seed": seed}))
        for seed in (7, 7, 8)
    )
    assert first.metrics == again.metrics != other.metrics


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_a_load_sweep_is_put_together_by_keyboard(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.WHITENOISE_USE_FINDERS = settings.WHITENOISE_AUTOREFRESH = True
    monkeypatch.setitem(os.environ, "DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    cast = make_cast()
    add_generated(cast.project, cast.max, "generated:gavel")
    with serving() as address, browser_page() as page:
        enter(page, address, cast.max)
        page.goto(address + cast.url("experiments/new"))
        page.get_by_role("button", name=NAME).press("Enter")
        page.locator("#asked", has_text=NAME).wait_for()
        assert serious(page) == []
        page.emulate_media(color_scheme="light")
        page.get_by_role("button", name="none", exact=True).first.press("Enter")
        page.locator('[id="policy-cluster/fifo"]').press("Space")
        page.get_by_label("rate (arrivals/s)", exact=True).fill("0.0001, 0.0004")
        page.get_by_label("limit", exact=True).fill("30")
        page.get_by_label("Seeds").fill("0-2")
        page.get_by_text("Launch 6 runs").wait_for()
        page.locator("#launch").press("Enter")
        page.wait_for_url("**/experiments/*-*/")
    specs = [one.spec for one in Run.objects.all()]
    assert {(one["workload"]["options"]["rate"], one["seed"]) for one in specs} == {
        (rate, seed) for rate in (0.0001, 0.0004) for seed in range(3)
    }
