"""What happens to somebody whom the identity provider removes, or gives back. Each is atomic and audited.

Runs, experiments and results stay as they are, the queued and running ones too: they are the team's.
"""

from __future__ import annotations

from auditlog.models import LogEntry
from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.models import Session
from django.db import transaction
from django.utils import timezone

from webapp.accounts import invitations
from webapp.accounts.models import Membership, Role, Team, User
from webapp.api.models import ApiToken
from webapp.api.services import revoke

HAS = "may sign in"
ENDED = "ended by the identity provider"
BACK = "given back by the identity provider"


@transaction.atomic
def deactivate(user: User) -> None:
    """End all access of a person's at once: sign-in, sessions, the tokens that they made and so know, and
    their invitations. The last admin of a team goes too, which its log says.
    """
    is_new = _set_active(user, False)
    end_sessions(user)
    for token in ApiToken.objects.filter(created_by=user, revoked_at=None):
        revoke(token)
    for member in _memberships(user):
        invitations.end_those_of(member)
        if is_new:
            _note(member, HAS, ENDED)
            _note_missing_admin(member)


@transaction.atomic
def reactivate(user: User) -> None:
    """Let a person sign in again, with the roles that they had. Sessions and tokens stay ended."""
    if _set_active(user, True):
        end_sessions(user)  # one that began while the person was removed
        for member in _memberships(user):
            _note(member, ENDED, BACK)


def end_sessions(user: User) -> None:
    """Delete the person's sessions; whose a session is stands inside it alone, so all that last are read."""
    lasting = Session.objects.filter(expire_date__gt=timezone.now()).iterator()
    own = [one.pk for one in lasting if one.get_decoded().get(SESSION_KEY) == str(user.pk)]
    Session.objects.filter(pk__in=own).delete()


def _set_active(user: User, active: bool) -> bool:
    """Whether this changed anything."""
    had = User.objects.select_for_update().get(pk=user.pk).is_active
    user.is_active = active
    user.save(update_fields=["is_active"])
    return had is not active


def _memberships(user: User) -> list[Membership]:
    """In the order in which their teams are locked."""
    return list(user.memberships.select_related("team", "user").order_by("team_id"))


def _note(member: Membership, before: str, after: str) -> None:
    changes = {"access": [before, after]}
    LogEntry.objects.log_create(member, action=LogEntry.Action.UPDATE, changes=changes)


def _note_missing_admin(member: Membership) -> None:
    """Two last admins who go at once: the second looks when the first has gone."""
    team = Team.objects.select_for_update(no_key=True).get(pk=member.team_id)
    if member.role == Role.ADMIN and not team.active_admins().exists():
        changes = {"admins": [str(member.user), "none is left: the team is without an admin"]}
        LogEntry.objects.log_create(team, action=LogEntry.Action.UPDATE, changes=changes)
