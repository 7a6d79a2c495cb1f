"""The page of hosts and the evidence on it."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from tests.webapp.cast import Cast, experiment_with, ready, run_in, signed_in
from webapp.hosts import evidence
from webapp.hosts.models import Host, Validation


def test_a_host_that_is_silent_is_away_and_its_load_is_counted(cast: Cast) -> None:
    up = Host.objects.create(name="near", slots=2)
    Host.objects.create(name="far", heartbeat_at=timezone.now() - timedelta(minutes=5))
    model = ready(cast.project)
    run_in(experiment_with(cast.project, model, queued=3), model, "running", host=up)
    page = signed_in(cast.vera).get(cast.url("hosts/")).content.decode()
    assert "1 of 2 slots" in page
    assert page.count("state-up") == 1
    assert page.count("state-away") == 1
    assert "3 runs wait: 3 for any host" in page


def test_evidence_is_imported_once_and_the_newest_is_shown(db: None, tmp_path: Path) -> None:
    """The file's own summary is shown; a cell that failed keeps its reason."""
    file = tmp_path / "cpu.json"
    figures = {"peak_memory": {"predicted": 110.0, "measured": 100.0, "error": 0.1}}
    cells = [
        {"model": "zoo:gpt2", "policy": "baseline", "status": "ok", "reason": None, "figures": figures},
        {"model": "zoo:vgg16", "policy": "eager", "status": "failed", "reason": "no memory", "figures": {}},
    ]
    errors = {"step_time": {"median": 0.125, "largest": 0.3, "cells": 1}}
    content = {"device": "cpu", "started": "2026-01-02T03:04:05Z", "cells": cells, "errors": errors}
    file.write_text(json.dumps(content))
    assert evidence.simulator_error() == ""
    call_command("import_evidence", str(file))
    call_command("import_evidence", str(file))
    assert Validation.objects.count() == 1
    (found,) = evidence.newest()
    assert [(line.model, line.metric, line.error) for line in found.lines] == [
        ("gpt2", "peak_memory", 0.1),
        ("vgg16", "", None),
    ]
    assert evidence.simulator_error() == "median error of step time 12.5 % on cpu"


def test_a_file_that_is_no_evidence_is_refused_by_name(db: None, tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text("[]")
    with pytest.raises(CommandError, match=r"other\.json"):
        call_command("import_evidence", str(file))
