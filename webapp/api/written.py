"""What people write about runs: tags, notes, comments and reports."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

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
    one_page,
    require_writer,
    runs_of,
    token_of,
)
from webapp.api.gate import read_json
from webapp.api.projects import project_of
from webapp.api.schemas import (
    CommentAnswer,
    NoteAnswer,
    ReportAnswer,
    ReportApart,
    ReportPage,
    TagAnswer,
)
from webapp.history import discussion
from webapp.history.models import LONGEST_COMMENT, LONGEST_NOTE, TAG, TAG_IN_WORDS, RunComment, RunNote
from webapp.history.services import MOST_AT_ONCE, tag, untag
from webapp.names import is_name
from webapp.reports import page, services
from webapp.reports.models import LONGEST_TEXT, LONGEST_TITLE, Report


def _body(example: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"type": "object", "description": example}}}
    return {"requestBody": {"required": True, "content": content}}


def _read(request: HttpRequest, **kinds: type) -> dict[str, Any]:
    """The body's fields, all of them there and of these kinds, and no others."""
    body = read_json(request)
    if not isinstance(body, dict):
        raise BadInput("not an object", "body", ", ".join(kinds))
    for name in body:
        if name not in kinds:
            raise BadInput(f"unknown field {name!r:.80}", name[:80], ", ".join(kinds))
    for name, kind in kinds.items():
        found = body.get(name)
        if not isinstance(found, kind) or isinstance(found, bool) is not (kind is bool):
            raise BadInput(f"{found!r:.80} is not what {name} is", name, kind.__name__)
    return body


def _bounded(text: str, name: str, longest: int, least: int = 0) -> str:
    if not least <= len(text.strip()) or len(text) > longest:
        raise BadInput(f"{name} has {len(text)} characters", name, f"{least} to {longest}")
    return text.strip()


@api.post(
    "/tags",
    response={200: TagAnswer, **REFUSALS},
    openapi_extra=_body('{"name": "paper", "runs": ["..."], "take": "on"}'),
    tags=["what is written"],
)
def tag_runs(request: HttpRequest) -> Any:
    """Puts a tag on runs (`take` is `on`) or takes it off (`off`); at most 2,000 at once, all or none.

    ```
    curl -H "Authorization: Bearer $TOKEN" -d '{"name": "paper", "runs": ["'$RUN'"], "take": "on"}' "$LAB/api/v1/tags"
    ```
    """  # noqa: E501
    token = require_writer(request)
    body = _read(request, name=str, runs=list, take=str)
    name, take = body["name"], body["take"]
    if not TAG.fullmatch(name):
        raise BadInput(f"{name!r:.80} is no tag", "name", TAG_IN_WORDS)
    if take not in ("on", "off"):
        raise BadInput(f"{take!r:.80} is not what can be done", "take", "on, off")
    if len(body["runs"]) > MOST_AT_ONCE:
        raise BadInput(f"{len(body['runs'])} runs", "runs", f"{MOST_AT_ONCE} at most")
    asked = [_uuid(one, place) for place, one in enumerate(body["runs"])]
    found = runs_of(request).filter(pk__in=asked)
    there = set(found.values_list("pk", flat=True))
    for place, one in enumerate(asked):
        if one not in there:
            raise BadInput(f"the team has no run {one}", f"runs[{place}]", "a run of the team's")
    user: Any = token.created_by
    if take == "on":
        tag(found, name, user)
    else:
        untag(found, name)
    return {"name": name, "runs": len(there)}


def _uuid(told: Any, place: int) -> UUID:
    try:
        return UUID(str(told))
    except ValueError:
        raise BadInput(f"{told!r:.80} names no run", f"runs[{place}]", "the id of a run") from None


@api.get("/runs/{uuid:run}/note", response={200: NoteAnswer, **REFUSALS}, tags=["what is written"])
def read_note(request: HttpRequest, run: UUID) -> Any:
    """The note on a run, in Markdown; empty where there is none.

    ```
    curl -H "Authorization: Bearer $TOKEN" "$LAB/api/v1/runs/$RUN/note"
    ```
    """
    return _note_of(get_object_or_404(runs_of(request), pk=run).pk)


def _note_of(run: UUID) -> dict[str, Any]:
    note = RunNote.objects.filter(run=run).select_related("by").first()
    if note is None:
        return {"text": "", "by": None, "at": None}
    return {"text": note.text, "by": str(note.by) if note.by else None, "at": note.at}


@api.post(
    "/runs/{uuid:run}/note",
    response={200: NoteAnswer, **REFUSALS},
    openapi_extra=_body('{"text": "..."}'),
    tags=["what is written"],
)
def write_note(request: HttpRequest, run: UUID) -> Any:
    """The note on a run from now on; an empty text takes it away.

    ```
    curl -H "Authorization: Bearer $TOKEN" -d '{"text": "loss is **nan** from step 8"}' "$LAB/api/v1/runs/$RUN/note"
    ```
    """  # noqa: E501
    token = require_writer(request)
    found = get_object_or_404(runs_of(request), pk=run)
    text = _bounded(_read(request, text=str)["text"], "text", LONGEST_NOTE)
    user: Any = token.created_by
    discussion.write_note(found, user, text)
    return _note_of(found.pk)


@api.get(
    "/runs/{uuid:run}/comments", response={200: list[CommentAnswer], **REFUSALS}, tags=["what is written"]
)
def list_comments(request: HttpRequest, run: UUID) -> Any:
    """What was said about a run, the oldest first.

    ```
    curl -H "Authorization: Bearer $TOKEN" "$LAB/api/v1/runs/$RUN/comments"
    ```
    """
    found = get_object_or_404(runs_of(request), pk=run)
    return [_comment(one) for one in found.comments.select_related("author")]


def _comment(one: RunComment) -> dict[str, Any]:
    return {"id": one.pk, "text": one.text, "by": str(one.author) if one.author else None, "at": one.at}


@api.post(
    "/runs/{uuid:run}/comments",
    response={201: CommentAnswer, **REFUSALS},
    openapi_extra=_body('{"text": "..."}'),
    tags=["what is written"],
)
def say(request: HttpRequest, run: UUID) -> Any:
    """Says something about a run in the name of who made the token; members whose names stand behind an @ are
    told.

    ```
    curl -H "Authorization: Bearer $TOKEN" -d '{"text": "as expected"}' "$LAB/api/v1/runs/$RUN/comments"
    ```
    """
    token = require_writer(request)
    found = get_object_or_404(runs_of(request).select_related("project"), pk=run)
    text = _bounded(_read(request, text=str)["text"], "text", LONGEST_COMMENT, least=1)
    user: Any = token.created_by
    return Status(201, _comment(discussion.say(found, user, text)))


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
    openapi_extra=_body('{"title": "...", "text": "..."}'),
    tags=["what is written"],
)
def make_report(request: HttpRequest, project: str | None = None) -> Any:
    """Makes a report: Markdown in which a fence `runs` is a table and a fence `plot` a figure of a search.

    ```
    curl -H "Authorization: Bearer $TOKEN" -d '{"title": "What fits", "text": "Of this week."}' "$LAB/api/v1/reports"
    ```
    """  # noqa: E501
    token = require_writer(request)
    body = _read(request, title=str, text=str)
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
    openapi_extra=_body('{"title": "...", "text": "...", "revision": 7}'),
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
    body = _read(request, title=str, text=str, revision=int)
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
