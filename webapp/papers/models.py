"""Verdicts on claims: what the runs of a claim gave in a project, and what shipped with the release; and the
shipped results of suites.
"""

from __future__ import annotations

from django.db import models

from webapp.runs.models import Experiment


class ClaimCheck(models.Model):
    """One computed verdict. Never typed in: made by ``experiments.core.verdicts`` from an experiment's runs.

    ``low`` and ``high`` are the ends of our figure's interval where it was measured with noise.
    """

    family = models.CharField(max_length=20)
    policy = models.CharField(max_length=80)
    claim = models.CharField(max_length=80)
    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, related_name="claim_checks")
    ours = models.FloatField(null=True, blank=True)
    low = models.FloatField(null=True, blank=True)
    high = models.FloatField(null=True, blank=True)
    verdict = models.CharField(max_length=30)
    reason = models.TextField(blank=True)
    checked_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [models.Index(fields=["family", "policy", "claim", "-checked_at"])]


class ShippedVerdict(models.Model):
    """A verdict that came with the release (``docs/evidence/claims-*.json``), for every project.

    ``digest`` names the claim as it was then: one whose figure, runs or rule changed since has no verdict.
    """

    family = models.CharField(max_length=20)
    policy = models.CharField(max_length=80)
    claim = models.CharField(max_length=80)
    digest = models.CharField(max_length=64)
    ours = models.FloatField(null=True, blank=True)
    low = models.FloatField(null=True, blank=True)
    high = models.FloatField(null=True, blank=True)
    verdict = models.CharField(max_length=30)
    reason = models.TextField(blank=True)
    revision = models.CharField(max_length=64, blank=True)
    checked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["family", "policy", "claim"], name="one_shipped_verdict_a_claim")
        ]


class ShippedSuite(models.Model):
    """What a suite gave when the release was made (``docs/evidence/suites-*.json``), for every project.

    ``digest`` names the suite as it was then: results of other runs are not shown. ``left_out`` says why
    there are none; ``seconds`` is how long it took, ``runs`` has a row of evidence for each run.
    """

    suite = models.CharField(max_length=80, unique=True)
    digest = models.CharField(max_length=64)
    revision = models.CharField(max_length=64, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    seconds = models.FloatField(default=0.0)
    left_out = models.TextField(blank=True)
    host = models.JSONField(default=dict)
    versions = models.JSONField(default=dict)
    runs = models.JSONField(default=list)

    def __str__(self) -> str:
        return f"{self.suite} as shipped"
