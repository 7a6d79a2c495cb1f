"""Schedules and nights as lists."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import django_tables2 as tables
from django.template.loader import render_to_string
from django.utils.html import format_html

from experiments.core.metrics import METRICS
from webapp import presentation
from webapp.compare.listing import FigureColumn, Listing, MetricColumn, MomentColumn
from webapp.compare.templatetags.comparison import change
from webapp.navigation import project_url
from webapp.nightly import calendar
from webapp.nightly.models import Schedule
from webapp.nightly.steps import Alert


@dataclass(frozen=True)
class ScheduleRow:
    """A schedule with its last nights, oldest first."""

    schedule: Schedule
    cells: tuple[calendar.Cell, ...]

    @property
    def at(self) -> str:
        return f"{self.schedule.days_in_words}, {self.schedule.hour:02}:{self.schedule.minute:02} UTC"

    @property
    def state(self) -> str:
        return "on" if self.schedule.enabled else "paused"

    @property
    def last(self) -> str:
        return self.cells[-1].state if self.cells else "none yet"


def schedule_rows(schedules: Iterable[Schedule], nights: int) -> list[ScheduleRow]:
    every = list(schedules)
    last = calendar.count_last_nights(every, nights)
    return [ScheduleRow(one, tuple(calendar.cells(last.get(one.pk, []))[::-1])) for one in every]


class ScheduleTable(Listing):
    title = "Nightly suites"
    suite = tables.Column(accessor="schedule__suite", verbose_name="Suite")
    at = tables.Column(verbose_name="When")
    state = tables.Column(verbose_name="State")
    by = tables.Column(
        accessor="schedule__created_by__username", verbose_name="By", default="somebody who left"
    )
    last = tables.Column(verbose_name="Last nights, newest right")

    def render_suite(self, value: str, record: ScheduleRow) -> str:
        url = project_url(self.request.project, "nightly:schedule", schedule=record.schedule.pk)
        return format_html('<a href="{}"><strong>{}</strong></a>', url, value)

    def value_suite(self, value: str) -> str:
        return value

    def render_last(self, record: ScheduleRow) -> str:
        return render_to_string("nightly/cells.html", {"cells": record.cells}, self.request)

    def value_last(self, value: str) -> str:
        return value


class AlertTable(Listing):
    """Figures of several metrics share a column here, so a file has their SI unit next to them."""

    title = "Alerts"
    since = MomentColumn(accessor="first_after__slot", verbose_name="Since")
    run = tables.Column(accessor="title", verbose_name="Run")
    metric = tables.Column(verbose_name="Figure")
    unit = tables.Column(accessor="metric", verbose_name="Unit", visible=False)
    before = MetricColumn(verbose_name="Before")
    after = MetricColumn(verbose_name="After")
    fraction = FigureColumn(verbose_name="Change", unit="fraction")
    suspects = tables.Column(verbose_name="Suspects", orderable=False, attrs={"td": {"class": "mono small"}})
    silent = FigureColumn(verbose_name="Nights without it")
    lasted = FigureColumn(verbose_name="Held for")

    class Meta:
        prefix = "alerts-"

    def render_run(self, value: str, record: Alert) -> str:
        url = project_url(self.request.project, "runs:run", run=record.first_after.run.pk)
        return format_html('<a href="{}">{}</a>', url, value)

    def value_run(self, value: str) -> str:
        return value

    def render_metric(self, value: str) -> str:
        return format_html("{} {}", presentation.metric_label(value), presentation.direction(value))

    def value_metric(self, value: str) -> str:
        return value

    def render_unit(self, value: str) -> str:
        return METRICS[value].unit

    def render_fraction(self, value: float, record: Alert) -> str:
        kind, words = {True: ("better", "better"), False: ("worse", "worse"), None: ("", "")}[record.better]
        return format_html('<span class="change {}" title="{}">{}</span>', kind, words, change(value))

    def value_fraction(self, value: float) -> float:
        return value

    def render_lasted(self, value: int) -> str:
        return f"{value} night{'s' if value != 1 else ''}"

    def value_lasted(self, value: int) -> int:
        return value


class NightTable(Listing):
    """One row for each night, also those that were skipped, with the cause."""

    title = "Nights"
    slot = MomentColumn(accessor="night__slot", verbose_name="Night")
    state = tables.Column(verbose_name="State")
    total = FigureColumn(verbose_name="Runs")
    bad = FigureColumn(verbose_name="Not succeeded")
    cause = tables.Column(accessor="night__skipped", verbose_name="Why skipped")

    class Meta:
        prefix = "nights-"
        order_by = "-slot"

    def render_cause(self, value: str) -> str:
        return presentation.with_local_times(value)

    def value_cause(self, value: str) -> str:
        return value

    def render_state(self, value: str, record: calendar.Cell) -> Any:
        badge = presentation.state_badge(value)
        if record.night.experiment_id is None:
            return badge
        url = project_url(self.request.project, "compare:experiment", experiment=record.night.experiment_id)
        return format_html('<a href="{}">{}</a>', url, badge)

    def value_state(self, value: str) -> str:
        return value
