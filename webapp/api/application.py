"""The REST API as one application: who calls it, what it reads, and what every operation refuses."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from uuid import UUID

import orjson
from django.contrib.auth.decorators import login_required
from django.db.models import QuerySet
from django.http import HttpRequest
from ninja import NinjaAPI
from ninja.errors import HttpError
from ninja.openapi.schema import OpenAPISchema, get_schema
from ninja.renderers import BaseRenderer
from ninja.responses import NinjaJSONEncoder

from experiments.core.errors import BadInput
from webapp.accounts.models import Role
from webapp.accounts.roles import allows
from webapp.api import errors
from webapp.api.models import ApiToken
from webapp.api.once import once
from webapp.api.projects import project_of
from webapp.api.schemas import Problem
from webapp.api.tokens import TeamToken
from webapp.artifacts.models import Artifact
from webapp.runs.models import Experiment, Run, RunQuerySet
from webapp.runs.trashing import leave_out_trashed_experiments

MOST_PER_PAGE = 200
#: Whole runs with all their metrics.
MOST_RUNS_PER_PAGE = 1_000
Rows = TypeVar("Rows", bound=QuerySet[Any])
REFUSALS = dict.fromkeys((400, 401, 403, 404, 413, 422, 429), Problem)


def refuse_unknown(operation: Callable[..., Any]) -> Callable[..., Any]:
    """The operation without parameters of the address that it does not have: one misspelt is no filter."""

    @functools.wraps(operation)
    def checked(request: HttpRequest, **values: Any) -> Any:
        for name in request.GET:
            if name not in values:
                known = ", ".join(sorted(values)) or "none"
                raise BadInput(f"unknown parameter {name!r:.80}", name[:80], f"one of {known}")
        return operation(request, **values)

    return checked


class Renderer(BaseRenderer):
    """Answers as JSON, a thousand runs in milliseconds; what orjson does not know is put as Ninja does."""

    media_type = "application/json"

    def render(self, request: HttpRequest, data: Any, *, response_status: int) -> bytes:
        options = orjson.OPT_NON_STR_KEYS | orjson.OPT_UTC_Z
        try:
            return orjson.dumps(data, default=NinjaJSONEncoder().default, option=options)
        except TypeError:
            # A number beyond 64 bits, which an answer about a refused value repeats.
            return json.dumps(data, cls=NinjaJSONEncoder).encode()


class Api(NinjaAPI):
    """Its schema says the same to everybody and takes a third of a second: it is made once."""

    def get_openapi_schema(
        self, *, path_prefix: str | None = None, path_params: dict[str, Any] | None = None
    ) -> OpenAPISchema:
        prefix = self.get_root_path(path_params or {}) if path_prefix is None else path_prefix
        return _schema(self, prefix)


@functools.cache
def _schema(api: NinjaAPI, prefix: str) -> OpenAPISchema:
    return get_schema(api=api, path_prefix=prefix)


api = Api(
    title="MLSys Policy Lab",
    version="1",
    description=(
        "Send `Authorization: Bearer lab_...` with a token of your team (made on the team's tokens page). "
        "Every operation has a command to copy: `$LAB` is this server's address, `$TOKEN` your token. "
        "With a header `Idempotency-Key` of your own (1 to 255 visible ASCII characters) a POST may be sent "
        "again, after a cut network for one: what it makes is made once, and the answer is the same for "
        "seven days. A token that asks too often is answered 429, with the seconds to wait in `Retry-After`."
    ),
    urls_namespace="api-v1",
    auth=TeamToken(),
    renderer=Renderer(),
    docs_decorator=login_required,
)
errors.handle(api)
api.add_decorator(refuse_unknown)
api.add_decorator(once)


def json_body(what: str) -> dict[str, Any]:
    """The OpenAPI description of a body that is read strictly by hand."""
    content = {"application/json": {"schema": {"type": "object", "description": what}}}
    return {"requestBody": {"required": True, "content": content}}


def token_of(request: HttpRequest) -> ApiToken:
    found: ApiToken = request.auth  # type: ignore[attr-defined]
    return found


def require_writer(request: HttpRequest) -> ApiToken:
    """The caller's token; 403 where it may only read."""
    return _require(request, Role.MEMBER)


def require_admin(request: HttpRequest) -> ApiToken:
    """The caller's token; 403 where it may not do what admins of the team do."""
    return _require(request, Role.ADMIN)


def _require(request: HttpRequest, role: str) -> ApiToken:
    token = token_of(request)
    if not allows(token.role, role):
        raise HttpError(403, f"this needs a token with the role {role}; this one is {token.role}")
    return token


def runs_of(request: HttpRequest) -> RunQuerySet:
    """The team's policy runs and those that its programs log.

    By the ids of its projects: an index has a project's runs in the order in which they are listed.
    """
    projects = projects_of(request)
    runs = Run.objects.filter(project__in=projects, kind__in=Run.RECORDED)
    return leave_out_trashed_experiments(runs, projects)


def projects_of(request: HttpRequest, project: str | None = None) -> list[int]:
    """The ids of the team's projects; where one is named, its alone."""
    team = token_of(request).team
    if project is not None:
        return [project_of(team, project).pk]
    return list(team.projects.filter(trashed_at=None).values_list("pk", flat=True))


def require_runs(request: HttpRequest, told: Sequence[Any], most: int) -> RunQuerySet:
    """The team's runs of these ids, all of them; ``BadInput`` names the first that is none."""
    if len(told) > most:
        raise BadInput(f"{len(told)} runs", "runs", f"{most} at most")
    asked = [_read_id(one, place) for place, one in enumerate(told)]
    found = runs_of(request).filter(pk__in=asked)
    there = set(found.values_list("pk", flat=True))
    for place, one in enumerate(asked):
        if one not in there:
            raise BadInput(f"the team has no run {one}", f"runs[{place}]", "a run of the team's")
    return found


def _read_id(told: Any, place: int) -> UUID:
    try:
        return UUID(str(told))
    except ValueError:
        raise BadInput(f"{told!r:.80} names no run", f"runs[{place}]", "the id of a run") from None


def experiments_of(request: HttpRequest) -> QuerySet[Experiment]:
    """The team's experiments that are not in the trash."""
    found = Experiment.objects.not_trashed().filter(project__team=token_of(request).team)
    return found.filter(project__trashed_at=None).select_related("project")


def artifacts_of(request: HttpRequest) -> QuerySet[Artifact]:
    """The team's artifacts that are not in the trash."""
    found = Artifact.objects.filter(project__team=token_of(request).team, trashed_at=None)
    return found.filter(project__trashed_at=None).select_related("project", "blob")


def in_project(request: HttpRequest, rows: Rows, project: str | None) -> Rows:
    """Those of the named project of the caller's team; all of the team's where none is named."""
    return rows if project is None else rows.filter(project=project_of(token_of(request).team, project))


def one_page(rows: QuerySet[Any], limit: int) -> tuple[list[Any], Any]:
    """The first ``limit`` of ordered rows, and the key that the next page follows; ``None`` at the end."""
    found = list(rows[: limit + 1])
    return found[:limit], found[limit - 1].pk if len(found) > limit else None
