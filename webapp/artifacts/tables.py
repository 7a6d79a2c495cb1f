"""The list of artifacts as a table."""

from __future__ import annotations

from typing import Any

import django_tables2 as tables
from django.utils.html import format_html

from webapp import presentation
from webapp.artifacts.models import Artifact
from webapp.compare.listing import FigureColumn, Listing, MomentColumn
from webapp.navigation import project_url


class ArtifactTable(Listing):
    title = "Artifacts"
    name = tables.Column(verbose_name="Name")
    kind = tables.Column(verbose_name="Kind", empty_values=())
    format = tables.Column(verbose_name="Format")
    size = FigureColumn(accessor="blob__size", verbose_name="Size", unit="bytes")
    state = tables.Column(verbose_name="State")
    run_count = FigureColumn(verbose_name="Runs")
    created_by = tables.Column(accessor="created_by__username", verbose_name="By")
    created_at = MomentColumn(verbose_name="Added")

    class Meta:
        order_by = "-created_at"

    def render_name(self, value: str, record: Artifact) -> str:
        url = project_url(self.request.project, "artifacts:artifact", artifact=record.pk)
        return format_html('<a href="{}">{}</a>', url, value)

    def value_name(self, value: str) -> str:
        return value

    def render_kind(self, value: Any, record: Artifact) -> str:
        return record.kind or "–"

    def render_state(self, record: Artifact) -> Any:
        badge = presentation.state_badge(record.state)
        if not record.reason:
            return badge
        return format_html('{} <span class="small">{}</span>', badge, record.reason[:120])

    def value_state(self, record: Artifact) -> str:
        return record.state
