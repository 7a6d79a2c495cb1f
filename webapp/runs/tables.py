"""Experiments and runs as lists."""

from __future__ import annotations

from typing import Any

import django_tables2 as tables
from django.utils.html import format_html, format_html_join

from webapp import presentation
from webapp.compare.listing import FigureColumn, Listing, MomentColumn
from webapp.navigation import project_url
from webapp.runs.models import Experiment, Run


class ExperimentTable(Listing):
    """Rows with the counts of ``with_counts``."""

    title = "Experiments"
    search_fields = ("name",)
    name = tables.Column(verbose_name="Experiment")
    state = tables.Column(verbose_name="State", empty_values=(), orderable=False)
    succeeded = FigureColumn(verbose_name="Succeeded")
    total = FigureColumn(verbose_name="Runs")
    created_by = tables.Column(accessor="created_by__username", verbose_name="By", default="the set-up")
    created_at = MomentColumn(verbose_name="Started")

    class Meta:
        order_by = "-created_at"

    def render_name(self, value: str, record: Experiment) -> str:
        url = project_url(self.request.project, "runs:experiment", experiment=record.pk)
        return format_html('<a href="{}">{}</a>', url, presentation.with_local_times(value))

    def value_name(self, value: str) -> str:
        return value

    def render_state(self, record: Any) -> str:
        badges = ((presentation.state_badge(state, words),) for state, words in record.states_in_words)
        return format_html('<span class="row">{}</span>', format_html_join(" ", "{}", badges))

    def value_state(self, record: Any) -> str:
        return ", ".join(words for _, words in record.states_in_words)


class RunTable(Listing):
    """Any runs of a project, with their experiments selected."""

    title = "Runs"
    search_fields = ("policy", "hardware", "state", "experiment__name", "artifact__name")
    read_for_file = (
        *("policy", "kind", "mode", "hardware", "state", "seed", "queued_at", "finished_at", "reason"),
        *("experiment__name", "artifact__name", "host__name"),
    )
    policy = tables.Column(verbose_name="Run", empty_values=())
    workload = tables.Column(accessor="artifact__name", verbose_name="Workload")
    mode = tables.Column(verbose_name="Mode")
    hardware = tables.Column(verbose_name="Hardware")
    state = tables.Column(verbose_name="State")
    experiment = tables.Column(accessor="experiment__name", verbose_name="Experiment")
    host = tables.Column(accessor="host__name", verbose_name="Host")
    seed = FigureColumn(verbose_name="Seed")
    queued_at = MomentColumn(verbose_name="Queued")
    finished_at = MomentColumn(verbose_name="Ended")
    reason = tables.Column(verbose_name="Cause")

    class Meta:
        order_by = "-queued_at"

    def render_policy(self, record: Run) -> str:
        url = project_url(self.request.project, "runs:run", run=record.pk)
        return format_html('<a href="{}">{}</a>', url, self.value_policy(record))

    def value_policy(self, record: Run) -> str:
        return record.policy or record.get_kind_display()

    def render_mode(self, value: str, record: Run) -> Any:
        return presentation.mode_badge(self.request, value, record.family, record.hardware)

    def value_mode(self, value: str) -> str:
        return value

    def render_state(self, record: Run) -> Any:
        return presentation.state_badge(self.value_state(record))

    def value_state(self, record: Run) -> str:
        return record.state

    def render_experiment(self, value: str, record: Run) -> str:
        url = project_url(self.request.project, "runs:experiment", experiment=record.experiment_id)
        return format_html('<a href="{}">{}</a>', url, value)

    def value_experiment(self, value: str) -> str:
        return value

    def render_reason(self, value: str) -> str:
        return value[:120]

    def value_reason(self, value: str) -> str:
        return value
