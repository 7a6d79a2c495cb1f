"""Who changed what: teams, members, projects and what projects hold are written into the audit log."""

from __future__ import annotations

from auditlog.models import LogEntry
from auditlog.registry import auditlog
from django.apps import apps
from django.db.models import QuerySet

from webapp.accounts.models import Team

#: Model and the columns that change without anybody's doing.
AUDITED: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("accounts.Team", ()),
    ("accounts.Membership", ()),
    ("accounts.Project", ()),
)


def register() -> None:
    for label, ignored in AUDITED:
        auditlog.register(apps.get_model(label), exclude_fields=list(ignored))


def entries(team: Team) -> QuerySet[LogEntry]:
    """The team's entries, newest first, with who did it."""
    found: QuerySet[LogEntry] = LogEntry.objects.filter(additional_data__team=team.pk)
    return found.select_related("actor", "content_type")
