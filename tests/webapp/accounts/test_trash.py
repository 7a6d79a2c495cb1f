"""The trash: taken back by a member, deleted for good by an admin or by time, and nothing else
goes with it.
"""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.utils import timezone
from django_celery_beat.models import PeriodicTask

from tests.webapp.cast import Cast, experiment_with, ready, run_in, signed_in
from webapp.accounts import deletion, trash
from webapp.accounts.models import Project
from webapp.accounts.services import create_project, trash_project
from webapp.artifacts import services
from webapp.artifacts.models import Artifact, Blob
from webapp.runs import queue
from webapp.runs.models import Experiment, Run
from webapp.runs.services import trash_experiment
from workers.app import TASKS, app

pytestmark = pytest.mark.django_db


def upload(project: Project, cast: Cast, content: bytes = b"jobs") -> Artifact:
    return services.store_upload(project, cast.max, "jobs.csv", ContentFile(content))


def age(thing: Artifact | Experiment | Project, days: int) -> None:
    type(thing).objects.filter(pk=thing.pk).update(trashed_at=timezone.now() - timedelta(days=days))


def let_time_delete() -> None:
    deletion.apply_retention(timezone.now())
    assert not deletion.go_on()


def test_a_member_takes_back_what_lies_in_the_trash_and_a_viewer_does_not(cast: Cast) -> None:
    artifact = upload(cast.project, cast)
    experiment = experiment_with(cast.project, artifact, queued=1)
    services.trash(artifact)
    trash_experiment(experiment)
    assert experiment.runs.get().state == "cancelled"
    for kind, thing in (("artifact", artifact), ("experiment", experiment)):
        asked = {"kind": kind, "key": str(thing.pk)}
        assert signed_in(cast.vera).post("/t/red/trash/restore", asked).status_code == 403
        assert signed_in(cast.sly).post("/t/blue/trash/restore", asked).status_code == 404
        page = signed_in(cast.max).post("/t/red/trash/restore", asked, follow=True).content.decode()
        assert f"{thing} is back." in page
        thing.refresh_from_db()
        assert thing.trashed_at is None


def test_what_a_trashed_project_holds_comes_back_with_it(cast: Cast) -> None:
    artifact = upload(cast.project, cast)
    services.trash(artifact)
    trash_project(cast.project)
    max_ = signed_in(cast.max)
    assert max_.get(cast.url()).status_code == 404
    asked = {"kind": "artifact", "key": artifact.pk}
    assert "restore that first" in max_.post("/t/red/trash/restore", asked, follow=True).content.decode()
    max_.post("/t/red/trash/restore", {"kind": "project", "key": cast.project.pk})
    assert max_.get(cast.url()).status_code == 200
    assert [one.kind for one in trash.list_trash(cast.red)] == ["artifact"]


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"kind": "user", "key": "1"},
        {"kind": "artifact", "key": "x"},
        {"kind": "artifact", "key": "9" * 30},
    ],
)
def test_what_is_not_in_the_trash_is_not_found(cast: Cast, asked: dict[str, str]) -> None:
    for verb in ("restore", "delete"):
        assert signed_in(cast.ada).post(f"/t/red/trash/{verb}", asked).status_code == 404


def test_time_deletes_the_artifact_and_its_bytes_but_not_the_run_that_used_it(cast: Cast, settings) -> None:  # type: ignore[no-untyped-def]
    settings.TRASH_DAYS = 30
    artifact = upload(cast.project, cast)
    run = run_in(experiment_with(cast.project, artifact), artifact, "succeeded")
    services.trash(artifact)
    path = Blob.objects.get().path
    Blob.objects.update(created_at=timezone.now() - timedelta(days=40))
    age(artifact, 29)
    let_time_delete()
    assert Artifact.objects.exists()
    age(artifact, 31)
    let_time_delete()
    assert not Artifact.objects.exists()
    assert not default_storage.exists(path)
    assert [str(pk) for pk in Run.objects.values_list("pk", flat=True)] == [str(run.pk)]
    assert signed_in(cast.vera).get(cast.url(f"runs/{run.pk}/")).status_code == 200


def test_beat_empties_the_old_trash_of_every_team(cast: Cast, settings) -> None:  # type: ignore[no-untyped-def]
    """Two teams, each with something 31 days old; what Red threw away yesterday stays."""
    settings.TRASH_DAYS = 30
    for project in (cast.project, cast.foreign):
        old = ready(project, name="old")
        services.trash(old)
        age(old, 31)
    recent = ready(cast.project, name="recent")
    services.trash(recent)
    app.loader.import_task_module(TASKS)
    for name in (queue.RETAIN, queue.PURGE):
        app.tasks[name].apply(throw=True)
    assert [artifact.name for artifact in Artifact.objects.all()] == ["recent"]
    task = PeriodicTask.objects.get(task=queue.RETAIN)
    assert (task.args, task.interval.every, task.enabled) == ("[]", 3600, True)


def test_bytes_that_another_artifact_names_stay(cast: Cast) -> None:
    first, second = upload(cast.project, cast), upload(cast.foreign, cast)
    Blob.objects.update(created_at=timezone.now() - timedelta(days=40))
    services.trash(first)
    signed_in(cast.ada).post("/t/red/trash/delete", {"kind": "artifact", "key": first.pk})
    assert Artifact.objects.get() == second
    assert default_storage.exists(Blob.objects.get().path)


def test_fresh_bytes_stay_though_nothing_names_them_yet(cast: Cast) -> None:
    """As a worker leaves them between storing a step and writing its row."""
    artifact = upload(cast.project, cast)
    path = Blob.objects.get().path
    services.trash(artifact)
    deletion.delete(cast.red, "artifact", str(artifact.pk), cast.ada)
    assert default_storage.exists(path)


def test_only_an_admin_deletes_and_only_what_lies_in_the_trash(cast: Cast) -> None:
    artifact = upload(cast.project, cast)
    asked = {"kind": "artifact", "key": artifact.pk}
    assert signed_in(cast.ada).post("/t/red/trash/delete", asked).status_code == 404
    services.trash(artifact)
    assert signed_in(cast.max).post("/t/red/trash/delete", asked).status_code == 403
    assert Artifact.objects.exists()


def test_storage_is_counted_by_project_with_its_trash(cast: Cast) -> None:
    """Equal bytes of two artifacts are kept once, so they count once."""
    speech = create_project(cast.red, "Speech")
    for content in (b"12345", b"12345", b"1234567"):
        upload(cast.project, cast, content)
    services.trash(upload(speech, cast, b"123"))
    counted = {one.name: (one.artifacts, one.file_bytes, one.trash_bytes) for one in trash.storage(cast.red)}
    assert counted == {"Vision": (3, 12, 0), "Speech": (0, 3, 3)}


def test_the_team_page_says_who_did_what_and_lets_it_leave(cast: Cast) -> None:
    client = signed_in(cast.max)
    artifact = upload(cast.project, cast)
    client.post(cast.url(f"artifacts/{artifact.pk}/trash"))
    url = "/t/red/?export=csv&table=audit-&audit-column=actor&audit-column=action&audit-column=object_repr"
    rows = client.get(f"{url}&audit-q=jobs.csv").content.decode().splitlines()
    assert rows == ["Who,Did,Name", "max,update,jobs.csv", "the system,create,jobs.csv"]
    page = client.get("/t/red/").content.decode()
    assert "Delete now" not in page
    assert page.count(">Restore<") == 1
    assert "Delete now" in signed_in(cast.ada).get("/t/red/").content.decode()
