"""Who is told of changes: webhooks, mail and chat, with tokens of the role admin."""

from __future__ import annotations

from datetime import UTC, datetime
from types import UnionType
from typing import Annotated, Any

from django.db.models import QuerySet
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
    require_admin,
)
from webapp.api.gate import read_given
from webapp.api.projects import project_of
from webapp.api.schemas import ChannelAnswer, ChannelMade, ChannelPage, ChannelRow, DeliveryAnswer
from webapp.nightly import channels
from webapp.nightly.change_forms import ChannelForm
from webapp.nightly.models import Channel

FIELDS: dict[str, type | UnionType] = {
    "name": str,
    "kind": str,
    "address": str,
    "quiet_from": int | None,
    "quiet_to": int | None,
}


def _channels_of(request: HttpRequest) -> QuerySet[Channel]:
    """The team's channels, for a token that may say who is told."""
    team = require_admin(request).team
    found = Channel.objects.filter(project__team=team, project__trashed_at=None)
    return found.select_related("project__team", "created_by").order_by("-pk")


@api.get("/channels", response={200: ChannelPage, **REFUSALS}, tags=["who is told"])
def list_channels(
    request: HttpRequest,
    after: Annotated[int | None, Query(ge=0, lt=2**62)] = None,
    project: str | None = None,
    limit: Annotated[int, Query(ge=1, le=MOST_PER_PAGE)] = 50,
) -> Any:
    """Whom changes are told to, the newest first. For the next page pass `next` as `after`.

    ```
    curl -H "Authorization: Bearer $TOKEN" "$LAB/api/v1/channels"
    ```
    """
    found = in_project(request, _channels_of(request), project)
    rows, following = one_page(found.filter(pk__lt=after) if after is not None else found, limit)
    return {"channels": [_row(one) for one in rows], "next": following}


@api.post(
    "/channels",
    response={201: ChannelMade, **REFUSALS},
    openapi_extra=json_body('{"name": "...", "kind": "webhook", "address": "https://..."}'),
    tags=["who is told"],
)
def make_channel(request: HttpRequest, project: str | None = None) -> Any:
    """Tells changes to one more: `kind` is `webhook` (https) or `apprise` (mail or chat); `quiet_from` and
    `quiet_to` are hours of UTC. A webhook's messages are signed with `secret`, which is shown this once.

    ```
    curl -H "Authorization: Bearer $TOKEN" -d '{"name": "on call", "kind": "webhook", "address": "'$HOOK'", "quiet_from": 22, "quiet_to": 6}' "$LAB/api/v1/channels"
    ```
    """  # noqa: E501
    token = require_admin(request)
    form = ChannelForm(project_of(token.team, project), read_given(request, **FIELDS))
    made = _save(form, token.created_by)
    return Status(201, {**_row(made), "secret": made.secret})


@api.get("/channels/{int:channel}", response={200: ChannelAnswer, **REFUSALS}, tags=["who is told"])
def read_channel(request: HttpRequest, channel: int) -> Any:
    """A channel with its last messages, and why one was not taken.

    ```
    curl -H "Authorization: Bearer $TOKEN" "$LAB/api/v1/channels/$CHANNEL"
    ```
    """
    found = get_object_or_404(channels.with_messages(_channels_of(request)), pk=channel)
    sent = [
        {"at": one.at, "changes": len(one.changes.all()), "error": one.error} for one in found.last_messages
    ]
    return {**_row(found), "messages": sent}


@api.post(
    "/channels/{int:channel}",
    response={200: ChannelRow, **REFUSALS},
    openapi_extra=json_body(
        '{"name": "...", "address": "https://...", "quiet_from": null, "quiet_to": null}'
    ),
    tags=["who is told"],
)
def change_channel(request: HttpRequest, channel: int) -> Any:
    """The channel from now on; what is not named stays as it is, `null` takes quiet hours away. Its kind and
    its secret stay; `/channels/{channel}/secret` makes another one.

    ```
    curl -H "Authorization: Bearer $TOKEN" -d '{"quiet_from": null, "quiet_to": null}' "$LAB/api/v1/channels/$CHANNEL"
    ```
    """  # noqa: E501
    found = get_object_or_404(_channels_of(request), pk=channel)
    kinds = {name: kind for name, kind in FIELDS.items() if name != "kind"}
    had = {name: getattr(found, name) for name in FIELDS}
    form = ChannelForm(found.project, had | read_given(request, **kinds), found)
    return _row(_save(form, require_admin(request).created_by))


@api.post("/channels/{int:channel}/secret", response={200: ChannelMade, **REFUSALS}, tags=["who is told"])
def renew_secret(request: HttpRequest, channel: int) -> Any:
    """Signs the webhook's messages with another `secret` from now on, which is shown this once.

    ```
    curl -H "Authorization: Bearer $TOKEN" -X POST "$LAB/api/v1/channels/$CHANNEL/secret"
    ```
    """
    found = get_object_or_404(_channels_of(request), pk=channel)
    channels.renew_secret(found)
    return {**_row(found), "secret": found.secret}


@api.delete("/channels/{int:channel}", response={204: None, **REFUSALS}, tags=["who is told"])
def remove_channel(request: HttpRequest, channel: int) -> Any:
    """Tells this channel nothing any more.

    ```
    curl -H "Authorization: Bearer $TOKEN" -X DELETE "$LAB/api/v1/channels/$FORMER"
    ```
    """
    get_object_or_404(_channels_of(request), pk=channel).delete()
    return Status(204, None)


@api.post("/channels/{int:channel}/test", response={200: DeliveryAnswer, **REFUSALS}, tags=["who is told"])
def test_channel(request: HttpRequest, channel: int) -> Any:
    """Sends a message that names no change, and says whether it was taken.

    ```
    curl -H "Authorization: Bearer $TOKEN" -X POST "$LAB/api/v1/channels/$CHANNEL/test"
    ```
    """
    found = get_object_or_404(_channels_of(request), pk=channel)
    try:
        channels.deliver_test(found, datetime.now(UTC))
    except channels.Undelivered as error:
        return {"taken": False, "error": str(error)}
    return {"taken": True, "error": ""}


def _save(form: ChannelForm, user: Any) -> Channel:
    """The channel as the form has it; ``BadInput`` names the first field that is wrong."""
    for field, reasons in form.errors.items():
        raise BadInput("; ".join(map(str, reasons)), field, _what_would_do(form, field))
    return form.save(user)


def _what_would_do(form: ChannelForm, field: str) -> str:
    if field == "kind":
        return ", ".join(Channel.Kind.values)
    if field.startswith("quiet"):
        return "hours of UTC from 0 to 23, both or neither"
    return str(form.fields[field].help_text) or "a name of its own in the project"


def _row(channel: Channel) -> dict[str, Any]:
    names = ("name", "kind", "quiet_from", "quiet_to")
    return {
        **{name: getattr(channel, name) for name in names},
        "id": channel.pk,
        "project": channel.project.slug,
        "by": str(channel.created_by) if channel.created_by else None,
        "at": channel.created_at,
    }
