"""The REST API, version 1: upload, submit, follow, read results, import outcomes."""

from __future__ import annotations

from typing import Annotated, Any, cast
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import File, Status, UploadedFile
from ninja.errors import HttpError
from ninja.params.functions import Query

from experiments.core.errors import BadInput
from experiments.core.spec import load_outcome, load_spec
from webapp.api import answers, services
from webapp.api.application import (
    MOST_RUNS_PER_PAGE,
    REFUSALS,
    api,
    artifacts_of,
    experiments_of,
    in_project,
    json_body,
    require_writer,
    runs_of,
)
from webapp.api.details import details_of
from webapp.api.gate import read_json
from webapp.api.projects import project_of
from webapp.api.schemas import ArtifactAnswer, ExperimentAnswer, RunAnswer, RunPage
from webapp.artifacts.sending import attachment
from webapp.artifacts.services import store_upload
from webapp.history.search import Query as Search
from webapp.history.search import SearchError, parse
from webapp.history.search.rows import search
from webapp.names import is_name
from webapp.runs.models import Run, RunQuerySet
from webapp.runs.services import cancel, cancel_experiment, submit_experiment
from webapp.runs.specs import Submission, check_spec, trials_of

DEVICE_KINDS = ("cpu", "cuda")


def _submission(request: HttpRequest, project: str | None, needs: str) -> Submission:
    token = require_writer(request)
    if needs not in DEVICE_KINDS:
        raise BadInput(f"{needs!r:.80} is not a kind of device", "needs", ", ".join(DEVICE_KINDS))
    return Submission(project_of(token.team, project), token.created_by, needs)


@api.post("/artifacts", response={201: ArtifactAnswer, **REFUSALS}, tags=["artifacts"])
def upload_artifact(request: HttpRequest, file: File[UploadedFile], project: str | None = None) -> Any:
    """Stores a file. What it is, is decided by a worker: ask again until `state` is `ready` or `rejected`.

    ```
    curl -H "Authorization: Bearer $TOKEN" -F file=@config.json "$LAB/api/v1/artifacts"
    ```
    """
    token = require_writer(request)
    if (file.size or 0) > settings.UPLOAD_MAX_BYTES:
        raise HttpError(413, f"the file has {file.size} bytes; at most {settings.UPLOAD_MAX_BYTES} are taken")
    user: Any = token.created_by
    made = store_upload(project_of(token.team, project), user, file.name or "unnamed", file)
    return Status(201, answers.artifact_answer(made))


@api.get("/artifacts/{int:artifact}", response={200: ArtifactAnswer, **REFUSALS}, tags=["artifacts"])
def read_artifact(request: HttpRequest, artifact: int) -> Any:
    """What a file turned out to be, with its summary.

    ```
    curl -H "Authorization: Bearer $TOKEN" "$LAB/api/v1/artifacts/$ARTIFACT"
    ```
    """
    return answers.artifact_answer(get_object_or_404(artifacts_of(request), pk=artifact))


@api.get("/files/{str:sha256}", response={200: bytes, **REFUSALS}, tags=["artifacts"])
def read_file(request: HttpRequest, sha256: str) -> Any:
    """The bytes of a file of the team, by their hash.

    ```
    curl -H "Authorization: Bearer $TOKEN" -o file "$LAB/api/v1/files/$SHA256"
    ```
    """
    found = artifacts_of(request).filter(blob_id=sha256).first()
    if found is None or found.blob is None:
        raise HttpError(404, f"the team has no file {sha256!r:.80}")
    return attachment(found.blob, found.name)


@api.post("/runs", response={201: RunAnswer, **REFUSALS}, openapi_extra=json_body("a RunSpec"), tags=["runs"])
def submit_run(request: HttpRequest, project: str | None = None, needs: str = "cpu") -> Any:
    """Submits one RunSpec. Its `workload.source` is `artifact:<id>`, `sha256:<hash>`, `zoo:<name>` or
    `package:<name>`, and so are the options `model` and `extra`; a path is not taken.

    ```
    curl -H "Authorization: Bearer $TOKEN" -d '{"family": "memory", "policy": "vdnn-all", "workload": {"source": "zoo:vgg16", "options": {"batch": 64}}, "hardware": "titan-x-12g"}' "$LAB/api/v1/runs"
    ```
    """  # noqa: E501
    submission = _submission(request, project, needs)
    trial = submission.trial(read_json(request))
    user: Any = submission.user
    made = submit_experiment(submission.project, user, name="", trials=[trial], request={})
    return Status(201, answers.run_answer(runs_of(request).get(experiment=made)))


@api.get("/runs", response={200: RunPage, **REFUSALS}, tags=["runs"])
def list_runs(
    request: HttpRequest,
    after: UUID | None = None,
    project: str | None = None,
    state: str | None = None,
    query: Annotated[str | None, Query(max_length=4000)] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_RUNS_PER_PAGE)] = 50,
    details: bool = False,
) -> Any:
    """Newest first. For the next page pass the answer's `next` as `after`; runs that come meanwhile move
    nothing. `query` is a search as the page of all runs has it, without an order or groups:
    `step_time < 4 s and (hardware = a100-40g or knob.max_batch > 32)`. With `details=true` each run has what
    it was asked for, its tags and its note, and where a program logs it what there is to read of it.

    ```
    curl -H "Authorization: Bearer $TOKEN" "$LAB/api/v1/runs?state=infeasible&limit=20"
    ```
    """
    found = in_project(request, runs_of(request), project)
    if state is not None:
        found = found.filter(state=_state(state))
    if query is not None:
        found = _search(found, query)
    if after is not None:
        found = found.older_than(get_object_or_404(runs_of(request), pk=after))
    rows = answers.run_rows(found.order_by("-queued_at", "-id")[: limit + 1])
    page = {"runs": rows[:limit], "next": rows[limit - 1]["id"] if len(rows) > limit else None}
    if details:
        told = details_of([row["id"] for row in rows[:limit]])
        page["runs"] = [{**row, "details": told.get(row["id"])} for row in rows[:limit]]
    return api.create_response(request, page, status=200)  # as it is: not checked against its own schema


def read_query(text: str) -> Search:
    """The search that a parameter says; ``BadInput`` names the column."""
    try:
        return parse(text)
    except SearchError as error:
        raise BadInput(f"column {error.column}: {error.what}", "query", error.expected) from None


def _search(runs: RunQuerySet, text: str) -> RunQuerySet:
    """Those of the search, which has conditions alone."""
    query = read_query(text)
    if query.order or query.group:
        raise BadInput(
            "orders or groups",
            "query",
            "conditions alone: pages are the newest first, and groups are at /api/v1/groups",
        )
    return cast(RunQuerySet, search(runs, query))


def _state(state: str) -> str:
    if state not in Run.State.values:
        raise BadInput(f"{state!r:.80} is not a state", "state", ", ".join(Run.State.values))
    return state


@api.get("/runs/{uuid:run}", response={200: RunAnswer, **REFUSALS}, tags=["runs"])
def read_run(request: HttpRequest, run: UUID) -> Any:
    """State, progress and reason; the whole outcome once there is one.

    ```
    curl -H "Authorization: Bearer $TOKEN" "$LAB/api/v1/runs/$RUN"
    ```
    """
    return answers.run_answer(get_object_or_404(runs_of(request), pk=run))


@api.post("/runs/{uuid:run}/cancel", response={200: RunAnswer, **REFUSALS}, tags=["runs"])
def cancel_run(request: HttpRequest, run: UUID) -> Any:
    """Ends a waiting run at once and asks a running one to stop; one that has ended stays as it is.

    ```
    curl -X POST -H "Authorization: Bearer $TOKEN" "$LAB/api/v1/runs/$RUN/cancel"
    ```
    """
    require_writer(request)
    cancel(get_object_or_404(runs_of(request), pk=run))
    return answers.run_answer(runs_of(request).get(pk=run))


@api.get("/runs/{uuid:run}/outcome", response={200: dict[str, Any], **REFUSALS}, tags=["runs"])
def read_outcome(request: HttpRequest, run: UUID) -> Any:
    """The Outcome as `python -m experiments run` prints it; 404 while there is none.

    ```
    curl -H "Authorization: Bearer $TOKEN" "$LAB/api/v1/runs/$RUN/outcome"
    ```
    """
    found = get_object_or_404(runs_of(request), pk=run)
    outcome = answers.outcome_of(found)
    if outcome is None:
        raise HttpError(404, f"the run has no outcome: it is {found.state}. {found.reason}".strip())
    return outcome


@api.post(
    "/experiments",
    response={201: ExperimentAnswer, **REFUSALS},
    openapi_extra=json_body('{"name": "...", "runs": [RunSpec, ...]}'),
    tags=["experiments"],
)
def submit_runs(request: HttpRequest, project: str | None = None, needs: str = "cpu") -> Any:
    """Submits several RunSpecs as one experiment; all or none.

    ```
    curl -H "Authorization: Bearer $TOKEN" -d '{"name": "two batches", "runs": [{"family": "memory", "policy": "baseline", "workload": {"source": "zoo:vgg16", "options": {"batch": 32}}, "hardware": "t4-16g"}, {"family": "memory", "policy": "baseline", "workload": {"source": "zoo:vgg16", "options": {"batch": 64}}, "hardware": "t4-16g"}]}' "$LAB/api/v1/experiments"
    ```
    """  # noqa: E501
    submission = _submission(request, project, needs)
    body = read_json(request)
    if not isinstance(body, dict) or set(body) - {"name", "runs"}:
        raise BadInput("not an experiment", "body", '{"name": "...", "runs": [RunSpec, ...]}')
    name, user = body.get("name", ""), submission.user
    if not isinstance(name, str) or len(name) > 160 or (name and not is_name(name)):
        raise BadInput(f"{name!r:.80} is not a name", "name", "nothing, or a line of up to 160 characters")
    owner: Any = user
    trials = trials_of(submission, body.get("runs"))
    made = submit_experiment(submission.project, owner, name=name, trials=trials, request={})
    return Status(201, answers.experiment_answer(made))


@api.get("/experiments/{uuid:experiment}", response={200: ExperimentAnswer, **REFUSALS}, tags=["experiments"])
def read_experiment(request: HttpRequest, experiment: UUID) -> Any:
    """An experiment with all of its runs.

    ```
    curl -H "Authorization: Bearer $TOKEN" "$LAB/api/v1/experiments/$EXPERIMENT"
    ```
    """
    return answers.experiment_answer(get_object_or_404(experiments_of(request), pk=experiment))


@api.post(
    "/experiments/{uuid:experiment}/cancel",
    response={200: ExperimentAnswer, **REFUSALS},
    tags=["experiments"],
)
def cancel_runs(request: HttpRequest, experiment: UUID) -> Any:
    """Cancels every run of an experiment that has not ended.

    ```
    curl -X POST -H "Authorization: Bearer $TOKEN" "$LAB/api/v1/experiments/$EXPERIMENT/cancel"
    ```
    """
    require_writer(request)
    found = get_object_or_404(experiments_of(request), pk=experiment)
    cancel_experiment(found)
    return answers.experiment_answer(found)


@api.post(
    "/outcomes",
    response={200: RunAnswer, 201: RunAnswer, **REFUSALS},
    openapi_extra=json_body("an Outcome"),
    tags=["runs"],
)
def import_outcome(request: HttpRequest, project: str | None = None) -> Any:
    """Stores an Outcome of `python -m experiments run` as a run; the same one again answers 200 and the same
    id.

    ```
    curl -H "Authorization: Bearer $TOKEN" -d @outcome.json "$LAB/api/v1/outcomes"
    ```
    """
    token = require_writer(request)
    outcome = load_outcome(read_json(request))
    check_spec(load_spec(outcome.spec))
    run, is_new = services.import_outcome(project_of(token.team, project), token.created_by, outcome)
    return Status(201 if is_new else 200, answers.run_answer(runs_of(request).get(pk=run.pk)))
