"""Runs that a stored revision carries out: its package, not the host's, in the best sandbox here."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.webapp.cast import make_cast
from tests.webapp.nightly.repositories import commits
from webapp.artifacts.services import add_generated
from webapp.runs.models import Experiment, Run
from workers import sandbox
from workers.dispatcher import register
from workers.sandbox import ROOT
from workers.supervisor import Supervisor

pytestmark = pytest.mark.django_db(transaction=True)
VERSIONS = ("7.7.7", "8.8.8")


@pytest.mark.slow
def test_the_package_of_a_revision_carries_its_runs_out(settings: Any, tmp_path: Path) -> None:
    settings.MEDIA_ROOT, settings.BLOB_CACHE = tmp_path / "files", tmp_path / "cache"
    settings.VAR, settings.CODE_ROOT = tmp_path / "var", tmp_path / "checkout"
    package = settings.CODE_ROOT / "experiments"
    shutil.copytree(ROOT / "experiments", package, ignore=shutil.ignore_patterns("__pycache__"))
    start = package / "__init__.py"
    text = start.read_text()

    def change(number: int) -> None:
        start.write_text(f"{text}\n__version__ = {VERSIONS[number]!r}\n")

    revisions = commits(settings.CODE_ROOT, 2, change)
    cast = make_cast()
    trace = add_generated(cast.project, cast.max, "generated:gavel")
    experiment = Experiment.objects.create(project=cast.project, name="by revision")
    spec = {"family": "cluster", "policy": "fifo", "knobs": {}, "mode": "simulated", "seed": 0}
    spec |= {"workload": {"source": f"artifact:{trace.pk}", "format": "auto", "options": {"limit": 5}}}
    spec |= {"hardware": "v100-16g"}
    for revision in (*revisions, "f" * 40, "--output=/tmp/x", ""):
        Run.objects.create(
            project=cast.project,
            experiment=experiment,
            artifact=trace,
            family="cluster",
            policy="fifo",
            mode="simulated",
            spec=spec,
            revision=revision,
        )
    slot = Supervisor(register(1, []), [], sandbox.best_tier(), 2**31, threads=1)
    assert slot.drain() == 5
    found = {run.revision: run for run in experiment.runs.all()}
    for revision, version in zip(revisions, VERSIONS, strict=True):
        run = found[revision]
        assert (run.state, run.reason) == ("succeeded", "")
        told = run.document.outcome["provenance"]
        assert (told["revision"], told["versions"]["experiments"]) == (revision, version)
    assert found["f" * 40].state == "failed"
    assert "no revision ffffffffffff" in found["f" * 40].reason
    assert "is no revision" in found["--output=/tmp/x"].reason
    assert found[""].document.outcome["provenance"]["versions"]["experiments"] not in VERSIONS
