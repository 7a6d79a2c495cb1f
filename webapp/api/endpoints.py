"""The REST API, version 1: upload, submit, follow, read results, import outcomes."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import File, NinjaAPI, Status, UploadedFile
from ninja.errors import HttpError
from ninja.params.functions import Query

from experiments.core.errors import BadInput
from experiments.core.spec import load_outcome, load_spec
from webapp.api import answers, errors, services
from webapp.api.gate import read_json
from webapp.api.models import ApiToken
from webapp.api.projects import project_of
from webapp.api.schemas import ArtifactAnswer, ExperimentAnswer, Problem, RunAnswer, RunPage
from webapp.api.tokens import TeamToken, may_write
from webapp.artifacts.models import Artifact
from webapp.artifacts.services import store_upload
from webapp.runs.models import Experiment, Run
from webapp.runs.services import submit_experiment
from webapp.runs.specs import Submission, check_spec, trials_of

MOST_PER_PAGE = 200
DEVICE_KINDS = ("cpu", "cuda")
REFUSALS = dict.fromkeys((400, 401, 403, 404, 413, 422), Problem)

api = NinjaAPI(
    title="MLSys Policy Lab",
    version="1",
    description=(
        "Send `Authorization: Bearer lab_...` with a token of your team (made on the team's tokens page)."
    ),
    urls_namespace="api-v1",
    auth=TeamToken(),
    docs_decorator=login_required,
)
errors.handle(api)


def _body(what: str) -> dict[str, Any]:
    """The OpenAPI description of a body that is read strictly by hand."""
    content = {"application/json": {"schema": {"type": "object", "description": what}}}
    return {"requestBody": {"required": True, "content": content}}


def _token(request: HttpRequest) -> ApiToken:
    found: ApiToken = request.auth  # type: ignore[attr-defined]
    return found


def _writer(request: HttpRequest) -> ApiToken:
    token = _token(request)
    if not may_write(token):
        raise HttpError(403, f"this needs a token with the role member; this one is {token.role}")
    return token


def _submission(request: HttpRequest, project: str | None, needs: str) -> Submission:
    token = _writer(request)
    if needs not in DEVICE_KINDS:
        raise BadInput(f"{needs!r:.80} is not a kind of device", "needs", ", ".join(DEVICE_KINDS))
    return Submission(project_of(token.team, project), token.created_by, needs)


def _runs(request: HttpRequest) -> QuerySet[Run]:
    """The team's policy runs with what an answer reads of them."""
    runs = Run.objects.filter(
        project__team=_token(request).team, project__trashed_at=None, kind=Run.Kind.POLICY
    )
    return runs.select_related("project").prefetch_related("metrics")


@api.post("/artifacts", response={201: ArtifactAnswer, **REFUSALS}, tags=["artifacts"])
def upload_artifact(request: HttpRequest, file: File[UploadedFile], project: str | None = None) -> Any:
    """Stores a file. What it is, is decided by a worker: ask again until `state` is `ready` or `rejected`."""
    token = _writer(request)
    if (file.size or 0) > settings.UPLOAD_MAX_BYTES:
        raise HttpError(413, f"the file has {file.size} bytes; at most {settings.UPLOAD_MAX_BYTES} are taken")
    user: Any = token.created_by
    made = store_upload(project_of(token.team, project), user, file.name or "unnamed", file)
    return Status(201, answers.artifact_answer(made))


@api.get("/artifacts/{int:artifact}", response={200: ArtifactAnswer, **REFUSALS}, tags=["artifacts"])
def read_artifact(request: HttpRequest, artifact: int) -> Any:
    found = Artifact.objects.filter(project__team=_token(request).team, trashed_at=None)
    return answers.artifact_answer(get_object_or_404(found.select_related("project", "blob"), pk=artifact))


@api.post("/runs", response={201: RunAnswer, **REFUSALS}, openapi_extra=_body("a RunSpec"), tags=["runs"])
def submit_run(request: HttpRequest, project: str | None = None, needs: str = "cpu") -> Any:
    """Submits one RunSpec. Its `workload.source` is `artifact:<id>`, `sha256:<hash>`, `zoo:<name>` or
    `package:<name>`, and so are the options `model` and `extra`; a path is not taken.
    """
    submission = _submission(request, project, needs)
    trial = submission.trial(read_json(request))
    user: Any = submission.user
    made = submit_experiment(submission.project, user, name="", trials=[trial], request={})
    return Status(201, answers.run_answer(_runs(request).get(experiment=made)))


@api.get("/runs", response={200: RunPage, **REFUSALS}, tags=["runs"])
def list_runs(
    request: HttpRequest,
    after: UUID | None = None,
    project: str | None = None,
    state: str | None = None,
    limit: Annotated[int, Query(ge=1, le=MOST_PER_PAGE)] = 50,
) -> Any:
    """Newest first. For the next page pass the answer's `next` as `after`; runs that come meanwhile move
    nothing.
    """
    found = _runs(request)
    if project is not None:
        found = found.filter(project=project_of(_token(request).team, project))
    if state is not None:
        found = found.filter(state=_state(state))
    if after is not None:
        found = _older(found, get_object_or_404(_runs(request), pk=after))
    rows = list(found.order_by("-queued_at", "-id")[: limit + 1])
    following = rows[limit - 1].pk if len(rows) > limit else None
    return {"runs": [answers.run_row(run) for run in rows[:limit]], "next": following}


def _state(state: str) -> str:
    if state not in Run.State.values:
        raise BadInput(f"{state!r:.80} is not a state", "state", ", ".join(Run.State.values))
    return state


def _older(runs: QuerySet[Run], last: Run) -> QuerySet[Run]:
    same_time = Q(queued_at=last.queued_at, pk__lt=last.pk)
    return runs.filter(Q(queued_at__lt=last.queued_at) | same_time)


@api.get("/runs/{uuid:run}", response={200: RunAnswer, **REFUSALS}, tags=["runs"])
def read_run(request: HttpRequest, run: UUID) -> Any:
    """State, progress and reason; the whole outcome once there is one."""
    return answers.run_answer(get_object_or_404(_runs(request), pk=run))


@api.get("/runs/{uuid:run}/outcome", response={200: dict[str, Any], **REFUSALS}, tags=["runs"])
def read_outcome(request: HttpRequest, run: UUID) -> Any:
    """The Outcome as `python -m experiments run` prints it; 404 while there is none."""
    found = get_object_or_404(_runs(request), pk=run)
    outcome = answers.outcome_of(found)
    if outcome is None:
        raise HttpError(404, f"the run has no outcome: it is {found.state}. {found.reason}".strip())
    return outcome


@api.post(
    "/experiments",
    response={201: ExperimentAnswer, **REFUSALS},
    openapi_extra=_body('{"name": "...", "runs": [RunSpec, ...]}'),
    tags=["experiments"],
)
def submit_runs(request: HttpRequest, project: str | None = None, needs: str = "cpu") -> Any:
    """Submits several RunSpecs as one experiment; all or none."""
    submission = _submission(request, project, needs)
    body = read_json(request)
    if not isinstance(body, dict) or set(body) - {"name", "runs"}:
        raise BadInput("not an experiment", "body", '{"name": "...", "runs": [RunSpec, ...]}')
    name, user = body.get("name", ""), submission.user
    if not isinstance(name, str) or len(name) > 160:
        raise BadInput(f"{name!r:.80} is not a name", "name", "at most 160 characters")
    owner: Any = user
    trials = trials_of(submission, body.get("runs"))
    made = submit_experiment(submission.project, owner, name=name, trials=trials, request={})
    return Status(201, answers.experiment_answer(made))


@api.get("/experiments/{uuid:experiment}", response={200: ExperimentAnswer, **REFUSALS}, tags=["experiments"])
def read_experiment(request: HttpRequest, experiment: UUID) -> Any:
    team = _token(request).team
    found = (
        Experiment.objects.not_trashed()
        .filter(project__team=team, project__trashed_at=None)
        .select_related("project")
    )
    return answers.experiment_answer(get_object_or_404(found, pk=experiment))


@api.post(
    "/outcomes",
    response={200: RunAnswer, 201: RunAnswer, **REFUSALS},
    openapi_extra=_body("an Outcome"),
    tags=["runs"],
)
def import_outcome(request: HttpRequest, project: str | None = None) -> Any:
    """Stores an Outcome of `python -m experiments run` as a run; the same one again answers 200 and the same
    id.
    """
    token = _writer(request)
    outcome = load_outcome(read_json(request))
    check_spec(load_spec(outcome.spec))
    run, is_new = services.import_outcome(project_of(token.team, project), token.created_by, outcome)
    return Status(201 if is_new else 200, answers.run_answer(_runs(request).get(pk=run.pk)))
