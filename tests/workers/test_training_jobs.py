"""A measured cluster run through a worker: an uploaded trace's jobs train behind the walls of a trial."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from django.core.files.base import ContentFile
from django.test import Client

from tests.webapp.cast import Cast, make_cast
from webapp.artifacts.services import store_upload
from webapp.runs.models import Run
from workers import sandbox
from workers.dispatcher import register
from workers.gpu import Device
from workers.supervisor import Supervisor

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.django_db(transaction=True)]
CPU = Device("cpu", "some processor", 2**33)
TRACE = b"job,submit,gpus,service,model\na,0,1,1,mlp\nb,0.5,2,1,mlp\n"


@pytest.fixture
def cast(settings, tmp_path: Path) -> Cast:  # type: ignore[no-untyped-def]
    settings.MEDIA_ROOT, settings.BLOB_CACHE = tmp_path / "files", tmp_path / "cache"
    settings.VAR = tmp_path
    return make_cast()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a gang of two needs two cores")
def test_the_jobs_of_an_uploaded_trace_train_confined(cast: Cast, client: Client) -> None:
    trace = store_upload(cast.project, cast.max, "jobs.csv", ContentFile(TRACE))
    spec = {
        "family": "cluster",
        "policy": "sjf",
        "knobs": {"slots": 2},
        "workload": {"source": f"artifact:{trace.pk}", "format": "auto", "options": {}},
        "hardware": "local",
        "mode": "measured",
        "seed": 0,
    }
    same = {name: spec[name] for name in ("family", "policy", "mode", "seed")}
    run = Run.objects.create(project=cast.project, artifact=trace, spec=spec, needs="cpu", **same)
    Supervisor(register(1, [CPU]), [CPU], sandbox.best_tier(), 2**33, threads=2).drain()
    run.refresh_from_db()
    assert (run.state, run.reason) == ("succeeded", "")
    outcome = run.document.outcome
    assert outcome["violations"] == []
    assert sorted(row[0] for row in outcome["plan"]["rows"]) == ["a", "b"]
    assert {row[5] for row in outcome["plan"]["rows"]} == {"completed"}
    assert outcome["provenance"]["performance"]["step_seconds"]["mlp on 2"] > 0
    assert "makespan_error" in outcome["metrics"]
    client.force_login(cast.max)
    page = client.get(cast.url(f"runs/{run.pk}/"))
    assert page.status_code == 200
    assert b"measured" in page.content and b'id="nodes"' in page.content
