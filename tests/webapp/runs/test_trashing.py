"""Runs in the trash: gone from every list and count, taken back whole, deleted in the end or by a rule."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import pytest
from auditlog.models import LogEntry
from django.db import connection
from django.test import Client
from django.utils import timezone

from tests.webapp.cast import Cast, experiment, finished, ready, run, signed_in
from webapp.accounts import deletion, trash
from webapp.accounts.models import Deletion, Project, Role
from webapp.accounts.services import trash_project
from webapp.api.services import make_token
from webapp.artifacts.models import Artifact
from webapp.history.models import RunNote, RunTag
from webapp.logged import points
from webapp.logged.models import LoggedImage, LoggedRun, Series
from webapp.runs import queue, trashing
from webapp.runs.models import Experiment, Run, RunDocument, TrashedRuns
from webapp.runs.services import trash_experiment
from webapp.runs.trashing import put_into_trash

pytestmark = pytest.mark.django_db


def listed_policies(cast: Cast, query: str = "") -> set[str]:
    """The policies of the table of all runs."""
    page = signed_in(cast.vera).get(cast.url("all-runs/"), {"q": query, "export": "csv"}).content.decode()
    return {line.split(",")[1] for line in page.splitlines()[1:]}


def total(one: Experiment) -> int:
    return int(Experiment.objects.with_counts().get(pk=one.pk).total)  # type: ignore[attr-defined]


def test_chosen_runs_leave_every_list_and_come_back_as_they_were(cast: Cast) -> None:
    made = experiment(cast.project)
    runs = {name: finished(run(made, name, {"step_time": 1.0})) for name in ("keep", "first", "second")}
    chosen = [str(runs[name].pk) for name in ("first", "second")]
    max_ = signed_in(cast.max)
    page = max_.post(cast.url("all-runs/trash"), {"run": chosen}, follow=True).content.decode()
    assert "2 runs are now in the trash" in page
    assert listed_policies(cast) == {"keep"} and total(made) == 1
    assert max_.get(cast.url(f"experiments/{made.pk}/")).content.decode().count("second") == 0
    gone = max_.get(cast.url(f"runs/{chosen[0]}/"))
    assert gone.status_code == 410 and ">1</span> more" in gone.content.decode()
    (lying,) = trash.list_trash(cast.red)
    assert (lying.kind, lying.name) == ("runs", "2 runs")
    assert lying.size and lying.size > 100
    max_.post("/t/red/trash/restore", {"kind": "runs", "key": lying.key})
    assert listed_policies(cast) == {"keep", "first", "second"} and total(made) == 3
    assert max_.get(cast.url(f"runs/{chosen[0]}/")).status_code == 200
    assert RunDocument.objects.count() == 3


def test_all_that_a_search_finds_goes_even_from_its_other_pages(cast: Cast) -> None:
    made = experiment(cast.project)
    for number in range(60):
        run(made, "old" if number else "new", {"step_time": float(number)})
    asked = {"whole": "1", "back": "q=policy+%3D+old+and+step_time+%3E+9.5&after="}
    signed_in(cast.max).post(cast.url("all-runs/trash"), asked)
    assert total(made) == 10
    asked["back"] = "q=policy+%3D"
    page = signed_in(cast.max).post(cast.url("all-runs/trash"), asked, follow=True).content.decode()
    assert "No run is chosen" in page and total(made) == 10


def test_what_still_runs_and_what_is_foreign_stays(cast: Cast) -> None:
    waiting = run(experiment(cast.project), "waiting", state=Run.State.QUEUED)
    foreign = run(experiment(cast.foreign), "foreign")
    asked = {"run": [str(waiting.pk), str(foreign.pk)]}
    page = signed_in(cast.max).post(cast.url("all-runs/trash"), asked, follow=True).content.decode()
    assert "None of these runs has ended" in page and Run.objects.count() == 2
    asked["run"].append(str(run(waiting.experiment, "ended").pk))
    page = signed_in(cast.max).post(cast.url("all-runs/trash"), asked, follow=True).content.decode()
    assert "1 run is now in the trash; 1 that has not ended stays." in page and Run.objects.count() == 2
    assert (
        signed_in(cast.vera).post(cast.url("all-runs/trash"), {"run": [str(waiting.pk)]}).status_code == 403
    )


def test_time_deletes_them_with_all_that_hangs_on_them(cast: Cast) -> None:
    made = experiment(cast.project)
    gone, stays = (finished(run(made, name, {"step_time": 1.0})) for name in ("gone", "stays"))
    lying = put_into_trash(cast.project, Run.objects.filter(pk=gone.pk), cast.max)
    assert lying is not None
    deletion.apply_retention(timezone.now())
    assert not deletion.go_on() and Run.everything.count() == 2
    TrashedRuns.objects.update(trashed_at=timezone.now() - timedelta(days=31))
    deletion.apply_retention(timezone.now())
    assert not deletion.go_on()
    assert [one.pk for one in Run.everything.all()] == [stays.pk]
    assert RunDocument.objects.count() == 1 and not TrashedRuns.objects.exists()


def trash_five(cast: Cast) -> TrashedRuns:
    made = experiment(cast.project)
    runs = [finished(run(made, f"run-{number}", {"step_time": 1.0})).pk for number in range(5)]
    lying = put_into_trash(cast.project, Run.objects.filter(pk__in=runs), cast.max)
    assert lying is not None
    return lying


def test_many_runs_are_deleted_some_at_a_time_and_the_list_says_how_far(
    cast: Cast, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    """Two at a time of five, by whoever does periodic work; an end in between loses nothing."""
    monkeypatch.setattr(deletion, "AT_ONCE", 2)
    monkeypatch.setattr(trashing, "CHUNK", 2)
    sent: list[str] = []
    monkeypatch.setattr(queue, "send", sent.append)
    asked = {"kind": "runs", "key": str(trash_five(cast).pk)}
    ada, max_ = signed_in(cast.ada), signed_in(cast.max)
    with django_capture_on_commit_callbacks(execute=True):
        page = ada.post("/t/red/trash/delete", asked, follow=True).content.decode()
    assert sent == [queue.PURGE] and "5 runs are being deleted for good: the list" in page
    assert Run.everything.count() == 5
    assert deletion.go_on(seconds=0.0) and Run.everything.count() == 3
    (lying,) = trash.list_trash(cast.red)
    assert (lying.name, lying.gone) == ("3 runs", pytest.approx(0.4)) and lying.seconds_left is not None
    table = ada.get("/t/red/").content.decode().split('id="in-the-trash"')[1].split("</section>")[0]
    assert "being deleted: 40 %" in table and 'aria-valuenow="40"' in table and "hx-get" in table
    assert "Restore" not in table and "Delete now" not in table
    page = max_.post("/t/red/trash/restore", asked, follow=True).content.decode()
    assert "3 runs are being deleted for good" in page and Run.objects.count() == 0
    assert not deletion.go_on()
    assert not Run.everything.exists() and trash.list_trash(cast.red) == []
    entry = LogEntry.objects.filter(action=LogEntry.Action.DELETE).get(object_pk=asked["key"])
    assert entry.actor == cast.ada, "who asked for it, though another process did it"
    assert not RunDocument.objects.exists() and not Deletion.objects.exists()


def test_what_is_being_deleted_is_not_taken_back_over_the_api(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletion, "AT_ONCE", 2)
    lying = trash_five(cast)
    deletion.delete(cast.red, "runs", str(lying.pk), cast.ada)
    _, secret = make_token(cast.red, cast.max, "ci", Role.MEMBER)
    client = Client(headers={"Authorization": f"Bearer {secret}"})
    answer = client.post(f"/api/v1/trash/{lying.pk}/restore")
    assert answer.status_code == 422 and "being deleted for good" in answer.content.decode()
    assert not Run.objects.exists()


def test_a_project_goes_with_its_runs_some_at_a_time(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies in the trash by itself is not taken back out of it, and goes with it."""
    monkeypatch.setattr(deletion, "AT_ONCE", 2)
    monkeypatch.setattr(trashing, "CHUNK", 2)
    lying = trash_five(cast)
    ready(cast.project)
    trash_project(cast.project)
    deletion.delete(cast.red, "project", str(cast.project.pk), cast.ada)
    assert deletion.go_on(seconds=0.0) and Run.everything.count() == 3
    assert trash.is_being_deleted("runs", lying)
    assert not deletion.go_on()
    assert not Project.objects.filter(pk=cast.project.pk).exists() and not Run.everything.exists()
    assert not TrashedRuns.objects.exists() and not Deletion.objects.exists()


def test_one_that_fails_holds_up_no_other(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    made, artifact = experiment(cast.project), ready(cast.project)
    trash_experiment(made)
    Artifact.objects.filter(pk=artifact.pk).update(trashed_at=timezone.now() - timedelta(days=31))
    Experiment.objects.filter(pk=made.pk).update(trashed_at=timezone.now() - timedelta(days=31))
    deletion.apply_retention(timezone.now())

    def fail(thing: Any) -> None:
        raise OSError("no disk")

    with monkeypatch.context() as broken:
        broken.setattr(deletion, "DELETE", {**deletion.DELETE, "experiment": fail})
        assert not deletion.go_on()
    assert not Artifact.objects.exists() and Experiment.objects.get() == made
    assert not deletion.go_on() and not Experiment.objects.exists()


def test_a_look_at_the_page_deletes_nothing(cast: Cast) -> None:
    trash_five(cast)
    TrashedRuns.objects.update(trashed_at=timezone.now() - timedelta(days=31))
    assert "5 runs" in signed_in(cast.vera).get("/t/red/").content.decode()
    assert Run.everything.count() == 5


def test_an_artifact_that_is_deleted_leaves_the_runs_in_the_trash_there(cast: Cast) -> None:
    artifact = ready(cast.project)
    gone = run(experiment(cast.project), artifact=artifact)
    put_into_trash(cast.project, Run.objects.filter(pk=gone.pk), cast.max)
    artifact.trashed_at = timezone.now()
    artifact.save()
    deletion.delete(cast.red, "artifact", str(artifact.pk), cast.ada)
    assert Run.everything.get().pk == gone.pk


def test_a_project_keeps_marked_runs_and_no_others_for_good(cast: Cast) -> None:
    made, ended = experiment(cast.project), timezone.now() - timedelta(days=100)
    names = ("plain", "tagged", "noted", "said", "pinned", "young")
    runs = {name: run(made, name, finished_at=ended) for name in names}
    RunTag.objects.create(run=runs["tagged"], name="paper")
    RunNote.objects.create(run=runs["noted"], text="why")
    runs["said"].comments.create(author=cast.max, text="look")
    made.pinned = runs["pinned"]
    made.save()
    Run.objects.filter(pk=runs["young"].pk).update(finished_at=timezone.now())
    max_, ada = signed_in(cast.max), signed_in(cast.ada)
    assert max_.post(cast.url("keep-runs"), {"keep_runs_days": "90"}).status_code == 403
    page = ada.post(cast.url("keep-runs"), {"keep_runs_days": "0"}, follow=True).content.decode()
    assert "1 to 36,500 days" in page
    page = ada.post(cast.url("keep-runs"), {"keep_runs_days": "90"}, follow=True).content.decode()
    assert "keeps runs for 90 days after their end" in page
    assert listed_policies(cast) == set(names) - {"plain"}
    (lying,) = trash.list_trash(cast.red)
    assert lying.name == "1 run older than 90 days"


def test_what_the_rule_put_there_is_taken_back_and_stays_back(cast: Cast) -> None:
    """The page that follows looks for old runs again: it found the same ones, and they were gone at once."""
    made, ended = experiment(cast.project), timezone.now() - timedelta(days=100)
    for name in ("first", "second"):
        run(made, name, finished_at=ended)
    ada = signed_in(cast.ada)
    ada.post(cast.url("keep-runs"), {"keep_runs_days": "90"}, follow=True)
    (lying,) = trash.list_trash(cast.red)
    asked = {"kind": "runs", "key": lying.key}
    page = signed_in(cast.max).post("/t/red/trash/restore", asked, follow=True).content.decode()
    assert "2 runs older than 90 days are back, tagged kept so that" in page
    assert trash.list_trash(cast.red) == [] and listed_policies(cast, "tag = kept") == {"first", "second"}


def test_runs_of_an_experiment_in_the_trash_leave_every_list(cast: Cast) -> None:
    made, other = experiment(cast.project, "thrown"), experiment(cast.project, "there")
    for name in ("baseline", "vdnn-all"):
        run(made, name, {"step_time": 1.0}, artifact=ready(cast.project, name=f"of {name}"))
    run(other, "dtr", {"step_time": 1.0})
    thrown = str(made.runs.all()[0].pk)
    vera = signed_in(cast.vera)
    trash_experiment(made)
    assert listed_policies(cast) == {"dtr"}
    assert vera.get(cast.url(f"runs/{thrown}/")).status_code == 404
    assert thrown not in vera.get(cast.url("compare/")).content.decode()
    assert "nothing to compare" in vera.get(cast.url("compare/"), {"run": thrown}).content.decode()
    trash.restore(cast.red, "experiment", str(made.pk), cast.max)
    assert listed_policies(cast) == {"dtr", "baseline", "vdnn-all"}
    assert vera.get(cast.url(f"runs/{thrown}/")).status_code == 200


def test_an_experiment_that_is_deleted_takes_its_runs_out_of_the_trash(cast: Cast) -> None:
    made, other = experiment(cast.project, "thrown"), experiment(cast.project, "there")
    mine, stays = run(made, "mine"), run(other, "stays")
    alone = put_into_trash(cast.project, Run.objects.filter(pk=run(made, "alone").pk), cast.max)
    both = put_into_trash(cast.project, Run.objects.filter(pk__in=[mine.pk, stays.pk]), cast.max)
    trash_experiment(made)
    deletion.delete(cast.red, "experiment", str(made.pk), cast.ada)
    assert alone is not None and both is not None
    assert [(one.key, one.name) for one in trash.list_trash(cast.red)] == [(str(both.pk), "1 run")]
    assert [one.pk for one in Run.everything.all()] == [stays.pk]


def test_the_trash_says_what_everything_in_it_takes(cast: Cast) -> None:
    made = experiment(cast.project)
    one, own = finished(run(made)), run(made, "own", kind=Run.Kind.LOGGED)
    picture = {"kind": "png", "width": 1, "height": 1, "data": os.urandom(5000)}
    logged = LoggedRun.objects.create(run=own)
    LoggedImage.objects.create(logged=logged, name="sample", step=1, **picture)
    put_into_trash(cast.project, Run.objects.filter(pk=own.pk), cast.max)
    put_into_trash(cast.project, Run.objects.filter(pk=one.pk), cast.max)
    trash_experiment(made)
    trash_project(cast.project)
    project, of_experiment, document, image = (one.size for one in trash.list_trash(cast.red))
    assert image >= 5000 > document > 100
    assert of_experiment == project == image + document


def test_what_the_points_of_own_runs_take_is_said(cast: Cast) -> None:
    """As they came, and less once their month is packed."""
    own = run(experiment(cast.project), "own", kind=Run.Kind.LOGGED)
    logged = LoggedRun.objects.create(run=own)
    ends = {"broken": 0, "first_step": 0, "last_step": 9_999}
    for name in ("loss", "accuracy"):
        series = Series.objects.create(logged=logged, name=name, count=10_000, **ends)
        points.append([(series.pk, step, 1e9 + step, 0.5) for step in range(10_000)], timezone.now())
    put_into_trash(cast.project, Run.objects.filter(pk=own.pk), cast.max)
    (lying,) = trash.list_trash(cast.red)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sum(pg_column_size(logged_point)) FROM logged_point WHERE series IN"
            " (SELECT id FROM logged_series WHERE logged_id = %s)",
            [own.pk],
        )
        assert lying.size == pytest.approx(cursor.fetchone()[0], rel=1e-4) and lying.size > 1_000_000
    points.pack((timezone.now() + timedelta(days=70)).date())
    (packed,) = trash.list_trash(cast.red)
    assert 10_000 < packed.size < lying.size / 2


def test_the_log_tells_what_was_taken_back_from_what_was_deleted(cast: Cast) -> None:
    ada, said = signed_in(cast.ada), []
    for verb in ("restore", "delete"):
        lying = put_into_trash(
            cast.project, Run.objects.filter(pk=run(experiment(cast.project)).pk), cast.max
        )
        assert lying is not None
        asked = {"kind": "runs", "key": str(lying.pk)}
        said.append(ada.post(f"/t/red/trash/{verb}", asked, follow=True).content.decode())
    assert "1 run is back." in said[0] and "1 run is deleted for good." in said[1]
    asked = {"export": "csv", "table": "audit-", "audit-q": "trashed"}
    rows = [line.split(",")[2:4] for line in ada.get("/t/red/", asked).content.decode().splitlines()[1:]]
    assert sorted(rows) == [["create", "trashed runs"]] * 2 + [["delete", "trashed runs"]] + [
        ["update", "trashed runs"]
    ]


def test_the_api_takes_all_or_none(cast: Cast, client) -> None:  # type: ignore[no-untyped-def]
    made = experiment(cast.project)
    ended, waiting = run(made, "ended"), run(made, "waiting", state=Run.State.QUEUED)
    _, secret = make_token(cast.red, cast.max, "of max", "member")
    headers = {"Authorization": f"Bearer {secret}"}

    def post(path: str, body: object) -> tuple[int, dict[str, object]]:
        answer = client.post(f"/api/v1/{path}", body, content_type="application/json", headers=headers)
        return answer.status_code, answer.json()

    status, told = post("trash", {"runs": [str(ended.pk), str(waiting.pk)]})
    assert status == 422 and "is queued" in str(told["detail"])
    status, told = post("trash", {"runs": []})
    assert status == 422
    status, told = post("trash", {"runs": [str(ended.pk)]})
    assert status == 200 and told["runs"] == 1
    assert post("trash", {"runs": [str(ended.pk)]})[0] == 422
    assert client.get(f"/api/v1/runs/{ended.pk}", headers=headers).status_code == 404
    assert post(f"trash/{told['trash']}/restore", {})[0] == 200
    assert client.get(f"/api/v1/runs/{ended.pk}", headers=headers).status_code == 200
    assert post(f"trash/{told['trash']}/restore", {})[0] == 404
