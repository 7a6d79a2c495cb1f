"""An identity provider removes people: with the bodies that Okta and Entra send, and with hostile ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from allauth.socialaccount.models import SocialAccount
from django.contrib.sessions.models import Session
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.test import Client
from django.urls import reverse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.webapp.cast import Cast, experiment_with, ready, signed_in
from webapp.accounts import audit, invitations, services
from webapp.accounts.models import Role, Team, User
from webapp.accounts.scim.gate import MOST_BYTES
from webapp.api.models import ApiToken
from webapp.api.services import make_token
from webapp.hosts import joining
from webapp.hosts.models import HostInvitation
from webapp.runs.models import Run
from webapp.settings.identity import scim_token

pytestmark = pytest.mark.django_db
TOKEN = "c29tZXRoaW5nIHRoYXQgbm9ib2R5IGd1ZXNzZXM"
USERS = "/scim/v2/Users"
OKTA = {"Operations": [{"op": "replace", "value": {"active": False}}]}
ENTRA = {"Operations": [{"op": "Replace", "path": "active", "value": "False"}]}
PUT = {"userName": "max", "name": {"givenName": "Max"}, "active": False}
PATCH_SCHEMA = "urn:ietf:params:scim:api:messages:2.0:PatchOp"


class Provider(Client):
    """The company's identity provider, which knows the lab's token."""

    def send(self, method: str, path: str, body: Any = None, token: str = TOKEN) -> Any:
        sent = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        headers = {"authorization": f"Bearer {token}"}
        return self.generic(method, path, sent, "application/scim+json", headers=headers)

    def find(self, told: str) -> list[str]:
        answer = self.get(USERS, {"filter": told}, headers={"authorization": f"Bearer {TOKEN}"})
        assert answer.status_code == 200, answer.content
        return [one["displayName"] for one in answer.json()["Resources"]]


@pytest.fixture
def provider(settings: Any) -> Provider:
    settings.SCIM_TOKEN = TOKEN
    return Provider(enforce_csrf_checks=True)


def at(user: User) -> str:
    return f"{USERS}/{user.pk}"


def log_of(team: Team) -> list[str]:
    return [f"{one.object_repr}: {one.changes_str}" for one in audit.entries(team)]


def of_provider(user: User, number: str, **said: Any) -> User:
    """The account as it is after signing in through the provider, which said this."""
    SocialAccount.objects.create(user=user, provider="company", uid=number, extra_data=said)
    return user


@pytest.mark.parametrize(
    ("method", "body"), [("PATCH", OKTA), ("PATCH", ENTRA), ("PUT", PUT), ("DELETE", None)]
)
def test_who_is_removed_has_no_access_at_once_and_leaves_all_runs(
    cast: Cast, provider: Provider, method: str, body: Any
) -> None:
    """Vera's session and Ada's token are the controls."""
    browser, others = signed_in(cast.max), signed_in(cast.vera)
    secrets = [make_token(cast.red, user, "laptop", Role.MEMBER)[1] for user in (cast.max, cast.ada)]
    made = experiment_with(cast.project, ready(cast.project), queued=1, running=1, succeeded=1)
    Run.objects.update(owner=cast.max)
    states = sorted(Run.objects.values_list("state", flat=True))

    answer = provider.send(method, at(cast.max), body)
    assert answer.status_code == (204 if method == "DELETE" else 200)
    assert method == "DELETE" or answer.json()["active"] is False

    assert browser.get("/t/red/").status_code == 302
    assert not Session.objects.filter(pk=browser.cookies["sessionid"].value).exists()
    assert others.get("/t/red/").status_code == 200
    bearers = [Client(headers={"authorization": f"Bearer {secret}"}) for secret in secrets]
    assert [bearer.get("/api/v1/runs").status_code for bearer in bearers] == [401, 200]
    assert not Client().login(username="max", password="pw")
    assert made.runs.filter(owner=cast.max).count() == 3
    assert sorted(Run.objects.values_list("state", flat=True)) == states


def test_the_teams_log_says_that_the_provider_did_it(cast: Cast, provider: Provider) -> None:
    make_token(cast.red, cast.max, "laptop", Role.MEMBER)
    before = len(log_of(cast.red))
    for _ in range(2):  # said twice it is written once
        assert provider.send("PATCH", at(cast.max), OKTA).status_code == 200
    ended, token = log_of(cast.red)[: len(log_of(cast.red)) - before]
    assert ended == "max in Red: access: may sign in → ended by the identity provider"
    assert token.startswith("laptop: revoked_at: None")
    assert {one.actor for one in audit.entries(cast.red)[:2]} == {None}
    assert "ended by the identity provider" in signed_in(cast.ada).get("/t/red/").content.decode()
    assert "may not sign in" in signed_in(cast.ada).get("/t/red/").content.decode()
    assert not [line for line in log_of(Team.objects.get(name="Blue")) if "max" in line]


def test_who_comes_back_signs_in_with_the_old_role_and_without_the_old_tokens(
    cast: Cast, provider: Provider
) -> None:
    old, secret = signed_in(cast.max), make_token(cast.red, cast.max, "laptop", Role.MEMBER)[1]
    provider.send("DELETE", at(cast.max))
    back = provider.send(
        "PATCH", at(cast.max), {"Operations": [{"op": "replace", "path": "active", "value": True}]}
    )
    assert back.json()["active"] is True
    assert old.get("/t/red/").status_code == 302
    assert signed_in(User.objects.get(pk=cast.max.pk)).get("/t/red/").status_code == 200
    assert Client(headers={"authorization": f"Bearer {secret}"}).get("/api/v1/runs").status_code == 401
    assert cast.red.memberships.get(user=cast.max).role == Role.MEMBER
    assert log_of(cast.red)[0].endswith(
        "ended by the identity provider → given back by the identity provider"
    )


def test_the_last_admin_goes_too_and_the_log_says_so(cast: Cast, provider: Provider) -> None:
    link = invitations.token(cast.red, cast.ada, Role.ADMIN)
    cast.red.memberships.filter(user=cast.max).update(role=Role.ADMIN)
    assert provider.send("DELETE", at(cast.ada)).status_code == 204
    assert invitations.read_invitation(link) is None
    assert not [line for line in log_of(cast.red) if "without an admin" in line]
    with pytest.raises(ValidationError, match="the last admin"):
        services.set_role(cast.red.memberships.get(user=cast.max), Role.VIEWER)
    assert provider.send("DELETE", at(cast.max)).status_code == 204
    assert log_of(cast.red)[0] == "Red: admins: max → none is left: the team is without an admin"


def test_what_a_removed_person_made_a_moment_later_opens_nothing(cast: Cast, provider: Provider) -> None:
    """As a request of theirs does that was under way."""
    secret = joining.invite(cast.ada, "gpu-1")
    provider.send("DELETE", at(cast.ada))
    late = make_token(cast.red, cast.ada, "late", Role.ADMIN)[1]
    link = invitations.token(cast.red, cast.ada, Role.ADMIN)
    assert Client(headers={"authorization": f"Bearer {late}"}).get("/api/v1/runs").status_code == 401
    assert invitations.read_invitation(link) is None
    with pytest.raises(joining.Refused, match="opens nothing"):
        joining.join(secret, {})
    assert not HostInvitation.objects.get().opens


def test_people_are_found_by_the_names_that_the_provider_has_for_them(cast: Cast, provider: Provider) -> None:
    """By OpenID Connect and by SAML; an account with a password by its own name."""
    userinfo = {"preferred_username": "Max@Example.org", "email": "m.power@example.org"}
    of_provider(cast.max, "00u1", userinfo=userinfo, id_token={"sub": "00u1"})
    of_provider(cast.vera, "v@example.org", uid=["vera.r"], email=["v@example.org"])
    assert provider.find('userName eq "max@example.org"') == ["max"]
    assert provider.find('emails.value eq "M.Power@example.org"') == ["max"]
    assert provider.find('emails[type eq "work"].value eq "v@example.org"') == ["vera"]
    assert provider.find('username Eq "VERA.R"') == ["vera"]
    assert provider.find('externalId eq "00u1"') == ["max"]
    assert provider.find('externalId eq "00U1"') == provider.find('userName eq "max"') == []
    assert provider.find('userName eq "sly"') == ["sly"]
    told = provider.send("GET", at(cast.max)).json()
    assert (told["id"], told["userName"], told["externalId"]) == (str(cast.max.pk), "Max@Example.org", "00u1")
    assert told["emails"] == [{"value": "m.power@example.org", "type": "work", "primary": True}]
    assert told["meta"]["location"] == f"http://testserver{at(cast.max)}"


def test_of_two_of_one_name_the_providers_own_person_is_meant(cast: Cast, provider: Provider) -> None:
    """Sly, with a password, is not the provider's sly."""
    assert provider.find('userName eq "sly"') == ["sly"]
    of_provider(User.objects.create_user("sly2"), "7", userinfo={"preferred_username": "sly"})
    assert provider.find('userName eq "sly"') == ["sly2"]


def test_everybody_is_listed_by_pages(cast: Cast, provider: Provider) -> None:
    def page(query: str) -> tuple[int, int, list[str]]:
        told = provider.send("GET", f"{USERS}?{query}").json()
        return told["totalResults"], told["startIndex"], [one["userName"] for one in told["Resources"]]

    assert page("") == (4, 1, ["ada", "max", "vera", "sly"])
    assert page("startIndex=2&count=2") == (4, 2, ["max", "vera"])
    assert page("startIndex=0&count=1") == (4, 1, ["ada"])
    assert page("startIndex=9") == (4, 9, [])
    assert page("count=0") == page("count=-1") == (4, 1, [])
    assert provider.send("GET", "/scim/v2/Groups").json()["totalResults"] == 0


def test_only_the_token_of_the_settings_opens_it(cast: Cast, provider: Provider, settings: Any) -> None:
    secret = make_token(cast.red, cast.ada, "ci", Role.ADMIN)[1]
    for wrong in ("", TOKEN[:-1], TOKEN + "x", "ä" * 40, secret):
        refused = provider.send("DELETE", at(cast.max), token=wrong)
        assert (refused.status_code, refused["WWW-Authenticate"]) == (401, "Bearer")
    assert signed_in(cast.ada).delete(at(cast.max)).status_code == 401
    assert User.objects.get(pk=cast.max.pk).is_active
    settings.SCIM_TOKEN = ""
    for token in (TOKEN, ""):
        for name, rest in (("config", []), ("people", []), ("person", [1]), ("groups", [])):
            assert provider.send("GET", reverse(f"scim_{name}", args=rest), token=token).status_code == 404


def test_what_there_is_is_said_and_nobody_is_made(cast: Cast, provider: Provider) -> None:
    told = provider.send("GET", "/scim/v2/ServiceProviderConfig")
    assert told["Content-Type"] == "application/scim+json"
    assert told.json()["patch"] == {"supported": True} and not told.json()["bulk"]["supported"]
    refused = provider.send("POST", USERS, {"userName": "new@example.org"})
    assert refused.status_code == 403 and "first sign in" in refused.json()["detail"]
    assert provider.send("PUT", USERS, {})["Allow"] == "GET, POST"
    assert User.objects.count() == 4


def test_other_attributes_are_passed_over(cast: Cast, provider: Provider) -> None:
    """Okta and Entra send names and departments along; the last word on ``active`` counts."""
    urn = "urn:ietf:params:scim:schemas:core:2.0:User"
    operations = [
        {"op": "Add", "path": 'emails[type eq "work"].value', "value": "max@example.org"},
        {"op": "remove", "path": "title"},
        {"op": "replace", "value": {"displayName": "Max", "Active": True}},
    ]
    assert provider.send("PATCH", at(cast.max), {"Operations": operations}).json()["active"] is True
    assert provider.send("PUT", at(cast.max), {"userName": "other"}).json()["userName"] == "max"
    operations.append({"op": "add", "path": f"{urn}:active", "value": False})
    body = {"schemas": [PATCH_SCHEMA], "operations": operations}
    assert provider.send("PATCH", at(cast.max), body).json()["active"] is False


HOSTILE: list[tuple[Any, str]] = [
    (b"", "invalidSyntax"),
    (b"{", "invalidSyntax"),
    (b"[" * 5000, "invalidSyntax"),
    (b'{"active": NaN}', "invalidSyntax"),
    (b'{"a": "\\u0000"}', "invalidSyntax"),
    (b"\xff\xfe", "invalidSyntax"),
    ([], "invalidSyntax"),
    ({}, "invalidSyntax"),
    ({"Operations": {}}, "invalidSyntax"),
    ({"Operations": [1]}, "invalidSyntax"),
    ({"Operations": [{"op": "replace", "path": "active"}] * 101}, "invalidSyntax"),
    ({"Operations": [{"op": 1}]}, "invalidSyntax"),
    ({"Operations": [{"op": "move", "path": "active"}]}, "invalidSyntax"),
    ({"Operations": [{"op": "replace", "path": 7, "value": False}]}, "invalidPath"),
    ({"Operations": [{"op": "replace", "path": "active", "value": 0}]}, "invalidValue"),
    ({"Operations": [{"op": "replace", "path": "active", "value": "no"}]}, "invalidValue"),
    ({"Operations": [{"op": "replace", "value": False}]}, "invalidValue"),
    ({"Operations": [{"op": "remove"}]}, "noTarget"),
    ({"Operations": [{"op": "remove", "path": "active"}]}, "mutability"),
]


@pytest.mark.parametrize(("body", "kind"), HOSTILE)
def test_a_body_that_makes_no_sense_is_refused_in_the_protocols_form(
    cast: Cast, provider: Provider, body: Any, kind: str
) -> None:
    refused = provider.send("PATCH", at(cast.max), body)
    told = refused.json()
    assert (refused.status_code, told["status"], told["scimType"]) == (400, "400", kind), told
    assert told["schemas"] == ["urn:ietf:params:scim:api:messages:2.0:Error"]
    assert refused["Content-Type"] == "application/scim+json"
    assert User.objects.get(pk=cast.max.pk).is_active


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("filter=", "invalidFilter"),
        ("filter=userName", "invalidFilter"),
        ('filter=userName sw "m"', "invalidFilter"),
        ('filter=password eq "pw"', "invalidFilter"),
        ('filter=userName eq "a" or userName eq "b"', "invalidFilter"),
        ('filter=userName eq "\\q"', "invalidFilter"),
        ('filter=userName eq "' + "a" * 1000 + '"', "invalidFilter"),
        ("startIndex=one", "invalidValue"),
        ("count=1e3", "invalidValue"),
        ("count=" + "9" * 5000, "invalidValue"),
    ],
)
def test_a_filter_or_a_page_that_it_does_not_know_is_refused(
    cast: Cast, provider: Provider, query: str, kind: str
) -> None:
    refused = provider.send("GET", f"{USERS}?{query}")
    assert (refused.status_code, refused.json()["scimType"]) == (400, kind)


def test_nobody_has_an_id_that_is_none_and_a_large_body_is_not_read(cast: Cast, provider: Provider) -> None:
    for wrong in ("0", "-1", "max", "9" * 18, "9" * 400, "٣", "1.5"):
        for method, body in (("GET", None), ("PATCH", OKTA), ("PUT", PUT), ("DELETE", None)):
            assert provider.send(method, f"{USERS}/{wrong}", body).status_code == 404, wrong
    assert provider.send("PATCH", at(cast.max), b" " * (MOST_BYTES + 1)).status_code == 413
    assert ApiToken.objects.count() == 0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.sampled_from(["active", "replace"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["Operations", "op", "path", "value", "active"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(body=JSON, method=st.sampled_from(["PATCH", "PUT"]), told=st.text(max_size=40))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_body_and_no_filter_makes_the_server_fail(
    cast: Cast, provider: Provider, body: Any, method: str, told: str
) -> None:
    sent = json.dumps(body).encode()
    assert provider.send(method, at(cast.max), sent).status_code in (200, 400)
    headers = {"authorization": f"Bearer {TOKEN}"}
    assert provider.get(USERS, {"filter": told}, headers=headers).status_code == 400


def test_a_token_that_could_be_guessed_stops_the_server_with_the_reason() -> None:
    with pytest.raises(ImproperlyConfigured, match="SCIM_TOKEN has 6 characters: at least 32"):
        scim_token({"SCIM_TOKEN": "secret"})
    with pytest.raises(ImproperlyConfigured, match="not ASCII"):
        scim_token({"SCIM_TOKEN": "ä" * 40})
    assert (scim_token({}), scim_token({"SCIM_TOKEN": f"{TOKEN}\n"})) == ("", TOKEN)
