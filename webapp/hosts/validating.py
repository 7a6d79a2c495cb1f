"""Validation of a host's devices when somebody asks for it: predicted against measured, carried out there."""

from __future__ import annotations

import hashlib
from typing import Any

from django.db import transaction
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from experiments.core import jsonio
from experiments.core.errors import BadInput
from webapp.accounts.models import Project, User
from webapp.hosts.models import Host, Validation
from webapp.runs import queue, turns
from webapp.runs.models import Run


@transaction.atomic
def ask(project: Project, user: User, host: Host, kind: str) -> Run:
    """The run that validates the host's devices of ``kind``; the one before it while that has not ended."""
    known = Run.objects.filter(kind=Run.Kind.VALIDATE, needs=kind, spec__host=host.name)
    living = known.exclude(state__in=Run.FINAL).first()
    if living is not None:
        return living
    run = Run(
        project=project,
        owner=user,
        kind=Run.Kind.VALIDATE,
        mode="measured",
        needs=kind,
        hardware=f"{kind} of {host}"[:120],
        spec={turns.HOST: host.name},
    )
    turns.enqueue([run])
    queue.wake()
    return run


def last_runs() -> dict[tuple[str, str], Run]:
    """By host and kind of device: the run that was asked for last."""
    asked = Run.objects.filter(kind=Run.Kind.VALIDATE).order_by("queued_at")
    return {(run.spec[turns.HOST], run.needs): run for run in asked.defer("log_tail")}


def keep_evidence(content: bytes, name: str) -> bool:
    """Store what ``experiments.validate`` wrote; False where it is there already. Raises ``BadInput``."""
    evidence = jsonio.loads(content, name)
    device, moment = _heading(evidence, name)
    measured_at = parse_datetime(str(moment))
    if measured_at is None:
        raise BadInput(f"started {moment!r} is not a time", name, "a time in ISO 8601")
    if timezone.is_naive(measured_at):
        measured_at = timezone.make_aware(measured_at)
    _, made = Validation.objects.get_or_create(
        sha256=hashlib.sha256(content).hexdigest(),
        defaults={"device": str(device)[:120], "measured_at": measured_at, "evidence": evidence},
    )
    return made


def _heading(evidence: Any, name: str) -> tuple[Any, Any]:
    try:
        return evidence["device"], evidence["started"]
    except (KeyError, TypeError):
        raise BadInput("device and started are missing", name, "evidence of experiments.validate") from None
