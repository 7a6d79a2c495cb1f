"""Signing in at an identity provider: a real one of that protocol on this host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import oidc_provider_mock
import pytest
import requests
from django.core.exceptions import ImproperlyConfigured
from django.test import Client

from tests.webapp import cast
from webapp.accounts import invitations
from webapp.accounts.models import Membership, Role, User
from webapp.settings.identity import forms_may_lead_to, identity_provider, provider_apps

pytestmark = pytest.mark.django_db
PASSED = {"OIDC_CLIENT_ID": "lab", "OIDC_CLIENT_SECRET": "its secret", "OIDC_NAME": "Example University"}
LOGIN = "/accounts/oidc/company/login/"


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    """A provider that knows three people; who is in the group says it as companies' do."""
    people = [
        oidc_provider_mock.User(sub="1", claims={"preferred_username": "grace", "groups": ["systems"]}),
        oidc_provider_mock.User(sub="2", claims={"email": "linus@example.org", "groups": ["kernel"]}),
        oidc_provider_mock.User(sub="3", claims={"preferred_username": "ada"}),
    ]
    with oidc_provider_mock.run_server_in_thread(user_claims=people) as server:
        yield f"http://localhost:{server.server_port}"


@pytest.fixture
def told(settings: Any, issuer: str) -> Any:
    """Puts what the environment says into the settings, as a start of the server would."""

    def tell(**more: str) -> None:
        found = identity_provider({"OIDC_ISSUER": issuer, **PASSED, **more})
        settings.IDENTITY_PROVIDER = found
        settings.SOCIALACCOUNT_PROVIDERS = provider_apps(found)

    return tell


def sign_in(subject: str, client: Client | None = None) -> tuple[Client, Any]:
    """The browser's part: our form, the provider's, and back."""
    client = client or Client()
    begun = client.post(LOGIN)
    assert begun.status_code == 302, begun.content
    there = requests.post(begun["Location"], data={"sub": subject}, allow_redirects=False, timeout=20)
    return client, client.get(there.headers["Location"])


def test_people_of_the_provider_join_the_team_of_the_settings_and_come_back_as_themselves(told: Any) -> None:
    team = cast.place("vera").project.team
    told(OIDC_TEAM=team.slug, OIDC_ROLE="member")
    _, landed = sign_in("1")
    assert landed.status_code == 302
    grace = User.objects.get(username="grace")
    assert Membership.objects.get(user=grace).role == Role.MEMBER
    assert (grace.email, grace.has_usable_password()) == ("", False)
    client, _ = sign_in("1")
    assert client.session["_auth_user_id"] == str(grace.pk)
    assert User.objects.filter(username__startswith="grace").count() == 1


def test_without_a_team_only_who_was_invited_comes_in(told: Any) -> None:
    there = cast.place("vera", Role.ADMIN)
    told()
    client, refused = sign_in("2")
    assert refused.status_code == 403 and b"ask an admin" in refused.content
    assert not User.objects.filter(username="linus").exists()
    link = invitations.token(there.project.team, there.user, Role.VIEWER)
    session = client.session
    session[invitations.SESSION_KEY] = link
    session.save()
    sign_in("2", client)
    assert Membership.objects.get(user__username="linus").role == Role.VIEWER


def test_who_leaves_the_group_is_refused_from_then_on(told: Any) -> None:
    team = cast.place("vera").project.team
    told(OIDC_TEAM=team.slug, OIDC_GROUP="systems")
    assert sign_in("1")[1].status_code == 302
    assert sign_in("2")[1].status_code == 403
    told(OIDC_TEAM=team.slug, OIDC_GROUP="kernel")
    client, refused = sign_in("1")
    assert refused.status_code == 403 and b"is not in the group" in refused.content
    assert "_auth_user_id" not in client.session


def test_whom_the_provider_removed_is_refused_though_it_lets_them_sign_in(told: Any, settings: Any) -> None:
    """Found by the name that the provider said at sign-in; once given back they come in again."""
    told(OIDC_TEAM=cast.place("vera").project.team.slug)
    settings.SCIM_TOKEN = "c" * 32
    client, _ = sign_in("2")
    company = Client(headers={"authorization": f"Bearer {settings.SCIM_TOKEN}"})
    asked = company.get("/scim/v2/Users", {"filter": 'userName eq "linus@example.org"'})
    (found,) = asked.json()["Resources"]
    assert (found["displayName"], found["externalId"], found["active"]) == ("linus", "2", True)
    there = f"/scim/v2/Users/{found['id']}"
    assert company.delete(there).status_code == 204
    for browser in (client, Client()):
        sign_in("2", browser)
        assert "_auth_user_id" not in browser.session
    assert company.put(there, {"active": True}, content_type="application/json").status_code == 200
    assert "_auth_user_id" in sign_in("2")[0].session


def test_an_account_of_the_same_name_is_another_persons(told: Any) -> None:
    """Ada signed in by password before; the provider's ada is not let into her account."""
    ada = cast.place("ada")
    told(OIDC_TEAM=ada.project.team.slug)
    client, _ = sign_in("3")
    assert client.session["_auth_user_id"] != str(ada.user.pk)
    assert User.objects.count() == 2


def test_the_button_is_there_with_a_provider_alone_and_leads_there(told: Any, issuer: str) -> None:
    assert b"Sign in with" not in Client().get("/accounts/login/").content
    assert Client().post(LOGIN).status_code == 404
    told()
    assert b"Sign in with Example University" in Client().get("/accounts/login/").content
    assert Client().post(LOGIN)["Location"].startswith(issuer)
    assert forms_may_lead_to({"OIDC_ISSUER": f"{issuer}/realm"}) == [issuer]


def test_a_provider_that_is_away_is_a_page_that_says_so(told: Any, settings: Any) -> None:
    told()
    app = {**settings.IDENTITY_PROVIDER, "settings": {**settings.IDENTITY_PROVIDER["settings"]}}
    app["settings"]["server_url"] = "http://localhost:9"
    settings.SOCIALACCOUNT_PROVIDERS = provider_apps(app)
    answer = Client().post(LOGIN)
    assert answer.status_code == 503 and b"could not be reached" in answer.content


@pytest.mark.parametrize(
    ("more", "why"),
    [({"OIDC_CLIENT_SECRET": ""}, "OIDC_CLIENT_SECRET"), ({"OIDC_ROLE": "owner"}, "one of viewer")],
)
def test_half_a_provider_stops_the_server_with_the_variables_name(more: dict[str, str], why: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=why):
        identity_provider({"OIDC_ISSUER": "https://id.example.org", **PASSED, **more})
    assert identity_provider({}) == {}
