"""Reports: listed, made, read with what their blocks find, and written."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Status
from ninja.params.functions import Query

from experiments.core.errors import BadInput
from webapp.api.application import (
    MOST_PER_PAGE,
    REFUSALS,
    api,
    in_project,
    json_body,
    one_page,
    require_writer,
    token_of,
)
from webapp.api.gate import read_fields
from webapp.api.projects import project_of
from webapp.api.schemas import ReportAnswer, ReportApart, ReportPage
from webapp.names import is_name
from webapp.reports import page, services
from webapp.reports.models import LONGEST_TEXT, LONGEST_TITLE, Report


def _reports_of(request: HttpRequest) -> Any:
    found = Report.objects.filter(
        project__team=token_of(request).team, project__trashed_at=None, trashed_at=None
    )
    return found.select_related("project").order_by("-pk")


@api.get("/reports", response={200: ReportPage, **REFUSALS}, tags=["what is written"])
def list_reports(
    request: HttpRequest,
    after: Annotated[int | None, Query(ge=0, lt=2**62)] = None,
    project: str | None = None,
    limit: Annotated[int, Query(ge=1, le=MOST_PER_PAGE)] = 50,
) -> Any:
    """Reports that are not in the trash, the newest first. For the next page pass `next` as `after`.

    ```
    curl -H "Authorization: Bearer $TOKEN" "$LAB/api/v1/reports"
    ```
    """
    found = in_project(request, _reports_of(request), project)
    rows, following = one_page(found.filter(pk__lt=after) if after is not None else found, limit)
    return {
        "reports": [{"id": one.pk, "project": one.project.slug, "title": one.title} for one in rows],
        "next": following,
    }


@api.post(
    "/reports",
    response={201: ReportAnswer, **REFUSALS},
    openapi_extra=json_body('{"title": "...", "text": "..."}'),
    tags=["what is written"],
)
def make_report(request: HttpRequest, project: str | None = None) -> Any:
    """Makes a report: Markdown in which a fence `runs` is a table and a fence `plot` a figure of a search.

    ```
    curl -H "Authorization: Bearer $TOKEN" -d '{"title": "What fits", "text": "Of this week."}' "$LAB/api/v1/reports"
    ```
    """  # noqa: E501
    token = require_writer(request)
    body = read_fields(request, title=str, text=str)
    title, text = _title(body["title"]), _text(body["text"])
    user: Any = token.created_by
    return Status(201, _report(services.make(project_of(token.team, project), user, title, text)))


@api.get("/reports/{int:report}", response={200: ReportAnswer, **REFUSALS}, tags=["what is written"])
def read_report(request: HttpRequest, report: int) -> Any:
    """A report as it was written, and as a `document` in which every block is the table that it finds now, or
    found when it was kept.

    ```
    curl -H "Authorization: Bearer $TOKEN" "$LAB/api/v1/reports/$REPORT"
    ```
    """
    return _report(get_object_or_404(_reports_of(request), pk=report))


@api.post(
    "/reports/{int:report}",
    response={200: ReportAnswer, 409: ReportApart, **REFUSALS},
    openapi_extra=json_body('{"title": "...", "text": "...", "revision": 7}'),
    tags=["what is written"],
)
def write_report(request: HttpRequest, report: int) -> Any:
    """The report from now on. `revision` is the one that the writer had before them; where somebody has
    written meanwhile the answer is 409 with that revision and text.

    ```
    curl -H "Authorization: Bearer $TOKEN" -d '{"title": "What fits", "text": "Of this month.", "revision": '$REVISION'}' "$LAB/api/v1/reports/$REPORT"
    ```
    """  # noqa: E501
    token = require_writer(request)
    found = get_object_or_404(_reports_of(request), pk=report)
    body = read_fields(request, title=str, text=str, revision=int)
    user: Any = token.created_by
    try:
        services.write(found, user, _title(body["title"]), _text(body["text"]), body["revision"])
    except services.WrittenMeanwhile as error:
        latest = error.latest
        return Status(409, {"detail": str(error), "revision": latest.pk, "text": latest.text})
    return _report(found)


def _title(told: str) -> str:
    if not is_name(told) or len(told) > LONGEST_TITLE:
        raise BadInput(f"{told!r:.80} is no title", "title", f"a line of 1 to {LONGEST_TITLE} characters")
    return told


def _text(told: str) -> str:
    if len(told) > LONGEST_TEXT:
        raise BadInput(f"the text has {len(told)} characters", "text", f"{LONGEST_TEXT} at most")
    return told


def _report(report: Report) -> dict[str, Any]:
    latest = services.latest_of(report)
    return {
        "id": report.pk,
        "project": report.project.slug,
        "title": report.title,
        "revision": latest.pk,
        "text": latest.text,
        "by": str(latest.by) if latest.by else None,
        "at": latest.at,
        "document": page.to_document(report, latest.text),
    }
