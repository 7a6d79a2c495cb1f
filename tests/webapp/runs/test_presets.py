"""A new experiment kept under a name, run at night, and told as commands to copy."""

from __future__ import annotations

import html
import json
import re
from datetime import UTC, datetime

import pytest
from django.core.files.base import ContentFile
from django.test import Client

from experiments.core.spec import load_spec
from tests.webapp.cast import Cast, ready, signed_in
from webapp.accounts.models import Role
from webapp.api.services import make_token
from webapp.artifacts.models import Artifact
from webapp.artifacts.services import store_upload
from webapp.nightly import services
from webapp.nightly.models import Schedule
from webapp.nightly.suites import title_of
from webapp.runs.models import Experiment, Preset
from webapp.runs.specs import identity

pytestmark = pytest.mark.django_db


def chosen(artifact: Artifact, **more: object) -> dict[str, object]:
    """Two policies on two devices at one batch."""
    usual = {"family": "memory", "modes": ["simulated"], "seeds": "0", "option:batch": "4"}
    policies = ["memory/baseline", "memory/vdnn-all"]
    devices = ["t4-16g", "a100-40g"]
    return {"artifacts": artifact.pk, "policies": policies, "devices": devices, **usual, **more}


def commands(client: Client, cast: Cast, **asked: object) -> list[str]:
    page = client.get(cast.url("experiments/command"), asked).content.decode()
    return [html.unescape(text) for text in re.findall(r"<pre[^>]*>(.*?)</pre>", page, re.DOTALL)]


def test_the_command_of_a_choice_submits_just_what_launching_it_does(cast: Cast) -> None:
    """What curl would send makes the runs that the button makes; each line without the server is one spec."""
    model, max_ = ready(cast.project), signed_in(cast.max)
    api, local = commands(max_, cast, **chosen(model, name="two's"))
    head, body = api.split("\n", 1)
    assert "'http://testserver/api/v1/experiments?project=vision'" in head
    asked = json.loads(body.removesuffix("\nRUNS"))
    _, secret = make_token(cast.red, cast.max, "test", Role.MEMBER)
    caller = Client(headers={"authorization": f"Bearer {secret}"})
    posted = caller.post("/api/v1/experiments", json.dumps(asked), content_type="application/json")
    assert posted.status_code == 201
    max_.post(cast.url("experiments/new"), chosen(model, name="two's"))
    first, second = Experiment.objects.filter(name="two's")
    ids = [{identity(run.spec) for run in made.runs.all()} for made in (first, second)]
    assert ids[0] == ids[1] and len(ids[0]) == 4
    specs = [load_spec(json.loads(line)) for line in local.splitlines()[1:-1]]
    assert {spec.workload.source for spec in specs} == {"zoo:gpt2"}
    assert {spec.hardware for spec in specs} == {"t4-16g", "a100-40g"}
    only = commands(max_, cast, **chosen(model, policies="memory/baseline", devices="t4-16g"))[1]
    assert only.startswith("python -m experiments run - <<'RUN'\n{")


def test_files_are_fetched_by_hash_and_a_name_cannot_leave_its_quotes(cast: Cast) -> None:
    """Two uploads of one name stay two files; what is wrong is said in the place of commands."""
    names = ("x'; rm -rf $HOME.csv", "x'; rm -rf $HOME.csv")
    files = [
        store_upload(cast.project, cast.ada, name, ContentFile(f"{place}".encode()))
        for place, name in enumerate(names)
    ]
    Artifact.objects.update(state="ready", kind="jobs")
    asked = chosen(files[0], family="cluster", policies="cluster/fifo", cluster_device="t4-16g")
    asked |= {"artifacts": [one.pk for one in files], "nodes": 1, "devices_per_node": 4, "option:batch": ""}
    _, local = commands(signed_in(cast.vera), cast, **asked)
    fetched = local.splitlines()[:2]
    for one in files:
        (line,) = [line for line in fetched if f"/api/v1/files/{one.blob_id}" in line]
        assert f"""-o './{one.pk}-x'"'"'; rm -rf $HOME.csv'""" in line
    sources = {load_spec(json.loads(line)).workload.source for line in local.splitlines()[3:-1]}
    assert sources == {f"./{one.pk}-{one.name}" for one in files}
    wrong = signed_in(cast.vera).get(cast.url("experiments/command"), {**asked, "nodes": 0}).content.decode()
    assert "Nothing can be run yet" in wrong


def test_a_preset_is_the_projects_opens_as_it_was_and_is_never_overwritten(cast: Cast) -> None:
    model, max_, ada = ready(cast.project), signed_in(cast.max), signed_in(cast.ada)
    url = cast.url("experiments/new")
    assert signed_in(cast.vera).post(url, chosen(model, name="mine", then="preset")).status_code == 403
    answer = max_.post(url, chosen(model, name="two <b>devices", then="preset"), follow=True)
    assert "Kept as two &lt;b&gt;devices" in answer.content.decode()
    (preset,) = Preset.objects.all()
    opened = ada.get(f"{cast.url('experiments/new')}?{preset.address}").content.decode()
    assert "Launch 4 runs" in opened
    assert "two &lt;b&gt;devices" in opened
    ada.post(url, chosen(model, name="called otherwise", then="preset"))
    refused = ada.post(url, chosen(model, name=preset.name, seeds="0, 1", then="preset"))
    assert refused.status_code == 422
    assert "another preset of this project" in refused.content.decode()
    assert 'value="0, 1"' in refused.content.decode()
    assert Preset.objects.count() == 1 and not Experiment.objects.exists()
    ada.post(cast.url(f"experiments/presets/{preset.pk}/remove"))
    assert not Preset.objects.exists()


def test_a_preset_is_run_at_night_under_titles_that_tell_its_runs_apart(cast: Cast) -> None:
    """While it is scheduled it cannot be removed; without its workload the night says why it was skipped."""
    model, max_ = ready(cast.project), signed_in(cast.max)
    answer = max_.post(cast.url("experiments/new"), chosen(model, name="fits", then="nightly"))
    (preset,) = Preset.objects.all()
    assert f"suite=preset:{preset.pk}" in answer.headers["Location"]
    page = max_.get(answer.headers["Location"].partition("#")[0]).content.decode()
    assert f'value="preset:{preset.pk}" selected' in page
    max_.post(cast.url("nightly/"), {"suite": f"preset:{preset.pk}", "at": "03:30"})
    (schedule,) = Schedule.objects.all()
    assert "fits" in max_.get(cast.url(f"nightly/{schedule.pk}/")).content.decode()
    night = services.tick(schedule, datetime(2026, 3, 2, 3, 30, tzinfo=UTC))
    assert night.experiment is not None
    assert sorted(map(title_of, night.experiment.runs.select_related("experiment"))) == [
        "baseline, a100-40g",
        "baseline, t4-16g",
        "vdnn-all, a100-40g",
        "vdnn-all, t4-16g",
    ]
    removed = max_.post(cast.url(f"experiments/presets/{preset.pk}/remove"), follow=True)
    assert "is run at night" in removed.content.decode()
    night.experiment.runs.update(state="succeeded")
    Artifact.objects.update(trashed_at=datetime.now(UTC))
    assert "artifacts" in services.tick(schedule, datetime(2026, 3, 3, 3, 30, tzinfo=UTC)).skipped
