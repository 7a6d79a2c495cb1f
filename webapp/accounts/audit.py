"""Who changed what: teams, members, projects and what projects hold are written into the audit log."""

from __future__ import annotations

from auditlog.models import LogEntry
from auditlog.registry import auditlog
from django.apps import apps
from django.db.models import QuerySet

from webapp.accounts.models import Team

#: Model and the columns that people change; what workers write is in the runs themselves.
AUDITED: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("accounts.Team", ("name", "slug")),
    ("accounts.Membership", ("team", "user", "role")),
    ("accounts.Invitation", ("role", "revoked_at")),
    ("accounts.Project", ("name", "slug", "description", "trashed_at", "keep_runs_days")),
    ("artifacts.Artifact", ("name", "trashed_at")),
    ("runs.Experiment", ("name", "trashed_at")),
    ("runs.TrashedRuns", ("why", "count")),
    ("runs.Preset", ("name", "address")),
    ("rates.RateStudy", ("policies", "attainment", "tbt_p99", "ended_at")),
    ("nightly.Schedule", ("suite", "days", "hour", "minute", "enabled")),
    ("nightly.Change", ("state", "assignee")),
    ("nightly.Channel", ("name", "kind", "address", "secret", "quiet_from", "quiet_to")),
    ("reports.Report", ("title", "trashed_at")),
    ("api.ApiToken", ("name", "role", "revoked_at")),
)
#: Of these the log says that they changed, and not what they are.
HIDDEN = {"nightly.Channel": ("address", "secret")}


def register() -> None:
    for label, columns in AUDITED:
        hidden = list(HIDDEN.get(label, ()))
        auditlog.register(
            apps.get_model(label),
            include_fields=list(columns),
            mask_fields=hidden,
            mask_callable=f"{__name__}.{hide.__name__}",
        )


def hide(value: str) -> str:
    return "hidden" if value else ""


def entries(team: Team) -> QuerySet[LogEntry]:
    """The team's entries, newest first, with who did it."""
    found: QuerySet[LogEntry] = LogEntry.objects.filter(additional_data__team=team.pk)
    return found.select_related("actor", "content_type")
