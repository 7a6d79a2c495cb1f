"""The list of artifacts as a table: sorting and paging are in the address."""

from __future__ import annotations

from typing import Any

import django_tables2 as tables
from django.utils.html import format_html

from webapp import presentation
from webapp.artifacts.models import Artifact
from webapp.navigation import project_url

RIGHT = {"th": {"class": "right"}, "td": {"class": "right"}}


class ArtifactTable(tables.Table):  # type: ignore[misc]
    name = tables.Column(verbose_name="Name")
    kind = tables.Column(verbose_name="Kind", empty_values=())
    format = tables.Column(verbose_name="Format")
    size = tables.Column(accessor="blob__size", verbose_name="Size", attrs=RIGHT)
    state = tables.Column(verbose_name="State")
    run_count = tables.Column(verbose_name="Runs", attrs=RIGHT)
    created_by = tables.Column(accessor="created_by__username", verbose_name="By")
    created_at = tables.Column(verbose_name="Added")

    class Meta:
        order_by = "-created_at"
        attrs = {"aria-label": "Artifacts"}

    def render_name(self, value: str, record: Artifact) -> str:
        url = project_url(self.request.project, "artifacts:artifact", artifact=record.pk)
        return format_html('<a href="{}">{}</a>', url, value)

    def render_kind(self, value: Any, record: Artifact) -> str:
        return record.kind or "–"

    def render_size(self, value: int) -> Any:
        return presentation.figure(value, "bytes")

    def render_state(self, record: Artifact) -> Any:
        badge = presentation.state_badge(record.state)
        if not record.reason:
            return badge
        return format_html('{} <span class="small">{}</span>', badge, record.reason[:120])

    def render_created_at(self, value: Any) -> Any:
        return presentation.when(value)

    # What an exported file has in place of links and badges.

    def value_name(self, value: str) -> str:
        return value

    def value_size(self, value: int) -> int:
        return value

    def value_state(self, record: Artifact) -> str:
        return record.state

    def value_created_at(self, value: Any) -> str:
        return str(value.isoformat(timespec="seconds"))
