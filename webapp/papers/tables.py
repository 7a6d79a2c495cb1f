"""The catalogue and a system's claims as tables: on the page and exported."""

from __future__ import annotations

from typing import Any

import django_tables2 as tables
from django.utils.html import format_html, format_html_join

from webapp import presentation
from webapp.compare.export import Column, Table
from webapp.navigation import project_url
from webapp.papers.catalogue import System

RIGHT = {"th": {"class": "right"}, "td": {"class": "right"}}


class SystemTable(tables.Table):  # type: ignore[misc]
    name = tables.Column(verbose_name="System")
    family = tables.Column(verbose_name="Family")
    venue = tables.Column(accessor="paper__venue", verbose_name="Venue")
    year = tables.Column(accessor="paper__year", verbose_name="Year", attrs=RIGHT)
    decides = tables.Column(
        accessor="paper__decides", verbose_name="What it decides", empty_values=(), orderable=False
    )
    modes = tables.Column(accessor="policy__modes", verbose_name="Can be", orderable=False)
    verdicts = tables.Column(verbose_name="Claims", orderable=False)
    runs = tables.Column(verbose_name="Runs", attrs=RIGHT)

    class Meta:
        attrs = {"aria-label": "Systems"}

    def render_name(self, value: str, record: System) -> str:
        url = project_url(self.request.project, "papers:system", family=record.family, policy=value)
        return format_html('<a href="{}"><strong>{}</strong></a>', url, value)

    def render_decides(self, value: Any, record: System) -> str:
        return value or record.policy.summary()

    def render_modes(self, value: tuple[str, ...]) -> str:
        return format_html_join(" ", "{}", ((presentation.mode_badge(mode),) for mode in value))

    def render_verdicts(self, value: Any, record: System) -> str:
        badges = ((presentation.state_badge(name, f"{count} {name}"),) for name, count in value.items())
        return format_html_join(" ", "{}", badges)


def exported_systems(found: list[System]) -> Table:
    columns = [Column(label) for label in ("system", "family", "title", "venue", "year", "modes", "claims")]
    rows = []
    for system in found:
        paper = system.paper
        verdicts = ", ".join(f"{count} {name}" for name, count in system.verdicts.items())
        cited = (paper.title, paper.venue, paper.year) if paper else (None, None, None)
        rows.append((system.name, system.family, *cited, ", ".join(system.policy.modes), verdicts))
    return Table("Systems", tuple(columns), tuple(rows))


def exported_claims(system: System) -> Table:
    """The claims table as in a paper's appendix; figures of different units keep their unit in a column."""
    columns = (
        Column("claim"),
        Column("where"),
        Column("unit"),
        Column("paper", is_figure=True),
        Column("ours", is_figure=True),
        Column("ours / paper", is_figure=True),
        Column("mode"),
        Column("verdict"),
        Column("reason"),
    )
    rows = []
    for row in system.rows:
        claim, verdict = row.claim, row.verdict
        figures = (claim.unit, claim.value, verdict.ours, row.ratio)
        rows.append(
            (claim.text, claim.where, *figures, ", ".join(row.modes), verdict.verdict, verdict.reason)
        )
    return Table(f"Claims of {system.name}", columns, tuple(rows))
