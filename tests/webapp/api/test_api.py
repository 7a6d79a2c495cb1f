"""The REST API as a GPU host, a script and a stranger use it."""

from __future__ import annotations

import json
import shlex
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from django.core.files.base import ContentFile
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from tests.webapp import cast
from tests.webapp.api.calls import SPEC, Caller, outcome_of
from tests.webapp.cast import Place, experiment, run
from tests.webapp.logged.logs import image, log
from tests.webapp.populated import NOWHERE
from webapp.accounts.models import Project, Role, User
from webapp.accounts.services import create_project
from webapp.api import services
from webapp.api.application import api
from webapp.api.models import ApiToken
from webapp.artifacts.services import store_upload
from webapp.hosts.models import Host
from webapp.reports.services import latest_of
from webapp.reports.services import make as make_report
from webapp.runs.models import Run, RunDocument, TrashedRuns
from webapp.runs.trashing import put_into_trash

pytestmark = pytest.mark.django_db


def test_a_run_is_submitted_followed_and_read(caller: Caller) -> None:
    made = caller.post("/runs", SPEC)
    assert caller.last == 201
    assert (made["state"], made["policy"], made["outcome"]) == ("queued", "baseline", None)
    run = Run.objects.get(pk=made["id"])
    assert run.spec["workload"]["source"] == f"artifact:{run.artifact_id}"
    assert run.artifact is not None
    assert run.artifact.zoo == "gpt2"

    assert "queued" in caller.get(f"/runs/{made['id']}/outcome")["detail"]
    assert caller.last == 404
    Run.objects.filter(pk=run.pk).update(state="succeeded", outcome_status="ok", progress=1.0)
    RunDocument.objects.create(run=run, outcome={"status": "ok"})
    run.metrics.create(name="step_time", value=0.25)
    answer = caller.get(f"/runs/{made['id']}")
    assert (answer["state"], answer["progress"], answer["outcome"]) == ("succeeded", 1.0, {"status": "ok"})
    assert answer["metrics"] == {"step_time": {"value": 0.25, "unit": "s", "lower_is_better": True}}
    assert caller.get(f"/runs/{made['id']}/outcome") == {"status": "ok"}


def test_several_runs_are_one_experiment_all_or_none(caller: Caller) -> None:
    made = caller.post("/experiments", {"name": "two", "runs": [SPEC, {**SPEC, "seed": 1}]})
    assert caller.last == 201
    assert [run["seed"] for run in caller.get(f"/experiments/{made['id']}")["runs"]] == [0, 1]
    refused = caller.post("/experiments", {"runs": [SPEC, {**SPEC, "policy": "no-such"}]})
    assert caller.last == 422
    assert refused["field"] == "runs[1].policy"
    assert refused["value"] == "no-such"
    assert Run.objects.filter(kind="policy").count() == 2


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ({"policy": "nonsense"}, "policy", "nonsense"),
        ({"family": "cooking"}, "family", "cooking"),
        ({"knobs": {"wings": 2}}, "knobs", {"wings": 2}),
        ({"seed": -1}, "seed", -1),
        ({"mode": "guessed"}, "mode", "guessed"),
        ({"hardware": "abacus"}, "hardware", "abacus"),
        ({"workload": {"source": "/etc/passwd"}}, "workload.source", "/etc/passwd"),
        ({"workload": {"source": "zoo:unicorn"}}, "workload.source", "zoo:unicorn"),
        ({"workload": {"source": "zoo:gpt2", "options": {"batch": 0}}}, "workload.options.batch", 0),
    ],
)
def test_a_refusal_names_the_field_and_its_value(
    caller: Caller, change: dict[str, Any], field: str, value: Any
) -> None:
    answer = caller.post("/runs", {**SPEC, **change})
    assert caller.last == 422
    assert answer["field"].startswith(field)
    assert answer["value"] == value
    assert not Run.objects.filter(kind="policy").exists()


def test_another_teams_things_do_not_exist(caller: Caller, stranger: Caller, ada: Place) -> None:
    run = caller.post("/runs", SPEC)
    for path in (f"/runs/{run['id']}", f"/runs/{run['id']}/outcome", f"/experiments/{run['experiment']}",
                 f"/artifacts/{run['artifact']}", f"/runs?after={run['id']}"):  # fmt: skip
        stranger.get(path)
        assert stranger.last == 404, path
    assert stranger.get("/runs")["runs"] == []
    stolen = stranger.post("/runs", {**SPEC, "workload": {"source": f"artifact:{run['artifact']}"}})
    assert stranger.last == 422
    assert stolen["field"] == "workload.source"


def test_a_viewers_token_reads_and_writes_nothing(ada: Place) -> None:
    viewer = Caller(ada, Role.VIEWER)
    assert viewer.get("/runs")["runs"] == []
    for path, body in (("/runs", SPEC), ("/experiments", {"runs": [SPEC]}), ("/outcomes", outcome_of({}))):
        assert "member" in viewer.post(path, body)["detail"]
        assert viewer.last == 403
    file = SimpleUploadedFile("a.json", b"{}")
    assert viewer.client.post("/api/v1/artifacts", {"file": file}).status_code == 403


def test_a_revoked_wrong_or_missing_token_opens_nothing(caller: Caller, client: Client) -> None:
    services.revoke(caller.token)
    caller.get("/runs")
    assert caller.last == 401
    assert client.get("/api/v1/runs").status_code == 401
    for header in ("Bearer", "Bearer ", "Bearer lab_\xff", "Basic lab_x", "Bearer " + "x" * 5000):
        assert client.get("/api/v1/runs", headers={"authorization": header}).status_code == 401


def test_only_the_hash_of_a_token_is_kept_and_its_use_is_noted(caller: Caller, ada: Place) -> None:
    _, secret = services.make_token(ada.project.team, ada.user, "gpu host", Role.MEMBER)
    stored = ApiToken.objects.get(name="gpu host")
    assert secret.startswith(stored.prefix)
    assert secret not in str(ApiToken.objects.filter(pk=stored.pk).values())
    assert stored.last_used_at is None
    Client(headers={"authorization": f"Bearer {secret}"}).get("/api/v1/runs")
    stored.refresh_from_db()
    assert stored.last_used_at is not None


def test_an_outcome_is_imported_once(caller: Caller) -> None:
    first = caller.post("/outcomes", outcome_of({}))
    assert caller.last == 201
    assert (first["state"], first["metrics"]["step_time"]["value"]) == ("succeeded", 0.5)
    again = caller.post("/outcomes", outcome_of({}))
    assert (caller.last, again["id"]) == (200, first["id"])
    infeasible = caller.post("/outcomes", outcome_of({"seed": 5}, "infeasible"))
    assert (infeasible["state"], infeasible["outcome_status"]) == ("infeasible", "infeasible")


@pytest.mark.parametrize(
    ("name", "value", "field"),
    [
        ("spec_id", "0" * 64, "spec_id"),
        ("status", "splendid", "status"),
        ("metrics", {"step_time": {"value": "fast"}}, "metrics.step_time"),
        ("metrics", {"charm": {"value": 1}}, "metrics"),
        ("series", {"memory": [1, 2]}, "series.memory"),
        ("series", {"memory": {"unit": "s", "x": [1], "y": [1, 2]}}, "series.memory"),
        ("violations", "none", "violations"),
    ],
)
def test_a_forged_outcome_is_refused(caller: Caller, name: str, value: Any, field: str) -> None:
    answer = caller.post("/outcomes", {**outcome_of({}), name: value})
    assert (caller.last, answer["field"]) == (422, field)


def test_pages_follow_each_other_without_gap_while_runs_come_in(caller: Caller) -> None:
    ids = [caller.post("/runs", {**SPEC, "seed": seed})["id"] for seed in range(5)]
    first = caller.get("/runs?limit=2")
    caller.post("/runs", {**SPEC, "seed": 99})
    second = caller.get(f"/runs?limit=2&after={first['next']}")
    third = caller.get(f"/runs?limit=2&after={second['next']}")
    assert [run["id"] for page in (first, second, third) for run in page["runs"]] == ids[::-1]
    assert third["next"] is None


def test_a_page_has_each_runs_own_metrics_in_as_many_queries_as_a_run_alone(
    caller: Caller, ada: Place, django_assert_num_queries: Any
) -> None:
    found = [run(experiment(ada.project), metrics={"step_time": 0.1 * n, "devices": n}) for n in range(1, 4)]
    run(experiment(ada.project))
    # The token, its last use, projects, experiments in the trash, runs, metrics.
    with django_assert_num_queries(6):
        page = caller.get("/runs?limit=1000")["runs"]
    assert [row["metrics"].get("devices", {}).get("value") for row in page] == [None, 3.0, 2.0, 1.0]
    assert page[3]["metrics"]["step_time"] == {"value": 0.1, "unit": "s", "lower_is_better": True}
    assert {
        name: value for name, value in caller.get(f"/runs/{found[0].pk}").items() if name != "outcome"
    } == page[3]


def test_with_several_projects_the_caller_says_which(caller: Caller, ada: Place) -> None:
    create_project(ada.project.team, "Second")
    answer = caller.post("/runs", SPEC)
    assert (caller.last, answer["field"], answer["expected"]) == (422, "project", "lab, second")
    assert caller.post("/runs?project=second", SPEC)["project"] == "second"


def test_a_file_is_uploaded_and_waits_to_be_read(caller: Caller, settings: Any, tmp_path: Any) -> None:
    settings.MEDIA_ROOT = tmp_path
    file = SimpleUploadedFile("con\u0000fig.json", b"{}")
    made = caller.client.post("/api/v1/artifacts", {"file": file})
    assert made.status_code == 201
    answer = caller.get(f"/artifacts/{made.json()['id']}")
    assert (answer["state"], answer["size"]) == ("waiting", 2)
    settings.UPLOAD_MAX_BYTES = 1
    assert (
        caller.client.post("/api/v1/artifacts", {"file": SimpleUploadedFile("a", b"{}")}).status_code == 413
    )


def test_the_reference_needs_a_sign_in_and_no_other_origin(client: Client, ada: Place) -> None:
    assert client.get("/api/v1/docs").status_code == 302
    client.force_login(ada.user)
    page = client.get("/api/v1/docs").content.decode()
    assert "cdn" not in page
    assert "://" not in page.replace("http://www.w3.org", "")
    paths = client.get("/api/v1/openapi.json").json()["paths"]
    assert {"/api/v1/runs", "/api/v1/outcomes", "/api/v1/artifacts", "/api/v1/experiments"} <= set(paths)


def test_an_unknown_parameter_is_refused_by_its_name(caller: Caller) -> None:
    """A misspelt filter would answer with what was not asked for."""
    answer = caller.get("/runs?stat=failed")
    assert (caller.last, answer["field"], answer["value"]) == (422, "stat", "failed")
    assert "after, details, limit, project, query, state" in answer["expected"]
    assert caller.post("/runs?need=cpu", SPEC)["field"] == "need"
    assert not Run.objects.exists()


def test_runs_and_experiments_are_cancelled(caller: Caller, stranger: Caller, ada: Place) -> None:
    made = caller.post("/experiments", {"runs": [SPEC, {**SPEC, "seed": 1}]})
    first, second = (run["id"] for run in made["runs"])
    stranger.post(f"/runs/{first}/cancel", {})
    assert stranger.last == 404
    Caller(ada, Role.VIEWER).post(f"/runs/{first}/cancel", {})
    assert caller.post(f"/runs/{first}/cancel", {})["state"] == "cancelled"
    assert caller.get(f"/runs/{second}")["state"] == "queued"
    ended = caller.post(f"/experiments/{made['id']}/cancel", {})
    assert [run["state"] for run in ended["runs"]] == ["cancelled", "cancelled"]


def test_what_there_is_is_listed_page_by_page(caller: Caller, stranger: Caller, ada: Place) -> None:
    models = [cast.ready(ada.project, name=name) for name in ("gpt2", "vgg16", "mlp")]
    first = caller.get("/artifacts?limit=2")
    assert [row["name"] for row in first["artifacts"]] == ["mlp", "vgg16"]
    second = caller.get(f"/artifacts?limit=2&after={first['next']}")
    assert ([row["id"] for row in second["artifacts"]], second["next"]) == ([models[0].pk], None)
    assert caller.get("/artifacts?kind=trace")["field"] == "kind"
    made = caller.post("/experiments", {"name": "one", "runs": [SPEC]})
    (row,) = caller.get("/experiments")["experiments"]
    assert (row["id"], row["total"], row["states"]) == (made["id"], 1, {"queued": 1})
    assert caller.get("/experiments?after=" + made["id"])["experiments"] == []
    assert stranger.get("/artifacts")["artifacts"] == stranger.get("/experiments")["experiments"] == []
    names = {row["name"] for row in caller.get("/policies?family=memory")}
    assert {"baseline", "vdnn-all"} <= names
    assert "a100-40g" in {row["name"] for row in caller.get("/hardware")}
    Host.objects.create(name="gpu-7", slots=2)
    (host,) = caller.get("/hosts")
    assert (host["name"], host["slots"], host["busy"], host["up"]) == ("gpu-7", 2, 0, True)


def examples() -> dict[str, str]:
    """The command of every operation, out of the API's own description."""
    operations = (o for path in api.get_openapi_schema()["paths"].values() for o in path.values())
    blocks = {o["operationId"]: o.get("description", "").split("```") for o in operations}
    return {name: block[1].strip() for name, block in blocks.items() if len(block) == 3}


def test_a_file_is_read_by_its_hash_by_its_own_team(
    caller: Caller, stranger: Caller, ada: Place, settings: Any, tmp_path: Path
) -> None:
    settings.MEDIA_ROOT = tmp_path
    file = store_upload(ada.project, ada.user, "a.json", ContentFile(b"{}", "a.json"))
    answer = caller.client.get(f"/api/v1/files/{file.blob_id}")
    assert b"".join(answer) == b"{}"
    assert stranger.get(f"/files/{file.blob_id}")["detail"].startswith("the team has no file")
    caller.get("/files/" + "0" * 64)
    assert caller.last == 404


def test_every_operation_has_an_example_that_works(ada: Place, settings: Any, tmp_path: Path) -> None:
    """As its command says: method, address, body."""
    settings.MEDIA_ROOT, settings.NOTIFY_PRIVATE = tmp_path, True
    caller = Caller(ada, Role.ADMIN)
    known = examples()
    assert len(known) == sum(len(path) for path in api.get_openapi_schema()["paths"].values())
    made = caller.post("/experiments", {"runs": [SPEC]})
    run = Run.objects.get(kind="policy")
    RunDocument.objects.create(run=run, outcome={"status": "ok"})
    (tmp_path / "outcome.json").write_text(json.dumps(outcome_of({"seed": 9})))
    file = store_upload(ada.project, ada.user, "a.json", ContentFile(b"{}", "a.json"))
    logged = log(ada.project, ada.user, "a", [[0, 1.0, {"loss": 1.0}], image("seen", 0)])
    stand = {"$RUN": run.pk, "$EXPERIMENT": made["id"], "$ARTIFACT": file.pk, "$SHA256": file.blob_id}
    report = make_report(ada.project, ada.user, "Report")
    curve = cast.experiment(ada.project)
    cast.run(curve, "orca", {"slo_attainment": 1.0}, family="serving", options={"rate": 2.0}, artifact=file)
    stand["$SERVING"] = curve.pk
    ended, gone = (Run.objects.create(project=ada.project, state="succeeded") for _ in range(2))
    stand |= {"$ENDED": ended.pk, "$TRASH": thrown_away(ada.project, gone, ada.user).pk}
    stand |= {"$LOGGED": logged.pk, "$IMAGE": logged.images.get().pk}
    stand |= {"$REPORT": report.pk, "$REVISION": latest_of(report).pk}
    channel, former = (
        ada.project.channels.create(name=name, kind="webhook", address=NOWHERE) for name in ("a", "b")
    )
    stand |= {"$CHANNEL": channel.pk, "$FORMER": former.pk, "$HOOK": NOWHERE}
    for name, command in known.items():
        _, *words = shlex.split(command)
        for mark, value in stand.items():
            words = [word.replace(mark, str(value)) for word in words]
        path = words[-1].removeprefix("$LAB/api/v1")
        if "-G" in words:
            path += "?" + urlencode([tuple(words[words.index("--data-urlencode") + 1].split("=", 1))])
        given = words[words.index("-d") + 1] if "-d" in words else ""
        body = (tmp_path / given[1:]).read_text() if given.startswith("@") else given
        if "-F" in words:
            upload = SimpleUploadedFile("config.json", b"{}")
            caller.last = caller.client.post("/api/v1/artifacts", {"file": upload}).status_code
        elif "-o" in words:
            caller.last = caller.client.get(f"/api/v1{path}").status_code
        elif "DELETE" in words:
            caller.delete(path)
        else:
            caller.post(path, body) if body or "-X" in words else caller.get(path)
        assert caller.last in (200, 201, 204), name


def thrown_away(project: Project, run: Run, user: User) -> TrashedRuns:
    found = put_into_trash(project, Run.objects.filter(pk=run.pk), user)
    assert found is not None
    return found


def test_a_token_opens_nothing_once_it_has_expired(ada: Place, caller: Caller) -> None:
    made, secret = services.make_token(ada.project.team, ada.user, "of a month", Role.MEMBER, days=30)
    client = Client(headers={"authorization": f"Bearer {secret}"})
    assert client.get("/api/v1/runs").status_code == 200
    ApiToken.objects.filter(pk=made.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    assert client.get("/api/v1/runs").status_code == 401
    assert client.post("/api/v1/runs", "{}", content_type="application/json").status_code == 401
    caller.get("/runs")
    assert caller.last == 200, "another token of the team still does"


@pytest.mark.parametrize(("days", "lasts"), [("30", 30), ("", None), (None, None)])
def test_who_makes_a_token_says_how_long_it_opens(ada: Place, days: str | None, lasts: int | None) -> None:
    ada.project.team.memberships.update(role=Role.ADMIN)
    client = Client()
    client.force_login(ada.user)
    form = {"name": "nights", "role": "member"} | ({} if days is None else {"days": days})
    answer = client.post(f"/t/{ada.project.team.slug}/tokens/", form)
    assert answer.status_code == 200, answer.content
    made = ApiToken.objects.get(name="nights")
    left = made.expires_at and made.expires_at - timezone.now()
    assert left is None if lasts is None else timedelta(days=lasts - 1) < left <= timedelta(days=lasts)
    assert client.post(f"/t/{ada.project.team.slug}/tokens/", {**form, "days": "5000"}).status_code == 422
