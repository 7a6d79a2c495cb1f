"""Webhooks and other channels over the API: made, changed, tried and removed by tokens of the role admin."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

import pytest
from auditlog.models import LogEntry

from tests.webapp import cast
from tests.webapp.api.calls import Caller
from tests.webapp.cast import Place
from webapp.accounts.models import Role
from webapp.nightly.models import Channel, Message

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada() -> Place:
    return cast.place("ada")


@pytest.fixture
def caller(ada: Place) -> Caller:
    return Caller(ada, Role.ADMIN)


def hook(address: str, **more: Any) -> dict[str, Any]:
    return {"name": "on call", "kind": "webhook", "address": address, **more}


def test_a_webhook_is_made_tried_and_signs_with_the_secret_that_was_shown_once(
    caller: Caller,
    ada: Place,
    ear: Any,
) -> None:
    address, heard, codes = ear
    made = caller.post("/channels", hook(address, quiet_from=22, quiet_to=6))
    assert caller.last == 201
    assert (made["name"], made["kind"], made["quiet_from"], made["quiet_to"]) == ("on call", "webhook", 22, 6)
    at = f"/channels/{made['id']}"
    assert caller.post(f"{at}/test", {}) == {"taken": True, "error": ""}
    ((headers, body),) = heard
    signed = headers["X-Lab-Timestamp"].encode() + b"." + body
    wanted = hmac.new(made["secret"].encode(), signed, hashlib.sha256).hexdigest()
    assert headers["X-Lab-Signature"] == f"sha256={wanted}"
    assert json.loads(body)["changes"] == []
    codes.append(500)
    assert caller.post(f"{at}/test", {}) == {"taken": False, "error": "it answered 500"}
    for shown in (caller.get(at), caller.get("/channels"), caller.post(at, {"name": "later"})):
        assert made["secret"] not in json.dumps(shown) and address not in json.dumps(shown)
    entries = LogEntry.objects.get_for_objects(Channel.objects.all())
    assert entries.count() == 2 and made["secret"] not in str(list(entries.values()))


def test_a_change_leaves_what_it_does_not_name_and_its_secret(caller: Caller, ear: Any) -> None:
    address, heard, _ = ear
    made = caller.post("/channels", hook("http://127.0.0.1:1/", quiet_from=22, quiet_to=6))
    at = f"/channels/{made['id']}"
    assert caller.post(f"{at}/test", {})["taken"] is False
    changed = caller.post(at, {"address": address})
    assert changed == {name: value for name, value in made.items() if name != "secret"}
    caller.post(f"{at}/test", {})
    assert len(heard) == 1
    assert Channel.objects.get().secret == made["secret"]
    woken = caller.post(at, {"quiet_from": None, "quiet_to": None})
    assert (woken["quiet_from"], woken["quiet_to"]) == (None, None)
    assert caller.post(at, {"name": "on call"})["name"] == "on call", "its own name is no other's"


def test_another_secret_is_made_and_shown_once(caller: Caller, ear: Any) -> None:
    made = caller.post("/channels", hook(ear[0]))
    renewed = caller.post(f"/channels/{made['id']}/secret", {})
    assert renewed["secret"] == Channel.objects.get().secret != made["secret"]
    assert renewed | {"secret": ""} == made | {"secret": ""}
    Channel.objects.update(kind="apprise", secret="")
    assert caller.post(f"/channels/{made['id']}/secret", {})["field"] == "channel"
    assert Channel.objects.get().secret == ""


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (hook("http://example.org/"), "address"),
        (hook("https://127.0.0.1/"), "address"),
        (hook("https://169.254.169.254/latest"), "address"),
        (hook("https://[::1]/"), "address"),
        ({"name": "a", "kind": "apprise", "address": "json://127.0.0.1/"}, "address"),
        ({"name": "a", "kind": "webhook"}, "address"),
        (hook("https://192.0.2.1/", kind="pager"), "kind"),
        (hook("https://192.0.2.1/", name=7), "name"),
        (hook("https://192.0.2.1/", name="\n"), "name"),
        (hook("https://192.0.2.1/", quiet_from="22", quiet_to=6), "quiet_from"),
        (hook("https://192.0.2.1/", quiet_from=True, quiet_to=6), "quiet_from"),
        (hook("https://8.8.8.8/", quiet_from=24, quiet_to=6), "quiet_from"),
        (hook("https://8.8.8.8/", quiet_from=22), "quiet_to"),
        (hook("https://8.8.8.8/", secret="mine"), "secret"),
        ([], "body"),
    ],
)
def test_what_is_refused_is_named_and_nothing_is_made(caller: Caller, body: Any, field: str) -> None:
    assert caller.post("/channels", body)["field"] == field
    assert caller.last == 422
    assert not Channel.objects.exists()


def test_an_address_inside_is_refused_when_it_is_changed_and_when_it_is_used(
    caller: Caller, ada: Place
) -> None:
    """As it was entered while the server's own network was allowed."""
    made = ada.project.channels.create(name="a", kind="webhook", address="https://10.0.0.1/", secret="s")
    at = f"/channels/{made.pk}"
    assert "inside a private network" in caller.post(f"{at}/test", {})["error"]
    assert caller.post(at, {"address": "https://10.0.0.2/"})["field"] == "address"
    assert caller.post(at, {"kind": "apprise"})["field"] == "kind", "a channel keeps its kind"
    made.refresh_from_db()
    assert (made.kind, made.address) == ("webhook", "https://10.0.0.1/")


def test_a_name_is_one_channels_of_its_project(caller: Caller, settings: Any) -> None:
    settings.NOTIFY_PRIVATE = True
    caller.post("/channels", hook("https://127.0.0.1/"))
    second = caller.post("/channels", hook("https://127.0.0.1/", name="second"))
    assert caller.post("/channels", hook("https://127.0.0.1/"))["field"] == "name"
    assert caller.post(f"/channels/{second['id']}", {"name": "on call"})["field"] == "name"
    assert Channel.objects.count() == 2


def test_channels_are_listed_read_with_their_messages_and_removed(caller: Caller, ada: Place) -> None:
    first, second = (
        ada.project.channels.create(name=name, kind="webhook", address="https://10.0.0.1/") for name in "ab"
    )
    page = caller.get("/channels?limit=1")
    assert [row["name"] for row in page["channels"]] == ["b"]
    rest = caller.get(f"/channels?after={page['next']}&project={ada.project.slug}")
    assert ([row["id"] for row in rest["channels"]], rest["next"]) == ([first.pk], None)
    Message.objects.create(channel=second, at=second.created_at, error="it answered 500")
    (sent,) = caller.get(f"/channels/{second.pk}")["messages"]
    assert (sent["changes"], sent["error"]) == (0, "it answered 500")
    assert caller.delete(f"/channels/{second.pk}") is None
    assert caller.last == 204
    caller.delete(f"/channels/{second.pk}")
    assert caller.last == 404
    assert list(Channel.objects.all()) == [first]


def test_the_same_key_makes_one_channel_and_shows_its_secret_again(caller: Caller, settings: Any) -> None:
    """Its first answer may have been lost on the way."""
    settings.NOTIFY_PRIVATE = True
    made = [
        caller.client.post(
            "/api/v1/channels",
            json.dumps(hook("https://127.0.0.1/")),
            content_type="application/json",
            headers={"Idempotency-Key": "once"},
        ).json()
        for _ in range(2)
    ]
    assert made[0] == made[1] and made[0]["secret"]
    assert Channel.objects.count() == 1


@pytest.mark.parametrize("role", [Role.VIEWER, Role.MEMBER])
def test_tokens_of_lower_roles_neither_look_nor_change(ada: Place, role: str) -> None:
    made = ada.project.channels.create(name="a", kind="webhook", address="https://10.0.0.1/")
    lower, at = Caller(ada, role), f"/channels/{made.pk}"
    for ask in (
        lambda: lower.get("/channels"),
        lambda: lower.get(at),
        lambda: lower.post("/channels", hook("https://10.0.0.1/")),
        lambda: lower.post(at, {"name": "b"}),
        lambda: lower.post(f"{at}/test", {}),
        lambda: lower.post(f"{at}/secret", {}),
        lambda: lower.delete(at),
    ):
        assert "needs a token with the role admin" in ask()["detail"]
        assert lower.last == 403
    assert list(Channel.objects.values_list("name", flat=True)) == ["a"]


def test_the_page_makes_tokens_of_that_role(ada: Place, client: Any) -> None:
    ada.project.team.memberships.update(role=Role.ADMIN)
    client.force_login(ada.user)
    page = client.post(f"/t/{ada.project.team.slug}/tokens/", {"name": "all", "role": "admin", "days": "30"})
    assert "say who is told of changes" in page.content.decode()
    assert ada.project.team.tokens.get().role == Role.ADMIN
