"""The team's trash, storage and audit log as lists."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import django_tables2 as tables
from auditlog.models import LogEntry
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html

from webapp import presentation
from webapp.accounts.models import Role
from webapp.accounts.trash import Storage, Trashed
from webapp.compare.listing import FigureColumn, Listing, MomentColumn
from webapp.navigation import project_url


class TrashTable(Listing):
    title = "Trash"
    kind = tables.Column(verbose_name="What")
    name = tables.Column(verbose_name="Name")
    project = tables.Column(verbose_name="Project")
    size = FigureColumn(verbose_name="Takes", unit="bytes")
    trashed_at = MomentColumn(verbose_name="Put there")
    gone_at = MomentColumn(verbose_name="Deleted for good")
    act = tables.Column(
        accessor="key", verbose_name="Take back or delete", orderable=False, exclude_from_export=True
    )

    class Meta:
        prefix = "trash-"

    def render_gone_at(self, value: datetime, record: Trashed) -> str:
        """When, or how far that is."""
        if record.gone is None:
            return presentation.when(value)
        return render_to_string("accounts/being_deleted.html", {"thing": record}, self.request)

    def render_act(self, record: Trashed) -> str:
        if record.gone is not None:
            return ""
        where = {"team": self.request.team.slug}
        context = {"thing": record, "role": self.request.role}
        actions = {"restore": reverse("restore", kwargs=where), "delete": reverse("delete", kwargs=where)}
        return render_to_string("accounts/trash_actions.html", context | actions, self.request)


class StorageTable(Listing):
    title = "Storage by project"
    name = tables.Column(verbose_name="Project")
    artifacts = FigureColumn(verbose_name="Artifacts")
    file_bytes = FigureColumn(verbose_name="Files", unit="bytes")
    trash_bytes = FigureColumn(verbose_name="Of it in the trash", unit="bytes")
    unfinished_bytes = FigureColumn(verbose_name="Unfinished uploads", unit="bytes")
    experiments = FigureColumn(verbose_name="Experiments")
    runs = FigureColumn(verbose_name="Runs")
    keeps = tables.Column(
        accessor="project__keep_runs_days", verbose_name="Keeps runs", empty_values=(), orderable=False
    )

    class Meta:
        prefix = "storage-"
        order_by = "-file_bytes"

    def render_name(self, value: str, record: Storage) -> str:
        if record.project.trashed_at:
            return value
        return format_html('<a href="{}">{}</a>', project_url(record.project, "project"), value)

    def value_name(self, value: str) -> str:
        return value

    def render_keeps(self, value: int | None, record: Storage) -> str:
        """For how long, which admins of the team say."""
        if self.request.role != Role.ADMIN or record.project.trashed_at:
            return self.value_keeps(value)
        action = reverse("keep_runs", kwargs={"team": self.request.team.slug, "project": record.project.slug})
        context = {"days": value, "project": record.project, "action": action}
        return render_to_string("accounts/keep_runs.html", context, self.request)

    def value_keeps(self, value: int | None) -> str:
        return f"{value} days" if value else "for good"


class AuditTable(Listing):
    title = "Who changed what"
    search_fields = ("actor__username", "object_repr", "content_type__model")
    timestamp = MomentColumn(verbose_name="When")
    actor = tables.Column(
        accessor="actor__username", verbose_name="Who", empty_values=(), default="the system"
    )
    action = tables.Column(verbose_name="Did")
    content_type = tables.Column(accessor="content_type__model", verbose_name="What")
    object_repr = tables.Column(verbose_name="Name")
    changes = tables.Column(accessor="changes_str", verbose_name="Changes", orderable=False)

    class Meta:
        prefix = "audit-"
        order_by = "-timestamp"

    def render_actor(self, value: str | None) -> str:
        return value or "the system"

    def render_action(self, record: LogEntry) -> str:
        return str(record.get_action_display())

    def render_content_type(self, record: LogEntry) -> str:
        return str(record.content_type.name)

    def render_changes(self, value: Any, record: LogEntry) -> str:
        """Of what was made or deleted every column changed, which says nothing."""
        return str(value)[:160] if record.action == LogEntry.Action.UPDATE else ""
