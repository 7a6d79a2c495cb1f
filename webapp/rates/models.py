"""What was asked of an experiment's rates. How far the search is, its runs say."""

from __future__ import annotations

from django.db import models

from experiments.core.rate_search import USUAL_DELAY, RateGoal
from webapp.accounts.models import User
from webapp.runs.models import Experiment


class RateStudy(models.Model):
    """The search for the highest rate of the ``policies`` of an experiment; of all where none is named.

    It is over where ``ended_at`` is set: every line has its answer, or somebody has stopped it.
    """

    experiment = models.OneToOneField(Experiment, on_delete=models.CASCADE, related_name="rate_study")
    policies = models.JSONField(default=list)
    attainment = models.FloatField(null=True)
    tbt_p99 = models.FloatField(null=True)
    delay_p50 = models.FloatField(default=USUAL_DELAY)
    created_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["created_at"], name="rate_going", condition=models.Q(ended_at=None)),
        ]

    def __str__(self) -> str:
        return f"the highest rate of {self.experiment}"

    def get_additional_data(self) -> dict[str, int]:
        """For the audit log: whose log an entry belongs to."""
        return {"team": self.experiment.project.team_id}

    @property
    def goal(self) -> RateGoal:
        return RateGoal(self.attainment, self.tbt_p99, self.delay_p50)
