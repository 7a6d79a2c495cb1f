"""Runs into the trash and back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.shortcuts import get_object_or_404

from experiments.core.errors import BadInput
from webapp.accounts.trash import is_being_deleted
from webapp.api.application import REFUSALS, api, json_body, require_runs, require_writer
from webapp.api.gate import read_fields
from webapp.api.schemas import TrashAnswer
from webapp.history.services import MOST_AT_ONCE
from webapp.runs import trashing
from webapp.runs.models import Run, TrashedRuns


def _answer(trashed: TrashedRuns) -> dict[str, Any]:
    gone_at = trashed.trashed_at + timedelta(days=settings.TRASH_DAYS)
    return {"trash": trashed.pk, "runs": trashed.count, "gone_at": gone_at}


@api.post(
    "/trash",
    response={200: TrashAnswer, **REFUSALS},
    openapi_extra=json_body('{"runs": ["..."]}'),
    tags=["trash"],
)
def trash_runs(request: HttpRequest) -> Any:
    """Puts runs of one project into its team's trash together, at most 2,000 at once, all or none; they must
    have ended. `trash` takes them back.

    ```
    curl -H "Authorization: Bearer $TOKEN" -d '{"runs": ["'$ENDED'"]}' "$LAB/api/v1/trash"
    ```
    """
    token = require_writer(request)
    found = require_runs(request, read_fields(request, runs=list)["runs"], MOST_AT_ONCE)
    runs = list(found.select_related("project").defer("spec", "log_tail"))
    projects = {run.project for run in runs}
    if len(projects) != 1:
        raise BadInput(f"runs of {len(projects)} projects", "runs", "runs of one project")
    for run in runs:
        if not run.is_final:
            raise BadInput(f"run {run.pk} is {run.state}", "runs", ", ".join(Run.FINAL))
    user: Any = token.created_by
    trashed = trashing.put_into_trash(projects.pop(), found, user)
    if trashed is None:
        raise BadInput("the runs are in the trash already", "runs", "runs that are not")
    return _answer(trashed)


@api.post("/trash/{int:batch}/restore", response={200: TrashAnswer, **REFUSALS}, tags=["trash"])
def restore_runs(request: HttpRequest, batch: int) -> Any:
    """Takes the runs back that went into the trash together.

    ```
    curl -H "Authorization: Bearer $TOKEN" -X POST "$LAB/api/v1/trash/$TRASH/restore"
    ```
    """
    token = require_writer(request)
    mine = TrashedRuns.objects.filter(project__team=token.team, project__trashed_at=None)
    found = get_object_or_404(mine, pk=batch)
    if is_being_deleted("runs", found):
        raise BadInput("the runs are being deleted for good", "trash", "runs that can be taken back")
    answer = _answer(found)
    trashing.take_back(found, token.created_by)
    return answer
