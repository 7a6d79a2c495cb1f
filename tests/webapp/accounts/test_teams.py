"""Members come by invitation, roles are an admin's to give, and a team never loses its last admin."""

from __future__ import annotations

from io import StringIO
from json import loads

import pytest
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.test import Client

from tests.webapp.cast import Cast, signed_in
from webapp.accounts import invitations, services
from webapp.accounts.adapter import InvitedOnly
from webapp.accounts.models import Membership, Project, Role, User
from webapp.accounts.roles import allows
from webapp.api.services import make_token
from webapp.artifacts.models import Artifact
from webapp.artifacts.services import shown_name
from webapp.runs.forms import ExperimentForm


def test_each_role_may_do_what_the_lower_ones_may() -> None:
    assert [allows("member", need) for need in ("viewer", "member", "admin")] == [True, True, False]


def test_signing_up_needs_an_invitation(cast: Cast) -> None:
    account = {"username": "newt", "password1": "a long pass phrase", "password2": "a long pass phrase"}
    assert b"Closed" in Client().get("/accounts/signup/").content
    guest = Client()
    guest.post("/accounts/signup/", account)
    assert not User.objects.filter(username="newt").exists()

    link = f"/invitation/{invitations.token(cast.red, cast.ada, Role.VIEWER)}/"
    guest.get(link)
    guest.post("/accounts/signup/", account)
    assert Membership.objects.get(user__username="newt").role == "viewer"
    assert not invitations.pending(cast.red).exists()


def test_an_invitation_lets_one_person_in(cast: Cast) -> None:
    """The second to open it finds nothing, signed in or not; nor does the first, once removed."""
    sly, link = signed_in(cast.sly), f"/invitation/{invitations.token(cast.red, cast.ada, Role.VIEWER)}/"
    waiting = Client()
    assert waiting.get(link).status_code == 302
    assert sly.post(link).status_code == 302
    assert sly.get("/t/red/").status_code == 200
    late = User.objects.create_user("late")
    assert [signed_in(late).get(link).status_code, signed_in(late).post(link).status_code] == [404, 404]
    assert b"Closed" in waiting.get("/accounts/signup/").content

    signed_in(cast.ada).post(f"/t/red/members/{cast.red.memberships.get(user=cast.sly).pk}/remove")
    assert [sly.get(link).status_code, sly.post(link).status_code] == [404, 404]
    assert sly.get("/t/red/").status_code == 404


def test_removal_ends_the_links_that_a_member_opened_or_made(cast: Cast) -> None:
    """Max is in already when he opens one; a link of Vera's, once admin, does not come back with her role."""
    opened = f"/invitation/{invitations.token(cast.red, cast.ada, Role.VIEWER)}/"
    signed_in(cast.max).post(opened)
    vera = cast.red.memberships.get(user=cast.vera)
    services.set_role(vera, Role.ADMIN)
    made = invitations.token(cast.red, cast.vera, Role.ADMIN)
    services.remove_member(cast.red.memberships.get(user=cast.max))
    services.remove_member(vera)
    assert signed_in(cast.max).post(opened).status_code == 404
    Membership.objects.create(team=cast.red, user=cast.vera, role=Role.ADMIN)
    assert invitations.read_invitation(made) is None


def test_who_removes_somebody_is_told_of_the_tokens_they_know(cast: Cast) -> None:
    make_token(cast.red, cast.max, "laptop", Role.MEMBER)
    member = cast.red.memberships.get(user=cast.max)
    page = signed_in(cast.ada).post(f"/t/red/members/{member.pk}/remove", follow=True)
    assert "max made 1 token that still opens this team" in page.content.decode()


#: Nothing, several spaces, letters and signs that are drawn as nothing, and what no line of text has.
NO_NAMES = ("", "   ", "\u3000", "\u200b\u2060", "\u2800", "\u3164", "a\nb", "a\u202eb")


def test_a_name_of_blanks_is_refused_wherever_something_is_named(cast: Cast) -> None:
    ada = signed_in(cast.ada)
    for name in NO_NAMES:
        for page in ("/teams/new", "/t/red/projects/new", "/t/red/tokens/"):
            assert ada.post(page, {"name": name, "role": "member"}).status_code == 422, (page, name)
        begun = {"name": name, "size": 9, "fingerprint": "x"}
        assert ada.post(cast.url("artifacts/uploads"), begun).status_code == 422
        assert bool(name.strip()) == ("name" in ExperimentForm(cast.project, {"name": name}).errors)
        assert shown_name(name) in ("unnamed", "ab")
        with pytest.raises(ValidationError):
            InvitedOnly().clean_username(name)


def test_an_invitation_ends_when_its_admin_is_none_any_more(cast: Cast) -> None:
    token = invitations.token(cast.red, cast.ada, Role.ADMIN)
    assert invitations.read_invitation(token) is not None
    assert invitations.read_invitation(token[:-1] + "x") is None
    cast.red.memberships.filter(user=cast.max).update(role=Role.ADMIN)
    services.set_role(cast.red.memberships.get(user=cast.ada), Role.MEMBER)
    assert invitations.read_invitation(token) is None


def test_invitations_are_listed_and_taken_back(cast: Cast) -> None:
    """The page of the team lists those that still open it; a link that was taken back opens nothing."""
    token = invitations.token(cast.red, cast.ada, Role.VIEWER)
    (made,) = invitations.pending(cast.red)
    url = f"/t/red/members/invitations/{made.pk}/revoke"
    assert url in signed_in(cast.ada).get("/t/red/").content.decode()
    assert url not in signed_in(cast.max).get("/t/red/").content.decode()
    assert signed_in(cast.max).post(url).status_code == 403
    assert signed_in(cast.sly).post(url).status_code == 404
    signed_in(cast.ada).post(url)
    assert invitations.read_invitation(token) is None
    assert not invitations.pending(cast.red).exists()


def test_a_sign_up_says_which_team_invites(cast: Cast) -> None:
    guest = Client()
    guest.get(f"/invitation/{invitations.token(cast.red, cast.ada, Role.VIEWER)}/")
    page = guest.get("/accounts/signup/").content.decode()
    assert f"Join {cast.red}" in page
    assert f"{cast.ada} invites you" in page


def test_an_admin_makes_a_second_team_and_a_member_does_not(cast: Cast) -> None:
    assert 'href="/teams/new"' in signed_in(cast.ada).get("/t/red/").content.decode()
    assert signed_in(cast.max).get("/teams/new").status_code == 404
    assert signed_in(cast.max).post("/teams/new", {"name": "Mine"}).status_code == 404
    assert signed_in(cast.ada).post("/teams/new", {"name": ""}).status_code == 422
    page = signed_in(cast.ada).post("/teams/new", {"name": "Second"}, follow=True)
    assert "The team Second is made" in page.content.decode()
    assert Membership.objects.get(team__name="Second").role == "admin"


def test_opening_an_invitation_twice_does_not_change_a_role(cast: Cast) -> None:
    token = invitations.token(cast.red, cast.ada, Role.VIEWER)
    signed_in(cast.max).post(f"/invitation/{token}/")
    assert cast.red.memberships.get(user=cast.max).role == "member"


def test_the_last_admin_stays(cast: Cast) -> None:
    ada = cast.red.memberships.get(user=cast.ada)
    page = signed_in(cast.ada).post(f"/t/red/members/{ada.pk}/role", {"role": "viewer"}, follow=True)
    assert b"the last admin" in page.content
    assert cast.red.memberships.get(user=cast.ada).role == "admin"


def test_a_member_manages_nobody(cast: Cast) -> None:
    vera = cast.red.memberships.get(user=cast.vera)
    assert signed_in(cast.max).post(f"/t/red/members/{vera.pk}/role", {"role": "admin"}).status_code == 403
    assert signed_in(cast.max).post("/t/red/projects/new", {"name": "X"}).status_code == 403


def test_projects_of_one_name_get_addresses_of_their_own(cast: Cast) -> None:
    """``members`` would hide a page of the team, ``vision`` is taken."""
    assert services.create_project(cast.red, "Vision").slug == "vision-2"
    assert services.create_project(cast.red, "Members").slug == "members-2"


def test_a_project_in_the_trash_is_gone(cast: Cast) -> None:
    services.trash_project(cast.project)
    assert signed_in(cast.ada).get(cast.url()).status_code == 404


def test_changes_are_in_the_teams_audit_and_nobody_elses(cast: Cast) -> None:
    vera = cast.red.memberships.get(user=cast.vera)
    signed_in(cast.ada).post(f"/t/red/members/{vera.pk}/role", {"role": "member"})
    assert b"viewer \xe2\x86\x92 member" in signed_in(cast.ada).get("/t/red/").content
    assert b"vera" not in signed_in(cast.sly).get("/t/blue/").content


def test_home_leads_into_the_first_project(cast: Cast) -> None:
    assert signed_in(cast.vera).get("/").headers["Location"] == "/t/red/vision/"
    loner = User.objects.create_user("loner")
    assert b"Ask an admin" in signed_in(loner).get("/").content


def test_the_first_start_makes_an_account_and_something_to_look_at(db: None) -> None:
    first, second = StringIO(), StringIO()
    call_command("bootstrap_demo", stdout=first)
    call_command("bootstrap_demo", stdout=second)
    login = loads(first.getvalue())
    assert Client().login(**login) or User.objects.get(username=login["username"]).check_password(
        login["password"]
    )
    assert second.getvalue().strip() == "{}"
    counts = [experiment.runs.count() for experiment in Project.objects.get().experiments.all()]
    assert len(counts) == 2
    assert min(counts) > 4
    assert set(Artifact.objects.values_list("source", flat=True)) == {"sample", "zoo"}


def test_sign_in_pages_open_and_those_that_would_send_mail_do_not_exist(cast: Cast) -> None:
    nobody, ada = Client(), signed_in(cast.ada)
    assert nobody.get("/accounts/login/").status_code == 200
    opened = [ada.get(f"/accounts/{page}/").status_code for page in ("logout", "password/change", "2fa")]
    assert opened == [200, 200, 200]
    assert [nobody.get(f"/accounts/{page}/").status_code for page in ("password/reset", "email")] == [
        404,
        404,
    ]


def test_a_wrong_password_is_said_and_the_name_is_kept(cast: Cast) -> None:
    page = Client().post("/accounts/login/", {"login": "ada", "password": "no"})
    assert b"not correct" in page.content
    assert b'value="ada"' in page.content
