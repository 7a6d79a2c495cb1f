"""Questions to the advisor with their answers, kept so that a link to one answers at once."""

from __future__ import annotations

from django.db import models

from webapp.accounts.models import Project, User
from webapp.artifacts.models import Artifact
from webapp.runs.models import Run


class Advice(models.Model):
    """What was asked about a model, and what was answered; ``run`` is the search, also while it lasts.

    ``key`` is the question's hash: a project asks the same only once. ``answer`` is the document of
    ``experiments.advisor.answer``, empty until it is there.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="advice")
    artifact = models.ForeignKey(Artifact, on_delete=models.CASCADE, related_name="advice")
    question = models.JSONField()
    key = models.CharField(max_length=64)
    run = models.ForeignKey(Run, on_delete=models.SET_NULL, null=True, blank=True, related_name="advice")
    answer = models.JSONField(default=dict, blank=True)
    answered_at = models.DateTimeField(null=True, blank=True)
    created_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created_at", "-id"]
        constraints = [models.UniqueConstraint(fields=["project", "key"], name="one_answer_per_question")]

    def __str__(self) -> str:
        return f"advice on {self.artifact}"

    def get_additional_data(self) -> dict[str, int]:
        """For the audit log: whose log an entry belongs to."""
        return {"team": self.project.team_id}
