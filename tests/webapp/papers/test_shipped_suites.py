"""Tables that are full on the first day: what shipped of a suite, and a project's own results beside it."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from experiments.core.claim_evidence import key_of
from experiments.core.claims import chosen_claims
from experiments.core.suites import load_suite, suite_names
from experiments.core.verdicts import REPRODUCED
from tests.webapp.cast import Cast, experiment, signed_in
from webapp.nightly.suites import title_of
from webapp.papers.models import ClaimCheck, ShippedSuite
from webapp.runs.models import Experiment, Run, RunMetric

pytestmark = pytest.mark.django_db
SUITE = load_suite("memory-gpt2")
TITLES = [title for title, _ in SUITE.runs]


def evidence(at: str = "2026-11-24T01:00:00+00:00", **more: Any) -> dict[str, Any]:
    """The n-th run takes n seconds a step and a GiB; the last does not fit."""
    runs = [
        {
            "title": title,
            "spec": {"seed": 0, "mode": "simulated", "knobs": {}, **spec},
            "status": "ok" if title != TITLES[-1] else "infeasible",
            "reason": "" if title != TITLES[-1] else "3 GiB are missing",
            "metrics": {"step_time": float(place), "peak_memory": 2.0**30} if title != TITLES[-1] else {},
        }
        for place, (title, spec) in enumerate(SUITE.runs, 1)
    ]
    row = {"suite": SUITE.name, "digest": SUITE.digest, "revision": "c0ffee" * 6, "at": at, "seconds": 12.5}
    left_out = {**row, "suite": "memory", "digest": load_suite("memory").digest, "runs": []}
    host = {"host": {"name": "h", "system": "Linux", "cores": 2}, "versions": {"torch": "2.13"}}
    suites = [
        {**row, "left_out": "", "runs": runs, **more},
        {**left_out, "left_out": "takes more than 10 min: 41 of its 60 runs by then"},
    ]
    return {"format": "mlsys-suites-1", **host, "suites": suites}


def load(folder: Path, **more: Any) -> None:
    (folder / "suites.json").write_text(json.dumps(evidence(**more)))
    call_command("import_evidence", str(folder / "suites.json"))


def test_a_table_is_full_before_anybody_ran_anything(cast: Cast, tmp_path: Path) -> None:
    """Without links to runs that are nowhere; exported as shown; a suite left out says why and how."""
    load(tmp_path)
    vera = signed_in(cast.vera)
    page = vera.get(cast.url(f"tables/{SUITE.name}/")).content.decode()
    assert "As shipped" in page
    assert "c0ffeec0ffee" in page
    assert "12.5 s" in page
    assert "3 GiB are missing" in page
    assert "/runs/" not in page.split("<main")[1]
    assert "not been run" not in page
    assert f"python -m experiments suite {SUITE.name}" in page
    text = vera.get(cast.url(f"tables/{SUITE.name}/?export=csv&column=metric.step_time")).content.decode()
    rows = list(csv.DictReader(text.splitlines()))
    assert [row["step time (s)"] for row in rows] == ["1.0", "2.0", "3.0", "4.0", "5.0", ""]
    for figure in ("bars", "coordinates", "scatter"):
        assert vera.get(cast.url(f"tables/{SUITE.name}/?figure={figure}")).status_code == 200
    for address in ("tables/memory/", "tables/"):
        told = vera.get(cast.url(address)).content.decode()
        assert "takes more than 10 min: 41 of its 60 runs" in told
        assert "python -m experiments suite memory<" in told
    counted = f"1 of {len(suite_names())} tables have results as shipped"
    assert counted in vera.get(cast.url("tables/")).content.decode()


def test_own_results_stand_beside_what_shipped(cast: Cast, tmp_path: Path) -> None:
    """The same times, half of the memory, and a sixth run that does not fit here either."""
    load(tmp_path)
    max_ = signed_in(cast.max)
    url = cast.url(f"tables/{SUITE.name}/")
    max_.post(cast.url(f"tables/{SUITE.name}/run"))
    made = Experiment.objects.get()
    for run in made.runs.all():
        place = 1 + TITLES.index(title_of(run))
        if place < len(TITLES):
            RunMetric.objects.create(run=run, name="step_time", value=float(place))
            RunMetric.objects.create(run=run, name="peak_memory", value=2.0**29)
    made.runs.update(state=Run.State.SUCCEEDED, outcome_status="ok")
    page = max_.get(url).content.decode()
    assert "5 of 10 figures are those that shipped" in page
    assert "-50 %" in page
    assert str(made) in page
    assert 'aria-current="true">your own' in page
    shipped = max_.get(f"{url}?of=shipped").content.decode()
    assert 'aria-current="true">as shipped' in shipped
    assert "3 GiB are missing" in shipped


def test_it_is_loaded_once_a_newer_file_takes_its_place_and_a_changed_suite_shows_none(
    cast: Cast, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load(tmp_path)
    load(tmp_path)
    load(tmp_path, at="2026-11-23T01:00:00+00:00", revision="older")
    said = capsys.readouterr().out.split()
    assert said == ["suites.json:", "imported", *2 * ["suites.json:", "already", "there"]]
    assert ShippedSuite.objects.get(suite=SUITE.name).revision.startswith("c0ffee")
    load(tmp_path, at="2026-11-25T01:00:00+00:00", revision="newer", digest="of another definition")
    page = signed_in(cast.vera).get(cast.url(f"tables/{SUITE.name}/")).content.decode()
    assert "its runs have changed since the release" in page
    with pytest.raises(CommandError, match="lacks title"):
        load(tmp_path, runs=[{}])


def test_what_shipped_and_what_was_checked_ask_no_more_queries(cast: Cast, tmp_path: Path) -> None:
    """Pages of a hundred systems and eighteen tables: as many queries as when there was nothing to show."""
    vera = signed_in(cast.vera)

    def count(address: str) -> int:
        with CaptureQueriesContext(connection) as queries:
            assert vera.get(cast.url(address)).status_code == 200
        return len(queries)

    before = count("systems/"), count("tables/")
    load(tmp_path)
    made = experiment(cast.project)
    for owned in chosen_claims("memory", None)[:40]:
        family, policy, claim = key_of(owned)
        said = {"verdict": REPRODUCED, "ours": 1.0, "experiment": made}
        ClaimCheck.objects.create(family=family, policy=policy, claim=claim, **said)
    assert (count("systems/"), count("tables/")) == before
