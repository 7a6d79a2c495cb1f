"""Changes of teams, members and projects. Each is atomic and written into the audit log by its models."""

from __future__ import annotations

from dataclasses import dataclass

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone
from django.utils.text import slugify

from webapp.accounts import invitations
from webapp.accounts.models import Membership, Project, Role, Team, User

#: Words that are pages of a team, so that no project may be called so in an address.
RESERVED = frozenset({"members", "projects", "tokens", "audit", "settings", "new", "trash"})


@dataclass(frozen=True)
class Start:
    """The first account of a fresh installation and where it lands."""

    user: User
    project: Project


def _free_slug(name: str, taken: set[str], fallback: str) -> str:
    """A slug of ``name`` that is not taken: ``vision``, ``vision-2``, ``vision-3`` ..."""
    base = slugify(name)[:70] or fallback
    slug, number = base, 2
    while slug in taken:
        slug, number = f"{base}-{number}", number + 1
    return slug


def may_make_teams(user: User) -> bool:
    return user.is_superuser or Membership.objects.filter(user=user, role=Role.ADMIN).exists()


@transaction.atomic
def create_team(name: str, admin: User) -> Team:
    taken = set(Team.objects.values_list("slug", flat=True))
    team = Team.objects.create(name=name, slug=_free_slug(name, taken, "team"))
    Membership.objects.create(team=team, user=admin, role=Role.ADMIN)
    return team


@transaction.atomic
def create_project(team: Team, name: str, description: str = "") -> Project:
    taken = set(team.projects.values_list("slug", flat=True)) | RESERVED
    slug = _free_slug(name, taken, "project")
    return Project.objects.create(team=team, name=name, slug=slug, description=description)


@transaction.atomic
def trash_project(project: Project) -> None:
    """Takes the project out of sight; nothing is deleted."""
    project.trashed_at = timezone.now()
    project.save(update_fields=["trashed_at"])


@transaction.atomic
def set_role(member: Membership, role: str) -> None:
    """Gives a member another role. The last admin stays one, else nobody could manage the team."""
    if role != Role.ADMIN:
        _keep_an_admin(member)
    member.role = role
    member.save(update_fields=["role"])


@transaction.atomic
def remove_member(member: Membership) -> None:
    """Takes the member out of the team, with the invitations that they made; open streams of events end by
    themselves (``access.still_enters``).
    """
    _keep_an_admin(member)
    invitations.end_those_of(member)
    member.delete()


def _keep_an_admin(member: Membership) -> None:
    admins = member.team.active_admins().select_for_update(of=("self",))
    if list(admins.values_list("pk", flat=True)) == [member.pk]:
        raise ValidationError(
            f"{member.user} is the last admin of {member.team}: make somebody else admin first"
        )


@transaction.atomic
def start(username: str, password: str, team: str, project: str) -> Start:
    """The first admin with a team and a project of their own."""
    user = User.objects.create_superuser(username=username, password=password)
    return Start(user, create_project(create_team(team, user), project))
