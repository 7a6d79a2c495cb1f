"""Invitations: a signed link that lets somebody sign up into a team. Nothing is stored.

A link ends after a week, or as soon as the admin who made it is no longer an admin of the team.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from allauth.account.signals import user_signed_up
from django.core import signing
from django.http import HttpRequest

from webapp.accounts.models import Membership, Role, Team, User

SALT = "invitation to a team"
LASTS = timedelta(days=7)
SESSION_KEY = "invitation"


@dataclass(frozen=True)
class Invitation:
    """Primary keys of the team and of the admin who invites, and the role that is offered."""

    team: int
    by: int
    role: str


def token(team: Team, by: User, role: str) -> str:
    return signing.dumps(asdict(Invitation(team.pk, by.pk, role)), salt=SALT)


def read_invitation(text: str) -> Invitation | None:
    """The invitation behind a link, or ``None`` when forged, ended or taken back."""
    try:
        found = Invitation(**signing.loads(text, salt=SALT, max_age=LASTS))
    except signing.BadSignature:
        return None
    admins = Membership.objects.filter(team=found.team, user=found.by, role=Role.ADMIN)
    return found if admins.exists() else None


def remember(request: HttpRequest, text: str) -> None:
    """Keeps the link in the session while its bearer signs up."""
    request.session[SESSION_KEY] = text


def remembered_invitation(request: HttpRequest) -> Invitation | None:
    return read_invitation(request.session.get(SESSION_KEY, ""))


def accept(invitation: Invitation, user: User) -> Membership:
    """Joins the team; somebody who is in it already keeps the role they have."""
    member, _ = Membership.objects.get_or_create(
        team_id=invitation.team, user=user, defaults={"role": invitation.role}
    )
    return member


def _join_after_sign_up(request: HttpRequest, user: User, **kwargs: Any) -> None:
    invitation = remembered_invitation(request)
    if invitation is not None:
        accept(invitation, user)
        request.session.pop(SESSION_KEY, None)


def connect() -> None:
    user_signed_up.connect(_join_after_sign_up, dispatch_uid="join the team of the invitation")
