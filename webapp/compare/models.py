"""Runs that are compared and are too many to be named one by one in every link of a page."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models

from webapp.accounts.models import Project


class Selection(models.Model):
    """Runs under a short ``key``, their digest: the same runs have the same address for everybody."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="selections")
    key = models.CharField(max_length=22)
    runs = ArrayField(models.UUIDField())
    made_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "key"], name="one_selection_of_a_key")]

    def __str__(self) -> str:
        return f"{len(self.runs)} runs"
