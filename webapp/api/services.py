"""Changes made over the API: tokens, and outcomes that were computed elsewhere."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from experiments.core.dashboard import dashboard_status
from experiments.core.spec import Outcome
from webapp.accounts.models import Project, Team, User
from webapp.api.models import ApiToken
from webapp.api.tokens import PREFIX_LENGTH, digest, new_secret
from webapp.artifacts.models import Artifact
from webapp.runs.lifecycle import STATES, store_outcome
from webapp.runs.models import Run
from webapp.runs.services import hardware_label


@transaction.atomic
def make_token(team: Team, user: User, name: str, role: str, days: int | None = None) -> tuple[ApiToken, str]:
    """The token and its secret, which is shown once and kept nowhere. After ``days`` it opens nothing."""
    secret = new_secret()
    made = ApiToken.objects.create(
        team=team,
        name=name,
        role=role,
        created_by=user,
        prefix=secret[:PREFIX_LENGTH],
        sha256=digest(secret),
        expires_at=None if days is None else timezone.now() + timedelta(days=days),
    )
    return made, secret


@transaction.atomic
def revoke(token: ApiToken) -> None:
    if token.revoked_at is None:
        token.revoked_at = timezone.now()
        token.save(update_fields=["revoked_at"])


@transaction.atomic
def import_outcome(project: Project, user: User | None, outcome: Outcome) -> tuple[Run, bool]:
    """Stores an outcome as a run that has ended, and whether it is new: the same one twice is one run."""
    Project.objects.select_for_update().get(pk=project.pk)
    had = Run.objects.filter(
        project=project, spec_id=outcome.spec_id, document__outcome=outcome.to_json()
    ).first()
    if had is not None:
        return had, False
    run = Run.objects.create(**_run_columns(project, user, outcome))
    store_outcome(run, outcome)
    return run, True


def _run_columns(project: Project, user: User | None, outcome: Outcome) -> dict[str, Any]:
    """The columns of the run."""
    spec, now = outcome.spec, timezone.now()
    sha256 = outcome.provenance.get("workload_sha256")
    workload = (
        Artifact.objects.of(project).filter(blob_id=sha256).first() if isinstance(sha256, str) else None
    )
    return {
        "project": project,
        "owner": user,
        "artifact": workload,
        "spec": spec,
        "spec_id": outcome.spec_id,
        "family": spec["family"],
        "policy": spec["policy"][:80],
        "hardware": hardware_label(spec["hardware"]),
        "mode": spec.get("mode", "simulated"),
        "seed": spec.get("seed", 0),
        "state": STATES[outcome.status],
        "outcome_status": outcome.status,
        "dashboard_status": dashboard_status(outcome.provenance),
        "reason": outcome.reason or "",
        "progress": 1.0,
        "progress_step": "imported",
        "finished_at": now,
    }
