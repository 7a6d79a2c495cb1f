"""Users, teams, memberships and projects. A team sees its own projects and nothing of any other team."""

from __future__ import annotations

from django.contrib.auth.models import AbstractUser
from django.db import models


class User(AbstractUser):
    """A person. Signs in with name and password (and a second factor where set up)."""


class Team(models.Model):
    name = models.CharField(max_length=80)
    slug = models.SlugField(max_length=80, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    members = models.ManyToManyField(User, through="Membership", related_name="teams")

    def __str__(self) -> str:
        return self.name

    def active_admins(self) -> models.QuerySet[Membership]:
        """Those who can manage the team: an admin whom the identity provider removed cannot."""
        return self.memberships.filter(role=Role.ADMIN, user__is_active=True)

    def get_additional_data(self) -> dict[str, int]:
        """For the audit log: whose log an entry belongs to."""
        return {"team": self.pk}


class Role(models.TextChoices):
    VIEWER = "viewer", "viewer: sees everything of the team"
    MEMBER = "member", "member: also uploads and runs"
    ADMIN = "admin", "admin: also manages members, tokens and projects"


class Membership(models.Model):
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=10, choices=Role, default=Role.MEMBER)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["team", "user"], name="one_membership_per_team_and_user")
        ]

    def __str__(self) -> str:
        return f"{self.user} in {self.team}"

    def get_additional_data(self) -> dict[str, int]:
        return {"team": self.team_id}


class Invitation(models.Model):
    """A link into a team that an admin made; who opens it first while it lasts joins with its role."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="invitations")
    by = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    role = models.CharField(max_length=10, choices=Role)
    created_at = models.DateTimeField(auto_now_add=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    joined = models.PositiveIntegerField(default=0, help_text="how many joined by it")

    def __str__(self) -> str:
        return f"invitation into {self.team} as {self.role}"

    def get_additional_data(self) -> dict[str, int]:
        return {"team": self.team_id}


class ProjectQuerySet(models.QuerySet["Project"]):
    def visible_to(self, user: User) -> ProjectQuerySet:
        """The projects of the user's teams that are not in the trash."""
        return self.filter(team__memberships__user=user, trashed_at=None)


class Project(models.Model):
    """What artifacts, experiments and schedules belong to; who may see it is decided by its team."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="projects")
    name = models.CharField(max_length=80)
    slug = models.SlugField(max_length=80)
    description = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    trashed_at = models.DateTimeField(null=True, blank=True)
    keep_runs_days = models.PositiveIntegerField(
        null=True, blank=True, help_text="runs that ended longer ago go into the trash; none: they stay"
    )

    objects = ProjectQuerySet.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "slug"], name="one_slug_per_team")]

    def __str__(self) -> str:
        return self.name

    def get_additional_data(self) -> dict[str, int]:
        return {"team": self.team_id}


class Deletion(models.Model):
    """What is being deleted for good, some runs at a time, by its kind and key in the team's trash."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="deletions")
    kind = models.CharField(max_length=20)
    key = models.CharField(max_length=40)
    runs = models.PositiveIntegerField(help_text="how many it had when its deletion began")
    by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
    began_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["kind", "key"], name="one_deletion_of_a_thing")]

    def __str__(self) -> str:
        return f"deletion of {self.kind} {self.key}"
