"""A report, all that was ever its text, and what its searches had found when somebody kept that."""

from __future__ import annotations

from django.db import models

from webapp.accounts.models import Project, User

#: Characters of a report's title and text.
LONGEST_TITLE, LONGEST_TEXT = 120, 60_000


class Report(models.Model):
    """A page of the team's; ``trashed_at`` says that somebody took it away."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="reports")
    title = models.CharField(max_length=LONGEST_TITLE)
    made_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
    made_at = models.DateTimeField(auto_now_add=True)
    trashed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return self.title

    def get_additional_data(self) -> dict[str, int]:
        """For the audit log."""
        return {"team": self.project.team_id}


class Revision(models.Model):
    """The text of a report from ``at`` on, until the next one: nothing that was written is lost."""

    report = models.ForeignKey(Report, on_delete=models.CASCADE, related_name="revisions")
    text = models.TextField(max_length=LONGEST_TEXT, blank=True)
    by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return self.text[:80]


class Frozen(models.Model):
    """What the search of a block had found at ``at``; ``key`` is the block's own text, as a digest."""

    report = models.ForeignKey(Report, on_delete=models.CASCADE, related_name="frozen")
    key = models.CharField(max_length=64)
    found = models.JSONField()
    by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["report", "key"], name="a_block_is_frozen_once")]

    def __str__(self) -> str:
        return self.key[:8]
