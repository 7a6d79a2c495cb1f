"""Tokens of the REST API, shown once and stored hashed, and the answers that are given again."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from webapp.accounts.models import Role, Team, User


class ApiToken(models.Model):
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=80)
    role = models.CharField(max_length=10, choices=Role, default=Role.MEMBER)
    prefix = models.CharField(max_length=12, db_index=True)
    sha256 = models.CharField(max_length=64, unique=True)
    created_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return self.name

    @property
    def has_expired(self) -> bool:
        return self.expires_at is not None and self.expires_at <= timezone.now()

    @property
    def opens(self) -> bool:
        """Whether it lets anybody in now: not where who made it, and so knows it, was removed."""
        by = self.created_by
        return self.revoked_at is None and not self.has_expired and (by is None or by.is_active)

    def get_additional_data(self) -> dict[str, int]:
        """For the audit log: whose log an entry belongs to."""
        return {"team": self.team_id}


class KeptAnswer(models.Model):
    """What a request with an idempotency key was answered: the same request again makes nothing new."""

    token = models.ForeignKey(ApiToken, on_delete=models.CASCADE, related_name="kept_answers")
    key = models.CharField(max_length=255)
    request = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField(null=True)
    answer = models.TextField(default="")
    made_at = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["token", "key"], name="one_answer_for_a_key")]

    def __str__(self) -> str:
        return self.key
