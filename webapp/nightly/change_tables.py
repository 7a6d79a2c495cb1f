"""Changes as a list."""

from __future__ import annotations

from typing import Any

import django_tables2 as tables
from django.utils.html import format_html

from webapp import presentation
from webapp.compare.listing import FigureColumn, Listing, MetricColumn, MomentColumn
from webapp.compare.templatetags.comparison import change
from webapp.navigation import project_url
from webapp.nightly.models import Change


class ChangeTable(Listing):
    title = "Changes"
    search_fields = ("title", "metric", "suspects", "state", "assignee__username", "schedule__suite")
    since = MomentColumn(accessor="slot", verbose_name="Since")
    figure = tables.Column(accessor="metric", verbose_name="Figure")
    title_of = tables.Column(accessor="title", verbose_name="Run")
    suite = tables.Column(accessor="schedule__suite", verbose_name="Suite")
    before = MetricColumn(verbose_name="Before")
    after = MetricColumn(verbose_name="After")
    fraction = FigureColumn(verbose_name="Change", unit="fraction", orderable=False)
    state = tables.Column(verbose_name="State")
    seconded = tables.Column(verbose_name="Otava", visible=False)
    assignee = tables.Column(accessor="assignee__username", verbose_name="With", default="nobody")
    suspects = tables.Column(verbose_name="Suspects", orderable=False, attrs={"td": {"class": "mono small"}})

    def render_figure(self, value: str, record: Change) -> Any:
        url = project_url(self.request.project, "nightly:change", change=record.pk)
        return format_html('<a href="{}">{}</a>', url, presentation.metric_label(value))

    def value_figure(self, value: str) -> str:
        return value

    def render_fraction(self, value: float, record: Change) -> Any:
        kind = {True: "better", False: "worse", None: ""}[record.better]
        return format_html('<span class="change {}" title="{}">{}</span>', kind, kind, change(value))

    def value_fraction(self, value: float) -> float:
        return value

    def render_state(self, record: Change) -> str:
        return str(record.get_state_display())

    def value_state(self, record: Change) -> str:
        return str(record.state)

    def render_seconded(self, value: bool) -> str:
        return "sees it" if value else "sees none"

    def value_seconded(self, value: bool) -> bool:
        return value
