"""Invitations: a link that lets one person into a team, and the list of those that still open it.

The link is signed and kept nowhere; what is kept says who made it, for which role, whether it was used and
whether it was taken back. It ends once it was used, after a week, when an admin takes it back, or as soon as
who made it is no longer an admin.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from allauth.account.signals import user_signed_up
from django.core import signing
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from webapp.accounts.models import Invitation, Membership, Team, User

SALT = "invitation to a team"
LASTS = timedelta(days=7)
SESSION_KEY = "invitation"


def token(team: Team, by: User, role: str) -> str:
    """The link's secret part; the invitation behind it is listed until it ends."""
    made = Invitation.objects.create(team=team, by=by, role=role)
    return signing.dumps(made.pk, salt=SALT)


def pending(team: Team) -> QuerySet[Invitation]:
    """The team's invitations that still open it, newest first."""
    admins = team.active_admins().values("user")
    unused = team.invitations.filter(revoked_at=None, joined=0)
    found = unused.filter(created_at__gt=timezone.now() - LASTS, by__in=admins)
    return found.select_related("by", "team").order_by("-created_at")


def revoke(invitation: Invitation) -> None:
    invitation.revoked_at = timezone.now()
    invitation.save(update_fields=["revoked_at"])


def read_invitation(text: str) -> Invitation | None:
    """The invitation behind a link, or ``None`` when forged, ended or taken back."""
    try:
        number = signing.loads(text, salt=SALT, max_age=LASTS)
    except signing.BadSignature:
        return None
    if not isinstance(number, int):  # a link of an earlier release
        return None
    found = Invitation.objects.filter(pk=number).first()
    return pending(found.team).filter(pk=found.pk).first() if found else None


def remember(request: HttpRequest, text: str) -> None:
    """Keeps the link in the session while its bearer signs up."""
    request.session[SESSION_KEY] = text


def remembered_invitation(request: HttpRequest) -> Invitation | None:
    return read_invitation(request.session.get(SESSION_KEY, ""))


@transaction.atomic
def accept(invitation: Invitation, user: User) -> Membership | None:
    """Joins the team and uses the invitation up; ``None`` where somebody else was quicker.

    Somebody who is in the team already keeps the role they have, and uses it up too: it would open the team
    again once they were removed.
    """
    unused = pending(invitation.team).select_for_update(of=("self",)).filter(pk=invitation.pk)
    if not unused.exists():
        return None
    Invitation.objects.filter(pk=invitation.pk).update(joined=1)
    return Membership.objects.get_or_create(
        team=invitation.team, user=user, defaults={"role": invitation.role}
    )[0]


def end_those_of(member: Membership) -> None:
    """Takes back what the member made for the team, so that a later admin role does not revive it."""
    made = Invitation.objects.filter(team=member.team, by=member.user, revoked_at=None)
    for invitation in made:
        revoke(invitation)


def _join_after_sign_up(request: HttpRequest, user: User, **kwargs: Any) -> None:
    invitation = remembered_invitation(request)
    if invitation is not None:
        accept(invitation, user)
        request.session.pop(SESSION_KEY, None)


def connect() -> None:
    user_signed_up.connect(_join_after_sign_up, dispatch_uid="join the team of the invitation")
