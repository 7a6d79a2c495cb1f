"""Hosts tell what they have when they start, and that they live."""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from webapp.hosts.models import Host


def register(name: str, facts: dict[str, Any]) -> Host:
    """The host's row with what it has now. ``facts`` are columns of ``Host``."""
    return Host.objects.update_or_create(name=name, defaults={**facts, "heartbeat_at": timezone.now()})[0]


def heartbeat(host: Host, trouble: str = "") -> None:
    """The host lives; ``trouble`` says why it claims nothing now."""
    Host.objects.filter(pk=host.pk).update(heartbeat_at=timezone.now(), trouble=trouble[:200])
