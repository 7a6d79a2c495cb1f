"""Verdicts on claims: what the runs of a claim gave, at which revision."""

from __future__ import annotations

from django.db import models

from webapp.runs.models import Experiment


class ClaimCheck(models.Model):
    """One computed verdict. Never typed in: made by ``experiments.core.paper.judge`` from an experiment's
    runs.
    """

    family = models.CharField(max_length=20)
    policy = models.CharField(max_length=80)
    claim = models.CharField(max_length=80)
    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, related_name="claim_checks")
    ours = models.FloatField(null=True, blank=True)
    verdict = models.CharField(max_length=20)
    reason = models.TextField(blank=True)
    checked_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [models.Index(fields=["family", "policy", "claim", "-checked_at"])]
