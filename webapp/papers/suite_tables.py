"""The suites as a list."""

from __future__ import annotations

from typing import Any

import django_tables2 as tables
from django.utils.html import format_html

from webapp import presentation
from webapp.compare.listing import FigureColumn, Listing, MomentColumn
from webapp.navigation import project_url
from webapp.papers.suites import SuiteState


class SuiteTable(Listing):
    title = "Tables"
    suite = tables.Column(accessor="suite__title", verbose_name="Table")
    family = tables.Column(verbose_name="Family")
    about = tables.Column(accessor="suite__about", verbose_name="What it shows", orderable=False)
    runs = FigureColumn(accessor="suite__runs", verbose_name="Runs", orderable=False)
    state = tables.Column(accessor="name", verbose_name="State", orderable=False)
    finished = MomentColumn(accessor="finished__created_at", verbose_name="Last finished")

    def render_suite(self, value: str, record: SuiteState) -> str:
        url = project_url(self.request.project, "tables:suite", suite=record.name)
        return format_html('<a href="{}"><strong>{}</strong></a>', url, value)

    def value_suite(self, value: str) -> str:
        return value

    def render_runs(self, value: Any) -> int:
        return len(value)

    def value_runs(self, value: Any) -> int:
        return len(value)

    def render_state(self, record: SuiteState) -> Any:
        return presentation.state_badge(self.value_state(record))

    def value_state(self, record: SuiteState) -> str:
        if record.running:
            return "running"
        return "ready" if record.finished else "not run"
