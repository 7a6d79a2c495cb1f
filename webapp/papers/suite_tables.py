"""The suites as a list."""

from __future__ import annotations

from typing import Any

import django_tables2 as tables
from django.utils.html import format_html

from experiments.core.units import human
from webapp import presentation
from webapp.compare.listing import FigureColumn, Listing, MomentColumn
from webapp.navigation import project_url
from webapp.papers.models import ShippedSuite
from webapp.papers.suites import SuiteState, command_of
from webapp.papers.tables import WIDE, mode_badges

#: Figures that a phone leaves out.
WIDE_RIGHT = {"th": {"class": "wide right"}, "td": {"class": "wide right"}}


class SuiteTable(Listing):
    title = "Tables"
    suite = tables.Column(accessor="suite__title", verbose_name="Table")
    family = tables.Column(verbose_name="Family", attrs=WIDE)
    about = tables.Column(
        accessor="suite__about", verbose_name="What it shows", orderable=False, visible=False
    )
    modes = tables.Column(accessor="suite__modes", verbose_name="Is", orderable=False, attrs=WIDE)
    runs = FigureColumn(accessor="suite__runs", verbose_name="Runs", orderable=False, attrs=WIDE_RIGHT)
    release = tables.Column(verbose_name="As shipped", orderable=False, empty_values=())
    state = tables.Column(accessor="name", verbose_name="In this project", orderable=False, attrs=WIDE)
    finished = MomentColumn(accessor="finished__created_at", verbose_name="Last finished", attrs=WIDE)

    def render_suite(self, value: str, record: SuiteState) -> str:
        url = project_url(self.request.project, "tables:suite", suite=record.name)
        return format_html('<a href="{}" title="{}"><strong>{}</strong></a>', url, record.suite.about, value)

    def value_suite(self, value: str) -> str:
        return value

    def render_runs(self, value: Any) -> int:
        return len(value)

    def value_runs(self, value: Any) -> int:
        return len(value)

    def render_modes(self, value: tuple[str, ...]) -> str:
        return mode_badges(self.request, value)

    def value_modes(self, value: tuple[str, ...]) -> str:
        return ", ".join(value)

    def render_release(self, value: ShippedSuite | None, record: SuiteState) -> str:
        one = record.shipped
        if one is None:
            why, command = _tell(value), command_of(record.suite)
            return format_html('<span class="soft">{}</span><br><code class="small">{}</code>', why, command)
        words = format_html("revision {}, {}", one.revision[:12], presentation.when(one.ended_at))
        seconds = presentation.figure(one.seconds, "s")
        return format_html("{} {}<br><span class='soft small'>{}</span>", OK, seconds, words)

    def value_release(self, value: ShippedSuite | None) -> str:
        return _tell(value)

    def render_state(self, record: SuiteState) -> Any:
        return presentation.state_badge(self.value_state(record))

    def value_state(self, record: SuiteState) -> str:
        if record.running:
            return "running"
        return "ready" if record.finished else "not run"


#: The sign of what is there.
OK = presentation.STATE_MARKS["ok"]


def _tell(release: ShippedSuite | None) -> str:
    """``13.5 s, revision 610962807e24``, or why nothing shipped."""
    if release is None:
        return "not shipped: changed since the release"
    if release.left_out:
        return f"not shipped: {release.left_out}"
    return f"{human(release.seconds, 's')}, revision {release.revision[:12]}"
