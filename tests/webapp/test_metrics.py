"""What Prometheus reads is what the database holds, and every alarm asks for a metric that is there."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
import yaml
from django.test import Client
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import ROOT
from tests.webapp.cast import experiment, make_cast, ready, run_in, signed_in
from webapp.hosts.models import Host
from webapp.runs.models import Run

NAME = re.compile(r"\blab_[a-z_]+")


@pytest.mark.django_db
def test_metrics_are_counted_from_the_rows_and_closed_to_others(settings: Any) -> None:
    settings.METRICS_TOKEN = "for prometheus"
    cast, now = make_cast(), timezone.now()
    made, artifact = experiment(cast.project), ready(cast.project)
    host = Host.objects.create(name="gpu-1", slots=4, heartbeat_at=now - timedelta(seconds=90))
    waits = run_in(made, artifact, Run.State.QUEUED, effort="minutes")
    Run.objects.filter(pk=waits.pk).update(queued_at=now - timedelta(seconds=60))
    late = {"host": host, "lease_until": now - timedelta(seconds=1), "attempt": 3, "infrastructure_losses": 2}
    run_in(made, artifact, Run.State.RUNNING, **late)
    for seconds in (10, 20, 30):
        run_in(made, artifact, Run.State.SUCCEEDED, started_at=now - timedelta(seconds=seconds), seed=seconds)
    asked = Client().get("/metrics", headers={"authorization": "Bearer for prometheus"})
    families = {family.name: family for family in text_string_to_metric_families(asked.content.decode())}
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in families.values()
        for sample in family.samples
    }
    assert found["lab_queued_runs", "minutes", "memory"] == 1
    assert found["lab_queue_oldest_seconds",] == pytest.approx(60, abs=20)
    assert found["lab_running_runs", "gpu-1"] == found["lab_expired_leases",] == 1
    assert found["lab_ended_runs_total", "memory", "succeeded"] == 3
    assert (found["lab_claims_total",], found["lab_losses_total",], found["lab_crashes_total",]) == (3, 2, 0)
    assert found["lab_run_seconds", "memory", "0.5"] == pytest.approx(20, abs=1)
    assert found["lab_run_seconds", "memory", "0.95"] == pytest.approx(30, abs=1)
    assert found["lab_host_silent_seconds", "gpu-1"] == pytest.approx(90, abs=20)
    assert found["lab_host_slots", "gpu-1"] == 4
    for refused in (Client().get("/metrics"), signed_in(cast.max).get("/metrics")):
        assert refused.status_code == 404
    assert Client().get("/metrics", headers={"authorization": "Bearer "}).status_code == 404
    told = {name for name, *_ in found}
    rules = yaml.safe_load((ROOT / "deploy" / "alarms.yml").read_text())["groups"][0]["rules"]
    described = (ROOT / "docs" / "operations.md").read_text()
    assert len(rules) == 5
    for rule in rules:
        assert set(NAME.findall(rule["expr"])) <= told, rule["alert"]
        assert f"`{rule['alert']}`" in described
