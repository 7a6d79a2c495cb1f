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
    """Errors of 10 % and -30 % on peak memory: the median of their sizes is 20 %."""
    file = tmp_path / "cpu.json"
    cells = [{"model": "gpt2", "peak_error": 0.1}, {"model": "resnet50", "peak_error": -0.3}]
    file.write_text(json.dumps({"device": "cpu", "measured_at": "2026-01-02T03:04:05Z", "cells": cells}))
    call_command("import_evidence", str(file))
    call_command("import_evidence", str(file))
    assert Validation.objects.count() == 1
    (table,) = evidence.newest()
    assert table.peak_error == pytest.approx(0.2)
    assert [column.label for column in table.columns] == ["model", "peak error"]


def test_a_file_that_is_no_evidence_is_refused_by_name(db: None, tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text("[]")
    with pytest.raises(CommandError, match=r"other\.json"):
        call_command("import_evidence", str(file))
