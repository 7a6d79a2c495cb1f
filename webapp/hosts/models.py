"""Hosts: where runs are carried out, what they have, and how well the simulator predicts them."""

from __future__ import annotations

from datetime import timedelta

from django.apps import apps
from django.db import models
from django.db.models.functions import Coalesce
from django.utils import timezone

from webapp.accounts.models import User

#: A host that has not been heard of for this long is shown as away.
AWAY_AFTER = timedelta(seconds=60)


class HostQuerySet(models.QuerySet["Host"]):
    def with_load(self) -> HostQuerySet:
        """Adds ``busy``: how many of its slots carry out a run now."""
        runs = apps.get_model("runs", "Run").objects.filter(host=models.OuterRef("pk"), state="running")
        counted = runs.order_by().values("host").annotate(n=models.Count("pk")).values("n")
        return self.annotate(busy=Coalesce(models.Subquery(counted), 0))


class Host(models.Model):
    """A machine with a worker. ``device_kinds`` are what measured runs may ask for (``cpu``, ``cuda``)."""

    name = models.CharField(max_length=120, unique=True)
    device_kinds = models.JSONField(default=list)
    devices = models.JSONField(default=list, help_text="name, kind and memory of each device")
    cores = models.PositiveIntegerField(default=0)
    memory_bytes = models.BigIntegerField(default=0)
    versions = models.JSONField(default=dict)
    sandbox_tier = models.CharField(max_length=40, blank=True)
    slots = models.PositiveIntegerField(default=1)
    registered_at = models.DateTimeField(auto_now_add=True)
    heartbeat_at = models.DateTimeField(default=timezone.now)
    trouble = models.CharField(max_length=200, blank=True, help_text="why it claims nothing now")
    role = models.CharField(max_length=63, blank=True, help_text="database role of one that joined")

    objects = HostQuerySet.as_manager()

    def __str__(self) -> str:
        return self.name

    @property
    def is_up(self) -> bool:
        return timezone.now() - self.heartbeat_at < AWAY_AFTER


class HostInvitation(models.Model):
    """The one-time token of an address that a host joins with; only its hash is kept."""

    name = models.CharField(max_length=120)
    sha256 = models.CharField(max_length=64, unique=True)
    created_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return self.name

    @property
    def opens(self) -> bool:
        """Whether a host may join by it now: not where the administrator who made it was removed."""
        by = self.created_by
        is_known = by is None or by.is_active
        return is_known and self.used_at is None and self.expires_at >= timezone.now()


class HostAccess(models.Model):
    """What a joined host may use: its database role and user of the message broker bear the name of
    ``Host.role``; of its token and its broker's password the hashes are kept.
    """

    host = models.OneToOneField(Host, on_delete=models.CASCADE, related_name="access")
    token_sha256 = models.CharField(max_length=64, unique=True)
    broker_sha256 = models.CharField(max_length=64)
    joined_at = models.DateTimeField(auto_now_add=True)
    invited_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return self.host.name


class Validation(models.Model):
    """One evidence file of ``experiments.validate``: predicted against measured, cell by cell, on
    one device.
    """

    device = models.CharField(max_length=120, db_index=True)
    measured_at = models.DateTimeField()
    evidence = models.JSONField()
    sha256 = models.CharField(max_length=64, unique=True)
