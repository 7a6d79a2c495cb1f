"""What people write about runs: tags, notes and comments."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Status

from experiments.core.errors import BadInput
from webapp.api.application import REFUSALS, api, json_body, require_runs, require_writer, runs_of
from webapp.api.gate import check_length, read_fields
from webapp.api.schemas import CommentAnswer, NoteAnswer, TagAnswer
from webapp.history import discussion
from webapp.history.models import LONGEST_COMMENT, LONGEST_NOTE, TAG, TAG_IN_WORDS, RunComment, RunNote
from webapp.history.services import MOST_AT_ONCE, tag, untag


@api.post(
    "/tags",
    response={200: TagAnswer, **REFUSALS},
    openapi_extra=json_body('{"name": "paper", "runs": ["..."], "take": "on"}'),
    tags=["what is written"],
)
def tag_runs(request: HttpRequest) -> Any:
    """Puts a tag on runs (`take` is `on`) or takes it off (`off`); at most 2,000 at once, all or none.

    ```
    curl -H "Authorization: Bearer $TOKEN" -d '{"name": "paper", "runs": ["'$RUN'"], "take": "on"}' "$LAB/api/v1/tags"
    ```
    """  # noqa: E501
    token = require_writer(request)
    body = read_fields(request, name=str, runs=list, take=str)
    name, take = body["name"], body["take"]
    if not TAG.fullmatch(name):
        raise BadInput(f"{name!r:.80} is no tag", "name", TAG_IN_WORDS)
    if take not in ("on", "off"):
        raise BadInput(f"{take!r:.80} is not what can be done", "take", "on, off")
    found = require_runs(request, body["runs"], MOST_AT_ONCE)
    user: Any = token.created_by
    if take == "on":
        tag(found, name, user)
    else:
        untag(found, name)
    return {"name": name, "runs": found.count()}


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
    openapi_extra=json_body('{"text": "..."}'),
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
    text = check_length(read_fields(request, text=str)["text"], "text", LONGEST_NOTE)
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
    openapi_extra=json_body('{"text": "..."}'),
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
    text = check_length(read_fields(request, text=str)["text"], "text", LONGEST_COMMENT, least=1)
    user: Any = token.created_by
    return Status(201, _comment(discussion.say(found, user, text)))
