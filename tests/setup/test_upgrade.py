"""A lab of an earlier revision becomes one of this revision with its data: nothing is lost, every page opens.

``labs/2026-11-23.tar`` was written by ``./lab backup`` from a lab of revision 5fc8d771: teams, uploads (one
rejected), runs of all five families (simulated, measured, one that does not fit), a schedule, a token.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.contrib.contenttypes.models import ContentType
from django.test import override_settings

from experiments.core.spec import load_outcome, load_spec
from labtools import backup
from tests.conftest import ROOT
from tests.setup.test_backup import OTHER, another_database, rows_of, using
from tests.webapp.cast import signed_in
from webapp.accounts.models import User
from webapp.artifacts.models import Artifact, Blob
from webapp.runs.models import Experiment, Run, RunDocument

EARLIER = Path(__file__).parent / "labs" / "2026-11-23.tar"
#: What Django counts of its own tables, and what ships with a revision.
OF_THE_REVISION = (
    "django_migrations",
    "django_content_type",
    "django_celery_beat_periodictask",
    "django_celery_beat_intervalschedule",
    "auth_permission",
    "papers_",
    "hosts_validation",
)


def migrate(url: str) -> None:
    told = os.environ | {"DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "webapp.settings.test"}
    subprocess.run([sys.executable, "manage.py", "migrate", "--no-input"], cwd=ROOT, env=told, check=True)


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_lab_of_an_earlier_revision_has_all_its_data_and_pages(tmp_path: Path) -> None:
    files = tmp_path / "files"
    with another_database() as there:
        about, count = backup.read(there, files, EARLIER, replace=False)
        assert count > 4 and "runs.0008_not_before" not in about["migrations"]
        before = rows_of(there)
        migrate(there)
        after = rows_of(there)
        kept = [name for name in before if not name.startswith(OF_THE_REVISION)]
        assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
        ContentType.objects.clear_cache()
        with using(OTHER), override_settings(MEDIA_ROOT=files):
            look(files)
        ContentType.objects.clear_cache()


def look(files: Path) -> None:
    """Every page of what was there opens, and what is stored reads as of this revision."""
    for blob in Blob.objects.all():
        assert hashlib.sha256((files / blob.path).read_bytes()).hexdigest() == blob.sha256
    ada = signed_in(User.objects.get(username="ada"))
    home = "/t/red/vision/"
    pages = [home + name for name in ("", "artifacts/", "experiments/", "nightly/", "hosts/", "systems/")]
    pages += [f"{home}artifacts/{artifact.pk}/" for artifact in Artifact.objects.all()]
    for experiment in Experiment.objects.all():
        pages += [f"{home}experiments/{experiment.pk}/", f"{home}compare/{experiment.pk}/"]
    pages += [f"{home}runs/{run.pk}/" for run in Run.objects.filter(kind=Run.Kind.POLICY)]
    answers = {page: ada.get(page).status_code for page in pages}
    assert {page: status for page, status in answers.items() if status != 200} == {}
    assert len(pages) > 40
    assert set(Run.objects.filter(hardware__contains="memory_bytes").values_list("state", flat=True)) == {
        Run.State.INFEASIBLE
    }
    for run in Run.objects.filter(kind=Run.Kind.POLICY):
        assert load_spec(run.spec).policy == run.policy
    for document in RunDocument.objects.all():
        assert load_outcome(document.outcome).spec_id == document.outcome["spec_id"]
