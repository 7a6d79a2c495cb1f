"""A device is validated where it is: asked for on the page of hosts, carried out by that host alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.core.errors import BadInput
from tests.webapp.cast import Cast, make_cast, signed_in
from webapp.hosts import evidence
from webapp.hosts.models import Host, Validation
from webapp.runs import lifecycle
from webapp.runs.models import Run
from workers.assignment import Assignment, assign
from workers.trial import Ended

pytestmark = pytest.mark.django_db
BY_ITSELF = Ended(0, "", "", 0, "")


@pytest.fixture
def cast() -> Cast:
    made = make_cast()
    made.ada.is_superuser = True
    made.ada.save()
    return made


def device(name: str) -> dict[str, object]:
    return {"name": name, "kind": "cpu", "memory_bytes": 2**34}


def test_the_host_that_was_named_alone_takes_the_run_and_what_it_found_stands_on_the_pages(
    cast: Cast, tmp_path: Path
) -> None:
    near, far = (
        Host.objects.create(name=name, device_kinds=["cpu"], devices=[device(name)])
        for name in ("near", "far")
    )
    admin, address = signed_in(cast.ada), cast.url(f"hosts/{far.pk}/validate")
    assert "Validate" in admin.get(cast.url("hosts/")).content.decode()
    answer = admin.post(address, {"kind": "cpu"})
    run = Run.objects.get()
    assert answer.url == cast.url(f"runs/{run.pk}/")
    admin.post(address, {"kind": "cpu"})
    assert Run.objects.count() == 1, "while it waits it is not asked for again"
    assert lifecycle.claim(near, ["cpu"], "limits") is None
    claim = lifecycle.claim(far, ["cpu"], "limits")
    assert claim is not None

    given = assign(claim.run, tmp_path, 2**32)
    assert isinstance(given, Assignment)
    assert given.command[1:5] == ["-m", "experiments.validate", "--device", "cpu"]
    with pytest.raises(BadInput):
        given.collect(BY_ITSELF)
    figures = {"step_time": {"predicted": 1.1, "measured": 1.0, "error": 0.1}}
    cell = {"family": "memory", "model": "zoo:mlp", "policy": "baseline", "status": "ok", "figures": figures}
    found = {"device": "cpu (2 cores)", "started": "2026-01-02T03:04:05Z", "cells": [cell], "errors": {}}
    (tmp_path / "evidence.json").write_text(json.dumps(found))
    assert lifecycle.finish(claim, given.collect(BY_ITSELF))
    assert Validation.objects.get().device == "cpu (2 cores)"
    error = evidence.simulator_errors().of("memory", "cpu-generic")
    assert error is not None
    assert error.fraction == pytest.approx(0.1)
    page = admin.get(answer.url).content.decode()
    assert "page of validation" in page
    assert "experiments.validate --device cpu" in page


def test_administrators_alone_ask_and_of_devices_that_are_there(cast: Cast) -> None:
    host = Host.objects.create(name="far", device_kinds=["cpu"], devices=[device("far")])
    address = cast.url(f"hosts/{host.pk}/validate")
    assert signed_in(cast.max).post(address, {"kind": "cpu"}).status_code == 403
    assert "hosts/1/validate" not in signed_in(cast.max).get(cast.url("hosts/")).content.decode()
    assert signed_in(cast.ada).post(address, {"kind": "cuda"}).status_code == 404
    assert not Run.objects.exists()
